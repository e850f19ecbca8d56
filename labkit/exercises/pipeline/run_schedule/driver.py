"""What a rank runs of run_schedule."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import one_group
from labkit.exercises.stages.on_ranks import job, outcome, stage_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Call run_schedule with this rank's stage and schedule (run_schedule).

    Inputs: stage, schedule, sizes, sample; inputs on the first stage, targets on the last; optional group, before.
    """
    group, member = one_group(inputs)
    if not member:
        return {"member": False}
    stage = stage_of(inputs)
    more = {} if group is None else {"group": group}
    return outcome(stage, functions["run_schedule"](*job(functions, stage, inputs), **more))
