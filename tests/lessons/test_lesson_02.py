"""Lesson 02 keeps its contract: topics, exercises, points, stubs, a recorded run, and a ring that adds up."""

from __future__ import annotations

import inspect
import json
import re
import runpy
import types
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.lessons.source import Lesson
from labkit.simulator.cluster import describe
from tests.checks.lesson_cells import lesson as source_of
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOLUTIONS = Path(__file__).parents[2] / "solutions"
ROOMS = Path(__file__).parents[2] / "labkit" / "exercises"


class TestContract(LessonContract):
    number = "02"
    least_guesses = 2
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "why it is needed": r"in data-parallel training",
        "the three ranks": r"2, 4, 6[\s\S]*1, 2, 3[\s\S]*4, 8, 12[\s\S]*7, 14, 21",
        "contention at the root": r"\*\*contention\*\*",
        "chunks": r"\*\*chunks\*\*",
        "empty chunks": r"an empty chunk is fine",
        "a figure first": r'labkit\.figure\("ring"[\s\S]*labkit\.check\("ring_plan"',
        "reduce-scatter and all-gather": r"reduce-scatter\*\*[\s\S]*all-gather\*\*",
        "the plan": r"a \*\*plan\*\* is a list",
        "a deadlock": r"everybody_sends_first",
        "why a batch of isend and irecv": r"batch_isend_irecv",
        "what hangs on NCCL": r"on nccl that may hang",
        "2(N-1)/N": r"2\(n-1\)/n",
        "lower bound": r"patarasuk and yuan, 2009",
        "right and slow": r'labkit\.recorded\("slow_ring"\)',
        "the same bits": r"\*\*the same bits\*\*",
        "a changed buffer": r"changes_it_too_early",
        "under torchrun": r"labkit export 02_ring_all_reduce\.ipynb",
        "the next lesson": r"the next question",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return source_of("02")


@pytest.fixture(scope="module")
def answers() -> types.SimpleNamespace:
    return types.SimpleNamespace(**namespace(number="02"))


def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    record = runpy.run_path(str(SOLUTIONS / "hidden" / "ring_all_reduce" / "slow_ring" / "record.py"))["record"]
    kept, fresh = labkit.recorded("slow_ring"), record()
    assert list(kept.rows()) == list(fresh.rows())
    of_class = record("whole tensor in every step")
    room = SOLUTIONS / "hidden" / "ring_all_reduce" / "slow_ring"
    assert list(labkit.Timeline.load(room / "recording.json").rows()) == list(of_class.rows())
    assert all(1.75 < each.makespan_ns / 225e3 < 2.25 for each in (kept, of_class))  # "about twice", says the text
    others = json.loads((room / "key.json").read_text(encoding="utf-8"))["answers"]
    assert (
        sum(span.bytes for span in of_class.rows() if span.rank == 3 and span.kind == "isend") / 1e6
        == others["sent_mb"]
    )
    sends = [span for span in kept.rows() if span.name == "send"]
    answers = json.loads((ROOMS / "ring_all_reduce" / "slow_ring" / "key.json").read_text(encoding="utf-8"))["answers"]
    assert sum(span.bytes for span in sends if span.rank == 3) / 1e6 == answers["sent_mb"]
    first = min(span.start_ns for span in sends)
    assert sum(span.start_ns == first for span in sends) == answers["links"]


def test_a_ring_that_does_not_take_turns_needs_204_us(answers: types.SimpleNamespace) -> None:
    def ring() -> None:
        answers.ring_sum(torch.empty(4 * 10**6, device="meta"))

    timeline = labkit.run(ring, on=labkit.virtual(8), echo=False).timeline
    assert timeline is not None and round(timeline.makespan_ns / 1e3) == 204  # quoted in the text


def test_the_text_splits_the_204_us_as_the_cluster_does(lesson: Lesson) -> None:
    text = " ".join(cell.source for cell in lesson.cells if cell.kind == "markdown").replace("\n", " ")
    cluster = describe(8)
    step_us, latency_us = 2e6 / cluster.link.payload_bytes_per_second * 1e6, cluster.link.latency_ns / 1e3
    starts_us = cluster.device.launch_ns / 1e3
    assert f"headers leave {cluster.link.payload_bytes_per_second / 1e9:.0f} for the payload" in text
    assert f"A step moves 2 MB in {step_us:.1f} µs and pays {latency_us} µs of latency." in text
    assert f"14 · {step_us + latency_us:.1f} + 7 · {starts_us:.0f} = 204 µs" in text
    assert f"the bytes take only {14 * step_us:.0f} of these" in text


def test_exercise_cells_hold_functions_only(lesson: Lesson, answers: types.SimpleNamespace) -> None:
    for exercise in lesson.exercises:
        for name in exercise.provides:
            assert inspect.isfunction(getattr(answers, name))
            assert getattr(answers, name).__doc__


def test_no_cell_is_over_long(lesson: Lesson) -> None:
    for cell in lesson.cells:
        limit = 65 if cell.role == "exercise" else 32
        lines = len(cell.source.splitlines())
        assert lines <= limit, f"{cell.id} (line {cell.line}) has {lines} lines; cut it in two"


def test_what_differs_between_runs_is_not_compared(lesson: Lesson) -> None:
    unsteady = re.compile(r"^\w*run\.timeline$|perf_counter|measured|except .*RunTimeout|plt\.show", re.MULTILINE)
    for cell in lesson.cells:
        virtual_alone = "labkit.virtual(" in cell.source and "labkit.local(" not in cell.source
        plain = cell.kind == "code" and cell.role is None and "export" not in cell.tags
        if plain and unsteady.search(cell.source) and not (virtual_alone and "measured" not in cell.source):
            assert "nbval-ignore-output" in cell.tags, f"line {cell.line}"


def test_the_slide_of_a_plan_shows_what_rank_0_of_four_writes(lesson: Lesson, answers: types.SimpleNamespace) -> None:
    (slide,) = [cell.source for cell in lesson.cells if "## Write down what happens, then run it" in cell.source]
    shown = re.findall(r"^\| `(.+)` \| (.+) \|$", slide, re.MULTILINE)
    first = [each for each in answers.ring_plan(0, 4) if each.step == 0]
    assert [call for call, _ in shown] == [repr(each) for each in first]
    letters = {chunk: "ABCD"[chunk] for chunk in (0, 3)}  # as in the ring before it
    assert "Chunk 0 is A, 3 is D." in slide
    says = [f"{letters[0]} → rank {first[0].peer}", f"{letters[3]} ← rank {first[1].peer}", f"added to {letters[3]}"]
    assert [said for _, said in shown] == says and [each.chunk for each in first] == [0, 3, 3]


def test_the_table_of_bytes_says_what_the_functions_return(lesson: Lesson, answers: types.SimpleNamespace) -> None:
    (table,) = [cell.source for cell in lesson.cells if "## In a ring, every rank sends less than 2B" in cell.source]
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,.]+) MB \| ([\d,.]+) MB \|$", table, re.MULTILINE)
    assert len(rows) == 3
    for row in rows:
        world_size, root, ring = (float(number.replace(",", "")) for number in row)
        assert root == answers.root_bytes(100, int(world_size)) / 2  # it receives the other half
        assert ring == round(answers.ring_bytes(100, int(world_size)), 1)


def test_long_chunks_go_in_slices_and_arrive_whole(answers: types.SimpleNamespace) -> None:
    def sum_of_long_chunks() -> tuple[float, float, int]:
        tensor = torch.full((8 * 2**20 + 3,), float(dist.get_rank() + 1))
        answers.ring_sum(tensor)
        return tensor.min().item(), tensor.max().item(), tensor.numel()

    assert labkit.run(sum_of_long_chunks, on=labkit.local(2), echo=False).results == [(3.0, 3.0, 8 * 2**20 + 3)] * 2
