"""Stages of a model on a mesh, with gradients that were drawn: what the judge of two exercises knows of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks.case import Case, Value, Values
from labkit.checks.declared import said
from labkit.checks.draws import normal, part_of
from labkit.checks.values import integer, listed, tensor
from labkit.exercises.hybrid_parallelism.meshes import Sizes, along, as_value, ends, of_rank, places, world_size
from labkit.plans.mesh_weights import CUT, TOKENS, WHOLE

REPLICAS = ("data", "shard")


class Kind(NamedTuple):
    """A weight of every stage, or of the first and the last: its shape on a rank, and who else holds it."""

    shape: tuple[int, ...]
    tensor: str
    tied: bool = False


KINDS = (
    Kind((3, 4), CUT), Kind((5,), WHOLE), Kind((3,), TOKENS), Kind((2, 3), CUT, tied=True),
    Kind((2,), TOKENS, tied=True),
)  # fmt: skip


def kinds_at(place: Mapping[str, int], sizes: Mapping[str, int]) -> list[Kind]:
    """Return the weights of a rank's stage; what is tied is on the first and the last."""
    stage, last = place.get("pipeline", 0), sizes.get("pipeline", 1) - 1
    return [each for each in KINDS if not each.tied or stage in (0, last)]


def stage_case(
    name: str, seed: int, sizes: Sizes, *, num_targets: Sequence[int] = (), max_norm: float = 0.0
) -> Case:  # fmt: skip
    """Return a case: with `num_targets` of each replica its gradients, else the shards of the combined gradient."""
    inputs: list[Values] = []
    for rank, place in enumerate(places(sizes)):
        weights: list[Value] = []
        for number, kind in enumerate(kinds_at(place, sizes)):
            holders = [_whose(*each, kind, bool(num_targets)) for each in enumerate(places(sizes))]
            whose = holders[rank] if holders.count(holders[rank]) > 1 else ("rank", rank)
            drawn = normal(part_of(seed, *whose, number), *kind.shape, dtype=torch.float64)
            about: dict[str, Value] = {"shape": list(kind.shape), "tensor": kind.tensor, "tied": kind.tied}
            what: dict[str, Value] = {"gradient": drawn} if num_targets else {"shard": shard(drawn, sizes, place)}
            weights.append({**about, **what})
        about = {"num_targets": num_targets[replica(place, sizes)]} if num_targets else {"max_norm": max_norm}
        inputs.append({"rank": rank, "sizes": as_value(sizes), "weights": weights, **about})
    return Case(name, world_size(sizes), tuple(inputs))


def _whose(rank: int, place: Mapping[str, int], kind: Kind, is_own: bool) -> tuple[object, ...]:
    """Return which ranks are given the same numbers.

    Gradients are each rank's own, but for tensor ranks that have all computed the whole one. Shards are the same along
    "data", on both ends of a pipeline, and on tensor ranks but for pieces.
    """
    if is_own and kind.tensor != WHOLE:
        return ("rank", rank)
    if is_own:
        return ("replica", *(place.get(axis, 0) for axis in (*REPLICAS, "pipeline")))
    stage = "ends" if kind.tied else place.get("pipeline", 0)
    return ("piece", stage, place.get("tensor", 0) if kind.tensor == CUT else 0, place.get("shard", 0))


def replica(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """Return the number of a rank's replica."""
    return place.get("data", 0) * sizes.get("shard", 1) + place.get("shard", 0)


def shard(whole: Tensor, sizes: Mapping[str, int], place: Mapping[str, int]) -> Tensor:
    """Return the run of a tensor that a place along "shard" owns."""
    count, flat = sizes.get("shard", 1), whole.reshape(-1)
    rows = functional.pad(flat, (0, -len(flat) % count)).view(count, -1)
    return rows[place.get("shard", 0)].clone()


def same_shards(came: list[Tensor], wanted: list[Tensor]) -> bool:
    """Return whether these are the same shards, up to rounding."""
    return len(came) == len(wanted) and all(_same_shard(*pair) for pair in zip(came, wanted, strict=True))


def _same_shard(came: Tensor, wanted: Tensor) -> bool:
    return came.shape == wanted.shape and torch.allclose(came, wanted, rtol=1e-5, atol=1e-9)


def first_wrong(came: list[Tensor], wanted: list[Tensor]) -> dict[str, str]:
    """Return which shard is the first wrong one, by number and kind of its weight, and both of them as text."""
    pairs = list(zip(came, wanted, strict=True))
    number = next((n for n, pair in enumerate(pairs) if not _same_shard(*pair)), 0)
    kind = KINDS[number]
    which = f'number {number}, of a weight that is "{kind.tensor}"' + (" and tied" if kind.tied else "")
    return {"which": which, "got": said(came[number]), "wanted": said(wanted[number])}


Share = Callable[[int, int, int], float]
"""The weight of a replica: (its targets, everybody's, how many replicas)."""


def combined(
    case: Case, rank: int, *, share: Share = lambda own, everybody, count: own / everybody,
    also_tensor: Sequence[str] = (), not_tokens: bool = False, not_ends: bool = False, all_stages: bool = False,
    replicas: Sequence[str] = REPLICAS, targets: Sequence[str] = REPLICAS, of_tied: float = 1.0, cut: bool = True,
    every_end: bool = False,
) -> list[Tensor]:  # fmt: skip
    """Return a rank's shards of the combined gradients, or what comes of a mistake.

    Args:
        case: What was given.
        rank: Whose.
        share: The weight of a replica's gradient.
        also_tensor: Kinds that are summed over "tensor" although they need not be.
        not_tokens: What saw some tokens only is not summed.
        not_ends: What is tied is not summed.
        all_stages: Everything is summed over the pipeline, too.
        replicas: The axes that replicas are summed along.
        targets: The axes that numbers of targets are summed along.
        of_tied: What the sum over both ends is multiplied by.
        cut: Whether shards are cut; else whole gradients.
        every_end: What is not tied is summed over both ends, too.
    """
    sizes, place = of_rank(case, rank)
    count = len(along(rank, sizes, REPLICAS))
    found = []
    for number, kind in enumerate(kinds_at(place, sizes)):
        axes = list(replicas)
        if (kind.tensor == TOKENS and not not_tokens) or kind.tensor in also_tensor:
            axes.append("tensor")
        sources = along(rank, sizes, axes)
        if all_stages:
            sources = along(rank, sizes, [*axes, "pipeline"])
        elif (kind.tied or every_end) and not not_ends and (both := ends(rank, sizes)):
            sources = [each for end in both for each in along(end, sizes, axes)]
        whole = torch.zeros(kind.shape, dtype=torch.float64)
        for each in sources:
            weights, own = listed(case.inputs[each], "weights"), integer(case.inputs[each], "num_targets")
            everybody = sum(integer(case.inputs[n], "num_targets") for n in along(each, sizes, targets))
            whole = whole + share(own, everybody, count) * tensor(weights[number], "gradient")
        whole = whole * (of_tied if kind.tied and ends(rank, sizes) else 1.0)
        found.append(shard(whole, sizes, place) if cut else whole)
    return found


def norm_of(
    case: Case, rank: int, count: Callable[[Kind, Mapping[str, int], Sizes, Mapping[str, int]], float]
) -> float:
    """Return the root of the sum of squares in which each shard of each rank counts so many times.

    Args:
        case: Whose shards.
        rank: The rank that asks.
        count: (kind of weight, a place, the sizes, the asking rank's place) -> how many times its shard counts.
    """
    sizes, mine = of_rank(case, rank)
    total = 0.0
    for each, place in enumerate(places(sizes)):
        given = listed(case.inputs[each], "weights")
        for kind, weight in zip(kinds_at(place, sizes), given, strict=True):
            total += count(kind, place, sizes, mine) * float(tensor(weight, "shard").square().sum())
    return math.sqrt(total)
