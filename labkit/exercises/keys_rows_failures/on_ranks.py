"""What the drivers of this lesson share."""

from __future__ import annotations

from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed

ANSWER = 41
"""What a stand-in answers to its first push: the index of no replica (replicated_server)."""
BACKUPS_ANSWER = 99
"""What a stand-in for a backup answers: a version that its primary never has (replicated_server)."""


def call_with_tensors(functions: Functions, inputs: Values) -> Values:
    """Call named functions, each with its arguments; return what they gave (place_keys, hot_keys)."""
    found: list[Value] = []
    for each in listed(inputs, "calls"):
        args = [value.clone() if isinstance(value, Tensor) else value for value in each["args"]]
        value = functions[each["function"]](*args)
        found.append(value if isinstance(value, Tensor) else f"a {type(value).__name__}")
    return {"values": found}
