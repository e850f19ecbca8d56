"""What a learner's function returned, as data that a rank may hand over."""

from __future__ import annotations

import math
from typing import Any

from labkit.checks.case import Value


def is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def data_of(value: Any) -> Value:
    """Return a number, a list of numbers, or words that say what else it is."""
    if is_number(value):
        return float(value)
    if isinstance(value, list | tuple):
        return [data_of(each) for each in value]
    return f"{value!r:.60}"
