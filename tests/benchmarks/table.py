"""Tables and bars as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Bar:
    """One promise about a ratio.

    Attributes:
        says: The promise in words.
        ratio: What was measured, or None where a side of it could not be.
        limit: What it is held against.
        at_least: Whether ratio must be at least the limit; else at most.
    """

    says: str
    ratio: float | None
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the promise held, or None if it could not be measured."""
        if self.ratio is None:
            return None
        return self.ratio >= self.limit if self.at_least else self.ratio <= self.limit

    def __str__(self) -> str:
        if self.ratio is None:
            return f"  not measured  {self.says}"
        return f"  {'met' if self.met else 'MISSED':14}{self.says}: {self.ratio:.3g}"

    def as_dict(self) -> dict[str, Any]:
        """Return the bar as plain data."""
        return {**asdict(self), "met": self.met}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, first column left, the others right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    return "\n".join(
        "  "
        + "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [head, *rows]
    )


def ratio(one: float | None, other: float | None) -> float | None:
    """Return one over other, or None where one of them could not be measured."""
    return None if one is None or not other else one / other
