"""What a rank runs of all_to_all."""

from __future__ import annotations

import torch

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import one_group
from labkit.checks.values import integers, number, tensors


def drive(functions: Functions, inputs: Values) -> Values:
    """Call all_to_all with this rank's pieces; return outputs and inputs as they are afterwards (all_to_all).

    Outputs are the tensors that were handed in; beside them the places where the list holds another one now.

    Inputs: pieces (one tensor for each rank of the group), sizes (of what each of them sends here), fill, group.
    """
    pieces = [piece.clone() for piece in tensors(inputs, "pieces")]
    fill = number(inputs, "fill")
    group, member = one_group(inputs)
    if not member:
        return {"outputs": [], "inputs": pieces}
    dtype = tensors(inputs, "pieces")[0].dtype
    outputs = [torch.full((size,), fill, dtype=dtype) for size in integers(inputs, "sizes")]
    keywords = {} if group is None else {"group": group}
    given = list(outputs)
    functions["all_to_all"](outputs, pieces, **keywords)
    replaced = [index for index, tensor in enumerate(given) if index < len(outputs) and outputs[index] is not tensor]
    return {"outputs": given, "inputs": pieces, "replaced": replaced}
