"""Lesson 14 keeps its contract; its step equals one process on every axis, and torch's own mesh; its model of a step is
held against virtual ranks."""

from __future__ import annotations

import itertools
import json
import runpy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import labkit
from labkit.errors import ConfigError
from labkit.exercises.hybrid_parallelism.best_plans import adapted, as_it_is, fastest, fastest_dealt
from labkit.hybrid_gpt import Weight, mean_losses
from labkit.lessons.source import Lesson, load
from labkit.models import GPT, IGNORED, Addition, train
from labkit.plans.hybrid_step import JOBS, SEVENTY_BILLION, MeshPlan, cost, every_order, every_plan
from labkit.timeline import Lane, Timeline
from labkit.torchs_hybrid import step_beside, step_times, train_torchs
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "14_hybrid_parallelism.py"
KEYS = Path(__file__).parents[2] / "labkit" / "exercises" / "hybrid_parallelism"
ONE = {"data": 1, "shard": 1, "pipeline": 1, "tensor": 1}


class TestContract(LessonContract):
    number = "14"
    least_guesses = 2
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "the question": r"17 % of the gpus' peak, the other 48 %",
        "the last axis": r"the last axis\s+changes fastest",
        "everybody makes every group": r"\*every\* rank must call",
        "replicas": r"the same place on both form a \*\*replica\*\*",
        "dropout": r"drop the same ones",
        "tied": r"\*tied\* to the output layer",
        "the weight of a replica": r"mean over \*its\* targets",
        "once in the norm": r"each element once",
        "torch's own": r"init_device_mesh.*parallelize_module.*fully_shard.*pipelining",
        "a recorded run": r'labkit\.recorded\("wrong_order"\)',
        "torchrun": r"torchrun --nproc-per-node 8",
        "the next lesson": r"the next question",
        "sources": r"### sources",
        "the ring": r"keys and values go round in blocks",
        "what forward keeps": r"logarithm of its sum of exponentials",
        "capacity": r"takes the first tokens that ask",
        "balance": r"`e \* sum\(f \* p\)`",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="14")


@cache
def alone(num_steps: int) -> list[float]:
    return train(GPT(), Addition(), num_steps)


def together(answers: dict[str, Any], num_steps: int, on: Any, sizes: dict[str, int]) -> list[float]:
    """Return the losses of the lesson's step, with the parts that the lessons before it lend."""
    parts, step = answers["my_parts"](**sizes), answers["train_hybrid"]
    return mean_losses(labkit.run(lambda: step(parts, num_steps, **sizes), on=on, echo=False).results)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "sizes",
    [
        {"data": 1, "shard": 1, "pipeline": 2, "tensor": 2},
        pytest.param({"data": 1, "shard": 2, "pipeline": 2, "tensor": 2}, marks=pytest.mark.long),
        pytest.param({"tensor": 2, "pipeline": 1, "shard": 2, "data": 2}, marks=pytest.mark.long),
    ],
)
def test_on_a_mesh_the_losses_are_those_of_one_process(answers: dict[str, Any], sizes: dict[str, int]) -> None:
    ranks = sizes["data"] * sizes["shard"] * sizes["pipeline"] * sizes["tensor"]
    assert together(answers, 4, labkit.virtual(ranks), sizes) == pytest.approx(alone(4), abs=2e-4)


@pytest.mark.in_turn
def test_without_the_clip_the_third_loss_is_another(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> None:
    def no_clip(weights: list[Weight], *more: object) -> None:
        assert {each.tensor for each in weights} == {"cut", "whole"}, "the lesson says that none is tokens"

    monkeypatch.setitem(answers, "clip_whole", no_clip)
    sizes = {"data": 1, "shard": 1, "pipeline": 1, "tensor": 2}
    assert together(answers, 4, labkit.virtual(2), sizes)[2] == pytest.approx(2.731, abs=2e-4)
    assert alone(4)[2] == pytest.approx(2.7626, abs=2e-4)


def test_both_replicas_have_equally_many_targets() -> None:
    for _, targets in Addition().loader(4, 64):
        assert len({(half != IGNORED).sum().item() for half in targets.chunk(2)}) == 1


@pytest.mark.long
def test_on_eight_real_processes_the_losses_are_those_of_one(answers: dict[str, Any]) -> None:
    sizes = {"data": 1, "shard": 2, "pipeline": 2, "tensor": 2}
    assert together(answers, 3, labkit.local(8, device="cpu"), sizes) == pytest.approx(alone(3), abs=2e-4)


@pytest.mark.long
def test_torchs_own_mesh_has_the_losses_of_one_process_and_why_its_run_ends_later_is_true(
    answers: dict[str, Any],
) -> None:
    eight, sizes = labkit.virtual(8), {"data": 1, "shard": 2, "pipeline": 2, "tensor": 2}
    torchs = labkit.run(train_torchs, 3, on=eight, echo=False, timeout=600)
    assert mean_losses(torchs.results) == pytest.approx(alone(3), abs=2e-4)
    parts = answers["my_parts"](**sizes)
    yours = labkit.run(lambda: answers["train_hybrid"](parts, 3, **sizes), on=eight, echo=False, timeout=600)
    assert yours.timeline is not None
    assert torchs.timeline is not None
    assert not yours.timeline.problems and not torchs.timeline.problems
    mine, theirs = step_times(yours.timeline), step_times(torchs.timeline)
    assert yours.timeline.makespan_ns < torchs.timeline.makespan_ns
    assert theirs.begins_ms > 2 * mine.begins_ms
    assert abs(step_beside(yours.timeline, torchs.timeline)[0]) < 5
    assert theirs.calls < mine.calls / 2
    assert theirs.hidden_ms / (theirs.hidden_ms + theirs.exposed_ms) == pytest.approx(1 / 3, abs=0.05)
    assert mine.hidden_ms < 0.01
    saved = mine.exposed_ms + mine.waiting_ms - theirs.exposed_ms - theirs.waiting_ms
    assert saved == pytest.approx(theirs.operators_ms - mine.operators_ms, abs=0.1)
    assert theirs.operators_ms / theirs.operators == pytest.approx(4e-3, rel=0.05)
    assert torchs.timeline.spans(kind="scatter").rank.size


def test_what_a_step_takes_is_read_off_between_the_first_and_the_last() -> None:
    rows = []  # rank 0 sends at 10, 20, 30: an operator of 4 and 3 exposed; rank 1 computes under its sum
    for begin in (10, 20, 30):
        rows += [
            (0, Lane.COMMUNICATION, begin, begin + 1, "isend", 64),
            (0, Lane.COMPUTE, begin + 1, begin + 5, "operator", 0),
            (0, Lane.COMMUNICATION, begin + 5, begin + 7, "all_reduce", 32),
            (1, Lane.COMPUTE, begin, begin + 6, "operator", 0),
            (1, Lane.COMMUNICATION, begin + 5, begin + 7, "all_reduce", 32),
        ]
    rank, lane, start, end, kind, size = zip(*rows, strict=True)
    timeline = Timeline(rank, lane, [each * 10**6 for each in start], [each * 10**6 for each in end], kind, kind, size)
    found = step_times(timeline, num_microbatches=1)
    assert (found.begins_ms, found.step_ms, found.operators_ms) == (0, 10, 5)
    assert (found.exposed_ms, found.hidden_ms) == ((3 + 1) / 2, (0 + 1) / 2)
    assert (found.operators, found.calls) == (1, 1)
    with pytest.raises(ConfigError, match="in 2 steps"):
        step_times(timeline.select(timeline.start_ns < 30 * 10**6), num_microbatches=1)


def test_the_two_jobs_of_the_opening_are_as_far_apart_as_it_says() -> None:
    shares = [
        cost(SEVENTY_BILLION, MeshPlan(tuple((axis, 8) for axis in order.split()))).of_peak
        for order in ("tensor data pipeline", "data pipeline tensor")
    ]
    assert [round(100 * share) for share in shares] == [17, 48]


def test_twice_the_machines_are_not_twice_as_fast_and_twice_the_batch_keeps_the_time() -> None:
    before = cost(SEVENTY_BILLION, MeshPlan((("data", 8), ("pipeline", 8), ("tensor", 8))))
    plan = MeshPlan((("data", 16), ("pipeline", 8), ("tensor", 8)))
    after = cost(replace(SEVENTY_BILLION, num_gpus=1024), plan)
    both = cost(replace(SEVENTY_BILLION, num_gpus=1024, batch=1024), plan)
    assert after.compute == pytest.approx(before.compute / 2)
    assert after.tensor == pytest.approx(before.tensor / 2)
    assert (after.bubble, after.exchange) == pytest.approx((before.bubble, before.exchange))
    assert before.gradients < after.gradients < 1.1 * before.gradients
    assert after.seconds / before.seconds == pytest.approx(0.56, abs=0.02)
    assert both.seconds / before.seconds == pytest.approx(1.0, abs=0.05)


def test_the_fastest_plans_have_pipeline_first_then_data_then_tensor() -> None:
    for name, job in JOBS.items():
        best = {
            order: min(cost(job, plan).seconds for plan in every_plan(job, [order]) if as_it_is(job, plan))
            for order in itertools.permutations(("data", "pipeline", "tensor"))
        }
        assert best["pipeline", "data", "tensor"] == min(best.values()) < best["data", "pipeline", "tensor"], name


def test_with_eight_on_each_axis_partial_sums_cost_most_and_messages_least() -> None:
    for order in ("data pipeline tensor", "pipeline data tensor"):
        found = cost(SEVENTY_BILLION, MeshPlan(tuple((axis, 8) for axis in order.split())))
        assert found.tensor > found.gradients > found.exchange


@pytest.mark.in_turn
def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    room = SOURCE.parent / "hidden" / "hybrid_parallelism" / "wrong_order"
    made = runpy.run_path(str(room / "record.py"))
    record: Callable[..., labkit.Timeline] = made["record"]
    assert list(labkit.recorded("wrong_order").rows()) == list(record().rows())
    assert list(labkit.Timeline.load(room / "recording.json").rows()) == list(record(made["OF_CLASS"]).rows())
    for folder, order in ((KEYS / "wrong_order", made["ORDER"]), (room, made["OF_CLASS"])):
        key = json.loads((folder / "key.json").read_text(encoding="utf-8"))["answers"]
        assert key["partner"] == {"tensor": 4, "data": 2}[order[0]]
        assert key["last"] == "tensor"
    assert record(("data", "pipeline", "tensor")).makespan_ns < 0.7 * record().makespan_ns


@pytest.mark.long
def test_the_two_orders_with_tensor_last_are_fast_and_those_with_data_last_slowest() -> None:
    record = runpy.run_path(str(SOURCE.parent / "hidden" / "hybrid_parallelism" / "wrong_order" / "record.py"))[
        "record"
    ]
    took = {order: record(tuple(order.split())).makespan_ns for order in every_order()}
    fast, middle, slow = ([took[o] for o in took if o.endswith(last)] for last in ("tensor", "pipeline", "data"))
    assert len(took) == 6
    assert 2 * max(fast) < min(middle) <= max(middle) < min(slow)


@pytest.mark.in_turn
def test_some_best_plans_have_layers_unlike_and_the_36_b_jobs_computes_nothing_again() -> None:
    seven, thirty = (
        fastest_dealt(job, fastest(job, adapted)) for name, job in JOBS.items() if name.startswith(("7 B", "36 B"))
    )
    assert seven.layers == (7, 8, 8, 9)
    assert seven.recompute == (3, 3, 0, 0)
    assert (len(thirty.layers), sum(thirty.layers), set(thirty.layers)) == (32, 80, {1, 2, 3})
    assert not any(thirty.recompute)


def test_replicas_are_out_of_step_so_that_the_recording_tells_who_sums_with_whom() -> None:
    ends: dict[int, list[int]] = {}
    for span in labkit.recorded("wrong_order").rows():
        if span.name == "all_reduce":
            ends.setdefault(span.rank, []).append(span.end_ns)
    assert [rank for rank in range(1, 8) if ends[rank][:4] == ends[0][:4]] == [4]


def test_zig_zag_is_as_much_faster_as_the_lesson_says() -> None:
    """Counted are pairs of a query and a key that it sees, of the rank that has most of them."""
    size, pieces = 8, torch.arange(16 * 64).chunk(16)
    in_order = max(int((torch.cat(pieces[2 * rank : 2 * rank + 2]) + 1).sum()) for rank in range(size))
    zig_zag = {int((torch.cat([pieces[rank], pieces[-1 - rank]]) + 1).sum()) for rank in range(size)}
    key = json.loads((KEYS / "ring_balance" / "key.json").read_text(encoding="utf-8"))
    assert len(zig_zag) == 1
    assert in_order / zig_zag.pop() == pytest.approx(key["answers"][""], abs=2e-3)


def test_the_balance_loss_is_one_where_all_are_asked_alike_and_the_number_of_experts_where_one_is(
    answers: dict[str, Any],
) -> None:
    def loss(router: torch.Tensor) -> float:
        experts = [torch.nn.Identity() for _ in range(4)]
        ran = labkit.run(
            lambda: answers["expert_layer"](torch.eye(4), router, experts, 1), on=labkit.virtual(1), echo=False
        )
        return float(ran.results[0][1])

    assert loss(100 * torch.eye(4)) == pytest.approx(1.0)
    assert loss(100 * torch.tensor([[1.0, 0, 0, 0]] * 4)) == pytest.approx(4.0)
