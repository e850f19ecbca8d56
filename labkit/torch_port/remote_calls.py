"""The way of a call of torch.distributed.rpc through torch's own functions, and where each is replaced.

What is replaced is what torch's public functions call, so that every way of importing them is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed.rpc import internal, rref_proxy

from labkit.torch_port.rpc import rpc, rpc_api

_Reference: Any = rpc_api.PyRRef

_PLACES: dict[str, tuple[tuple[Any, str], ...]] = {
    "invoke": ((rpc_api, "_invoke_rpc"),),
    "call_method": ((rref_proxy, "_invoke_rpc"),),
    "remote": ((rpc_api, "remote"), (rpc, "remote")),
    "to_here": ((_Reference, "to_here"),),
    "send_call": ((rpc_api, "_invoke_rpc_python_udf"),),
    "send_remote": ((rpc_api, "_invoke_remote_python_udf"),),
    "deserialize": ((internal, "deserialize"),),
    "run": ((internal, "_run_function"),),
}
"""What a function does on a call's way -> the places where torch looks it up.

``invoke`` is behind rpc_sync and rpc_async, ``call_method`` behind a reference's proxies, ``send_call`` and
``send_remote`` hand a pickled call to the agent; ``deserialize`` and ``run`` are the callee's.
"""

PythonCall: Any = internal.PythonUDF
"""A call of a Python function as it is pickled: func, args, kwargs."""

METHOD_STAND_INS = ("_local_invoke", "_local_invoke_async_execution")
"""What torch calls at the owner in place of a reference's method, with the reference and the method's name."""


def torchs(step: str) -> Any:
    """Return torch's own function for a step of a call's way."""
    owner, name = _PLACES[step][0]
    return getattr(owner, name)


def replace(**functions: Any) -> Callable[[], None]:
    """Put a function in the place of torch's for each step named; return what undoes it."""
    before = [(owner, name, getattr(owner, name)) for step in functions for owner, name in _PLACES[step]]
    for step, function in functions.items():
        for owner, name in _PLACES[step]:
            setattr(owner, name, function)

    def undo() -> None:
        for owner, name, value in before:
            setattr(owner, name, value)

    return undo


def worker_id(to: Any) -> int:
    """Return the id of a worker named by name, id or WorkerInfo; raises what torch raises where there is none."""
    return int(rpc_api._to_worker_info(to).id)


def creation_of(rref: Any) -> Any:
    """Return the future of what a remote reference refers to."""
    return rref._get_future()


NEEDED: dict[str, Callable[[], object]] = {
    f"{getattr(owner, '__name__', owner)}.{name}": lambda owner=owner, name=name: getattr(owner, name)
    for places in _PLACES.values()
    for owner, name in places
} | {
    "torch.distributed.rpc.api._to_worker_info": lambda: rpc_api._to_worker_info,
    "torch.distributed.rpc.PyRRef._get_future": lambda: _Reference._get_future,
    "torch.distributed.rpc.internal.PythonUDF": lambda: PythonCall,
    "what torch calls for a reference's method": lambda: [getattr(rref_proxy, name) for name in METHOD_STAND_INS],
}
"""Name -> how it is reached; a test calls each."""
