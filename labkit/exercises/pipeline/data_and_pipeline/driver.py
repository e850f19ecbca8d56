"""What a rank runs of data_and_pipeline."""

from __future__ import annotations

from typing import cast

from torch.distributed.device_mesh import init_device_mesh

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.exercises.pipeline.on_ranks import job, outcome, stage_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Call hybrid_step on a mesh of pipelines. Inputs: as for run_schedule, and mesh, [pipelines, stages]."""
    shape = tuple(cast(list[int], inputs["mesh"]))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "pipe"))
    stage = stage_of(inputs)
    return outcome(stage, functions["hybrid_step"](mesh, *job(functions, stage, inputs)))
