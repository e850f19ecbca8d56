"""The stage that lesson 08's drivers hand to the learner's functions: small, odd, and it notes what is done with it."""

from __future__ import annotations

import weakref
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.values import named_tensors


class Stage(nn.Module):
    """tanh between two linear layers, built from tensors that came as data, with a buffer that counts like BatchNorm's.

    Attributes:
        seen: The buffer, shape (in,): the sum of all that came in. Each forward adds to it; no output depends on it.
        events: "F" for each call of forward, "B0" when the output of the first call was gone through backward, ...
        sizes: Samples of each call of forward.
        wanted_gradient: For each call of forward, whether its input needed a gradient.
        most_held: The most outputs that were alive after a call of forward, themselves or in a graph.
        shared_room: Whether something received came in the memory of what had not gone backward yet.
    """

    def __init__(self, spec: Values) -> None:
        """Build the stage.

        Args:
            spec: "weights": {"first_weight", "first_bias", "second_weight", "second_bias", "spare"}, all but the first
                optional (without a second weight the first one is used twice: a tied weight); "frozen": names that
                need no gradient; "transposed": whether the output is a view that is not contiguous; "seen": what the
                buffer begins with.
        """
        nn.Module.__init__(self)  # it may be of another class: see kind_for
        weights = named_tensors(spec, "weights")
        frozen = cast(list[str], spec.get("frozen") or [])
        for name, tensor in weights.items():
            self.register_parameter(name, nn.Parameter(tensor.clone(), requires_grad=name not in frozen))
        self.seen: Tensor
        self.register_buffer("seen", cast(Tensor, spec["seen"]).clone())
        self._tied = "second_weight" not in weights
        self._transposed = bool(spec.get("transposed"))
        self.events: list[str] = []
        self.sizes: list[int] = []
        self.wanted_gradient: list[bool] = []
        self.most_held = 0
        self._outputs: list[Any] = []
        self.shared_room = False
        self._entered: dict[int, Any] = {}

    def forward(self, x: Tensor) -> Tensor:
        """Return the stage's output for x, (B, ..., in) to (B, ..., out)."""
        number = len(self.sizes)
        self._note_room(number, x)
        self.events.append("F")
        self.sizes.append(len(x))
        self.wanted_gradient.append(x.requires_grad)
        self.seen += x.detach().flatten(0, -2).sum(0)
        hidden = torch.tanh(nn.functional.linear(x, self._of("first_weight"), self._optional("first_bias")))
        second = self._of("first_weight" if self._tied else "second_weight")
        out = nn.functional.linear(hidden, second, self._optional("second_bias"))
        if self._transposed:
            out = out.transpose(-1, -2).contiguous().transpose(-1, -2)

        def gone_through(gradient: Tensor) -> None:
            self._note_backward(number)

        if out.requires_grad:
            out.register_hook(gone_through)  # type: ignore[no-untyped-call]
        kept = weakref.ref(gone_through) if out.requires_grad else weakref.ref(out)  # a graph keeps its hooks alive
        self._outputs = [held for held in self._outputs if held() is not None] + [kept]
        self.most_held = max(self.most_held, len(self._outputs))
        return out

    def _note_room(self, number: int, x: Tensor) -> None:
        if x.requires_grad and x.is_leaf:
            held = [each for entered in self._entered.values() if (each := entered()) is not None]
            self.shared_room |= any(
                each.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for each in held
            )
            self._entered[number] = weakref.ref(x)

    def _note_backward(self, number: int) -> None:
        self.events.append(f"B{number}")
        self._entered.pop(number, None)

    def _of(self, name: str) -> Tensor:
        return cast(Tensor, getattr(self, name))

    def _optional(self, name: str) -> Tensor | None:
        return cast("Tensor | None", getattr(self, name, None))

    def gradients(self) -> dict[str, Value]:
        """Return each parameter's gradient by name, None where there is none."""
        return {name: parameter.grad for name, parameter in self.named_parameters()}


def mean_squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over the samples (and everything else) of the squared difference."""
    return nn.functional.mse_loss(outputs, targets)
