"""What a learner's function may ask for while it runs on a rank."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Protocol

from labkit.launch.gpu_probe import try_gpu

if TYPE_CHECKING:
    import torch


class SpanRecorder(Protocol):
    """What records named regions: labkit.launch.recording in a rank."""

    def __call__(self, name: str, kind: str) -> AbstractContextManager[object]:
        """Return a context manager whose body becomes one span."""


_recorder: SpanRecorder | None = None


def set_span_recorder(recorder: SpanRecorder | None) -> None:
    """Make span() record with recorder from now on; None makes it record nothing."""
    global _recorder
    _recorder = recorder


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def span(name: str, kind: str = "compute") -> AbstractContextManager[object]:
    """Return a context manager that puts its body on this rank's timeline under this name.

    Outside a run (in the notebook itself, under plain torchrun) it does nothing.

    Args:
        name: What the picture shows, for example "forward".
        kind: "compute" for work, "host" for anything else, such as reading data.
    """
    return _nothing() if _recorder is None else _recorder(name, kind)


def device() -> torch.device:
    """Return the device of this rank: ``cuda:LOCAL_RANK``, or the CPU where the world requires it.

    The same code under plain torchrun gets the GPU of its local rank where there is one that works, else the CPU; a
    GPU that is listed but does not work causes one warning.
    """
    import torch

    named = os.environ.get("LABKIT_DEVICE")
    if named:
        return torch.device(named)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if local_rank >= torch.cuda.device_count():
        return torch.device("cpu")
    return torch.device("cpu") if _problem_of(local_rank) else torch.device("cuda", local_rank)


@cache
def _problem_of(index: int) -> str:
    """Return why a GPU cannot be used, "" if it can: tried here, in the process that is to use it."""
    problem = str(try_gpu(index).get("problem", ""))
    if problem:
        warnings.warn(f"GPU {index} cannot be used ({problem}): this rank is on the CPU.", stacklevel=3)
    return problem
