"""What the drivers of this lesson share."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Value


def plain(value: Any) -> Value:
    """Return numbers and lists or tuples of them as they are, and words for anything else."""
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"a {type(value).__name__}"
