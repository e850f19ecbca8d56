"""What torch.compile makes of a module: its call, and not the module, is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def replace_call(module: torch.nn.Module, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Let calls of a module go through what `change` makes of them, as ``module.compile()`` does."""
    module._compiled_call_impl = change(module._call_impl)


NEEDED: dict[str, Callable[[], object]] = {
    "torch.nn.Module._compiled_call_impl": lambda: torch.nn.Module._compiled_call_impl,
    "torch.nn.Module._call_impl": lambda: torch.nn.Module._call_impl,
}
"""Name -> how it is reached; a test calls each."""
