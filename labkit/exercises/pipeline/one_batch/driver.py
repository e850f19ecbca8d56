"""What a rank runs of one_batch."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integers, tensor
from labkit.exercises.stages.on_ranks import outcome, stage_of
from labkit.exercises.stages.pipeline_stage import mean_squared


def drive(functions: Functions, inputs: Values) -> Values:
    """Call run_stage with this rank's stage and the whole batch (one_batch)."""
    stage = stage_of(inputs)
    sizes = integers(inputs, "sizes")
    batch, targets = (_joined(inputs.get(name)) for name in ("inputs", "targets"))
    sample = tensor(inputs, "sample")
    return outcome(stage, functions["run_stage"](stage, sample, sum(sizes), batch, targets, mean_squared))


def _joined(parts: Any) -> Tensor | None:
    return None if parts is None else torch.cat(cast(list[Tensor], parts))
