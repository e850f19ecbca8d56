"""Lesson 04 keeps its contract: topics, exercises, points, and a BucketedDDP that trains as torch's DDP does."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.checks.rooms import find
from labkit.exercises.ddp.bucket_design.exercise import asked
from labkit.exercises.ddp.timing import end_us, merged, torchs
from labkit.lessons.source import Lesson, load
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "04_ddp.py"
KEYS = Path(__file__).parents[2] / "labkit" / "exercises" / "ddp"


class TestContract(LessonContract):
    number = "04"
    least_guesses = 2
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "buffers": r"batchnorm's running mean",
        "frozen parameters": r"\*\*frozen\*\*",
        "compare in float64": r"in float64",
        "Adam hides a factor": r"adam divides by the gradient's usual size",
        "a hook for each parameter": r"register_post_accumulate_grad_hook",
        "asynchronous all_reduce": r"async_op=true",
        "overlap as a number": r"hidden_communication_share",
        "what NCCL takes": r"some of the gpu's processors and use its memory bandwidth",
        "a recorded run": r'labkit\.recorded\("late_rank"\)',
        "no names": r"all-reduces have no names",
        "torch's rule": r"25 mb with a first bucket of 1 mb",
        "a design": r'labkit\.challenge\("bucket_design"',
        "the GPT": r"gpt\(seed=",
        "clipping": r"clip_grad_norm_",
        "torch's DDP": r"nn\.parallel\.distributeddataparallel",
        "the next lesson": r"05_ddp_for_real_models",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


def test_no_cell_is_over_long(lesson: Lesson) -> None:
    for cell in lesson.cells:
        limit = 75 if cell.is_code_exercise else 36
        assert len(cell.source.splitlines()) <= limit, f"{cell.id} (line {cell.line}); cut it in two"


@pytest.mark.long
def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    record = runpy.run_path(str(SOURCE.parent / "hidden" / "ddp" / "late_rank" / "record.py"))["record"]
    kept, fresh = labkit.recorded("late_rank"), record(5, "waits in a hook")
    assert list(kept.rows()) == list(fresh.rows())


def test_the_late_rank_is_as_late_as_the_key_says() -> None:
    ends: dict[int, float] = {}
    for span in labkit.recorded("late_rank").rows():
        if span.name == "backward":
            ends.setdefault(span.rank, span.end_ns / 1e6)
    key = json.loads((KEYS / "late_rank" / "key.json").read_text(encoding="utf-8"))["answers"]
    latest = max(ends, key=ends.__getitem__)
    others = [end for rank, end in ends.items() if rank != latest]
    assert latest == key["rank"]
    assert ends[latest] - max(others) == pytest.approx(key["late_ms"], rel=0.03)


def test_pars_of_the_bucket_design_are_those_the_slide_shows(lesson: Lesson) -> None:
    exercise = find("bucket_design")
    assert exercise.challenge is not None
    (slide,) = [cell.source for cell in lesson.cells if "## Exposed ms" in cell.source]
    for case in exercise.visible[1::2]:
        pars, step = exercise.challenge.pars(case), asked(case)
        by_torch = (end_us(step, torchs(step)) - max(step.ready_us)) / 1000
        assert pars.best < by_torch < pars.naive
        assert all(f"{par:.3g}"[:4] in slide for par in (pars.naive, by_torch, pars.best))


def test_merging_one_gradient_at_a_time_merges_equal_layers_into_one_bucket(lesson: Lesson) -> None:
    text = " ".join(cell.source for cell in lesson.cells if cell.kind == "markdown").replace("\n", " ")
    exercise = find("bucket_design")
    case, pars = exercise.visible[1], exercise.challenge.pars(exercise.visible[1])  # type: ignore[union-attr]
    step = asked(case)
    gap, start = max(step.ready_us) / 40, step.start_us
    assert len(merged(step)) == 1
    assert f"ready every {gap:.0f} µs, and on the slow network a start takes {start}" in text
    assert f"{pars.paper:.2f} ms exposed, as with one bucket" in text and pars.paper == pars.naive
    assert f"The best plan leaves {pars.best:.2f} ms." in text


def test_the_design_falls_to_no_cap_that_the_text_names() -> None:
    """One cap, torch's or another, reaches the reference in a third of the cases at most."""
    exercise = find("bucket_design")
    for cap in (0.5, 1, 5, 25):
        steps = [asked(case) for case in exercise.visible]
        reached = [step for step in steps if end_us(step, torchs(step, int(cap * 2**20))) <= end_us(step, merged(step))]
        assert len(reached) <= len(steps) / 3, cap


def test_the_text_explains_the_fastest_cap_with_the_runs_own_numbers(lesson: Lesson) -> None:
    text = " ".join(cell.source for cell in lesson.cells if cell.kind == "markdown").replace("\n", " ")
    layers = [4 * numel for _ in range(40) for numel in (384 * 384, 384)]
    many, few = (len(namespace(number="04")["bucket_plan"](layers, int(cap * 2**20))) for cap in (0.5, 5))
    ethernet = labkit.virtual(8, gpu="a100", gpus_per_node=1, nic="ethernet_100g")
    mib, whole = (_all_reduce_ms(size, ethernet) for size in (2**20, sum(layers)))
    start_ms = round(mib - (whole - mib) / (sum(layers) / 2**20 - 1), 1)
    assert f"makes {many} buckets, and {many} starts of some {start_ms} ms are {many * start_ms:.0f} ms" in text
    assert f"all of its {whole:.1f} ms come after backward" in text and few == 5 and "starts five times" in text


def _all_reduce_ms(size: int, world: Any) -> float:
    def reduce() -> None:
        dist.all_reduce(torch.empty(size, dtype=torch.uint8, device="meta"))

    timeline = labkit.run(reduce, on=world, echo=False).timeline
    assert timeline is not None
    return timeline.makespan_ns / 1e6


@pytest.mark.long
def test_two_steps_of_the_gpt_have_the_loss_of_torchs_ddp() -> None:
    names = namespace(number="04")
    world = labkit.local(2, device="cpu")
    mine, torchs = (
        labkit.run(names["train_gpt"], wrap, 2, on=world, echo=False).results[0]
        for wrap in (names["BucketedDDP"], nn.parallel.DistributedDataParallel)
    )
    assert mine == pytest.approx(torchs, rel=1e-4)
