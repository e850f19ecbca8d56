"""Cases on real ranks: those of equal world size share a run; what that makes doubtful is run again alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from labkit.checks.case import Case, Failure, Got
from labkit.checks.exercise import Exercise, judge
from labkit.checks.failures import failure_of
from labkit.checks.from_timeline import wire_of_case
from labkit.checks.outcome import CaseOutcome
from labkit.checks.printed import of_case
from labkit.checks.rank_side import run_cases
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.checks.wire_format import decode
from labkit.errors import RunError

CASE_SECONDS = 10.0
"""How long a case may take before it counts as hung; ranks that all wait are noticed earlier."""

Functions = dict[str, Callable[..., Any]]


def run_visible(
    exercise: Exercise, functions: Functions, cases: Sequence[Case] | None = None, case_seconds: float = CASE_SECONDS
) -> list[CaseOutcome]:
    """Return the outcome of each case, in order; after a case that hung or found a stub the rest is not run.

    Args:
        exercise: What is checked.
        functions: The learner's functions, and the given names, by name.
        cases: Other cases than the visible ones.
        case_seconds: Time limit of a case.
    """
    wanted = exercise.visible if cases is None else tuple(cases)
    verdicts: dict[int, Verdict] = {}
    prints: dict[int, tuple[str, ...]] = {}
    for places in _by_world_size(wanted):
        batch = [wanted[place] for place in places]
        brought = run_together(exercise, functions, batch, case_seconds)
        together = [judge(exercise, case, got, wire) for case, (got, wire, _) in zip(batch, brought, strict=True)]
        verdicts.update(zip(places, together, strict=True))
        prints.update((place, printed) for place, (_, _, printed) in zip(places, brought, strict=True))
        suspects = [place for place, verdict in zip(places, together, strict=True) if not verdict.passed]
        if len(batch) == 1 or not suspects or _is_clean(brought):
            if _is_over(brought[0][0]):
                break
            continue
        # What an earlier case left behind must not be blamed on a later one: what failed is run again alone. What
        # passed although others shared its run has passed.
        for place in suspects:
            del verdicts[place]
        for place in suspects:
            got, wire, prints[place] = run_together(exercise, functions, [wanted[place]], case_seconds)[0]
            verdicts[place] = judge(exercise, wanted[place], got, wire)
            if _is_over(got):
                return _outcomes(wanted, verdicts, prints)
    return _outcomes(wanted, verdicts, prints)


def _outcomes(
    cases: Sequence[Case], verdicts: dict[int, Verdict], prints: dict[int, tuple[str, ...]]
) -> list[CaseOutcome]:
    return [CaseOutcome(case, verdicts.get(place), prints.get(place, ())) for place, case in enumerate(cases)]


def _is_over(got: Got) -> bool:
    return isinstance(got, Failure) and got.kind in ("deadlock", "timeout", "not_implemented", "died")


def _is_clean(brought: Sequence[tuple[Got, Wire, tuple[str, ...]]]) -> bool:
    """Return whether a run ended in order with no message left over, so that no case can have met another's."""
    return not any(isinstance(got, Failure) or wire.problems for got, wire, _ in brought)


def _by_world_size(cases: Sequence[Case]) -> Iterable[list[int]]:
    groups: dict[int, list[int]] = {}
    for place, case in enumerate(cases):
        groups.setdefault(case.world_size, []).append(place)
    return groups.values()


def run_together(
    exercise: Exercise, functions: Functions, cases: Sequence[Case], case_seconds: float = CASE_SECONDS
) -> list[tuple[Got, Wire, tuple[str, ...]]]:
    """Return what each case brought, what passed on the wire and what each rank printed, from one run.

    A failure is the same for all of the cases.

    Args:
        exercise: What is run.
        functions: The learner's functions by name.
        cases: Cases of one world size.
        case_seconds: Time limit of a case; the run gets as much for all of them together, and 2 s for each.
    """
    from labkit.worlds import local, run

    size = cases[0].world_size
    assert all(case.world_size == size for case in cases)
    try:
        result = run(
            run_cases,
            exercise.driver,
            functions,
            [case.inputs for case in cases],
            on=local(size, device="cpu"),
            timeout=case_seconds + 2.0 * (len(cases) - 1),
            init=exercise.distributed,
            echo=False,
        )
    except RunError as error:
        failure = failure_of(error, exercise)
        wire = _wire(error.timeline, 0)
        return [(failure, wire, of_case(error.output, number)) for number in range(len(cases))]
    brought: list[tuple[Got, Wire, tuple[str, ...]]] = []
    for number in range(len(cases)):
        got = tuple(decode(results[number]) for results in result.results)
        brought.append((got, _wire(result.timeline, number), of_case(result.output, number)))
    return brought


def _wire(timeline: Any, number: int) -> Wire:
    return Wire() if timeline is None else wire_of_case(timeline, number)
