"""Hidden cases of lesson 01: the drivers, oracles and judges of labkit.checks, on values drawn from a seed.

Points are all or nothing for an exercise over all of its cases here: other numbers of devices, other nestings, batches
smaller than the number of devices, models with and without each thing that goes wrong.
"""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case, Value
from labkit.checks.drawn_cases import drawing, seed
from labkit.checks.lesson_01.applying import threads_case
from labkit.checks.lesson_01.gathering import gather_case
from labkit.checks.lesson_01.loading import loader_case
from labkit.checks.lesson_01.losses import losses_case
from labkit.checks.lesson_01.moving import Arguments, Move, plans_case, right_plan
from labkit.checks.lesson_01.plan_costs import Link, costs_case
from labkit.checks.lesson_01.replicating import replicas_case
from labkit.checks.lesson_01.scattering import scatter_case
from labkit.checks.lesson_01.speeds import speeds_case
from labkit.checks.lesson_01.trees import drawn
from labkit.checks.lesson_01.wrapping import nested_case, training_case


def _generator(draw: random.Random) -> torch.Generator:
    return torch.Generator().manual_seed(seed(draw))


def _scatters(draw: random.Random) -> list[Case]:
    g = _generator(draw)
    many, few = draw.randint(11, 17), draw.randint(2, 4)
    mixed: Value = {"tuple": [
        {"list": [drawn(g, many, 2), {"tuple": []}, True]},
        {"dict": {"x": {"tuple": [drawn(g, many)]}, "more": {"list": []}, "t": drawn(g)}},
    ]}  # fmt: skip
    return [
        scatter_case("many samples, 7 devices", drawn(g, many, 3), 7),
        scatter_case("few samples, 6 devices", {"tuple": [{"tuple": [drawn(g, few)]}, {"dict": {}}]}, 6),
        scatter_case("one sample, one device", drawn(g, 1, 2, 2), 1),
        scatter_case("nested, with empty containers", mixed, draw.randint(2, 5)),
        scatter_case("nothing to cut", {"tuple": [{"tuple": [3, "a text"]}, {"dict": {"flag": None}}]}, 3),
        scatter_case("other devices", {"dict": {"x": drawn(g, many)}}, ["meta", "cpu", "meta", "cpu"]),
    ]


def _gathers(draw: random.Random) -> list[Case]:
    g = _generator(draw)
    sizes = [draw.randint(1, 4) for _ in range(draw.randint(3, 6))]
    nested: list[Value] = [
        {"tuple": [drawn(g, size, 2), {"dict": {"loss": drawn(g), "rows": {"list": [drawn(g, size), 7]}}}, None]}
        for size in sizes
    ]
    return [
        gather_case("drawn sizes", [drawn(g, size, 3) for size in sizes]),
        gather_case("one output", [drawn(g, 3)]),
        gather_case("losses", [drawn(g) for _ in sizes]),
        gather_case("nested", nested),
        gather_case("a tuple to another device", [{"tuple": [drawn(g, 2), drawn(g)]} for _ in range(3)], "meta"),
    ]


def _replicas(draw: random.Random) -> list[Case]:
    return [
        replicas_case("5 devices, all of it", seed(draw), 5),
        replicas_case("3 devices, no shared weight, no frozen layer", seed(draw), 3, tied=False, frozen=False),
        replicas_case("2 devices, evaluation", seed(draw), 2, train=False),
        replicas_case("one device", seed(draw), 1),
        replicas_case("other devices", seed(draw), ["cpu", "meta", "meta"]),
    ]


def _threads(draw: random.Random) -> list[Case]:
    kinds = draw.sample(["ValueError", "KeyError", "BadSampleError"], 3)
    return [
        threads_case("5 replicas, a keyword", seed(draw), 5, scale=draw.choice([0.25, 3.0])),
        threads_case("3 replicas, under no_grad", seed(draw), 3, gradients=False),
        threads_case("one replica", seed(draw), 1),
        threads_case("the last of 4 raises", seed(draw), 4, failing={3: kinds[0]}),
        threads_case("two of 3 raise", seed(draw), 3, failing={2: kinds[1], 0: kinds[2]}),
    ]


def _wrappers(draw: random.Random) -> list[Case]:
    def sizes(count: int, low: int) -> list[dict[str, int]]:
        return [{"size": draw.randint(low, low + 6)} for _ in range(count)]

    return [
        training_case("5 devices, drawn batches, four steps", seed(draw), 5, sizes(4, 6), norm=False),
        training_case("6 devices, few samples", seed(draw), 6, [{"size": 2}, {"size": 1}, {"size": 9}], norm=False),
        training_case("3 devices, BatchNorm, no shared weight", seed(draw), 3, sizes(3, 6), tied=False),
        training_case(
            "2 devices, evaluations and a keyword", seed(draw), 2,
            [{"size": 5, "eval": True}, {"size": 6, "spare": True}, {"size": 3, "eval": True}], unused=True,
        ),
        nested_case("a dict, no offset", seed(draw), 4, draw.randint(5, 9), offset=False, scale=2.0),
        nested_case("fewer samples than devices", seed(draw), 5, 3, offset=True, scale=0.75),
        training_case("3 devices at the same time", seed(draw), 3, sizes(1, 5), norm=False, meet=True),
        training_case("one sample, two kinds of device", seed(draw), ["cpu", "meta"], [{"size": 1}], norm=False),
    ]  # fmt: skip


def _losses(draw: random.Random) -> list[Case]:
    counts = [draw.randint(1, 30) for _ in range(draw.randint(3, 8))]
    holes = list(counts)
    holes[draw.randrange(len(holes))] = 0
    return [
        losses_case("drawn counts", seed(draw), counts),
        losses_case("nothing counted in some", seed(draw), [0, *holes, 0]),
        losses_case("one device", seed(draw), [draw.randint(1, 9)]),
    ]


def _arguments(draw: random.Random, devices: int) -> Arguments:
    sizes = sorted((draw.randint(1, 9) for _ in range(devices)), reverse=True)
    model = draw.randint(1000, 10**9)
    return sizes, draw.randint(1, 5000), draw.randint(1, 5000), model, draw.randint(500, model)


def _plans(draw: random.Random) -> list[Case]:
    return [plans_case(f"{count} devices", [_arguments(draw, count) for _ in range(2)]) for count in (1, 2, 3, 5, 8)]


def _costs(draw: random.Random) -> list[Case]:
    links: list[Link] = [(draw.uniform(1e-6, 1e-4), 10.0 ** draw.uniform(8, 11)) for _ in range(3)]
    between: list[Move] = [["model", *draw.sample(range(6), 2), draw.randint(0, 10**6)] for _ in range(9)]
    return [
        costs_case("steps of data parallelism", [(right_plan(*_arguments(draw, n)), n) for n in (2, 4, 7)], links),
        costs_case("moves between any devices", [(between, 6)], links),
    ]


def _speeds(draw: random.Random) -> list[Case]:
    found: list[tuple[int, list[int]]] = []
    while len(found) < 12:
        num_samples, speeds = draw.randint(0, 60), [draw.randint(1, 40) for _ in range(draw.randint(1, 6))]
        remainders = {(num_samples * speed % sum(speeds), speed) for speed in speeds}
        if len({remainder for remainder, _ in remainders}) == len(remainders):  # ties of equal speeds only
            found.append((num_samples, speeds))
    equal: list[tuple[int, list[int]]] = [(8, [4, 1, 1]), (4, [2, 5, 5]), (15, [2, 2, 5]), (10, [1, 1, 4])]
    equal = [(num_samples + draw.randrange(3) * sum(speeds), speeds) for num_samples, speeds in equal]
    return [
        speeds_case("drawn speeds", found),
        speeds_case("equal speeds", [(draw.randint(5, 30), [3] * 7)]),
        speeds_case("other speeds, equal remainders", equal),
    ]


def _loaders(draw: random.Random) -> list[Case]:
    size = draw.randint(30, 60)
    return [
        loader_case("drawn sizes, three passes", size, draw.randint(5, 11), (5, 2, 3), seed=seed(draw), epochs=3),
        loader_case("in order", size, 7, (1, 4), shuffle=False),
        loader_case("small batches", 21, 2, (1, 1, 1, 6), seed=seed(draw)),
        loader_case("one batch, one device", 20, 50, (3,), seed=seed(draw)),
    ]


_CASES = {
    "scatter": _scatters,
    "gather": _gathers,
    "replicate": _replicas,
    "parallel_apply": _threads,
    "mini_data_parallel": _wrappers,
    "whole_batch_loss": _losses,
    "step_plan": _plans,
    "plan_cost": _costs,
    "shares_by_speed": _speeds,
    "split_loader": _loaders,
}

cases = drawing(_CASES)
