"""Hidden cases of recovery_policy."""

from __future__ import annotations

import random
from dataclasses import replace

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.when_machines_fail.recovery_policy.exercise import recovery_case
from labkit.failures.recovery import JOBS


def cases(draw: random.Random) -> list[Case]:
    llama, opt, large = JOBS.values()
    seeds = tuple(draw.sample(range(1_000_000), 3))
    return for_half_and_all([
        recovery_case(
            "16,384 GPUs as Meta expects of RSC: 1.8 hours between failures",
            replace(llama, mean_s=6_480, save_s=draw.choice([40.0, 80.0]), days=8), seeds,
        ),
        recovery_case(
            "1,000 GPUs as ByteRobust reports: 8.6 hours between failures",
            replace(
                opt, nodes=125, replica_nodes=5, mean_s=30_857, restart_s=draw.choice([300.0, 600.0]), detect_s=60.0
            ),
            seeds,
        ),
        recovery_case(
            "100,000 GPUs, a longer repair", replace(large, repair_s=draw.choice([2, 3]) * 86_400.0), seeds,
        ),
    ])  # fmt: skip
