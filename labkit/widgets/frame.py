"""What stands around the bars: the time axis and the legend, placed by pixel.

Matplotlib's own axis and legend would do; drawn as a few lines and words they take a third of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from labkit.widgets.layout import BOTTOM, LEFT, NUM_COLUMNS, RIGHT
from labkit.widgets.marks import GREY, MESSAGE_COLOUR, SMALL, TEXT
from labkit.widgets.palette import Category

_PATCH, _LETTER = 14, 6.1


def draw_axis(figure: Figure, span: float, label: str, width: int, height: int) -> None:
    """Draw the line under the bars with ticks at 1, 2, 5 times a power of ten; span is its length in its unit."""
    base = BOTTOM - 1
    _line(figure, [LEFT, LEFT + NUM_COLUMNS], [base, base], width, height)
    ticks = [float(tick) for tick in MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(0, span)]
    for tick in ticks:
        if 0 <= tick <= span * (1 + 1e-9):
            x = LEFT + tick / span * NUM_COLUMNS
            _line(figure, [x, x], [base, base - 4], width, height)
            figure.text(x / width, (base - 6) / height, f"{tick:g}", fontsize=SMALL, ha="center", va="top")
    middle = (LEFT + NUM_COLUMNS / 2) / width
    figure.text(middle, 4 / height, label, fontsize=TEXT, ha="center", va="bottom")


def draw_legend(figure: Figure, categories: Sequence[Category], width: int, height: int, *, has_arrows: bool) -> None:
    """Name the colours in use, from the right end of the bars leftwards, idle last."""
    entries: list[tuple[str, Category | None]] = [(category.name, category) for category in categories]
    entries += [("message", None)] if has_arrows else []
    x = width - RIGHT
    for name, category in reversed([*entries, ("idle: empty", Category("idle", "#FFFFFF"))]):
        x -= round(_LETTER * len(name))
        figure.text(x / width, 1 - 15 / height, name, fontsize=SMALL, va="center")
        x -= _PATCH + 5
        if category is None:
            style = {"marker": 5, "markersize": 4, "markevery": [1], "linewidth": 0.8}
            ends = [x / width, (x + _PATCH) / width]
            figure.add_artist(Line2D(ends, [1 - 15 / height] * 2, color=MESSAGE_COLOUR, **style))  # type: ignore[arg-type]
        else:
            figure.add_artist(
                Rectangle(
                    (x / width, 1 - 19 / height),
                    _PATCH / width,
                    8 / height,
                    facecolor="#DDDDDD" if category.hatched else category.colour,
                    edgecolor=category.colour if category.hatched else "#333333",
                    hatch="////" if category.hatched else None,
                    linewidth=0.6,
                    transform=figure.transFigure,
                )
            )
        x -= 12


def _line(figure: Figure, x: list[float], y: list[float], width: int, height: int) -> None:
    points = [value / width for value in x], [value / height for value in y]
    figure.add_artist(Line2D(*points, color=GREY, linewidth=0.8))
