"""What torch keeps for each process about its groups, given to each thread that plays a rank.

Run with torch 2.13; written for 2.11 to 2.15.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from labkit.torch_port.asked_groups import Asked, asked_of, named_as_asked

c10d: Any = distributed_c10d
_compiled: Any = torch._C._distributed_c10d

_HELPERS = (
    *("group_size", "group_rank", "global_ranks_in_group", "backend", "store", "group_name"),
    *("backend_options", "timeout", "pg_tag", "device_id", "group_desc"),
)
"""What torch's own function for new groups takes, in order."""
_FLIGHT_RECORDER = "_maybe_attach_flight_recorder"
"""Since torch 2.15 it records groups whose backend does not; it cannot name those that Python answers for."""
NEEDED: dict[str, Callable[[], object]] = {
    "torch.distributed.distributed_c10d._world": lambda: c10d._world,
    "torch.distributed.distributed_c10d._get_default_timeout": lambda: c10d._get_default_timeout,
    "torch.distributed.distributed_c10d._get_default_group": lambda: c10d._get_default_group,
    "torch.distributed.distributed_c10d._group_or_default_group": lambda: c10d._group_or_default_group,
    "torch.distributed.distributed_c10d._new_process_group_helper": lambda: c10d._new_process_group_helper,
    "torch.distributed.distributed_c10d.rendezvous": lambda: c10d.rendezvous,
    "torch.distributed.distributed_c10d._default_pg_init_method": lambda: c10d._default_pg_init_method,
    "torch._C._distributed_c10d._set_thread_isolation_mode": lambda: _compiled._set_thread_isolation_mode,
}
"""Name -> how it is reached; a test calls each."""

WORLD_FIELDS: dict[str, Callable[[], object]] = {
    "default_pg": lambda: None,
    "pg_map": dict,
    "pg_names": dict,
    "pg_group_ranks": dict,
    "pg_backend_config": dict,
    "group_count": int,
    "tags_to_pg": dict,
    "pg_to_tag": dict,
    "pg_coalesce_state": dict,
    "pg_flight_recorder_hooks": dict,  # since torch 2.15
    "comms": list,
}
"""What torch keeps about process groups, one set per process; here one per rank."""


class RankWorlds:
    """Stands in for torch's table of process groups: each rank's thread sees its own, other threads the real one."""

    def __init__(self, real: Any, current: Callable[[], dict[str, Any] | None]) -> None:
        """Put ranks' tables beside the real one.

        Args:
            real: What other threads go on to see.
            current: Returns the table of the rank whose thread calls, or None.
        """
        self._real = real
        self._current = current

    def __getattr__(self, name: str) -> Any:
        described = getattr(type(self._real), name, None)
        if isinstance(described, property) and described.fget is not None and self._current() is not None:
            return described.fget(self)  # computed from the tables below
        return getattr(self._real, name)


def _field(name: str) -> property:
    def read(self: RankWorlds) -> Any:
        table = self._current()
        return getattr(self._real, name) if table is None else table[name]

    def write(self: RankWorlds, value: Any) -> None:
        table = self._current()
        if table is None:
            setattr(self._real, name, value)
        else:
            table[name] = value

    return property(read, write)


for _name in WORLD_FIELDS:
    setattr(RankWorlds, _name, _field(_name))


def new_world() -> dict[str, Any]:
    """Return an empty table of process groups for one rank."""
    return {name: make() for name, make in WORLD_FIELDS.items()}


@contextmanager
def installed(
    backend: str,
    current: Callable[[], dict[str, Any] | None],
    store: Callable[[], Any],
    monitored_barrier: Callable[..., None],
    agree: Callable[[Asked], None],
    made: Callable[[Any, Asked], None],
) -> Iterator[None]:
    """Make torch.distributed serve ranks that are threads, and leave it as it was.

    Args:
        backend: What every group of a rank runs on, whatever it asks for.
        current: Returns the table of the rank whose thread calls, or None for any other thread.
        store: Returns the store that ranks meet at, whatever address they name.
        monitored_barrier: What ranks call under that name.
        agree: Told of each group that a rank asks for, before it is made; raises where others asked for another.
        made: Told of each group that a rank is a member of, and what it asked for.
    """
    saved = {
        name: getattr(c10d, name)
        for name in (
            *("_world", "_new_process_group_helper", "rendezvous"),
            *("_default_pg_init_method", "monitored_barrier", "_get_default_timeout"),
            *("_get_default_group", "_group_or_default_group"),
            *((_FLIGHT_RECORDER,) if hasattr(c10d, _FLIGHT_RECORDER) else ()),
        )
    }

    def new_group(*args: Any, **kwargs: Any) -> Any:
        helper = saved["_new_process_group_helper"]
        if current() is None:
            return helper(*args, **kwargs)
        named = dict(zip(_HELPERS, args, strict=False)) | kwargs
        asked = asked_of(
            backend,
            named["group_name"],
            named["global_ranks_in_group"],
            named["backend"],
            named.get("device_id"),
            named.get("timeout"),
        )
        agree(asked)
        found: tuple[Any, Any] = helper(**named | {"backend": dist.Backend(backend)})
        if found[1] is not None:  # it is a member
            named_as_asked(found[0], asked, found[1])
            made(found[0], asked)
        return found

    replaced = {"_new_process_group_helper": new_group, **_by_rank(saved, current, store, monitored_barrier)}
    for name, value in replaced.items():
        setattr(c10d, name, value)
    dist.monitored_barrier = replaced["monitored_barrier"]
    _compiled._set_thread_isolation_mode(True)
    try:
        yield
    finally:
        _compiled._set_thread_isolation_mode(False)
        for name, value in saved.items():
            setattr(c10d, name, value)
        dist.monitored_barrier = saved["monitored_barrier"]


def _by_rank(
    saved: dict[str, Any],
    current: Callable[[], dict[str, Any] | None],
    store: Callable[[], Any],
    monitored_barrier: Callable[..., None],
) -> dict[str, Any]:
    """Return what stands in for torch's own functions and its table: theirs for a rank's thread, torch's for others.

    Args:
        saved: torch's own, by name.
        current: As `installed` has it, and so the others.
        store: Returns the store that ranks meet at.
        monitored_barrier: What ranks call under that name.
    """

    def meet(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[Any]:
        if current() is None:
            yield from saved["rendezvous"](url, rank, world_size, **kwargs)
        else:
            ranks = int(os.environ["RANK"]) if rank < 0 else rank
            size = int(os.environ["WORLD_SIZE"]) if world_size < 0 else world_size
            yield store(), ranks, size

    def barrier(*args: Any, **kwargs: Any) -> None:
        (saved["monitored_barrier"] if current() is None else monitored_barrier)(*args, **kwargs)

    def attach(*args: Any) -> None:
        if current() is None:
            saved[_FLIGHT_RECORDER](*args)

    # Asked several times for each message; torch's own functions look the group up three times, through properties.
    def default_group() -> Any:
        table = current()
        group = None if table is None else table["default_pg"]
        return saved["_get_default_group"]() if group is None else group

    def group_or_default(group: Any = None) -> Any:
        if group is None:
            return default_group()
        return group if current() is not None else saved["_group_or_default_group"](group)

    found = {
        "_world": RankWorlds(saved["_world"], current),
        "rendezvous": meet,
        "monitored_barrier": barrier,
        "_get_default_group": default_group,
        "_group_or_default_group": group_or_default,
        "_get_default_timeout": lambda asked: saved["_get_default_timeout"](
            asked if current() is None else dist.Backend.GLOO  # torch built without NCCL warns of that backend's
        ),
    }
    return found | ({_FLIGHT_RECORDER: attach} if _FLIGHT_RECORDER in saved else {})


def entry_codes() -> dict[int, str]:
    """Return id of the code of functions that block -> their name, to tell send from isend on the stack."""
    return {id(_code(dist.send)): "send", id(_code(dist.recv)): "recv"}


def batch_codes() -> dict[int, str]:
    """Return id of the code of what posts several messages at once -> its name."""
    return {id(_code(dist.batch_isend_irecv)): "batch_isend_irecv"}


def _code(function: Any) -> CodeType:
    code: CodeType = getattr(function, "__wrapped__", function).__code__
    return code
