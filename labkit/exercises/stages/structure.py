"""What results look like where a stage notes what is done with it."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Case
from labkit.checks.structure import Each
from labkit.checks.values import integers, listed
from labkit.exercises.stages import pipeline_cases


def of_stages(case: Case) -> list[Any]:
    """Return the oracle's, and of each member one note for every forward and backward of its stage."""
    ranks = set(pipeline_cases.members(case))
    return [
        {**right, **_notes(case, rank)} if rank in ranks else right
        for rank, right in enumerate(pipeline_cases.expected(case))
    ]


def _notes(case: Case, rank: int) -> dict[str, Any]:
    inputs = case.inputs[rank]
    forward = backward = len(integers(inputs, "sizes"))
    if "schedule" in inputs:
        kinds = [record["kind"] for record in listed(inputs, "schedule")]
        forward, backward = kinds.count("Forward"), kinds.count("Backward")
    else:  # the whole batch at once
        forward = backward = 1
    return {
        "returned": str,
        "attached": bool,
        "events": Each(str, least=forward + backward, most=forward + backward),
        "sizes": Each(int, least=forward, most=forward),
        "wanted_gradient": Each(bool, least=forward, most=forward),
        "held": int,
        "shared": bool,
    }
