"""Drivers of lesson 06: call the learner's compressors, feedback and hooks; return what came of it as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.drivers.lesson_03 import gradients_of, loss_of, model_of
from labkit.checks.drivers.lesson_06_stand_ins import Bucket, HookStandIn, PacketStandIn, Recorder, stand_in
from labkit.checks.exercise import Functions
from labkit.torch_port.futures import AnyFuture

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def _options(call: dict[str, Any]) -> dict[str, Any]:
    options = cast(dict[str, Any], call.get("options") or {})
    return {name: _DTYPES[value] if name == "dtype" else value for name, value in options.items()}


def _parts(packet: Any) -> list[Tensor] | str:
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


def _group(inputs: Values) -> tuple[dist.ProcessGroup | None, bool]:
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
            parts = _parts(packet)
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


def feed_back(functions: Functions, inputs: Values) -> Values:
    """Compress gradients of several keys in turn, with a memory around a compressor that rounds (error_feedback).

    Inputs: step (of the rounding), calls: dicts with gradient and key (None for no argument).
    """
    rounding = stand_in({"kind": "rounding", "step": inputs["step"]}, functions)
    memory = functions["ErrorFeedback"](rounding)
    found: list[Value] = []
    for call in cast(list[dict[str, Any]], inputs["calls"]):
        gradient = cast(Tensor, call["gradient"]).clone()
        packet = memory.compress(gradient) if call["key"] is None else memory.compress(gradient, call["key"])
        parts = _parts(packet)
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


def average_packets(functions: Functions, inputs: Values) -> Values:
    """Call mean_of_packets with this rank's packet of a window. Inputs: start, values, shape; optional group."""
    group, member = _group(inputs)
    if not member:
        return {"member": False}
    values = cast(Tensor, inputs["values"])
    parts = (torch.tensor([cast(int, inputs["start"])]), values.clone())
    packet = functions.get("Packet", PacketStandIn)(parts, torch.Size(cast(list[int], inputs["shape"])), values.dtype)
    mean = functions["mean_of_packets"](stand_in({"kind": "window"}, functions), packet, *([group] if group else []))
    changed = not torch.equal(parts[1], values) or int(parts[0]) != inputs["start"]
    return {"mean": mean.clone() if isinstance(mean, Tensor) else f"{mean!r:.60}", "changed": changed}


def call_hook(functions: Functions, inputs: Values) -> Values:
    """Call the hook for every bucket of every step, then wait for the futures of the step (compression_hook).

    A barrier in a group of its own stands before and after each call. Inputs: compressor (see stand_in), steps: for
    each step the buffers of its buckets; optional group.
    """
    cuts = dist.new_group()
    group, member = _group(inputs)
    if not member:
        return {"member": False}
    memory = Recorder(stand_in(cast(dict[str, Any], inputs["compressor"]), functions))
    state = functions.get("HookState", HookStandIn)(memory, group)
    found: list[Value] = []
    for buffers in cast(list[list[Tensor]], inputs["steps"]):
        given, futures = [buffer.clone() for buffer in buffers], []
        for number, buffer in enumerate(given):
            if inputs.get("group") is None:
                dist.barrier(cuts)
            futures.append(functions["compression_hook"](state, Bucket(number, buffer, number == len(given) - 1)))
            if inputs.get("group") is None:
                dist.barrier(cuts)
        found.append(
            {
                "means": [_value(future) for future in futures],
                "changed": any(not torch.equal(a, b) for a, b in zip(given, buffers, strict=True)),
            }
        )
    sent = state.sent_bytes
    return {
        "steps": found,
        "keys": cast(Value, memory.keys),
        "fed": cast(Value, memory.fed),
        "sent_bytes": sent if type(sent) is int else f"{sent!r:.40}",
    }


def _value(future: Any) -> Value:
    if not isinstance(future, AnyFuture):  # what torch.futures.Future and C++ both are
        return f"a {type(future).__name__}"
    value = future.wait()
    return value.detach().clone() if isinstance(value, Tensor) else f"a future of a {type(value).__name__}"


def hook_on_ddp(functions: Functions, inputs: Values) -> Values:
    """Register the hook with torch's DDP around the torture model; return the gradients of each step.

    Inputs: seed, model (options), compressor, cap (MB of a bucket), x, y: for each step a batch.
    """
    model = model_of(inputs)
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=cast(float, inputs["cap"]))
    memory = Recorder(stand_in(cast(dict[str, Any], inputs["compressor"]), functions))
    ddp.register_comm_hook(functions.get("HookState", HookStandIn)(memory, None), functions["compression_hook"])
    steps: list[Value] = []
    for x, y in zip(cast(list[Tensor], inputs["x"]), cast(list[Tensor], inputs["y"]), strict=True):
        ddp.zero_grad()
        torch.autograd.backward(loss_of(ddp(x), y))
        steps.append(gradients_of(model))
    return {"gradients": steps}


def run_hook(functions: Functions, inputs: Values) -> Values:
    """Call the hook by hand, or let torch's DDP call it where the case asks for that (compression_hook)."""
    return hook_on_ddp(functions, inputs) if "cap" in inputs else call_hook(functions, inputs)


def power(functions: Functions, inputs: Values) -> Values:
    """Average a list of tensors together, or compress this rank's buckets with one PowerSGD (power_sgd).

    Inputs: tensors, and optional group; or rank and buckets, for each call the list of its gradients.
    """
    return _average_list(functions, inputs) if "tensors" in inputs else _compress_buckets(functions, inputs)


def _average_list(functions: Functions, inputs: Values) -> Values:
    group, member = _group(inputs)
    if not member:
        return {"member": False}
    tensors = cast(list[Tensor], inputs.get("tensors"))
    given = [tensor.clone() for tensor in tensors]
    means = functions["average_together"](given, *([group] if group else []))
    changed = any(not torch.equal(now, before) for now, before in zip(given, tensors, strict=True))
    return {"means": _tensors(means), "changed": changed}


def _tensors(values: Any) -> Value:
    """Return copies of a list of tensors, or in words what it is instead."""
    if not isinstance(values, list | tuple):
        return f"a {type(values).__name__}"
    odd = next((value for value in values if not isinstance(value, Tensor)), None)
    return [value.detach().clone() for value in values] if odd is None else f"a list with a {type(odd).__name__}"


def _compress_buckets(functions: Functions, inputs: Values) -> Values:
    averaged: list[int] = []

    def average(tensors: Any) -> list[Tensor]:
        if isinstance(tensors, Tensor):
            raise TypeError("average takes a list of tensors, and was given one tensor")
        given = cast(list[Tensor], list(tensors))
        sizes = [tensor.numel() for tensor in given]
        averaged.append(sum(sizes))
        joined = torch.cat([tensor.detach().flatten() for tensor in given])
        dist.all_reduce(joined)
        pieces = torch.split(joined / dist.get_world_size(), sizes)
        return [piece.view(tensor.shape) for piece, tensor in zip(pieces, given, strict=True)]

    torch.manual_seed(dist.get_rank())
    compressor = functions["PowerSGD"](cast(int, inputs["rank"]), average)
    found: list[Value] = []
    for gradients in cast(list[list[Tensor]], inputs["buckets"]):
        given = [gradient.clone() for gradient in gradients]
        averaged.clear()
        packets = compressor.compress(given)
        problem = _no_packets(packets, len(given))
        if problem is not None:
            found.append({"problem": problem})
            continue
        parts = [[part.clone() for part in packet.parts] for packet in packets]
        found.append(
            {
                "parts": cast(Value, parts),
                "backs": [compressor.decompress(packet) for packet in packets],
                "averaged": list(averaged),
                "changed": any(not torch.equal(now, before) for now, before in zip(given, gradients, strict=True)),
            }
        )
    return {"came": found}


def _no_packets(packets: Any, count: int) -> str | None:
    """Return what is wrong with what should be a list of packets, or None."""
    if not isinstance(packets, list | tuple):
        return (
            f"compress returned {'None' if packets is None else f'a {type(packets).__name__}'}, not a list of packets"
        )
    if len(packets) != count:
        return f"compress returned {len(packets)} packets for {count} gradients"
    return next((parts for parts in map(_parts, packets) if isinstance(parts, str)), None)


@dataclass(frozen=True)
class RowStandIn:
    """Stand-in for the lesson's Row."""

    claim: str
    where: str
    value: float


def make_tables(functions: Functions, inputs: Values) -> Values:
    """Call the formulas, and true_table with each list of rows (true_table).

    Inputs: calls (function and args); tables: dicts with rows (claim, where, value) and promised (claim, low, high).
    """
    values: list[Value] = [
        functions[call["function"]](*call["args"]) for call in cast(list[dict[str, Any]], inputs["calls"])
    ]
    make = functions.get("Row", RowStandIn)
    tables: list[Value] = []
    for about in cast(list[dict[str, Any]], inputs["tables"]):
        rows = [make(*row) for row in about["rows"]]
        tables.append(
            _plain(functions["true_table"](rows, {name: (low, high) for name, low, high in about["promised"]}))
        )
    return {"values": values, "tables": tables}


def _plain(value: Any) -> Value:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else f"a {type(value).__name__}"
