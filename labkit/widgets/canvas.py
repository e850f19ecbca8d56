"""A canvas without a ground to draw a small picture on, by the page's pixel: words, lines, rectangles, arrows.

A still has two pixels, each way, for each that it takes on the page, so that it is sharp on today's screens too, or one
where it would be too large a file; the metadata of its output say how large it is there.

Matplotlib draws figures that can be changed and asked; for fifty words and a few lines its layout takes ten times as
long as the drawing. Its fonts are used, so that pictures look alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from labkit.widgets.colours import INK, rgb

Arrow = tuple[float, float, float, float]
"""x and y of its tail, then of its head."""

SHARP = 2
"""Pixels of a sharp still, each way, for each that it takes on the page."""
_FINER = 4  # slanted lines are drawn this many times as large and made smaller
_HEAD, _HALF_WIDTH = 7.0, 2.6
CLEAR = "none"
"""In place of a colour: what lies there is taken away."""
Ink = tuple[int, int, int, int]


def size_on_page(png: bytes, width: int) -> dict[str, dict[str, int]]:
    """Return the metadata of an output that shows a still: how wide it is on the page, and how high by that."""
    wide, high = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
    return {"image/png": {"width": width, "height": round(high * width / wide)}}


class Canvas:
    """A picture being drawn; places are the page's pixels from its upper left corner.

    While it is drawn its colours are multiplied by their opacity: a letter's soft edge is then laid over what is there,
    or over nothing, by one and the same rule, and leaves no dark fringe.

    Attributes:
        width: Pixels.
        height: Pixels.
        scale: Pixels of the still, each way, for one of the page's.
    """

    def __init__(self, width: int, height: int, scale: int = SHARP) -> None:
        self.width, self.height, self.scale = width, height, scale
        self._image = Image.new("RGBA", (scale * width, scale * height))
        self._pen = ImageDraw.Draw(self._image)

    def finished(self) -> Image.Image:
        """Return the picture, RGBA."""
        return Image.frombuffer("RGBa", self._image.size, self._image.tobytes()).convert("RGBA")

    def words(
        self,
        x: float,
        y: float,
        text: str,
        size: int,
        *,
        colour: str = INK,
        across: Literal["left", "middle", "right"] = "left",
        down: Literal["top", "middle", "bottom"] = "middle",
        bold: bool = False,
    ) -> None:
        """Write a line of text; across and down say which part of it lies at x and y; size is in pixels."""
        anchor = {"left": "l", "middle": "m", "right": "r"}[across] + {"top": "a", "middle": "m", "bottom": "d"}[down]
        place = round(self.scale * x), round(self.scale * y)
        self._pen.text(place, text, fill=_ink(colour), font=_font(self.scale * size, bold), anchor=anchor)

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: str, opacity: float = 1.0) -> None:
        """Draw a line one pixel wide in place of what lies there; it is meant to be level or upright."""
        (left, right), (top, bottom) = sorted((round(x0), round(x1))), sorted((round(y0), round(y1)))
        self._pen.rectangle(self._fine(left, top, right, bottom), fill=_ink(colour, opacity))

    def box(self, x: float, y: float, width: float, height: float, *, edge: str, fill: str | None = None) -> None:
        """Draw a rectangle whose edge is its outermost pixel."""
        left, top = round(x), round(y)
        place = self._fine(left, top, left + round(width) - 1, top + round(height) - 1)
        self._pen.rectangle(place, fill=_ink(fill) if fill else None, outline=_ink(edge), width=self.scale)

    def ring(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Draw a thick frame around a place, set off from what lies there by a line of ground."""
        left, top = round(x), round(y)
        right, bottom = left + round(width) - 1, top + round(height) - 1
        for out, ink in ((1, CLEAR), (2, colour), (3, colour)):
            place = self._fine(left - out, top - out, right + out, bottom + out)
            self._pen.rectangle(place, outline=_ink(ink), width=self.scale)

    def pixels(self, x: int, y: int, values: npt.NDArray[np.uint8]) -> None:
        """Put the still's own pixels there, shape (height, width, 4), their colours multiplied by their opacity."""
        self._image.paste(Image.fromarray(values), (self.scale * x, self.scale * y))

    def arrows(self, arrows: Iterable[Arrow], colour: str, opacity: float) -> None:
        """Draw arrows from their tails to their heads, slanted ones without steps."""
        drawn = list(arrows)
        if not drawn:
            return
        places = self.scale * np.array(drawn, dtype=float).reshape(-1, 2)
        left, top = (int(value) for value in np.floor(places.min(0) - 8 * self.scale))
        right, bottom = (int(value) for value in np.ceil(places.max(0) + 8 * self.scale))
        size = right - left, bottom - top
        mask = Image.new("L", (_FINER * size[0], _FINER * size[1]))
        pen = ImageDraw.Draw(mask)
        for tail, head in ((places - [left, top]) * _FINER).reshape(-1, 2, 2):
            length = float(np.hypot(*(head - tail))) or 1.0
            along = (head - tail) / length
            back = head - along * min(_HEAD * self.scale * _FINER, length)
            side = np.array([-along[1], along[0]]) * _HALF_WIDTH * self.scale * _FINER
            pen.line([*tail.tolist(), *back.tolist()], fill=255, width=self.scale * _FINER)
            pen.polygon([*head.tolist(), *(back + side).tolist(), *(back - side).tolist()], fill=255)
        mask = mask.reduce(_FINER).point([round(opacity * value) for value in range(256)])
        self._image.paste(Image.new("RGBA", size, colour), (left, top), mask)

    def _fine(self, left: int, top: int, right: int, bottom: int) -> tuple[int, int, int, int]:
        """Return a rectangle of the page's pixels, its last ones included, in the still's own."""
        scale = self.scale
        return scale * left, scale * top, scale * right + scale - 1, scale * bottom + scale - 1


def _ink(colour: str, opacity: float = 1.0) -> Ink:
    """Return a colour multiplied by its opacity."""
    if colour == CLEAR:
        return 0, 0, 0, 0
    red, green, blue = (round(255 * opacity * value) for value in rgb(colour))
    return red, green, blue, round(255 * opacity)


def width_of(text: str, size: int) -> float:
    """Return how many pixels wide a line of text is."""
    return _font(size, False).getlength(text)


def fitting(text: str, size: int, room: float) -> str:
    """Return a line of text, without the last of its parts between commas where it is wider than there is room."""
    while width_of(text, size) > room and ", " in text:
        text = text.rpartition(", ")[0]
    return text


@cache
def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    from matplotlib import get_data_path

    path = Path(get_data_path()) / "fonts" / "ttf" / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)
