"""What crashes where ranks are threads, refused in words instead: of every torch, and of those of the past."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.autograd.profiler

_profile: Any = torch.autograd.profiler.profile
_SHARDING = "torch.distributed.fsdp._fully_shard._fully_shard"
_ASKS_FIRST = "_get_device_from_mesh"
"""What fully_shard calls, in every torch from 2.11 on, before it touches a parameter."""


def crashes_in_fully_shard(version: Any) -> bool:
    """Return whether this torch ends the process where fully_shard runs on a group made in Python; 2.11 did."""
    return bool(version < (2, 12))


@contextmanager
def profiler_refused(on_a_rank: Callable[[], bool]) -> Iterator[None]:
    """Refuse torch.profiler to threads that play a rank: it serves one thread of a process, and crashes for two.

    Args:
        on_a_rank: Returns whether the thread that calls plays a rank.
    """
    real = _profile._prepare_trace

    def refuse(self: Any) -> Any:
        if on_a_rank():
            raise RuntimeError(
                "torch.profiler measures this process, in which all virtual ranks take turns. The run's own timeline "
                "has every operator and message of every rank in virtual time: run = labkit.run(...); run.timeline. "
                "To profile for real, run on labkit.local()."
            )
        return real(self)

    _profile._prepare_trace = refuse
    try:
        yield
    finally:
        _profile._prepare_trace = real


@contextmanager
def refused(on_a_rank: Callable[[], bool], version: Any = torch.__version__) -> Iterator[None]:
    """Refuse what would crash, to threads that play a rank; leave torch as it was.

    Args:
        on_a_rank: Returns whether the thread that calls plays a rank.
        version: Whose crashes.
    """
    if not crashes_in_fully_shard(version):
        yield
        return
    module = importlib.import_module(_SHARDING)
    real: Callable[..., Any] = getattr(module, _ASKS_FIRST)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if on_a_rank():
            raise RuntimeError(
                f"fully_shard of torch {version} crashes on virtual ranks; install torch 2.13 or newer, "
                "or run on labkit.local()."
            )
        return real(*args, **kwargs)

    setattr(module, _ASKS_FIRST, refuse)
    try:
        yield
    finally:
        setattr(module, _ASKS_FIRST, real)


NEEDED: dict[str, Callable[[], object]] = {
    "torch.autograd.profiler.profile._prepare_trace": lambda: _profile._prepare_trace,
    f"{_SHARDING}.{_ASKS_FIRST}": lambda: getattr(importlib.import_module(_SHARDING), _ASKS_FIRST),
}
"""Name -> how it is reached; a test calls each."""
