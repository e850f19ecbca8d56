"""What an exercise's functions bring in a case on virtual ranks, where a case takes milliseconds."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Case, Got
from labkit.checks.exercise import Exercise
from labkit.checks.failures import failure_of
from labkit.checks.from_timeline import wire_of_case
from labkit.checks.rank_side import run_cases
from labkit.checks.sweep import world
from labkit.checks.wire import Wire
from labkit.checks.wire_format import decode
from labkit.errors import RunError
from labkit.worlds import run


def brought(exercise: Exercise, functions: Any, case: Case) -> tuple[Got, Wire]:
    """Return what came of a case, and what passed on the wire."""
    try:
        result = run(
            run_cases, exercise.driver, functions, [case.inputs], on=world(case.world_size), timeout=30,
            init=exercise.distributed, echo=False,
        )  # fmt: skip
    except RunError as error:
        wire = Wire() if error.timeline is None else wire_of_case(error.timeline, 0)
        return failure_of(error, exercise, functions), wire
    assert result.timeline is not None
    return tuple(decode(of_rank[0]) for of_rank in result.results), wire_of_case(result.timeline, 0)
