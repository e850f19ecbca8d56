"""What a rank runs of two_operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import in_group, my_group
from labkit.checks.values import tensor
from labkit.exercises.tensor_parallel.on_ranks import through


def drive(functions: Functions, inputs: Values) -> Values:
    """Send x through both operators, forward and backward, alone and with a residual; return what came out of each.

    Where ranks are in groups, once more with a call of all ranks between forward and backward.

    Inputs: x and gradient (this rank's), gradient_of_sum (of what `leave` returns, alike on ranks that share), optional
    groups (whose ranks share), transposed (all of them reach the operators as transposed views).
    """
    x, *gradients = (tensor(inputs, key) for key in ("x", "gradient", "gradient_of_sum"))
    if inputs["transposed"]:
        x, *gradients = (each.t().contiguous().t() for each in (x, *gradients))
    keywords = in_group(my_group(inputs))
    found: dict[str, Value] = {}
    for name, gradient in zip(("enter", "leave"), gradients, strict=True):
        of = _both_ways(partial(functions[name], **keywords), x, gradient)
        found[name] = {**of, "between": _interrupted(functions[name], keywords, x, gradient)} if keywords else of
    return found


def _interrupted(operator: Callable[..., Tensor], keywords: Values, x: Tensor, gradient: Tensor) -> Value:
    """Return the gradient of x where the operator is called for all ranks between its forward and its backward."""

    def followed(given: Tensor) -> Tensor:
        out = operator(given, **keywords)
        operator(given.detach().clone().requires_grad_())
        return out

    return through(followed, x, gradient)["gradient"]


def _both_ways(operator: Callable[[Tensor], Tensor], x: Tensor, gradient: Tensor) -> Values:
    """Return what comes through one operator, and the gradient of x where x is added to the result as a residual."""
    found = through(operator, x, gradient, beside=True)
    if not isinstance(found["out"], Tensor) or found["out"].shape != x.shape:
        return {**found, "residual": None}
    return {**found, "residual": through(lambda given: operator(given) + given, x, gradient)["gradient"]}
