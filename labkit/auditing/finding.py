"""What an audit says: one finding for each thing that is wrong, with its place and its numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from labkit.cells import place

SEVERITIES = ("wrong", "suspected", "slow")
"""The gravest first."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        rule: The rule that was broken.
        severity: "wrong", "suspected" (it may be meant) or "slow" (right, and dearer than it need be).
        text: A sentence or two: what, on which rank, in which step, in numbers.
        advice: What to do.
        rank: A rank that shows it, -1 where it is a matter of all.
        step: The training step, from 0; -1 where it is a matter of none.
        source: The program's file:line, "" where none is known.
        tensor: The parameter, buffer or tensor, "" where it is a matter of none.
        evidence: The numbers, by name.
    """

    rule: str
    severity: str
    text: str
    advice: str
    rank: int = -1
    step: int = -1
    source: str = ""
    tensor: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The program's file, "" where none is known."""
        return self.source.rpartition(":")[0]

    @property
    def line(self) -> int:
        """The line in it, 0 where none is known."""
        line = self.source.rpartition(":")[2]
        return int(line) if line.isdecimal() else 0

    @property
    def where(self) -> str:
        """The line as a report shows it: "train.py, line 12"."""
        return place(self.source)

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        data = asdict(self)
        del data["source"]
        return data | {"file": self.file, "line": self.line}
