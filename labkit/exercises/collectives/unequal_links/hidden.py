"""Hidden cases of unequal_links: the same hardware, other nodes, other slow links."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.collectives.unequal_links.exercise import cluster_case
from labkit.exercises.sums_over_ranks.hidden_two_levels import pars

Slow = list[tuple[int, int, float]]


def cases(draw: random.Random) -> list[Case]:
    return for_half_and_all([
        _case("two nodes of three", 6, 3, []),
        _case("two nodes of four, one slow link both ways", 8, 4, _one(draw, 8, 4)),
        _case("two nodes of four, a slow link one way in each", 8, 4, [_one(draw, 4, 4)[0], _one(draw, 8, 4, 4)[0]]),
        _case("four nodes of two", 8, 2, []),
    ])  # fmt: skip


def _one(draw: random.Random, num_ranks: int, per_node: int, first: int = 0) -> Slow:
    node = draw.randrange(first // per_node, num_ranks // per_node)
    at = node * per_node + draw.randrange(per_node - 1)  # neighbours, so that the order of ranks is the wrong one
    factor = float(draw.randint(5, 9))
    return [(at, at + 1, factor), (at + 1, at, factor)]


def _case(name: str, num_ranks: int, per_node: int, slow: Slow) -> Case:
    return cluster_case(name, num_ranks, per_node, slow, pars(num_ranks, per_node, slow))
