"""Lesson 03 keeps its contract: topics, exercises, points, and answers that do what dist.all_reduce does."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import runpy
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.checks.exercise import functions_for, judge
from labkit.checks.rooms import find
from labkit.exercises.collectives.plan_time import plan_ns
from labkit.exercises.collectives.unequal_links.exercise import cluster_of
from labkit.lessons.source import Lesson
from labkit.plans.reference.rings import ring_plan
from labkit.simulator.cluster import describe
from tests.checks.brought import brought
from tests.checks.four_proofs import styles
from tests.checks.lesson_cells import lesson as source_of
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

ROOMS = Path(__file__).parents[2] / "labkit" / "exercises"


class TestContract(LessonContract):
    number = "03"
    least_guesses = 4
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "non-contiguous tensors": r"transposed tensor",
        "bfloat16": r"256 \+ 1 is 256",
        "average": r"avg divides the sum",
        "sub-groups": r"\*\*sub-groups\.\*\*",
        "async_op": r"async_op=true",
        "alpha and beta": r"\*\*α\*\* is the latency",
        "algbw and busbw": r"\*\*algbw\*\*[\s\S]*\*\*busbw\*\*",
        "tree": r"binomial tree",
        "all to all": r"transpose it",
        "quantised reduce-scatter": r"8-bit gradients cannot be added on the way",
        "a figure first": r'labkit\.figure\("nodes"[\s\S]*labkit\.challenge',
        "one card": r"one card for all four",
        "design": r'labkit\.challenge\("unequal_links"',
        "NCCL's kernels take the GPU's processors": r"some of the gpu's processors and memory bandwidth",
        "channels": r"\*\*channels\.\*\*",
        "protocols": r"ll128",
        "NVLink SHARP": r"nvlink sharp",
        "double binary trees": r"sanders, speck and träff, 2009",
        "the links": r"infiniband ndr",
        "two cores, four ranks": r"more ranks than cores",
        "the next lesson": r"04_ddp",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return source_of("03")


@pytest.fixture(scope="module")
def answers() -> types.SimpleNamespace:
    return types.SimpleNamespace(**namespace(number="03"))


def test_the_drop_in_has_the_arguments_of_dist_all_reduce(answers: types.SimpleNamespace) -> None:
    ours = inspect.signature(answers.ring_all_reduce).parameters
    theirs = inspect.signature(inspect.unwrap(dist.all_reduce)).parameters
    assert list(ours) == list(theirs)
    assert [p.default for p in ours.values()] == [p.default for p in theirs.values()]


def test_no_cell_is_over_long(lesson: Lesson) -> None:
    for cell in lesson.cells:
        limit = 85 if cell.is_code_exercise else 52
        lines = len(cell.source.splitlines())
        assert lines <= limit, f"{cell.id} (line {cell.line}) has {lines} lines; cut it in two"


def test_what_differs_between_runs_is_not_compared(lesson: Lesson) -> None:
    unsteady = re.compile(r"^\w*run\.timeline$|perf_counter|measured|except .*RunTimeout|plt\.show", re.MULTILINE)
    for cell in lesson.cells:
        virtual_alone = "labkit.virtual(" in cell.source and "labkit.local(" not in cell.source
        plain = cell.kind == "code" and cell.role is None and "export" not in cell.tags
        if plain and unsteady.search(cell.source) and not (virtual_alone and "measured" not in cell.source):
            assert "nbval-ignore-output" in cell.tags, f"line {cell.line}"


@pytest.mark.in_turn
@pytest.mark.parametrize(("name", "nodes"), [("one node", {}), ("one card", {"gpus_per_node": 4, "nics_per_node": 1})])
def test_a_plan_takes_as_long_as_its_run_on_the_virtual_cluster(name: str, nodes: dict[str, Any]) -> None:
    def ring() -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        chunks = torch.empty(16 * 10**6, device="meta").tensor_split(size)
        for step in range(2 * (size - 1)):
            outgoing, incoming = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
            send = dist.P2POp(dist.isend, outgoing, (rank + 1) % size)
            for work in dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, incoming, (rank - 1) % size)]):
                work.wait()

    slow = {(0, 1): 6.0}
    world = labkit.virtual(8, slow_links=slow, **nodes)
    run = labkit.run(ring, on=world, echo=False)
    assert run.timeline is not None
    assert plan_ns([ring_plan(rank, 8) for rank in range(8)], world.cluster, 8 * 10**6) == run.timeline.makespan_ns


@pytest.mark.in_turn
def test_the_pars_of_the_design_are_what_ring_and_two_levels_take() -> None:
    pars = runpy.run_path(str(ROOMS / "sums_over_ranks" / "hidden_two_levels.py"))["pars"]
    for case in find("unequal_links").visible:
        asked: Any = case.inputs[0]
        found = pars(asked["num_ranks"], asked["ranks_per_node"], asked["slow_links"])
        assert case.about["pars"] == [round(each, 3) for each in found], case.name


def test_a_card_carries_64_mb_in_1333_us() -> None:
    cluster = cluster_of(8, 4, [])
    assert round(64e6 / cluster.nic.payload_bytes_per_second * 1e6) == 1333  # quoted in the text


def test_a_message_of_the_design_has_the_latency_that_the_text_says(lesson: Lesson) -> None:
    cluster = cluster_of(8, 4, [])
    inside, between = (f"{link.latency_ns / 1e3:.1f} µs" for link in (cluster.link, cluster.nic))
    says = f"A message has a latency of {inside} inside a node and of {between} between nodes."
    port, card = (
        f"which carries {link.payload_bytes_per_second / 1e9:.0f} GB/s" for link in (cluster.link, cluster.nic)
    )
    ports = f"one NVLink port, {port} of payload, and each node one card, {card}."
    prose = [" ".join(cell.source.split()) for cell in lesson.cells]
    assert any(says in text and ports in text for text in prose)


def test_numbers_in_the_text_are_those_of_formulas_and_pars(lesson: Lesson, answers: types.SimpleNamespace) -> None:
    text = " ".join(cell.source for cell in lesson.cells if cell.kind == "markdown").replace("\n", " ")
    best = find("unequal_links").visible[0].about["pars"][2]  # type: ignore[index, call-overload]
    adding_us = 63 * describe(64).device.launch_ns / 1e3
    assert f"takes {best:,.0f}" in text and f"63 · 4 = {adding_us:.0f}" in text
    assert f"In the ring it sends 2 · 63/64 = {answers.ring_seconds(1, 64, 0, 1):.2f}." in text
    assert f"126 - 12 = {2 * 63 - 2 * 6} extra latencies" in text


def test_the_crossover_grows_with_n_from_one_power_of_two_to_the_next_alone() -> None:
    def factor(size: int) -> float:
        rounds = math.ceil(math.log2(size))
        return (size - 1 - rounds) / (rounds - (size - 1) / size)

    powers = [range(2**low + 1, 2 ** (low + 1) + 1) for low in range(1, 8)]
    assert all(factor(a) < factor(b) for sizes in powers for a, b in itertools.pairwise(sizes))
    assert factor(5) < factor(4) and factor(9) < factor(8)


def test_the_tree_needs_as_much_more_than_the_formula_as_the_text_says(lesson: Lesson) -> None:
    text = " ".join(cell.source for cell in lesson.cells if cell.kind == "markdown").replace("\n", " ")
    stored = (ROOMS.parents[1] / "solutions" / "03_collectives.ipynb").read_text(encoding="utf-8")
    rows = re.findall(r"(4 KiB|64 MiB) +tree_all_reduce +formula +(\d+) µs +cluster +(\d+) µs", stored)
    small, large = (int(cluster) - int(formula) for _, formula, cluster in rows)
    assert f"At 4 KiB they take {small} µs; at 64 MiB, where each adds the whole tensor, they take {large} µs." in text


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


@pytest.mark.parametrize("world_size", [1, *(pytest.param(size, marks=pytest.mark.long) for size in (2, 3, 5))])
def test_the_drop_in_does_what_dist_all_reduce_does(answers: types.SimpleNamespace, world_size: int) -> None:
    run = labkit.run(_differences, answers.ring_all_reduce, on=labkit.local(world_size), echo=False)
    assert run.results == [[]] * world_size


@pytest.mark.in_turn
@pytest.mark.parametrize("style", ["right_in_few_lines", "drop_in_all_reduce a loop of its own, in one piece"])
def test_a_drop_in_in_one_piece_passes_without_the_exercise_before_it(style: str) -> None:
    names = namespace(extra=styles("03")[style]["drop_in_all_reduce"], number="03")
    del names["all_reduce_over"]  # a notebook of the time when both were one exercise
    exercise = find("drop_in_all_reduce")
    for case in exercise.visible:
        verdict = judge(exercise, case, *brought(exercise, functions_for(exercise, names), case))
        assert verdict.passed, (case.name, verdict)


@pytest.mark.in_turn
def test_a_group_counts_its_own_ranks_as_the_slide_says(lesson: Lesson) -> None:
    def own_rank() -> int:
        return dist.get_rank(dist.new_group([1, 3]))

    counted = labkit.run(own_rank, on=labkit.virtual(4), echo=False).results
    slides = "\n".join(cell.source for cell in lesson.cells if "slide-only" in cell.tags)
    assert f"| rank in `dist.new_group([1, 3])` | {' | '.join(map(str, counted))} |" in slides
