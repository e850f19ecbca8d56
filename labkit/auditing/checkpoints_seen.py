"""Checkpoints as they are written: what the watch is told of torch.save and torch.load."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from hashlib import blake2b
from types import FrameType
from typing import Any

import torch
from torch.distributed import checkpoint

from labkit.auditing.bits import digest, tensors_of, unseen
from labkit.auditing.facts import Load, Save
from labkit.auditing.origins import origin
from labkit.auditing.rank_watch import RankWatch, is_own, line
from labkit.auditing.saves import parts_of
from labkit.auditing.seen import Seen
from labkit.torch_port.tensors import local_part


def saved(seen: Seen, mine: RankWatch, value: Any, path: Any, frame: FrameType) -> None:
    """Note a checkpoint that a rank writes."""
    with unseen():
        tensors = tensors_of(value)
        whole = blake2b(b"".join(digest(one) for one in tensors), digest_size=8).digest()
        pieces = {_address(one) for one in mine.names.parameters().values() if _is_sharded(one)} - {0}
        local = tuple(
            name
            for name, one in mine.names.parameters().items()
            if _address(one) in pieces and any(_address(other) == _address(one) for other in tensors)
        )
        has_state = any(bool(one.state) for one in mine.kept_alive if isinstance(one, torch.optim.Optimizer))
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    seen.saves.append(
        Save(
            mine.rank, mine.step, str(name), frozenset(parts_of(value)), local, whole, has_state,
            mine.num_schedulers > 0, mine.drew_in_steps and not mine.seeded_in_steps, line(frame),
        )
    )  # fmt: skip


def saving(seen: Seen, here: Callable[[], RankWatch | None]) -> list[tuple[Any, str, Callable[[Any], Any]]]:
    """Return what to wrap: owner, name, and what wraps it."""

    def save(real: Any) -> Any:
        def call(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)
            if (mine := here()) is not None and not caller.f_globals.get("__name__", "").startswith("torch."):
                saved(seen, mine, obj, f, caller)
            return real(obj, f, *args, **kwargs)

        return call

    def save_together(real: Any) -> Any:
        def call(state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            if (mine := here()) is not None:
                saved(seen, mine, state_dict, None, sys._getframe(1))
            return real(state_dict, *args, **kwargs)

        return call

    def scheduler(real: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            if (mine := here()) is not None:
                mine.num_schedulers += 1

        return call

    def seed(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if (mine := here()) is not None and mine.step:
                mine.seeded_in_steps = True
            return real(*args, **kwargs)

        return call

    def brings(what: str) -> Callable[[Any], Any]:
        def wrapper(real: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                frame = sys._getframe(1)
                if (mine := here()) is not None and is_own(frame):
                    source = line(frame)
                    source = origin(source, "load") if what == "checkpoint" else source
                    seen.loaded.append(Load(mine.rank, what, source))
                return real(*args, **kwargs)

            return call

        return wrapper

    def sets(real: Any) -> Any:
        return brings("random")(seed(real))

    return [
        (torch.nn.Module, "load_state_dict", brings("parameter")),
        (torch.optim.Optimizer, "load_state_dict", brings("state")),
        (torch.optim.lr_scheduler.LRScheduler, "load_state_dict", brings("rate")),
        (checkpoint, "load", brings("checkpoint")),
        (torch, "save", save),
        (checkpoint, "save", save_together),
        (torch.optim.lr_scheduler.LRScheduler, "__init__", scheduler),
        (torch, "manual_seed", seed),
        (torch, "set_rng_state", sets),
    ]


def _is_sharded(one: torch.Tensor) -> bool:
    return any(not place.is_replicate() for place in getattr(one, "placements", ()))


def _address(tensor: torch.Tensor) -> int:
    local = local_part(tensor)
    if local is None or local.is_meta or local.layout is not torch.strided:
        return 0
    return local.untyped_storage().data_ptr()
