"""What a rank is told of an exercise: how to call it, never what is right; made by the oracle process as bytes.

Drivers outside ``labkit.checks.drivers`` travel by value, with the functions they use and nothing else of their module,
so that no module with an oracle or a judge need be seen where a submission runs.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import cloudpickle

from labkit.checks.exercise import Driver, Exercise

_DRIVERS = "labkit.checks.drivers"


@dataclass(frozen=True)
class RankExercise:
    """An exercise without its oracle, judge, cases and hints."""

    id: str
    functions: tuple[str, ...]
    given: tuple[str, ...]
    distributed: bool
    driver: Driver


def pack(exercises: Mapping[str, Exercise]) -> bytes:
    """Return the rank's side of these exercises; for the trusted side, which reads no such bytes."""
    lessons = {exercise.driver.__module__ for exercise in exercises.values()}
    lessons |= {name for name in sys.modules if name.startswith(("labkit.checks.lesson_", "course_checks_"))}
    by_value = [sys.modules[name] for name in sorted(lessons) if not name.startswith(_DRIVERS)]
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        told = {
            id_: RankExercise(id_, each.functions, each.given, each.distributed, each.driver)
            for id_, each in exercises.items()
        }
        return bytes(cloudpickle.dumps(told))
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def unpack(data: bytes) -> Mapping[str, RankExercise]:
    """Return what `pack` was given; for the rank's side, which trusts whoever started it."""
    found = pickle.loads(data)
    assert isinstance(found, dict)
    return found
