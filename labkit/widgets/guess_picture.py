"""A guess and what came out, as two marks on one number line: a small PNG."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from labkit.widgets.canvas import SHARP
from labkit.widgets.colours import GREY, INK, still_ink
from labkit.widgets.language import LIGHT
from labkit.words import in_points

GUESS_COLOUR, RESULT_COLOUR = GREY, still_ink(LIGHT["forward"])
WIDTH, _HEIGHT, _DPI = 560, 138, 100
SMALL, TEXT = 8.0, 9.5  # points, 11 and 13 pixels
_LEAST_FOR_LOG = 20.0


def is_logarithmic(guess: float, result: float) -> bool:
    """Return whether the line counts in powers of ten: where the smaller of two positive numbers would sit on zero."""
    small, large = sorted((guess, result))
    return small > 0 and large / small >= _LEAST_FOR_LOG


def how_far(guess: float, result: float, unit: str = "") -> str:
    """Return how far off a guess is: "×14 too low", or by how much where a factor says nothing.

    Percentages are compared in percentage points.
    """
    if guess == result:
        return "exactly right"
    word = "too low" if guess < result else "too high"
    small, large = sorted((abs(guess), abs(result)))
    if unit == "%":
        return f"{in_points(guess, result)} {word}"
    if guess * result <= 0 or small == 0:
        return f"{abs(result - guess):.3g} {word}"
    factor = large / small
    return f"×{factor:.2g} {word}" if factor >= 1.1 else f"{100 * abs(result - guess) / abs(result):.2g} % {word}"


def draw(guess: float, result: float, unit: str) -> Figure:
    """Return the number line as a matplotlib figure: a ring is the guess, a diamond the result.

    Args:
        guess: What was written down, finite.
        result: What came out, finite.
        unit: Names the axis; "" for a plain number.
    """
    figure = Figure(figsize=(WIDTH / _DPI, _HEIGHT / _DPI), dpi=_DPI, facecolor="none")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.06, 0.42, 0.88, 0.0001))
    axes.patch.set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.set_ylim(-1, 1)
    axes.set_yticks([])
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=SMALL, colors=GREY)
    small, large = sorted((guess, result))
    if is_logarithmic(guess, result):
        axes.set_xscale("log")
        axes.set_xlim(small / 2.5, large * 2.5)
    else:
        low, high = min(small, 0.0), max(large, 0.0)
        margin = 0.08 * (high - low or 1.0)
        axes.set_xlim(low - margin, high + margin)
    axes.set_xlabel(unit or "number", fontsize=TEXT, color=INK)
    marks: tuple[tuple[float, str, str, dict[str, Any], int], ...] = (
        (guess, "guess", GUESS_COLOUR, {"marker": "o", "markersize": 9, "markerfacecolor": "none"}, 11),
        (result, "result", RESULT_COLOUR, {"marker": "D", "markersize": 7}, 24),
    )
    for value, word, colour, style, height in marks:
        axes.plot([value], [0], color=colour, markeredgewidth=2, clip_on=False, **style)
        place: dict[str, Any] = {"xytext": (0, height), "textcoords": "offset points", "ha": "center"}
        axes.annotate(f"{word} {value:.4g}", (value, 0), color=colour, fontsize=TEXT, weight="bold", **place)
    figure.text(0.02, 0.86, how_far(guess, result, unit), fontsize=TEXT + 1, weight="bold", color=INK)
    return figure


def to_png(guess: float, result: float, unit: str) -> bytes:
    """Return the picture as a PNG."""
    buffer = io.BytesIO()
    draw(guess, result, unit).savefig(buffer, format="png", dpi=SHARP * _DPI, metadata={"Software": None})
    return buffer.getvalue()
