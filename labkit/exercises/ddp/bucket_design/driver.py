"""What a rank runs of bucket_design."""

from __future__ import annotations

from typing import Any

from labkit.checks import values
from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions


def drive(functions: Functions, inputs: Values) -> Values:
    """Call bucket_design for one model on one network (bucket_design)."""
    plan = functions["bucket_design"](
        list(values.integers(inputs, "num_bytes")),
        list(values.integers(inputs, "ready_us")),
        values.integer(inputs, "start_us"),
        values.integer(inputs, "bytes_per_us"),
    )
    return {"plan": _as_data(plan)}


def _as_data(plan: Any) -> Value:
    try:
        return [[index if type(index) is int else f"{index!r:.40}" for index in bucket] for bucket in plan]
    except TypeError:
        return f"{plan!r:.60}"
