"""One gradient out of those of all ranks: what is summed over which axis, and by which weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Values
from labkit.checks.cut_wire import left_alone
from labkit.checks.declared import Mistake, Result, declared
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import NOTHING, WRONG_LENGTH, WRONG_SHAPE
from labkit.checks.values import integer, listed, tensor
from labkit.checks.wire import Wire
from labkit.exercises.hybrid_parallelism.combine_gradients.driver import drive
from labkit.exercises.hybrid_parallelism.meshes import WEIGHT, along, ends, of_rank
from labkit.exercises.hybrid_parallelism.stages import (
    REPLICAS,
    combined,
    first_wrong,
    kinds_at,
    same_shards,
    shard,
    stage_case,
)
from labkit.plans.mesh_weights import CUT, TOKENS, WHOLE

EQUAL_SHARES = {
    "each alike": lambda own, everybody, count: 1 / count,
    "not weighed": lambda own, everybody, count: 1.0,
    "by targets": lambda own, everybody, count: float(own),
    "twice": lambda own, everybody, count: own / everybody / count,
    "rounded down": lambda own, everybody, count: float(own // everybody),
    "upside down": lambda own, everybody, count: everybody / own,
}


def expected(case: Case) -> list[Values]:
    """Return each rank's shards of the gradient that one process would have (the oracle)."""
    return [{"shards": list(combined(case, rank))} for rank in range(case.world_size)]


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: a gradient to those that hold the same weights."""
    found: dict[int, Bytes] = {}
    for rank in range(case.world_size):
        sizes, place = of_rank(case, rank)
        numbers = sum(len(each) for each in combined(case, rank))
        if len(along(rank, sizes, REPLICAS)) > 1 and kinds_at(place, sizes):
            found |= {rank: both_ways([rank, -1], numbers)[rank]}
    return found


def _way(how: Callable[[Case, int], list[Tensor]]) -> dict[str, Callable[[Case, int], list[Tensor]]]:
    return {"shards": how}


def _as(**changes: object) -> dict[str, Callable[[Case, int], list[Tensor]]]:
    return _way(partial(combined, **changes))  # type: ignore[arg-type]


def _padded_in_front(case: Case, rank: int) -> list[Tensor]:
    sizes, place = of_rank(case, rank)
    count, whole = sizes.get("shard", 1), combined(case, rank, cut=False)
    flat = [torch.cat([each.new_zeros(-each.numel() % count), each.reshape(-1)]) for each in whole]
    return [each.view(count, -1)[place.get("shard", 0)].clone() for each in flat]


def _strided(case: Case, rank: int) -> list[Tensor]:
    sizes, place = of_rank(case, rank)
    count, whole = sizes.get("shard", 1), combined(case, rank, cut=False)
    return [functional.pad(each.reshape(-1), (0, -each.numel() % count))[place["shard"] :: count] for each in whole]


def _other_place(case: Case, rank: int) -> list[Tensor]:
    """Return the shards of the neighbour along "shard"."""
    sizes, _ = of_rank(case, rank)
    ring = along(rank, sizes, ["shard"])
    return combined(case, ring[(ring.index(rank) + 1) % len(ring)])


def _whole_world(case: Case, rank: int) -> list[Tensor] | None:
    """Return what comes of a sum over mesh.ends where that is None, which means everybody."""
    sizes, _ = of_rank(case, rank)
    if ends(rank, sizes):
        return None
    found, (_, place) = combined(case, rank), of_rank(case, rank)
    for number, kind in enumerate(kinds_at(place, sizes)):
        if kind.tied:
            parts = [combined(case, each, cut=False)[number] for each in range(case.world_size)]
            found[number] = shard(torch.stack(parts).sum(0), sizes, place)
    return found


def _targets_along(axis: str) -> Callable[[Case, int], list[Tensor] | None]:
    """Return what comes of counting targets along one axis of replicas.

    None along "shard" where it has one rank: there it is no other than not to weigh at all.
    """

    def way(case: Case, rank: int) -> list[Tensor] | None:
        sizes, _ = of_rank(case, rank)
        return None if axis == "shard" and sizes["shard"] == 1 else combined(case, rank, targets=[axis])

    return way


def _weighed_last(case: Case, rank: int) -> list[Tensor]:
    """Return what comes of a sum that is multiplied by the asking rank's own weight."""
    sizes, _ = of_rank(case, rank)
    targets = {each: integer(case.inputs[each], "num_targets") for each in along(rank, sizes, REPLICAS)}
    own = targets[rank] / sum(targets.values())
    return [each * own for each in combined(case, rank, share=EQUAL_SHARES["not weighed"])]


def _of_the_most(case: Case, rank: int) -> list[Tensor]:
    """Return what comes of weighing by the most targets that a replica has, in place of all of them."""
    sizes, _ = of_rank(case, rank)
    targets = [integer(case.inputs[each], "num_targets") for each in along(rank, sizes, REPLICAS)]
    return [each * (sum(targets) / max(targets)) for each in combined(case, rank)]


def _tokens_averaged(case: Case, rank: int) -> list[Tensor]:
    sizes, place = of_rank(case, rank)
    by = [sizes.get("tensor", 1) if kind.tensor == TOKENS else 1 for kind in kinds_at(place, sizes)]
    return [each / count for each, count in zip(combined(case, rank), by, strict=True)]


def _tied_or_tokens(case: Case, rank: int, *, ends_first: bool) -> list[Tensor]:
    """Return what comes where a weight that is tied and saw its own tokens is summed over one of the two alone."""
    sizes, place = of_rank(case, rank)
    right, other = combined(case, rank), combined(case, rank, not_tokens=ends_first, not_ends=not ends_first)
    both = [kind.tied and kind.tensor == TOKENS for kind in kinds_at(place, sizes)]
    return [two if is_both else one for one, two, is_both in zip(right, other, both, strict=True)]


def _never_summed(case: Case, rank: int) -> list[Tensor]:
    """Return this rank's own gradients, weighed by targets."""
    sizes, place = of_rank(case, rank)
    own, group = integer(case.inputs[rank], "num_targets"), along(rank, sizes, REPLICAS)
    everybody = sum(integer(case.inputs[each], "num_targets") for each in group)
    gradients = [tensor(each, "gradient") for each in listed(case.inputs[rank], "weights")]
    return [shard(each * (own / everybody), sizes, place) for each in gradients]


def _parameters(case: Case, rank: int) -> list[Tensor]:
    """Return what comes of taking the parameters for their gradients."""
    inputs: list[Values] = []
    for each in case.inputs:
        weights = [{**one, "gradient": torch.full_like(one["gradient"], WEIGHT)} for one in listed(each, "weights")]
        inputs.append({**each, "weights": weights})
    return combined(replace(case, inputs=tuple(inputs)), rank)


def _over_everybody(case: Case, rank: int) -> list[Tensor] | None:
    """Return what comes of all-reduces without group=, where every rank has the same weights.

    There are as many as the axes that a weight is summed over; each but the first multiplies by the number of ranks.
    """
    sizes, place = of_rank(case, rank)
    if sizes.get("pipeline", 1) > 1:
        return None
    found = []
    for number, kind in enumerate(kinds_at(place, sizes)):
        whole = torch.zeros(kind.shape, dtype=torch.float64)
        for each in range(case.world_size):
            own = integer(case.inputs[each], "num_targets")
            everybody = sum(integer(case.inputs[n], "num_targets") for n in along(each, sizes, REPLICAS))
            whole = whole + own / everybody * tensor(listed(case.inputs[each], "weights")[number], "gradient")
        calls = len(REPLICAS) + (kind.tensor == TOKENS)
        found.append(shard(whole * float(case.world_size) ** (calls - 1), sizes, place))
    return found


def _not_multiplied(sign: float) -> Callable[[Case, int], list[Tensor]]:
    """Return what comes where the weight is added to each gradient, or taken from it."""

    def way(case: Case, rank: int) -> list[Tensor]:
        sizes, place = of_rank(case, rank)
        ones = [
            [{**each, "gradient": torch.ones_like(tensor(each, "gradient"))} for each in listed(inputs, "weights")]
            for inputs in case.inputs
        ]
        inputs = tuple({**each, "weights": one} for each, one in zip(case.inputs, ones, strict=True))
        weights = combined(replace(case, inputs=inputs), rank, cut=False)
        gradients = combined(case, rank, share=EQUAL_SHARES["not weighed"], cut=False)
        pairs = zip(gradients, weights, strict=True)
        return [shard(gradient + sign * weight, sizes, place) for gradient, weight in pairs]

    return way


def _unwaited(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    if alone := left_alone(wire):
        text = (
            f"Rank {alone[0].rank} began a collective with async_op=True ({alone[0].kind}), and nobody waited for it."
        )
        yield Finding(_ALONE, text, rank=alone[0].rank)


_ALONE = "not waited for"
_SIZES = {"data": 2, "shard": 1, "pipeline": 1, "tensor": 2}
EXERCISE = declared(
    id="combine_gradients",
    functions=("combine_gradients",),
    driver=drive,
    oracle=expected,
    least=least,
    looks=(
        _unwaited,
        Result("shards", "{ranks}: a shard of the combined gradient is wrong. On rank {rank} the first wrong one is "
               "{which}: {got}.", same=same_shards, shown=first_wrong),
    ),
    mistakes=(
        Mistake("parameters for gradients",
                "You combine the parameters. A gradient is in weight.parameter.grad.", _way(_parameters)),
        Mistake("all ends summed",
                "The first and the last stage hold different layers: only a weight that is tied is the same on both. "
                "Sum over mesh.ends where weight.tied, and nothing else.", _as(every_end=True)),
        Mistake("copies summed",
                "A weight that every tensor rank holds whole has its whole gradient on each of them: summed over "
                "\"tensor\" it counts N times. Only \"tokens\" is a partial sum.",
                _as(also_tensor=[WHOLE])),
        Mistake("tokens not summed",
                "Weights of kind \"tokens\" have a partial sum on each tensor rank: all-reduce them over \"tensor\".",
                _as(not_tokens=True)),
        Mistake("pieces mixed up",
                "Gradients of different pieces were added up. Tensor ranks hold other pieces of what is \"cut\", so a "
                "group of replicas has one tensor place: groups[\"data\"] and groups[\"shard\"].",
                {"shards": (partial(combined, also_tensor=[CUT]), partial(combined, also_tensor=[CUT, WHOLE]),
                            partial(combined, also_tensor=[CUT, WHOLE, TOKENS], all_stages=True))}),
        Mistake("tied on one stage",
                "A tied weight is on the first and on the last stage, and each has computed a part of its gradient: "
                "all-reduce it over mesh.ends, where there is one.", _as(not_ends=True)),
        Mistake("tied averaged",
                "Each end has computed a part of the tied weight's gradient, and the whole is their sum. Do not divide "
                "it by two.", _as(of_tied=0.5)),
        Mistake("no ends, everybody",
                "With one stage mesh.ends is None, and group=None means every rank there is. Sum over mesh.ends only "
                "where it is not None.", _way(_whole_world)),  # type: ignore[arg-type]
        Mistake("each replica alike",
                "Replicas have different numbers of targets. Each gradient is a mean over its own: weigh it by "
                "num_targets over everybody's.", _as(share=EQUAL_SHARES["each alike"])),
        Mistake("averaged twice",
                "The shares num_targets / everybody's add up to 1 over the replicas: the sum is the mean already. Do "
                "not divide by the number of replicas as well, and count each replica's targets once.",
                _as(share=EQUAL_SHARES["twice"])),
        Mistake("weighed after the sum",
                "You multiply the sum by this rank's own weight. Every replica's gradient has another one: multiply "
                "before the all-reduce.", _way(_weighed_last)),
        Mistake("weights rounded down", "num_targets // everybody's is 0 wherever another replica has targets, too: "
                "divide with /.", _as(share=EQUAL_SHARES["rounded down"])),
        Mistake("the most targets", "You weigh by the largest number of targets. Everybody's is their sum, over "
                "\"data\" and over \"shard\".", _way(_of_the_most)),
        Mistake("tokens averaged",
                "Each tensor rank has a partial sum of a gradient of kind \"tokens\": the whole is their sum. Do not "
                "divide it by the number of tensor ranks.", _way(_tokens_averaged)),
        Mistake("tied or tokens",
                "A weight can be tied *and* of kind \"tokens\": then it is summed over \"tensor\" and over mesh.ends. "
                "Ask the two questions one by one.",
                {"shards": (partial(_tied_or_tokens, ends_first=False), partial(_tied_or_tokens, ends_first=True))}),
        Mistake("weighed upside down",
                "The weight is upside down: num_targets over everybody's, which is at most 1.",
                _as(share=EQUAL_SHARES["upside down"])),
        Mistake("all but tokens",
                "Over \"tensor\" you sum other weights than those of kind \"tokens\": it must be those, and no other.",
                {"shards": tuple(partial(combined, also_tensor=each, not_tokens=True)
                                 for each in ([CUT, WHOLE], [CUT], [WHOLE]))}),
        Mistake("added, not multiplied",
                "The weight is added to each gradient, or taken from it: multiply the gradient by it.",
                {"shards": (_not_multiplied(1.0), _not_multiplied(-1.0))}),
        Mistake("some replicas' targets",
                "The number of everybody's targets is summed over \"data\" and over \"shard\": yours is over one "
                "of the two.",
                {"shards": (_targets_along("data"), _targets_along("shard"))}),
        Mistake("not weighed",
                "The gradients were added up as they are: weigh each by num_targets over everybody's, of all replicas "
                "along \"data\" and \"shard\".",
                {"shards": (partial(combined, share=EQUAL_SHARES["not weighed"]),
                            partial(combined, share=EQUAL_SHARES["by targets"]))}),
        Mistake("summed over everybody",
                "An all-reduce without group= runs over all ranks, whatever axis is meant: give it the axis' group.",
                _way(_over_everybody)),  # type: ignore[arg-type]
        Mistake(_ALONE, "async_op=True returns at once, and the sum is there only after wait(): keep the handle, and "
                "wait before you cut."),
        Mistake("never summed",
                "Each rank has its own gradient, weighed and not summed: dist.all_reduce over every axis of replicas.",
                _way(_never_summed)),
        Mistake("one axis of replicas",
                "The batch is split over \"data\" and over \"shard\": sum over both, gradients and numbers of targets.",
                {"shards": (partial(combined, replicas=["data"]), partial(combined, replicas=["shard"]),
                            partial(combined, replicas=[]))}),
        Mistake("another's shard",
                "These are the shards of another rank along \"shard\": this rank's is number mesh.place[\"shard\"].",
                {"shards": _other_place}),
        Mistake("every so-manieth element",
                "A shard is a run of consecutive elements: the flat gradient is split into pieces, not dealt out.",
                {"shards": _strided}),
        Mistake("padded in front", "The zeros go after the gradient's end, in the last shard: pad(flat, (0, missing)).",
                {"shards": _padded_in_front}),
        Mistake("not cut", "Return shards: flat, padded with zeros, the run number mesh.place[\"shard\"] of as many as "
                "the axis has ranks.", {"shards": partial(combined, cut=False)}),
        Mistake("tied everywhere",
                "Only the first and the last stage hold the tied weight. The stages between them have no part in "
                "it, and "
                "no mesh.ends.", says=HANGS),
        Mistake(WRONG_SHAPE, "A shard is flat: numel / ranks of the axis \"shard\", rounded up, also if it has one "
                "rank."),
        Mistake(WRONG_LENGTH, "Return one shard for each weight, in their order."),
        Mistake(NOTHING, "Return the shards as a list."),
    ),
    visible=(
        stage_case("2 replicas of 2 tensor ranks, 6 and 2 targets", 1411, _SIZES, num_targets=[6, 2]),
        stage_case("2 stages of 2 shards, 3 and 7 targets", 1412,
                   {"data": 1, "shard": 2, "pipeline": 2, "tensor": 1}, num_targets=[3, 7]),
        stage_case("3 stages, one replica", 1413, {"data": 1, "shard": 1, "pipeline": 3, "tensor": 1},
                   num_targets=[4]),
        stage_case("3 shards, 2, 1 and 3 targets", 1415, {"data": 1, "shard": 3, "pipeline": 1, "tensor": 1},
                   num_targets=[2, 1, 3]),
        stage_case("8 ranks, 4 replicas on two axes", 1414, {"data": 2, "shard": 2, "pipeline": 1, "tensor": 2},
                   num_targets=[1, 5, 2, 4]),
    ),
    hints=(
        "For each weight ask: who else holds these very numbers, and did they see other samples, other tokens, or the "
        "same? Others that saw something else have a part of the sum.",
        "Three sums, in any order: \"tokens\" over tensor, tied over mesh.ends, everything over data and shard. Before "
        "the last, weigh by num_targets over everybody's, which is an all-reduce over both axes. Then cut.",
        "share = num_targets / everybody; g = p.grad * share; all_reduce(g, group=mesh.groups[axis]) for axis in "
        "(\"data\", \"shard\") and whatever else applies; pad(g.flatten(), (0, -numel % n)).view(n, -1)"
        "[mesh.place[\"shard\"]].",
    ),
)  # fmt: skip
