"""Cases of training: what each rank is given."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from labkit.checks.case import Case, Value
from labkit.checks.draws import part_of
from labkit.checks.on_ranks.hard_model import hard_batch

PLAIN: Mapping[str, int] = {"unused": False}
"""The hard model without its spare layer."""


def step(seed: int, rank: int, batch: int, passes: int = 1, **more: Value) -> dict[str, Value]:
    """Return what a rank does in a step: a batch of its own for each backward pass.

    Args:
        seed: Of the step.
        rank: Which rank.
        batch: Samples in each pass.
        passes: Backward passes.
        more: quiet, spare, spare_passes, ahead, stumble, counted, keep, idle (see on_ranks.train).
    """
    batches = [hard_batch(part_of(seed, "rank", rank, number), batch) for number in range(passes)]
    return {"x": [x for x, _ in batches], "y": [y for _, y in batches], **more}


def exchanging(cases: Sequence[Case]) -> list[Case]:
    """Return cases whose ranks exchange numbers during backward, without which the gradients are not right."""
    return [replace(case, inputs=tuple({**inputs, "exchange": True} for inputs in case.inputs)) for case in cases]


def training_case(
    name: str,
    seed: int,
    world_size: int,
    *,
    wrapper: str,
    rule: str,
    steps: Sequence[Mapping[str, Any]] = ({},),
    model: Mapping[str, int] = PLAIN,
    cap_bytes: int | None = None,
    buffers: bool = False,
    spare: Mapping[int, Sequence[int]] | None = None,
    counted: tuple[int, int] | None = None,
    evaluated: bool = False,
) -> Case:
    """Return a case in which every rank begins with another model and trains on batches of its own.

    Args:
        name: What is special about it.
        seed: Draws models and batches.
        world_size: Ranks.
        wrapper: The class that is built.
        rule: How gradients must travel: "each", "buckets" or "total".
        steps: For each step its passes, quiet, ahead, spare_passes, stumble, keep, idle; {} is one pass.
        model: Options of the hard model.
        cap_bytes: Of a bucket; None for a wrapper that takes none.
        buffers: Whether forward shares rank 0's buffers.
        spare: Step -> ranks that use the spare layer in it.
        counted: A step and a rank whose whole-numbered buffers have grown by one before it.
        evaluated: Whether each rank evaluates its model on a batch of its own after the last step.
    """
    draw = random.Random(seed)
    batch = draw.randint(3, 6)
    inputs = []
    for rank in range(world_size):
        mine: list[Value] = []
        for number, about in enumerate(steps):
            more = dict(about)
            if spare is not None and rank in spare.get(number, ()):
                more["spare"] = True
            if counted == (number, rank):
                more["counted"] = 1
            mine.append(step(seed + 17 * number, rank, batch, **more))
        given: dict[str, Value] = {
            "seed": part_of(seed, "rank", rank), "model": dict(model), "wrapper": wrapper, "lr": 0.05, "steps": mine,
        }  # fmt: skip
        if cap_bytes is not None:
            given["cap"] = cap_bytes / 2**20
        if evaluated:
            given["evaluate"] = hard_batch(part_of(seed, "rank", rank, "evaluated"), batch)[0]
        inputs.append(given)
    return Case(name, world_size, tuple(inputs), {"rule": rule, "buffers": buffers})
