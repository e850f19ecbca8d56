"""What a rank runs of all_to_all."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.sums_over_ranks.on_ranks import group_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Call all_to_all with this rank's pieces; return outputs and inputs as they are afterwards (all_to_all).

    Outputs are the tensors that were handed in; beside them the places where the list holds another one now.

    Inputs: pieces (one tensor for each rank of the group), sizes (of what each of them sends here), fill, group.
    """
    pieces = [piece.clone() for piece in cast(list[Tensor], inputs["pieces"])]
    fill = cast(float, inputs["fill"])
    group, member = group_of(inputs)
    if not member:
        return {"outputs": [], "inputs": cast(Value, pieces)}
    dtype = cast(list[Tensor], inputs["pieces"])[0].dtype
    outputs = [torch.full((size,), fill, dtype=dtype) for size in cast(list[int], inputs["sizes"])]
    keywords = {} if group is None else {"group": group}
    given = list(outputs)
    functions["all_to_all"](outputs, pieces, **keywords)
    replaced = [index for index, tensor in enumerate(given) if index < len(outputs) and outputs[index] is not tensor]
    return {"outputs": cast(Value, given), "inputs": cast(Value, pieces), "replaced": cast(Value, replaced)}
