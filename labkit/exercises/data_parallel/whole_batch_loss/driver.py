"""What a rank runs of whole_batch_loss."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.exercises.data_parallel.nested_values import describe
from labkit.exercises.data_parallel.on_ranks import gradients


def drive(functions: Functions, inputs: Values) -> Values:
    """Call whole_batch_loss; return the loss and the gradient of each part (whole_batch_loss)."""
    losses = cast(Tensor, inputs["losses"]).clone().requires_grad_()
    loss = functions["whole_batch_loss"](losses, list(cast(list[int], inputs["counts"])))
    (gradient,) = gradients(loss, [losses])
    return {"loss": describe(loss), "gradient": gradient}
