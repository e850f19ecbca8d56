"""What a rank runs of damaged."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import tensors
from labkit.exercises.start_here.on_ranks import plain


def drive(functions: Functions, inputs: Values) -> Values:
    """Call damaged with each pair of tensors; return what it gave (damaged)."""
    pairs = zip(tensors(inputs, "before"), tensors(inputs, "after"), strict=True)
    return {"answers": [plain(functions["damaged"](before.clone(), after.clone())) for before, after in pairs]}
