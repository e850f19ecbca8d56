"""What a rank runs of compression_hook."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import one_group
from labkit.checks.on_ranks.model_state import gradients_of, loss_of, model_of
from labkit.checks.values import listed, number, record, tensors, text
from labkit.exercises.gradient_compression.stand_ins import Bucket, HookStandIn, Recorder, stand_in
from labkit.torch_port.futures import AnyFuture


def call_hook(functions: Functions, inputs: Values) -> Values:
    """Call the hook for every bucket of every step, then wait for the futures of the step (compression_hook).

    A barrier in a group of its own stands before and after each call. Inputs: compressor (see stand_in), steps: for
    each step the buffers of its buckets; optional group.
    """
    cuts = dist.new_group()
    group, member = one_group(inputs)
    if not member:
        return {"member": False}
    memory = Recorder(stand_in(record(inputs, "compressor"), functions, inputs))
    state = functions.get("HookState", HookStandIn)(memory, group)
    found: list[Value] = []
    for buffers in listed(inputs, "steps"):
        given, futures = [buffer.clone() for buffer in buffers], []
        for place, buffer in enumerate(given):
            if inputs.get("group") is None:
                dist.barrier(cuts)
            futures.append(functions["compression_hook"](state, Bucket(place, buffer, place == len(given) - 1)))
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
        "keys": [*memory.keys],
        "sent_bytes": sent if type(sent) is int else f"{sent!r:.40}",
        "written": any(bool(each.any()) for each in memory.residuals.values() if isinstance(each, Tensor)),
    }


def _value(future: Any) -> Value:
    if not isinstance(future, AnyFuture):  # what torch.futures.Future and C++ both are
        return f"a {type(future).__name__}"
    value = future.wait()
    return value.detach().clone() if isinstance(value, Tensor) else f"a future of a {type(value).__name__}"


def hook_on_ddp(functions: Functions, inputs: Values) -> Values:
    """Register the hook with torch's DDP around the hard model; return the gradients of each step.

    Inputs: seed, model (options), compressor (kind "own" for the learner's, in the learner's ErrorFeedback: name and
    options), cap (MB of a bucket), x, y: for each step a batch. Of the learner's own memory the sum comes back of all
    that still waits there.
    """
    model = model_of(inputs)
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=number(inputs, "cap"))
    about = record(inputs, "compressor")
    own = about["kind"] == "own"  # the learner's parts, from end to end
    if own:
        options: dict[str, Any] = record(about, "options")
        memory = functions["ErrorFeedback"](functions[text(about, "name")](**options))
    else:
        memory = Recorder(stand_in(about, functions, inputs))
    ddp.register_comm_hook(functions.get("HookState", HookStandIn)(memory, None), functions["compression_hook"])
    steps: list[Value] = []
    for x, y in zip(tensors(inputs, "x"), tensors(inputs, "y"), strict=True):
        ddp.zero_grad()
        torch.autograd.backward(loss_of(ddp(x), y))
        steps.append(gradients_of(model))
    if not own:
        return {"gradients": steps}
    return {"gradients": steps, "waiting": float(sum(each.sum() for each in memory.residuals.values()))}


def drive(functions: Functions, inputs: Values) -> Values:
    """Call the hook by hand, or let torch's DDP call it where the case asks for that (compression_hook)."""
    return hook_on_ddp(functions, inputs) if "cap" in inputs else call_hook(functions, inputs)
