"""The first half of power_sgd: a list of tensors averaged over the ranks by one all_reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.findings import Finding, hanging, near, normal, raising, unlike, wrong_value
from labkit.words import join

_ROUNDING = 1e-9


def together_case(
    name: str,
    seed: int,
    world_size: int,
    shapes: Sequence[Sequence[int]],
    *,
    group: Sequence[int] | None = None,
) -> Case:
    """Return a case in which each rank has a list of tensors of these shapes.

    Args:
        name: What is special about it.
        seed: Draws the tensors.
        world_size: Ranks of the world.
        shapes: Of the tensors.
        group: Global ranks that take part; None is everybody.
    """
    members = list(range(world_size)) if group is None else list(group)
    inputs: list[Values] = []
    for rank in range(world_size):
        draws = [normal(seed + 100 * rank + place, *shape, dtype=torch.float64) for place, shape in enumerate(shapes)]
        mine: dict[str, Value] = {"tensors": cast(Value, draws)}
        inputs.append(mine if group is None else {**mine, "group": list(members)})
    return Case(name, world_size, tuple(inputs), {"ranks": cast(Value, members)})


def together(case: Case) -> list[Values]:
    """Return what each rank must have (the oracle)."""
    ranks, means = cast(list[int], case.about["ranks"]), cast(Value, _means(case))
    return [{"means": means} if rank in ranks else {"member": False} for rank in range(case.world_size)]


def _means(case: Case) -> list[Tensor]:
    lists = [cast(list[Tensor], case.inputs[rank]["tensors"]) for rank in cast(list[int], case.about["ranks"])]
    return [torch.stack(of_ranks).mean(0) for of_ranks in zip(*lists, strict=True)]


def wrong_together(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong, what travelled before what came."""
    ranks, right = cast(list[int], case.about["ranks"]), _means(case)
    for rank in ranks:
        means, own = got[rank].get("means"), cast(list[Tensor], case.inputs[rank]["tensors"])
        if not isinstance(means, list):
            return Finding(
                "no list of means", f"Rank {rank}: average_together returned {means or 'nothing'}.", rank=rank
            )
        if len(means) != len(own):
            return Finding(
                "no list of means", f"Rank {rank}: {len(means)} means came for {len(own)} tensors.", rank=rank
            )
        kinds = [call.kind for call in wire.collectives if call.rank == rank and call.bytes and call.kind != "barrier"]
        if len(kinds) != 1 or not kinds[0].startswith("all_reduce"):
            name = "one all-reduce for each tensor" if len(kinds) >= len(own) else "no all-reduce"
            calls = "collective" if len(kinds) == 1 else "collectives"
            what = f"{len(kinds)} {calls} ({join(sorted(set(kinds)))})" if kinds else "no collective"
            return Finding(name, f"Rank {rank} started {what} for {len(own)} tensors.", "1 all_reduce", what, rank)
        waited = all(call.waited is not None for call in wire.collectives if call.rank == rank)
        if got[rank]["changed"]:
            return Finding(
                "tensors changed", f"Rank {rank}: average_together changed the tensors it was given.", rank=rank
            )
        for place, (came, wanted) in enumerate(zip(means, right, strict=True)):
            what = f"Rank {rank}: the mean of tensor {place}"
            odd = unlike(came, wanted, what, rank=rank)
            if odd is not None:
                return odd
            if not near(came, wanted, _ROUNDING):
                total = wanted * len(ranks)
                named = {
                    "sum instead of mean": total,
                    "divided by the whole world": total / case.world_size,
                    "only this rank's tensors": own[place],
                    "only this rank's tensors ": own[place] / len(ranks),
                    "divided twice": wanted / len(ranks),
                }
                name = next((name for name, wrong in named.items() if near(came, wrong, _ROUNDING)), "not cut right")
                name = name if waited else "read before it came"
                return wrong_value(name.strip(), what, cast(Tensor, came), wanted, rank=rank)
    return None


NOT_FLAT = raising(
    "joined with their shapes",
    "Tensors of other shapes cannot be joined as they are: flatten each first.",
    "same number of dimensions",
    "Sizes of tensors must match",
    "to be equal size",
)

WHOLE_WORLD = hanging(
    "all ranks of the world",
    "Only the ranks of the group take part: hand group=group to dist.all_reduce, and group to dist.get_world_size.",
    "not part of group",
    "take part",
    "is not in the group",
)

TOGETHER = {
    "no_list_of_means": "average_together returns a list, a mean for each tensor, in their order.",
    "no_all-reduce": "Start one dist.all_reduce, on all tensors joined: it adds in place.",
    "tensors_changed": "The tensors that came in were changed. torch.cat makes a copy; reduce that.",
    "sum_instead_of_mean": "The sum came back: divide by dist.get_world_size(group).",
    "divided_by_the_whole_world": "Divided by the ranks of the whole world: dist.get_world_size(group) counts those "
    "that take part.",
    "read_before_it_came": "With async_op=True the all_reduce only begins: wait() for its work before you cut the "
    "pieces.",
    "divided_twice": "Divided by the number of ranks twice.",
    "not_cut_right": "The pieces do not lie where they were joined: split by [tensor.numel() for tensor in "
    "tensors], and zip the pieces with the tensors.",
    "one_all-reduce_for_each_tensor": "Each tensor travelled for itself, and each all-reduce pays its "
    "latency. Join them first, torch.cat([tensor.flatten() for tensor in tensors]), and reduce once.",
    "only_this_rank's_tensors": "Only this rank's own tensors came back: dist.all_reduce works in place, on "
    "the joined tensor. Cut the pieces out of that one, afterwards.",
}
"""Mistakes of average_together, as findings.mistakes takes them."""
