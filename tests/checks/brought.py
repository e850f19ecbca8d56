"""What an exercise's functions bring in a case: on virtual ranks, or in this process where a case has but one."""

from __future__ import annotations

import traceback
from typing import Any

from labkit.checks.case import Case, Got
from labkit.checks.exercise import Exercise
from labkit.checks.failures import failure_of, failure_of_traceback
from labkit.checks.from_timeline import wire_of_case
from labkit.checks.rank_side import run_cases
from labkit.checks.sweep import world
from labkit.checks.wire import Wire
from labkit.checks.wire_format import decode, encode
from labkit.errors import RunError
from labkit.worlds import run

ON_PROCESSES = frozenset({"compression_hook"})
"""Exercises whose driver waits in C++ for a future of several, where virtual ranks cannot wait."""


def brought(exercise: Exercise, functions: Any, case: Case) -> tuple[Got, Wire]:
    """Return what came of a case, and what passed on the wire."""
    if not exercise.distributed:
        return _brought_here(exercise, functions, case), Wire()
    try:
        result = run(
            run_cases, exercise.driver, functions, [case.inputs], on=world(case.world_size), timeout=300, echo=False
        )
    except RunError as error:
        wire = Wire() if error.timeline is None else wire_of_case(error.timeline, 0)
        return failure_of(error, exercise, functions), wire
    assert result.timeline is not None
    return tuple(decode(of_rank[0]) for of_rank in result.results), wire_of_case(result.timeline, 0)


def _brought_here(exercise: Exercise, functions: Any, case: Case) -> Got:
    """Return what came of a case of one rank. Virtual ranks are left to its driver: they do not nest."""
    try:
        return (decode(encode(exercise.driver(functions, case.inputs[0]))),)
    except Exception:
        return failure_of_traceback(traceback.format_exc(), 0, exercise, functions)
