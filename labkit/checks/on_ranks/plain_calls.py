"""Calls of functions with plain arguments."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed


def call_functions(functions: Functions, inputs: Values) -> Values:
    """Call named functions with plain arguments; return their values in order."""
    calls = listed(inputs, "calls")
    return {"values": [functions[call["function"]](*call["args"]) for call in calls]}
