"""Hidden cases of run_schedule."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.stages.hidden_drawing import alternating, drawn, gpipe, uneven, writer
from labkit.exercises.stages.pipeline_cases import pipeline_case


def cases(draw: random.Random) -> list[Case]:
    found = []
    for name, stages, count, lines in (
        ("GPipe, 2 stages", 2, 5, gpipe(2, 5)),
        ("1F1B, 3 stages", 3, 7, alternating(3, 7)),
        ("1F1B, more stages than microbatches", 5, 3, alternating(5, 3)),
        ("4 stages, microbatches in another order", 4, 6, drawn(draw, 4, 6)),
        ("one stage", 1, 4, drawn(draw, 1, 4)),
    ):
        sizes, rows = uneven(draw, count), draw.choice([0, 2])
        found.append(
            pipeline_case(
                f"{name}, {sizes} samples", seed(draw), sizes, writer(lines), num_stages=stages, rows=rows,
                before=draw.random() < 0.5,
            )
        )  # fmt: skip
    found[1] = of_another_kind(found[1], draw)
    group = sorted(draw.sample(range(1, 6), 3))
    found.append(
        pipeline_case(
            f"6 ranks, of which {group} are the stages", seed(draw), uneven(draw, 4), writer(alternating(3, 4)),
            num_stages=3, group=group, world_size=6, before=True,
        )
    )  # fmt: skip
    return found
