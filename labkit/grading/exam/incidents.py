"""What goes wrong in the exam's runs: seven kinds, each on a drawn rank at a drawn moment, in virtual time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import labkit
from labkit.errors import RunError
from labkit.failures import Failure, Kill
from labkit.grading.exam.program import STEPS, train
from labkit.timeline import Timeline

RANKS, BATCH = 8, 16
_KEPT = ("call", "wait", "clock", "transfer")


@dataclass(frozen=True)
class Trouble:
    """What befalls one rank.

    Attributes:
        rank: Which.
        step: From or in which step.
        loads_s: How long it loads a batch.
        spoils: What becomes of its batch in that step.
        other_weights: Whether it begins with another checkpoint.
        slow: How many times slower its GPU is.
        failures: What the virtual cluster does to it.
    """

    rank: int
    step: int
    loads_s: float = 0.0005
    spoils: Callable[[Tensor], Tensor] = lambda x: x
    other_weights: bool = False
    slow: float = 1.0
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of incident.

    Attributes:
        cause: In the words of the answer sheet.
        fix: What ends it, in the same way.
        trouble: Draws it.
    """

    cause: str
    fix: str
    trouble: Callable[[random.Random], Trouble]


@dataclass(frozen=True)
class Incident:
    """A run that failed, and what is right about it.

    Attributes:
        timeline: What was recorded.
        logs: What each rank printed.
        said: How the run ended, in the launcher's words; "" where it went on to its end.
        right: rank, cause and fix.
    """

    timeline: Timeline
    logs: tuple[str, ...]
    said: str
    right: Mapping[str, int | str]


def _somewhere(draw: random.Random, **about: Any) -> Trouble:
    return Trouble(draw.randrange(RANKS), draw.randint(1, STEPS - 2), **about)


def _not_a_number(x: Tensor) -> Tensor:
    return x.index_fill(0, torch.tensor([len(x) // 2]), float("nan"))


def _killed(draw: random.Random) -> Trouble:
    rank, call = draw.randrange(RANKS), draw.randint(3, 2 * STEPS - 2)
    return Trouble(rank, 0, failures=(Kill(rank, call=call),))


KINDS = (
    Kind("its batches load slowly", "load ahead, with more workers",
         lambda draw: _somewhere(draw, loads_s=draw.uniform(0.003, 0.009))),
    Kind("its GPU is slow", "take its machine out and test the GPU",
         lambda draw: _somewhere(draw, slow=draw.uniform(2.0, 4.0))),
    Kind("its process was killed", "start all ranks again from the last checkpoint", _killed),
    Kind("a batch without samples let it skip a step", "take part in every collective, with zeros",
         lambda draw: _somewhere(draw, spoils=lambda x: x[:0])),
    Kind("a sample is not a number", "check batches, and let all ranks leave out the step",
         lambda draw: _somewhere(draw, spoils=_not_a_number)),
    Kind("a batch is shorter than the others'", "leave out short batches, or fill them up",
         lambda draw: _somewhere(draw, spoils=lambda x: x[: BATCH - 5])),
    Kind("it began with other weights", "broadcast rank 0's parameters at the start",
         lambda draw: _somewhere(draw, other_weights=True)),
)  # fmt: skip


@dataclass(frozen=True)
class Data:
    """What the program reads, on every rank.

    Attributes:
        seed: Of weights and batches.
        trouble: What is wrong with one rank's.
    """

    seed: int
    trouble: Trouble = field(repr=False)

    def checkpoint(self) -> dict[str, Tensor]:
        """Return the weights to begin with."""
        other = self.trouble.other_weights and dist.get_rank() == self.trouble.rank
        draw = torch.Generator().manual_seed(self.seed + 1000 * other)
        shapes = {"0.weight": (256, 64), "0.bias": (256,), "2.weight": (1, 256), "2.bias": (1,)}
        return {name: torch.randn(shape, generator=draw) / 16 for name, shape in shapes.items()}

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return a step's inputs and targets."""
        rank = dist.get_rank()
        here = rank == self.trouble.rank
        time.sleep(self.trouble.loads_s if here else 0.0005)
        draw = torch.Generator().manual_seed(self.seed + 100 * rank + step)
        x = torch.randn(BATCH, 64, generator=draw)
        x = self.trouble.spoils(x) if here and step == self.trouble.step else x
        return x, x[:, :1].nan_to_num()


def incident(draw: random.Random, kind: Kind | None = None) -> Incident:
    """Return a drawn run that fails, of this kind or a drawn one."""
    kind = kind or draw.choice(KINDS)
    trouble = kind.trouble(draw)
    data = Data(draw.getrandbits(31), trouble)
    slow = {trouble.rank: trouble.slow} if trouble.slow > 1 else None
    world = labkit.virtual(RANKS, slow=slow, failures=list(trouble.failures) or None)
    right: dict[str, int | str] = {"rank": trouble.rank, "cause": kind.cause, "fix": kind.fix}
    try:
        result = labkit.run(train, data, on=world, echo=False)
    except RunError as error:
        return Incident(_shown(error.timeline), error.output, str(error).splitlines()[0], right)
    return Incident(_shown(result.timeline), tuple(result.output), "", right)


def _shown(timeline: Timeline | None) -> Timeline:
    """Return a run without what names this machine's files and what a student does not look at."""
    assert timeline is not None
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline
