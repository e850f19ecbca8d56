"""A plan as plain data, whatever class its records are of; what a rank sends back of it."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Value


def plan_data(plan: Any) -> Value:
    """Return a plan's records as dicts, or in words what came instead of a list."""
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
