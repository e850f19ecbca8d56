"""All-reduces for the ring player to watch: a right one, and wrong ones."""

from __future__ import annotations

import torch
import torch.distributed as dist


def _ring(chunks: list[torch.Tensor]) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(2 * (size - 1)):
        turn = step if step < size - 1 else step - size
        arriving = chunks[(rank - turn - 1) % size]
        incoming = torch.empty_like(arriving)
        batch = [
            dist.P2POp(dist.isend, chunks[(rank - turn) % size], (rank + 1) % size),
            dist.P2POp(dist.irecv, incoming, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        arriving.copy_(arriving + incoming if step < size - 1 else incoming)


def ring_sum(tensor: torch.Tensor) -> None:
    """Sum in a ring."""
    _ring(list(tensor.tensor_split(dist.get_world_size())))


def sends_the_next_chunk_on_rank_2(tensor: torch.Tensor) -> None:
    """Sum in a ring in which rank 2 counts its chunks from 1."""
    chunks = list(tensor.tensor_split(dist.get_world_size()))
    _ring(chunks[1:] + chunks[:1] if dist.get_rank() == 2 else chunks)


def sends_all_at_once(tensor: torch.Tensor) -> None:
    """Send the whole tensor round."""
    rank, size = dist.get_rank(), dist.get_world_size()
    incoming = torch.empty_like(tensor)
    batch = [dist.P2POp(dist.isend, tensor, (rank + 1) % size), dist.P2POp(dist.irecv, incoming, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
