"""Cases on real ranks: those of equal world size share a run; what that makes doubtful is run again alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labkit.checks.case import Case, Failure, Got
from labkit.checks.exercise import Exercise, judge
from labkit.checks.failures import failure_of
from labkit.checks.first_look import find_first_look
from labkit.checks.from_timeline import rows_of_case, wire_of_case
from labkit.checks.one_by_one import would_hang
from labkit.checks.outcome import CaseOutcome
from labkit.checks.printed import of_case
from labkit.checks.rank_side import run_cases
from labkit.checks.wire import Wire
from labkit.checks.wire_format import decode
from labkit.errors import RunError
from labkit.worlds import local, run

if TYPE_CHECKING:
    from labkit.timeline import Timeline

CASE_SECONDS = 10.0
"""How long a case may take before it counts as hung; ranks that all wait are noticed earlier."""

Functions = dict[str, Callable[..., Any]]
Place = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class RunCase:
    """What one case of a run brought.

    Attributes:
        got: Results, or the failure.
        wire: What passed on the wire.
        printed: What each rank printed.
        timeline: Of the whole run; None where nothing could be recorded.
        number: Which case of the run it was.
        on_gpus: What would become of it on GPUs, "" where nothing is known to go wrong.
    """

    got: Got
    wire: Wire
    printed: tuple[str, ...]
    timeline: Timeline | None
    number: int
    on_gpus: str = ""

    def outcome(self, exercise: Exercise, case: Case) -> CaseOutcome:
        """Return the verdict and, of a failed case, the event to look at first."""
        verdict = judge(exercise, case, self.got, self.wire)
        first_look = None if verdict.passed else find_first_look(self.timeline, self.number, verdict, self.got)
        return CaseOutcome(case, verdict, self.printed, first_look, self.got, self.on_gpus if verdict.passed else "")


def run_visible(
    exercise: Exercise,
    functions: Functions,
    cases: Sequence[Case] | None = None,
    case_seconds: float = CASE_SECONDS,
    device: Place = "cpu",
) -> list[CaseOutcome]:
    """Return the outcome of each case, in order; after a case that hung or found a stub the rest is not run.

    Args:
        exercise: What is checked.
        functions: The learner's functions, and the given names, by name.
        cases: Other cases than the visible ones.
        case_seconds: Time limit of a case.
        device: "cpu", or "cuda" for ranks on GPUs.
    """
    wanted = exercise.visible if cases is None else tuple(cases)
    outcomes = [CaseOutcome(case, None) for case in wanted]
    for places in _by_world_size(wanted):
        batch = [wanted[place] for place in places]
        brought = run_together(exercise, functions, batch, case_seconds, device)
        for place, each in zip(places, brought, strict=True):
            outcomes[place] = each.outcome(exercise, wanted[place])
        suspects = [place for place in places if not outcomes[place].passed]
        if len(batch) == 1 or not suspects or _is_clean(brought):
            if _is_over(brought[0].got):
                break
            continue
        # What an earlier case left behind must not be blamed on a later one: what failed is run again alone. What
        # passed although others shared its run has passed.
        for place in suspects:
            outcomes[place] = CaseOutcome(wanted[place], None)
        for place in suspects:
            (alone,) = run_together(exercise, functions, [wanted[place]], case_seconds, device)
            outcomes[place] = alone.outcome(exercise, wanted[place])
            if _is_over(alone.got):
                return outcomes
    return outcomes


def _is_over(got: Got) -> bool:
    return isinstance(got, Failure) and got.kind in ("deadlock", "timeout", "not_implemented", "died")


def _is_clean(brought: Sequence[RunCase]) -> bool:
    """Return whether a run ended in order with no message left over, so that no case can have met another's."""
    return not any(isinstance(each.got, Failure) or each.wire.problems for each in brought)


def _by_world_size(cases: Sequence[Case]) -> Iterable[list[int]]:
    groups: dict[int, list[int]] = {}
    for place, case in enumerate(cases):
        groups.setdefault(case.world_size, []).append(place)
    return groups.values()


def run_together(
    exercise: Exercise,
    functions: Functions,
    cases: Sequence[Case],
    case_seconds: float = CASE_SECONDS,
    device: Place = "cpu",
) -> list[RunCase]:
    """Return what each case brought, from one run.

    A failure is the same for all of the cases.

    Args:
        exercise: What is run.
        functions: The learner's functions by name.
        cases: Cases of one world size.
        case_seconds: Time limit of a case; the run gets as much for all of them together, and 2 s for each.
        device: "cpu", or "cuda" for ranks on GPUs.
    """

    size = cases[0].world_size
    assert all(case.world_size == size for case in cases)
    try:
        result = run(
            run_cases,
            exercise.driver,
            functions,
            [case.inputs for case in cases],
            device,
            on=local(size, device=device),
            timeout=case_seconds + 2.0 * (len(cases) - 1),
            init=exercise.distributed,
            echo=False,
        )
    except RunError as error:
        failure = failure_of(error, exercise, functions)
        wire = _wire(error.timeline, 0)
        return [
            RunCase(failure, wire, of_case(error.output, number), error.timeline, number)
            for number in range(len(cases))
        ]
    brought = []
    for number in range(len(cases)):
        got = tuple(decode(results[number]) for results in result.results)
        wire = _wire(result.timeline, number)
        printed = of_case(result.output, number)
        brought.append(RunCase(got, wire, printed, result.timeline, number, _on_gpus(result.timeline, number, device)))
    return brought


def _on_gpus(timeline: Timeline | None, number: int, device: Place) -> str:
    if timeline is None or device != "cpu":
        return ""
    return would_hang(timeline.select(rows_of_case(timeline, number)))


def _wire(timeline: Any, number: int) -> Wire:
    return Wire() if timeline is None else wire_of_case(timeline, number)
