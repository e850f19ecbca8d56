"""What torch keeps one of for a whole process, besides its groups: tables that a rank changes for itself alone.

Each entry is (module, path from there, what a fresh process has, made of what this one has). A module that is not
loaded yet is none that anybody has changed.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch

Fresh = Callable[[Any], Any]


def same(value: Any) -> Any:
    """Return what is there: it is replaced, not changed."""
    return value


class Watched(OrderedDict[Any, Any]):
    """A table that all ranks share until one of them changes it.

    Attributes:
        changes: Called before the first change.
    """

    changes: Callable[[], None] | None = None


def _watching(name: str) -> Callable[..., Any]:
    real = getattr(OrderedDict, name)

    def change(self: Watched, *args: Any, **kwargs: Any) -> Any:
        changes, self.changes = self.changes, None
        if changes is not None:
            changes()
        return real(self, *args, **kwargs)

    return change


for _name in (
    "__setitem__",
    "__delitem__",
    "__ior__",
    "clear",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "move_to_end",
):
    setattr(Watched, _name, _watching(_name))


def watched(table: dict[Any, Any]) -> Watched:
    """Return a copy that says when it is changed: for tables that ranks have in place and hardly ever change."""
    return Watched(table)


_CONTEXT = "torch.distributed.tensor.experimental._context_parallel._attention"
_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_pre_hooks", "_global_forward_hooks",
    "_global_forward_hooks_always_called", "_global_forward_hooks_with_kwargs", "_global_module_registration_hooks",
    "_global_buffer_registration_hooks", "_global_parameter_registration_hooks",
)  # fmt: skip

TABLES: tuple[tuple[str, str, Fresh], ...] = (
    ("torch.nn.functional", "scaled_dot_product_attention", same),
    ("torch._tensor_str", "PRINT_OPTS", copy),
    ("torch.distributed.tensor", "DTensor._op_dispatcher._custom_op_handlers", copy),
    ("torch.distributed.tensor._random", "_rng_tracker", lambda _: None),
    # What a rank has to send of an uneven shard is remembered by the specs alone, and is another thing on each rank.
    ("torch.distributed.tensor._redistribute", "_planner_cache", lambda _: {}),
    ("torch.distributed.tensor._redistribute", "_gen_transform_infos", lambda known: cache(known.__wrapped__)),
    (_CONTEXT, "existing_custom_ops", copy),
    (_CONTEXT, "_cp_options", copy),
    (_CONTEXT, "_dispatch_mode", same),
    (_CONTEXT, "_replaced_functions", copy),
    ("torch.utils.checkpoint", "_enable_checkpoint_early_stop", same),
    ("torch.utils.checkpoint", "_checkpoint_debug_enabled", same),
    ("torch.nn.parallel.distributed", "DistributedDataParallel._active_ddp_module", same),
    *(("torch.nn.modules.module", name, watched) for name in _HOOKS),
    *(("torch.optim.optimizer", f"_global_optimizer_{when}_hooks", watched) for when in ("pre", "post")),
)

OF_DEVICES: tuple[tuple[str, str, Fresh], ...] = (
    # What an operator yields is remembered with the device that "cuda" meant.
    ("torch._subclasses.fake_tensor", "FakeTensorMode.cache", lambda _: {}),
)
"""The same where each rank has a CUDA device of its own."""

float32_matmul_precision: Callable[[], str] = torch._C._get_float32_matmul_precision
"""torch.get_float32_matmul_precision, asked at each switch of ranks and for each operator, without what torch's own
function does for torch.compile."""

_deterministic: Callable[[], bool] = torch._C._get_deterministic_algorithms


def _set_deterministic(on: bool) -> None:
    """Set it as torch's own function does, which takes a second to import what torch.compile reads if nobody has."""
    torch._C._set_deterministic_algorithms(on)
    if (config := sys.modules.get("torch._inductor.config")) is not None:
        config.deterministic = on  # type: ignore[attr-defined]


_SWITCHES = (
    ("_get_flash_sdp_enabled", "_set_sdp_use_flash", True),
    ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient", True),
    ("_get_math_sdp_enabled", "_set_sdp_use_math", True),
    ("_get_cudnn_enabled", "_set_cudnn_enabled", True),
    ("_get_cudnn_benchmark", "_set_cudnn_benchmark", False),
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic", False),
    ("_get_mkldnn_enabled", "_set_mkldnn_enabled", True),
    ("_get_warnAlways", "_set_warnAlways", False),
)
"""What torch.backends and torch.set_warn_always read and set, in torch._C, and what a process begins with."""

FLAGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any], Any], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    (float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
    (_deterministic, _set_deterministic, False),
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled, False),
    *((getattr(torch._C, get), getattr(torch._C, put), fresh) for get, put, fresh in _SWITCHES),
)
"""Settings of torch that all threads share: how each is read and set, and what a process begins with."""


def _reach(module: str, path: str) -> object:
    found: Any = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


NEEDED: dict[str, Callable[[], object]] = {
    "torch._C._get_float32_matmul_precision": lambda: torch._C._get_float32_matmul_precision,
    "torch._C._set_deterministic_algorithms": lambda: torch._C._set_deterministic_algorithms,
    "torch._C._get_deterministic_algorithms": lambda: torch._C._get_deterministic_algorithms,
    **{f"torch._C.{name}": partial(_reach, "torch", f"_C.{name}") for pair in _SWITCHES for name in pair[:2]},
    **{f"{module}.{path}": partial(_reach, module, path) for module, path, _ in (*TABLES, *OF_DEVICES)},
}
"""Name -> how it is reached; a test calls each."""
