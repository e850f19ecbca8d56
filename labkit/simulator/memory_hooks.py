"""How a rank's ledger learns what storages are for: from modules, optimizers and storages that change their size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from labkit.simulator.memory import RankMemory


@contextmanager
def memory_watched(current: Callable[[], RankMemory | None]) -> Iterator[None]:
    """Tell ledgers what torch does, and leave torch as it was.

    Args:
        current: Returns the ledger of the rank whose thread calls, or None.
    """

    def marked(mark: Callable[[RankMemory, torch.Tensor], None]) -> Callable[[torch.nn.Module, str, Any], None]:
        def registered(module: torch.nn.Module, _: str, value: Any) -> None:
            ledger = current()
            if ledger is not None:
                ledger.module(module)
                if value is not None:
                    mark(ledger, value)

        return registered

    def before_step(optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
        ledger = current()
        if ledger is not None:
            for group in optimizer.param_groups:
                for one in group["params"]:
                    ledger.mark_parameter(one)

    def after_step(optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
        ledger = current()
        if ledger is not None:
            for one in optimizer.state.values():
                ledger.mark_optimizer_state(one)

    def setstate(module: torch.nn.Module, state: Any) -> None:
        real_setstate(module, state)
        ledger = current()
        if ledger is not None:
            ledger.module(module)

    def resize(storage: torch.UntypedStorage, size: int) -> Any:
        ledger = current()
        if ledger is not None:
            ledger.resizes(storage, size)
        return real_resize(storage, size)

    handles = [
        register_module_parameter_registration_hook(marked(RankMemory.mark_parameter)),
        register_module_buffer_registration_hook(marked(RankMemory.mark_buffer)),
        register_optimizer_step_pre_hook(before_step),
        register_optimizer_step_post_hook(after_step),
    ]
    storage_class: Any = torch.UntypedStorage
    module_class: Any = torch.nn.Module
    inherited = "resize_" not in vars(storage_class)
    real_resize, real_setstate = storage_class.resize_, module_class.__setstate__
    storage_class.resize_, module_class.__setstate__ = resize, setstate
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        module_class.__setstate__ = real_setstate
        if inherited:
            del storage_class.resize_
        else:
            storage_class.resize_ = real_resize
