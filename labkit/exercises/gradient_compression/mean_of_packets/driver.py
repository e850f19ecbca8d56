"""What a rank runs of mean_of_packets."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, integers, tensor
from labkit.exercises.gradient_compression.on_ranks import group_of
from labkit.exercises.gradient_compression.stand_ins import PacketStandIn, stand_in


def drive(functions: Functions, inputs: Values) -> Values:
    """Call mean_of_packets with this rank's packet of a window. Inputs: start, values, shape; optional group."""
    group, member = group_of(inputs)
    if not member:
        return {"member": False}
    values = tensor(inputs, "values")
    parts = (torch.tensor([integer(inputs, "start")]), values.clone())
    packet = functions.get("Packet", PacketStandIn)(parts, torch.Size(integers(inputs, "shape")), values.dtype)
    mean = functions["mean_of_packets"](stand_in({"kind": "window"}, functions), packet, *([group] if group else []))
    changed = not torch.equal(parts[1], values) or int(parts[0]) != inputs["start"]
    return {"mean": mean.clone() if isinstance(mean, Tensor) else f"{mean!r:.60}", "changed": changed}
