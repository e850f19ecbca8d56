"""An exercise, declared: what each rank must hold, and each mistake with its hint and the marks that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor

from labkit.checks.as_if import NOT_HERE
from labkit.checks.blame import bearing
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.compare import listing, near
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Find, Finding
from labkit.checks.parting import parting
from labkit.checks.wire import Wire
from labkit.words import are_wrong, number

Way: TypeAlias = Callable[..., Any]
"""What a rank of a case, way(case, rank), holds where a mistake was made; None where the mistake cannot be made. Of a
formula: what it returns for its arguments."""
Seen: TypeAlias = Callable[[Case, Got, Wire], bool]
"""Whether results, or a failure, or what travelled bear the mark of a mistake."""


@dataclass(frozen=True)
class Mistake:
    """A mistake, its hint, and how it is known.

    Attributes:
        name: A few words, unique within the exercise.
        hint: A sentence or two that name it and point at the cure.
        gives: Key of a result -> what is there where the mistake was made; several ways under one key in a tuple.
        says: Words of the message of a failure that it leads to, or kinds of failures (`HANGS`).
        seen: Another mark that it leaves on a run.
        general: Whether many wrong answers look like this one, so that the pattern over all cases says more.
        certain: Whether its mark is enough where Python's own error speaks for itself.
        everywhere: Whether it must give what came on every rank: there are other ways to what it gives on one.
        endless: Whether time is up although no rank waits in a communication call.
    """

    name: str
    hint: str
    gives: Mapping[str, Way | tuple[Way, ...]] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    seen: Seen | None = None
    general: bool = False
    certain: bool = False
    everywhere: bool = False
    endless: bool = False

    def marks(self, case: Case, got: Got, wire: Wire) -> bool:
        """Return whether a run bears the mark of it."""
        said = isinstance(got, Failure) and bool(self.says) and bearing(*self.says)(case, got, wire)
        return said or (self.seen is not None and self.seen(case, got, wire))

    def given(self, key: str) -> tuple[Way, ...]:
        """Return the ways under a key."""
        ways = self.gives.get(key, ())
        return ways if isinstance(ways, tuple) else (ways,)


@dataclass(frozen=True)
class Result:
    """One thing that a rank's driver returns, held against what the oracle says.

    Attributes:
        key: Where it is; dots lead into dicts. A rank of which the oracle says nothing there is not looked at.
        wrong: What is said of a wrong one. {ranks} stands for which ranks are wrong, {rank} for the first of them,
            {got} and {wanted} for what came there and should have come, {entry} for the entry that is furthest off,
            {has} and {needs} for what is and should be there.
        otherwise: The mistake where no other one gives what came.
        same: Whether what came is right.
        shown: More that the sentence may speak of, of what came and what should have; {got} and {wanted}, too.
    """

    key: str
    wrong: str | Callable[[Case, int], str]
    otherwise: str = ""
    same: Callable[[Any, Any], bool] = lambda came, wanted: bool(came == wanted)
    shown: Callable[[Any, Any], Mapping[str, Any]] = lambda came, wanted: {}


Look: TypeAlias = "Result | Find"


def tensor_result(key: str, what: str, otherwise: str = "") -> Result:
    """Return the result that is a tensor, right up to rounding; `what` says in words which."""
    return Result(
        key, f"{{ranks}}: {what} on rank {{rank}} is wrong; entry {{entry}} is furthest off.", otherwise, near
    )


def flag_result(key: str, wrong: str, otherwise: str) -> Result:
    """Return the result that is True where nothing is wrong; the sentence says what is."""
    return Result(key, wrong, otherwise, shown=lambda came, wanted: {"got": "", "wanted": ""})


def declared(
    *, oracle: Callable[[Case], list[Values]], looks: Sequence[Look], mistakes: Sequence[Mistake], **about: Any
) -> Exercise:
    """Return the exercise that is looked at so, and names these mistakes, tried in their order.

    Args:
        oracle: What each rank's driver returns by the rule, as far as it is known.
        looks: What is looked at, the gravest first: results, and rules of what else came and of what travelled. What a
            rule finds without naming it is the first mistake whose mark the run bears.
        mistakes: All of them.
        **about: The other fields of Exercise.
    """

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        right = oracle(case)
        for look in looks:
            found = (
                _wrong(look, case, (got, wire), right, mistakes) if isinstance(look, Result) else look(case, got, wire)
            )
            yield from (each if each.mistake else _named(each, case, got, wire, mistakes) for each in found)

    def blame(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
        return (each.name for each in mistakes if each.marks(case, failure, wire))

    return Exercise(
        oracle=oracle,
        find=find,
        blame=blame,
        mistakes={each.name: each.hint for each in mistakes},
        general=frozenset(each.name for each in mistakes if each.general),
        certain=frozenset(each.name for each in mistakes if each.certain),
        endless=frozenset(each.name for each in mistakes if each.endless),
        **about,
    )


def _wrong(
    result: Result,
    case: Case,
    run: tuple[tuple[Values, ...], Wire],
    right: Sequence[Values],
    mistakes: Sequence[Mistake],
) -> Iterator[Finding]:
    """Yield the finding on the first rank whose result is wrong."""
    got, _ = run
    pairs = {
        rank: (at(came, result.key), at(wanted, result.key))
        for rank, (came, wanted) in enumerate(zip(got, right, strict=True))
        if holds(wanted, result.key)
    }
    wrong = [rank for rank, pair in pairs.items() if not result.same(*pair)]
    if not wrong:
        return
    rank = wrong[0]
    came, wanted = pairs[rank]
    entry = furthest(came, wanted)
    shown: dict[str, Any] = {"ranks": are_wrong(wrong, len(got)), "rank": rank, "entry": entry}
    shown |= {"got": said(came, entry), "wanted": said(wanted, entry)}
    shown |= {"has": _at(came, entry), "needs": _at(wanted, entry), **result.shown(came, wanted)}
    text = result.wrong if isinstance(result.wrong, str) else result.wrong(case, rank)
    name, message = _known(result, case, run, pairs, mistakes), text.format(**shown)
    if not name and _only_last_digits(came, wanted):
        shown |= {"wanted": repr(wanted.flatten()[entry].item()), "got": repr(came.flatten()[entry].item())}
        message += (
            f" It is right but for its last digits: something was computed in a narrower dtype than {wanted.dtype}."
        )
    elif not name:
        name = result.otherwise
        message += parting(pairs, wrong, case.inputs)
    yield Finding(name, message, shown["wanted"], shown["got"], rank)


def _only_last_digits(came: Any, wanted: Any) -> bool:
    """Return whether two tensors of float64 differ by no more than rounding to float32 makes of one."""
    if not isinstance(came, Tensor) or not isinstance(wanted, Tensor) or wanted.dtype != torch.float64:
        return False
    return came.shape == wanted.shape and came.dtype == wanted.dtype and near(came, wanted, 1e-6)


def _known(
    result: Result,
    case: Case,
    run: tuple[tuple[Values, ...], Wire],
    pairs: Mapping[int, tuple[Any, Any]],
    mistakes: Sequence[Mistake],
) -> str:
    """Return the mistake that gives what came everywhere, or whose mark is seen, or that gives the first wrong one."""

    def gives(way: Way, rank: int) -> bool:
        try:
            given = way(case, rank)
            return given is not None and result.same(pairs[rank][0], given)
        except NOT_HERE:
            return False

    first = next(rank for rank, pair in pairs.items() if not result.same(*pair))
    found = [(each.name, way) for each in mistakes for way in each.given(result.key) if gives(way, first)]
    everywhere = (name for name, way in found if all(gives(way, rank) for rank in pairs))
    marked = (each.name for each in mistakes if each.marks(case, *run))
    alone = {each.name for each in mistakes if each.everywhere}
    return next(chain(everywhere, marked, (name for name, _ in found if name not in alone)), "")


def _named(found: Finding, case: Case, got: Got, wire: Wire, mistakes: Sequence[Mistake]) -> Finding:
    return replace(found, mistake=next((each.name for each in mistakes if each.marks(case, got, wire)), ""))


def holds(values: Any, key: str) -> bool:
    """Return whether there is anything under a dotted key."""
    first, _, rest = key.partition(".")
    return first in values and (not rest or holds(values[first], rest))


def at(values: Any, key: str) -> Any:
    """Return what is under a dotted key."""
    for part in key.split("."):
        values = values[part]
    return values


def furthest(came: Any, wanted: Any) -> int:
    """Return the entry of a tensor that is furthest off; 0 where there is none."""
    if not isinstance(came, Tensor) or not isinstance(wanted, Tensor) or came.shape != wanted.shape:
        return 0
    apart = torch.nan_to_num((came.double() - wanted.double()).abs(), nan=float("inf")).flatten()
    return int(apart.argmax()) if len(apart) else 0


def _at(value: Any, entry: int) -> str:
    return number(value.flatten()[entry].item()) if isinstance(value, Tensor) and value.numel() else said(value)


def said(value: Any, around: int = 0) -> str:
    """Return a result as a learner reads it."""
    if isinstance(value, Tensor):
        return listing(value, around)
    if isinstance(value, list) and any(isinstance(each, Tensor) for each in value):
        return said(value[0]) if len(value) == 1 else f"{len(value)} of them, first {said(value[0])}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def failed_in(function: str, error: str) -> Seen:
    """Return the mark that this error came out of this function."""
    return lambda case, got, wire: isinstance(got, Failure) and got.error == error and function in got.detail


def either(*seen: Seen) -> Seen:
    """Return the mark that one of these is seen."""
    return lambda case, got, wire: any(each(case, got, wire) for each in seen)
