"""Hidden cases of lesson 03: the drivers, oracles and judges of labkit.checks, on models and batches drawn from a seed.

Points are all or nothing for an exercise over all of its cases here: other world sizes and caps than the visible ones,
tied, frozen and unused parameters in every mixture.
"""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.drawn_cases import drawing, seed
from labkit.checks.lesson_03.bucket_plans import plans_case
from labkit.checks.lesson_03.overlap_cost import World, cost_case
from labkit.checks.lesson_03.sampling import sampler_case
from labkit.checks.lesson_03.starting import gradient_case, model_case
from labkit.checks.lesson_03.uneven import uneven_case
from labkit.checks.lesson_03.wrappers import accumulating_case, bucketed_case, mini_case, overlapped_case


def _broadcast(draw: random.Random) -> list[Case]:
    return [
        model_case("5 ranks, all of it", seed(draw), 5),
        model_case("3 ranks, BatchNorm", seed(draw), 3, frozen=False, tied=False),
        model_case("2 ranks, a frozen layer", seed(draw), 2, norm=False),
    ]


def _average(draw: random.Random) -> list[Case]:
    return [
        gradient_case("5 ranks, all of it", seed(draw), 5),
        gradient_case("3 ranks, no frozen layer", seed(draw), 3, frozen=False),
        gradient_case("4 ranks, a layer that two of them used", seed(draw), 4, spare=(0, 3), unused=True),
        gradient_case("2 ranks, a layer that rank 1 used", seed(draw), 2, spare=(1,), unused=True),
    ]


def _overlapped(draw: random.Random) -> list[Case]:
    return [
        overlapped_case("5 ranks, all of it, three steps", seed(draw), 5, 3),
        overlapped_case("3 ranks, no frozen layer", seed(draw), 3, frozen=False),
        overlapped_case("2 ranks, no BatchNorm", seed(draw), 2, norm=False),
    ]


def _plans(draw: random.Random) -> list[Case]:
    def calls(count: int, low: int, high: int) -> list[tuple[list[int], int]]:
        return [
            ([draw.randint(low, high) for _ in range(draw.randint(3, 20))], draw.randint(low, 3 * high))
            for _ in range(count)
        ]

    exact = draw.randint(5, 50)
    return [
        plans_case("drawn sizes", calls(6, 10, 100)),
        plans_case("caps smaller than some parameters", calls(4, 50, 500)),
        plans_case("exactly full, one, none", [([exact] * 7, 3 * exact), ([exact], 2 * exact), ([], exact)]),
    ]


def _bucketed(draw: random.Random) -> list[Case]:
    return [
        bucketed_case("5 ranks, drawn cap, three steps", seed(draw), 5, 8 * draw.randint(30, 70), 3),
        bucketed_case("3 ranks, small buckets", seed(draw), 3, 8 * draw.randint(5, 12)),
        bucketed_case("4 ranks, no frozen layer, no shared weight", seed(draw), 4, 400, tied=False, frozen=False),
        bucketed_case("2 ranks, one bucket", seed(draw), 2, 1 << 22, norm=False),
    ]


def _accumulating(draw: random.Random) -> list[Case]:
    cap = 8 * draw.randint(30, 60)
    return [
        accumulating_case(
            "4 ranks, drawn numbers of passes", seed(draw), 4, cap,
            {"passes": 2, "quiet": 1}, {}, {"passes": 4, "quiet": 3},
        ),
        accumulating_case("3 ranks, after an error inside no_sync", seed(draw), 3, cap, {}, {"stumble": True}, {}),
        accumulating_case("2 ranks, passes each averaged", seed(draw), 2, cap, {"passes": 3}, {"keep": True}),
        accumulating_case("5 ranks, one step", seed(draw), 5, cap, {"passes": 3, "quiet": 2}),
    ]  # fmt: skip


def _mini(draw: random.Random) -> list[Case]:
    one = draw.randrange(5)
    return [
        mini_case("5 ranks, a layer that one of them uses", seed(draw), 5, 200, {0: [one], 2: [one]}),
        mini_case("3 ranks, a layer that nobody uses", seed(draw), 3, 200, {}, norm=False),
        mini_case("4 ranks, one after the other", seed(draw), 4, 200, {0: [0], 1: [1, 2], 2: [3]}, tied=False),
        mini_case("2 ranks, always used", seed(draw), 2, 400, {0: [0, 1], 1: [0, 1], 2: [0, 1]}),
    ]


def _samplers(draw: random.Random) -> list[Case]:
    size, ranks = draw.randint(30, 99), draw.choice([3, 5, 7])
    seed, epochs = draw.randint(1, 10**6), [0, draw.randint(1, 50), None]
    return [
        sampler_case(
            "drawn sizes, three epochs", [{"size": size, "world_size": ranks, "seed": seed, "epochs": epochs}]
        ),
        sampler_case(
            "drop_last, and a size that divides",
            [
                {"size": size, "world_size": ranks, "seed": seed, "drop_last": True, "epochs": [draw.randint(1, 9)]},
                {"size": 6 * ranks, "world_size": ranks, "seed": seed, "epochs": [1, 2]},
            ],
        ),
        sampler_case("in order", [{"size": size, "world_size": ranks, "shuffle": False, "epochs": [3]}]),
        sampler_case("fewer samples than ranks", [{"size": 3, "world_size": 8, "seed": seed, "epochs": [0, 1]}]),
    ]


def _costs(draw: random.Random) -> list[Case]:
    worlds: list[World] = [
        (draw.uniform(1e-3, 5e-2), draw.uniform(1e6, 1e9), draw.choice([2, 3, 8, 64]), draw.uniform(1e-6, 1e-4), rate)
        for rate in (1e9, 5e9, 2e10, 1e11)
    ]
    return [cost_case("drawn worlds", worlds, [1, 2, draw.randint(3, 40)], most=draw.randint(20, 80))]


def _uneven(draw: random.Random) -> list[Case]:
    counts = [3, 0, 1, 2]
    draw.shuffle(counts)
    return [
        uneven_case(f"4 ranks with {counts} batches", seed(draw), counts),
        uneven_case("3 ranks, rank 0 has nothing", seed(draw), [0, 2, 3]),
        uneven_case("2 ranks, as many each", seed(draw), [3, 3]),
    ]


_CASES = {
    "broadcast_module": _broadcast,
    "average_gradients": _average,
    "overlapped_ddp": _overlapped,
    "bucket_plan": _plans,
    "bucketed_ddp": _bucketed,
    "accumulating_ddp": _accumulating,
    "mini_ddp": _mini,
    "sharded_sampler": _samplers,
    "overlap_gain": _costs,
    "uneven_inputs": _uneven,
}

cases = drawing(_CASES)
