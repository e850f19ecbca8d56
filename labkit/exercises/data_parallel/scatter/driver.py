"""What a rank runs of scatter."""

from __future__ import annotations

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.data_parallel.nested_values import build, describe, tensors_in
from labkit.exercises.data_parallel.on_ranks import devices_of, gradients, watched


def drive(functions: Functions, inputs: Values) -> Values:
    """Call scatter; return its pieces, and the gradient of every tensor when piece n counts n + 1 times (scatter)."""
    value = build(inputs["value"])
    leaves = watched(value) if inputs.get("gradients") else []
    pieces = functions["scatter"](value, devices_of(inputs))
    if not isinstance(pieces, list | tuple):
        return {"pieces": describe(pieces)}
    result: dict[str, Value] = {"pieces": [describe(piece) for piece in pieces]}
    if leaves:
        total = sum((n + 1) * t.sum() for n, p in enumerate(pieces) for t in tensors_in(p) if t.requires_grad)
        result["gradients"] = gradients(total, leaves)
    return result
