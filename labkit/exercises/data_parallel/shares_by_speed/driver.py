"""What a rank runs of shares_by_speed."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed
from labkit.exercises.data_parallel.on_ranks import described


def drive(functions: Functions, inputs: Values) -> Values:
    """Call named functions with plain arguments; return their values in order (shares_by_speed)."""
    calls = listed(inputs, "calls")
    return {"values": [described(functions[call["function"]](*call["args"])) for call in calls]}
