"""What an audit says: one finding for each thing that is wrong, with its place and its numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from labkit.cells import place

SEVERITIES = ("wrong", "suspected", "slow")
"""The gravest first."""


@dataclass(frozen=True)
class Change:
    """The one thing that a further run changes, to learn what a finding would save.

    Attributes:
        kind: "free", "later", "joined" and "tensors" are calls on the lines (labkit.simulator.what_if): they take no
            time, are waited for at the step, are one message, or make no objects of tensors; "reads" are values read
            there, "spread" is what the rank computes there, "placed" is where ranks are.
        words: The change as a report says it, such as "without these barriers".
        sources: The program's lines.
        rank: The rank, where it is a matter of one.
        among: Over how many ranks that is spread.
        but_pass: The backward pass of a step whose calls stay as they are, 0 for none.
        places: For each rank which place of the cluster it has.
    """

    kind: str
    words: str
    sources: frozenset[str] = frozenset()
    rank: int = -1
    among: int = 1
    but_pass: int = 0
    places: tuple[int, ...] = ()


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
        change: What a further run changes to learn what it would save, None where none can.
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
    change: Change | None = field(default=None, compare=False)

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

    def __str__(self) -> str:
        """Return it as a report shows it: the rule and its place, what is wrong, what to do."""
        told = [f"rank {self.rank}"] if self.rank >= 0 else []
        told += [f"step {self.step}"] if self.step >= 0 else []
        told += [self.tensor] if self.tensor else []
        told += [self.where] if self.source else []
        where = f" ({', '.join(told)})" if told else ""
        return f"{self.severity}: {self.rule}{where}\n   {self.text}\n   Do: {self.advice}"

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        data = asdict(self)
        del data["source"], data["change"]
        return data | {"file": self.file, "line": self.line}
