"""Communication as a kernel on its group's own stream, for ranks whose device runs beside the host.

It begins when the current stream reaches the call, and ``wait()`` makes the then current stream wait for it. The host
waits for neither. But labkit computes values in program order, so a rank's thread stops in ``wait()`` until all ranks
have made the call; no virtual time passes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from labkit.simulator.carriers import GLOO
from labkit.simulator.clock import Waits
from labkit.simulator.record import Row
from labkit.simulator.state import VirtualRank
from labkit.simulator.streams import Communication, StreamEvent


def is_on_device(rank: VirtualRank, tensors: Sequence[torch.Tensor], by: str) -> bool:
    """Return whether the device carries out a call, on a stream.

    Args:
        rank: Who calls.
        tensors: What the call was given; a barrier is NCCL's all_reduce of a number on the device.
        by: The backend that carries it (labkit.simulator.carriers).
    """
    if rank.process.device is None:
        return False
    accelerator = rank.process.accelerator
    if not tensors:
        return by != GLOO
    return accelerator is None or any(one.is_meta or accelerator.is_on(one) for one in tensors)


def communication(
    rank: VirtualRank, key: object, name: str, row: Row, reached: Callable[[], None], waiting: Waits
) -> Communication:
    """Return a call's communication, which is not issued yet.

    Args:
        rank: Who calls.
        key: The group's, by which its stream is found.
        name: What the timeline calls that stream.
        row: The span of the call.
        reached: Called when the device begins it.
        waiting: What a report says of a device that waits in it.
    """
    return Communication(rank.now_ns, row, reached, waiting, StreamEvent(rank.device.of_group(key, name)))


def issue(rank: VirtualRank, one: Communication) -> None:
    """Issue communication to its group's stream, behind everything issued to the current stream so far."""
    device, queue = rank.device, one.event.queue
    device.wait(queue, device.record_event(rank.queue(), one.issued_ns), one.issued_ns)
    device.give(queue, one)
