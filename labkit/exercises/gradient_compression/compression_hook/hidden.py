"""Hidden cases of compression_hook."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.compression_hook.exercise import ddp_case, hook_case, own_parts_case
from labkit.exercises.gradient_compression.unpacked import ROUNDING, WINDOW


def cases(draw: random.Random) -> list[Case]:
    def sizes(count: int) -> list[int]:
        return [draw.randint(30, 60) for _ in range(count)]

    two = sizes(2)
    return [
        hook_case("5 ranks, packets that must be gathered", seed(draw), 5, WINDOW, [sizes(1)], length=24),
        hook_case("4 ranks, packets that may be added", seed(draw), 4, ROUNDING, [two, two, two]),
        hook_case("3 ranks, three steps", seed(draw), 3, WINDOW, [two, two, two], length=5, values_first=True),
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
        hook_case(
            "4 ranks, of which 0, 2 and 3 take part, values first, buckets built anew",
            seed(draw),
            4,
            WINDOW,
            [sizes(2), sizes(3), sizes(3)],
            group=(0, 2, 3),
            length=4,
            values_first=True,
        ),
        ddp_case("2 ranks under torch's DDP, three steps", seed(draw), 2, 3),
        own_parts_case("3 ranks under torch's DDP, with your own Int8 and ErrorFeedback", seed(draw), 3, 3),
        own_parts_case("3 ranks, your own TopK", seed(draw), 3, 4, "TopK", {"ratio": draw.uniform(0.05, 0.3)}),
        own_parts_case(
            "3 ranks, your own RandomK",
            seed(draw),
            3,
            4,
            "RandomK",
            {"ratio": draw.uniform(0.1, 0.3), "seed": draw.randint(1, 99)},
        ),
    ]
