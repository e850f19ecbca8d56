"""Cases on real ranks: those of equal world size share a run; what that makes doubtful is run again alone.

A run that hangs has taken seconds to tell so. What was done before it stands, and it is told of the case that hung.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got
from labkit.checks.exercise import Exercise, judge
from labkit.checks.failures import failure_of
from labkit.checks.first_look import find_first_look
from labkit.checks.from_timeline import cases_met, rows_of_case, wire_of_case
from labkit.checks.one_by_one import would_hang
from labkit.checks.outcome import CaseOutcome
from labkit.checks.printed import of_case
from labkit.checks.rank_side import kept, run_cases
from labkit.checks.wire import Wire
from labkit.checks.wire_format import decode
from labkit.errors import RunError
from labkit.worlds import chosen_start_method, local, run

if TYPE_CHECKING:
    from labkit.timeline import Timeline

CASE_SECONDS = 10.0
"""How long a case may take before it counts as hung; ranks that all wait are noticed earlier."""
SPAWNED_SECONDS = 20.0
"""More for a run whose ranks are fresh processes: each loads during the run what a preloaded one has loaded before."""
MOST_ALONE = 2
"""So many cases that fail by themselves too are enough: each takes a second, and the next would say the same."""

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
        on_gpus = self.on_gpus if verdict.passed and not exercise.order_given else ""
        return CaseOutcome(case, verdict, self.printed, first_look, self.got, on_gpus, self.wire)


@dataclass(frozen=True)
class RunOfCases:
    """What a run of several cases brought.

    Attributes:
        cases: What is known, in order: all of them, or those until the one that ended the run; the rest was not run.
        is_sure: Whether each case is told for what it is: none can have met what another left.
        failure: What ended the run before its time, or None.
    """

    cases: list[RunCase]
    is_sure: bool = True
    failure: Failure | None = None


def run_visible(
    exercise: Exercise,
    functions: Functions,
    cases: Sequence[Case] | None = None,
    case_seconds: float = CASE_SECONDS,
    device: Place = "cpu",
) -> list[CaseOutcome]:
    """Return the outcome of each case, in order; after one that hung or found a stub the rest is not run, nor after two
    that failed alone.

    Args:
        exercise: What is checked.
        functions: The learner's functions, and the given names, by name.
        cases: Other cases than the visible ones.
        case_seconds: Time limit of a case, where the exercise sets no longer one.
        device: "cpu", or "cuda" for ranks on GPUs.
    """
    wanted = exercise.visible if cases is None else tuple(cases)
    case_seconds = max(case_seconds, exercise.seconds)
    outcomes = [CaseOutcome(case, None) for case in wanted]
    for places in _by_world_size(wanted):
        while places:
            brought = run_together(exercise, functions, [wanted[place] for place in places], case_seconds, device)
            told, places = places[: len(brought.cases)], places[len(brought.cases) :]
            for place, each in zip(told, brought.cases, strict=True):
                outcomes[place] = each.outcome(exercise, wanted[place])
            suspects = [place for place in told if not outcomes[place].passed]
            if brought.is_sure:
                stopped = bool(suspects) and _is_over(brought.failure)
            else:
                # What an earlier case left behind must not be blamed on a later one: what failed is run again alone.
                # What passed although others shared its run has passed.
                for place in suspects:
                    outcomes[place] = CaseOutcome(wanted[place], None)
                most = 1 if _is_over(brought.failure) else MOST_ALONE
                stopped = _run_alone(exercise, functions, outcomes, suspects, case_seconds, device, most)
            if stopped:
                return outcomes
    return outcomes


def _run_alone(
    exercise: Exercise,
    functions: Functions,
    outcomes: list[CaseOutcome],
    places: Sequence[int],
    case_seconds: float,
    device: Place,
    most: int,
) -> bool:
    """Run cases one by one and enter what came of them; return whether nothing is to be run after them.

    Args:
        exercise: What is checked.
        functions: By name.
        outcomes: Of all cases.
        places: Where the cases stand among them.
        case_seconds: Time limit of a case.
        device: Where ranks are.
        most: Stop when so many have failed: one, where it was a run without an end that made the others doubtful.
    """
    failed = 0
    for place in places:
        case = outcomes[place].case
        (alone,) = run_together(exercise, functions, [case], case_seconds, device).cases
        outcomes[place] = alone.outcome(exercise, case)
        failed += not outcomes[place].passed
        if _is_over(alone.got) or failed >= most:
            return True
    return False


def _is_over(got: Got | None) -> bool:
    return isinstance(got, Failure) and got.kind in ("deadlock", "timeout", "not_implemented", "died")


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
) -> RunOfCases:
    """Return what cases brought, from one run.

    Args:
        exercise: What is run.
        functions: The learner's functions by name.
        cases: Cases of one world size.
        case_seconds: Time limit of a case; the run gets as much for all of them together, 2 s for each, and time to
            load where ranks are spawned.
        device: "cpu", or "cuda" for ranks on GPUs.
    """
    size = cases[0].world_size
    assert all(case.world_size == size for case in cases)
    loading = 0.0 if chosen_start_method("auto") == "zygote" else SPAWNED_SECONDS
    limit = case_seconds + 2.0 * (len(cases) - 1) + loading
    with TemporaryDirectory(prefix="labkit-check-") as folder:
        try:
            result = run(
                run_cases,
                exercise.driver,
                functions,
                [case.inputs for case in cases],
                device,
                folder,
                exercise.torchs_own,
                on=local(size, device=device),
                timeout=limit,
                init=exercise.distributed or size > 1,
                echo=False,
            )
        except RunError as error:
            return _until_it_failed(error, exercise, functions, cases, folder, limit)
    brought = []
    for number in range(len(cases)):
        got = tuple(decode(results[number]) for results in result.results)
        wire = _wire(result.timeline, number)
        printed, on_gpus = of_case(result.output, number), _on_gpus(result.timeline, number, device)
        brought.append(RunCase(got, wire, printed, result.timeline, number, on_gpus))
    return RunOfCases(brought, is_sure=len(cases) == 1 or not any(each.wire.problems for each in brought))


def _until_it_failed(
    error: RunError, exercise: Exercise, functions: Functions, cases: Sequence[Case], folder: str, limit: float
) -> RunOfCases:
    """Return what was done before a run failed, and the failure as that of the first case that was not."""
    ranks = range(cases[0].world_size)
    timeline = error.timeline
    done = [{rank for rank in ranks if kept(folder, number, rank).exists()} for number in range(len(cases))]
    failed = next((number for number, each in enumerate(done) if len(each) < len(ranks)), len(cases))
    if failed == len(cases):  # it failed when every case was done: any of them can be to blame
        failure = failure_of(error, exercise, functions, seconds=limit)
        whole = [
            RunCase(failure, _wire(timeline, number), of_case(error.output, number), timeline, number)
            for number in range(len(cases))
        ]
        return RunOfCases(whole, len(cases) == 1, failure)
    failure = failure_of(error, exercise, functions, beyond=done[failed], seconds=limit)
    brought = []
    for number in range(failed + 1):
        got: Got = failure
        if number < failed:
            got = tuple(decode(kept(folder, number, rank).read_bytes()) for rank in ranks)
        wire = _wire(timeline, number, own=len(cases) > 1)
        brought.append(RunCase(got, wire, of_case(error.output, number), timeline, number))
        if number < failed and wire.problems:
            break  # what comes after it can have met what it left
    hung = failure.kind in HANGS
    known = hung or (failure.rank is not None and failure.rank not in done[failed])
    alone = len(cases) == 1
    return RunOfCases(brought, alone or (known and (timeline is None or not cases_met(timeline, len(cases)))), failure)


def _on_gpus(timeline: Timeline | None, number: int, device: Place) -> str:
    if timeline is None or device != "cpu":
        return ""
    return would_hang(timeline.select(rows_of_case(timeline, number)))


def _wire(timeline: Any, number: int, own: bool = False) -> Wire:
    return Wire() if timeline is None else wire_of_case(timeline, number, own)
