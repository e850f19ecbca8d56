"""Lesson 15 keeps its contract; its formula is near the virtual cluster; what it says of published runs is true."""

from __future__ import annotations

import csv
import json
import random
import runpy
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

import labkit
from labkit.checks.case import Case, Value, Values
from labkit.checks.rooms import find
from labkit.exercises.planner import costs
from labkit.exercises.planner.cases import Runs, job_in, runs_of
from labkit.exercises.planner.choose_plan.exercise import EXERCISE as CHOOSES
from labkit.exercises.planner.choose_plan.exercise import fitting, pars, rule_of_thumb, score
from labkit.exercises.planner.choose_plan.hidden import HIDDEN, cases
from labkit.exercises.planner.graph_plans import equal_stages, two_levels
from labkit.exercises.planner.graphs import graph_in
from labkit.exercises.planner.step_time.exercise import FEW, NARROW, WITHIN
from labkit.exercises.planner.step_time.hidden import NARROW as HIDDEN_NARROW
from labkit.exercises.planner.two_levels import driver as looking
from labkit.exercises.planner.two_levels.exercise import EXERCISE as GRAPHS
from labkit.grading.limits import Limits
from labkit.hardware import DEVICES, LINKS
from labkit.planned_jobs import Played, played
from labkit.planner.layout import Layout
from labkit.planner.model import MODELS, Model
from labkit.planner.plan import Job as PlannersJob
from labkit.planner.plan import planned
from labkit.planner.step import Machines
from labkit.plans import planned_step
from labkit.plans.hybrid_step import cost
from labkit.plans.operator_graph import Graph, Stage, graph_of, step_seconds
from labkit.plans.planned_step import PUBLISHED_JOB, Job, Plan, every_plan, fault, job_of, published, scatter_seconds
from labkit.simulator.algorithms import choose
from labkit.simulator.nccl import PROTOCOLS
from labkit.simulator.network import Network
from labkit.timeline import Timeline
from labkit.virtual_world import virtual
from tests.checks.lesson_cells import lesson, namespace
from tests.lessons.contract import LessonContract
from tests.planner.published_runs import nanotron

ROOM = Path(__file__).parents[2] / "solutions" / "hidden" / "planner" / "late_stage"
KEYS = Path(__file__).parents[2] / "labkit" / "exercises" / "planner" / "late_stage"
EIGHT = Plan(2, 8, 1)


class TestContract(LessonContract):
    number = "15"
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "the question": r"6,042 ms\. the machine took 700",
        "pieces": r"at the size of its pieces",
        "in flight": r"each\s+microbatch in flight",
        "exposed": r"is \*\*exposed\*\*",
        "uneven ends": r"the last\s+stage also has the head",
        "the rule of thumb": r"reaches\s+only\s+37 % of the best throughput",
        "a recorded run": r'labkit\.recorded\("late_stage"\)',
        "published runs": r"nanotron trained .* on 16 h100s",
        "the command": r"`labkit plan` plans real models",
        "alpa": r"searches at two levels",
        "the next lesson": r"the next question",
        "sources": r"### sources",
    }


@pytest.mark.parametrize("path", [None, HIDDEN])
def test_the_formula_is_within_the_tolerance_of_every_recorded_run(path: Path | None) -> None:
    for name, (job, seconds) in (runs_of() if path is None else runs_of(path)).items():
        assert list(seconds) == every_plan(job), name
        off = [abs(costs.step_seconds(job, plan) / took - 1) for plan, took in seconds.items()]
        assert max(off) < WITHIN - 0.01, name
        assert sorted(off)[len(off) // 2] < 0.03, name


@cache
def step_of(plan: Plan) -> Played:
    return played(runs_of()["0.8 B on 16 H100s"].job, plan)


@pytest.mark.parametrize("plan", [EIGHT, pytest.param(Plan(2, 2, 4, 2, True), marks=pytest.mark.long)])
def test_a_recorded_run_is_what_the_virtual_cluster_does(plan: Plan) -> None:
    assert step_of(plan).seconds == pytest.approx(runs_of()["0.8 B on 16 H100s"].seconds[plan], abs=1e-6)


@pytest.mark.in_turn
@pytest.mark.parametrize("runs", [NARROW, pytest.param(HIDDEN_NARROW, marks=pytest.mark.long)])
def test_where_messages_count_most_one_microbatch_pays_them(runs: Runs) -> None:
    for plan, took in runs.seconds.items():
        assert played(runs.job, plan).seconds == pytest.approx(took, abs=1e-6)
        assert costs.step_seconds(runs.job, plan) == pytest.approx(took, rel=0.04)
        assert costs.step_seconds(runs.job, plan, hops=1.0) < (1 - WITHIN) * took


@pytest.mark.parametrize(
    "plan", list(FEW.seconds)[:1] + [pytest.param(p, marks=pytest.mark.long) for p in list(FEW.seconds)[1:]]
)
def test_with_few_microbatches_the_formula_is_as_near(plan: Plan) -> None:
    took = FEW.seconds[plan]
    assert played(FEW.job, plan).seconds == pytest.approx(took, abs=1e-6)
    assert costs.step_seconds(FEW.job, plan) == pytest.approx(took, rel=0.01)


@pytest.mark.in_turn
def test_the_opening_is_true() -> None:
    job, seconds = runs_of()["0.8 B on 16 H100s"]
    assert round(1e3 * cost(job, EIGHT.mesh(job)).seconds) == 64
    assert round(1e3 * seconds[EIGHT]) == 132
    head = EIGHT.num_microbatches(job) * sum(costs.head_seconds(job, EIGHT))
    assert head == pytest.approx(seconds[EIGHT] - cost(job, EIGHT.mesh(job)).seconds, rel=0.02)
    assert job.vocabulary == 65_536
    step = step_of(EIGHT)
    assert step.timeline.makespan_ns / 1e9 == pytest.approx(step.seconds, rel=1e-3)
    gaps = [_waits(step.timeline, rank) for rank in range(16)]
    assert max(gaps[14:]) < 0.1 * step.seconds < min(gaps[:14])


def _waits(timeline: Timeline, rank: int) -> float:
    """Return the longest time between two forwards of a rank, less the shortest, in seconds."""
    starts = sorted(span.start_ns for span in timeline.rows() if span.rank == rank and span.name.startswith(("F", "B")))
    ends = sorted(span.end_ns for span in timeline.rows() if span.rank == rank and span.name.startswith(("F", "B")))
    return sum(max(0, start - end) for start, end in zip(starts[1:], ends, strict=False)) / 1e9


def _after_first_backward(timeline: Timeline, rank: int) -> npt.NDArray[np.bool_]:
    first = timeline.start_ns[(timeline.rank == rank) & (timeline.name == "B0")].min()
    keep: npt.NDArray[np.bool_] = timeline.start_ns >= first
    return keep


def _longest(timeline: Timeline, rank: int, name: str) -> int:
    """Return how long this block of a rank takes, in nanoseconds."""
    return max(span.end_ns - span.start_ns for span in timeline.rows() if (span.rank, span.name) == (rank, name))


def test_neither_the_rule_nor_last_lessons_formula_nor_labkit_plan_earns_all() -> None:
    visible = find("choose_plan").visible
    for case in (
        *visible,
        *(case for seed in range(6) for case in cases(random.Random(seed)) if not len(case.about) > 1),
    ):
        job, seconds = _fitting(case)
        par = pars(case)
        if "filled" in case.name:  # where so little fits, the rule finds the best plan, too
            assert par.naive == par.best
            continue
        assert par.best < par.paper < par.naive == 1e3 * seconds[rule_of_thumb(list(seconds))], case.name
        mine = min(seconds, key=lambda plan: costs.step_seconds(job, plan))
        assert 1e3 * seconds[mine] <= par.paper, case.name
    hidden = [case for case in cases(random.Random(1)) if len(case.about) == 1]
    for pick in (_by_last_lesson, _by_labkit_plan):
        assert any(1e3 * pick(*_fitting(case)) > pars(case).paper for case in hidden), pick


@pytest.mark.parametrize("way", ["the first", "no head", "no gradients", "the mean", "no bubble", "stage 0 alone"])
def test_a_planner_that_leaves_out_a_part_misses_a_visible_job(way: str) -> None:
    hows: dict[str, dict[str, Any]] = {
        "no head": {"head": False}, "no gradients": {"gradients": False}, "the mean": {"fill": "mean"},
        "no bubble": {"fill": "none"}, "stage 0 alone": {},
    }  # fmt: skip
    short = 0
    for case in find("choose_plan").visible:
        job, fits = _fitting(case)
        plans = list(fits)
        if way == "stage 0 alone":
            plans = [plan for plan in every_plan(job) if costs.stage_bytes(job, plan)[0] <= job.memory_bytes]
        mine = plans[0] if way == "the first" else min(plans, key=lambda p: costs.step_seconds(job, p, **hows[way]))
        short += mine not in fits or 1e3 * fits[mine] > pars(case).paper
    assert short


def _fitting(case: Case) -> tuple[Job, dict[Plan, float]]:
    job = job_in(case.inputs[0])
    rows: Any = case.about["runs"]
    return job, fitting(job, {Plan(*row[:4], bool(row[4])): row[5] for row in rows})


def _by_last_lesson(job: Job, seconds: dict[Plan, float]) -> float:
    return seconds[min(seconds, key=lambda plan: cost(job, plan.mesh(job)).seconds)]


def _by_labkit_plan(job: Job, seconds: dict[Plan, float]) -> float:
    model = Model("GPT", job.num_layers, job.width, job.width // 128, job.width // 128, 4 * job.width, job.vocabulary,
                  job.num_tokens, gated=False)  # fmt: skip
    asked = PlannersJob(model, job.num_gpus, job.batch, Machines(DEVICES["h100"], LINKS["nvlink4"], LINKS["ib_ndr"]))

    def planners(plan: Plan) -> float:
        again = "full" if plan.recompute else "none"
        return planned(asked, Layout(plan.data, plan.pipeline, plan.tensor, plan.microbatch,
                                     plan.num_microbatches(job), 1, again)).seconds  # fmt: skip

    return seconds[min(seconds, key=planners)]


def test_what_is_no_plan_is_said_in_words() -> None:
    job = job_of(2048, 16, 16, 64)
    assert fault(job, Plan(16, 1, 1)) == ""
    assert fault(job, Plan(8, 1, 1)) == "8 x 1 x 1 ranks are not the 16 GPUs"
    assert fault(job, Plan(1, 1, 16)) == "16 tensor ranks do not fit into a node of 8"
    assert "3 stages do not divide 16 layers" in fault(job_of(2048, 16, 3, 64), Plan(1, 3, 1))
    assert "microbatches of 3 on 16 replicas do not divide a batch of 64" in fault(job, Plan(16, 1, 1, 3))
    assert all(fault(job, plan) == "" for plan in every_plan(job))


def test_eight_tensor_ranks_do_not_make_a_layer_eight_times_as_fast() -> None:
    job = job_of(2048, 16, 16, 64)
    alone, eight = (sum(costs.layer_seconds(job, Plan(16 // tensor, 1, tensor))) for tensor in (1, 8))
    assert alone < 2 * eight
    forward = {tensor: costs.layer_seconds(job, Plan(16 // tensor, 1, tensor))[0] for tensor in (1, 2, 4, 8)}
    assert forward[4] < forward[2] < forward[8] < forward[1]
    four = sum(costs.layer_seconds(job, Plan(4, 1, 4)))
    assert eight > four


def test_an_all_reduce_takes_longer_than_its_formula_by_its_start() -> None:
    job, rows = job_of(2048, 16, 16, 64), 2048
    network = Network(virtual(16, gpus_per_node=8, algorithm="ring").cluster)
    took, counted, protocols = [], [], []
    for tensor in (2, 4, 8):
        traffic = choose("all_reduce", range(tensor), 2 * rows * job.width, network, algorithm="ring")
        took.append(round(network.estimate_ns(traffic) / 1e3))
        protocols.append(traffic.protocol)
        counted.append(round(2e6 * scatter_seconds(job, Plan(16 // tensor, 1, tensor), "tensor", 2 * rows * job.width)))
    assert (took, counted) == ([38, 62, 84], [29, 52, 82])
    assert protocols == ["Simple", "LL128", "LL128"]
    by_name = {each.name: each for each in PROTOCOLS}
    assert [by_name[name].base_us["ring"] for name in ("Simple", "LL128")] == [8.4, 14.0]
    assert (by_name["LL128"].step_us["ring"]["nvlink"], 1e6 * job.link_s) == (1.9, 3.0)


@pytest.mark.long
def test_a_layer_on_the_cluster_takes_what_the_lesson_says() -> None:
    job = job_of(2048, 16, 16, 64)
    pairs = []
    for tensor in (1, 2, 4, 8):
        plan = Plan(16 // tensor, 1, tensor)
        pairs.append((round(1e6 * sum(costs.layer_seconds(job, plan))), round(1e6 * sum(played(job, plan).layer))))
    assert pairs == [(781, 781), (505, 542), (403, 445), (428, 436)]


def test_of_sixteen_stages_one_hop_leaves_the_node() -> None:
    job, seconds = runs_of()["0.8 B on 16 H100s"]
    plan = Plan(1, 16, 1, 4)
    assert costs.step_seconds(job, plan) == pytest.approx(seconds[plan], rel=0.002)
    assert costs.step_seconds(job, plan, hops=0.0) < 0.985 * seconds[plan]


def _prose() -> str:
    return " ".join(cell.source.replace("\n", " ") for cell in lesson("15").cells if cell.kind == "markdown")


def test_a_planner_has_the_time_that_the_lesson_says() -> None:
    assert f"Your function has {Limits().case_seconds:g} s for each of these jobs, and must not play steps." in _prose()
    assert CHOOSES.seconds == 0  # or a case would have more


def test_every_graph_may_be_looked_up_as_often_as_the_lesson_says(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs: Values = GRAPHS.visible[0].inputs[0]

    def plans_after(times: int) -> list[Value]:
        def plans(counted: Graph) -> list[Stage]:
            for _ in range(times):
                counted.seconds[0]
            return equal_stages(graph_in(inputs))

        return [looking.drive({"two_levels": plans}, inputs)["plan"] for _ in range(2)]

    assert f"In each graph you may look up `graph.seconds[o]` {looking.MOST_LOOKS:,} times" in _prose()
    monkeypatch.setattr(looking, "MOST_LOOKS", 3)
    assert looking.TRIES_ALL not in plans_after(3)
    assert plans_after(4) == [looking.TRIES_ALL] * 2


def test_what_the_lesson_says_of_published_runs_is_true() -> None:
    by_plan = defaultdict(list)
    for plan, took in published():
        if plan.tensor <= 8:
            by_plan[plan].append(took)
    pairs = [sorted(each) for each in by_plan.values() if len(each) == 2]
    near = [pair for pair in pairs if pair[1] / pair[0] < 1.05]
    assert (len(pairs), len(near)) == (9, 7)
    assert sorted(round(pair[1] / pair[0]) for pair in pairs if pair not in near) == [3, 4]
    apart = [max(each) / min(each) for each in by_plan.values() if max(each) / min(each) > 1.05]
    assert sorted(round(each, 1) for each in apart) == [3.3, 4.3, 4.9]
    assert "in three lines they are three to five times apart" in _prose()
    thrice = sorted(by_plan[Plan(2, 1, 8, 1)])
    assert [round(took, 1) for took in thrice] == [18.2, 19.0, 88.9]
    with Path(planned_step.__file__).with_name("nanotron_8b.csv").open(newline="", encoding="utf-8") as file:
        rows = [[int(each) for each in row] for row in list(csv.reader(file))[1:]]
    shares = defaultdict(list)
    for *plan_row, zero, tokens_per_s in rows:
        shares[tuple(plan_row)].append((zero, round(256 * 4096 / tokens_per_s, 1)))
    assert all(sorted(zero for zero, _ in each) == [0, 1] for each in shares.values() if len(each) == 2)
    assert sorted(shares[2, 1, 8, 1]) == [(0, 18.2), (1, 19.0), (1, 88.9)]
    key = json.loads((KEYS.parent / "same_settings" / "key.json").read_text(encoding="utf-8"))
    assert key["answers"][""] == pytest.approx((thrice[2] / thrice[1]) ** 0.5, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_no_plan_of_all_there_are_is_faster_than_two_levels(seed: int) -> None:
    draw = random.Random(seed)
    operators = [(draw.choice([2.0, 8.0]), draw.choice([8.0, 512.0]), draw.choice([4.0, 256.0])) for _ in range(4)]
    graph = graph_of(operators, 4, draw.choice([2, 8]), skips=(2, 3))
    plans: list[list[Stage]] = [[]]
    for _ in operators:  # each operator joins the last stage or begins one, on some GPUs, by some way
        plans = [
            way
            for plan in plans
            for one in range(3)
            for way in (
                *([[*plan[:-1], Stage(plan[-1].gpus, (*plan[-1].ways, one))]] if plan else []),
                *([*plan, Stage(gpus, (one,))] for gpus in (1, 2, 4) if gpus + sum(s.gpus for s in plan) <= 4),
            )
        ]
    least = min(step_seconds(graph, plan) for plan in plans if sum(stage.gpus for stage in plan) == 4)
    assert step_seconds(graph, two_levels(graph)) == pytest.approx(least)
    assert step_seconds(graph, equal_stages(graph)) >= least


def test_what_the_lesson_says_of_errors_in_print_is_true() -> None:
    key = json.loads((KEYS.parent / "wrong_prints" / "key.json").read_text(encoding="utf-8"))["answers"]
    with (Path(__file__).parents[1] / "planner" / "nanotron_h100.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["tokens_per_s"] in ("312045", "311156")]
    assert [(row["model"], row["nodes_of_8_h100"], row["pp"], row["mfu_percent"]) for row in rows] == [
        ("1B", "1", "1", "38.1"), ("1B", "1", "2", "44.3"),
    ]  # fmt: skip
    model = MODELS["nanotron-1b"]
    assert (model.layers, model.hidden, model.vocabulary, model.tied) == (16, 2048, 131_072, True)
    twice = 6 * model.head_parameters / model.flops_per_token
    assert 44.3 / 38.1 * 312_045 / 311_156 == pytest.approx(1 + twice, rel=0.005) == pytest.approx(7 / 6, rel=0.005)
    assert 8 * 16 * 16 * key["replicas"] == 16_384
    assert 16 * 131_072 * key["replicas"] == 16 * 2**20
    assert key["percent"] == round(100 * 148 / 419, 1) != 30.1
    assert [round(100 * each / 419, 1) for each in (72, 54)] == [17.2, 12.9]


def test_on_published_jobs_the_rule_of_thumb_does_as_well_as_the_lesson_says() -> None:
    jobs: dict[tuple[str, int], dict[Plan, float]] = defaultdict(dict)
    for run in nanotron():
        if run.tokens_per_second is not None:
            split, found = run.plan.layout, jobs[run.model, run.nodes]
            plan = Plan(split.data, split.pipeline, split.tensor, split.microbatch)
            found[plan] = max(run.tokens_per_second, found.get(plan, 0.0))  # with sharded state, or without
    reached = sorted(found[rule_of_thumb(list(found))] / max(found.values()) for found in jobs.values())
    assert (len(reached), sum(each == 1 for each in reached), round(reached[0], 2)) == (11, 4, 0.37)
    said = " ".join(cell.source.replace("\n", " ") for cell in lesson("15").cells)
    picks = "On four of them the rule picks the fastest run; on the worst it reaches only 37 % of the best throughput"
    assert f"nanotron published eleven jobs. {picks}" in said
    assert "4 in 11 published jobs. **37 % of the best at worst.**" in said


def test_of_the_published_runs_the_planners_first_pick_went_wrong_and_the_second_did_not() -> None:
    made = namespace(number="15")
    runs = [(made["step_seconds"](PUBLISHED_JOB, plan), took, plan) for plan, took in published() if plan.tensor <= 8]
    ratios = sorted(took / mine for mine, took, _ in runs)
    assert ratios[len(ratios) // 2] == pytest.approx(1.78, abs=0.01)
    first, second = sorted(runs, key=lambda each: each[0])[:2]
    assert (first[2], second[2]) == (Plan(8, 2, 1), Plan(8, 1, 2))
    assert first[1] / first[0] > 5
    assert second[1] / second[0] == pytest.approx(ratios[len(ratios) // 2], rel=0.1)
    assert ratios[-1] > 10
    assert sum(ratio < 2.5 for ratio in ratios) == 26
    assert (round(ratios[0], 1), round(ratios[25], 1), round(ratios[26])) == (1.3, 2.4, 4)


def test_the_recorded_run_is_what_the_virtual_cluster_does_and_its_last_rank_is_late() -> None:
    made = runpy.run_path(str(ROOM / "record.py"))
    assert list(labkit.recorded("late_stage").rows()) == list(made["record"]().rows())
    assert list(Timeline.load(ROOM / "recording.json").rows()) == list(made["record"](made["OF_CLASS"]).rows())
    for folder, stages in ((KEYS, made["STAGES"]), (ROOM, made["OF_CLASS"])):
        key = json.loads((folder / "key.json").read_text(encoding="utf-8"))["answers"]
        late = stages // 3
        assert key == {"rank": late, "cause": "it computes layers again", "cure": "fewer layers on that stage"}
        timeline = Timeline.load(folder / "recording.json")
        waits = [_waits(timeline.select(_after_first_backward(timeline, rank)), rank) for rank in range(stages)]
        assert waits.index(min(waits)) == late
        assert 1.5 * min(waits) < sorted(waits)[1]
        forward, backward = ([_longest(timeline, rank, name) for rank in range(stages)] for name in ("F0", "B0"))
        assert forward[late] == forward[0] < forward[-1]
        assert backward[late] == max(backward) > backward[-1] > backward[0]
    case = find("choose_plan").visible[1]
    assert score(case, ({"plan": [2, 2, 4, 1, False]},)) == 1e3 * _fitting(case)[1][Plan(2, 2, 4, 1)]
