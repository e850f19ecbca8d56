"""torch's own parallel training, where a learner builds it: what it rests on is closed, and its frames are known.

DistributedDataParallel, whatever it is called or copied into, hands its gradients to a reducer of C++. In a process
where that cannot be made, there is no such wrapper. What torch wrote in Python (sharding, pipelines, optimizers, tensor
parallelism) is known by the files of the functions that lead to a message.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch._C import _distributed_c10d

_compiled: Any = _distributed_c10d
WORDS = "torch's own DistributedDataParallel was made; here you build it yourself"

_TORCH = f"{Path(torch.__file__).parent.as_posix()}/"
_OF_PYTHON = tuple(
    f"{_TORCH}{place}/"
    for place in (
        "nn/parallel", "distributed/_composable", "distributed/_shard", "distributed/algorithms", "distributed/fsdp",
        "distributed/optim", "distributed/pipelining", "distributed/tensor",
    )
)  # fmt: skip


def close_reducer() -> None:
    """Let no reducer of DistributedDataParallel be made in this process any more, under whatever name.

    Its constructor is gone afterwards: nobody keeps it, so nothing in the process can bring it back.
    """

    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError(WORDS)

    _compiled.Reducer.__init__ = refuse


def own_part(frame: FrameType | None) -> str:
    """Return which part of torch's own parallel training is on the way to this frame, "distributed/fsdp", or ""."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_OF_PYTHON):
            return next(place for place in _OF_PYTHON if name.startswith(place))[len(_TORCH) : -1]
        frame = frame.f_back
    return ""


def _places() -> None:
    missing = [place for place in _OF_PYTHON if not Path(place).is_dir()]
    if missing:
        raise ImportError(", ".join(missing))


NEEDED: dict[str, Callable[[], object]] = {
    "torch.distributed.Reducer.__init__": lambda: _compiled.Reducer.__init__,
    "torch.nn.parallel.distributed": _places,
}
