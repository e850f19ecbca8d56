"""Records the runs of `lone_gradient`: the gradients of a sequence-parallel model's norms, summed over its ranks.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import labkit

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "tensor_parallel" / "lone_gradient"
RANKS, WIDTH = 4, 16384
NORMS = tuple(f"block {block} norm {norm}" for block in (2, 1, 0) for norm in (2, 1))
ROOTS = (0, 3, 2, 1, 3, 0)
LAYER, RANK = "block 1 norm 2", 2
_KEPT = ("call", "wait", "clock")


def record(layer: str = LAYER, roots: tuple[int, ...] = ROOTS) -> labkit.Timeline:
    """Return the run in which this norm's sum is not sent back, without what a learner does not look at: memory, source lines, counted work."""
    timeline = labkit.run(sums, layer, roots, on=labkit.virtual(RANKS, gpu="a100", link="pcie4"), echo=False).timeline
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def sums(layer: str, roots: tuple[int, ...]) -> None:
    """Play one rank's part: each norm's gradient is added up on one rank, which sends the sum to all; one forgets to."""
    me = dist.get_rank()
    gradient = torch.empty(WIDTH, device="meta")
    for number, name in enumerate(NORMS):
        root, others = roots[number], [rank for rank in range(RANKS) if rank != roots[number]]
        with labkit.span(name):
            if me != root:
                dist.send(gradient, dst=root)
            for other in others if me == root else ():
                part = torch.empty_like(gradient)
                dist.recv(part, src=other)
                gradient += part
            if name != layer:
                _send_back(gradient, root, others)
        dist.barrier()


def _send_back(gradient: torch.Tensor, root: int, others: list[int]) -> None:
    if dist.get_rank() != root:
        dist.recv(gradient, src=root)
        return
    for other in others:
        dist.send(gradient, dst=other)


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    layer, roots = draw.choice(NORMS), tuple(draw.randrange(RANKS) for _ in NORMS)
    answers = {"layer": layer, "rank": roots[NORMS.index(layer)], "cause": "summed on one rank"}
    return record(layer, roots), {"answers": answers}


if __name__ == "__main__":
    record().save(LABKITS / "recording.json")
    record("block 0 norm 2", (2, 0, 1, 3, 1, 2)).save(HERE / "recording.json")
