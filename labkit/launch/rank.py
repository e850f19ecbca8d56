"""What a learner's function may ask for while it runs on a rank."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

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

    The same code under plain torchrun gets the GPU of its local rank where there is one, else the CPU.
    """
    import torch

    named = os.environ.get("LABKIT_DEVICE")
    if named:
        return torch.device(named)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", local_rank) if local_rank < torch.cuda.device_count() else torch.device("cpu")
