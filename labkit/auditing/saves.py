"""What a checkpoint holds, as far as its shape says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

_RANDOM = ("rng", "random", "generator", "seed")
_FEWEST_BYTES = 16  # of a generator's state


def parts_of(value: Any) -> set[str]:
    """Return which of "model", "optimizer", "scheduler", "random" and "progress" a checkpoint holds."""
    found: set[str] = set()
    for key, one in _walk("", value):
        if isinstance(one, Mapping):
            keys = set(map(str, one))
            if {"state", "param_groups"} <= keys:
                found.add("optimizer" if one["state"] else "empty optimizer")
            elif "last_epoch" in keys and keys & {"_step_count", "base_lrs"}:
                found.add("scheduler")
        elif isinstance(one, torch.Tensor):
            if one.dtype == torch.uint8 and one.numel() >= _FEWEST_BYTES:
                found.add("random")
            elif one.is_floating_point():
                found.add("model")
        elif isinstance(one, int) and not isinstance(one, bool) and any(part in key for part in ("step", "epoch")):
            found.add("progress")
        if any(part in key for part in _RANDOM):
            found.add("random")
    return found


def _walk(key: str, value: Any, left: int = 4) -> Iterator[tuple[str, Any]]:
    """Yield keys and values down to a depth; an optimizer's and a scheduler's state as one."""
    yield key.lower(), value
    if not left:
        return
    if isinstance(value, Mapping):
        keys = set(map(str, value))
        if {"state", "param_groups"} <= keys or "last_epoch" in keys:
            return
        for name, one in value.items():
            yield from _walk(str(name), one, left - 1)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _walk(key, one, left - 1)
