"""What par is measured with: two steps of torch's DDP with the learner's hook, in several buckets."""

from __future__ import annotations

import torch
from torch import nn

from labkit.checks.exercise import Functions
from labkit.checks.par import Par, Score
from labkit.exercises.gradient_compression.stand_ins import HookStandIn, Recorder, stand_in


def two_steps(functions: Functions) -> None:
    """Take two steps with four layers of 256, two of them in a bucket, whose packets are windows of 4,000 entries."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.5)
    memory = Recorder(stand_in({"kind": "window", "length": 4000}, functions, {}))
    ddp.register_comm_hook(functions.get("HookState", HookStandIn)(memory), functions["compression_hook"])
    for _ in range(2):
        ddp(torch.ones(8, 256)).sum().backward()


HOOK = Par(
    what="two steps of DDP with four layers of 256 and packets of 4,000 entries",
    where="4 machines with one A100 each, Ethernet of 10 Gbit/s",
    program=two_steps,
    world_size=4,
    score=Score(time_ns=2_248_915, bytes_sent=1_245_036, peak_bytes=7_576_816),
    cluster={"gpu": "a100", "gpus_per_node": 1, "nic": "ethernet_10g"},
)
