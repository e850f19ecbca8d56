"""Futures: the one class behind all of them, and what makes one raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

AnyFuture: Any = torch._C.Future
"""What torch.futures.Future and the futures of C++ both are."""


def unwrap_with(future: torch.futures.Future[Any], unwrap: Callable[[Any], Any]) -> None:
    """Let wait() return, or raise, what this function makes of the value."""
    private: Any = future
    private._set_unwrap_func(unwrap)


NEEDED: dict[str, Callable[[], object]] = {
    "torch._C.Future": lambda: AnyFuture,
    "torch.futures.Future._set_unwrap_func": lambda: torch.futures.Future._set_unwrap_func,
}
"""Name -> how it is reached; a test calls each."""
