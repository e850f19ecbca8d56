"""Lesson 08 keeps its contract: topics, exercises, points, stubs; and its answers do what they promise."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.checks.rooms import find
from labkit.exercises.stages import written
from labkit.lessons.source import Lesson, load
from labkit.models import train_with_pipelining
from labkit.plans.pipeline_records import Message, read_records, read_short
from labkit.plans.pipeline_timing import place
from labkit.timeline.memory import peak_memory_bytes
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "08_pipeline.py"


class TestContract(LessonContract):
    number = "08"
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "activations": r"\*\*activations\*\*",
        "a stage": r"\*\*stage\*\*",
        "autograd stops": r"autograd stops where the message begins",
        "a leaf": r"\*\*leaf\*\*",
        "the bubble": r"\(p-1\)/\(m\+p-1\)",
        "overhead": r"overhead_s",
        "schedules as data": r"a \*\*schedule\*\* answers that, and it is data",
        "a design": r'labkit\.challenge\("fill_stages"',
        "GPipe": r"huang and others, 2019",
        "PipeDream": r"narayanan and others, 2019",
        "weight stashing": r"\*\*weight stashing\*\*",
        "the bridge from servers": r"in lesson 06",
        "messages follow": r"with_messages",
        "the scale": r"samples of the microbatch over samples of the batch",
        "waiting late": r"\*\*waiting late\.\*\*",
        "NCCL's order": r"nccl keeps order",
        "Adam hides it": r"adam hides it",
        "the GPT": r"stage_of_gpt",
        "the library": r"torch\.distributed\.pipelining",
        "a tied embedding": r"the embedding and the output layer share one matrix",
        "a GPU is waited for": r"torch\.cuda\.synchronize\(\)",
        "the next lesson": r"09_schedules",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="08")


def test_the_slides_say_what_the_functions_return(lesson: Lesson, answers: dict[str, Any]) -> None:
    (table,) = [cell.source for cell in lesson.cells if cell.source.startswith("## More microbatches")]
    for stages in (3, 4, 8):
        shares = [answers["bubble_share"](stages, count) for count in (1, 4, 8, 16, 32)]
        cells = " | ".join(f"{int(100 * share + 0.5)} %" for share in shares)
        assert f"| {stages} stages | {cells} |" in table
    exercise = find("fill_stages")
    assert exercise.challenge is not None
    pars = [exercise.challenge.pars(case) for case in exercise.visible[:3]]
    (asked,) = [cell.source for cell in lesson.cells if cell.source.startswith("## Short of memory")]
    assert f"instead of {pars[0].naive:g}?" in asked and f"{pars[1].naive:g}" not in asked  # which the room is to find
    title = "## 1F1B: memory for 2 instead of 4 costs 18 turns"
    (answer,) = [cell.source for cell in lesson.cells if cell.source.startswith(title)]
    orders = [answers["fill_stages"](4, 8, limit) for limit in (8, 4, 2)]
    records = [[read_records(order, stage) for stage, order in enumerate(each)] for each in orders]
    placed = [place("", each, 1, 2) for each in records]
    turns = [each.makespan for each in placed]
    assert answer.index(f"| GPipe in groups | {' | '.join(f'{par.naive:g}' for par in pars)} |") > 0
    assert f"| **1F1B** | {turns[0]:g} | **{turns[1]:g}** | **{turns[2]:g}** |" in answer
    assert [par.naive - each for par, each in zip(pars, turns, strict=True)] == [0, 9, 9]
    assert turns[2] - turns[1] == 18  # as its title says
    last = [each.stages[3] for each in placed]
    gaps = [sum(b.start - a.end for a, b in pairwise(row)) for row in last]
    assert gaps[:2] == [0, 0] and gaps[2] > 0  # with memory for four it works without a gap, with memory for two not
    assert last[1][0].start == 3 and sum(each.end - each.start for each in last[1]) == 24 == turns[1] - 3 - 6


def test_a_plain_mean_of_unequal_microbatches_is_not_the_loss_of_the_batch(lesson: Lesson) -> None:
    (slide,) = [cell.source for cell in lesson.cells if cell.source.startswith("## A plain mean errs")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in slide.splitlines() if line.startswith("|")]
    (*_, of_3), (*_, of_1), said = rows[2:]
    sizes, losses = ([int(row[at]) for row in rows[2:4]] for at in (1, 2))
    weighed = [f"{size}/{sum(sizes)} · {loss}" for size, loss in zip(sizes, losses, strict=True)]
    assert [row[3] for row in rows[2:4]] == weighed and [of_3, of_1] == [f"1/2 · {loss}" for loss in losses]
    by_samples = sum(size * loss for size, loss in zip(sizes, losses, strict=True)) / sum(sizes)
    assert said[3:] == [f"**{by_samples:g}**", f"**{sum(losses) / 2:g}**"]
    assert sizes[1] == 1 and (1 / 2) / (sizes[1] / sum(sizes)) == 2 and "the last sample counts\ntwice" in slide


def test_the_answer_reaches_the_fewest_turns_there_can_be(answers: dict[str, Any]) -> None:
    exercise = find("fill_stages")
    assert exercise.challenge is not None
    for stages, count, limit in ((2, 4, 2), (3, 9, 2), (4, 8, 3), (5, 7, 9), (6, 14, 4), (8, 16, 8)):
        orders = answers["fill_stages"](stages, count, limit)
        schedule = place("", [read_records(order, stage) for stage, order in enumerate(orders)], 1, 2)
        rounds, rest = divmod(count - 1, min(limit, stages))
        assert not schedule.faults
        assert schedule.makespan == 3 * stages * (1 + rounds) + 3 * rest
        held = [min(stages - stage, count, limit) for stage in range(stages)]  # as 1F1B, and as its slide says
        assert [schedule.peak(stage) for stage in range(stages)] == held
        first = [next(at for at, work in enumerate(order) if str(work).startswith("Backward")) for order in orders]
        assert first == held


def _orders(names: dict[str, Any], num_stages: int, count: int) -> list[list[Any]]:
    return [[kind(m) for kind in (names["Forward"], names["Backward"]) for m in range(count)]] * num_stages


def _large_step(names: dict[str, Any], orders: list[list[Any]]) -> None:
    stage, num_stages, count = dist.get_rank(), dist.get_world_size(), len(orders[0]) // 2
    x = [torch.empty(8192 // count, 16384, device="meta", requires_grad=True) for _ in range(count)]
    names["run_schedule"](
        names["with_messages"](orders)[stage], names["layers"](), [8192 // count] * count, x[0][0],
        x if stage == 0 else None, x if stage == num_stages - 1 else None, nn.functional.mse_loss,
    )  # fmt: skip


@pytest.mark.in_turn
def test_the_bubble_is_the_predicted_one_and_memory_that_of_the_schedule(answers: dict[str, Any]) -> None:
    schedules = _orders(answers, 4, 8), answers["fill_stages"](4, 8, 4)
    runs = [labkit.run(partial(_large_step, answers), each, on=labkit.virtual(4)).timeline for each in schedules]
    for timeline in runs:
        assert labkit.schedule_explorer(run=timeline).numbers["run"]["bubble"] == pytest.approx(
            answers["bubble_share"](4, 8), rel=0.03
        )
    held = [peak_memory_bytes(timeline, 0, "activations") for timeline in runs]
    assert held[1] == pytest.approx(held[0] / 2, rel=0.15)


def _gradients(names: dict[str, Any], sizes: list[int]) -> bool:
    stage, num_stages = dist.get_rank(), dist.get_world_size()

    def layer(number: int) -> nn.Module:
        torch.manual_seed(number)
        return nn.Sequential(nn.Linear(5, 5), nn.Tanh()).double()

    mine, whole = layer(stage), [layer(number) for number in range(num_stages)]
    x, y = torch.randn(2, sum(sizes), 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    names["run_schedule"](
        names["with_messages"](names["fill_stages"](num_stages, len(sizes), 3))[stage], mine, sizes, x[0],
        list(x.split(sizes)) if stage == 0 else None, list(y.split(sizes)) if stage == num_stages - 1 else None,
        nn.functional.mse_loss,
    )  # fmt: skip
    nn.functional.mse_loss(nn.Sequential(*whole)(x), y).backward()
    pairs = zip(mine.parameters(), whole[stage].parameters(), strict=True)
    return all(torch.allclose(one.grad, other.grad, rtol=1e-12, atol=1e-15) for one, other in pairs)


@pytest.mark.in_turn
def test_gradients_are_those_of_the_whole_batch_on_eight_virtual_stages(answers: dict[str, Any]) -> None:
    run = labkit.run(partial(_gradients, answers), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], on=labkit.virtual(8))
    assert run.results == [True] * 8


def test_an_order_that_cannot_be_is_refused_in_words(answers: dict[str, Any]) -> None:
    forward, backward = answers["Forward"], answers["Backward"]
    with pytest.raises(ValueError, match=r"Nobody can go on: .*Backward\(microbatch=0\).* come too early"):
        answers["with_messages"]([[backward(0), forward(0)], [forward(0), backward(0)]])


@pytest.mark.long
def test_two_steps_of_the_gpt_have_the_loss_of_torchs_pipelining(answers: dict[str, Any]) -> None:
    world = labkit.local(2, device="cpu")
    mine, torchs = (
        labkit.run(train, 2, on=world, echo=False).results[1] for train in (answers["yours"], train_with_pipelining)
    )
    assert mine == pytest.approx(torchs, rel=1e-5)


def test_the_two_sides_of_the_checks_schedules_agree_in_each_direction_and_not_always_over_both() -> None:
    differ = []
    for texts in (written.GPIPE_3_4, written.ALTERNATING_4_5, written.DRAWN_3_4, written.EARLY_2_4):
        sides = [[each for each in read_short(text, k) if isinstance(each, Message)] for k, text in enumerate(texts)]
        for k in range(len(sides) - 1):
            here = [(each.kind == "Send", each.microbatch) for each in sides[k] if each.peer == k + 1]
            there = [(each.kind == "Recv", each.microbatch) for each in sides[k + 1] if each.peer == k]
            for onward in (True, False):
                assert [m for on, m in here if on is onward] == [m for on, m in there if on is onward]
            apart = next((pair for pair in zip(here, there, strict=True) if pair[0] != pair[1]), None)
            if apart:  # one side sends its activation first, the other its gradient
                assert (apart[0][0], apart[1][0]) == (True, False)
                differ.append(texts)
    assert written.ALTERNATING_4_5 in differ and written.GPIPE_3_4 not in differ
    text = " ".join(SOURCE.read_text(encoding="utf-8").replace("\n#", "").split())
    assert "two neighbours both send before they" in text and "tag=" not in text
