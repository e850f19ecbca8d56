"""Hidden cases of lesson 05: the drivers, oracles and judges of labkit.checks, on pipelines drawn from a seed.

Points are all or nothing for an exercise over all of its cases here. Schedules are asked for all pipelines up to 8 stages
and 12 microbatches; the executor meets GPipe, 1F1B, orders drawn at random, batches that do not divide, one stage, a
sub-group, and gradients that are there already.
"""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.drawn_cases import drawing, seed
from labkit.checks.lesson_05.bubble import best_case, bubble_case
from labkit.checks.lesson_05.budget import budget_case
from labkit.checks.lesson_05.chunked import order_case
from labkit.checks.lesson_05.hybrid import mesh_case
from labkit.checks.lesson_05.one_batch import batch_case
from labkit.checks.lesson_05.paper import Paper, paper_case
from labkit.checks.lesson_05.pipeline_cases import Write, pipeline_case
from labkit.checks.lesson_05.programs import linear_case, one_after_another, program_case
from labkit.checks.lesson_05.recompute import recompute_case
from labkit.checks.lesson_05.split_layer import layer_case
from labkit.checks.lesson_05.writing import schedule_case
from labkit.checks.lesson_05.written import read


def _uneven(draw: random.Random, count: int) -> list[int]:
    """Return sizes of that many microbatches, not all equal."""
    sizes = [draw.randint(1, 4) for _ in range(count)]
    if count > 1 and len(set(sizes)) == 1:
        sizes[-1] += 1
    return sizes


# ---- schedules, in short


def _line(stage: int, num_stages: int, work: list[str]) -> str:
    found = []
    for each in work:
        kind, number = each[0], each[1:]
        if kind == "F":
            around = ("r" if stage > 0 else "", "s" if stage < num_stages - 1 else "")
        else:
            around = ("rg" if stage < num_stages - 1 else "", "sg" if stage > 0 else "")
        found += [around[0] + number] * bool(around[0]) + [each] + [around[1] + number] * bool(around[1])
    return " ".join(found)


def _gpipe(num_stages: int, count: int) -> list[str]:
    return [_line(s, num_stages, [f"{kind}{m}" for kind in "FB" for m in range(count)]) for s in range(num_stages)]


def _alternating(num_stages: int, count: int) -> list[str]:
    lines = []
    for stage in range(num_stages):
        ahead = min(num_stages - stage, count)
        work = [f"F{m}" for m in range(ahead)]
        for microbatch in range(count):
            work += [f"B{microbatch}"] + [f"F{microbatch + ahead}"] * (microbatch + ahead < count)
        lines.append(_line(stage, num_stages, work))
    return lines


def _drawn(draw: random.Random, num_stages: int, count: int) -> list[str]:
    """Return schedules in which microbatches go forward in a drawn order and backward in another, in rounds."""
    order = list(range(count))
    draw.shuffle(order)
    size = draw.randint(2, max(2, count - 1))
    work: list[str] = []
    for start in range(0, count, size):
        there = order[start : start + size]
        back = draw.sample(there, len(there))
        work += [f"F{m}" for m in there] + [f"B{m}" for m in back]
    return [_line(stage, num_stages, work) for stage in range(num_stages)]


def _writer(lines: list[str]) -> Write:
    return lambda stage, num_stages, num_microbatches: read(lines[stage], stage)


# ---- which of them come to an end, played one message at a time


def _stuck(lines: list[str]) -> dict[int, str]:
    """Return for each stage that cannot finish the first record, in short, of its step that cannot be done."""
    partner = {"s": ("r", 1), "r": ("s", -1), "sg": ("rg", -1), "rg": ("sg", 1)}
    plans: list[list[list[str]]] = []
    for line in lines:
        plan: list[list[str]] = []
        for each in line.split():
            if each[0] not in "FB" and plan and plan[-1][0][0] not in "FB":
                plan[-1].append(each)
            else:
                plan.append([each])
        plans.append(plan)
    at, done = [0] * len(plans), [set[str]() for _ in plans]
    posted: set[tuple[int, str]] = set()

    def split(each: str) -> tuple[str, str]:
        return each.rstrip("0123456789"), each.lstrip("FBrsg")

    def allowed(stage: int, each: str) -> bool:
        kind, number = split(each)
        first, last = stage == 0, stage == len(plans) - 1
        wanted = {
            "F": [] if first else [f"r{number}"],
            "B": [f"F{number}"] + ([] if last else [f"rg{number}"]),
            "s": [f"F{number}"],
            "sg": [f"B{number}"],
        }.get(kind, [])
        return all(other in done[stage] for other in wanted)

    def possible(stage: int, each: str) -> bool:
        kind, number = split(each)
        if not allowed(stage, each) or kind not in partner:
            return allowed(stage, each)
        other, way = partner[kind]
        return (stage + way, f"{other}{number}") in posted

    for _ in range(sum(map(len, plans)) + 2):
        for stage, plan in enumerate(plans):
            if at[stage] < len(plan):
                posted.update((stage, each) for each in plan[at[stage]] if allowed(stage, each))
        for stage, plan in enumerate(plans):
            if at[stage] < len(plan) and all(possible(stage, each) for each in plan[at[stage]]):
                done[stage].update(plan[at[stage]])
                at[stage] += 1
    waiting = [stage for stage, plan in enumerate(plans) if at[stage] < len(plan)]
    return {stage: next(each for each in plans[stage][at[stage]] if not possible(stage, each)) for stage in waiting}


def _paper(lines: list[str]) -> Paper:
    return lines, _stuck(lines)


def _broken(draw: random.Random, lines: list[str]) -> list[str]:
    """Return the schedules with two neighbouring records of one stage swapped that are not both messages."""
    lines = list(lines)
    stage = draw.randrange(len(lines))
    records = lines[stage].split()
    places = [p for p in range(len(records) - 1) if {records[p][0] in "FB", records[p + 1][0] in "FB"} == {True, False}]
    place = draw.choice(places)
    records[place], records[place + 1] = records[place + 1], records[place]
    lines[stage] = " ".join(records)
    return lines


# ---- the cases


def _budget(draw: random.Random) -> list[Case]:
    models = [
        (draw.randint(10**6, 10**11), size, draw.randint(0, 10**12), draw.randint(10**10, 10**11))
        for size in (1, 2, 4, 8)
    ]
    device = draw.randint(10**9, 10**10)
    exact = (16 * device // 64, 4, 16 * device - 16 * (16 * device // 64), 4 * device)
    return [budget_case("drawn models", models), budget_case("what fits exactly", [exact])]


def _one_batch(draw: random.Random) -> list[Case]:
    return [
        batch_case("3 stages", seed(draw), 3, draw.randint(2, 6)),
        batch_case("2 stages, samples with rows", seed(draw), 2, draw.randint(2, 5), rows=draw.randint(2, 4)),
        batch_case("5 stages, old gradients, rows", seed(draw), 5, draw.randint(2, 5), rows=2, before=True),
        batch_case("one stage", seed(draw), 1, draw.randint(2, 5)),
    ]


def _split_layer(draw: random.Random) -> list[Case]:
    return [
        layer_case("2 ranks", seed(draw), (draw.randint(1, 4), draw.randint(1, 4))),
        layer_case("5 ranks", seed(draw), [draw.randint(1, 3) for _ in range(5)]),
        layer_case(
            "6 ranks, of which 3 take part", seed(draw), [draw.randint(1, 3) for _ in range(3)],
            group=sorted(draw.sample(range(6), 3)), world_size=6,
        ),
    ]  # fmt: skip


def _bubble(draw: random.Random) -> list[Case]:
    pairs = [(stages, draw.randint(1, 64)) for stages in (1, 2, 3, 5, 8, 16)]
    return [bubble_case("drawn pipelines", pairs, draw.uniform(0.01, 1.0), draw.uniform(1e-4, 1e-2))]


_ALL = [(stages, count) for stages in range(1, 9) for count in range(1, 13)]


def _writes_gpipe(draw: random.Random) -> list[Case]:
    return [schedule_case("up to 8 stages and 12 microbatches", "gpipe", _ALL)]


def _writes_one_f_one_b(draw: random.Random) -> list[Case]:
    return [schedule_case("up to 8 stages and 12 microbatches", "one_f_one_b", _ALL)]


def _finds_stuck(draw: random.Random) -> list[Case]:
    right = [_gpipe(4, 5), _alternating(5, 7), _alternating(8, 3), _drawn(draw, 3, 6), _gpipe(1, 2)]
    broken = [_broken(draw, draw.choice(right[:4])) for _ in range(12)]
    other = [[*_gpipe(3, 4)[:2], _gpipe(3, draw.choice([3, 5]))[2]], [*_alternating(3, 5)[:1], *_alternating(3, 4)[1:]]]
    mixed = [[_gpipe(3, 6)[0], *_alternating(3, 6)[1:]], [_alternating(2, 6)[0], _gpipe(2, 6)[1]]]
    return [
        paper_case("schedules that come to an end", [_paper(lines) for lines in right]),
        paper_case("two records swapped; what work needs", [_paper(lines) for lines in broken]),
        paper_case("stages that disagree", [_paper(lines) for lines in other + mixed]),
    ]


def _executes(draw: random.Random) -> list[Case]:
    found = []
    for name, stages, count, lines in (
        ("GPipe, 2 stages", 2, 5, _gpipe(2, 5)),
        ("1F1B, 3 stages", 3, 7, _alternating(3, 7)),
        ("1F1B, more stages than microbatches", 5, 3, _alternating(5, 3)),
        ("4 stages, microbatches in another order", 4, 6, _drawn(draw, 4, 6)),
        ("one stage", 1, 4, _drawn(draw, 1, 4)),
    ):
        sizes, rows = _uneven(draw, count), draw.choice([0, 2])
        found.append(
            pipeline_case(
                f"{name}, {sizes} samples", seed(draw), sizes, _writer(lines), num_stages=stages, rows=rows,
                before=draw.random() < 0.5,
            )
        )  # fmt: skip
    group = sorted(draw.sample(range(1, 6), 3))
    found.append(
        pipeline_case(
            f"6 ranks, of which {group} are the stages", seed(draw), _uneven(draw, 4), _writer(_alternating(3, 4)),
            num_stages=3, group=group, world_size=6, before=True,
        )
    )  # fmt: skip
    return found


def _best(draw: random.Random) -> list[Case]:
    drawn = [
        (draw.randint(1, 16), draw.uniform(0.01, 1.0), draw.uniform(1e-5, 1e-2), draw.randint(1, 200)) for _ in range(8)
    ]
    edges = [(4, 0.1, 0.0, draw.randint(5, 50)), (1, 0.1, 0.01, 9), (8, 0.5, 1e-4, 3)]
    return [best_case("drawn pipelines", drawn), best_case("edges", edges)]


def _recomputes(draw: random.Random) -> list[Case]:
    return [
        recompute_case("plain", seed(draw), draw.randint(3, 7), draw.randint(2, 5)),
        recompute_case("no gradient for x", seed(draw), draw.randint(3, 7), 3, needs_gradient=False),
        recompute_case("dropout", seed(draw), draw.randint(5, 9), 3, dropout=draw.choice([0.3, 0.5])),
        recompute_case("dropout, no gradient for x", seed(draw), 6, 2, dropout=0.4, needs_gradient=False),
        recompute_case("a frozen and an unused parameter", seed(draw), 4, 4, frozen=draw.randint(0, 3), spare=True),
        recompute_case("BatchNorm", seed(draw), draw.randint(3, 7), draw.randint(2, 4), norm=True),
        recompute_case("BatchNorm, no gradient for x", seed(draw), 4, 2, norm=True, needs_gradient=False),
    ]


def _hybrid(draw: random.Random) -> list[Case]:
    three = [_uneven(draw, 4), [draw.randint(5, 7) for _ in range(4)]]
    two = [_uneven(draw, 3), [1, 1, 1], [draw.randint(4, 6) for _ in range(3)]]
    return [
        mesh_case("2 pipelines of 3 stages", seed(draw), 3, three, _writer(_alternating(3, 4))),
        mesh_case("3 pipelines of 2 stages", seed(draw), 2, two, _writer(_gpipe(2, 3))),
        mesh_case("one pipeline of 2 stages", seed(draw), 2, [_uneven(draw, 3)], _writer(_alternating(2, 3))),
    ]


def _interleaves(draw: random.Random) -> list[Case]:
    asked = [(p, p * times, v) for p in (1, 2, 3, 4, 8) for times in (1, 2, 3) for v in (1, 2, 3, 4)]
    return [order_case("up to 8 stages, 24 microbatches and 4 chunks", "interleaved", asked)]


def _fills(draw: random.Random) -> list[Case]:
    asked = [(p, m) for p in range(1, 9) for m in (p, p + 1, 2 * p, 3 * p + 1)]
    return [order_case("up to 8 stages", "zero_bubble", asked)]


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


def _runs(draw: random.Random) -> list[Case]:
    sizes = [_uneven(draw, count) for count in (6, 4, 5, 3, 4)]
    return [
        linear_case("a layer", seed(draw), (draw.randint(2, 7), draw.randint(2, 7))),
        linear_case("a layer, three dimensions more", seed(draw), (2, 3, 2, 4), frozen=["bias"]),
        linear_case("a layer without bias", seed(draw), (4, 3), bias=False),
        linear_case("a frozen weight", seed(draw), (3, 2, 5), frozen=["weight"]),
        program_case("3 ranks, 2 chunks", seed(draw), sizes[0], _chunks_in_turns(3, 6, 2), before=True),
        program_case("2 ranks, 3 chunks", seed(draw), sizes[1], _chunks_in_turns(2, 4, 3), rows=2),
        program_case("4 ranks, two halves", seed(draw), sizes[2], _halves(draw, 4, 5), rows=draw.choice([0, 3])),
        program_case("one rank, two halves", seed(draw), sizes[3], _halves(draw, 1, 3), before=True),
        program_case("2 ranks, 2 chunks, one after another", seed(draw), sizes[4], [one_after_another(2, 4)] * 2),
    ]


_CASES = {
    "memory_budget": _budget,
    "one_batch": _one_batch,
    "split_layer": _split_layer,
    "bubble": _bubble,
    "gpipe": _writes_gpipe,
    "find_deadlock": _finds_stuck,
    "one_f_one_b": _writes_one_f_one_b,
    "run_schedule": _executes,
    "best_microbatches": _best,
    "recompute": _recomputes,
    "data_and_pipeline": _hybrid,
    "interleaved": _interleaves,
    "zero_bubble": _fills,
    "run_orders": _runs,
}

cases = drawing(_CASES)
