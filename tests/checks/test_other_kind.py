"""A stand-in of another kind does what the usual one does, and is none of its class."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind
from labkit.checks.on_ranks.other_kind import kind_for, named_for


class Counter:
    """Counts."""

    step = 2

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        """Return the sum so far."""
        self.count += self.step
        return self.count


def test_a_stand_in_of_another_kind_does_the_same_and_shares_no_class() -> None:
    (inputs, other) = of_another_kind(Case("two", 2, ({"x": 1}, {"x": 2})), random.Random(0)).inputs
    kind = kind_for(Counter, inputs)
    assert kind_for(Counter, {"x": 1}) is Counter and inputs["x"] == 1
    assert kind.__name__ == kind_for(Counter, other).__name__ != "Counter"
    assert not issubclass(kind, Counter) and kind.__module__ == Counter.__module__
    made = kind()
    assert [made.add(), made.add()] == [2, 4]
    assert named_for(lambda: 3, inputs).__qualname__ == kind.__name__ and named_for(len, {}) is len
