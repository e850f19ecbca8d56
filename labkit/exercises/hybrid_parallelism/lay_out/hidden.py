"""Hidden cases of lay_out."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.hybrid_parallelism.lay_out.exercise import lay_out_case
from labkit.plans.hybrid_step import A100, job_of


def cases(draw: random.Random) -> list[Case]:
    return for_half_and_all([
        lay_out_case(
            "175 B on 1024 A100s", job_of(12288, 96, 1024, draw.choice([1536, 3072]), nic_bytes_s=24e9, **A100)
        ),
        lay_out_case(
            "20 B on 32 GPUs of 80 GB, a slow network",
            job_of(6144, 44, 32, draw.choice([128, 256]), nic_bytes_s=draw.choice([1.5e9, 3e9]), **A100),
        ),
        lay_out_case(
            "7 B on 64 GPUs, 4 in a node, 100 Gbit/s for a whole node",
            job_of(4096, 32, 64, draw.choice([256, 512]), gpus_per_node=4, memory_bytes=40e9, nic_bytes_s=3e9, **A100),
        ),
    ])  # fmt: skip
