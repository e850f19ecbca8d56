"""Hidden cases of run_orders."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.schedules.programs import linear_case, one_after_another, program_case
from labkit.exercises.stages.hidden_drawing import uneven


def _chunks_in_turns(stages: int, count: int, chunks: int) -> list[str]:
    """Return 1F1B's order over groups of as many microbatches as stages, for each stage."""
    groups = [range(start, start + stages) for start in range(0, count, stages)]
    there = [f"F{chunk}.{m}" for group in groups for chunk in range(chunks) for m in group]
    back = [f"B{chunk}.{m}" for group in groups for chunk in reversed(range(chunks)) for m in group]
    found = []
    for stage in range(stages):
        ahead = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, len(there))
        pairs = [each for pair in zip(there[ahead:], back, strict=False) for each in pair]
        found.append(" ".join([*there[:ahead], *pairs, *back[len(there) - ahead :]]))
    return found


def _halves(draw: random.Random, stages: int, count: int) -> list[str]:
    """Return 1F1B with backward in two halves, the second put off by a number drawn for each stage."""
    found = []
    for stage in range(stages):
        late, work, done = draw.randint(0, 3), [], 0
        ahead = min(stages - 1 - stage, count)
        order = [f"F{m}" for m in range(ahead)]
        for m in range(count):
            order += ([f"F{m + ahead}"] if m + ahead < count else []) + [f"I{m}"]
        for each in order:
            work.append(each)
            if each[0] == "I" and int(each[1:]) >= late:
                work.append(f"W{done}")
                done += 1
        rest = [f"W{m}" for m in range(done, count)]
        draw.shuffle(rest)
        found.append(" ".join(work + rest))
    return found


def cases(draw: random.Random) -> list[Case]:
    sizes = [uneven(draw, count) for count in (6, 4, 5, 3, 4)]
    return [
        linear_case("a layer", seed(draw), (draw.randint(2, 7), draw.randint(2, 7))),
        linear_case("a layer, three dimensions more", seed(draw), (2, 3, 2, 4), frozen=["bias"]),
        linear_case("a layer without bias", seed(draw), (4, 3), bias=False),
        linear_case("a frozen weight", seed(draw), (3, 2, 5), frozen=["weight"]),
        program_case("3 ranks, 2 chunks", seed(draw), sizes[0], _chunks_in_turns(3, 6, 2), before=True),
        program_case("2 ranks, 3 chunks", seed(draw), sizes[1], _chunks_in_turns(2, 4, 3), rows=2),
        of_another_kind(
            program_case("4 ranks, two halves", seed(draw), sizes[2], _halves(draw, 4, 5), rows=draw.choice([0, 3])),
            draw,
        ),
        program_case("one rank, two halves", seed(draw), sizes[3], _halves(draw, 1, 3), before=True),
        program_case("2 ranks, 2 chunks, one after another", seed(draw), sizes[4], [one_after_another(2, 4)] * 2),
    ]
