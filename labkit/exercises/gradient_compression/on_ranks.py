"""What the drivers of this lesson share."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.gradient_compression.stand_ins import PacketStandIn

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def _options(call: dict[str, Any]) -> dict[str, Any]:
    options = cast(dict[str, Any], call.get("options") or {})
    return {name: _DTYPES[value] if name == "dtype" else value for name, value in options.items()}


def parts_of(packet: Any) -> list[Tensor] | str:
    """Return a packet's parts, or what is wrong with it in words."""
    parts = getattr(packet, "parts", None)
    if packet is None:
        return "compress returned None"
    if not isinstance(parts, tuple | list):
        return f"compress returned a {type(packet).__name__}, not a Packet with a tuple of parts"
    wrong = next((part for part in parts if not isinstance(part, Tensor)), None)
    if wrong is not None:
        return f"a part of the packet is a {type(wrong).__name__}, not a tensor; only tensors travel"
    return list(parts)


def group_of(inputs: Values) -> tuple[dist.ProcessGroup | None, bool]:
    """Return the group of the case and whether this rank is in it."""
    ranks = cast("list[int] | None", inputs.get("group"))
    if ranks is None:
        return None, True
    return dist.new_group(ranks), dist.get_rank() in ranks


def compress_tensors(functions: Functions, inputs: Values) -> Values:
    """Compress each gradient, and unpack it with another compressor of the same kind.

    Inputs: calls: dicts with compressor, options, gradient, times (how often the same one compresses it), noise (seed
    of torch's own generator before the call); packets: lists of parts whose bytes are asked for.
    """
    found: list[Value] = []
    for call in cast(list[dict[str, Any]], inputs["calls"]):
        make, gradient = functions[call["compressor"]], cast(Tensor, call["gradient"])
        torch.manual_seed(int(call.get("noise", 0)))
        compressor = make(**_options(call))
        came: list[Value] = []
        for _ in range(int(call.get("times", 1))):
            given, generator = gradient.clone(), torch.get_rng_state()
            packet = compressor.compress(given)
            parts = parts_of(packet)
            if isinstance(parts, str):
                came.append({"problem": parts})
                continue
            sent = functions.get("Packet", PacketStandIn)(
                tuple(part.clone() for part in parts), gradient.shape, gradient.dtype
            )
            back = make(**_options(call)).decompress(sent)
            came.append(
                {
                    "parts": cast(Value, parts),
                    "back": back,
                    "changed": not torch.equal(given, gradient),
                    "disturbed": not torch.equal(generator, torch.get_rng_state()),
                }
            )
        found.append(came)
    packets = cast(list[list[Tensor]], inputs.get("packets") or [])
    shape = torch.Size((1000,))
    sizes = [
        functions["wire_bytes"](functions.get("Packet", PacketStandIn)(tuple(p), shape, torch.float32)) for p in packets
    ]
    return {"came": found, "bytes": [size if type(size) is int else f"{size!r:.40}" for size in sizes]}
