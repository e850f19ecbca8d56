"""What a rank runs of error_feedback."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.gradient_compression.on_ranks import parts_of
from labkit.exercises.gradient_compression.stand_ins import stand_in


def drive(functions: Functions, inputs: Values) -> Values:
    """Compress gradients of several keys in turn, with a memory around a compressor that rounds (error_feedback).

    Inputs: step (of the rounding), calls: dicts with gradient and key (None for no argument).
    """
    rounding = stand_in({"kind": "rounding", "step": inputs["step"]}, functions)
    memory = functions["ErrorFeedback"](rounding)
    found: list[Value] = []
    for call in cast(list[dict[str, Any]], inputs["calls"]):
        gradient = cast(Tensor, call["gradient"]).clone()
        packet = memory.compress(gradient) if call["key"] is None else memory.compress(gradient, call["key"])
        parts = parts_of(packet)
        if isinstance(parts, str):
            found.append({"problem": parts})
            continue
        back = memory.decompress(packet)
        residual = memory.residuals.get(0 if call["key"] is None else call["key"])
        found.append(
            {
                "back": back.clone() if isinstance(back, Tensor) else None,
                "residual": residual.clone() if isinstance(residual, Tensor) else None,
                "changed": not torch.equal(gradient, call["gradient"]),
            }
        )
    return {"came": found, "compressed": rounding.num_compressed}
