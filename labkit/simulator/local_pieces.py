"""Pieces of DTensors that torch makes while it answers a call, when nobody answers for the virtual device.

torch's loss over a sharded vocabulary makes DTensors of labels inside the operator. A rank's device mode is not asked
there, so the labels seemed to be on the host, and the move to a device that this build of PyTorch lacks failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from labkit.simulator.device_mode import devices_of
from labkit.simulator.state import current_rank
from labkit.torch_port.functional_collectives import results_lie_where_they_are


@contextmanager
def installed() -> Iterator[None]:
    """Let from_local see where a rank's tensors are; leave torch as it was. For ranks that find CUDA devices."""
    from torch.distributed.tensor import DTensor  # half a second, which other ranks need not pay

    made: Any = DTensor
    real = vars(made)["from_local"]
    call = real.__func__

    def from_local(*args: Any, **kwargs: Any) -> Any:
        rank = current_rank()
        if rank is None:
            return call(*args, **kwargs)
        with devices_of(rank):
            return call(*args, **kwargs)

    made.from_local = staticmethod(from_local)
    try:
        with results_lie_where_they_are():
            yield
    finally:
        made.from_local = real
