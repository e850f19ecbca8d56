"""What a rank runs of sequence_parallel."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import in_group, my_group
from labkit.checks.values import integer, tensor, text
from labkit.exercises.tensor_parallel.on_ranks import through

DRAWN = 4


def drive(functions: Functions, inputs: Values) -> Values:
    """Gather or scatter tokens forward and backward, or draw random numbers inside and outside.

    Inputs: function, optional groups; x and gradient, or seed (of this rank's generator, the same on all) and own_seed.
    """
    keywords = in_group(my_group(inputs))
    if inputs["function"] != "OwnRandom":
        name = text(inputs, "function")
        return {name: through(partial(functions[name], **keywords), tensor(inputs, "x"), tensor(inputs, "gradient"))}
    return _drawn(functions["OwnRandom"], integer(inputs, "seed"), integer(inputs, "own_seed"), keywords)


class _Inside(Exception):
    """Raised within a `with`."""


def _drawn(make: Any, seed: int, own_seed: int, keywords: dict[str, Any]) -> Values:
    """Draw outside and inside in turn, once with an error inside; then from new ones: of the same seed, of the next."""
    torch.manual_seed(seed)
    outside: list[Value] = [torch.rand(DRAWN)]
    inside: list[Value] = []
    own: Any = make(own_seed, **keywords)
    outside.append(torch.rand(DRAWN))
    for _ in range(2):
        with own:
            inside.append(torch.rand(DRAWN))
        outside.append(torch.rand(DRAWN))
    came_out = False
    try:
        with own:
            torch.rand(DRAWN)
            raise _Inside
    except _Inside:
        came_out = True
    with own:
        inside.append(torch.rand(DRAWN))
    outside.append(torch.rand(DRAWN))
    torch.manual_seed(seed + 1)
    with make(own_seed, **keywords):
        inside += [torch.rand(DRAWN) for _ in range(5)]
    with own:  # it knows nothing of the other
        inside.append(torch.rand(DRAWN))
    with make(own_seed + 1, **keywords):
        inside.append(torch.rand(DRAWN))
    outside.append(torch.rand(DRAWN))
    return {"outside": outside, "inside": inside, "came_out": came_out}
