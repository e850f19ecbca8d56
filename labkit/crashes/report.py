"""What came of a crash test."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from labkit.failures.records import Failure, PowerCut

Verdict = Literal["survived", "lost_work", "wrong", "stuck", "cannot_start"]
VERDICTS: tuple[Verdict, ...] = ("survived", "lost_work", "wrong", "stuck", "cannot_start")
_LEFT = {"nothing": "nothing left", "names": "names left", "torn": "torn files left"}


@dataclass(frozen=True)
class CrashPoint:
    """A moment at which the program was crashed, and what became of it.

    Attributes:
        failure: What crashed it, and when: the record that does it again.
        at: What the rank was about to do: "step", "all_reduce", "replace ckpt.pt".
        num_before: How many steps, calls and file operations of all ranks came before.
        verdict: "survived": its end is that of the run without a crash, bit for bit; "lost_work": so it is, but a save
            was lost that the program had gone on from; "wrong": it came to another end and nothing said so; "stuck":
            its ranks wait for each other after the restart; "cannot_start": every restart fails.
        lost_steps: Optimizer steps that were done more than once, of the rank that did most; None where it did not end.
        why: What was lost, what differs, or what was raised; "" where it survived.
    """

    failure: Failure
    at: str
    num_before: int
    verdict: Verdict
    lost_steps: int | None = None
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "crash": repr(self.failure), "at": self.at, "num_before": self.num_before, "verdict": self.verdict,
            "lost_steps": self.lost_steps, "why": self.why,
        }  # fmt: skip

    def __str__(self) -> str:
        lost = "" if self.lost_steps is None else f", {self.lost_steps} steps done again"
        what = f"power cut ({_LEFT[self.failure.keeps]})" if isinstance(self.failure, PowerCut) else "kill"
        why = f": {self.why}" if self.why else ""
        return f"{self.verdict}{lost}  {what} of rank {self.failure.of}, {self.failure.when} ({self.at}){why}"


@dataclass(frozen=True)
class CrashReport:
    """What came of each crash.

    Attributes:
        points: In the order in which the run without a crash comes to them.
        num_found: How many moments there are; more than points where some were left out.
        num_steps: Optimizer steps of the run without a crash.
    """

    points: tuple[CrashPoint, ...] = field(repr=False)
    num_found: int
    num_steps: int

    @property
    def failing(self) -> tuple[CrashPoint, ...]:
        """The points that the program did not survive, or survived with less than it had saved."""
        return tuple(point for point in self.points if point.verdict != "survived")

    @property
    def only_lost_work(self) -> bool:
        """Whether the program came to its right end after every crash."""
        return all(point.verdict == "lost_work" for point in self.failing)

    @property
    def shortest(self) -> CrashPoint | None:
        """The failing point with the least before it, None where the program survives all."""
        return min(self.failing, key=lambda point: point.num_before, default=None)

    def counts(self) -> dict[str, int]:
        """Return how many points have each verdict."""
        found = Counter(point.verdict for point in self.points)
        return {verdict: found[verdict] for verdict in VERDICTS}

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "num_found": self.num_found, "num_tried": len(self.points), "num_steps": self.num_steps, **self.counts(),
            "points": [point.as_dict() for point in self.points],
        }  # fmt: skip

    def __repr__(self) -> str:
        tried = len(self.points)
        some = "" if tried == self.num_found else f" of {self.num_found}, evenly spaced"
        lines = [f"{tried} crash points{some}: " + ", ".join(f"{n} {word}" for word, n in self.counts().items())]
        survived = [point.lost_steps or 0 for point in self.points if point.verdict == "survived"]
        if survived:
            mean = sum(survived) / len(survived)
            lines.append(f"  where it survived, {mean:.3g} steps were done again on average, {max(survived)} at most")
        for verdict in VERDICTS[1:]:
            mine = [point for point in self.failing if point.verdict == verdict]
            lines += [f"  {point}" for point in mine[:5]]
            if len(mine) > 5:
                lines.append(f"  and {len(mine) - 5} more that are {verdict}")
        if self.shortest is not None:
            lines.append(f"the shortest failing one: {self.shortest.failure!r}")
        return "\n".join(lines)
