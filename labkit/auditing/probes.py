"""Values of a run by the place at which they arose: what a reference run is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from labkit.auditing.bits import kept, tensors_of, unseen
from labkit.auditing.exchanged import caller_served
from labkit.auditing.meeting import Snapshot
from labkit.auditing.rank_watch import RankWatch, line

STEPS = 3
"""So many steps are compared."""
_LARGEST = 1 << 20  # elements
_BY_BATCH = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


@dataclass(frozen=True)
class Place:
    """Where a value arose.

    Attributes:
        step: In which training step.
        kind: "parameter", "input", "output", "function", "target", "loss", "gradient", "random", "rate", "sent" to
            others, "answered" by others, or "state", of an optimizer.
        name: Of the parameter, the module, or the line.
        number: How many of the kind and name came before in the step.
    """

    step: int
    kind: str
    name: str
    number: int


@dataclass
class Probes:
    """The values of a run, by place and rank.

    Attributes:
        values: Place -> rank -> value, places in the order in which rank 0 came to them.
        sources: Place -> the program's line.
        callees: Place -> the name by which the program calls the module.
        steps: So many of a run are kept.
        keeps_sent: Whether what ranks give to calls is kept, too.
        draws: Whether a forward pass drew random numbers.
        by_batch: The first module that computes with statistics of its batch, "" for none.
    """

    values: dict[Place, dict[int, torch.Tensor]] = field(default_factory=dict)
    sources: dict[Place, str] = field(default_factory=dict)
    callees: dict[Place, str] = field(default_factory=dict)
    draws: bool = False
    steps: int = STEPS
    by_batch: str = ""
    keeps_sent: bool = False
    _counts: dict[tuple[int, int, str, str], int] = field(default_factory=dict)

    def add(self, mine: RankWatch, kind: str, name: str, value: Any, source: str, callee: str = "") -> None:
        """Keep a value, unless it is large or the steps are over."""
        found = tensors_of(value)
        if mine.step >= self.steps or not found or found[0].numel() > _LARGEST:
            return
        if caller := caller_served():
            name += f" for {caller}"  # in the order of its calls: others may come between
        key = (mine.rank, mine.step, kind, name)
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        with unseen():
            copy = kept(found[0])
        if copy is not None:
            place = Place(mine.step, kind, name, number)
            self.values.setdefault(place, {})[mine.rank] = copy
            self.sources.setdefault(place, source)
            self.callees.setdefault(place, callee)

    def step(self, mine: RankWatch, snapshot: Snapshot, optimizer: torch.optim.Optimizer) -> None:
        """Keep what a rank brings to a step of its optimizer, and what the optimizer has from the steps before."""
        named = mine.named()
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                self.add(mine, "state", f"{key} of {named.get(id(parameter), 'a parameter')}", value, snapshot.source)
        with unseen():
            rates = torch.tensor(snapshot.rates, dtype=torch.float64)
        self.add(mine, "rate", "", rates, snapshot.source)
        for kind, values in (("parameter", snapshot.parameters), ("gradient", snapshot.given)):
            for name, value in values.items():
                self.add(mine, kind, name, value, snapshot.source)

    def module(self, mine: RankWatch, module: torch.nn.Module, kind: str, value: Any, frame: FrameType) -> None:
        """Keep what a module is given, or gives."""
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            return
        if isinstance(module, _BY_BATCH) and module.training:
            self.by_batch = self.by_batch or type(module).__name__
        name, source = mine.names.of_module(module), line(frame)
        self.add(mine, kind, name, value, source, _callee(frame, source, module) if kind == "input" else "")


def _callee(frame: FrameType | None, source: str, module: torch.nn.Module) -> str:
    """Return the name that a module has on the line that calls it."""
    file = source.rpartition(":")[0]
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    names = {} if frame is None else frame.f_globals | frame.f_locals
    return next((name for name, value in names.items() if value is module), "")
