"""Which parameters fully_shard gathers in one call: told where a group of them is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.distributed.fsdp._fully_shard import _fsdp_param_group

_group: Any = _fsdp_param_group.FSDPParamGroup


@contextmanager
def param_groups_watched(made: Callable[[list[nn.Parameter], tuple[nn.Module, ...]], None]) -> Iterator[None]:
    """Tell of each group of parameters that is made, and of the modules it was made for, while the context lasts."""
    real = _group.__init__

    def init(self: Any, params: Any, modules: Any, *args: Any, **kwargs: Any) -> None:
        made(list(params), tuple(modules))
        real(self, params, modules, *args, **kwargs)

    _group.__init__ = init
    try:
        yield
    finally:
        _group.__init__ = real


NEEDED: dict[str, Callable[[], object]] = {"torch.distributed.fsdp's FSDPParamGroup": lambda: _group.__init__}
"""Name -> how it is reached; a test calls each."""
