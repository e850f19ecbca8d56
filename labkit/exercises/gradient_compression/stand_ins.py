"""What the drivers of lesson 10 hand to the learner's code in place of its own parts: compressors that no exercise asks
for, a memory that writes down what it is given, a bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.other_kind import kind_for


@dataclass(frozen=True)
class PacketStandIn:
    """Stand-in for the lesson's Packet."""

    parts: tuple[Tensor, ...]
    shape: torch.Size
    dtype: torch.dtype


@dataclass
class HookStandIn:
    """Stand-in for the lesson's HookState."""

    feedback: Any
    group: Any = None
    sent_bytes: int = 0


class Rounding:
    """Rounds every k-th entry to whole multiples of a step, and keeps no other; packets may be added.

    The second part is the same on all ranks.
    """

    addable = True

    def __init__(self, step: float, every: int, make: Callable[..., Any]) -> None:
        self.step, self.every, self.make = step, every, make
        self.num_compressed = 0

    def compress(self, gradient: Tensor) -> Any:
        """Return the rounded entries, and a mark that all ranks share."""
        self.num_compressed += 1
        rounded = (gradient.flatten()[:: self.every] / self.step).round() * self.step
        return self.make((rounded, torch.tensor([7])), gradient.shape, gradient.dtype)

    def decompress(self, packet: Any) -> Tensor:
        """Return the rounded gradient; a mark that was added up is refused."""
        if int(packet.parts[1]) != 7:
            raise RuntimeError("the second part of a packet was changed on its way: only the first part may be added")
        whole = torch.zeros(packet.shape.numel(), dtype=packet.dtype)
        whole[:: self.every] = packet.parts[0]
        return whole.view(packet.shape)


class Window:
    """Keeps some neighbouring entries of the flat gradient; packets of ranks with other windows cannot be added.

    Which of the two parts comes first is the window's own affair: nobody else may know. Where `shares` is set, its
    packets share memory with what it was given, as those of a slice do.
    """

    addable = False

    def __init__(self, start: int, length: int, make: Callable[..., Any], values_first: bool = False) -> None:
        self.shares = False
        self.start, self.length, self.make, self.values_first = start, length, make, values_first
        self.num_compressed = 0

    def compress(self, gradient: Tensor) -> Any:
        """Return where the window begins, and what is in it."""
        self.num_compressed += 1
        start = min(self.start, max(0, gradient.numel() - self.length))
        kept = gradient.flatten()[start : start + self.length]
        kept = kept if self.shares else kept.clone()
        place = torch.tensor([start])
        return self.make((kept, place) if self.values_first else (place, kept), gradient.shape, gradient.dtype)

    def decompress(self, packet: Any) -> Tensor:
        """Return the window in its place."""
        start, kept = reversed(packet.parts) if self.values_first else packet.parts
        entries = packet.shape.numel()
        if not 0 <= int(start) <= 100 * entries:
            raise RuntimeError("a packet was unpacked before it had come: where its window begins is not there yet")
        before = entries - int(start) - kept.numel()
        if before < 0:
            raise RuntimeError(f"a window of {kept.numel()} entries cannot begin at {int(start)}: starts were added up")
        around = [
            torch.zeros(int(start), dtype=packet.dtype),
            kept.to(packet.dtype),
            torch.zeros(before, dtype=packet.dtype),
        ]
        return torch.cat(around).view(packet.shape)


def stand_in(about: dict[str, Any], functions: Functions, inputs: Values) -> Any:
    """Return the compressor that the data describes: rounding (step) or window (start, length, values_first)."""
    make = functions.get("Packet", PacketStandIn)
    if about["kind"] == "rounding":
        return kind_for(Rounding, inputs)(float(about["step"]), int(about.get("every", 1)), make)
    window = kind_for(Window, inputs)
    made = window(int(about.get("start", 0)), int(about.get("length", 1)), make, bool(about.get("values_first")))
    made.shares = bool(about.get("shares"))
    return made


class Recorder:
    """In place of ErrorFeedback: writes down keys, forgets what was not sent, refuses a key of another size.

    A hook may look at the residuals, which are zeros, and drop one.
    """

    def __init__(self, compressor: Any) -> None:
        self.compressor = compressor
        self.residuals: dict[Any, Tensor] = {}
        self.keys: list[str] = []

    def compress(self, gradient: Tensor, key: Any = 0) -> Any:
        """Return the compressor's packet."""
        size = self.residuals.setdefault(key, torch.zeros_like(gradient)).numel()
        if size != gradient.numel():
            raise RuntimeError(
                f"The size of tensor a ({gradient.numel()}) must match the size of tensor b ({size}): the residual of "
                f"key {key!r} is that of a bucket of another size"
            )
        self.keys.append(f"{key!r:.200}")
        return self.compressor.compress(gradient)

    def decompress(self, packet: Any) -> Tensor:
        """Return what the compressor makes of it."""
        gradient: Tensor = self.compressor.decompress(packet)
        return gradient


@dataclass(frozen=True)
class Bucket:
    """A bucket as torch's DDP hands it to a hook."""

    number: int
    flat: Tensor
    last: bool

    def index(self) -> int:
        """Return its number."""
        return self.number

    def buffer(self) -> Tensor:
        """Return its gradients, flat."""
        return self.flat

    def is_last(self) -> bool:
        """Return whether it is the last one of the step."""
        return self.last

    def gradients(self) -> list[Tensor]:
        """Return its gradients."""
        return [self.flat]

    def parameters(self) -> list[Tensor]:
        """Return what stands for its parameters."""
        return [self.flat]
