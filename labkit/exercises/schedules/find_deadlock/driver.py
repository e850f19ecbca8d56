"""What a rank runs of find_deadlock."""

from __future__ import annotations

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed
from labkit.exercises.stages.on_ranks import data_of, record_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Call find_stuck with given schedules; return each time the stages as text with their record, and any change."""
    found: list[Value] = []
    changed = False
    for schedules in listed(inputs, "pipelines"):
        records = [[record_of(functions, data) for data in schedule] for schedule in schedules]
        before = [list(schedule) for schedule in records]
        stuck = functions["find_stuck"](records)
        changed = changed or records != before
        if not isinstance(stuck, dict):
            found.append(f"{stuck!r:.60} ({type(stuck).__name__})")
            continue
        found.append({str(stage): data_of(record) for stage, record in stuck.items()})
    return {"stuck": found, "changed": changed}
