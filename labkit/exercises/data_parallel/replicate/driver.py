"""What a rank runs of replicate."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.model_state import gradients_of, loss_of, model_of, state_of
from labkit.checks.values import flag, tensors
from labkit.exercises.data_parallel.on_ranks import described, devices_of
from labkit.simulator.storages import tensors_in
from labkit.torch_port.operators import DispatchMode, is_copy


def drive(functions: Functions, inputs: Values) -> Values:
    """Call replicate on a hard model; run the replicas, the last one first, and go backward (replicate).

    Inputs: seed, model (options), devices, train, x and y (one tensor for each replica). With another device than the
    CPU only where the replicas' tensors lie is returned. The loss is the sum of (n + 1) times replica n's loss.
    """
    model = model_of(inputs)
    model.train(flag(inputs, "train"))
    devices = devices_of(inputs)
    own = [*model.parameters(), *model.buffers()]
    replicas = functions["replicate"](model, devices)
    if not isinstance(replicas, list | tuple) or not replicas:
        nothing: Values = dict.fromkeys(("places", "outputs", "gradients", "state", "again", "shared", "same_tensors"))
        return {"replicas": described(replicas), **nothing}
    batches = list(zip(tensors(inputs, "x"), tensors(inputs, "y"), strict=True))
    on_cpu = all(device.type == "cpu" for device in devices)
    outputs: list[Value] = [None] * len(batches)
    used: list[_Used] = [_Used() for _ in batches]
    losses = []
    for number in reversed(range(min(len(batches), len(replicas)))):
        x, y = batches[number]
        x = x.to(devices[number])
        with used[number]:
            output = replicas[number](x)
        used[number].leave_out(x)
        outputs[number] = output.detach().clone()
        losses.append((number + 1) * loss_of(output, y.to(devices[number])))
    places: list[Value] = [sorted(each.devices) for each in used]
    if not on_cpu:
        return {"replicas": [None] * len(replicas), "places": places}
    total = torch.stack(losses).sum()
    if total.requires_grad:
        torch.autograd.backward(total)
    now = [*model.parameters(), *model.buffers()]
    return {
        "replicas": [None] * len(replicas),
        "places": places,
        "outputs": outputs,
        "gradients": gradients_of(model),
        "state": state_of(model),
        "again": [
            number for number in range(len(replicas)) if any(replicas[number] is each for each in replicas[:number])
        ],
        "shared": _shared(used, own),
        "same_tensors": len(now) == len(own) and all(a is b for a, b in zip(own, now, strict=True)),
    }


class _Used(DispatchMode):
    """What a replica computes with that it has not computed itself: its tensors, however it keeps them.

    A tensor that is only copied is not used; its copy is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.devices: set[str] = set()
        self.given: dict[int, list[Tensor]] = {}  # by storage
        self._made: set[int] = set()
        self._alive: list[Tensor] = []  # or an address would come twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        taken = list(tensors_in((args, kwargs)))
        result = func(*args, **(kwargs or {}))
        brought = list(tensors_in([result]))
        self._alive += [*taken, *brought]
        if not is_copy(func):
            self.devices |= {each.device.type for each in taken}
            for each in taken:
                if _address(each) not in self._made:
                    self.given.setdefault(_address(each), []).append(each)
        self._made |= {_address(each) for each in brought} - self.given.keys()
        return result

    def leave_out(self, tensor: Tensor) -> None:
        """Forget a tensor that was handed to the replica."""
        self.given.pop(_address(tensor), None)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _elements(tensors: Iterable[Tensor]) -> Tensor:
    """Return where each element begins in memory: pieces of one storage may have none in common."""
    found = [torch.empty(0, dtype=torch.int64)]
    for begin, size, shape, strides in {
        (each.data_ptr(), each.element_size(), each.shape, each.stride()) for each in tensors
    }:
        places = torch.tensor(begin)
        for length, stride in zip(shape, strides, strict=True):
            places = places.unsqueeze(-1) + torch.arange(length) * stride * size
        found.append(places.flatten())
    return torch.cat(found)


def _shared(used: list[_Used], own: list[Tensor]) -> list[Value]:
    """Return the replicas from 1 on that share memory with the module or with a replica before them."""
    taken = _elements(own)
    found: list[Value] = []
    for number, each in enumerate(used):
        mine = _elements(chain.from_iterable(each.given.values()))
        if number > 0 and torch.isin(mine, taken).any():
            found.append(number)
        taken = torch.cat((taken, mine))
    return found
