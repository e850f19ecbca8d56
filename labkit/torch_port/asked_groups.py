"""What a program asks for where it makes process groups: which ranks, and which backend for each kind of device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from labkit.torch_port.handles import JointHandle

_c10d: Any = distributed_c10d

NEEDED: dict[str, Callable[[], object]] = {
    "torch.distributed.distributed_c10d.default_pg_timeout": lambda: _c10d.default_pg_timeout,
    "torch.distributed.distributed_c10d.default_pg_nccl_timeout": lambda: _c10d.default_pg_nccl_timeout,
    "torch.distributed.distributed_c10d.BackendConfig": lambda: _c10d.BackendConfig,
    "torch.distributed.distributed_c10d._process_group_name": lambda: _c10d._process_group_name,
    "torch.distributed.distributed_c10d.split_group": lambda: _c10d.split_group,
    "torch.distributed.distributed_c10d.batch_isend_irecv": lambda: _c10d.batch_isend_irecv,
}
"""Name -> how it is reached; a test calls each."""


@dataclass(frozen=True)
class Asked:
    """A process group as one rank asked for it.

    Attributes:
        name: What torch calls it.
        ranks: Its global ranks; empty for the default group.
        backend: What the program named, such as "nccl"; "undefined" for torch's own choice.
        backends: Kind of device -> the backend that would move its tensors; empty where the program named none.
        device: The device that the rank bound to its default group, if any.
        limit: How long its calls may wait, where the program says so; None where it leaves that to torch.
    """

    name: str
    ranks: tuple[int, ...]
    backend: str
    backends: Mapping[str, str]
    device: Any = None
    limit: timedelta | None = None

    @property
    def is_default(self) -> bool:
        """Whether it is the group of everybody that init_process_group makes."""
        return not self.ranks


def asked_of(own: str, group_name: Any, ranks: Sequence[int], backend: Any, device: Any, limit: Any) -> Asked:
    """Return what torch's own function for new groups was given, as a record.

    Args:
        own: The backend that stands in for all others; who asks for it by this name asks for no other.
        group_name: What torch calls the group.
        ranks: Its global ranks, none for the default group.
        backend: What the program named.
        device: The device bound to it.
        limit: Its time limit, torch's own among them.
    """
    named = str(backend)
    backends = {} if named == own else dict(_c10d.BackendConfig(dist.Backend(named)).get_device_backend_map())
    limit = None if limit in (_c10d.default_pg_timeout, _c10d.default_pg_nccl_timeout) else limit
    return Asked(str(group_name), tuple(ranks), named, backends, device, limit)


def named_as_asked(group: Any, asked: Asked, store: Any) -> None:
    """Let ``dist.get_backend`` say of a group what the program named."""
    if asked.backends:
        _c10d._world.pg_map[group] = (dist.Backend(asked.backend), store)
        _c10d._world.pg_backend_config[group] = str(_c10d.BackendConfig(dist.Backend(asked.backend)))


@contextmanager
def _next_name(name: str) -> Iterator[None]:
    """Give the group that the body makes this name: by itself torch's hangs on how many groups a rank is in."""
    real = _c10d._process_group_name

    def once(ranks: Any, use_hashed_name: bool) -> Any:
        _c10d._process_group_name = real  # before another rank can go on
        return name

    _c10d._process_group_name = once
    try:
        yield
    finally:
        _c10d._process_group_name = real


@contextmanager
def as_nccl_does(is_nccl: Callable[[Any], bool], may_split: Callable[[Any, Any], int]) -> Iterator[None]:
    """Let calls on groups that stand for NCCL's return what they return there; leave torch as it was.

    Args:
        is_nccl: Returns whether the caller is a rank, and the group moves its tensors by NCCL.
        may_split: Returns how often the caller, a rank, has split this group by now, this time into groups of these
            ranks; 0 where torch is to answer.
    """
    real = {name: getattr(_c10d, name) for name in ("barrier", "batch_isend_irecv", "split_group")}

    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, **kwargs: Any) -> Any:
        if device_ids is None and dist.is_initialized() and is_nccl(group or _c10d._get_default_group()):
            device_ids = [torch.cuda.current_device()]  # else torch warns that it may be another rank's
        return real["barrier"](group, async_op, device_ids, **kwargs)

    def batch_isend_irecv(p2p_op_list: Any) -> Any:
        works = real["batch_isend_irecv"](p2p_op_list)
        group = p2p_op_list[0].group
        return [JointHandle(works)] if works and is_nccl(group or _c10d._get_default_group()) else works

    def split_group(parent_pg: Any = None, split_ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        parent = parent_pg or _c10d._get_default_group()
        count = may_split(parent, split_ranks) if split_ranks else 0
        if not count:
            return real["split_group"](parent_pg, split_ranks, *args, **kwargs)
        mine, me = None, dist.get_rank()
        for group_ranks in split_ranks:
            ranks = [dist.get_global_rank(parent, rank) for rank in group_ranks]
            if me in ranks:
                timeout = kwargs.get("timeout", args[0] if args else None)
                with _next_name(f"{parent.group_name}/{count}/{ranks}"):
                    mine = dist.new_group(ranks, timeout=timeout, use_local_synchronization=True)
        return mine

    ours: dict[str, Any] = {"barrier": barrier, "batch_isend_irecv": batch_isend_irecv, "split_group": split_group}
    for name, function in ours.items():
        functools.update_wrapper(function, real[name])
        for module in (_c10d, dist):
            setattr(module, name, function)
    try:
        yield
    finally:
        for name, function in real.items():
            for module in (_c10d, dist):
                setattr(module, name, function)
