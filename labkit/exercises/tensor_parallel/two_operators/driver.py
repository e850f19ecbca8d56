"""What a rank runs of two_operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import in_group, my_group
from labkit.checks.values import tensor
from labkit.exercises.tensor_parallel.on_ranks import through


def drive(functions: Functions, inputs: Values) -> Values:
    """Send x through both operators, forward and backward, alone and with a residual; return what came out of each.

    Inputs: x and gradient (this rank's), optional groups (whose ranks share), transposed (both reach the operators as
    transposed views).
    """
    x, gradient = tensor(inputs, "x"), tensor(inputs, "gradient")
    if inputs["transposed"]:
        x, gradient = x.t().contiguous().t(), gradient.t().contiguous().t()
    keywords = in_group(my_group(inputs))
    return {name: _both_ways(partial(functions[name], **keywords), x, gradient) for name in ("enter", "leave")}


def _both_ways(operator: Callable[[Tensor], Tensor], x: Tensor, gradient: Tensor) -> Values:
    """Return what comes through one operator, and the gradient of x where x is added to the result as a residual."""
    found = through(operator, x, gradient, beside=True)
    if not isinstance(found["out"], Tensor) or found["out"].shape != x.shape:
        return {**found, "residual": None}
    return {**found, "residual": through(lambda given: operator(given) + given, x, gradient)["gradient"]}
