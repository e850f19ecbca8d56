"""Calls in which ranks wait for one another outside of any process group: they make one, or ask a store for a key."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import torch.distributed as dist
from torch.distributed import distributed_c10d

from labkit.deadlock import store_call
from labkit.torch_port.rpc import rpc, rpc_api

_c10d: Any = distributed_c10d
_Store: Any = distributed_c10d.Store

NEEDED: dict[str, Callable[[], object]] = {
    "torch.distributed.distributed_c10d._new_group_with_tag": lambda: _c10d._new_group_with_tag,
    "torch.distributed.Store.wait": lambda: _Store.wait,
    "torch.distributed.Store.get": lambda: _Store.get,
}
"""Name -> how it is reached; a test calls each."""

Around: TypeAlias = Callable[..., AbstractContextManager[None]]
"""What a call's name and the global ranks that must make it, () where that is not known, are told to; and how a report
names the call where its name alone is not enough."""


def watch_gatherings(around: Around) -> Callable[[], None]:
    """Put `around` about each such call from now on; return what undoes it."""
    new_group, init, wait, get = _c10d._new_group_with_tag, _c10d.init_process_group, _Store.wait, _Store.get

    @functools.wraps(new_group)
    def new_group_watched(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        local = bool(kwargs.get("use_local_synchronization")) and ranks is not None
        everybody = range(dist.get_world_size())
        asked = "" if ranks is None or sorted(ranks) == list(everybody) else f"new_group({sorted(ranks)})"
        with around("new_group", tuple(ranks) if local else everybody, asked):
            return new_group(ranks, *args, **kwargs)

    @functools.wraps(init)
    def init_watched(*args: Any, **kwargs: Any) -> Any:
        with around("init_process_group", range(int(os.environ.get("WORLD_SIZE", "1")))):
            return init(*args, **kwargs)

    def wait_watched(store: Any, keys: Any, *timeout: Any) -> Any:
        if timeout:  # whoever says how long knows that it may not come
            return wait(store, keys, *timeout)
        with around("store.wait", (), store_call("store.wait", keys)):
            return wait(store, keys)

    def get_watched(store: Any, key: Any) -> Any:
        with around("store.get", (), store_call("store.get", [key])):
            return get(store, key)

    def everybodys(name: str, real: Any) -> Any:
        @functools.wraps(real)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with around(name, range(int(os.environ.get("WORLD_SIZE", "1")))):
                return real(*args, **kwargs)

        return watched

    homes: list[tuple[Any, str, Any, Any]] = [
        (_c10d, "_new_group_with_tag", new_group, new_group_watched),
        (_c10d, "init_process_group", init, init_watched),
        (dist, "init_process_group", init, init_watched),
        (_Store, "wait", wait, wait_watched),
        (_Store, "get", get, get_watched),
    ]
    if rpc.is_available():
        init_rpc, shutdown = rpc.init_rpc, rpc_api.shutdown
        homes.append((rpc, "init_rpc", init_rpc, everybodys("init_rpc", init_rpc)))
        stops = everybodys("rpc.shutdown", shutdown)
        homes += [(home, "shutdown", shutdown, stops) for home in (rpc, rpc_api)]
    for home, name, _, watched in homes:
        setattr(home, name, watched)

    def undo() -> None:
        for home, name, real, _ in homes:
            setattr(home, name, real)

    return undo
