"""Records the runs of `slow_ring`: rings that are right and slow, on eight virtual H100s.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import labkit

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "ring_all_reduce" / "slow_ring"
NUM_BYTES, RANKS = 16 * 10**6, 8
_KEPT = ("call", "wait", "clock")


def record(cause: str = "taking turns", num_bytes: int = NUM_BYTES) -> labkit.Timeline:
    """Return the run, without what a learner does not look at: memory, source lines, counted work."""
    rings = {"taking turns": taking_turns, "whole tensor in every step": whole_tensors}
    timeline = labkit.run(rings[cause], num_bytes, on=labkit.virtual(RANKS), echo=False).timeline
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def taking_turns(num_bytes: int) -> float:
    """Sum so many bytes; even ranks send first, odd ranks receive first, so nothing hangs."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = _started(num_bytes)
    chunks = tensor.tensor_split(size)
    for step in range(2 * (size - 1)):
        outgoing, chunk = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        incoming = torch.empty_like(chunk)
        for turn in (0, 1):
            _send_or_receive(outgoing, incoming, sends=rank % 2 == turn)
        if step < size - 1:
            chunk += incoming
    return 0.0


def whole_tensors(num_bytes: int) -> float:
    """Sum so many bytes; in every step the tensor that came last goes on, all of it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = outgoing = _started(num_bytes)
    for _ in range(size - 1):
        incoming = torch.empty_like(outgoing)
        both = [
            dist.P2POp(dist.isend, outgoing, (rank + 1) % size),
            dist.P2POp(dist.irecv, incoming, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        tensor += incoming
        outgoing = incoming
    return 0.0


def _started(num_bytes: int) -> Tensor:
    """Return what is summed, once all ranks have it: as the lesson's own runs begin, beside which a slide draws these."""
    tensor = torch.ones(num_bytes // 4, device="meta")
    dist.barrier()
    return tensor


def _send_or_receive(outgoing: Tensor, incoming: Tensor, *, sends: bool) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if sends:
        dist.send(outgoing, dst=(rank + 1) % size)
    else:
        dist.recv(incoming, src=(rank - 1) % size)


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    cause, megabytes = draw.choice(["taking turns", "whole tensor in every step"]), 8 * draw.randint(1, 12)
    turns = cause == "taking turns"
    sent = 2 * (RANKS - 1) * megabytes / RANKS if turns else (RANKS - 1) * megabytes
    answers = {"sent_mb": sent, "links": RANKS // 2 if turns else RANKS, "cause": cause}
    return record(cause, megabytes * 10**6), {"answers": answers, "within": {"sent_mb": 0.02}}


if __name__ == "__main__":
    record().save(LABKITS / "recording.json")
    record("whole tensor in every step").save(HERE / "recording.json")
