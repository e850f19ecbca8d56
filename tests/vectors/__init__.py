"""Rules that stand in Python and in JavaScript, as cases that the tests of both read.

``python -m tests.vectors`` writes ``rules.json`` anew from Python.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from labkit.plans.all_reduce_plan import Send
from labkit.plans.buckets import Link, sent
from labkit.plans.pipeline import Placed
from labkit.plans.pipeline_records import Op, Record, ops_of
from labkit.plans.pipeline_timing import culprits, place
from labkit.plans.reference.bucket_plans import GRAPHS, bucket_plan, ddp_plan
from labkit.plans.reference.rings import ring_plan
from labkit.plans.reference.schedules import FORMS
from labkit.plans.staleness import Update, ahead_of, draws, losses, simulate
from labkit.units import format_time

RULES = Path(__file__).with_name("rules.json")


def _triple(op: Record) -> list[Any]:
    assert isinstance(op, Op)
    return [op.kind, op.microbatch, op.chunk]


def _row(placed: Placed) -> list[Any]:
    return [_triple(placed.op), placed.start, placed.end]


def _placed(lists: list[str], times: list[float]) -> Any:
    stages = [ops_of(words, stage) for stage, words in enumerate(lists)]
    found = place("drawn", stages, *times)
    own = culprits(found)
    return {
        "stages": [list(map(_row, row)) for row in found.stages],
        "stuck": [[stage, _triple(op)] for stage, op in found.stuck],
        "faults": list(found.faults),
        "culprits": [f"{s}{op}" for s, op, *_ in found.blocked if (s, op) in own],
        "blocked": [[s, _triple(op), t, _triple(on)] for s, op, t, on in found.blocked],
    }


def _form(form: str, stages: int, microbatches: int) -> Any:
    made = [ops_of(FORMS[form](stage, stages, microbatches), stage) for stage in range(stages)]
    return [list(map(_triple, ops)) for ops in made]


def _ring(num_ranks: int, chunks: int) -> Any:
    """Return of each step what is sent, as [rank, chunk, to]."""
    steps: list[list[list[int]]] = [[] for _ in range(2 * (num_ranks - 1) * -(-chunks // num_ranks))]
    for rank in range(num_ranks):
        for record in ring_plan(rank, num_ranks, chunks):
            if isinstance(record, Send):
                steps[record.step].append([rank, record.chunk, record.peer])
    return steps


def _times(sizes: list[int], plan: list[list[int]]) -> Any:
    return [[each.ready, each.start, each.end] for each in sent(sizes, plan, Link(1e-2, 8, 2e-5, 12.5e9, 2e-3))]


def _update(update: Update) -> list[Any]:
    read, applied = update.version_read, update.version_applied
    return [update.worker, read, applied, update.start, update.end, int(update.dropped)]


def _server(workers: int, bound: int | str, drop: int | None, law: str, seed: int) -> Any:
    updates = simulate(workers, bound, 2.5, 0.25, seed, 30, drop, law)
    return {
        "updates": list(map(_update, updates)),
        "ahead": ahead_of(updates),
        "losses": [list(each) for each in losses(updates, workers, 0.5, seed)],
    }


PYTHON: dict[str, Callable[..., Any]] = {
    "a schedule placed": _placed,
    "a schedule in a form": _form,
    "a ring": _ring,
    "buckets": bucket_plan,
    "buckets of DDP": ddp_plan,
    "when buckets are sent": _times,
    "draws": lambda seed: list(islice(draws(seed), 5)),
    "a server": _server,
    "a time in words": format_time,
}


def _orders(draw: random.Random) -> list[str]:
    """Return the orders of stages, often with operations that stand in wrong places, are missing or stand twice."""
    stages, count = draw.randint(1, 4), draw.randint(1, 4)
    make = FORMS[draw.choice(["gpipe", "one_f_one_b", "zb_h1"])]
    lists = [list(map(str, ops_of(make(stage, stages, count), stage))) for stage in range(stages)]
    for _ in range(draw.randint(0, 3)):
        ops = draw.choice(lists)
        first, second = draw.randrange(len(ops)), draw.randrange(len(ops))
        ops[first], ops[second] = ops[second], ops[first]
        if draw.random() < 0.3:
            ops.pop(first)
        elif draw.random() < 0.2:
            ops.append(ops[0])
    return ["".join(ops) for ops in lists]


def given() -> dict[str, list[list[Any]]]:
    """Return what each rule is asked, the same every time."""
    draw = random.Random(13)
    sizes = [[draw.randint(1, 9) * 1000 for _ in range(draw.randint(1, 8))] for _ in range(8)]
    return {
        "a schedule placed": [[_orders(draw), [1, draw.choice([1, 2]), 0.25 * (k % 3), 0.25]] for k in range(40)],
        "a schedule in a form": [[form, p, 4] for form in FORMS for p in (1, 2, 4)],
        "a ring": [[n, chunks] for n in (2, 3, 4) for chunks in (1, 2, n, 5)],
        "buckets": [[each, cap, first] for each in sizes for cap, first in ((9000, 0), (20_000, 4000))],
        "buckets of DDP": [
            [each, 9000, 4000, draw.sample(range(len(each)), len(each)), graph, step]
            for each in sizes[:3]
            for graph in GRAPHS
            for step in (1, 2, 3)
        ],
        "when buckets are sent": [[each, bucket_plan(each, 9000)] for each in sizes],
        "draws": [[seed] for seed in (0, 1, 7, 4_294_967_295)],
        "a server": [
            [workers, bound, drop, law, seed]
            for seed, (workers, bound, drop, law) in enumerate(
                [
                    (3, "sync", None, "equal"),
                    (4, 2, None, "±25 %"),
                    (2, "async", 1, "equal"),
                    (3, "delay 4", 0, "±25 %"),
                ]
            )
        ],
        "a time in words": [
            [time] for time in (0, 1, 12, 999, 1000, 12_345, 999_400, 83_300_000, 5 * 10**9, 7 * 10**11)
        ],
    }


def as_text() -> str:
    """Return all cases as JSON, one a line."""
    rules = []
    for rule, cases in given().items():
        lines = [json.dumps([asked, PYTHON[rule](*asked)], ensure_ascii=False) for asked in cases]
        rules.append(f"{json.dumps(rule)}: [\n" + ",\n".join(lines) + "\n]")
    return "{\n" + ",\n".join(rules) + "\n}\n"
