"""What stands around the bars: the time axis and the legend."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from labkit.widgets.canvas import Canvas, width_of
from labkit.widgets.colours import ARROW, GREY, INK, RED, rgb
from labkit.widgets.layout import BOTTOM, LEFT, NUM_COLUMNS, RIGHT
from labkit.widgets.palette import HATCH, PALE, Category

SMALL, TEXT = 11, 13
"""Pixels of the two sizes of type."""
_PATCH = 14
_MOST_TICKS = 8
_IDLE = Category("idle", "", "")


def ticks(span: float) -> list[float]:
    """Return the numbers of an axis from 0 to span: at most nine, at 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(span / _MOST_TICKS))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= span / _MOST_TICKS * (1 - 1e-9))
    return [step * number for number in range(int(span / step * (1 + 1e-9)) + 1)]


def draw_axis(canvas: Canvas, span: float, label: str) -> None:
    """Draw the line under the bars with its ticks; span is its length in its unit."""
    base = canvas.height - BOTTOM
    canvas.line(LEFT, base, LEFT + NUM_COLUMNS, base, GREY)
    for tick in ticks(span):
        x = LEFT + tick / span * NUM_COLUMNS
        canvas.line(x, base, x, base + 4, GREY)
        canvas.words(x, base + 6, f"{tick:g}", SMALL, across="middle", down="top")
    canvas.words(12, canvas.height - 4, label, TEXT, down="bottom")


def draw_legend(
    canvas: Canvas, categories: Sequence[Category], *, has_arrows: bool, is_exposed: bool = False, is_idle: bool = True
) -> None:
    """Name what was drawn and nothing else, from the right end of the bars leftwards, idle last."""
    entries: list[tuple[str, Category | None]] = [(category.name, category) for category in categories]
    entries += [("exposed", None)] if is_exposed else []
    entries += [("message", None)] if has_arrows else []
    entries += [("idle: empty", _IDLE)] if is_idle else []
    x, y = canvas.width - RIGHT, canvas.height - 11
    for name, category in reversed(entries):
        x -= round(width_of(name, SMALL))
        canvas.words(x, y, name, SMALL)
        x -= _PATCH + 5
        if name == "exposed":
            canvas.box(x, y + 1, _PATCH, 3, edge=RED, fill=RED)
        elif category is None:
            canvas.arrows([(x, y + 0.5, x + _PATCH, y + 0.5)], ARROW, 1.0)
        else:
            canvas.box(x, y - 4, _PATCH, 9, edge=INK, fill=None if category is _IDLE else category.dark)
            if category.hatched:
                canvas.pixels(x + 1, y - 3, _stripes(category.dark, 7, _PATCH - 2, canvas.scale))
        x -= 12


def _stripes(colour: str, height: int, width: int, scale: int) -> np.ndarray:
    y, x = np.indices((scale * height, scale * width))
    opacity = np.where((x + y)[:, :, None] % (scale * HATCH[0]) < scale * HATCH[1], 1, PALE)
    return np.asarray(np.rint(255 * opacity * [*rgb(colour), 1]), dtype=np.uint8)
