"""What a rank runs of two_operators."""

from __future__ import annotations

from functools import partial

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import in_group, my_group
from labkit.checks.values import tensor
from labkit.exercises.tensor_parallel.on_ranks import through


def drive(functions: Functions, inputs: Values) -> Values:
    """Send x through both operators, forward and backward; return what came out of each.

    Inputs: x and gradient (this rank's), optional groups (whose ranks share), transposed (both reach the operators as
    transposed views).
    """
    x, gradient = tensor(inputs, "x"), tensor(inputs, "gradient")
    if inputs["transposed"]:
        x, gradient = x.t().contiguous().t(), gradient.t().contiguous().t()
    keywords = in_group(my_group(inputs))
    return {
        name: through(partial(functions[name], **keywords), x, gradient, beside=True) for name in ("enter", "leave")
    }
