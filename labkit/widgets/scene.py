"""A picture as a list of marks, written as SVG or painted as a small PNG that is the same everywhere."""

from __future__ import annotations

import io
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image

from labkit.widgets.canvas import SHARP
from labkit.widgets.colours import ink_on, still_fill, still_ink
from labkit.widgets.language import LIGHT

INK, GREY, RED = LIGHT["ink"], LIGHT["quiet"], LIGHT["wrong"]
_NUM_COLOURS, _OPACITIES = 64, 3
_DASHED = "4 3"


@dataclass(frozen=True)
class Rect:
    """A rectangle; its place is in pixels from the upper left corner, and opacity is its fill's."""

    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    stroke: str = "none"
    line: float = 1.0
    dashed: bool = False
    opacity: float = 1.0


@dataclass(frozen=True)
class Text:
    """A line of text; x and y are its anchor and its baseline.

    On a bar, `on` is the bar's fill, and the text black or white, whichever stands out there.
    """

    x: float
    y: float
    words: str
    size: float = 11.0
    anchor: str = "start"
    fill: str = INK
    bold: bool = False
    on: str = ""


@dataclass(frozen=True)
class Line:
    """A line through points; dash is how many pixels are drawn and left out, in turns."""

    points: tuple[tuple[float, float], ...]
    stroke: str = GREY
    line: float = 1.0
    dashed: bool = False
    dash: str = ""


Mark: TypeAlias = Rect | Text | Line


@dataclass(frozen=True)
class Scene:
    """Marks in their colours on white, painted in their order.

    Attributes:
        width: Pixels.
        height: Pixels.
        marks: What is painted.
    """

    width: int
    height: int
    marks: tuple[Mark, ...]


def to_svg(scene: Scene, description: str) -> str:
    """Return the picture as an SVG document; description is what a screen reader says of it."""
    size = f'width="{scene.width}" height="{scene.height}" viewBox="0 0 {scene.width} {scene.height}"'
    body = "".join(map(_element, scene.marks))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif">'
        f'<title>{escape(description)}</title><rect width="100%" height="100%" fill="#ffffff"/>{body}</svg>'
    )


def stills(scene: Scene) -> tuple[bytes, bytes]:
    """Return the picture as PNGs of few colours, without a ground of their own, in colours that are read on any.

    The first is sharp: it has two pixels for each that it takes on the page. The second has one.
    """
    figure = Figure(figsize=(scene.width / 100, scene.height / 100), dpi=100 * SHARP, facecolor="none")
    canvas: Any = FigureCanvasAgg(figure)
    for order, mark in enumerate(scene.marks):
        _paint(figure, scene, mark, order)
    canvas.draw()
    sharp = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    small = sharp.convert("RGBa").reduce(SHARP).convert("RGBA")
    return _of_few_colours(sharp), _of_few_colours(small)


def _of_few_colours(image: Image.Image) -> bytes:
    pixels, step = np.array(image), 255 // _OPACITIES
    pixels[:, :, 3] = (pixels[:, :, 3].astype(int) + step // 2) // step * step
    few = Image.fromarray(pixels).quantize(_NUM_COLOURS, Image.Quantize.FASTOCTREE)
    buffer = io.BytesIO()
    few.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _pattern(mark: Rect | Line) -> str:
    """Return how many pixels of a line are drawn and left out, in turns, "" for a whole one."""
    return (mark.dash if isinstance(mark, Line) else "") or (_DASHED if mark.dashed else "")


def _element(mark: Mark) -> str:
    pattern = "" if isinstance(mark, Text) else _pattern(mark)
    dash = f' stroke-dasharray="{pattern}"' if pattern else ""
    if isinstance(mark, Rect):
        clear = f' fill-opacity="{mark.opacity:g}"' if mark.opacity < 1 else ""
        where = f'x="{mark.x:g}" y="{mark.y:g}" width="{mark.width:g}" height="{mark.height:g}"'
        return f'<rect {where} fill="{mark.fill}" stroke="{mark.stroke}" stroke-width="{mark.line:g}"{dash}{clear}/>'
    if isinstance(mark, Line):
        points = " ".join(f"{x:g},{y:g}" for x, y in mark.points)
        return f'<polyline points="{points}" fill="none" stroke="{mark.stroke}" stroke-width="{mark.line:g}"{dash}/>'
    weight = ' font-weight="bold"' if mark.bold else ""
    place = f'x="{mark.x:g}" y="{mark.y:g}" text-anchor="{mark.anchor}"'
    fill = ink_on(mark.on) if mark.on else mark.fill
    return f'<text {place} font-size="{mark.size:g}" fill="{fill}"{weight}>{escape(mark.words)}</text>'


def _paint(figure: Figure, scene: Scene, mark: Mark, order: int) -> None:
    """Add a mark to the figure, in a still's colours."""
    width, height = scene.width, scene.height
    dash = [] if isinstance(mark, Text) else [float(each) / mark.line for each in _pattern(mark).split()]
    style: Any = (0, dash) if dash else "-"
    if isinstance(mark, Rect):
        corner = mark.x / width, 1 - (mark.y + mark.height) / height
        patch = Rectangle(
            corner,
            mark.width / width,
            mark.height / height,
            facecolor="none" if still_fill(mark.fill) == "none" else (still_fill(mark.fill), mark.opacity),
            edgecolor=still_ink(mark.stroke),
            linewidth=0.72 * mark.line if mark.stroke != "none" else 0,
            linestyle=style,
            transform=figure.transFigure,
            zorder=order,
        )
        figure.add_artist(patch)
    elif isinstance(mark, Line):
        xs = [x / width for x, _ in mark.points]
        ys = [1 - y / height for _, y in mark.points]
        colour, wide = still_ink(mark.stroke), 0.72 * mark.line
        figure.add_artist(Line2D(xs, ys, color=colour, linewidth=wide, linestyle=style, zorder=order))
    else:
        side: Any = {"start": "left", "middle": "center", "end": "right"}[mark.anchor]
        weight = "bold" if mark.bold else "normal"
        figure.text(
            mark.x / width,
            1 - mark.y / height,
            mark.words,
            fontsize=0.72 * 0.92 * mark.size,
            color=ink_on(still_fill(mark.on)) if mark.on else still_ink(mark.fill),
            ha=side,
            va="baseline",
            weight=weight,
            zorder=order,
        )
