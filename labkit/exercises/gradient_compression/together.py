"""The first half of power_sgd: a list of tensors averaged over the ranks by one all_reduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.values import integers, tensors
from labkit.checks.wire import Wire
from labkit.words import join, plural


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
        draws = [
            normal(part_of(seed, "rank", rank, place), *shape, dtype=torch.float64)
            for place, shape in enumerate(shapes)
        ]
        mine: dict[str, Value] = {"tensors": [*draws]}
        inputs.append(mine if group is None else {**mine, "group": [*members]})
    return Case(name, world_size, tuple(inputs), {"ranks": [*members]})


def together(case: Case) -> list[Values]:
    """Return what each rank must have (the oracle)."""
    ranks = integers(case.about, "ranks")
    return [
        {"means": [*_means(case)], "changed": False} if rank in ranks else {"member": False}
        for rank in range(case.world_size)
    ]


def _means(case: Case) -> list[Tensor]:
    lists = [tensors(case.inputs[rank], "tensors") for rank in integers(case.about, "ranks")]
    return [torch.stack(of_ranks).mean(0) for of_ranks in zip(*lists, strict=True)]


def wrong_together(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong, what travelled before what came."""
    for rank in integers(case.about, "ranks"):
        count, means = len(tensors(case.inputs[rank], "tensors")), got[rank].get("means")
        if not isinstance(means, list) or len(means) != count:
            came = plural(len(means), "mean") if isinstance(means, list) else means or "nothing"
            message = f"Rank {rank}: average_together returned {came} for {plural(count, 'tensor')}."
            yield Finding("not a list of means", message, rank=rank)
        yield from _wrong_calls(wire, rank, count)
        if got[rank]["changed"]:
            message = f"Rank {rank}: average_together changed the tensors it was given."
            yield Finding("tensors changed", message, rank=rank)
        for place, (mean, right) in enumerate(zip(tensors(got[rank], "means"), _means(case), strict=True)):
            if not near(mean, right):
                name = _named(case, rank, place, mean, right) if _all_waited(wire, rank) else "read before it came"
                yield wrong_value(name, f"Rank {rank}: the mean of tensor {place}", mean, right, rank=rank)


def _wrong_calls(wire: Wire, rank: int, count: int) -> Iterator[Finding]:
    kinds = [call.kind for call in wire.collectives if call.rank == rank and call.bytes and call.kind != "barrier"]
    if len(kinds) != 1 or not kinds[0].startswith("all_reduce"):
        name = "one all-reduce for each tensor" if len(kinds) >= count else "no all-reduce"
        what = plural(len(kinds), "collective") + (f" ({join(sorted(set(kinds)))})" if kinds else "")
        yield Finding(name, f"Rank {rank} started {what} for {count} tensors.", "1 all_reduce", what, rank)


def _all_waited(wire: Wire, rank: int) -> bool:
    return all(call.waited is not None for call in wire.collectives if call.rank == rank)


def _named(case: Case, rank: int, place: int, mean: Tensor, right: Tensor) -> str:
    members, own = len(integers(case.about, "ranks")), tensors(case.inputs[rank], "tensors")[place]
    ways = [
        ("sum instead of mean", lambda: right * members),
        ("divided by the whole world", lambda: right * members / case.world_size),
        ("only this rank's tensors", lambda: own),
        ("only this rank's tensors", lambda: own / members),
        ("divided twice", lambda: right / members),
    ]
    return as_if(mean, ways, near) or "not cut right"


NOT_FLAT, WHOLE_WORLD = "joined with their shapes", "all ranks of the world"

SIGNS = {
    NOT_FLAT: ("same number of dimensions", "Sizes of tensors must match", "to be equal size"),
    WHOLE_WORLD: (*HANGS, "not part of group", "take part", "is not in the group"),
}

MISTAKES = {
    NOT_FLAT: "Tensors of different shapes cannot be joined as they are: flatten each first.",
    WHOLE_WORLD: "Only the ranks of the group take part: hand group=group to dist.all_reduce, and group to "
    "dist.get_world_size.",
    "not a list of means": "average_together returns a list, a mean for each tensor, in their order.",
    "no all-reduce": "Start one dist.all_reduce, on all tensors joined: it adds in place.",
    "tensors changed": "The input tensors were changed. torch.cat makes a copy; reduce that.",
    "sum instead of mean": "The sum came back: divide by dist.get_world_size(group).",
    "divided by the whole world": "Divided by the ranks of the whole world: dist.get_world_size(group) counts those "
    "that take part.",
    "read before it came": "With async_op=True the all_reduce only begins: wait() for its work before you cut the "
    "pieces.",
    "divided twice": "Divided by the number of ranks twice.",
    "not cut right": (
        "The pieces were cut in the wrong places: split by [tensor.numel() for tensor in tensors], and zip the pieces "
        "with the tensors."
    ),
    "one all-reduce for each tensor": (
        "Each tensor travelled on its own, and each all-reduce pays its latency. Join them first, "
        "torch.cat([tensor.flatten() for tensor in tensors]), and reduce once."
    ),
    "only this rank's tensors": (
        "Only this rank's own tensors came back: dist.all_reduce works in place, on the joined tensor. Cut the pieces "
        "out of that tensor afterwards."
    ),
}
