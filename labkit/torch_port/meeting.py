"""Where the ranks of a run meet, whatever address their program names; and what it is told when they have met already.

A launcher hosts a store before any rank is there. A program that names a port of its own, as tutorials do, expects
rank 0 to host one there. Both are served by the launcher's: each address a program names is a part of it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from itertools import count
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed import distributed_c10d

_rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
_c10d: Any = distributed_c10d

NEEDED: dict[str, Callable[[], object]] = {
    "torch.distributed.rendezvous._create_c10d_store": lambda: _rendezvous._create_c10d_store,
    "torch.distributed.distributed_c10d.init_process_group": lambda: _c10d.init_process_group,
}
"""Name -> how it is reached; a test calls each."""


def meet_at(host: str, port: int) -> None:
    """Let this process's rendezvous at any address be at the store that is hosted at this one."""
    real = _rendezvous._create_c10d_store
    times = count()  # a group made anew at the same address must not read what the last one left there

    def create(hostname: str, asked_port: int, *args: Any, **kwargs: Any) -> Any:
        if (hostname, asked_port) == (host, port):
            return real(hostname, asked_port, *args, **kwargs)
        return PrefixStore(f"{hostname}:{asked_port}/{next(times)}", real(host, port, *args, **kwargs))

    _rendezvous._create_c10d_store = create


def refuse_a_second_group() -> Callable[[], None]:
    """Let ``init_process_group`` say who has called it already, from now on; return what ends that."""
    real = _c10d.init_process_group

    @functools.wraps(real)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        if dist.is_initialized():
            raise ValueError(
                "The default process group is initialised already: labkit.run did it before your function began. "
                "Leave init_process_group to labkit.run, or pass init=False to labkit.run."
            )
        return real(*args, **kwargs)

    names: tuple[Any, ...] = (_c10d, dist)
    for module in names:
        module.init_process_group = init_process_group

    def undo() -> None:
        for module in names:
            module.init_process_group = real

    return undo
