"""The step that par is measured with: 1F1B on four virtual stages, wide layers without values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.checks.par import Par, Score
from labkit.exercises.stages.on_ranks import record_of
from labkit.exercises.stages.written import ALTERNATING_4_5, read

_WIDTH, _SIZES = 8192, (512, 512, 512, 256, 256)


def one_step(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Run one training step with the learner's run_schedule: 5 microbatches of 512 and 256 samples, float32."""
    stage = dist.get_rank()
    schedule = [record_of(functions, record) for record in read(ALTERNATING_4_5[stage], stage)]
    with torch.device("meta"):
        module = nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH) for _ in range(4)))
        x = [torch.empty(size, _WIDTH) for size in _SIZES]
        sample = torch.empty(_WIDTH)
    first, last = (x if stage == 0 else None), (x if stage == len(ALTERNATING_4_5) - 1 else None)
    functions["run_schedule"](schedule, module, list(_SIZES), sample, first, last, nn.functional.mse_loss)


PAR = Par(
    what="one step of 4 stages with 4 layers of 8,192 each, 5 microbatches, 1F1B",
    where="4 x H100, NVLink 4",
    program=one_step,
    world_size=4,
    score=Score(time_ns=109_395_307, bytes_sent=134_217_728, peak_bytes=2_743_402_496),
)
