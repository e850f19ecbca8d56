"""An exercise: what is asked, how it is driven, what is right, and how a wrong answer is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.challenge import Challenge
from labkit.checks.finding import Blame, Find, Finding, blames_nobody
from labkit.checks.hanging import all_alike, never_comes, nobody_waits, works_on
from labkit.checks.least_traffic import LeastTraffic, too_little
from labkit.checks.par import Par
from labkit.checks.structure import said_of_call, structure_problem
from labkit.checks.verdict import PLAIN_ERROR, Verdict
from labkit.checks.wire import Wire

_FROM_COMMUNICATION = (
    "RuntimeError",
    "ValueError",
    "NoSuchRank",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
)
"""Errors that torch.distributed and labkit raise for a wrong peer, size or group; any other is Python's own."""

_FROM_TENSORS = (
    "is invalid for input of size",
    "must match the size of tensor",
    "Sizes of tensors must match",
    "shapes cannot be multiplied",
    "split_with_sizes expects",
    "The expanded size of the tensor",
)
"""Words of a RuntimeError that an operator raises for shapes which do not fit: no communication has a part in it."""

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
Driver: TypeAlias = Callable[[Functions, Values], Values]
Oracle: TypeAlias = Callable[[Case], list[Values]]
Structure: TypeAlias = Callable[[Case], list[Any]]


@dataclass(frozen=True)
class Sweep:
    """Cases of many world sizes, run on virtual ranks once the visible cases have passed; they show as one line.

    Attributes:
        cases: One for each world size.
        proves: What is proved by them, in a few words.
        steps: How many messages one after another a case needs; None where that is not asked.
        slack: How many times as many are let pass, for orders that are legal and not the fastest.
    """

    cases: tuple[Case, ...]
    proves: str
    steps: Callable[[Case], int] | None = None
    slack: int = 1


@dataclass(frozen=True)
class Exercise:
    """One exercise of a lesson.

    Attributes:
        id: Its slug, "ring_sum".
        functions: Names of the functions the learner hands to ``labkit.check``, in order.
        driver: Called in every rank with the learner's functions and that rank's inputs; a top-level function of labkit
            that knows no answer.
        oracle: What each rank's driver should have returned, as far as it is known; run on the trusted side.
        find: Yields what is wrong with results and wire, the gravest first; nothing where all is right.
        visible: The cases a learner sees.
        hints: Three steps: a nudge, the idea, almost the line.
        mistakes: Name of a mistake -> a sentence or two that name it to the learner and point at the cure.
        blame: Yields the mistakes that a failure points to.
        general: Mistakes that many wrong answers look like, so that the pattern over all cases says more.
        certain: Mistakes that are recognised for certain in a plain Python error too (an IndexError, a TypeError, ...).
            Others are not looked for there: such an error says itself what is wrong and on which line.
        endless: Mistakes by which time is up although no rank waits in a communication call; no other is named then.
        least: What must travel in a case, whatever the way it is done.
        structure: What each rank's result looks like, in the terms of `labkit.checks.structure`; None where what the
            oracle returns says it.
        given: Names the lesson defines for the learner (records, for instance) and the driver wants too.
        returned: Key of a result, or of a list of them -> the function that returned it, so that what is said of a
            result of another form names the function.
        order_given: Whether a case says in which order messages are posted: what NCCL makes of it is no answer's doing.
        distributed: Whether the driver needs an initialised process group in a case of one rank.
        torchs_own: Whether the driver itself trains with torch's DistributedDataParallel; elsewhere a rank has none.
        sweep: Cases for virtual ranks; None where there are none.
        par: What our own solution costs on a virtual cluster, shown after a pass; None where nothing is compared.
        challenge: Of a design: how it is scored; None for any other.
        seconds: How long a case may take where that is longer than usual: it makes virtual runs of its own, say.
    """

    id: str
    functions: tuple[str, ...]
    driver: Driver
    oracle: Oracle
    find: Find
    visible: tuple[Case, ...]
    hints: tuple[str, str, str]
    mistakes: Mapping[str, str] = field(default_factory=dict)
    blame: Blame = blames_nobody
    general: frozenset[str] = frozenset()
    certain: frozenset[str] = frozenset()
    endless: frozenset[str] = frozenset()
    least: LeastTraffic = lambda case: {}
    structure: Structure | None = None
    given: tuple[str, ...] = ()
    returned: Mapping[str, str] = field(default_factory=dict)
    order_given: bool = False
    distributed: bool = True
    torchs_own: bool = False
    sweep: Sweep | None = None
    par: Par | None = None
    challenge: Challenge | None = None
    seconds: float = 0.0

    def judged(self, case: Case, got: Got, wire: Wire) -> Verdict:
        """Return the verdict on one case."""
        return judge(self, case, got, wire)


def functions_for(exercise: Exercise, namespace: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Return what the exercise's driver wants out of a notebook's namespace: its functions and the given names.

    Names that are not there are left out; a driver has its own stand-ins for given names.
    """
    return {name: namespace[name] for name in exercise.functions + exercise.given if name in namespace}


def _with_group(case: Case, message: str) -> str:
    group = case.inputs[0].get("group")
    return (
        message.replace("is not in the group.", f"is not in the group, which has ranks {group}.") if group else message
    )


def speaks_for_itself(failure: Failure) -> bool:
    """Return whether a failure is an error of Python or an operator, which says what is wrong and on which line."""
    if failure.kind != "exception":
        return False
    return failure.error not in _FROM_COMMUNICATION or any(words in failure.message for words in _FROM_TENSORS)


def judge(exercise: Exercise, case: Case, got: Got, wire: Wire) -> Verdict:
    """Return the verdict on one case, with the hint of the mistake it points to."""
    if isinstance(got, Failure):
        return _of_failure(exercise, case, got, wire)
    found = _first_finding(exercise, case, got, wire)
    if found is None:
        return _of_design(exercise.challenge, case, got) if exercise.challenge is not None else Verdict(True)
    return Verdict(
        False,
        found.message,
        exercise.mistakes.get(found.mistake, ""),
        found.expected,
        found.got,
        found.mistake if found.mistake in exercise.mistakes else "",
        found.rank,
        found.call,
        found.problem,
        found.most_bytes,
    )


def _of_design(challenge: Challenge, case: Case, got: tuple[Values, ...]) -> Verdict:
    """Return the verdict on a design that works: it passes where it beats the naive answer, and says by how much."""
    why = challenge.falls_short(case, got)
    return Verdict(False, why, mistake="") if why else Verdict(True, challenge.line(case, got))


def _of_failure(exercise: Exercise, case: Case, failure: Failure, wire: Wire) -> Verdict:
    said = [_with_group(case, failure.message), failure.detail, never_comes(case, failure, wire)]
    if failure.kind == "not_implemented":
        return Verdict(False, _lines(said), rank=failure.rank, problem=failure.problem)
    plain = speaks_for_itself(failure)
    names = (name for name in exercise.blame(case, failure, wire) if not plain or name in exercise.certain)
    if nobody_waits(failure):
        names = (name for name in names if name in exercise.endless)
    name = next(names, PLAIN_ERROR if plain else "")
    hint = exercise.mistakes.get(name, "")
    if not hint and not said[-1]:
        said.append(all_alike(failure) or works_on(failure))
    return Verdict(False, _lines(said), hint, mistake=name, rank=failure.rank, problem=failure.problem)


def _lines(said: Sequence[str]) -> str:
    return "\n".join(filter(None, said))


def _first_finding(exercise: Exercise, case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return what is wrong; results of another structure never pass, though `find` may know the mistake by name."""
    malformed = structure_problem((exercise.structure or exercise.oracle)(case), got)
    if malformed is None:
        found = next(exercise.find(case, got, wire), None)
        return found or next(too_little(exercise.least(case), case.world_size, wire), None)
    try:
        found = next(exercise.find(case, got, wire), None)
    except Exception:  # it need not expect what has another structure
        found = None
    if found is not None and found.mistake in exercise.mistakes:
        return found
    return replace(malformed, message=said_of_call(exercise.functions, case, malformed.message, exercise.returned))
