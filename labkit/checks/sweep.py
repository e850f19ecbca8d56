"""What real processes cannot prove: the same program on virtual ranks of many world sizes, its steps counted exactly.

In a virtual world where a message takes one millisecond whatever its size, and computing takes nothing, virtual time
counts the messages that had to wait for one another. A deadlock is known for certain there, and so is a buffer that was
written or read while a message was in flight; both are told with the line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from labkit.checks.case import Case, Failure, Got
from labkit.checks.exercise import Exercise, judge
from labkit.checks.failures import failure_of
from labkit.checks.first_look import find_first_look
from labkit.checks.from_timeline import wire_of_case
from labkit.checks.outcome import CaseOutcome
from labkit.checks.printed import of_case
from labkit.checks.rank_side import run_cases
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.checks.wire_format import decode
from labkit.errors import RunError, RunTimeout
from labkit.hardware import Device, Link
from labkit.virtual_world import virtual
from labkit.words import join
from labkit.worlds import run

if TYPE_CHECKING:
    from labkit.timeline import Timeline
    from labkit.worlds import World

Functions = Mapping[str, Callable[..., Any]]
_STEP_NS = 1_000_000
_MOST_LINES = 6
TOO_MANY_STEPS, WRITTEN, READ = "one after another", "buffer reused in flight", "read before wait"
MISTAKES = (TOO_MANY_STEPS, WRITTEN, READ)
"""What a sweep names by itself, whatever mistakes its exercise knows."""


def world(num_ranks: int) -> World:
    """Return a virtual world in which a message takes one step of a millisecond, and nothing else takes time."""

    counts = "no hardware: it counts steps"
    link = Link("one_step", 1e18, _STEP_NS, counts, counts)
    device = Device("step_counter", 10**18, 1e18, {"float32": 1e18}, "nvlink4", counts, launch_ns=0)
    return virtual(num_ranks, gpu=device, link=link, gpus_per_node=num_ranks)


def run_sweep(exercise: Exercise, functions: Functions, *, seconds: float = 10.0) -> CaseOutcome:
    """Return one outcome for all cases of the exercise's sweep: passed, or the first case that failed.

    Args:
        exercise: One that has a sweep.
        functions: The learner's functions, and the given names, by name.
        seconds: Real time one case may take.
    """
    assert exercise.sweep is not None
    for case in exercise.sweep.cases:
        got, wire, printed, timeline = _run(exercise, functions, case, seconds)
        verdict = _in_flight(wire) or judge(exercise, case, got, wire)  # what is told with its line comes first
        if verdict.passed:
            verdict = _too_many_steps(exercise, case, wire) or verdict
        if not verdict.passed:
            first_look = find_first_look(timeline, 0, verdict, got)
            return CaseOutcome(replace(case, name=f"{case.name}, on a virtual cluster"), verdict, printed, first_look)
    return CaseOutcome(named(exercise), Verdict(True))


def named(exercise: Exercise) -> Case:
    """Return what stands for the whole sweep in a list of cases."""
    assert exercise.sweep is not None
    sizes = sorted({case.world_size for case in exercise.sweep.cases})
    return Case(f"virtual ranks, {_in_runs(sizes)} of them: {exercise.sweep.proves}", 1, ({},))


def _in_runs(sizes: list[int]) -> str:
    """Return "2 to 9, 13 and 16"."""
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    return join(part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run))


def _run(
    exercise: Exercise, functions: Functions, case: Case, seconds: float
) -> tuple[Got, Wire, tuple[str, ...], Timeline | None]:

    try:
        result = run(
            run_cases, exercise.driver, functions, [case.inputs],
            on=world(case.world_size), timeout=seconds, init=exercise.distributed, echo=False,
        )  # fmt: skip
    except RunError as error:
        wire = Wire() if error.timeline is None else wire_of_case(error.timeline, 0)
        return _failure(error, exercise, functions), wire, of_case(error.output, 0), error.timeline
    assert result.timeline is not None
    steps = math.floor(result.timeline.makespan_ns / _STEP_NS)
    wire = replace(wire_of_case(result.timeline, 0), steps=steps)
    return tuple(decode(of_rank[0]) for of_rank in result.results), wire, of_case(result.output, 0), result.timeline


def _failure(error: RunError, exercise: Exercise, functions: Functions) -> Failure:
    """Return what a failed run means; of a deadlock, what the virtual world knows for certain: each rank's own line."""
    failure = failure_of(error, exercise, functions)
    if not isinstance(error, RunTimeout) or not str(error).startswith("Deadlock"):
        return failure
    first, *lines = str(error).strip().splitlines()
    more = [f"  ... and {len(lines) - _MOST_LINES} more lines like these"] if len(lines) > _MOST_LINES + 1 else []
    shown = lines[:_MOST_LINES] + more if more else lines
    return replace(failure, kind="deadlock", message=first, detail="\n".join(shown))


def _in_flight(wire: Wire) -> Verdict | None:
    for problem in wire.problems_of("changed_in_flight", "read_before_wait"):
        written = problem.kind == "changed_in_flight"
        return Verdict(
            False,
            message=problem.text,
            hint="Between isend and wait() a buffer belongs to the transfer: do not write to it."
            if written
            else "Between irecv and wait() a buffer may hold anything: call wait() before you read it.",
            mistake=WRITTEN if written else READ,
            problem=problem,
        )
    return None


def _too_many_steps(exercise: Exercise, case: Case, wire: Wire) -> Verdict | None:
    sweep = exercise.sweep
    assert sweep is not None and wire.steps is not None
    if sweep.steps is None or wire.steps <= sweep.slack * sweep.steps(case):
        return None
    needed = sweep.steps(case)
    return Verdict(
        False,
        message=f"The result is right, but it takes {wire.steps} steps one after another; {needed} are enough.",
        expected=f"{needed} steps" if sweep.slack == 1 else f"{needed} steps, at most {sweep.slack * needed}",
        got=f"{wire.steps} steps",
        hint=(
            "Ranks wait for each other's turn. Look at who sends in the same step: with one batch of send and receive "
            "per step, nobody waits for a neighbour to finish first."
        ),
        mistake=TOO_MANY_STEPS,
    )
