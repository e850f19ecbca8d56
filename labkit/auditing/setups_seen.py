"""How a program sets its training up: meshes, schedules, sharding, schedulers of learning rates, declared tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle
from torch.distributed.tensor import DTensor
from torch.optim import lr_scheduler

from labkit.auditing.bits import digest, unseen
from labkit.auditing.facts import Declared, Gathering, SchedulerStep
from labkit.auditing.rank_watch import RankWatch, is_own, line
from labkit.auditing.seen import Seen


def setting_up(seen: Seen, here: Callable[[], RankWatch | None]) -> list[tuple[Any, str, Callable[[Any], Any]]]:
    """Return what to wrap: owner, name, and what wraps it."""

    def mesh(real: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            if here() is not None:
                _mesh(seen, self, sys._getframe(1))

        return call

    def schedule(real: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            if (mine := here()) is not None:
                seen.schedules.setdefault(mine.rank, line(sys._getframe(1)))

        return call

    def steps(real: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if (mine := here()) is not None and is_own(frame):
                _scheduler(seen, mine, self, args, kwargs, frame)
            return real(self, *args, **kwargs)

        return call

    def declares(real: Any) -> Any:
        def call(local: Any, device_mesh: Any = None, placements: Any = None, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if (mine := here()) is not None and is_own(frame) and device_mesh is not None:
                _declared(seen, mine, local, device_mesh, placements, frame)
            return real(local, device_mesh, placements, **kwargs)

        return call

    def hooks(real: Any) -> Any:
        def call(self: Any, hook: Any) -> Any:
            if (mine := here()) is not None:
                mine.hooked_at[id(self)] = line(sys._getframe(1))
            return real(self, hook)

        return call

    made = [
        (DeviceMesh, "__init__", mesh),
        (PipelineScheduleSingle, "__init__", schedule),
        (PipelineScheduleMulti, "__init__", schedule),
        (DTensor, "from_local", declares),
        (torch.Tensor, "register_post_accumulate_grad_hook", hooks),
    ]
    kinds = [one for one in vars(lr_scheduler).values() if isinstance(one, type) and "step" in vars(one)]
    return made + [(one, "step", steps) for one in kinds if issubclass(one, lr_scheduler.LRScheduler)]


def gathered(seen: Seen, mine: RankWatch, params: list[Any], modules: tuple[Any, ...], frame: FrameType) -> None:
    """Note parameters that torch will gather in one call."""
    given = {id(one) for one in params}
    holders = {
        id(sub)
        for module in modules
        for sub in module.modules()
        if any(id(one) in given for one in sub.parameters(recurse=False))
    }
    seen.gatherings.append(Gathering(mine.rank, sum(one.numel() for one in params), len(holders), line(frame)))


def _mesh(seen: Seen, mesh: Any, frame: FrameType) -> None:
    source = line(frame)
    with unseen():
        ranks = mesh.mesh
        for dim in range(ranks.dim()):
            for group in ranks.swapdims(-1, dim).reshape(-1, ranks.shape[dim]).tolist():
                seen.meshes.setdefault(tuple(group), source)


def _scheduler(seen: Seen, mine: RankWatch, one: Any, args: Any, kwargs: Any, frame: FrameType) -> None:
    place = mine.schedulers.setdefault(id(one), len(mine.schedulers))
    mine.kept_alive.append(one)
    measure = None
    if isinstance(one, lr_scheduler.ReduceLROnPlateau):
        with unseen():
            given = args[0] if args else kwargs.get("metrics")
            measure = float(given) if isinstance(given, int | float | torch.Tensor) else None
    seen.scheduler_steps.append(
        SchedulerStep(mine.rank, mine.step, place, measure, line(frame), bool(mine.num_forwards))
    )


def _declared(seen: Seen, mine: RankWatch, local: Any, mesh: Any, placements: Any, frame: FrameType) -> None:
    source = line(frame)
    with unseen():
        for dim, placement in enumerate(placements or ()):
            if placement.is_replicate() and mesh.size(dim) > 1:
                number = mine.num_declared[source]
                mine.num_declared[source] += 1
                ranks = tuple(torch.distributed.get_process_group_ranks(mesh.get_group(dim)))
                seen.declared.append(Declared(mine.rank, mine.step, number, ranks, digest(local), source))
