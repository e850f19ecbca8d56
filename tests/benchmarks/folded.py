"""What a folded run costs beside a run of the ranks that it starts, and whether its timeline is that of a run of all.

The program shards a model over some ranks and repeats that in the ranks that follow (hybrid sharding): sharded over 32
and folded by 32, it starts 64 ranks however many there are. It runs in a process of its own:
python -m tests.benchmarks.folded.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import labkit

SHARD, MANY = 32, 4096
COMPARED, COMPARED_SHARD = 64, 8
"""The world that runs with a fold and without, and the ranks of a replica there."""


def hybrid_steps(shard: int, num_layers: int, num_steps: int) -> int:
    """Train transformer layers that are sharded over so many ranks and copied beyond; return the peak of memory."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (dist.get_world_size() // shard, shard), mesh_dim_names=("replicate", "shard"))
    with torch.device("meta"):
        layers = [nn.TransformerEncoderLayer(2048, 16, 8192, 0.0, batch_first=True) for _ in range(num_layers)]
        model = nn.Sequential(*layers)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(num_steps):
        model(torch.randn(2, 1024, 2048, device="cuda")).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return torch.cuda.max_memory_allocated()


def _run(num_ranks: int, shard: int, size: tuple[int, int], *, fold: bool) -> tuple[Any, float]:
    """Return a run, and the processor time it took."""
    on = labkit.virtual(num_ranks, gpu="h100", cuda=True, shapes=True, fold=shard if fold else None)
    begin = time.process_time()
    run = labkit.run(hybrid_steps, shard, *size, on=on, echo=False, timeout=None)
    return run, time.process_time() - begin


def is_same(size: tuple[int, int]) -> bool:
    """Return whether the ranks that run in a folded run have the spans that they have in a run of all."""
    every, folded = (_run(COMPARED, COMPARED_SHARD, size, fold=fold)[0] for fold in (False, True))
    columns = ("lane", "name", "bytes", "start_ns", "end_ns")
    for rank in range(2 * COMPARED_SHARD):
        ours, theirs = (run.timeline.spans(rank=rank) for run in (folded, every))
        if not len(ours) or any(not np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in columns):
            return False
    return list(folded.results) == list(every.results)


def measure(num_layers: int, num_steps: int) -> dict[str, Any]:
    """Return the processor time of 64 ranks, of 4,096 of which 64 run, and whether a fold changes no times."""
    torch.set_num_threads(1)
    size = num_layers, num_steps
    _run(8, 4, size, fold=False)  # what is imported and worked out on first use is not counted
    few, many = (_run(ranks, SHARD, size, fold=ranks == MANY)[1] for ranks in (2 * SHARD, MANY))
    return {"few_s": few, "many_s": many, "is_same": is_same(size)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.folded", description=__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(measure(asked.layers, asked.steps)) + "\n")


if __name__ == "__main__":
    main()
