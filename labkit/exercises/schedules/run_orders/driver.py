"""Parts of a model whose linear layers put their weights' gradients off, and notes of what ran when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.other_kind import kind_for
from labkit.checks.values import integer, integers, listed, named_tensors, tensors, texts
from labkit.exercises.stages.on_ranks import Compute
from labkit.exercises.stages.pipeline_stage import mean_squared

Later = Callable[[], None]


class _Noted(list[Later]):
    """What a layer gets for `later`: what is appended goes on to the real list, and notes when it is called."""

    def __init__(self, real: list[Later], events: list[str], name: str) -> None:
        super().__init__()
        self._real, self._events, self._name = real, events, name

    def append(self, rest: Later) -> None:
        """Append to the real list."""

        def noted() -> None:
            self._events.append(self._name)
            rest()

        self._real.append(noted)

    def extend(self, others: Iterable[Later]) -> None:
        """Append each to the real list."""
        for rest in others:
            self.append(rest)

    def __iadd__(self, others: Iterable[Later]) -> _Noted:  # type: ignore[override,misc]
        self.extend(others)
        return self


class Part(nn.Module):
    """tanh between two of the learner's linear layers; `events` says what ran: "F0.2" is chunk 0's third forward."""

    def __init__(self, chunk: int, spec: Values, linear: Any, later: list[Later], events: list[str]) -> None:
        nn.Module.__init__(self)  # it may be of another class: see kind_for
        frozen = texts(spec, "frozen")
        for name, tensor in named_tensors(spec, "weights").items():
            self.register_parameter(name, nn.Parameter(tensor.clone(), requires_grad=name not in frozen))
        self._chunk, self._linear, self._later, self._events = chunk, linear, later, events
        self._calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Return the part's output for x, (B, ..., in) to (B, ..., out)."""
        place, self._calls = f"{self._chunk}.{self._calls}", self._calls + 1
        self._events.append(f"F{place}")
        noted = _Noted(self._later, self._events, f"W{place}")
        first, second = (
            (getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias", None)) for name in ("first", "second")
        )
        out = cast(Tensor, self._linear(torch.tanh(self._linear(x, *first, noted)), *second, noted))
        if out.requires_grad:
            out.register_hook(lambda gradient: self._events.append(f"B{place}"))  # type: ignore[no-untyped-call]
        return out


def drive(functions: Functions, inputs: Values) -> Values:
    """Call run_orders with this rank's part of a program, or linear_later by itself (run_orders).

    Inputs: orders (of all ranks, as data), rank, chunks (a spec each), sizes, samples; inputs on rank 0, targets on the
    last; optional before. Or: x, weight, bias (may be None), gradient, frozen (names).
    """
    if "orders" not in inputs:
        return _one_layer(functions, inputs)
    orders = [[_work(functions, data) for data in order] for order in listed(inputs, "orders")]
    program = functions["with_messages"](orders)[integer(inputs, "rank")]
    later: list[Later] = []
    events: list[str] = []
    parts = [
        kind_for(Part, inputs)(number, spec, functions["linear_later"], later, events)
        for number, spec in enumerate(listed(inputs, "chunks"))
    ]
    before = cast(dict[str, Tensor], inputs.get("before") or {})
    named = {f"chunk {n}, {name}": each for n, part in enumerate(parts) for name, each in part.named_parameters()}
    for name, tensor in before.items():
        named[name].grad = tensor.clone()
    targets = inputs.get("targets")
    loss = functions["run_orders"](
        program, parts, list(integers(inputs, "sizes")), list(tensors(inputs, "samples")), later,
        inputs.get("inputs"), targets, mean_squared,
    )  # fmt: skip
    return {
        "grads": {name: parameter.grad for name, parameter in named.items()},
        "loss": loss.detach().clone() if isinstance(loss, Tensor) else None,
        "returned": type(loss).__name__,
        "attached": isinstance(loss, Tensor) and loss.requires_grad,
        "events": events,
        "left_over": len(later),
    }


def _work(functions: Functions, data: dict[str, Any]) -> Any:
    fields = {name: value for name, value in data.items() if name != "kind"}
    return functions.get(data["kind"], Compute)(**fields)


def _one_layer(functions: Functions, inputs: Values) -> Values:
    frozen = texts(inputs, "frozen")
    leaves = {
        name: tensor.clone().requires_grad_(name not in frozen)
        for name in ("x", "weight", "bias")
        if isinstance(tensor := inputs[name], Tensor)
    }
    later: list[Later] = []
    found: dict[str, Value] = {}
    for _ in range(2):  # gradients add up
        out = functions["linear_later"](leaves["x"], leaves["weight"], leaves.get("bias"), later)
        if not isinstance(out, Tensor):
            return {"problem": f"linear_later returned a {type(out).__name__}, not a tensor."}
        torch.autograd.backward(out, cast(Tensor, inputs["gradient"]))
        found = {"out": out.detach()}
    found["at_once"] = [name for name in ("weight", "bias") if name in leaves and leaves[name].grad is not None]
    found["put_off"] = len(later)
    for rest in later:
        rest()
    return found | {f"gradient of {name}": leaf.grad for name, leaf in leaves.items()}
