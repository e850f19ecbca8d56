"""What becomes of gradients between the passes that make them and the step that uses them, and in which mode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from types import FrameType
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule

from labkit.auditing.bits import digest, kept, unseen
from labkit.auditing.modes import Mean, Mode


class Passes:
    """The gradients of one rank's own backward passes since the last step, and what the program did to them.

    Attributes:
        own: Parameter -> what backward passes of this rank added to its gradient.
        counts: Parameter -> how many of them did.
        thrown: Parameter -> how many were zeroed before a step used them.
        left_over: Parameters whose gradient still held what the step before had used.
        divided: Parameter -> by which whole number its gradient was divided before a further backward pass added to it.
        zeroed: The line that zeroed gradients last.
        scaled: Whether they are multiplied by a loss scale.
        evaluated: The line that called eval() last.
        unsynced: The line that last kept fully_shard from reducing gradients, "" where it reduces them.
        last_unsynced: The same as it was when the last backward pass began.
        averages: Whether the rank has reduced parameters after a step: from then on it is noted how long they are.
        reduced: The group over which parameters were reduced since the last step, and the line; () and "" for none.
        mode: For each module of the model that was called last whether it was training, and the line that called it.
    """

    def __init__(self) -> None:
        self.own: dict[int, torch.Tensor] = {}
        self.counts: dict[int, int] = {}
        self.thrown: dict[int, int] = {}
        self.left_over: set[int] = set()
        self.divided: dict[int, int] = {}
        self.zeroed = self.evaluated = self.unsynced = self.last_unsynced = ""
        self.scaled = self.averages = False
        self.mode: tuple[tuple[bool, ...], str] = ((), "")
        self.reduced: tuple[tuple[int, ...], str] = ((), "")
        self._used: dict[int, bytes] = {}
        self._norms: dict[int, float] = {}

    def adding(self, parameter: torch.Tensor, ready: Callable[[], None]) -> Callable[[torch.Tensor], None]:
        """Return a hook that adds up what comes to a parameter's gradient, from when that is None or zero.

        Args:
            parameter: The parameter.
            ready: Called with each gradient that is ready.
        """
        key = id(parameter)

        def add(gradient: torch.Tensor) -> None:
            ready()
            if hasattr(gradient, "placements"):
                return
            with unseen():
                copy = kept(gradient)
                if copy is not None:
                    self._add(key, copy, parameter.grad)

        return add

    def _add(self, key: int, copy: torch.Tensor, so_far: torch.Tensor | None) -> None:
        is_there, before = so_far is not None and bool(so_far.any()), self.own.get(key)
        if not is_there:
            self.left_over.discard(key)
        elif before is None and so_far is not None and self._used.get(key) == digest(so_far):
            self.left_over.add(key)
        if before is not None and is_there:
            if so_far is not None and (by := _divided_by(before, so_far)):
                self.divided[key] = by
            before += copy
            self.counts[key] += 1
            return
        if before is not None:
            self.thrown[key] = self.thrown.get(key, 0) + self.counts[key]
        self.own[key], self.counts[key] = copy, 1

    def called(self, model: torch.nn.Module, source: str) -> None:
        """Note the mode in which a model is called so that a gradient can be kept."""
        self.mode = tuple(one.training for one in model.modules()), source

    def backward(self, rank: int, step: int) -> Iterator[Mode]:
        """Note a backward pass that begins, and yield the mode of the model that was called before it."""
        self.last_unsynced = self.unsynced
        if self.mode[0]:
            yield Mode(rank, step, self.mode[0], self.evaluated, self.mode[1])

    def means(self, rank: int, step: int, parameters: Iterable[torch.Tensor]) -> Iterator[Mean]:
        """Yield what became of parameters that the ranks reduced after their last step, if they did."""
        (ranks, source), self.reduced = self.reduced, ((), "")
        self.averages |= bool(ranks)
        before = self._norms if ranks else {}
        with unseen():
            times = [_norm(one) / before[id(one)] for one in parameters if before.get(id(one))]
        if times:
            yield Mean(rank, step, ranks, median(times), source)

    def stepped(self, parameters: Iterable[torch.Tensor]) -> None:
        """Forget what a step has used, but for its bits: they may still be there in the next one."""
        with unseen():
            for one in parameters:
                self.left_over.discard(id(one))
                self.divided.pop(id(one), None)
                self.thrown.pop(id(one), None)
                if self.averages:
                    self._norms[id(one)] = _norm(one)
                if one.grad is not None and not hasattr(one.grad, "placements"):
                    self._used[id(one)] = digest(one.grad)


def _divided_by(whole: torch.Tensor, now: torch.Tensor) -> int:
    """Return by which whole number a gradient was divided, 0 where it was not."""
    if hasattr(now, "placements") or now.shape != whole.shape or now.is_sparse:
        return 0
    one, other = whole.double().flatten(), now.detach().double().flatten()
    size = float(other @ one)
    by = round(float(one @ one) / size) if size > 0 else 0
    return by if by > 1 and float((one - by * other).norm()) < 1e-5 * float(one.norm()) else 0


def _norm(parameter: torch.Tensor) -> float:
    values = kept(parameter)
    return 0.0 if values is None or hasattr(parameter, "placements") else float(values.double().norm())


def following(here: Callable[[], Any], line: Callable[[FrameType | None], str]) -> list[tuple[Any, str, Any]]:
    """Return what to wrap: owner, name, and what wraps it.

    Args:
        here: Returns what is known of the rank that calls, None outside one.
        line: Returns the program's line of a frame.
    """

    def zeroes(real: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if (mine := here()) is not None and mine.backwards:
                mine.passes.zeroed = line(sys._getframe(1))
            return real(self, *args, **kwargs)

        return call

    def evaluates(real: Any) -> Any:
        def call(self: Any, mode: bool = True) -> Any:
            if not mode and (mine := here()) is not None:
                mine.passes.evaluated = line(sys._getframe(1))
            return real(self, mode)

        return call

    def unscales(real: Any) -> Any:
        def call(self: Any, optimizer: Any) -> Any:
            if (mine := here()) is not None:
                mine.passes.scaled = False
            return real(self, optimizer)

        return call

    def syncs(real: Any) -> Any:
        def call(self: Any, requires_gradient_sync: bool, **kwargs: Any) -> Any:
            if (mine := here()) is not None:
                mine.passes.unsynced = "" if requires_gradient_sync else line(sys._getframe(1))
            return real(self, requires_gradient_sync, **kwargs)

        return call

    return [
        (torch.optim.Optimizer, "zero_grad", zeroes),
        (torch.nn.Module, "zero_grad", zeroes),
        (torch.nn.Module, "train", evaluates),
        (torch.amp.GradScaler, "unscale_", unscales),
        (FSDPModule, "set_requires_gradient_sync", syncs),
    ]
