"""Clipping by the norm of a gradient that lies in shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.as_if import as_if
from labkit.checks.blame import HANGS, by_signs
from labkit.checks.case import Case, Values
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes
from labkit.checks.values import number, tensors
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.clipped_shards.driver import drive

_CLOSE = 1e-4


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


def _gradients(case: Case, rank: int) -> list[Tensor]:
    return tensors(case.inputs[rank], "gradients")


def _members(case: Case, rank: int) -> list[int]:
    groups = cast("list[list[int]] | None", case.inputs[rank]["groups"]) or [list(range(case.world_size))]
    return next(each for each in groups if rank in each)


def _norm(gradients: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(each.double().square().sum()) for each in gradients))


def _norm_of(case: Case, ranks: Sequence[int]) -> float:
    return _norm([each for rank in ranks for each in _gradients(case, rank)])


def _scaled(gradients: Sequence[Tensor], norm: float, max_norm: float, most: float = 1.0) -> list[Tensor]:
    factor = min(max_norm / norm, most) if norm else 1.0
    return [(each.double() * factor).to(each.dtype) for each in gradients]


def expected(case: Case) -> list[Values]:
    """Return the norm of each rank's group and its gradients, clipped (the oracle)."""
    found: list[Values] = []
    for rank, inputs in enumerate(case.inputs):
        norm = _norm_of(case, _members(case, rank))
        clipped = _scaled(_gradients(case, rank), norm, number(inputs, "max_norm"))
        found.append({"norm": norm, "gradients": clipped})
    return found


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: a number from each rank that has gradients to each other one of its group."""
    found = {}
    for rank in range(case.world_size):
        others = [each for each in _members(case, rank) if each != rank and _gradients(case, each)]
        mine = bool(_gradients(case, rank)) and len(_members(case, rank)) > 1
        found[rank] = Bytes(4 if mine else 0, 4 if others else 0)
    return found


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with norms and with gradients."""
    for rank, (came, right) in enumerate(zip(got, expected(case), strict=True)):
        norm, wanted = number(came, "norm"), number(right, "norm")
        mine, clipped = tensors(came, "gradients"), tensors(right, "gradients")
        if not _near(norm, wanted):
            text = f"Rank {rank} returns a norm of {norm:.6g}; that of the whole gradient is {wanted:.6g}."
            yield Finding(_of_norm(case, rank, norm), text, f"{wanted:.6g}", f"{norm:.6g}", rank)
        if not _same(mine, clipped):
            most = number(case.inputs[rank], "max_norm")
            text = f"The norm is {wanted:.6g} and may be {most:g}; rank {rank}'s gradients are not scaled to that."
            if wanted <= most:
                text = (
                    f"The norm is {wanted:.6g} and may be {most:g}, so rank {rank}'s gradients should stay as they are."
                )
            yield Finding(_of_gradients(case, rank, mine, wanted), text, rank=rank)


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_CLOSE)


def _same(mine: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    rtol = 2e-3 if any(each.dtype == torch.float16 for each in right) else _CLOSE
    return all(torch.allclose(a.double(), b.double(), rtol=rtol, atol=1e-7) for a, b in zip(mine, right, strict=True))


def _of_norm(case: Case, rank: int, norm: float) -> str:
    members = _members(case, rank)
    if math.isinf(norm) or math.isnan(norm):
        return _OVERFLOWS
    ways: list[tuple[str, Callable[[], float]]] = [
        (_OWN, lambda: _norm_of(case, [rank])),
        (_NORMS, lambda: sum(_norm_of(case, [each]) for each in members)),
        (_EVERYBODY, lambda: _norm_of(case, range(case.world_size))),
        (_SQUARED, lambda: _norm_of(case, members) ** 2),
        (_AVERAGED, lambda: _norm_of(case, members) / math.sqrt(len(members))),
        (_AFTERWARDS, lambda: number(case.inputs[rank], "max_norm")),
    ]
    return as_if(norm, ways, _near)


def _of_gradients(case: Case, rank: int, mine: list[Tensor], norm: float) -> str:
    before, most = _gradients(case, rank), number(case.inputs[rank], "max_norm")
    ways: list[tuple[str, Callable[[], list[Tensor]]]] = [
        (_COPIES, lambda: before),
        (_ALWAYS, lambda: _scaled(before, norm, most, math.inf)),
        (_ONE, lambda: _scaled(before, norm, 1.0)),
        (_CUT, lambda: [each.clamp(-most, most) for each in before]),
        (_EACH, lambda: [part for each in before for part in _scaled([each], _norm([each]), most)]),
        (_OWN, lambda: _scaled(before, _norm(before), most)),
    ]
    return as_if(mine, ways, _same)


_OWN, _NORMS, _EVERYBODY, _SQUARED, _OVERFLOWS, _AFTERWARDS = (
    "own norm", "norms added", "ranks of other groups", "no root", "squares overflow", "norm afterwards",
)  # fmt: skip
_COPIES, _ALWAYS, _EACH, _LEAVES, _EMPTY = (
    "not in place",
    "always scaled",
    "each by its own norm",
    "a rank stays away",
    "nothing to stack",
)
_AVERAGED, _ONE, _CUT = ("squares averaged", "max_norm ignored", "elements cut off")
MISTAKES = {
    _OWN: "This is the norm of one rank's shards. The squares of all shards have to be added up: all_reduce.",
    _NORMS: "Norms do not add up, their squares do: 3 and 4 make 5. Send the squares, and take the root afterwards.",
    _EVERYBODY: (
        "The ranks of the group together hold the whole gradient. Other ranks hold another one, or a copy: pass "
        "group=group."
    ),
    _AVERAGED: "The squares have been averaged. Each rank holds other elements, so their squares add up.",
    _ONE: "The gradients were scaled to a norm of 1; the limit is max_norm.",
    _CUT: "Each element was clipped on its own, which changes the gradient's direction. Scale all by one factor.",
    _SQUARED: "The norm is the root of the sum of squares.",
    _OVERFLOWS: "float16 ends at 65504, so the square of 300 is infinite in it. Take the squares in float32.",
    _AFTERWARDS: "Return the norm that the gradient had before it was clipped.",
    _COPIES: "The gradients stay as they were. Scale them in place: gradient.mul_(...).",
    _ALWAYS: "A gradient that is short enough stays as it is: the factor is at most 1.",
    _EACH: "Every tensor has been clipped by its own norm, which changes the gradient's direction. There is one norm "
    "for all.",
    _LEAVES: "A rank without gradients must call the collective, too: the others wait for it.",
    _EMPTY: "A rank may have no gradients; its sum of squares is 0.",
}

EXERCISE = Exercise(
    id="clipped_shards",
    functions=("clip_by_global_norm",),
    driver=drive,
    oracle=expected,
    find=find,
    least=least,
    visible=(
        clipping_case("2 ranks, a long gradient", 1361, [(6, 4), (6, 3)], 1.0),
        clipping_case("3 ranks, a short gradient", 1362, [(5,), (5,), (2,)], 100.0),
        clipping_case("3 ranks, one without gradients", 1363, [(4, 4), (), (3, 4)], 0.5),
        clipping_case("2 ranks, large elements in float16", 1364, [(7, 2), (7,)], 2.0, dtype="float16", scale=400.0),
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
    mistakes=MISTAKES,
    blame=by_signs({_LEAVES: HANGS, _EMPTY: ("non-empty", "empty")}),
)  # fmt: skip
