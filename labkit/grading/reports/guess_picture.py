"""A prediction as bars: the guess, what the lesson found, what the student's own run measured."""

from __future__ import annotations

from markupsafe import Markup

from labkit.checks.predictions import with_unit
from labkit.grading.guesses import Guess
from labkit.grading.plain_text import plain_text
from labkit.grading.reports.page import fragment

_BAR_PIXELS = 260


def guess_picture(guess: Guess) -> Markup:
    """Return bars of the guess and of what came out, or nothing where there is nothing to compare by length."""
    values = {"you": guess.guess, "the lesson": guess.found, "your run": guess.measured}
    bars = [
        (name, float(value))
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    ]
    most = max((value for _, value in bars), default=0.0)
    if len(bars) < 2 or most <= 0 or guess.guess is None:
        return Markup()
    unit = plain_text(guess.unit, 20)
    drawn = [(name, max(1.0, _BAR_PIXELS * value / most), with_unit(value, unit)) for name, value in bars]
    return fragment("guess_picture.html", bars=drawn)
