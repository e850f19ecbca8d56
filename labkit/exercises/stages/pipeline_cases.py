"""Training steps of a pipeline as cases, and what one process with the whole batch gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Value, Values
from labkit.checks.values import integer, integers, named_tensors, record, texts
from labkit.exercises.stages.pipeline_stage import Stage, mean_squared

Schedule = list[dict[str, Value]]
Write = Callable[[int, int, int], Schedule]
_WIDTHS = (4, 6, 5, 5, 3, 7)


def pipeline_case(
    name: str,
    seed: int,
    sizes: Sequence[int],
    write: Write | None,
    *,
    num_stages: int,
    rows: int = 0,
    group: Sequence[int] | None = None,
    world_size: int | None = None,
    before: bool = False,
    pipelines: Sequence[Sequence[int]] | None = None,
) -> Case:
    """Return a case in which each rank has a stage of its own: biases, odd widths, tied and frozen weights, a buffer.

    Args:
        name: What is special about it.
        seed: Draws every number.
        sizes: Samples of each microbatch.
        write: Gives a stage's schedule as data; None where the learner's function takes none (one_batch).
        num_stages: Stages of a pipeline.
        rows: A sample is a vector (0), or a matrix of that many rows.
        group: Global ranks that make up the pipeline, in a world of `world_size`; None is everybody.
        world_size: Ranks of the world, where that is not the number of stages.
        before: Whether gradients are there already when the function is called.
        pipelines: For a mesh: the sizes of each of its pipelines (then `sizes` is not used).
    """
    of_pipelines = [list(sizes)] if pipelines is None else [list(each) for each in pipelines]
    widths = [_WIDTHS[place % len(_WIDTHS)] for place in range(num_stages + 1)]
    ranks = list(group or range(num_stages))
    who = [("rank", ranks[stage]) if len(of_pipelines) == 1 else ("stage", stage) for stage in range(num_stages)]
    draw = [draws.generator(seed, *each) for each in who]
    stages = [
        _spec(draw[stage], stage, num_stages, widths[stage], widths[stage + 1], rows) for stage in range(num_stages)
    ]
    old = [_like(draw[stage], stages[stage]) for stage in range(num_stages)]
    inputs: list[Values] = []
    for number, own in enumerate(of_pipelines):
        first = draws.generator(seed, "rank", number * num_stages if group is None else ranks[0], "x")
        last = draws.generator(seed, "rank", (number + 1) * num_stages - 1 if group is None else ranks[-1], "y")
        x = [_normal(first, size, *([rows] if rows else []), widths[0]) for size in own]
        y = [_normal(last, size, *([rows] if rows else []), widths[-1]) for size in own]
        for stage in range(num_stages):
            sample = torch.zeros(*([rows] if rows else []), widths[stage], dtype=torch.float64)
            entry: dict[str, Value] = {"stage": stages[stage], "sizes": list(own), "sample": sample}
            if write is not None:
                entry["schedule"] = write(stage, num_stages, len(own))
            if stage == 0:
                entry["inputs"] = x
            if stage == num_stages - 1:
                entry["targets"] = y
            if before:
                entry["before"] = old[stage]
            if pipelines is not None:
                entry["mesh"] = [len(of_pipelines), num_stages]
            inputs.append(entry)
    if group is not None:
        assert world_size is not None
        by_rank = dict(zip(group, inputs, strict=True))
        inputs = [{**by_rank.get(rank, {"outside": rank}), "group": list(group)} for rank in range(world_size)]
    about: dict[str, Value] = {"stages": num_stages, "group": list(group or range(len(inputs)))}
    return Case(name, len(inputs), tuple(inputs), about)


def _normal(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def _spec(
    draw: torch.Generator, stage: int, num_stages: int, width_in: int, width_out: int, rows: int
) -> dict[str, Value]:
    weights: dict[str, Value] = {}
    weights["first_weight"] = _normal(draw, width_in + 1, width_in) / 2
    weights["first_bias"] = _normal(draw, width_in + 1) / 2
    if width_in == width_out:  # one weight, used twice
        weights["first_weight"], weights["first_bias"] = _normal(draw, width_in, width_in) / 2, _normal(draw, width_in)
    else:
        weights["second_weight"] = _normal(draw, width_out, width_in + 1) / 2
    weights["second_bias"] = _normal(draw, width_out) / 2
    if stage == 0:
        weights["spare"] = _normal(draw, 3)  # never used
    if stage == num_stages - 1 and num_stages > 1 and width_in != width_out:
        del weights["first_bias"]
    frozen: list[Value] = ["first_weight"] if stage == 1 else []
    return {
        "weights": weights,
        "frozen": frozen,
        "transposed": rows > 0 and 0 < stage < num_stages - 1,
        "seen": _normal(draw, width_in),
    }


def _like(draw: torch.Generator, spec: Mapping[str, Value]) -> dict[str, Value]:
    weights = named_tensors(spec, "weights")
    frozen = texts(spec, "frozen")
    used = {name: tensor for name, tensor in weights.items() if name not in frozen and name != "spare"}
    return {name: _normal(draw, *tensor.shape) for name, tensor in used.items()}


def members(case: Case) -> list[int]:
    """Return the global ranks that hold a stage, pipeline after pipeline."""
    return integers(case.about, "group")


def num_stages(case: Case) -> int:
    """Return the stages of a pipeline."""
    return integer(case.about, "stages")


def stage_of(case: Case, rank: int) -> int:
    """Return which stage a member holds."""
    return members(case).index(rank) % num_stages(case)


def pipelines_of(case: Case) -> list[list[int]]:
    """Return the global ranks of each pipeline, in the order of their stages."""
    ranks, count = members(case), num_stages(case)
    return [ranks[start : start + count] for start in range(0, len(ranks), count)]


def sizes_of(case: Case, rank: int) -> list[int]:
    """Return the samples of each microbatch of a rank's pipeline."""
    return integers(case.inputs[rank], "sizes")


Weigh = Callable[[int, list[int], int], float]
"""Weight of a microbatch's mean loss: (its number, the sizes in its pipeline, samples of all pipelines)."""


def right_weight(number: int, sizes: list[int], everybody: int) -> float:
    """Return the weight that makes the sum of the microbatches' means the mean over all samples."""
    return sizes[number] / everybody


Pair = Callable[[int, int], int]
"""Which microbatch's input meets the target of a microbatch: (its number, how many there are)."""


def gradients(
    case: Case, weigh: Weigh = right_weight, pair: Pair = lambda number, count: number, before: bool = True
) -> tuple[list[dict[str, Tensor | None]], list[Tensor]]:
    """Return each member's gradients, and each pipeline's loss, from one process that holds all stages.

    Args:
        case: The step.
        weigh: How the microbatches' losses are weighed.
        pair: Which input goes with which target.
        before: Whether gradients that were there before are added.
    """
    found: list[dict[str, Tensor | None]] = []
    losses: list[Tensor] = []
    rows = pipelines_of(case)
    everybody = sum(sum(sizes_of(case, row[0])) for row in rows)
    stages = [Stage(record(case.inputs[rank], "stage")) for rank in rows[0]]
    for row in rows:
        xs, ys = (
            cast(list[Tensor], case.inputs[rank][key]) for rank, key in ((row[0], "inputs"), (row[-1], "targets"))
        )
        sizes = sizes_of(case, row[0])
        total = torch.zeros((), dtype=torch.float64)
        for number, y in enumerate(ys):
            x = xs[pair(number, len(xs))]
            if len(x) != len(y):
                continue
            for stage in stages:
                x = stage(x)
            total = total + mean_squared(x, y) * weigh(number, sizes, everybody)
        if total.requires_grad:
            total.backward()  # type: ignore[no-untyped-call]
        losses.append(total.detach())
    for row in rows:
        for stage, rank in zip(stages, row, strict=True):
            old = cast(dict[str, Tensor], case.inputs[rank].get("before") or {}) if before else {}
            mine = cast(dict[str, Any], stage.gradients())
            found.append({name: _sum(mine[name], old.get(name)) for name in mine})
    return found, losses


def gradients_of_echoes(case: Case, of_sums: bool = False) -> list[dict[str, Tensor | None]]:
    """Return each member's gradients where a stage is sent back what it has sent, in place of its gradient.

    Args:
        case: The step.
        of_sums: Whether each stage begins with the sum of its own output instead, and nothing is sent back.
    """
    rows = pipelines_of(case)
    everybody = sum(sum(sizes_of(case, row[0])) for row in rows)
    stages = [Stage(record(case.inputs[rank], "stage")) for rank in rows[0]]
    for row in rows:
        xs, ys = (
            cast(list[Tensor], case.inputs[rank][key]) for rank, key in ((row[0], "inputs"), (row[-1], "targets"))
        )
        for number, (x, y) in enumerate(zip(xs, ys, strict=True)):
            for stage in stages[:-1]:
                left = stage(x)
                x = left.detach()
                left.backward(torch.ones_like(x) if of_sums else x)
            loss = mean_squared(stages[-1](x), y) * right_weight(number, sizes_of(case, row[0]), everybody)
            loss.backward()  # type: ignore[no-untyped-call]
    found = []
    for row in rows:
        for stage, rank in zip(stages, row, strict=True):
            old = cast(dict[str, Tensor], case.inputs[rank].get("before") or {})
            mine = cast(dict[str, Any], stage.gradients())
            found.append({name: _sum(mine[name], old.get(name)) for name in mine})
    return found


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


def buffers_after_forward(case: Case) -> dict[int, Tensor]:
    """Return each member's buffer after each microbatch has gone forward once, by its rank."""
    found: dict[int, Tensor] = {}
    for row in pipelines_of(case):
        stages = [Stage(record(case.inputs[rank], "stage")) for rank in row]
        for x in cast(list[Tensor], case.inputs[row[0]]["inputs"]):
            for stage in stages:
                x = stage(x)
        found |= {rank: stage.seen for rank, stage in zip(row, stages, strict=True)}
    return found


def expected(case: Case) -> list[Values]:
    """Return what each rank's driver should have brought (the oracle): gradients, buffer; on last stages the loss."""
    found, losses = gradients(case)
    buffers = buffers_after_forward(case)
    mean = sum(losses[1:], losses[0])
    of_rank: dict[int, Values] = {}
    for rank, grads in zip(members(case), found, strict=True):
        last = stage_of(case, rank) == num_stages(case) - 1
        of_rank[rank] = {"grads": grads, "loss": mean if last else None, "seen": buffers[rank]}
    return [of_rank.get(rank, {"member": False}) for rank in range(case.world_size)]
