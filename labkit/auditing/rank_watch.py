"""What is known of one rank while it runs, and the program's line that a call came from."""

from __future__ import annotations

from collections import defaultdict
from types import FrameType
from typing import Any

import torch

from labkit.auditing.bits import kept, unseen
from labkit.auditing.flights import Flights
from labkit.auditing.names import Names
from labkit.auditing.seen import Backward
from labkit.simulator.state import current_rank

_INSTALLED = ("site-packages", "dist-packages")


class Enough(BaseException):  # a program must not catch it
    """The steps that were asked for are done; the program ends here."""


class RankWatch:
    """What is known of one rank while it runs.

    Attributes:
        rank: Its number.
        step: Training steps it has done.
        depth: How deep in modules' forward calls it is.
        names: Its modules.
        own: Parameter -> what backward passes of this rank added to its gradient.
        passes: Parameter -> how many of them did.
        clipped: Parameter -> its gradient before it was clipped, and after.
        scale: What its gradient scaler multiplies losses with.
    """

    def __init__(self, rank: int) -> None:
        self.rank, self.step, self.depth, self.num_calls = rank, 0, 0, 0
        self.names, self.flights = Names(), Flights()
        self.own: dict[int, torch.Tensor] = {}
        self.passes: dict[int, int] = {}
        self.clipped: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self.hooked: dict[int, Any] = {}
        self.optimizers: dict[int, int] = {}
        self.steps_of: dict[int, int] = defaultdict(int)
        self.backwards: list[Backward] = []
        self.loaders: dict[int, int] = {}
        self.epochs: dict[int, int] = defaultdict(int)
        self.iterating: dict[int, tuple[int, int]] = {}
        self.num_masks = self.num_schedulers = self.num_operators = 0
        self.drew_in_steps = self.seeded_in_steps = False
        self.unsynced = ""
        self.unwrapped = ""
        self.called: set[int] = set()
        self.made: dict[int, str] = {}
        self.scalars: dict[int, str] = {}
        self.scale = 1.0
        self.kept_alive: list[Any] = []


def line(frame: FrameType | None) -> str:
    """Return file:line of the program that a call came from: the first frame of no package, else of no torch."""
    rank, fallback = current_rank(), ""
    while frame is not None and rank is not None:
        source, _ = rank.simulation.sources.find(frame)
        fallback = fallback or source
        if not any(part in source for part in _INSTALLED):
            return source or fallback
        file = source.rpartition(":")[0]
        while frame is not None and frame.f_code.co_filename != file:
            frame = frame.f_back
        frame = None if frame is None else frame.f_back
    return fallback


def adding(mine: RankWatch, parameter: torch.Tensor) -> Any:
    """Return a hook that adds up what comes to a parameter's gradient, from when that is None or zero."""
    key = id(parameter)

    def add(gradient: torch.Tensor) -> None:
        if hasattr(gradient, "placements"):
            return
        with unseen():
            copy = kept(gradient)
            if copy is None:
                return
            before, so_far = mine.own.get(key), parameter.grad
            if before is not None and so_far is not None and bool(so_far.any()):
                before += copy
                mine.passes[key] += 1
            else:
                mine.own[key], mine.passes[key] = copy, 1

    return add


def hook_on(parameter: Any, hook: Any) -> None:
    """Have a hook called with what comes to a parameter's gradient."""
    parameter.register_hook(hook)


def length_of(value: Any) -> int:
    """Return how long something is, 0 where it has no length."""
    try:
        return len(value)
    except (TypeError, NotImplementedError):
        return 0
