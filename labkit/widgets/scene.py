"""A picture as a list of marks, written as SVG or painted as a small PNG that is the same everywhere."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, TypeAlias

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image

from labkit.widgets.language import DARK, LIGHT

INK, GREY, RED = LIGHT["ink"], LIGHT["quiet"], LIGHT["wrong"]
_NUM_COLOURS = 24
_MIDDLE = "#797979"
ON_ANY_GROUND = {LIGHT[name]: _MIDDLE for name in ("ink", "quiet", "line")} | {
    LIGHT[name]: DARK[name] for name in ("send", "collective", "path")
}
"""What stands for a colour where nobody knows the page's ground: read on white and on #111111 alike."""


@dataclass(frozen=True)
class Rect:
    """A rectangle; its place is in pixels from the upper left corner."""

    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    stroke: str = "none"
    line: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Text:
    """A line of text; x and y are its anchor and its baseline."""

    x: float
    y: float
    words: str
    size: float = 11.0
    anchor: str = "start"
    fill: str = INK
    bold: bool = False


@dataclass(frozen=True)
class Line:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    stroke: str = GREY
    line: float = 1.0
    dashed: bool = False


Mark: TypeAlias = Rect | Text | Line


@dataclass(frozen=True)
class Scene:
    """Marks on white, painted in their order.

    Attributes:
        width: Pixels.
        height: Pixels.
        marks: What is painted.
    """

    width: int
    height: int
    marks: tuple[Mark, ...]


def ink_on(fill: str) -> str:
    """Return black or white, whichever stands out more on a colour ``#rrggbb``."""
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in _rgb(fill)]
    return "#000000" if sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) > 0.18 else "#ffffff"


def between(low: str, high: str, share: float) -> str:
    """Return the colour at a share of 0 to 1 on the way between two."""
    share = min(max(share, 0.0), 1.0)
    mixed = (round(255 * (a + (b - a) * share)) for a, b in zip(_rgb(low), _rgb(high), strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def to_svg(scene: Scene, description: str) -> str:
    """Return the picture as an SVG document; description is what a screen reader says of it."""
    size = f'width="{scene.width}" height="{scene.height}" viewBox="0 0 {scene.width} {scene.height}"'
    body = "".join(map(_element, scene.marks))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif">'
        f'<title>{escape(description)}</title><rect width="100%" height="100%" fill="#ffffff"/>{body}</svg>'
    )


def to_png(scene: Scene, *, on_any_ground: bool = False) -> bytes:
    """Return the picture as a PNG of few colours, on white or without a ground of its own."""
    paper = "none" if on_any_ground else "white"
    figure = Figure(figsize=(scene.width / 100, scene.height / 100), dpi=100, facecolor=paper)
    canvas: Any = FigureCanvasAgg(figure)
    for order, mark in enumerate(scene.marks):
        _paint(figure, scene, _on_any_ground(mark) if on_any_ground else mark, order)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    if on_any_ground:
        few = Image.fromarray(pixels.copy()).quantize(4 * _NUM_COLOURS, Image.Quantize.FASTOCTREE)
    else:
        image = Image.fromarray(pixels[:, :, :3].copy())
        few = image.quantize(_NUM_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    few.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _on_any_ground(mark: Mark) -> Mark:
    """Return a mark in colours that are read on light and on dark ground."""
    if isinstance(mark, Line):
        return replace(mark, stroke=ON_ANY_GROUND.get(mark.stroke, mark.stroke))
    if isinstance(mark, Text):
        return replace(mark, fill=ON_ANY_GROUND.get(mark.fill, mark.fill))
    fill, stroke = (ON_ANY_GROUND.get(colour, colour) for colour in (mark.fill, mark.stroke))
    return replace(mark, fill=fill, stroke=stroke)


def _element(mark: Mark) -> str:
    dash = ' stroke-dasharray="4 3"' if not isinstance(mark, Text) and mark.dashed else ""
    if isinstance(mark, Rect):
        where = f'x="{mark.x:g}" y="{mark.y:g}" width="{mark.width:g}" height="{mark.height:g}"'
        return f'<rect {where} fill="{mark.fill}" stroke="{mark.stroke}" stroke-width="{mark.line:g}"{dash}/>'
    if isinstance(mark, Line):
        points = " ".join(f"{x:g},{y:g}" for x, y in mark.points)
        return f'<polyline points="{points}" fill="none" stroke="{mark.stroke}" stroke-width="{mark.line:g}"{dash}/>'
    weight = ' font-weight="bold"' if mark.bold else ""
    place = f'x="{mark.x:g}" y="{mark.y:g}" text-anchor="{mark.anchor}"'
    return f'<text {place} font-size="{mark.size:g}" fill="{mark.fill}"{weight}>{escape(mark.words)}</text>'


def _paint(figure: Figure, scene: Scene, mark: Mark, order: int) -> None:
    width, height = scene.width, scene.height
    style: Any = "--" if not isinstance(mark, Text) and mark.dashed else "-"
    if isinstance(mark, Rect):
        corner = mark.x / width, 1 - (mark.y + mark.height) / height
        patch = Rectangle(
            corner,
            mark.width / width,
            mark.height / height,
            facecolor=mark.fill,
            edgecolor=mark.stroke,
            linewidth=0.72 * mark.line if mark.stroke != "none" else 0,
            linestyle=style,
            transform=figure.transFigure,
            zorder=order,
        )
        figure.add_artist(patch)
    elif isinstance(mark, Line):
        xs = [x / width for x, _ in mark.points]
        ys = [1 - y / height for _, y in mark.points]
        figure.add_artist(Line2D(xs, ys, color=mark.stroke, linewidth=0.72 * mark.line, linestyle=style, zorder=order))
    else:
        side: Any = {"start": "left", "middle": "center", "end": "right"}[mark.anchor]
        weight = "bold" if mark.bold else "normal"
        figure.text(
            mark.x / width,
            1 - mark.y / height,
            mark.words,
            fontsize=0.72 * 0.92 * mark.size,
            color=mark.fill,
            ha=side,
            va="baseline",
            weight=weight,
            zorder=order,
        )


def _rgb(colour: str) -> Sequence[float]:
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
