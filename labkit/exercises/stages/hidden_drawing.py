"""What hidden cases of this lesson draw alike."""

from __future__ import annotations

import random

from labkit.exercises.stages.pipeline_cases import Write
from labkit.exercises.stages.written import read


def uneven(draw: random.Random, count: int) -> list[int]:
    """Return sizes of that many microbatches, not all equal."""
    sizes = [draw.randint(1, 4) for _ in range(count)]
    if count > 1 and len(set(sizes)) == 1:
        sizes[-1] += 1
    return sizes


# ---- schedules, in short


def line(stage: int, num_stages: int, work: list[str]) -> str:
    found = []
    for each in work:
        kind, number = each[0], each[1:]
        if kind == "F":
            around = ("r" if stage > 0 else "", "s" if stage < num_stages - 1 else "")
        else:
            around = ("rg" if stage < num_stages - 1 else "", "sg" if stage > 0 else "")
        found += [around[0] + number] * bool(around[0]) + [each] + [around[1] + number] * bool(around[1])
    return " ".join(found)


def gpipe(num_stages: int, count: int) -> list[str]:
    return [line(s, num_stages, [f"{kind}{m}" for kind in "FB" for m in range(count)]) for s in range(num_stages)]


def alternating(num_stages: int, count: int) -> list[str]:
    lines = []
    for stage in range(num_stages):
        ahead = min(num_stages - stage, count)
        work = [f"F{m}" for m in range(ahead)]
        for microbatch in range(count):
            work += [f"B{microbatch}"] + [f"F{microbatch + ahead}"] * (microbatch + ahead < count)
        lines.append(line(stage, num_stages, work))
    return lines


def drawn(draw: random.Random, num_stages: int, count: int) -> list[str]:
    """Return schedules in which microbatches go forward in a drawn order and backward in another, in rounds."""
    order = list(range(count))
    draw.shuffle(order)
    size = draw.randint(2, max(2, count - 1))
    work: list[str] = []
    for start in range(0, count, size):
        there = order[start : start + size]
        back = draw.sample(there, len(there))
        work += [f"F{m}" for m in there] + [f"B{m}" for m in back]
    return [line(stage, num_stages, work) for stage in range(num_stages)]


def writer(lines: list[str]) -> Write:
    return lambda stage, num_stages, num_microbatches: read(lines[stage], stage)


ALL = [(stages, count) for stages in range(1, 9) for count in range(1, 13)]
