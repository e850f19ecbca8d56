"""Functional collectives of tensors on meta, carried out: torch itself only makes their results there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives, distributed_c10d

from labkit.torch_port.operators import name_of, unanswered

_c10d: Any = distributed_c10d
_WORK = "labkit_work"


def _group(name: Any) -> Any:
    return _c10d._resolve_process_group(name) if isinstance(name, str) else name


def _op(name: str) -> Any:
    return getattr(dist.ReduceOp, name.upper())


def _is_made(tensor: torch.Tensor, work: Any) -> torch.Tensor:
    """Return a tensor that is ready when its work is done."""
    setattr(tensor.untyped_storage(), _WORK, work)
    return tensor


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous()


def _rows(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    return tensor.new_empty(rows, *tensor.shape[1:])


def _all_reduce_(tensor: torch.Tensor, op: str, group: Any) -> torch.Tensor:
    return _is_made(tensor, dist.all_reduce(tensor, _op(op), _group(group), async_op=True))


def _all_reduce(tensor: torch.Tensor, op: str, group: Any) -> torch.Tensor:
    return _all_reduce_(tensor.clone(memory_format=torch.contiguous_format), op, group)


def _broadcast_(tensor: torch.Tensor, source: int, group: Any) -> torch.Tensor:
    return _is_made(tensor, dist.broadcast(tensor, group=_group(group), group_src=source, async_op=True))


def _broadcast(tensor: torch.Tensor, source: int, group: Any) -> torch.Tensor:
    return _broadcast_(tensor.clone(memory_format=torch.contiguous_format), source, group)


def _all_gather(tensor: torch.Tensor, size: int, group: Any, *, out: torch.Tensor | None = None) -> torch.Tensor:
    tensor = _dense(tensor)
    out = _rows(tensor, tensor.shape[0] * size) if out is None else out
    options = _c10d.AllgatherOptions()
    options.asyncOp = True
    return _is_made(out, _group(group).allgather_into_tensor_coalesced([out], [tensor], options))


def _reduce_scatter(
    tensor: torch.Tensor, op: str, size: int, group: Any, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    tensor = _dense(tensor)
    out = _rows(tensor, tensor.shape[0] // size) if out is None else out
    options = _c10d.ReduceScatterOptions()
    options.reduceOp, options.asyncOp = _op(op), True
    return _is_made(out, _group(group).reduce_scatter_tensor_coalesced([out], [tensor], options))


def _all_to_all(tensor: torch.Tensor, to: Sequence[int], given: Sequence[int], group: Any) -> torch.Tensor:
    tensor = _dense(tensor)
    out = _rows(tensor, sum(to))
    return _is_made(out, dist.all_to_all_single(out, tensor, list(to), list(given), group=_group(group), async_op=True))


def _wait(tensor: torch.Tensor) -> torch.Tensor:
    work = vars(tensor.untyped_storage()).pop(_WORK, None)
    if work is not None:
        work.wait()
    return tensor


CARRIED_OUT: dict[str, Callable[..., Any]] = {
    "all_reduce": _all_reduce,
    "all_reduce_": _all_reduce_,
    "all_reduce_coalesced": lambda tensors, op, group: [_all_reduce(one, op, group) for one in tensors],
    "all_reduce_coalesced_": lambda tensors, op, group: [_all_reduce_(one, op, group) for one in tensors],
    "broadcast": _broadcast,
    "broadcast_": _broadcast_,
    "all_gather_into_tensor": _all_gather,
    "all_gather_into_tensor_out": _all_gather,
    "all_gather_into_tensor_coalesced": lambda tensors, size, group: [_all_gather(one, size, group) for one in tensors],
    "reduce_scatter_tensor": _reduce_scatter,
    "reduce_scatter_tensor_out": _reduce_scatter,
    "reduce_scatter_tensor_coalesced": lambda tensors, op, size, group: [
        _reduce_scatter(one, op, size, group) for one in tensors
    ],
    "all_to_all_single": _all_to_all,
    "wait_tensor": _wait,
    "_wrap_tensor_autograd": _functional_collectives.AsyncCollectiveTensor,
}
"""Functional collective -> what carries it out."""


def carry_out(func: Any, args: Any, kwargs: Any) -> Any:
    """Return what a functional collective yields, once its work has been issued.

    Raises:
        RuntimeError: If nothing carries it out.
    """
    name = name_of(func)
    if name not in CARRIED_OUT:
        raise RuntimeError(f"The functional collective {name} is not modelled on tensors without values.")
    return CARRIED_OUT[name](*args, **kwargs)


@contextmanager
def results_lie_where_they_are() -> Iterator[None]:
    """Let what a functional collective yields say, to torch itself, where it really lies; leave torch as it was.

    torch wraps it and asks the tensor inside for its device. Whoever answers for a virtual one is asked in a backward
    pass and not elsewhere, and torch refuses a view of a tensor that lies elsewhere.
    """
    wrapper: Any = _functional_collectives.AsyncCollectiveTensor
    real = wrapper.__new__

    def new(cls: Any, elem: torch.Tensor) -> Any:
        with unanswered():
            return real(cls, elem)

    wrapper.__new__ = staticmethod(new)
    try:
        yield
    finally:
        wrapper.__new__ = staticmethod(real)


NEEDED: dict[str, Callable[[], object]] = {
    "torch.distributed.distributed_c10d._resolve_process_group": lambda: _c10d._resolve_process_group,
    "torch.distributed._functional_collectives.AsyncCollectiveTensor": (
        lambda: _functional_collectives.AsyncCollectiveTensor
    ),
}
"""Name -> how it is reached; a test calls each."""
