"""Lesson 02 keeps its contract: topics, exercises, points, stubs, and answers that do what dist.all_reduce does."""

from __future__ import annotations

import inspect
import re
import types
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.lessons.source import Lesson
from tests.checks.lesson_cells import lesson as source_of
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract


class TestContract(LessonContract):
    number = "02"
    exercises = (
        "naive_all_reduce",
        "count_bytes",
        "chunk_bounds",
        "ring_plan",
        "run_plan",
        "ring_sum",
        "drop_in_all_reduce",
        "ring_cost",
        "tree_all_reduce",
        "halving_doubling",
        "all_to_all",
        "hierarchical_all_reduce",
    )
    bonus = ("halving_doubling", "hierarchical_all_reduce")
    bonus_points = 16
    topics: ClassVar = {
        "gradients must be summed": r"why gradients must be summed",
        "the three devices": r"2, 4, 6[\s\S]*1, 2, 3[\s\S]*4, 8, 12[\s\S]*7, 14, 21",
        "reduce to the root and back": r"through rank 0",
        "cost at the root": r"rank 0's link",
        "chunks": r"## 3 cut it in chunks",
        "the plan": r"the ring, as a plan",
        "why a batch of isend and irecv": r"batch_isend_irecv",
        "what hangs on NCCL": r"with nccl your ring may hang",
        "reduce-scatter and all-gather": r"reduce-scatter[\s\S]*all-gather",
        "lengths that do not divide": r"does not divide",
        "empty chunks": r"empty chunk",
        "non-contiguous tensors": r"transposed tensor",
        "bfloat16": r"bfloat16",
        "average": r"\*\*average\.\*\*",
        "sub-groups": r"\*\*sub-groups\.\*\*",
        "async_op": r"async_op=true",
        "a drop-in": r"a drop-in for `dist.all_reduce`",
        "a training step": r"data-parallel training step",
        "alpha and beta": r"α",
        "2(N-1)/N": r"2\(n-1\)/n",
        "lower bound": r"patarasuk and yuan, 2009",
        "algbw and busbw": r"algbw and busbw",
        "tree": r"binomial tree",
        "halving and doubling": r"thakur, rabenseifner and gropp, 2005",
        "double binary trees": r"sanders, speck and träff, 2009",
        "predict, measure, explain": r"## 10 predict, measure, explain",
        "two cores, four ranks": r"four ranks on two cores",
        "all to all": r"## 11 all to all",
        "hierarchical": r"within and between machines",
        "channels": r"\*\*channels\.\*\*",
        "protocols": r"ll128",
        "NVLink": r"nvlink 4",
        "InfiniBand": r"infiniband ndr",
        "RDMA": r"\*\*rdma\*\*",
        "NVLink SHARP": r"nvlink sharp",
        "gloo and MPI": r"nccl, gloo, mpi",
        "failures on purpose": r"break it on purpose",
        "at scale": r"what breaks at scale",
        "the next lesson": r"04_ddp",
    }
    slides = (15, 20)
    least_guesses = 7


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return source_of("02")


@pytest.fixture(scope="module")
def answers() -> types.SimpleNamespace:
    return types.SimpleNamespace(**namespace(number="02"))


def test_exercises_fit_into_90_minutes_and_leave_time_to_read(lesson: Lesson) -> None:
    minutes = sum(exercise.minutes for exercise in lesson.exercises if not exercise.bonus)
    assert 45 <= minutes <= 70


def test_exercise_cells_hold_functions_only(lesson: Lesson, answers: types.SimpleNamespace) -> None:
    for exercise in lesson.exercises:
        for name in exercise.provides:
            assert inspect.isfunction(getattr(answers, name))
            assert getattr(answers, name).__doc__


def test_the_drop_in_has_the_arguments_of_dist_all_reduce(answers: types.SimpleNamespace) -> None:
    ours = inspect.signature(answers.ring_all_reduce).parameters
    theirs = inspect.signature(inspect.unwrap(dist.all_reduce)).parameters
    assert list(ours) == list(theirs)
    assert [p.default for p in ours.values()] == [p.default for p in theirs.values()]


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


def test_the_table_of_bytes_says_what_the_functions_return(lesson: Lesson, answers: types.SimpleNamespace) -> None:
    (table,) = [cell.source for cell in lesson.cells if "## The bottleneck is one link" in cell.source]
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) MB \| ([\d,]+) MB \|$", table, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        world_size, root, ring = (int(number.replace(",", "")) for number in row)
        assert root == answers.root_bytes(100, world_size)
        assert ring == round(answers.ring_bytes(100, world_size))


def test_long_chunks_go_in_slices_and_arrive_whole(answers: types.SimpleNamespace) -> None:
    def sum_of_long_chunks() -> tuple[float, float, int]:
        tensor = torch.full((8 * 2**20 + 3,), float(dist.get_rank() + 1))
        answers.ring_sum(tensor)
        return tensor.min().item(), tensor.max().item(), tensor.numel()

    assert labkit.run(sum_of_long_chunks, on=labkit.local(2), echo=False).results == [(3.0, 3.0, 8 * 2**20 + 3)] * 2


def _differences(ring_all_reduce: Any) -> list[str]:
    """Return where ring_all_reduce and dist.all_reduce differ on this rank."""
    names = {name: getattr(dist.ReduceOp, name) for name in ("SUM", "MAX", "MIN", "PRODUCT")}
    found = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32):
        for shape in ((), (0,), (1,), (2,), (7,), (3, 4), (64, 5)):
            for name, op in names.items():
                draw = torch.Generator().manual_seed(dist.get_rank())
                ours = torch.randint(1, 4, shape, generator=draw).to(dtype)  # small: exact in every type
                theirs = ours.clone()
                ring_all_reduce(ours, op)
                dist.all_reduce(theirs, op)
                if not torch.equal(ours, theirs):
                    found.append(f"{name} {dtype} {shape}: {ours} and {theirs}")
    return found


@pytest.mark.parametrize("world_size", [1, 3, *(pytest.param(size, marks=pytest.mark.long) for size in (2, 5))])
def test_the_drop_in_does_what_dist_all_reduce_does(answers: types.SimpleNamespace, world_size: int) -> None:
    run = labkit.run(_differences, answers.ring_all_reduce, on=labkit.local(world_size), echo=False)
    assert run.results == [[]] * world_size
