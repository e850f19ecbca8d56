"""Which of many tests of one kind run every time: the first, and one in every few after it; the others are `long`.

The same ones on every machine and every day, so that a failure is there again when the test is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def one_in(
    few: int, values: Iterable[Any], name: Callable[[Any], str] = str, always: Collection[str] = ()
) -> list[Any]:
    """Return the values as parameters of a test, most of them marked `long`.

    Args:
        few: How many values make one that runs every time.
        values: One for each test.
        name: What a test is called by.
        always: Names of those that run every time besides.
    """
    return [
        pytest.param(
            value, id=name(value), marks=[] if place % few == 0 or name(value) in always else [pytest.mark.long]
        )
        for place, value in enumerate(values)
    ]
