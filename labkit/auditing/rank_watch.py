"""What is known of one rank while it runs, and the program's line that a call came from."""

from __future__ import annotations

from collections import defaultdict
from types import FrameType
from typing import Any

import torch

from labkit.auditing.exchanged import Exchanged
from labkit.auditing.facts import Backward
from labkit.auditing.flights import Flights
from labkit.auditing.names import Names
from labkit.auditing.passes_seen import Passes
from labkit.simulator.messages import Posted
from labkit.simulator.record import AUDITED
from labkit.simulator.state import current_rank

_INSTALLED = ("site-packages", "dist-packages")
_OURS = ("labkit/simulator/", "labkit/auditing/", "labkit/torch_port/")
_BETWEEN = ("wrapper", "inner", "__call__", "call", "apply")
_CHECKPOINTS = "torch/distributed/checkpoint"
_APPLIES = "torch/autograd/function.py"


class Enough(BaseException):  # a program must not catch it
    """The steps that were asked for are done; the program ends here."""


class RankWatch:
    """What is known of one rank while it runs.

    Attributes:
        rank: Its number.
        step: Training steps it has done.
        depth: How deep in modules' forward calls it is.
        names: Its modules.
        passes: What its own backward passes made.
        clipped: Parameter -> its gradient before it was clipped, and after.
        scale: What its gradient scaler multiplies losses with.
        heard: Its last receive from any rank, until it sends something to who was heard.
    """

    def __init__(self, rank: int) -> None:
        self.rank, self.step, self.depth, self.num_calls = rank, 0, 0, 0
        self.names, self.flights = Names(), Flights()
        self.passes = Passes()
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
        self.num_forwards = self.num_ready = 0
        self.work: dict[str, float] = defaultdict(float)
        self.turns: dict[tuple[int, ...], int] = defaultdict(int)
        self.hooked_at: dict[int, str] = {}
        self.num_drawn: dict[str, int] = defaultdict(int)
        self.num_read: dict[str, int] = defaultdict(int)
        self.num_declared: dict[str, int] = defaultdict(int)
        self.infinities: set[int] = set()
        self.shared: set[int] = set()
        self.cut: dict[int, tuple[str, int]] = {}
        self.ratios: dict[int, float] = {}
        self.loading = self.num_messages = 0
        self.exchanged = Exchanged(rank)
        self.heard: Posted | None = None
        self.even_buffers: set[int] = set()
        self.schedulers: dict[int, int] = {}
        self.kept_alive: list[Any] = []
        self._named: tuple[tuple[int, int], dict[int, str]] = ((-1, -1), {})

    def named(self) -> dict[int, str]:
        """Return the names of parameters by their ids; those that are no module's are numbered."""
        state = (self.names.changes, len(self.hooked))
        if self._named[0] != state:
            found = {id(one): name for name, one in self.names.parameters().items()}
            for number, key in enumerate(self.hooked):
                found.setdefault(key, f"parameter {number} of the optimizer")
            self._named = (state, found)
        return self._named[1]

    def ready(self) -> None:
        """Count a gradient of which the backward pass has made its part."""
        self.num_ready += 1


def line(frame: FrameType | None) -> str:
    """Return file:line of the program that a call came from: the first frame of no package, else of no torch."""
    rank, fallback = current_rank(), ""
    while frame is not None and rank is not None:
        source, _ = rank.simulation.sources.find(frame)
        fallback = fallback or source
        if not is_installed(source):
            return source or fallback
        file = source.rpartition(":")[0]
        while frame is not None and frame.f_code.co_filename != file:
            frame = frame.f_back
        frame = None if frame is None else frame.f_back
    return fallback


def call_site(frame: FrameType | None) -> tuple[str, str, str, str]:
    """Return the program's line of a call, the function of torch that it calls, the line around it, and the caller's.

    The line around it is another where an autograd.Function calls: the line that applies the function.
    """
    source, api = line(frame), ""
    file, _, number = source.rpartition(":")
    while frame is not None and not (frame.f_code.co_filename == file and frame.f_lineno == int(number or 0)):
        if frame.f_code.co_name not in _BETWEEN:
            api = frame.f_code.co_name
        frame = frame.f_back
    outer = frame
    while outer is not None and outer.f_code.co_filename == file:
        outer = outer.f_back
    if outer is not None and outer.f_code.co_filename.endswith(_APPLIES):
        return source, api, line(outer) or source, ""
    return source, api, source, "" if frame is None else line(frame.f_back)


def fills_state(frame: FrameType | None) -> bool:
    """Return whether torch's checkpoints step an optimizer, with no gradient, so that it has a state to fill."""
    while frame is not None and any(part in frame.f_code.co_filename for part in (*_OURS, *_INSTALLED)):
        if _CHECKPOINTS in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def is_own(frame: FrameType | None) -> bool:
    """Return whether the program itself calls, and not torch for it."""
    while frame is not None and any(part in frame.f_code.co_filename for part in _OURS):
        frame = frame.f_back
    return frame is not None and not is_installed(frame.f_code.co_filename)


def is_installed(source: str) -> bool:
    """Return whether a file is an installed package's, and no program that lessons audit."""
    return any(part in source for part in _INSTALLED) and not source.startswith(AUDITED)


def hook_on(parameter: Any, hook: Any) -> None:
    """Have a hook called with what comes to a parameter's gradient."""
    parameter.register_hook(hook)


def length_of(value: Any) -> int:
    """Return how long something is, 0 where it has no length."""
    try:
        return len(value)
    except (TypeError, NotImplementedError):
        return 0
