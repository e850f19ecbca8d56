"""A mesh for the drivers of this lesson, made by torch.distributed alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.checks.case import Values
from labkit.checks.on_ranks.groups import group_among
from labkit.checks.values import listed
from labkit.exercises.hybrid_parallelism.meshes import WEIGHT, along, ends, places, sizes_of
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
        self.groups = {axis: group_among(along(each, sizes, [axis]) for each in range(size)) for axis in sizes}
        self.ends = group_among(ends(each, sizes) for each in range(size))


def mesh_of(inputs: Values) -> Mesh:
    """Return the mesh of a case; every rank calls this."""
    return Mesh(sizes_of(inputs))


def weights_of(inputs: Values) -> list[Weight]:
    """Return the weights of a case, with their gradients where it has any."""
    made = []
    for each in listed(inputs, "weights"):
        parameter = nn.Parameter(torch.full(each["shape"], WEIGHT, dtype=torch.float64))
        parameter.grad = None if each.get("gradient") is None else each["gradient"].clone()
        made.append(Weight(parameter, each["tensor"], each["tied"]))
    return made


def shards_given(inputs: Values) -> list[Tensor]:
    """Return copies of this rank's shards."""
    return [each["shard"].clone() for each in listed(inputs, "weights")]
