"""What a rank runs of split_plan."""

from __future__ import annotations

from typing import Any, cast

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.plans.matrix_splits import Machine, Matrix


def drive(functions: Functions, inputs: Values) -> Values:
    """Ask for a plan. Inputs: matrices (name, inputs, outputs of each), machine (its fields)."""
    matrices, machine = asked(inputs)
    return {"splits": functions["split_plan"](matrices, machine)}


def asked(inputs: Values) -> tuple[list[Matrix], Machine]:
    """Return what a plan is asked for."""
    matrices = cast("list[list[Any]]", inputs["matrices"])
    return [Matrix(*each) for each in matrices], Machine(**cast("dict[str, Any]", inputs["machine"]))
