"""An exercise: what is asked, how it is driven, what is right, and how a wrong answer is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.par import Par
from labkit.checks.verdict import PLAIN_ERROR, Mistake, Verdict
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

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
Driver: TypeAlias = Callable[[Functions, Values], Values]
Oracle: TypeAlias = Callable[[Case], list[Values]]
Judge: TypeAlias = Callable[[Case, Got, Wire], Verdict]


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
        oracle: What each rank's driver should have returned; run on the trusted side.
        judge: What is right or wrong with results and wire. It is not asked about a Failure: `judge` below is.
        visible: The cases a learner sees.
        hints: Three steps: a nudge, the idea, almost the line.
        mistakes: What is recognised, in the order it is tried.
        given: Names the lesson defines for the learner (records, for instance) and the driver wants too.
        distributed: Whether the driver needs an initialised process group (else each case has one rank).
        sweep: Cases for virtual ranks; None where there are none.
        par: What our own solution costs on a virtual cluster, shown after a pass; None where nothing is compared.
    """

    id: str
    functions: tuple[str, ...]
    driver: Driver
    oracle: Oracle
    judge: Judge
    visible: tuple[Case, ...]
    hints: tuple[str, str, str]
    mistakes: tuple[Mistake, ...] = ()
    given: tuple[str, ...] = ()
    distributed: bool = True
    sweep: Sweep | None = None
    par: Par | None = None


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


def judge(exercise: Exercise, case: Case, got: Got, wire: Wire) -> Verdict:
    """Return the verdict on one case, with the hint of the first recognised mistake."""
    if isinstance(got, Failure):
        message = "\n".join(filter(None, [_with_group(case, got.message), got.detail]))
        verdict = Verdict(False, message, rank=got.rank, problem=got.problem)
        if got.kind == "not_implemented":
            return verdict
    else:
        verdict = exercise.judge(case, got, wire)
    if verdict.passed:
        return verdict
    plain = isinstance(got, Failure) and got.kind == "exception" and got.error not in _FROM_COMMUNICATION
    for mistake in exercise.mistakes:
        if plain and not mistake.certain:
            continue
        if mistake.seen(case, got, wire):
            return replace(verdict, hint=mistake.hint, mistake=mistake.name)
    return replace(verdict, mistake=PLAIN_ERROR) if plain else verdict
