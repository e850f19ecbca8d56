"""What a rank runs of deep_compression."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, number, records, tensor, text
from labkit.exercises.gradient_compression.on_ranks import laid_out, parts_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Compress gradients of several keys in turn, and unpack each with another compressor of the same kind.

    Inputs: ratio, momentum, max_norm, num_ranks, warmup, calls: dicts with gradient, layout, and key (None for no
    argument).
    """

    def make() -> object:
        return functions["DeepCompression"](
            number(inputs, "ratio"), momentum=number(inputs, "momentum"), max_norm=number(inputs, "max_norm"),
            num_ranks=integer(inputs, "num_ranks"), warmup=integer(inputs, "warmup"),
        )  # fmt: skip

    memory = make()
    found: list[Value] = []
    for call in records(inputs, "calls"):
        gradient = laid_out(tensor(call, "gradient"), text(call, "layout"))
        packet = memory.compress(gradient, *([] if call["key"] is None else [call["key"]]))  # type: ignore[attr-defined]
        parts = parts_of(packet)
        if isinstance(parts, str):
            found.append({"problem": parts})
            continue
        back = make().decompress(packet)  # type: ignore[attr-defined]
        came: dict[str, Value] = {
            "unpacked": back.clone() if isinstance(back, Tensor) else None,
            "changed": not torch.equal(gradient, tensor(call, "gradient")),
            "bytes": sum(part.numel() * part.element_size() for part in parts),
        }
        found.append(came)
    return {"calls": found}
