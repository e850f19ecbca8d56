"""What a rank runs of fill_stages."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer
from labkit.exercises.stages.on_ranks import listed


def drive(functions: Functions, inputs: Values) -> Values:
    """Return every stage's order of work (fill_stages)."""
    asked = (integer(inputs, name) for name in ("num_stages", "num_microbatches", "most_held"))
    return {"orders": listed(functions["fill_stages"](*asked))}
