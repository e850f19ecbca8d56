"""Hidden cases of lesson 02: the drivers, oracles and judges of labkit.checks, on inputs drawn from a seed.

Points are all or nothing for an exercise over all of its cases here. Each exercise meets odd and larger worlds, lengths
that do not divide, are shorter than the world, or are 0; facts with few possible values (an exception's type, whether
something is None) are asked only beside sums that cannot be guessed.
"""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.drawn_cases import drawing, seed
from labkit.checks.lesson_02.byte_counts import bytes_case
from labkit.checks.lesson_02.chunking import bounds_case
from labkit.checks.lesson_02.drop_in import drop_in_case
from labkit.checks.lesson_02.exchange import exchange_case
from labkit.checks.lesson_02.halving_doubling import halving_case
from labkit.checks.lesson_02.hierarchical import nodes_case
from labkit.checks.lesson_02.plan_cases import drawn_plans, plan_case, rotation
from labkit.checks.lesson_02.planning import plan_case as ring_plan_case
from labkit.checks.lesson_02.reduce_to_root import naive_case
from labkit.checks.lesson_02.ring import sum_case
from labkit.checks.lesson_02.seconds import seconds_case
from labkit.checks.lesson_02.sums import fractions, whole_numbers


def _not_divisible(draw: random.Random, world_size: int, low: int, high: int) -> int:
    return draw.choice([n for n in range(low, high) if n % world_size])


def _naive(draw: random.Random) -> list[Case]:
    return [
        naive_case(seed(draw), 2, (draw.randint(3, 9),)),
        naive_case(seed(draw), 3, (draw.randint(4, 9),)),
        naive_case(seed(draw), 5, (draw.randint(2, 4), 3)),
        naive_case(seed(draw), 7, (draw.randint(5, 9),)),
    ]


def _bytes(draw: random.Random) -> list[Case]:
    pairs = [(draw.randint(100, 10**9), world_size) for world_size in (2, 3, 5, 7, 8, 1, draw.randint(9, 1024))]
    return [bytes_case("drawn sizes, 1 to 1024 ranks", pairs)]


def _bounds(draw: random.Random) -> list[Case]:
    sizes = [(draw.randint(20, 200), chunks) for chunks in (2, 3, 5, 7, 8)]
    short = [(draw.randint(1, chunks - 1), chunks) for chunks in (5, 7, 8)]
    edges = [(0, draw.randint(2, 9)), (draw.randint(1, 50), 1), (draw.randint(2, 9) * 8, 8), (1, 1)]
    return [
        bounds_case("drawn lengths", sizes),
        bounds_case("shorter than the number of chunks", short),
        bounds_case("empty, one chunk, sizes that divide", edges),
    ]


def _plans(draw: random.Random) -> list[Case]:
    return [
        ring_plan_case("worlds of 2 to 5", [2, 3, 4, 5]),
        ring_plan_case("larger worlds", [7, 8, draw.randint(9, 17)]),
        ring_plan_case("one rank", [1, 6]),
    ]


def _run_plan(draw: random.Random) -> list[Case]:
    def sizes(count: int) -> list[int]:
        drawn = [draw.randint(1, 4) for _ in range(count)]
        drawn[draw.randrange(count)] = 0
        return drawn

    return [
        plan_case("3 ranks, rotation", rotation(3, 3, draw.choice([1, 2]), 4, (1, 3)), (2, 2, 2), seed(draw)),
        plan_case("2 ranks, drawn", drawn_plans(seed(draw), 2, 3, 5), sizes(3), seed(draw)),
        plan_case("4 ranks, drawn, gaps between steps", drawn_plans(seed(draw), 4, 4, 6), sizes(4), seed(draw)),
        plan_case("7 ranks, drawn, gaps between steps", drawn_plans(seed(draw), 7, 5, 6), sizes(5), seed(draw)),
        plan_case(
            "3 ranks, combine=torch.minimum",
            rotation(3, 3, draw.choice([1, 2]), 5, (0, 2, 3)),
            (2, 2, 2),
            seed(draw),
            combine="minimum",
        ),
        plan_case(
            "6 ranks, of which 1, 2 and 5 take part",
            drawn_plans(seed(draw), 3, 3, 5),
            (2, 3, 1),
            seed(draw),
            world_size=6,
            group=(1, 2, 5),
        ),
    ]


def _ring_sum(draw: random.Random) -> list[Case]:
    return [
        sum_case(seed(draw), 3, (_not_divisible(draw, 3, 10, 30),)),
        sum_case(seed(draw), 4, (draw.randint(3, 5), 4)),
        sum_case(seed(draw), 5, (_not_divisible(draw, 5, 11, 30),)),
        sum_case(seed(draw), 7, (draw.randint(2, 5),)),
        sum_case(seed(draw), 4, (0,)),
        sum_case(seed(draw), 8, (_not_divisible(draw, 8, 17, 40),)),
        sum_case(seed(draw), 6, (2, draw.randint(4, 6)), group=sorted(draw.sample(range(1, 6), 3))),
        sum_case(seed(draw), 1, (draw.randint(2, 6),)),
        sum_case(seed(draw), 2, (draw.choice([5, 7, 9]),)),
    ]


def _drop_in(draw: random.Random) -> list[Case]:
    def numbers(world_size: int, *shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        return whole_numbers(seed(draw), world_size, shape, dtype)

    def small(world_size: int, numel: int) -> list[torch.Tensor]:
        return [tensor - 4 for tensor in whole_numbers(seed(draw), world_size, (numel,), largest=9)]

    long = _not_divisible(draw, 5, 11, 30)
    rows = draw.randint(3, 5)
    group = sorted(draw.sample(range(1, 6), 3))
    return [
        drop_in_case(f"5 ranks, sum of {long} elements", numbers(5, long)),
        drop_in_case(f"5 ranks, average of {long} elements", numbers(5, long, dtype=torch.float64), op="AVG"),
        drop_in_case("4 ranks, largest of each", small(4, draw.randint(5, 11)), op="MAX"),
        drop_in_case("3 ranks, smallest of each", small(3, draw.randint(5, 11)), op="MIN"),
        drop_in_case("5 ranks, product", small(5, draw.randint(3, 7)), op="PRODUCT"),
        drop_in_case(f"3 ranks, transposed, {rows} x 4", numbers(3, 4, rows), layout="transposed"),
        drop_in_case("4 ranks, every other element", numbers(4, draw.choice([9, 13, 15])), layout="every other"),
        drop_in_case("3 ranks, one column", numbers(3, rows, 3), layout="column", op="SUM"),
        drop_in_case("3 ranks, inner rows", numbers(3, rows + 1, 3), layout="inner rows"),
        drop_in_case(
            "7 ranks, int64", whole_numbers(seed(draw), 7, (draw.randint(3, 9),), torch.int64, largest=1 << 55)
        ),
        drop_in_case("4 ranks, async_op=True", numbers(4, draw.randint(7, 11)), asynchronous=True),
        drop_in_case(f"6 ranks, of which {group} take part", numbers(6, 7), group=group),
        drop_in_case(f"6 ranks, average over {group}", numbers(6, 8, dtype=torch.float64), group=group, op="AVG"),
        drop_in_case(
            f"6 ranks, of which {group} take part, async_op=True, every other element",
            numbers(6, 9),
            group=group,
            asynchronous=True,
            layout="every other",
        ),
        drop_in_case("8 ranks, bfloat16", fractions(seed(draw), 8, (96,), torch.bfloat16)),
        drop_in_case("8 ranks, float16", fractions(seed(draw), 8, (96,), torch.float16)),
    ]


def _seconds(draw: random.Random) -> list[Case]:
    worlds = [
        (draw.randint(10**3, 10**9), world_size, draw.uniform(1e-6, 1e-3), draw.uniform(1e8, 1e11))
        for world_size in (2, 3, 4, 5, 7, 8, draw.randint(9, 1000))
    ]
    return [seconds_case("drawn sizes, 2 to 1000 ranks", worlds, draw.uniform(1e-3, 1.0))]


def _tree(draw: random.Random) -> list[Case]:
    return [
        sum_case(seed(draw), 2, (draw.randint(2, 6),)),
        sum_case(seed(draw), 3, (draw.randint(2, 6),)),
        sum_case(seed(draw), 5, (2, draw.randint(2, 4))),
        sum_case(seed(draw), 7, (draw.randint(2, 6),)),
        sum_case(seed(draw), 8, (draw.randint(2, 6),)),
        sum_case(seed(draw), 6, (draw.randint(2, 6),), group=sorted(draw.sample(range(1, 6), 3))),
    ]


def _halving(draw: random.Random) -> list[Case]:
    return [
        halving_case(seed(draw), 2, draw.choice([5, 7, 9])),
        halving_case(seed(draw), 4, draw.choice([9, 10, 11])),
        halving_case(seed(draw), 8, draw.choice([20, 28, 36])),  # halves of chunks and halves of the tensor differ
        halving_case(seed(draw), 8, draw.randint(3, 6)),
        halving_case(seed(draw), draw.choice([3, 5, 6]), 4),
    ]


def _all_to_all(draw: random.Random) -> list[Case]:
    def table(count: int) -> list[list[int]]:
        sizes = [[draw.randint(1, 4) for _ in range(count)] for _ in range(count)]
        sizes[draw.randrange(count)][draw.randrange(count)] = 0
        return sizes

    group = sorted(draw.sample(range(1, 6), 3))
    return [
        exchange_case("2 ranks, drawn sizes", table(2), seed(draw)),
        exchange_case("4 ranks, one element each", [[1] * 4] * 4, seed(draw)),
        exchange_case("5 ranks, drawn sizes", table(5), seed(draw)),
        exchange_case("7 ranks, drawn sizes", table(7), seed(draw)),
        exchange_case(f"6 ranks, of which {group} take part", table(3), seed(draw), world_size=6, group=group),
    ]


def _hierarchical(draw: random.Random) -> list[Case]:
    return [
        nodes_case(seed(draw), 4, 2, (_not_divisible(draw, 4, 9, 30),)),
        nodes_case(seed(draw), 6, 3, (_not_divisible(draw, 6, 13, 40),)),
        nodes_case(seed(draw), 6, 2, (draw.randint(2, 4), 5)),
        nodes_case(seed(draw), 8, 4, (_not_divisible(draw, 8, 17, 40),)),
        nodes_case(seed(draw), 4, 4, (draw.randint(5, 9),)),
        nodes_case(seed(draw), 3, 1, (draw.randint(5, 9),)),
        nodes_case(seed(draw), *draw.choice([(4, 3), (5, 2), (6, 4)]), (draw.randint(5, 9),)),
    ]


_CASES = {
    "naive_all_reduce": _naive,
    "count_bytes": _bytes,
    "chunk_bounds": _bounds,
    "ring_plan": _plans,
    "run_plan": _run_plan,
    "ring_sum": _ring_sum,
    "drop_in_all_reduce": _drop_in,
    "ring_cost": _seconds,
    "tree_all_reduce": _tree,
    "halving_doubling": _halving,
    "all_to_all": _all_to_all,
    "hierarchical_all_reduce": _hierarchical,
}

cases = drawing(_CASES)
