"""Where torch asks for the accelerator of a host past torch.accelerator, as fully_shard does for its mesh."""

from __future__ import annotations

from typing import Any

import torch

PLACES: tuple[tuple[Any, str], ...] = ((torch._C, "_get_accelerator"),)
"""Owner and name of a function that returns the torch.device."""
