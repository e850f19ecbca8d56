"""Records the runs of `wrong_order`: a step on eight GPUs whose axes lie in an order that does not suit the machines.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

import labkit
from labkit.exercises.hybrid_parallelism.meshes import places
from labkit.exercises.hybrid_parallelism.on_ranks import Mesh

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "hybrid_parallelism" / "wrong_order"
ORDER, OF_CLASS = ("tensor", "data", "pipeline"), ("data", "tensor", "pipeline")
LAYERS, MICROBATCHES, WIDTH, TOKENS = 2, 2, 4096, 1024
_KEPT = ("call", "wait", "clock")


def record(order: tuple[str, ...] = ORDER) -> labkit.Timeline:
    """Return a step with two ranks on each axis, two GPUs in a node, without what a learner does not look at."""
    slow = {rank: 1.4 for rank, place in enumerate(places(dict.fromkeys(order, 2))) if place["data"]}
    world = labkit.virtual(8, gpu="h100", gpus_per_node=2, slow=slow)  # replicas out of step: who sums with whom shows
    timeline = labkit.run(step, order, on=world, echo=False).timeline
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def step(order: tuple[str, ...]) -> None:
    """Play one rank's part: microbatches forward, then backward, then the gradients of two layers."""
    mesh = Mesh(dict.fromkeys(order, 2))
    dist.barrier()
    weights = [torch.empty(WIDTH, WIDTH // 2, device="meta", dtype=torch.bfloat16) for _ in range(LAYERS)]
    activation = torch.empty(TOKENS, WIDTH, device="meta", dtype=torch.bfloat16)
    is_first = mesh.place["pipeline"] == 0
    for microbatch in range(MICROBATCHES):
        with labkit.span(f"F{microbatch}"):
            if not is_first:
                dist.recv(activation, group=mesh.groups["pipeline"], group_src=0)
            _layers(activation, weights, mesh, 1)
            if is_first:
                dist.send(activation, group=mesh.groups["pipeline"], group_dst=1)
    for microbatch in range(MICROBATCHES):
        with labkit.span(f"B{microbatch}"):
            if is_first:
                dist.recv(activation, group=mesh.groups["pipeline"], group_src=1)
            _layers(activation, weights, mesh, 2)
            if not is_first:
                dist.send(activation, group=mesh.groups["pipeline"], group_dst=0)
    for weight in weights:
        dist.all_reduce(weight, group=mesh.groups["data"])


def _layers(activation: torch.Tensor, weights: list[torch.Tensor], mesh: Mesh, products: int) -> None:
    for weight in weights:
        for _ in range(products):
            activation @ weight
        dist.all_reduce(activation, group=mesh.groups["tensor"])


if __name__ == "__main__":
    record().save(LABKITS / "recording.json")
    record(OF_CLASS).save(HERE / "recording.json")
