"""A kernel that only takes time, as torch's own tests use it."""

from __future__ import annotations

from typing import Any

import torch


def keep_busy(cycles: int) -> None:
    """Launch a kernel that keeps the current CUDA stream busy for this many cycles of the device."""
    sleep: Any = torch.cuda._sleep
    sleep(cycles)
