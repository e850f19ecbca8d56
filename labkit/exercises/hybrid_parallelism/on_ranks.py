"""A mesh for the drivers of this lesson, made by torch.distributed alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.checks.case import Values
from labkit.checks.values import listed
from labkit.exercises.hybrid_parallelism.meshes import along, ends, places, sizes_of
from labkit.plans.mesh_weights import Weight


class Mesh:
    """What the lesson's Mesh is.

    Attributes:
        sizes: Of each axis, outermost first.
        place: This rank's, on each axis.
        groups: This rank's process group along each axis.
        ends: The group of the first and the last stage, on their ranks; None elsewhere, and with a single stage.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        self.sizes, self.place = dict(sizes), places(sizes)[rank]
        self.groups = {axis: _mine([along(each, sizes, [axis]) for each in range(size)], rank) for axis in sizes}
        self.ends = _mine([ends(each, sizes) for each in range(size)], rank)


def mesh_of(inputs: Values) -> Mesh:
    """Return the mesh of a case; every rank calls this."""
    return Mesh(sizes_of(inputs))


def weights_of(inputs: Values) -> list[Weight]:
    """Return the weights of a case, with their gradients where it has any."""
    made = []
    for each in listed(inputs, "weights"):
        parameter = nn.Parameter(torch.zeros(each["shape"], dtype=torch.float64))
        parameter.grad = None if each.get("gradient") is None else each["gradient"].clone()
        made.append(Weight(parameter, each["tensor"], each["tied"]))
    return made


def _mine(lists: list[list[int]], rank: int) -> Any:
    """Return this rank's group of all that are made, None where it is in none; every rank makes all of them."""
    made: dict[tuple[int, ...], Any] = {}
    for ranks in lists:
        if ranks and tuple(ranks) not in made:
            made[tuple(ranks)] = dist.new_group(ranks)
    return next((group for ranks, group in made.items() if rank in ranks), None)


def shards_given(inputs: Values) -> list[Tensor]:
    """Return copies of this rank's shards."""
    return [each["shard"].clone() for each in listed(inputs, "weights")]
