"""What was seen of a run, rank by rank: what the rules look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.auditing.facts import (
    Backward,
    Batch,
    Call,
    Clip,
    Decision,
    Declared,
    Difference,
    Draw,
    Epoch,
    Fit,
    Gathering,
    Input,
    Load,
    Mask,
    Number,
    Read,
    Save,
    SchedulerStep,
    SquareSum,
)
from labkit.auditing.mishap import Mishap
from labkit.auditing.modes import Divided, Mean, Mode, Used

Groups = tuple[tuple[int, ...], ...]
"""Ranks in groups that have something in common."""


@dataclass
class Step:
    """A step of one optimizer, on all ranks that took it.

    Attributes:
        optimizer: The optimizer's number on its rank.
        number: How many steps it took before.
        step: The training step.
        sources: Rank -> the line of the step; what follows is by rank, too.
        backwards: The backward passes since the last step.
        scale: What the loss was multiplied with by a gradient scaler.
        held: Names of the optimizer's parameters.
        held_by: Those of each rank's.
        made: Name -> the line that made the parameter, or the optimizer for one that is no module's.
        optimizer_made: The line that made the optimizer.
        constant: Names of parameters whose elements are all equal as the step begins.
        norms: Names of parameters that are a normalisation's.
        parameters: Name of each parameter -> groups of ranks that hold the same bits as the step begins.
        differences: Name -> where they part, for those of more than one group.
        sharded: Names of parameters that are spread over ranks.
        fits: Name -> rank -> what its gradient is made of; None where that is not known.
        alike: Names whose gradients came out the same on all ranks before anything was averaged.
        passes: Name -> how many backward passes of a rank added to its gradient.
        left_over: Rank -> names whose gradient still holds what the step before used.
        thrown: Rank -> name -> how many backward passes made a gradient of it that was zeroed before this step.
        zeroed: Rank -> the line that zeroed gradients last, where one was thrown away.
        without: Name -> ranks whose gradient is None.
        unknown: Names of what the optimizer holds that no module does, by rank.
        frozen: Name of each parameter of the optimizer that requires no gradient -> on which ranks.
        lost: Names of those among them that required one when the optimizer got them.
        called: Names of parameters whose modules were called.
        unsynced: Rank -> the line of the last forward pass, where that was inside no_sync().
        rates: Rank -> the learning rates of the optimizer's groups.
    """

    optimizer: int
    number: int
    step: int
    sources: dict[int, str] = field(default_factory=dict)
    backwards: dict[int, Sequence[Backward]] = field(default_factory=dict)
    scale: dict[int, float] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    held_by: dict[int, frozenset[str]] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    optimizer_made: str = ""
    constant: set[str] = field(default_factory=set)
    norms: set[str] = field(default_factory=set)
    parameters: dict[str, Groups] = field(default_factory=dict)
    differences: dict[str, Difference] = field(default_factory=dict)
    sharded: set[str] = field(default_factory=set)
    fits: dict[str, dict[int, Fit | None]] = field(default_factory=dict)
    alike: set[str] = field(default_factory=set)
    passes: dict[str, int] = field(default_factory=dict)
    left_over: dict[int, set[str]] = field(default_factory=dict)
    thrown: dict[int, dict[str, int]] = field(default_factory=dict)
    zeroed: dict[int, str] = field(default_factory=dict)
    without: dict[str, list[int]] = field(default_factory=dict)
    unknown: dict[int, list[str]] = field(default_factory=dict)
    frozen: dict[str, list[int]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    unsynced: dict[int, str] = field(default_factory=dict)
    rates: dict[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass
class Seen:
    """All that was seen of a run; lists are in the order in which things happened on each rank.

    any_source are the lines that receive from any rank, with whether each sender is answered before another is heard.
    divided are gradients that were scaled between two backward passes of a step.
    handlers are the functions that are called by torch.distributed.rpc, with the line of the first call.
    """

    world_size: int
    steps: list[Step] = field(default_factory=list)
    ends: list[Step] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    modes: list[Mode] = field(default_factory=list)
    means: list[Mean] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    loads: bool = False
    wrapped: dict[int, str] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    done: dict[int, int] = field(default_factory=dict)
    waited_at: dict[int, str] = field(default_factory=dict)
    numbers: list[Number] = field(default_factory=list)
    squares: list[SquareSum] = field(default_factory=list)
    messages: set[tuple[int, int]] = field(default_factory=set)
    any_source: dict[str, bool] = field(default_factory=dict)
    divided: list[Divided] = field(default_factory=list)
    handlers: dict[str, str] = field(default_factory=dict)
    draws: list[Draw] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    scheduler_steps: list[SchedulerStep] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)
    used: list[Used] = field(default_factory=list)
    gatherings: list[Gathering] = field(default_factory=list)
    meshes: dict[tuple[int, ...], str] = field(default_factory=dict)
    schedules: dict[int, str] = field(default_factory=dict)
    timeline: Any = None
    parting: Any = ""
    lateness: Any = ""
    resumed: Any = ""
    loaded: list[Load] = field(default_factory=list)
    cut: list[tuple[int, str]] = field(default_factory=list)
    work: dict[int, dict[str, float]] = field(default_factory=dict)
    wide_parameters: bool = False
    nodes: dict[int, int] = field(default_factory=dict)
    serves: bool = False
    mishaps: list[Mishap] = field(default_factory=list)
    problems: list[Any] = field(default_factory=list)
    num_steps: dict[int, int] = field(default_factory=dict)
    num_calls: dict[int, int] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)
