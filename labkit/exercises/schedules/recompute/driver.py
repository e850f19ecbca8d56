"""The driver of drive: a module that counts calls, what is kept of a forward, the random numbers after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.opposite import Ask, asked, asker, give
from labkit.checks.on_ranks.other_kind import kind_for
from labkit.checks.values import integer, listed, record, tensor, tensors
from labkit.torch_port.tensors import CHECKPOINT_PARTS

_RUN, _OUT = 1, 2


@contextmanager
def _without_the_library() -> Iterator[None]:
    """Let torch's own checkpoint raise, also where it was imported before."""
    import torch.utils.checkpoint as library

    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError("torch.utils.checkpoint was called; here you build it yourself")

    class Refused:
        apply = staticmethod(refuse)

    kept = {name: vars(library)[name] for name in CHECKPOINT_PARTS if name in vars(library)}
    for name in kept:
        setattr(library, name, Refused if name == CHECKPOINT_PARTS[0] else refuse)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(library, name, value)


class Counted(nn.Module):
    """A small module that counts its calls; it may draw random numbers and have parameters of every kind."""

    def __init__(self, spec: Values) -> None:
        """Build it from "weights" (square matrices), "dropout", "frozen" (a number), "spare"; "norm", "counts" (bools).

        With norm the first layer's output goes through a BatchNorm, whose running statistics are buffers. With counts a
        buffer counts the calls, and the output is multiplied by it; where counts is "copied", by a copy of it.
        """
        nn.Module.__init__(self)  # it may be of another class: see kind_for
        weights = tensors(spec, "weights")
        self.weights = nn.ParameterList(nn.Parameter(weight.clone()) for weight in weights)
        if spec.get("frozen") is not None:
            self.weights[integer(spec, "frozen")].requires_grad_(False)
        spare = spec.get("spare")
        self.spare = None if spare is None else nn.Parameter(cast(Tensor, spare).clone())
        self.dropout = cast(float, spec.get("dropout") or 0.0)
        self.norm = nn.BatchNorm1d(len(weights[0]), dtype=torch.float64) if spec.get("norm") else nn.Identity()
        self.turn: Tensor | None
        self.register_buffer("turn", torch.zeros((), dtype=torch.float64) if spec.get("counts") else None)
        self.copies = spec.get("counts") == "copied"
        self.calls, self.ask = 0, cast(Ask | None, None)

    def forward(self, x: Tensor) -> Tensor:
        """Return x through all layers."""
        self.calls += 1
        for number, weight in enumerate(self.weights):
            x = x @ weight if x.is_floating_point() else weight[x]  # tokens choose rows
            x = nn.functional.dropout(torch.tanh(x), self.dropout)
            x = self.norm(x) if number == 0 else x
        if self.ask is not None:
            x = x * torch.tensor(self.ask(_RUN, self.calls - 1), dtype=torch.float64)
        if self.turn is None:
            return x
        self.turn += 1
        return x * (self.turn.clone() if self.copies else self.turn)  # autograd keeps what it multiplies with

    def statistics(self) -> dict[str, Value]:
        """Return each buffer by name, as float64."""
        return {name: buffer.double().clone() for name, buffer in self.named_buffers()}

    def gradients(self) -> dict[str, Value]:
        """Return each parameter's gradient by name."""
        return {name: parameter.grad for name, parameter in self.named_parameters()}


def forward_and_backward(
    call: Callable[[Counted, Tensor], Any], inputs: Values, ask: Ask | None = None
) -> dict[str, Value]:
    """Return what a call, or the sum of two, brings: output, gradients, buffers, bytes kept, next random numbers.

    With `ask` each run of the module multiplies its output by a number of its own, and backward begins with another.
    """
    module = kind_for(Counted, inputs)(record(inputs, "module"))
    module.ask = ask
    start = module.statistics()
    x = tensor(inputs, "x").clone().requires_grad_(bool(inputs.get("needs_gradient")))
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}
    parameters: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        else:
            parameters.append(tensor)
        return tensor

    torch.manual_seed(integer(inputs, "seed"))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = call(module, x)
        if inputs.get("twice"):
            out = out + call(module, x)
    if not isinstance(out, Tensor):
        return {"problem": f"checkpointed returned {type(out).__name__}, not a tensor."}
    found: dict[str, Value] = {"out": out, "kept_bytes": sum(kept.values()), "next": torch.rand(())}
    found["calls_forward"], found["saved_parameters"] = module.calls, len(parameters)
    if out.requires_grad:
        weight = tensor(inputs, "weight") * (ask(_OUT, 0) if ask else 1.0)
        out.backward(weight)  # type: ignore[no-untyped-call]
    found |= {"grads": module.gradients(), "x_grad": x.grad, "calls": module.calls, "after": torch.rand(())}
    return found | {"buffers": module.statistics(), "start": start}


def numbers(runs: list[float], out: float) -> Ask:
    """Return what the rank opposite gives, where nobody is there: a number for each run, one for the output."""
    return lambda what, number: runs[number] if what == _RUN else out


def _stand_opposite(runs: list[float], out: float) -> Values:
    """Give the first run its number, the output another, and only then the second run its own."""
    is_out, waiting = False, list[tuple[int, int]]()
    for tag, what, number in asked(1 + len(runs)):
        is_out = is_out or what == _OUT
        if what == _OUT:
            give(tag, out)
        else:
            waiting.append((tag, number))
        while waiting and (is_out or waiting[0][1] == 0):
            to, number = waiting.pop(0)
            give(to, runs[number])
    return {"gave": 1 + len(runs)}


def drive(functions: Functions, inputs: Values) -> Values:
    """Call checkpointed with a given module.

    Where another rank stands opposite, its inputs are runs and out: numbers that the module's runs need, and backward.
    """
    if "runs" in inputs:
        return _stand_opposite(listed(inputs, "runs"), cast(float, inputs["out"]))
    with _without_the_library():
        return forward_and_backward(functions["checkpointed"], inputs, asker() if inputs.get("opposite") else None)
