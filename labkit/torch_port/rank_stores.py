"""Stores that a program makes itself, at an address or a file, given to threads that play ranks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as compiled

_HOMES: tuple[Any, ...] = (
    dist,
    compiled,
    importlib.import_module("torch.distributed.rendezvous"),
    importlib.import_module("torch.distributed.distributed_c10d"),
)


@contextmanager
def shared_stores(shared: Callable[[str], Any | None]) -> Iterator[None]:
    """Let ranks that name one address or file have one store, which waits as they do; leave torch as it was.

    torch's own would wait in C++, where a thread that plays a rank keeps all others from going on.

    Args:
        shared: Returns the store that all ranks have under a name, a new one for "", None to threads that play no rank.
    """
    with ExitStack() as stack:
        for name, named in (("TCPStore", _address), ("FileStore", _file), ("HashStore", _own)):
            real = getattr(compiled, name)
            stand_in = _stand_in(real, named, shared)
            for home in _HOMES:
                if hasattr(home, name):
                    stack.callback(setattr, home, name, getattr(home, name))
                    setattr(home, name, stand_in)
        yield


def _stand_in(real: Any, named: Callable[..., str], shared: Callable[[str], Any | None]) -> Any:
    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            store = shared(named(*args, **kwargs))
            return real(*args, **kwargs) if store is None else store

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

    return Meta(real.__name__, (), {"__doc__": real.__doc__})


def _address(host_name: str = "localhost", port: int = 0, *_: Any, **__: Any) -> str:
    return f"tcp://{host_name}:{port}"


def _file(file_name: str, *_: Any, **__: Any) -> str:
    return f"file://{file_name}"


def _own() -> str:
    return ""
