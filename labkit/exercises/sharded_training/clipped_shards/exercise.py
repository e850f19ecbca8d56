"""Clipping by the norm of a gradient that lies in shards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.declared import Mistake, Result, declared
from labkit.checks.groups import group_of
from labkit.checks.least_traffic import Bytes
from labkit.checks.values import number, tensors
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.clipped_shards.driver import drive

_CLOSE = 1e-4
_ROUNDING = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def clipping_case(
    name: str, seed: int, sizes: Sequence[Sequence[int]], max_norm: float,
    *, groups: Sequence[Sequence[int]] | None = None, dtype: str = "float32", scale: float = 1.0,
) -> Case:  # fmt: skip
    """Return a case of clipped_shards.

    Args:
        name: In words.
        seed: Draws it.
        sizes: For each rank the lengths of its shards.
        max_norm: What the norm may be.
        groups: Lists of ranks that hold a gradient together; None for all.
        dtype: Of the gradients.
        scale: Of their elements.
    """
    inputs: list[Values] = []
    for rank, lengths in enumerate(sizes):
        part = draws.part_of(seed, "rank", rank)
        drawn = [draws.normal(part + at, length, scale=scale * (1 + at)) for at, length in enumerate(lengths)]
        inputs.append({
            "gradients": [each.to(getattr(torch, dtype)) for each in drawn],
            "max_norm": max_norm,
            "groups": groups and [list(each) for each in groups],
        })  # fmt: skip
    return Case(name, len(inputs), tuple(inputs))


def _gradients(case: Case, *ranks: int) -> list[Tensor]:
    return [each for rank in ranks for each in tensors(case.inputs[rank], "gradients")]


def _limit(case: Case) -> float:
    return number(case.inputs[0], "max_norm")


def _norm(gradients: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(each.double().square().sum()) for each in gradients))


def _whole(case: Case, rank: int) -> float:
    return _norm(_gradients(case, *group_of(case, rank)))


def _scaled(gradients: Sequence[Tensor], norm: float, limit: float, most: float = 1.0) -> list[Tensor]:
    factor = min(limit / norm, most) if norm else 1.0
    return [(each.double() * factor).to(each.dtype) for each in gradients]


def expected(case: Case) -> list[Values]:
    """Return the norm of each rank's group and its gradients, clipped (the oracle)."""
    return [{"norm": _whole(case, rank), "gradients": _rank_scaled(case, rank)} for rank in range(case.world_size)]


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: a number from each rank that has gradients to each other one of its group."""
    found = {}
    for rank in range(case.world_size):
        others = [each for each in group_of(case, rank) if each != rank]
        has = bool(_gradients(case, rank)) and bool(others)
        found[rank] = Bytes(4 if has else 0, 4 if _gradients(case, *others) else 0)
    return found


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_CLOSE)


def _same(mine: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    rtol = max((_ROUNDING.get(each.dtype, _CLOSE) for each in right), default=_CLOSE)
    return all(torch.allclose(a.double(), b.double(), rtol=rtol, atol=1e-7) for a, b in zip(mine, right, strict=True))


def _norms(case: Case, rank: int, *, of_each: bool = False, by_rank: bool = False) -> list[float]:
    """Return the norms of the group's ranks, or of each tensor, added up within a rank where it is `by_rank`."""
    by = [_gradients(case, each) for each in group_of(case, rank)]
    parts = [[_norm([each]) for each in mine] if of_each else [_norm(mine)] for mine in by]
    return [sum(each) for each in parts] if by_rank else [each for several in parts for each in several]


def _rank_scaled(case: Case, rank: int, *, limit: float = 0.0, most: float = 1.0) -> list[Tensor]:
    return _scaled(_gradients(case, rank), _whole(case, rank), limit or _limit(case), most)


def _own_scaled(case: Case, rank: int) -> list[Tensor]:
    return _scaled(_gradients(case, rank), _norm(_gradients(case, rank)), _limit(case))


def _each_clipped(case: Case, rank: int) -> list[Tensor]:
    return [part for each in _gradients(case, rank) for part in _scaled([each], _norm([each]), _limit(case))]


def _not_scaled(case: Case, rank: int) -> str:
    norm, limit = _whole(case, rank), _limit(case)
    if norm <= limit:
        return f"The norm is {norm:.6g} and may be {limit:g}, so rank {rank}'s gradients should stay as they are."
    return f"The norm is {norm:.6g} and may be {limit:g}; rank {rank}'s gradients are not scaled to that."


def _overflows(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a norm is infinite, or NaN as it is where infinite numbers were scaled."""
    if isinstance(got, Failure) or all(math.isfinite(number(each, "norm")) for each in got):
        return False
    return any(each.dtype == torch.float16 for rank in range(case.world_size) for each in _gradients(case, rank))


def _not_a_number(case: Case, got: Got, wire: Wire) -> bool:
    zeros = not any(each.any() for rank in range(case.world_size) for each in _gradients(case, rank))
    return zeros and not isinstance(got, Failure)


def _rounded(case: Case, rank: int) -> float:
    """Return the norm made of the norms of tensors in the tensors' own dtype."""
    each = _gradients(case, *group_of(case, rank))
    return math.sqrt(sum(float(torch.linalg.vector_norm(gradient)) ** 2 for gradient in each))


def _rounded_at_last(case: Case, rank: int) -> float:
    """Return the right norm in the gradients' dtype."""
    return float(torch.tensor(_whole(case, rank)).to(_gradients(case, *group_of(case, rank))[0].dtype))


def _root_mean_square(case: Case, rank: int) -> float:
    return _whole(case, rank) / math.sqrt(sum(each.numel() for each in _gradients(case, *group_of(case, rank))))


def _by_the_square(case: Case, rank: int) -> list[Tensor]:
    return _scaled(_gradients(case, rank), _whole(case, rank) ** 2, _limit(case))


EXERCISE = declared(
    id="clipped_shards",
    functions=("clip_by_global_norm",),
    driver=drive,
    oracle=expected,
    least=least,
    looks=(
        Result(
            "norm", "Rank {rank} returns a norm of {got}; that of the whole gradient is {wanted}.", same=_near
        ),
        Result("gradients", _not_scaled, same=_same),
    ),
    mistakes=(
        Mistake("the largest of the ranks",
                "This is the largest of the ranks' own norms. Their squares add up: dist.ReduceOp.SUM, which "
                "all_reduce does if you name no operation.", {"norm": lambda case, rank: max(_norms(case, rank))}),
        Mistake("divided by the square",
                "The factor is max_norm over the norm. You divide by the norm's square.",
                {"gradients": _by_the_square}),
        Mistake("own norm",
                "This is the norm of one rank's shards. The squares of all shards have to be added up: all_reduce.",
                {"norm": lambda case, rank: _norm(_gradients(case, rank)),
                 "gradients": _own_scaled}),
        Mistake("norms added",
                "Norms do not add up, their squares do: 3 and 4 make 5. Send the squares, and take the root "
                "afterwards.",
                {"norm": (lambda case, rank: sum(_norms(case, rank)),
                          lambda case, rank: sum(_norms(case, rank, of_each=True)),
                          lambda case, rank: math.hypot(*_norms(case, rank, of_each=True, by_rank=True)))}),
        Mistake("ranks of other groups",
                "The ranks of the group together hold the whole gradient. Other ranks hold another one, or a copy: "
                "pass group=group.", {"norm": lambda case, rank: _norm(_gradients(case, *range(case.world_size)))}),
        Mistake("no root", "The norm is the root of the sum of squares.",
                {"norm": lambda case, rank: _whole(case, rank) ** 2}),
        Mistake("squares overflow",
                "float16 ends at 65504, so the square of 300 is infinite in it. Take the squares in float32.",
                seen=_overflows),
        Mistake("computed in the gradients' dtype",
                "The norm has the few digits of the gradients' dtype. Compute it in float32, gradient.float(), and "
                "return it so.", {"norm": (_rounded, _rounded_at_last)}),
        Mistake("divided by zero",
                "All gradients are 0, so their norm is, too: they stay as they are. Add 1e-6, or divide only where the "
                "norm is above max_norm.", says=("division by zero",), seen=_not_a_number, certain=True),
        Mistake("squares averaged",
                "The squares have been averaged. Each rank holds other elements, so their squares add up.",
                {"norm": (lambda case, rank: _whole(case, rank) / math.sqrt(len(group_of(case, rank))),
                          _root_mean_square)}),
        Mistake("norm afterwards", "Return the norm that the gradient had before it was clipped.",
                {"norm": lambda case, rank: _limit(case)}),
        Mistake("not in place", "The gradients stay as they were. Scale them by max_norm over the norm, in place: "
                "gradient.mul_(...).",
                {"gradients": _gradients}),
        Mistake("always scaled", "A gradient that is short enough stays as it is: the factor is at most 1.",
                {"gradients": partial(_rank_scaled, most=math.inf)}),
        Mistake("max_norm ignored", "The gradients were scaled to a norm of 1; the limit is max_norm.",
                {"gradients": partial(_rank_scaled, limit=1.0)}),
        Mistake("elements cut off",
                "Each element was clipped on its own, which changes the gradient's direction. Scale all by one factor.",
                {"gradients": lambda case, rank: [
                    each.clamp(-_limit(case), _limit(case)) for each in _gradients(case, rank)]}),
        Mistake("each by its own norm",
                "Every tensor has been clipped by its own norm, which changes the gradient's direction. There is one "
                "norm for all.", {"gradients": _each_clipped}),
        Mistake("a rank stays away",
                "A rank without gradients must call the collective, too: the others wait for it.", says=HANGS),
        Mistake("nothing to stack", "A rank may have no gradients; its sum of squares is 0.",
                says=("non-empty", "empty")),
    ),
    visible=(
        clipping_case("2 ranks, a long gradient", 1361, [(6, 4), (6, 3)], 1.0),
        clipping_case("3 ranks, a short gradient", 1362, [(5,), (5,), (2,)], 100.0),
        clipping_case("3 ranks, one without gradients", 1363, [(4, 4), (), (3, 4)], 0.5),
        clipping_case("2 ranks, large elements in float16", 1364, [(7, 2), (7,)], 2.0, dtype="float16", scale=400.0),
        clipping_case("2 ranks, nothing but zeros", 1366, [(4,), (3,)], 1.0, scale=0.0),
        clipping_case("2 ranks, bfloat16", 1367, [(40, 30), (50,)], 2.0, dtype="bfloat16"),
        clipping_case(
            "4 ranks, two groups", 1365, [(5, 3), (5, 1), (4,), (4, 2)], 1.0, groups=[[0, 2], [1, 3]]
        ),
    ),
    hints=(
        "Which number of a rank's shards do the others need, so that all can compute the same norm?",
        "Add up the squares of all your gradients in float32, starting from a zero, and all_reduce that one number in "
        "the group. Its root is the norm. The factor is max_norm / norm, and at most 1.",
        "squares = torch.zeros(()); for each gradient squares += gradient.float().square().sum(); "
        "dist.all_reduce(squares, group=group); gradient.mul_((max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)).",
    ),
)  # fmt: skip
