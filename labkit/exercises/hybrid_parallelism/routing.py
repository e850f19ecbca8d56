"""Tokens routed to experts on the ranks of a group: what the judge knows of it, all tokens in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.draws import normal, part_of
from labkit.checks.groups import group_of
from labkit.checks.values import integer, tensor

WIDTH = 16
"""Of a token, in every case."""


def routed_case(
    name: str, seed: int, groups: Sequence[Sequence[int]], tokens: Sequence[int], each: int, capacity: int
) -> Case:  # fmt: skip
    """Return a case of expert_parallel.

    Args:
        name: What is special about it.
        seed: Of the numbers.
        groups: Ranks along "expert", group by group.
        tokens: How many each rank has.
        each: Experts of a rank.
        capacity: Of an expert.
    """
    inputs: list[Values] = []
    for rank, count in enumerate(tokens):
        size = next(len(ranks) for ranks in groups if rank in ranks)
        router = normal(part_of(seed, "router"), WIDTH, size * each, dtype=torch.float64)
        router[:, 0] += 0.4 * router.norm() / size  # one expert is asked by more tokens than others
        x = normal(part_of(seed, "rank", rank, "x"), count, WIDTH, dtype=torch.float64)
        experts = normal(part_of(seed, "rank", rank, "experts"), each, WIDTH, WIDTH, dtype=torch.float64)
        about: dict[str, Value] = {"groups": [list(ranks) for ranks in groups], "capacity": capacity}
        inputs.append({**about, "x": x, "router": router, "experts": experts})
    return Case(name, len(tokens), tuple(inputs))


class Routed(NamedTuple):
    """A token's expert, its probability, and its place among all of the group's tokens that ask for that expert."""

    rank: int
    at: int
    expert: int
    gate: float
    place: int


def probabilities(case: Case, rank: int) -> Tensor:
    """Return what the router makes of a rank's tokens, shape (tokens, experts)."""
    return (tensor(case.inputs[rank], "x") @ tensor(case.inputs[rank], "router")).softmax(-1)


def routed(case: Case, ranks: Sequence[int]) -> list[Routed]:
    """Return all tokens of these ranks, in order, with their places counted over these ranks."""
    found: list[Routed] = []
    asked: dict[int, int] = {}
    for rank in ranks:
        for at, row in enumerate(probabilities(case, rank)):
            expert = int(row.argmax())
            found.append(Routed(rank, at, expert, float(row[expert]), asked.get(expert, 0)))
            asked[expert] = asked.get(expert, 0) + 1
    return found


def capacity(case: Case) -> int:
    """Return how many tokens an expert takes."""
    return integer(case.inputs[0], "capacity")


def taken(case: Case, rank: int, count: str = "group") -> list[Routed]:
    """Return the tokens of a rank's group that are taken, in order, or what comes of a mistake.

    Args:
        case: What was given.
        rank: Whose group.
        count: "group", "rank" (each rank's tokens by themselves), "share" (so, with an equal share of the capacity),
            "last" (the later ones are taken), "one more", "one fewer", "gates" (the largest gates are taken), "own
            gates" (rank after rank, in each the largest gates first), "ranks" (the last rank's come first), or "all".
    """
    ranks, most = group_of(case, rank), capacity(case)
    everybody = routed(case, ranks)
    if count == "all":
        return everybody
    if count in ("rank", "share"):
        share = most if count == "rank" else most // len(ranks)
        return [each for one in ranks for each in routed(case, [one]) if each.place < share]
    if count in ("gates", "own gates", "ranks"):
        return _taken_otherwise(everybody, ranks, most, count)
    if count == "last":
        asked = {each.expert: each.place + 1 for each in everybody}
        return [each for each in everybody if asked[each.expert] - each.place <= most]
    return [each for each in everybody if each.place < most + (count == "one more") - (count == "one fewer")]


def _taken_otherwise(everybody: Sequence[Routed], ranks: Sequence[int], most: int, count: str) -> list[Routed]:
    """Return the tokens that are taken where another order than that of the ranks and tokens counts."""
    orders: dict[str, Callable[[Routed], Any]] = {
        "gates": lambda each: -each.gate,
        "own gates": lambda each: (ranks.index(each.rank), -each.gate),
        "ranks": lambda each: (-ranks.index(each.rank), each.at),
    }
    found: list[Routed] = []
    for expert in {each.expert for each in everybody}:
        found += sorted((each for each in everybody if each.expert == expert), key=orders[count])[:most]
    return [each for each in everybody if each in found]


def _computed(case: Case, token: Routed, expert: int, weighed: bool = False) -> Tensor:
    """Return what an expert makes of a token; `weighed`: of the token times its gate."""
    ranks = group_of(case, token.rank)
    each = len(tensor(case.inputs[token.rank], "experts"))
    weight = tensor(case.inputs[ranks[expert // each]], "experts")[expert % each]
    return torch.tanh(tensor(case.inputs[token.rank], "x")[token.at] * (token.gate if weighed else 1.0) @ weight)


def output(
    case: Case, rank: int,
    *, count: str = "group", gate: bool | str = True, taken_pass: bool = True, dropped_pass: bool = True,
    dealt: str = "runs", back: str = "",
) -> Tensor:  # fmt: skip
    """Return a rank's output, or what comes of a mistake.

    Args:
        case: What was given.
        rank: Whose.
        count: Which tokens are taken, as in `taken`.
        gate: Whether an expert's result is weighed by the token's probability; "before" where the token is, "logit"
            where the result is weighed by what softmax was given.
        taken_pass: Whether what is taken is added to the token.
        dropped_pass: Whether a token that is not taken passes.
        dealt: "runs", "cards" (expert e on rank e modulo N), "mixed" (what came from all ranks is read as sorted by
            expert) or "unsorted" (tokens are sent in their order, and read as sorted by expert).
        back: "" for tokens in order; "sorted" where results are left sorted by expert, "sorted with gates" where they
            are weighed so before.
    """
    x, ranks = tensor(case.inputs[rank], "x"), group_of(case, rank)
    out = x.clone() if dropped_pass else torch.zeros_like(x)
    everybody = taken(case, rank, count)
    asked = {(each.rank, each.at): _asked(case, each, everybody, ranks, dealt) for each in everybody}
    mine = [each for each in everybody if each.rank == rank]
    came = sorted(mine, key=lambda each: each.expert) if back else mine
    for token, other in zip(mine, came, strict=True):
        result = _computed(case, other, asked[other.rank, other.at], gate == "before")
        by = (other if back == "sorted with gates" else token).gate if gate is True else 1.0
        if gate == "logit":
            by = float(x[token.at] @ tensor(case.inputs[rank], "router")[:, token.expert])
        out[token.at] = (x[token.at] if taken_pass else 0.0) + by * result
    return out


def _asked(case: Case, token: Routed, everybody: Sequence[Routed], ranks: Sequence[int], dealt: str) -> int:
    """Return the expert that computes a token, by the way in which they are dealt out."""
    each = len(tensor(case.inputs[token.rank], "experts"))
    if dealt == "cards":
        return token.expert % len(ranks) * each + token.expert // len(ranks)
    if dealt == "mixed":
        first = token.expert // each * each
        inbox = [
            other for one in ranks for other in everybody if other.rank == one and 0 <= other.expert - first < each
        ]
        inbox.sort(key=lambda other: (ranks.index(other.rank), other.expert))
        return sorted(other.expert for other in inbox)[inbox.index(token)]
    if dealt == "unsorted":
        mine = [other for other in everybody if other.rank == token.rank]
        return sorted(other.expert for other in mine)[mine.index(token)]
    return token.expert


def balance(
    case: Case, rank: int,
    *, over: str = "group", chances: str = "", count: str = "all", means: bool = False, times: bool = True,
) -> float:  # fmt: skip
    """Return the balance loss, or what comes of a mistake.

    Args:
        case: What was given.
        rank: Whose.
        over: Whose tokens: "group", "rank" or "world".
        chances: Where P differs: "rank" for this rank's tokens alone, "means" for the average of the ranks' means,
            "asked" where an expert's is of the tokens that ask for it alone.
        count: Which tokens have a share, as in `taken`.
        means: Whether each rank's means are averaged, however many tokens it has.
        times: Whether it is multiplied by the number of experts.
    """
    ranks = {"group": group_of(case, rank), "rank": [rank], "world": list(range(case.world_size))}[over]
    num_experts = tensor(case.inputs[rank], "router").shape[1]
    chance = [probabilities(case, each) for each in ranks]
    asked = torch.zeros(len(ranks), num_experts, dtype=torch.float64)
    tokens = routed(case, ranks) if count == "all" else taken(case, rank, count)
    for token in tokens:
        asked[ranks.index(token.rank), token.expert] += 1
    if means:
        share = torch.stack([row / len(p) for row, p in zip(asked, chance, strict=True)]).mean(0)
        mean = torch.stack([each.mean(0) for each in chance]).mean(0)
    else:
        share, mean = asked.sum(0) / sum(map(len, chance)), torch.cat(chance).mean(0)
    if chances == "asked":
        mean = torch.cat(chance)
        mean = (mean * (mean == mean.amax(1, keepdim=True))).mean(0)
    elif chances:
        those = chance if chances == "means" else [probabilities(case, rank)]
        mean = torch.stack([each.mean(0) for each in those]).mean(0)
    return float((share * mean).sum()) * (num_experts if times else 1)


def expected(case: Case) -> list[Values]:
    """Return each rank's output and balance loss (the oracle)."""
    return [{"out": output(case, rank), "balance": balance(case, rank)} for rank in range(case.world_size)]
