"""Handles of operations, with the names that torch asks them for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.futures import Future

_compiled: Any = _distributed_c10d


class Handle(dist.Work):
    """What isend, irecv and collectives return: a Work whose subclass says where a message came from."""

    def source_rank(self) -> int:
        """Return the group rank a message came from, -1 where none did."""
        return -1

    def _source_rank(self) -> int:
        return self.source_rank()


class JointHandle(dist.Work):
    """Several operations as one handle, for coalesced calls."""

    def __init__(self, works: Sequence[Any]) -> None:
        super().__init__()
        self._works = list(works)

    def wait(self, timeout: object = None) -> bool:
        """Return True once all are complete."""
        for work in self._works:
            work.wait()
        return True

    def is_completed(self) -> bool:
        """Return whether all are complete by now."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Return whether all are complete."""
        return self.is_completed()

    def synchronize(self) -> None:
        """Wait for all."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        """Return the tensors of all."""
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self) -> Future[Any]:
        """Return a future of all results, complete now: this waits for all."""
        self.wait()
        future: Future[Any] = Future()
        future.set_result(self.result())
        return future


class WrappedHandle(dist.Work):
    """A handle that stands in for another one and does what that does, where a subclass does nothing else."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner

    def synchronize(self) -> None:
        """Do what the inner handle does."""
        self._inner.synchronize()

    def is_completed(self) -> bool:
        """Return whether the operation is complete."""
        return bool(self._inner.is_completed())

    def is_success(self) -> bool:
        """Return whether it completed without an error."""
        return bool(self._inner.is_success())

    def exception(self) -> Any:
        """Return the error it ended with, if any."""
        return self._inner.exception()

    def result(self) -> Any:
        """Return the output tensors."""
        return self._inner.result()

    def source_rank(self) -> int:
        """Return the group rank a receive took its message from."""
        return int(self._inner.source_rank())

    def _source_rank(self) -> int:
        return int(self._inner._source_rank())

    def block_current_stream(self) -> None:
        """Make the current stream wait, not the host."""
        self._inner.block_current_stream()

    def _get_duration(self) -> float:
        return float(self._inner._get_duration())

    def _get_op_type(self) -> Any:
        return self._inner._get_op_type()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def source_of(work: Any) -> int:
    """Return the group rank a receive took its message from, of any backend's handle."""
    return int(work._source_rank())


def keep_forward_handles() -> Callable[[], None]:
    """Keep the handle that DDP's forward pass gives to C++ alive from now on; return what undoes it.

    C++ asks it for the number of ranks during the backward pass. Of a handle whose class is Python's it keeps no more
    than the part of C++, which never completes by itself.
    """
    kind: Any = _compiled.Reducer
    real = kind._set_forward_pass_work_handle
    kept: dict[int, Any] = {}  # of each reducer the latest

    def set_handle(reducer: Any, work: Any, *args: Any, **kwargs: Any) -> Any:
        kept[id(reducer)] = work
        return real(reducer, work, *args, **kwargs)

    kind._set_forward_pass_work_handle = set_handle

    def undo() -> None:
        kind._set_forward_pass_work_handle = real

    return undo


NEEDED: dict[str, Callable[[], object]] = {
    "torch.distributed.Reducer._set_forward_pass_work_handle": lambda: _compiled.Reducer._set_forward_pass_work_handle,
}
"""Name -> how it is reached; a test calls each."""
