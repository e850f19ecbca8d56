"""The hard model: small, and all that hides a fault in a distributed training step is in it.

Biases, BatchNorm with its buffers, a weight that two layers share, frozen parameters, a layer that no forward uses, a
scalar, sizes that divide by nothing, float64 (so that a wrong factor cannot pass for rounding).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.torch_port.generators import generator

IN_FEATURES = 5
OUT_FEATURES = 3
_WIDTH = 7


class HardModel(nn.Module):
    """A regression model from (B, 5) to (B, 3), B > 1, in float64; layers are registered in the order of their use.

    Args:
        seed: Draws parameters and buffers; equal seeds give equal models, on any rank.
        norm: With BatchNorm (its statistics are each rank's own, so it does not equal one process on the whole batch).
        tied: `mix` and `remix` share one weight.
        frozen: `fixed` has parameters that need no gradient.
        unused: With `spare`, registered in the middle and used only by a forward that asks for it.
        joined: `fixed` and `remix` are also one layer, `body`, that forward calls in their place.
        width: Of the layers; another than the usual one brings one more parameter, `shift`.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        norm: bool = True,
        tied: bool = True,
        frozen: bool = True,
        unused: bool = True,
        joined: bool = False,
        width: int = _WIDTH,
    ) -> None:
        nn.Module.__init__(self)  # it may be of another class: see hard_model
        self.stem = nn.Linear(IN_FEATURES, width)
        self.norm = nn.BatchNorm1d(width) if norm else nn.Identity()
        self.mix = nn.Linear(width, width)
        self.spare = nn.Linear(width, 2) if unused else nn.Identity()
        self.fixed = nn.Linear(width, width)
        self.remix = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_parameter("shift", None if width == _WIDTH else nn.Parameter(torch.ones(width)))
        self.head = nn.Linear(width, OUT_FEATURES)
        self.body = nn.Sequential(self.fixed, nn.Tanh(), self.remix) if joined else None
        self.double()
        draw = generator(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) / 2)
            for buffer in self.buffers():
                drawn = torch.rand(buffer.shape, generator=draw, dtype=torch.float64)
                buffer.copy_(drawn + 0.5 if buffer.is_floating_point() else (drawn * 1000).long())
        if tied:
            self.remix.weight = self.mix.weight
        if frozen:
            self.fixed.requires_grad_(False)

    def forward(self, x: Tensor, spare: bool = False) -> Tensor:
        """Return the model's output, shape (B, 3); `spare` adds what the spare layer makes of the hidden state."""
        x = torch.tanh(self.norm(torch.tanh(self.stem(x))))  # norm would take away what the bias of stem adds
        x = torch.tanh(self.mix(x))
        if spare:
            x = x + self.spare(x).mean(1, keepdim=True)
        x = self.body(x) if self.body is not None else self.remix(torch.tanh(self.fixed(x)))
        x = torch.tanh(x) * self.scale
        if isinstance(self.shift, Tensor):
            x = x + self.shift
        out: Tensor = self.head(x)
        return out


def hard_model(seed: int, *, width: int = _WIDTH, **options: bool) -> HardModel:
    """Return a hard model; one of another width is of another class, which no visible case shows and nothing names.

    Args:
        seed: See HardModel.
        width: Of its layers.
        options: See HardModel.
    """
    if width == _WIDTH:
        return HardModel(seed, **options)
    parts: dict[str, Any] = {"__init__": HardModel.__init__, "forward": HardModel.forward, "__module__": "models"}
    return cast(HardModel, type(f"Model{width}", (nn.Module,), parts)(seed, width=width, **options))


def hard_batch(seed: int, size: int) -> tuple[Tensor, Tensor]:
    """Return inputs (size, 5) and targets (size, 3), float64, the same for the same seed."""
    draw = generator(seed)
    return (
        torch.randn(size, IN_FEATURES, generator=draw, dtype=torch.float64),
        torch.randn(size, OUT_FEATURES, generator=draw, dtype=torch.float64),
    )
