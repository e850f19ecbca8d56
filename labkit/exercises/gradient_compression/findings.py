"""A finding: the first thing that is wrong with a case, and the mistake it points to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.compare import listing
from labkit.checks.judged import Judge, Mistake
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire


@dataclass(frozen=True)
class Finding:
    """What is wrong.

    Attributes:
        mistake: Name of the mistake it points to, or a word that no mistake bears.
        message: In a sentence.
        expected: What should have come; may be "".
        got: What came; may be "".
        rank: The rank it was found on, None where it is no single one.
    """

    mistake: str
    message: str
    expected: str = ""
    got: str = ""
    rank: int | None = None


Find: TypeAlias = Callable[[Case, tuple[Values, ...], Wire], Finding | None]


def judging(find: Find) -> Judge:
    """Return the judge that passes what has no finding."""

    def judge(case: Case, got: Got, wire: Wire) -> Verdict:
        assert isinstance(got, tuple)
        found = find(case, got, wire)
        if found is None:
            return Verdict(True)
        return Verdict(False, found.message, "", found.expected, found.got, rank=found.rank)

    return judge


def mistakes(find: Find, **hints: str) -> tuple[Mistake, ...]:
    """Return a mistake for each name; the name's underscores are spaces.

    Args:
        find: What looks for them.
        hints: Name -> what is said to the learner.
    """

    def pointing_at(name: str) -> Callable[[Case, Got, Wire], bool]:
        def seen(case: Case, got: Got, wire: Wire) -> bool:
            found = find(case, got, wire) if isinstance(got, tuple) else None
            return found is not None and found.mistake == name

        return seen

    return tuple(
        Mistake(key.replace("_", " "), hint, pointing_at(key.replace("_", " "))) for key, hint in hints.items()
    )


def raising(name: str, hint: str, *words: str, certain: bool = True) -> Mistake:
    """Return the mistake of a run that failed with one of these words in its message (its lines are the learner's)."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return not isinstance(got, tuple) and any(word in got.message for word in words)

    return Mistake(name, hint, seen, certain=certain)


def hanging(name: str, hint: str, *words: str) -> Mistake:
    """Return the mistake of a run that did not end, or failed with one of these words."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if isinstance(got, tuple):
            return False
        return got.kind in ("deadlock", "timeout") or any(word in got.message for word in words)

    return Mistake(name, hint, seen)


TOO_EARLY = raising(
    "unpacked too early",
    "A part was unpacked before it had come. With async_op=True, all_gather only begins: wait for the work of every "
    "part (in a hook: collect_all of all futures) before you unpack.",
    "before it had come",
)


def near(came: Value, wanted: Tensor, relative: float = 1e-6) -> bool:
    """Return whether a tensor of this shape and dtype came, equal up to rounding."""
    if not isinstance(came, Tensor) or came.shape != wanted.shape or came.dtype != wanted.dtype:
        return False
    size = max(float(wanted.abs().max()), 1e-30) if wanted.numel() else 1.0
    return bool(((came.double() - wanted.double()).abs() <= relative * size).all())


def unlike(came: Value, wanted: Tensor, what: str, rank: int | None = None) -> Finding | None:
    """Return a finding if no tensor of this shape and dtype came."""
    if not isinstance(came, Tensor):
        return Finding("no tensor", f"{what} is no tensor but {came!r:.60}.", rank=rank)
    if came.dtype != wanted.dtype:
        return Finding("dtype lost", f"{what} has dtype {came.dtype}, expected {wanted.dtype}.", rank=rank)
    if came.shape != wanted.shape:
        return Finding(
            "shape lost", f"{what} has shape {tuple(came.shape)}, expected {tuple(wanted.shape)}.", rank=rank
        )
    return None


def wrong_value(mistake: str, what: str, came: Tensor, wanted: Tensor, rank: int | None = None) -> Finding:
    """Return the finding that shows both, around the entry that is furthest off."""
    apart = torch.nan_to_num((came.double() - wanted.double()).abs(), nan=float("inf")).flatten()
    at = int(apart.argmax())
    return Finding(
        mistake,
        f"{what} is wrong, most of all in entry {at}.",
        listing(wanted, at),
        listing(came, at),
        rank,
    )


def generator(seed: int) -> torch.Generator:
    """Return a generator with this seed."""
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normally distributed numbers, the same for the same seed."""
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64).to(dtype)


def part_bytes(parts: Value) -> int:
    """Return the bytes of tensors in a list."""
    return sum(part.numel() * part.element_size() for part in cast(list[Tensor], parts))
