"""Hidden cases of lay_out."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.hybrid_parallelism.lay_out.exercise import lay_out_case
from labkit.plans.hybrid_step import A100, A100_PCIE, RTX_4090, job_of


def cases(draw: random.Random) -> list[Case]:
    return for_half_and_all([
        lay_out_case(
            "175 B on 1024 A100s", job_of(12288, 96, 1024, draw.choice([1536, 3072]), nic_bytes_s=24e9, **A100)
        ),
        lay_out_case(
            "30 B on 64 GPUs of 40 GB, 4 in a node, over PCIe",
            job_of(7168, 48, 64, draw.choice([256, 512]), gpus_per_node=4, nic_bytes_s=draw.choice([6e9, 12e9]),
                   **A100_PCIE),
        ),
        lay_out_case(
            "13 B on 64 GPUs of 24 GB, over PCIe",
            job_of(5120, 40, 64, draw.choice([256, 512]), nic_bytes_s=draw.choice([1.5e9, 3e9]), **RTX_4090),
        ),
    ])  # fmt: skip
