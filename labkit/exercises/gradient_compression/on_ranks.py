"""What the drivers of this lesson share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, listed, record, records, tensor, text
from labkit.exercises.gradient_compression.stand_ins import PacketStandIn

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def _options(call: Values) -> dict[str, Any]:
    options: dict[str, Any] = record(call, "options")
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


def laid_out(gradient: Tensor, layout: str) -> Tensor:
    """Return a copy of a gradient, contiguous or as the transpose of a tensor; of a vector, with gaps."""
    if layout == "contiguous":
        return gradient.clone()
    if gradient.dim() == 1:
        return torch.stack([gradient, -gradient], -1)[..., 0]
    return gradient.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)


@contextmanager
def _watched_generator() -> Iterator[list[bool]]:
    """Yield a list that says, once, whether torch's own generator was seeded, or is in another state afterwards."""
    touched: list[bool] = []
    before, seed = torch.get_rng_state(), torch.manual_seed

    def seeds(value: int) -> torch.Generator:
        touched.append(True)
        return seed(value)

    with patch.object(torch, "manual_seed", seeds), patch.object(torch.random, "manual_seed", seeds):
        yield touched
    touched.append(bool(touched) or not torch.equal(before, torch.get_rng_state()))


def compress_tensors(functions: Functions, inputs: Values) -> Values:
    """Compress each gradient, and unpack it with another compressor of the same kind.

    Inputs: calls: dicts with compressor, options, gradient, times (how often the same one compresses it), noise (seed
    of torch's own generator before the call), layout, between (optional: another gradient, compressed after each
    time); packets: lists of parts whose bytes are asked for.
    """
    calls: list[Value] = []
    make_packet = functions.get("Packet", PacketStandIn)
    for call in records(inputs, "calls"):
        make, gradient = functions[text(call, "compressor")], tensor(call, "gradient")
        torch.manual_seed(integer(call, "noise"))
        compressor = make(**_options(call))
        came: list[Value] = []
        for _ in range(integer(call, "times")):
            given = laid_out(gradient, text(call, "layout"))
            with _watched_generator() as touched:
                packet = compressor.compress(given)
                if "between" in call:
                    compressor.compress(tensor(call, "between").clone())
                parts = parts_of(packet)
                if isinstance(parts, str):
                    came.append({"problem": parts})
                    continue
                sent = [
                    make_packet(tuple(part.clone() for part in parts), gradient.shape, gradient.dtype) for _ in range(2)
                ]
                back = make(**_options(call)).decompress(sent[0])
                compressor.decompress(sent[1])  # as ErrorFeedback does, between two calls of compress
            came.append(
                {
                    "parts": [*parts],
                    "unpacked": back,
                    "changed": not torch.equal(given, gradient),
                    "disturbed": touched[-1],
                }
            )
        calls.append(came)
    shape = torch.Size((1000,))
    sizes = [
        functions["wire_bytes"](make_packet(tuple(parts), shape, torch.float32)) for parts in listed(inputs, "packets")
    ]
    return {"calls": calls, "bytes": [size if type(size) is int else f"{size!r:.40}" for size in sizes]}
