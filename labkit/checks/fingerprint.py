"""What a wrong answer leaves behind on an exercise's visible cases, by which the same mistake is known again.

It holds no answer and no line of code: of each case with wrong results, a hash of everything that is exact (shapes,
dtypes, whole numbers, words, what travelled) and four sums over each tensor. The sums differ by rounding from one
writing of a mistake to the next, so they are compared as numbers. A case that raised or hung says nothing: many
mistakes end alike.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from labkit.checks.case import Failure, Value, Values
from labkit.checks.outcome import CaseOutcome
from labkit.checks.wire import Wire

PASSED, NOTHING = "passed", "nothing"
_STEPS = (0.7, 1.9, 2.6)
"""Each sum weighs entry i by cos(step * i): no two entries alike, so that neither order nor place is lost."""
_REL, _ABS = 1e-5, 1e-9

Sums: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class CasePrint:
    """What a case that failed left behind.

    Attributes:
        told: A hash of everything that is exact.
        sums: For each tensor and each float, on rank after rank: its norm and three weighted sums.
    """

    told: str
    sums: tuple[Sums, ...]

    def is_like(self, other: CasePrint) -> bool:
        """Return whether another case left the same behind, up to rounding."""
        pairs = zip(self.sums, other.sums, strict=False)
        return (
            self.told == other.told
            and len(self.sums) == len(other.sums)
            and all(_near(mine, theirs) for mine, theirs in pairs)
        )


Fingerprint: TypeAlias = tuple[CasePrint | str, ...]
"""Of each visible case, in order: what it left behind, PASSED, or NOTHING: it raised, hung or was not run."""


def fingerprint_of(outcomes: Sequence[CaseOutcome]) -> Fingerprint:
    """Return what an answer left behind on these cases."""
    return tuple(_of_outcome(each) for each in outcomes)


def are_alike(one: Fingerprint, other: Fingerprint) -> bool:
    """Return whether two answers passed the same cases and left the same behind in those that failed.

    A case that one of them did not finish says nothing; at least one must be wrong in both.
    """
    if len(one) != len(other):
        return False
    ran = [(a, b) for a, b in zip(one, other, strict=True) if NOTHING not in (a, b)]
    alike = [a.is_like(b) if isinstance(a, CasePrint) and isinstance(b, CasePrint) else a == b for a, b in ran]
    return all(alike) and any(isinstance(a, CasePrint) for a, _ in ran)


def _of_outcome(outcome: CaseOutcome) -> CasePrint | str:
    if outcome.got is None or outcome.verdict is None or isinstance(outcome.got, Failure):
        return NOTHING
    return PASSED if outcome.passed else case_print(outcome.got, outcome.wire)


def case_print(results: Sequence[Values], wire: Wire) -> CasePrint:
    """Return what a case left behind: all that came and all that travelled."""
    exact: list[str] = []
    sums: list[Sums] = []
    for leaf in _leaves(list(results), ""):
        if isinstance(leaf, str):
            exact.append(leaf)
        else:
            sums.append(leaf)
    exact += _travelled(wire)
    return CasePrint(hashlib.sha256("\n".join(exact).encode()).hexdigest()[:24], tuple(sums))


def _travelled(wire: Wire) -> Iterator[str]:
    """Yield what each rank sent to whom, in bytes, and which collectives it called; not in which order."""
    pairs = Counter[tuple[int, int]]()
    for message in wire.messages:
        pairs[message.src, message.dst] += message.bytes
    yield repr(sorted(item for item in pairs.items() if item[1]))
    yield repr(sorted(Counter((call.rank, call.kind, call.bytes) for call in wire.collectives).items()))


def _leaves(value: Value, path: str) -> Iterator[str | Sums]:
    """Yield what a result is made of: words for what is exact, sums for what is rounded."""
    if isinstance(value, Tensor):
        numbers = value.detach().reshape(-1).to(torch.float64)
        yield f"{path} {value.dtype} {tuple(value.shape)} {int(numbers.isnan().sum())} {int(numbers.isinf().sum())}"
        yield _sums(torch.nan_to_num(numbers, 0.0, 0.0, 0.0))
    elif isinstance(value, float):
        yield f"{path} float {math.isfinite(value)}"
        yield (abs(value), value) if math.isfinite(value) else (0.0,)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        yield f"{path} of {len(value)}"
        for place, part in enumerate(value):
            yield from _leaves(part, f"{path}.{place}")
    else:
        yield f"{path} {value!r}"


def _sums(numbers: Tensor) -> Sums:
    places = torch.arange(1, len(numbers) + 1, dtype=torch.float64)
    return (float(numbers.norm()), *(float((numbers * torch.cos(step * places)).sum()) for step in _STEPS))


def _near(one: Sums, other: Sums) -> bool:
    """Return whether sums are those of the same tensor, up to rounding; the norm comes first and is the scale."""
    most = _REL * max(one[0], other[0]) + _ABS
    return len(one) == len(other) and all(abs(a - b) <= most for a, b in zip(one, other, strict=False))
