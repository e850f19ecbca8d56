"""Communication of a rank whose device computes beside its host: a kernel on the stream of its group.

It begins when the stream that was current at the call has come there, and the stream that is current at ``wait()``
waits for it. The host waits for neither. What it needs are the values, because labkit computes them in the order of
the program: a rank's thread stops in ``wait()`` until all ranks have made the call, and no time passes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from labkit.simulator.carriers import GLOO
from labkit.simulator.clock import Waits
from labkit.simulator.record import Row
from labkit.simulator.state import VirtualRank
from labkit.simulator.streams import Mark, Talk


def is_on_device(rank: VirtualRank, tensors: Sequence[torch.Tensor], by: str) -> bool:
    """Return whether a call is the device's to carry out beside the host.

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


def talk(rank: VirtualRank, key: object, name: str, row: Row, reached: Callable[[], None], waiting: Waits) -> Talk:
    """Return communication that is still to be issued.

    Args:
        rank: Who calls.
        key: Tells the stream of the group from others.
        name: What the timeline calls it.
        row: The span of the call.
        reached: Called when the device has come there.
        waiting: What a report says of a device that stands there.
    """
    return Talk(rank.now_ns, row, reached, waiting, Mark(rank.device.of_group(key, name)))


def issue(rank: VirtualRank, one: Talk) -> None:
    """Let the device come to communication once it has done what was issued to the current stream."""
    device, queue = rank.device, one.mark.queue
    device.wait(queue, device.mark(rank.queue(), one.issued_ns), one.issued_ns)
    device.give(queue, one)
