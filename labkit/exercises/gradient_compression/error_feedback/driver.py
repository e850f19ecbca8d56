"""What a rank runs of error_feedback."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import record, records, tensor
from labkit.exercises.gradient_compression.on_ranks import parts_of
from labkit.exercises.gradient_compression.stand_ins import stand_in


def drive(functions: Functions, inputs: Values) -> Values:
    """Compress gradients of several keys in turn, with a memory around a stand-in (error_feedback).

    Inputs: compressor (see stand_in), calls: dicts with gradient and key (None for no argument).
    """
    compressor = stand_in(record(inputs, "compressor"), functions, inputs)
    memory = functions["ErrorFeedback"](compressor)
    found: list[Value] = []
    for call in records(inputs, "calls"):
        gradient = tensor(call, "gradient").clone()
        packet = memory.compress(gradient) if call["key"] is None else memory.compress(gradient, call["key"])
        parts = parts_of(packet)
        if isinstance(parts, str):
            found.append({"problem": parts})
            continue
        residual = memory.residuals.get(0 if call["key"] is None else call["key"])
        residual = residual.clone() if isinstance(residual, Tensor) else None  # before another rank's packet comes
        back = memory.decompress(packet)
        found.append(
            {
                "unpacked": back.clone() if isinstance(back, Tensor) else None,
                "residual": residual,
                "changed": not torch.equal(gradient, tensor(call, "gradient")),
            }
        )
    return {"calls": found, "compressed": compressor.num_compressed}
