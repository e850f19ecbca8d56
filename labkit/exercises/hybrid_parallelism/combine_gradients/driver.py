"""What a rank runs of combine_gradients: a stand-in for a stage, whose gradients were drawn."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer
from labkit.exercises.hybrid_parallelism.on_ranks import mesh_of, weights_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Combine a stage's gradients on a mesh.

    Inputs: sizes (of the mesh), num_targets (of this rank's samples), weights (shape, tensor, tied, gradient of each).
    """
    weights = weights_of(inputs)
    shards = functions["combine_gradients"](weights, mesh_of(inputs), integer(inputs, "num_targets"))
    plain = list(shards) if isinstance(shards, list | tuple) else shards
    return {"shards": plain if plain is None or isinstance(plain, list) else f"{plain!r:.60}"}
