"""DDP's ``mixed_precision``: gradients put into the bucket that is reduced, where torch leaves them beside it.

DDP makes its buckets in full precision and casts each one when it learns of the low precision, but the views through
which gradients are copied stay those of the bucket before the cast. Until the buckets are made anew, after the first
step, what is reduced is memory that nobody wrote.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from labkit.torch_port.gaps import is_dense
from labkit.torch_port.operators import unanswered, uncounted

_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.mixed_precision_hooks"
_HOOK = "_reducer_allreduce_and_upcast_hook"
"""What DDP reduces its buckets with where it is given ``mixed_precision``."""

LEFT_BESIDE = (
    "DistributedDataParallel(mixed_precision=...): until its buckets are made anew, after the first step, this torch "
    "reduces memory that no gradient was copied into. Here the gradients are reduced; on GPUs the first step may be "
    "wrong."
)


@contextmanager
def filled(on_a_rank: Callable[[], bool], note: Callable[[str], None]) -> Iterator[None]:
    """Let threads that play a rank reduce the gradients themselves; leave torch as it was.

    Args:
        on_a_rank: Returns whether the thread that calls plays a rank.
        note: Told that a rank's bucket did not hold them.
    """
    module: Any = importlib.import_module(_HOOKS)
    real = getattr(module, _HOOK)

    @functools.wraps(real)
    def reduce_gradients(state: Any, bucket: Any) -> Any:
        if on_a_rank() and _fill(bucket):
            note(LEFT_BESIDE)
        return real(state, bucket)

    setattr(module, _HOOK, reduce_gradients)
    try:
        yield
    finally:
        setattr(module, _HOOK, real)


def _fill(bucket: Any) -> bool:
    """Copy parameters' gradients into a bucket that does not hold them; return whether that was so.

    A parameter without a gradient has zeros, as where torch copies them.
    """
    lacking = False
    with torch.no_grad(), uncounted(), unanswered():
        for parameter, flat in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if flat.is_meta:
                continue
            gradient = parameter.grad
            place = flat.as_strided(parameter.shape, parameter.stride()) if is_dense(parameter) else flat
            wanted = torch.zeros_like(place) if gradient is None else torch.empty_like(place).copy_(gradient)
            if not _same(place, wanted):
                lacking = True
                place.copy_(wanted)
    return lacking


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are the same to the bit: what is not a number differs from itself."""
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


NEEDED: dict[str, Callable[[], object]] = {
    f"{_HOOKS}.{_HOOK}": lambda: getattr(importlib.import_module(_HOOKS), _HOOK),
}
"""Name -> how it is reached; a test calls each."""
