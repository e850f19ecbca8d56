"""Lesson 09 keeps its contract, and its numbers are those of the interpreter."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any, ClassVar

import pytest

import labkit
from labkit.checks.rooms import find
from labkit.lessons.source import Lesson, load
from labkit.models import train_with_pipelining
from labkit.plans.pipeline_records import read_records, read_short
from labkit.plans.pipeline_timing import place
from labkit.plans.reference.schedules import FORMS, V_SHAPED
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "09_schedules.py"
KEYS = Path(__file__).parents[2] / "labkit" / "exercises" / "schedules"


class TestContract(LessonContract):
    number = "09"
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "1F1B is recognised": r'schedule="1f1b"',
        "one batch of messages": r"dist\.batch_isend_irecv",
        "NCCL's order": r"in the order in which they were posted",
        "a recorded run": r'labkit\.recorded\("waiting_order"\)',
        "backward is two jobs": r"backward is two jobs",
        "chunks": r"\*\*chunks\*\*",
        "a design": r'labkit\.challenge\("shortest_step"',
        "ZB-V": r"zb-v",
        "torch's own": r"schedulezbvzerobubble",
        "mesh": r"devicemesh",
        "the GPT": r"stage_of_gpt",
        "checkpointing": r"chen and others, 2016",
        "smaller bubbles run for real": r"run them for real",
        "the next lesson": r"10_gradient_compression",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="09")


def _turns(name: str, message: float = 0.0) -> tuple[float, float]:
    """Return turns and memory of a published schedule of 4 stages and 8 microbatches."""
    stages = [read_short(FORMS[name](stage, 4, 8), stage) for stage in range(4)]
    schedule = place(name, stages, 1, 2, message=message, v_shaped=name in V_SHAPED)
    return schedule.makespan, max(schedule.peak(stage) for stage in range(4))


def test_the_tables_hold_the_turns_and_the_memory_of_the_published_schedules(lesson: Lesson) -> None:
    tables = [cell.source for cell in lesson.cells if "| 4 stages, 8 microbatches |" in cell.source]
    rows = {"GPipe": "gpipe", "1F1B": "one_f_one_b", "interleaved": "interleaved", "ZB-H1": "zb_h1", "ZB-V": "zb_v"}
    assert len(tables) == 2
    for name, form in rows.items():
        turns, held = _turns(form)
        assert all(f"| {turns:g} | {held:g} |" in table.partition(f"| {name}")[2].splitlines()[0] for table in tables)


def test_the_printed_times_of_three_orders_are_as_their_turns() -> None:
    text, printed = SOURCE.read_text(), SOURCE.with_suffix(".ipynb").read_text()
    turns = {"1F1B": 33, "interleaved": 28.5, "zero bubble": 27}
    quotients = [float(took) / turns[name] for name, took in re.findall(r"(1F1B|\w+ ?\w+) +(\d\.\d\d) s", printed)]
    assert len(quotients) == 3 and max(quotients) < 1.01 * min(quotients)
    assert "differ by less than 1 %" in text.replace("\n# ", " ")


def test_with_slow_messages_1f1b_takes_longest() -> None:
    key = json.loads((KEYS / "slow_messages" / "key.json").read_text(encoding="utf-8"))
    turns = {form: _turns(form, 0.5)[0] for form in ("gpipe", "one_f_one_b", "interleaved", "zb_h1")}
    assert max(turns, key=turns.__getitem__) == "one_f_one_b" and key["answers"] == {"": "1F1B"}
    assert turns == {"gpipe": 36, "one_f_one_b": 41, "interleaved": 35.5, "zb_h1": 33}


def test_the_second_forward_in_flight_buys_hidden_messages(answers: dict[str, Any]) -> None:
    key = json.loads((KEYS / "warmup_factor" / "key.json").read_text(encoding="utf-8"))
    turns, held = {}, {}
    for factor in (1, 2):
        orders = [read_records(answers["interleaved"](stage, 4, 8, 2, factor), stage) for stage in range(4)]
        for message in (0.0, 0.5):
            schedule = place("", orders, 1, 2, message=message)
            turns[factor, message] = schedule.makespan
            held[factor] = max(schedule.peak(stage) for stage in range(4))
    assert turns == {(1, 0.0): 28.5, (2, 0.0): 28.5, (1, 0.5): 43.5, (2, 0.5): 35.5} and held == {1: 4, 2: 5.5}
    assert "35.5 turns and the factor 1 takes 43.5" in key["reason"]


def test_the_lower_bound_is_what_zb_v_takes_and_the_answer_does_not_hold_more(answers: dict[str, Any]) -> None:
    exercise = find("shortest_step")
    assert exercise.challenge is not None
    assert [exercise.challenge.pars(exercise.visible[0]).best] == [_turns("zb_v")[0]] == [25.5]
    placement, orders = answers["shortest_step"](4, 8, 4)
    schedule = place("", [read_short(" ".join(o), s) for s, o in enumerate(orders)], 1, 2, v_shaped=placement == "v")
    assert schedule.makespan == 25.5 and not schedule.faults


def test_no_order_of_1f1b_up_to_eight_stages_and_twelve_microbatches_gets_stuck(answers: dict[str, Any]) -> None:
    for stages in range(1, 9):
        for count in range(1, 13):
            orders = [read_records(answers["one_f_one_b"](s, stages, count), s) for s in range(stages)]
            assert place("", orders, 1, 2).makespan == 3 * (count + stages - 1)


@pytest.mark.long
def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    record = runpy.run_path(str(SOURCE.parent / "hidden" / "schedules" / "waiting_order" / "record.py"))["record"]
    kept, fresh = labkit.recorded("waiting_order"), record((4, 2, 2, 1))
    assert list(kept.rows()) == list(fresh.rows())


def test_the_stage_that_waits_has_the_forward_at_its_door_that_the_key_names() -> None:
    key = json.loads((KEYS / "waiting_order" / "key.json").read_text(encoding="utf-8"))["answers"]
    spans = {(span.rank, span.name): span for span in labkit.recorded("waiting_order").rows() if span.kind == "span"}
    stage, late = key["stage"], f"F{key['microbatch']}"
    at_the_door, first = spans[stage - 1, late].end_ns, spans[stage, "B0"]
    assert at_the_door < spans[stage, f"F{key['microbatch'] - 1}"].end_ns + 1e6 < first.start_ns
    assert first.end_ns <= spans[stage, late].start_ns
    firsts = [sum(span.rank == rank and span.name[0] == "F" and span.end_ns <= spans[rank, "B0"].start_ns
                  for span in spans.values()) for rank in range(4)]  # fmt: skip
    assert firsts == [4, 2, 2, 1]


@pytest.mark.long
def test_two_pipelines_have_the_loss_of_one(answers: dict[str, Any]) -> None:
    one = labkit.run(train_with_pipelining, 2, on=labkit.local(2, device="cpu"), echo=False).results[1]
    two = labkit.run(answers["two_pipelines"], 2, on=labkit.local(4, device="cpu"), echo=False).results
    assert two[3] == pytest.approx(one, rel=1e-4) and two[1] == two[3]
