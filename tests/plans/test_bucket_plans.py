"""Which buckets torch's DDP makes in its first steps, held against runs of the real one."""

from __future__ import annotations

import random

import pytest

import labkit
from labkit.plans.buckets import Link, sent
from labkit.plans.reference.bucket_plans import GRAPHS, ddp_plan
from labkit.widgets.bucket_explorer import bucket_explorer
from tests.widgets import bucket_programs
from tests.widgets.in_page import Evaluate


@pytest.mark.in_turn
@pytest.mark.parametrize("graph", GRAPHS)
def test_torchs_ddp_makes_these_buckets_step_by_step(graph: str) -> None:
    """A model registered backwards: one bucket at first, rebuilt from then on; found ones never."""
    told = {} if graph == "default" else {graph: True}
    run = labkit.run(bucket_programs.three_steps, told, on=labkit.local(2), echo=False)
    sizes = run.results[0]
    cap_mb = 1000 / 2**20
    used = list(reversed(range(len(sizes))))
    figure = bucket_explorer(sizes, cap_mb=cap_mb, used=used, graph=graph, run=run.timeline, run_steps=(0, 1, 2))
    of_rank_0 = [row for row in figure.data["run"] if row[0].startswith("rank 0")]
    assert [row[0] for row in of_rank_0] == [f"rank 0, step {step}" for step in (1, 2, 3)]
    link = Link(1.0, 2, 0.0, 1e9)
    for step, (_, _, buckets) in enumerate(of_rank_0, 1):
        plan = ddp_plan(sizes, 1000, 0, used, graph, step)
        assert [size for size, *_ in buckets] == [each.num_bytes for each in sent(sizes, plan, link, used)]


@pytest.mark.in_turn
def test_what_is_called_ddps_default_are_the_buckets_of_torchs_ddp(evaluate: Evaluate) -> None:
    sizes, plan = labkit.run(bucket_programs.as_delivered, on=labkit.local(2), echo=False).results[0]
    filled = [sum(sizes[index] for index in bucket) / 2**20 for bucket in plan]
    assert len(plan) > 3 and filled[0] > 1 and all(full > 25 for full in filled[1:-1])  # it may hold more than its cap
    rule = "ddpPlan(sizes, 25 * 2**20, 2**20, sizes.map((_, k) => k), 'default', 3, true)"
    assert evaluate("buckets", rule, sizes=sizes) == plan


def test_rebuilt_buckets_leave_in_the_order_of_use_and_hide_more() -> None:
    sizes, used = [2**20] * 16, list(reversed(range(16)))
    exposed = {
        (graph, step): bucket_explorer(sizes, cap_mb=2, used=used, graph=graph, step=step).numbers["exposed_s"]
        for graph in GRAPHS
        for step in (1, 2, 3)
    }
    assert exposed["default", 2] == exposed["default", 3] == exposed["static_graph", 3] < exposed["default", 1] / 4
    assert exposed["default", 1] == exposed["static_graph", 2] < exposed["static_graph", 1]
    searched = {exposed["find_unused_parameters", step] for step in (1, 2, 3)}
    assert len(searched) == 1
    assert min(searched) > exposed["default", 1]  # nothing leaves before the layer that is used first is done


def test_the_search_lies_between_forward_and_backward_and_costs_its_time() -> None:
    plain, searched = (bucket_explorer(graph=graph, search_s=1e-3) for graph in GRAPHS[:2])
    more = searched.numbers["step_s"] - plain.numbers["step_s"]
    assert more > 1e-3  # and one small all_reduce, of who has used what
    assert searched.numbers["exposed_s"] - plain.numbers["exposed_s"] == pytest.approx(more - 1e-3)


@pytest.mark.in_turn
def test_javascript_makes_the_same_plans_and_times(evaluate: Evaluate) -> None:
    draw = random.Random(2)
    for graph in GRAPHS:
        for step in (1, 2, 3):
            sizes = [draw.randint(1, 10**6) for _ in range(20)]
            used = draw.sample(range(20), 20)
            plan = ddp_plan(sizes, 10**6, 10**5, used, graph, step)
            values = {"backward": 10e-3, "ranks": 8, "latency": 20e-6, "bandwidth": 12.5e9, "skew": 1e-3, "used": used}
            expression = "[ddpPlan(sizes, 1e6, 1e5, values.used, graph, step), bucketTimes(sizes, plan, values)]"
            inputs = {"sizes": sizes, "values": values, "graph": graph, "step": step, "plan": plan}
            found, times = evaluate("buckets", expression, **inputs)
            assert found == plan
            wanted = sent(sizes, plan, Link(10e-3, 8, 20e-6, 12.5e9, 1e-3), used)
            for key, name in (("bytes", "num_bytes"), ("ready", "ready"), ("all", "all_ready"), ("end", "end")):
                assert [each[key] for each in times] == pytest.approx([getattr(each, name) for each in wanted])
