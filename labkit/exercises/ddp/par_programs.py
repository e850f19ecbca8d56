"""What par is measured with: a step of a model of equal layers, with the learner's wrapper. Tensors without data."""

from __future__ import annotations

import torch
from torch import nn

from labkit.checks.exercise import Functions
from labkit.checks.par import Par, Score


def wrap_and_step(functions: Functions) -> None:
    """Wrap eight layers of 1024 x 1024 in buckets of 5 MB and take one step with a batch of 512."""
    model = nn.Sequential(*(nn.Linear(1024, 1024, device="meta") for _ in range(8)))
    wrapped = functions["BucketedDDP"](model, 5.0)
    wrapped(torch.empty(512, 1024, device="meta")).sum().backward()
    wrapped.finish_gradient_synchronization()


BUCKETS = Par(
    what="wrapping 8 layers of 1024 x 1024 and one step in buckets of 5 MB",
    where="8 x A100, PCIe 4",
    program=wrap_and_step,
    world_size=8,
    score=Score(time_ns=5_976_168, bytes_sent=67_174_400, peak_bytes=107_053_064),
    cluster={"gpu": "a100", "link": "pcie4"},
    most_time=1.08,
    most_memory=1.1,
)
