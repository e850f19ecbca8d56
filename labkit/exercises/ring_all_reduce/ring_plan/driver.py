"""What a rank runs of ring_plan."""

from __future__ import annotations

from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions


def drive(functions: Functions, inputs: Values) -> Values:
    """Call ring_plan for each rank of each world size; return the plans as plain data (ring_plan)."""
    sizes = cast(list[int], inputs["world_sizes"])
    plan_of = functions["ring_plan"]
    return {"plans": [[_plan_data(plan_of(rank, size)) for rank in range(size)] for size in sizes]}


def _plan_data(plan: Any) -> Value:
    if plan is None:
        return "nothing (None)"
    try:
        records = list(plan)
    except TypeError:
        return f"a {type(plan).__name__} that is not a list"
    return [_record_data(record) for record in records]


def _record_data(record: Any) -> Value:
    kind = type(record).__name__
    fields = {name: getattr(record, name, None) for name in ("step", "chunk", "peer")}
    data: dict[str, Value] = {"kind": kind}
    for name, value in fields.items():
        if name == "peer" and kind == "Reduce":
            continue
        data[name] = value if type(value) is int else f"{value!r:.40}"
    return data
