"""What a rank runs of clip_whole: the shards of a gradient that were drawn."""

from __future__ import annotations

from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import number
from labkit.exercises.hybrid_parallelism.on_ranks import mesh_of, shards_given, weights_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Clip shards by the norm of the whole gradient.

    Inputs: sizes (of the mesh), max_norm, weights (shape, tensor, tied, shard of each).
    """
    shards = shards_given(inputs)
    norm = functions["clip_whole"](weights_of(inputs), list(shards), mesh_of(inputs), number(inputs, "max_norm"))
    found: Value = (
        float(norm) if isinstance(norm, Tensor | float | int) and not isinstance(norm, bool) else _other(norm)
    )
    return {"norm": found, "shards": shards}


def _other(norm: object) -> str | None:
    return None if norm is None else f"a {type(norm).__name__}"
