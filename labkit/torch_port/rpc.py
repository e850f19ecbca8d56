"""torch.distributed.rpc behind its public functions: where they live, and what stands in for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed.rpc

rpc: Any = torch.distributed.rpc
rpc_api: Any = rpc.api
WorkerInfo: Any = rpc.WorkerInfo

ASYNC_MARK = "_wrapped_async_rpc_function"
"""What torch.distributed.rpc.functions.async_execution leaves on a function."""

SET_TIMEOUT = "_set_rpc_timeout"
"""Changes the timeout of this process's calls."""

IS_SET = "_is_current_rpc_agent_set"
"""Says whether this process has joined RPC."""


def futures_to_wait_for() -> list[Any] | None:
    """Return the list that this thread's rpc_async calls go into inside rpc._wait_all(), None elsewhere."""
    return getattr(rpc_api._thread_local_var, "future_list", None)


def homes(name: str) -> Iterator[Any]:
    """Yield the modules of torch under which a function of torch.distributed.rpc is found."""
    return (module for module in (rpc, rpc_api) if hasattr(module, name))


NEEDED: dict[str, Callable[[], object]] = {
    "torch.distributed.rpc.api": lambda: rpc_api.rpc_sync,
    "torch.distributed.rpc.api._thread_local_var": lambda: rpc_api._thread_local_var,
    "torch.distributed.rpc.api._is_current_rpc_agent_set": lambda: rpc_api._is_current_rpc_agent_set,
    "torch.distributed.rpc._is_current_rpc_agent_set": lambda: rpc._is_current_rpc_agent_set,
    "torch.distributed.rpc._set_rpc_timeout": lambda: rpc._set_rpc_timeout,
    "torch.distributed.rpc.functions.async_execution's mark": lambda: getattr(
        rpc.functions.async_execution(lambda: None), ASYNC_MARK
    ),
}
"""Name -> how it is reached; a test calls each."""
