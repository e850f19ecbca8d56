"""Clipping by the norm of a gradient that lies on a whole mesh: each element counts once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.declared import Mistake, Result, declared
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.structure import NOTHING
from labkit.checks.values import listed, number, tensor, tensors
from labkit.checks.wire import Wire
from labkit.exercises.hybrid_parallelism.clip_whole.driver import drive
from labkit.exercises.hybrid_parallelism.meshes import Sizes, along, of_rank, places, sizes_of
from labkit.exercises.hybrid_parallelism.stages import (
    Kind,
    first_wrong,
    kinds_at,
    norm_of,
    same_shards,
    stage_case,
)
from labkit.plans.mesh_weights import CUT, TOKENS, WHOLE

Place = Mapping[str, int]
_CLOSE = 1e-5


_FIRST, _ENDS, _NOT_LAST, _HALF, _ONE_STAGE = "first", "both ends", "not last", "half", "one stage"


def times(
    kind: Kind, place: Place, sizes: Sizes, mine: Place,
    *, copies: bool = False, tokens: bool = False, tied: str = _FIRST, replicas: bool = False,
    only: str = "", without: Collection[str] = (), first_piece: bool = False, alone: bool = False,
) -> float:  # fmt: skip
    """Return how many times a shard counts in the norm: 1 or 0, or what a mistake makes of it.

    Args:
        kind: Of the weight.
        place: Of the rank that holds the shard.
        sizes: Of the mesh.
        mine: Place of the rank that asks.
        copies: Every tensor rank's copy counts.
        tokens: Every tensor rank's copy counts of what saw its own tokens only.
        tied: Where what is tied counts: on the first stage, on both ends, on no last stage (with one stage nowhere),
            with one stage half, or with one stage alone.
        replicas: Every data rank's copy counts.
        only: The axis over which nothing is summed: the rank sees its own place alone.
        without: Kinds of weights that count nowhere.
        first_piece: Of what is cut, the first tensor rank's piece alone counts.
        alone: Nothing is summed: the rank sees its own shards alone.
    """
    if kind.tensor in without or (first_piece and kind.tensor == CUT and place.get("tensor", 0)):
        return 0
    if (only and place.get(only, 0) != mine.get(only, 0)) or (alone and dict(place) != dict(mine)):
        return 0
    wanted = mine.get("data", 0) if only or alone else 0
    once = [replicas or place.get("data", 0) == wanted]
    once.append(
        copies
        or (tokens and kind.tensor == TOKENS)
        or kind.tensor == CUT
        or only == "tensor"
        or place.get("tensor", 0) == 0
    )
    once.append(tied == _ENDS or not kind.tied or only == "pipeline" or place.get("pipeline", 0) == 0)
    once.append(not (tied == _ONE_STAGE and kind.tied and sizes.get("pipeline", 1) > 1))
    once.append(not (tied == _NOT_LAST and kind.tied and place.get("pipeline", 0) == sizes.get("pipeline", 1) - 1))
    return float(all(once)) * (0.5 if tied == _HALF and kind.tied and sizes.get("pipeline", 1) == 1 else 1.0)


def norm(case: Case, rank: int, **mistake: Any) -> float:
    """Return the norm of the whole gradient, or what comes of a mistake."""
    return norm_of(case, rank, partial(times, **mistake))


def clipped(case: Case, rank: int, by: float | None = None, *, always: bool = False) -> list[Tensor]:
    """Return a rank's shards, scaled by the whole norm or by another one."""
    by = norm(case, rank) if by is None else by
    factor = number(case.inputs[rank], "max_norm") / (by + 1e-6)
    given = [tensor(each, "shard") for each in listed(case.inputs[rank], "weights")]
    return [each * (factor if always else min(1.0, factor)) for each in given]


def expected(case: Case) -> list[Values]:
    """Return the norm and the scaled shards (the oracle)."""
    return [{"norm": norm(case, rank), "shards": list(clipped(case, rank))} for rank in range(case.world_size)]


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: what a rank is told of the others' squares."""
    return {
        rank: Bytes(0, MOST_PACKED)
        for rank in range(case.world_size)
        if len(along(rank, sizes_of(case.inputs[rank]), ("shard", "pipeline", "tensor"))) > 1
    }


def _close(came: float, wanted: float) -> bool:
    return abs(came - wanted) <= _CLOSE * wanted


def _by(**mistake: Any) -> Callable[[Case, int], float]:
    return partial(norm, **mistake)


def _every_copy(case: Case, rank: int) -> float | None:
    """Return the norm in which all ranks' shards count; None without replicas, where others are as likely."""
    sizes = sizes_of(case.inputs[rank])
    return norm(case, rank, copies=True, tied=_ENDS, replicas=True) if sizes.get("data", 1) > 1 else None


def _norms_added(case: Case, rank: int, *, by_weight: bool = False) -> float:
    """Return the sum of all ranks' norms of what they count, or of the norms of their weights."""
    sizes, mine = of_rank(case, rank)
    total = 0.0
    for each, place in enumerate(places(sizes)):
        given = zip(kinds_at(place, sizes), listed(case.inputs[each], "weights"), strict=True)
        squares = [times(kind, place, sizes, mine) * float(tensor(one, "shard").square().sum()) for kind, one in given]
        total += sum(map(math.sqrt, squares)) if by_weight else math.sqrt(sum(squares))
    return total


def _last_weight(case: Case, rank: int) -> float:
    """Return the norm in which each rank counts the last weight that it has to count, and no other."""
    sizes, mine = of_rank(case, rank)
    total = 0.0
    for each, place in enumerate(places(sizes)):
        given = zip(kinds_at(place, sizes), listed(case.inputs[each], "weights"), strict=True)
        counted = [tensor(one, "shard") for kind, one in given if times(kind, place, sizes, mine)]
        total += float(counted[-1].square().sum()) if counted else 0.0
    return math.sqrt(total)


def _largest_rank(case: Case, rank: int) -> float:
    """Return the norm of what one rank counts, of that for which it is largest."""
    sizes, mine = of_rank(case, rank)
    found = []
    for each, place in enumerate(places(sizes)):
        given = zip(kinds_at(place, sizes), listed(case.inputs[each], "weights"), strict=True)
        squares = [times(kind, place, sizes, mine) * float(tensor(one, "shard").square().sum()) for kind, one in given]
        found.append(math.sqrt(sum(squares)))
    return max(found)


def _largest_element(case: Case, rank: int) -> float:
    return max(
        float(tensor(one, "shard").abs().max()) for inputs in case.inputs for one in listed(inputs, "weights")
    )  # fmt: skip


def _averaged(case: Case, rank: int) -> float:
    """Return the norm in which every tensor rank's shards count, and the sum is divided by as many as there are."""
    return norm(case, rank, copies=True) / math.sqrt(sizes_of(case.inputs[rank]).get("tensor", 1))


def _clamped(case: Case, rank: int) -> list[Tensor]:
    limit = number(case.inputs[rank], "max_norm")
    return [each.clamp(-limit, limit) for each in _as_given(case, rank)]


def _over_everybody(case: Case, rank: int, *, calls: int) -> float:
    """Return the norm where as many all-reduces over all ranks follow each other."""
    return norm(case, rank, replicas=True) * math.sqrt(case.world_size ** (calls - 1))


def _only_tied(case: Case, rank: int) -> float:
    """Return the norm in which what is not tied counts on the first stage alone, and what is tied everywhere."""
    sizes, mine = of_rank(case, rank)
    total = 0.0
    for each, place in enumerate(places(sizes)):
        given = zip(kinds_at(place, sizes), listed(case.inputs[each], "weights"), strict=True)
        total += sum(
            times(kind, place, sizes, mine, tied=_ENDS) * float(tensor(one, "shard").square().sum())
            for kind, one in given
            if kind.tied or place.get("pipeline", 0) == 0
        )
    return math.sqrt(total)


def _each_alone(case: Case, rank: int) -> list[Tensor]:
    limit = number(case.inputs[rank], "max_norm")
    given = [tensor(each, "shard") for each in listed(case.inputs[rank], "weights")]
    return [each * min(1.0, limit / (float(each.norm()) + 1e-6)) for each in given]


def _as_given(case: Case, rank: int) -> list[Tensor]:
    return [tensor(each, "shard") for each in listed(case.inputs[rank], "weights")]


def _some_know(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the norm is right on some ranks, and 0 or nothing on all others."""
    if isinstance(got, Failure):
        return False
    right = [_close(number(came, "norm"), norm(case, rank)) for rank, came in enumerate(got)]
    none = [not number(came, "norm") for came in got]
    return any(right) and not all(right) and all(map(any, zip(right, none, strict=True)))


def _some_scaled(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether each shard is right or as it was given, and not all of them the one or the other."""
    if isinstance(got, Failure):
        return False
    known = []
    for rank, came in enumerate(got):
        for mine, right, given in zip(tensors(came, "shards"), clipped(case, rank), _as_given(case, rank), strict=True):
            known.append((same_shards([mine], [right]), same_shards([mine], [given])))
    return all(map(any, known)) and not all(each[0] for each in known) and not all(each[1] for each in known)


EXERCISE = declared(
    id="clip_whole",
    functions=("clip_whole",),
    driver=drive,
    oracle=expected,
    least=least,
    looks=(
        Result("norm", "{ranks}: the norm of the whole gradient is wrong. On rank {rank} it is {got}, not {wanted}.",
               same=_close),
        Result("shards", "{ranks}: the norm is right, the scaled shards are not. On rank {rank} the first wrong "
               "one is {which}: {got}.", same=same_shards, shown=first_wrong),
    ),
    mistakes=(
        Mistake("every copy counted",
                "You added up the squares of all ranks' shards. Replicas, tensor ranks and both ends hold some "
                "elements "
                "many times: let one rank count each.", {"norm": _every_copy}),
        Mistake("copies counted",
                "A weight that is not \"cut\" is on every tensor rank, and you counted each copy. Let one tensor rank "
                "count it.", {"norm": _by(copies=True)}),
        Mistake("tokens counted",
                "A weight of kind \"tokens\" was summed over \"tensor\" by combine_gradients: since then every tensor "
                "rank holds the same. Let one count it, as one of kind \"whole\".", {"norm": _by(tokens=True)}),
        Mistake("tied not on the last",
                "With one stage nobody counts the tied weight: there the first stage is the last one. Let the first "
                "stage count it, however many there are.", {"norm": _by(tied=_NOT_LAST)}),
        Mistake("tied counts half",
                "With one stage the tied weight is there once, and half of its squares count. Only with two stages or "
                "more do both ends hold it.", {"norm": _by(tied=_HALF)}),
        Mistake("not over any axis",
                "Each rank takes the norm of what it holds itself. Sum the squares over \"shard\", \"pipeline\" and "
                "\"tensor\" before you take the root.", {"norm": _by(alone=True)}),
        Mistake("tied counted with one stage alone",
                "With several stages nobody counts the tied weight. It is there on both ends: let the first stage "
                "count it, also where mesh.ends is a group.", {"norm": _by(tied=_ONE_STAGE)}),
        Mistake("the largest element", "This is the largest element of the gradient. Its norm is the root of the sum "
                "of all squares.", {"norm": _largest_element}),
        Mistake("averaged over tensor",
                "The sum over \"tensor\" is divided by the number of tensor ranks. That is right for copies; of what "
                "is \"cut\" every rank has another piece, and its squares count whole.", {"norm": _averaged}),
        Mistake("norms added",
                "You added up norms. Norms do not add: sum squares over weights and ranks, then take one root.",
                {"norm": (_norms_added, partial(_norms_added, by_weight=True))}),
        Mistake("tied counted twice",
                "A tied weight is on the first and the last stage: it is one weight. Let the first stage count it.",
                {"norm": _by(tied=_ENDS)}),
        Mistake("copies left out",
                "A weight that every tensor rank holds has to count once, and in your sum it counts nowhere. Let the "
                "first tensor rank count it.",
                {"norm": tuple(_by(without=each) for each in ([WHOLE, TOKENS], [WHOLE], [TOKENS]))}),
        Mistake("pieces left out",
                "Every tensor rank has other pieces of a weight that is \"cut\", and your norm leaves some out: all of "
                "them count, and over the axes the squares are summed, ReduceOp.SUM.",
                {"norm": (_by(first_piece=True), _by(without=[CUT]), _largest_rank)}),
        Mistake("the last weight alone", "The squares of all weights add up: this is the last weight's alone.",
                {"norm": _last_weight}),
        Mistake("replicas counted",
                "Ranks along \"data\" hold the same shards: leave that axis out of the sum.",
                {"norm": _by(replicas=True)}),
        Mistake("not over tensor", "Tensor ranks hold other pieces: sum the squares over \"tensor\", too.",
                {"norm": _by(only="tensor")}),
        Mistake("not over pipeline", "Other stages hold other layers: sum the squares over \"pipeline\", too.",
                {"norm": _by(only="pipeline")}),
        Mistake("not over shard", "Ranks along \"shard\" hold other parts of the same weights: sum over \"shard\", "
                "too.",
                {"norm": _by(only="shard")}),
        Mistake("summed over everybody",
                "An all-reduce without group= runs over all ranks, whatever axis is meant: give it mesh.groups[axis].",
                {"norm": tuple(partial(_over_everybody, calls=calls) for calls in (2, 3, 4))}),
        Mistake("only tied ones",
                "You count what is tied, or is on the first stage. It is the other way round: what is not tied counts "
                "on every stage, what is tied on the first.", {"norm": _only_tied}),
        Mistake("no root", "The norm is the root of the sum of squares.",
                {"norm": lambda case, rank: norm(case, rank) ** 2}),
        Mistake("norm after clipping", "Return the norm as it was before clipping.",
                {"norm": lambda case, rank: min(norm(case, rank), number(case.inputs[rank], "max_norm"))}),
        Mistake("always scaled", "A gradient that is short enough stays as it is: the factor is at most 1.",
                {"shards": partial(clipped, always=True)}),
        Mistake("elements clamped",
                "You hold each element within max_norm. The *norm* of the whole gradient must be within it: multiply "
                "all elements by one factor.", {"shards": _clamped}),
        Mistake("each by its own norm", "All shards are scaled by one factor: max_norm over the norm of the whole.",
                {"shards": _each_alone}),
        Mistake("not in place",
                "The shards are as they were given. Scale them by max_norm over the norm, in place: "
                "shard.mul_(factor). New tensors in the list leave the given ones as they are.",
                {"shards": _as_given}),
        Mistake("only some scaled",
                "Some shards are scaled and others are as they were given. What a rank counts in the norm and what it "
                "scales differ: every rank scales all of its shards.", seen=_some_scaled),
        Mistake("a norm on one rank",
                "One rank returns the norm, others do not: after the all-reduces each has it. Return it on every rank.",
                seen=_some_know),
        Mistake("a rank stays away", "Every rank of a group calls its all-reduce, also one that has nothing to count.",
                says=HANGS),
        Mistake(NOTHING, "Return the norm, a tensor or a number."),
    ),
    visible=(
        stage_case("2 replicas of 2 tensor ranks", 1421, {"data": 2, "shard": 1, "pipeline": 1, "tensor": 2},
                   max_norm=1.0),
        stage_case("2 stages of 2 shards", 1422, {"data": 1, "shard": 2, "pipeline": 2, "tensor": 1}, max_norm=0.5),
        stage_case("a short gradient", 1423, {"data": 1, "shard": 1, "pipeline": 1, "tensor": 2}, max_norm=1e3),
        stage_case("8 ranks: 2 stages, 2 shards, 2 tensor ranks", 1424,
                   {"data": 1, "shard": 2, "pipeline": 2, "tensor": 2}, max_norm=1.0),
    ),
    hints=(
        "Which ranks hold the same numbers as you? Of those, one may count them.",
        "Add up the squares of what this rank has to count: nothing that is not \"cut\" unless its tensor place is 0, "
        "nothing tied unless it is on the first stage. Then sum over tensor, pipeline and shard.",
        "counts = (w.tensor == \"cut\" or mesh.place[\"tensor\"] == 0) and (not w.tied or mesh.place[\"pipeline\"] "
        "== 0); "
        "all_reduce(squares, group=mesh.groups[axis]) for the three axes; shard.mul_((max_norm / (norm + 1e-6)).clamp("
        "max=1)).",
    ),
)  # fmt: skip
