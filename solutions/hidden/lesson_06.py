"""Hidden cases of lesson 06: the drivers, oracles and judges of labkit.checks, on gradients drawn from a seed.

Points are all or nothing for an exercise over all of its cases here: other shapes, ratios and numbers of ranks, keys in
other orders, buckets that are built anew. On the grader's relay a future is complete when the hook gets it; that a hook
waits for a work itself, or for its future, is seen here as in the notebook.
"""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.drawn_cases import drawing, seed
from labkit.checks.lesson_06.autocast import autocast_case
from labkit.checks.lesson_06.bits import bits_case
from labkit.checks.lesson_06.claims import Measured, Promise, claims_case
from labkit.checks.lesson_06.costs import cost_case
from labkit.checks.lesson_06.feedback import feedback_case
from labkit.checks.lesson_06.gathering import mean_case
from labkit.checks.lesson_06.hook import ROUNDING, WINDOW, hook_case
from labkit.checks.lesson_06.one_bit import signs_case
from labkit.checks.lesson_06.power import power_case
from labkit.checks.lesson_06.prefetching import loader_case
from labkit.checks.lesson_06.scaling import scaling_case
from labkit.checks.lesson_06.sparse import sparse_case
from labkit.checks.lesson_06.together import together_case


def _bits(draw: random.Random) -> list[Case]:
    return [
        bits_case(
            "drawn shapes", seed(draw), [(draw.randint(5, 60),), (3, draw.randint(2, 9), 4)], draw.uniform(0.5, 9)
        ),
        bits_case("small gradients", seed(draw), [(draw.randint(5, 60),)], 1e-4),
        bits_case("tiny gradients", seed(draw), [(draw.randint(5, 60),), (4, 7)], 10 ** -draw.uniform(6, 8)),
        bits_case("beyond float16's range", seed(draw), [(draw.randint(5, 20),)], 2.0, largest=draw.uniform(7e4, 1e7)),
        bits_case("zeros", seed(draw), [(4, 3)], 0.0),
    ]


def _signs(draw: random.Random) -> list[Case]:
    return [
        signs_case("sizes that do not divide by eight", seed(draw), [(8 * k + draw.randint(1, 7),) for k in (0, 1, 9)]),
        signs_case("three dimensions", seed(draw), [(2, 3, draw.randint(3, 9))], shift=-0.3),
        signs_case("with zeros", seed(draw), [(draw.randint(20, 40),)], zeros=draw.randint(2, 9)),
    ]


def _sparse(draw: random.Random) -> list[Case]:
    return [
        sparse_case("drawn sizes", seed(draw), [((100 * draw.randint(1, 3) + 8,), 0.07)]),
        sparse_case("three dimensions", seed(draw), [((5, 6, draw.randint(4, 9)), 0.2)]),
        sparse_case("half of few", seed(draw), [((draw.randint(5, 9),), 0.5)]),
        sparse_case("one of sixty", seed(draw), [((60,), 0.001)]),
    ]


def _feedback(draw: random.Random) -> list[Case]:
    keys: list[str | None] = ["a", "b", "c"]
    sizes: dict[str | None, int] = {key: draw.randint(3, 9) for key in keys}
    order = [draw.choice(keys) for _ in range(12)]
    return [
        feedback_case("one key, ten steps", seed(draw), [(None, 7)] * 10, step=draw.uniform(0.5, 2)),
        feedback_case("three keys in a drawn order", seed(draw), [(key, sizes[key]) for key in order]),
        feedback_case("three keys of one size", seed(draw), [(key, 6) for key in order], step=0.7),
    ]


def _means(draw: random.Random) -> list[Case]:
    def starts(count: int, most: int) -> list[int]:
        return [draw.randint(0, most) for _ in range(count)]

    return [
        mean_case("5 ranks, places that overlap", seed(draw), (20,), starts(5, 13), 7),
        mean_case("3 ranks, a tensor of three dimensions", seed(draw), (4, 5, 6), starts(3, 100), draw.randint(3, 9)),
        mean_case("2 ranks", seed(draw), (31,), starts(2, 20), 5),
        mean_case(
            "5 ranks, of which 0, 2 and 4 take part",
            seed(draw),
            (50,),
            starts(3, 40),
            4,
            group=(0, 2, 4),
            world_size=5,
        ),
    ]


def _hooks(draw: random.Random) -> list[Case]:
    def sizes(count: int) -> list[int]:
        return [draw.randint(30, 60) for _ in range(count)]

    two = sizes(2)
    return [
        hook_case("5 ranks, packets that must be gathered", seed(draw), 5, WINDOW, [sizes(1)], length=4),
        hook_case("4 ranks, packets that may be added", seed(draw), 4, ROUNDING, [two, two, two]),
        hook_case("3 ranks, three steps", seed(draw), 3, WINDOW, [two, two, two], length=5),
        hook_case(
            "2 ranks, buckets built anew", seed(draw), 2, WINDOW, [[64, 40], [50, 30, 40], [50, 30, 40]], length=6
        ),
        hook_case(
            "2 ranks, buckets built anew, packets that may be added", seed(draw), 2, ROUNDING, [[20, 9], [15, 14]]
        ),
        hook_case("2 ranks, and the hook must not wait", seed(draw), 2, WINDOW, [sizes(3)] * 2, overlap=True),
        hook_case(
            "3 ranks, packets that may be added, and no waiting",
            seed(draw),
            3,
            ROUNDING,
            [sizes(2)] * 2,
            overlap=True,
        ),
        hook_case("4 ranks, of which 1 and 3 take part", seed(draw), 4, ROUNDING, [two, two], group=(1, 3)),
        hook_case("5 ranks, of which 0, 1 and 4 take part", seed(draw), 5, WINDOW, [two], group=(0, 1, 4)),
    ]


def _powers(draw: random.Random) -> list[Case]:
    def matrix(rows: int, columns: int) -> tuple[int, int]:
        return draw.randint(rows, rows + 5), draw.randint(columns, columns + 5)

    wide = (5, draw.randint(20, 40))
    return [
        together_case("5 ranks, four tensors", seed(draw), 5, [matrix(2, 3), (draw.randint(2, 9),), (3, 1, 2), (1,)]),
        together_case(
            "5 ranks, of which 0, 1 and 4 take part", seed(draw), 5, [(4,), matrix(1, 6), (2,)], group=(0, 1, 4)
        ),
        power_case("4 ranks, means of rank 2", seed(draw), 4, [matrix(7, 7), matrix(7, 7)], 2, true_rank=2),
        power_case("2 ranks, a wide matrix and two biases", seed(draw), 2, [(4,), wide, (5,)], 3, true_rank=3),
        power_case(
            "3 ranks, convolutions and a bias", seed(draw), 3, [(8, 3, 3, 3), (8,), (4, 8, 1, 2)], 2, true_rank=2
        ),
        power_case("3 ranks, noise, ten calls", seed(draw), 3, [(16, 24), (16,)], 3, true_rank=3, noise=0.3, calls=10),
    ]


def _costs(draw: random.Random) -> list[Case]:
    worlds = [
        (
            10 ** draw.uniform(3, 9), 10 ** draw.uniform(2, 8), draw.choice([2, 3, 8, 64, 200]),
            draw.uniform(0, 1e-4), 10 ** draw.uniform(8, 11), draw.uniform(1e-5, 1e-2),
        )
        for _ in range(12)
    ]  # fmt: skip
    return [
        cost_case("drawn worlds", worlds),
        cost_case("no cost", [(1e6, 1e3, draw.randint(2, 9), 0.0, 1e9, 0.0), (1e6, 1e6, 64, 1e-5, 1e9, 0.0)]),
    ]


def _autocasts(draw: random.Random) -> list[Case]:
    return [
        autocast_case(f"{dtype}, drawn sizes", seed(draw), dtype, *(draw.randint(3, 12) for _ in range(4)))
        for dtype in ("bfloat16", "float16", "bfloat16")
    ]


def _scales(draw: random.Random) -> list[Case]:
    def events(count: int) -> str:
        return "".join(draw.choice("....i-nIN") for _ in range(count))

    return [
        scaling_case("drawn events", seed(draw), "." + events(24), growth_interval=2),
        scaling_case(
            "good steps", seed(draw), "." * 13, scale=2.0 ** draw.randint(4, 20), growth_interval=draw.randint(2, 5)
        ),
        scaling_case("a bad one in between", seed(draw), "...n...i..N....-....", growth_interval=4),
    ]


def _loaders(draw: random.Random) -> list[Case]:
    return [
        loader_case("drawn numbers", draw.randint(20, 60), draw.randint(2, 5), draw.randint(5, 12)),
        loader_case("one may wait", draw.randint(8, 20), 1, draw.randint(1, 5)),
        loader_case("many may wait", 40, 12, 30),
    ]


def _claims(draw: random.Random) -> list[Case]:
    claims = ["faster", "smaller", "cheaper", "never tried"]
    promised: list[Promise] = [(claim, 0.25 * draw.randint(0, 3), 0.25 * draw.randint(4, 8)) for claim in claims]
    rows: list[Measured] = [
        (draw.choice(claims[:3]), f"place {number}", 0.25 * draw.randint(-2, 10)) for number in range(30)
    ]
    rows += [(claim, f"end {end}", value) for claim, *ends in promised[:3] for end, value in enumerate(ends)]
    steps = [(draw.uniform(0.1, 5), draw.uniform(0.1, 5)) for _ in range(6)]
    products = [(draw.uniform(0, 1), draw.uniform(0.5, 16)) for _ in range(6)]
    return [claims_case("drawn rows", steps, products, rows, promised)]


_CASES = {
    "fewer_bits": _bits,
    "one_bit": _signs,
    "few_entries": _sparse,
    "error_feedback": _feedback,
    "mean_of_packets": _means,
    "compression_hook": _hooks,
    "power_sgd": _powers,
    "where_it_pays": _costs,
    "autocast": _autocasts,
    "loss_scaling": _scales,
    "prefetching_loader": _loaders,
    "true_table": _claims,
}

cases = drawing(_CASES)
