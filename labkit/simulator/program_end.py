"""What a rank ends with, as digests: what its optimizers train and keep, and what its function returned."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from labkit.simulator.state import current_rank, outside

End = dict[str, str]
"""What is compared, in words -> its digest."""


@contextmanager
def optimizers_kept(kept: dict[int, list[Any]]) -> Iterator[None]:
    """Keep the optimizers that each rank makes, under its number."""
    real = torch.optim.Optimizer.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        rank = current_rank()
        if rank is not None:
            kept.setdefault(rank.rank, []).append(self)

    optimizer: Any = torch.optim.Optimizer
    optimizer.__init__ = init
    try:
        yield
    finally:
        optimizer.__init__ = real


def end_of(optimizers: list[Any], result: object) -> End:
    """Return what a rank ends with."""
    end: End = {}
    with outside(), torch.no_grad():
        for number, one in enumerate(optimizers):
            of = "" if len(optimizers) == 1 else f" of optimizer {number}"
            params = [param for group in one.param_groups for param in group["params"]]
            settings = [{key: value for key, value in group.items() if key != "params"} for group in one.param_groups]
            end[f"parameters{of}"] = _digest(params)
            end[f"optimizer state{of}"] = _digest([one.state.get(param, {}) for param in params])
            end[f"learning rate and settings{of}"] = _digest(settings)
        if result is not None:
            end["returned value"] = _digest(result)
    return end


def _digest(value: Any) -> str:
    hashed = hashlib.sha256()
    _feed(hashed, value)
    return hashed.hexdigest()


def _feed(hashed: Any, value: Any) -> None:
    hashed.update(type(value).__name__.encode())
    if isinstance(value, torch.Tensor):
        hashed.update(f"{value.dtype} {tuple(value.shape)}".encode())
        if not value.is_meta:
            plain = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
            hashed.update(plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    elif isinstance(value, np.ndarray):
        hashed.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            _feed(hashed, key)
            _feed(hashed, value[key])
    elif isinstance(value, list | tuple):
        for each in value:
            _feed(hashed, each)
    elif isinstance(value, int | float | str | bytes | bool | complex) or value is None:
        hashed.update(repr(value).encode())
    else:
        hashed.update(pickle.dumps(value))
