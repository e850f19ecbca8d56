"""Programs of published runs: what they do otherwise shows in a step, and comes from other runs than those drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labkit.planned_steps.programs import FOUNDRY, NANOTRON, PLAIN, POLLING_NANOTRON, Program
from labkit.planned_steps.verify import simulate, simulate_whole
from labkit.planner.layout import Layout
from labkit.planner.model import Model
from labkit.planner.plan import Job, Plan, planned
from tests.benchmarks.published_steps import drawn
from tests.planner.published_runs import (
    H100S,
    across_nodes,
    beside_pipeline,
    host_bound,
    host_of_nanotron,
    kept_by_nanotron,
    nanotron,
)

TINY = Model("tiny", 2, 1024, 8, 8, 4096, 8192, 1024)
WIDE = replace(TINY, vocabulary=65536)
SHORT = replace(TINY, sequence=64, vocabulary=1024)


def tiny(layout: Layout, model: Model = TINY) -> Plan:
    return planned(Job(model, layout.world_size, layout.batch, H100S), layout)


def test_what_nanotrons_host_takes_is_that_of_runs_that_were_not_drawn() -> None:
    layer_s, step_s = host_of_nanotron()
    assert layer_s == pytest.approx(NANOTRON.layer_s, rel=0.001)
    assert step_s == pytest.approx(NANOTRON.step_s, rel=0.01)
    runs = host_bound()
    assert len(runs) == 19  # docs/planner.md says so, and how near they are
    for run in runs:
        layers = run.plan.layout.accumulation * run.plan.job.model.layers
        assert layers * layer_s + step_s == pytest.approx(run.seconds, rel=0.05)
    assert all(run.plan.layout.pipeline > 1 for program, run in drawn() if program == "nanotron")


def test_what_tensor_ranks_add_beside_a_pipeline_is_that_of_runs_that_were_not_drawn() -> None:
    layer_s, step_s = host_of_nanotron()
    assert beside_pipeline(layer_s, step_s) == pytest.approx(NANOTRON.tensor_s, rel=0.005)
    runs = across_nodes()
    assert len(runs) == 11  # docs/planner.md says so, and how near they are
    for run in runs:
        split = run.plan.layout
        layers = max(part.layers for part in split.stages(run.plan.job.model))
        issues = layers * (layer_s + NANOTRON.tensor_s * split.tensor) * (split.accumulation + split.pipeline - 1)
        assert issues + step_s == pytest.approx(run.seconds, rel=0.08)
    assert all(run.plan.layout.data > 1 for program, run in drawn() if program == "nanotron")


@pytest.mark.in_turn
def test_tensor_ranks_add_to_a_layer_where_a_pipeline_leaves_its_node_and_nowhere_else() -> None:
    host = replace(PLAIN, layer_s=5e-3)
    slow = replace(host, tensor_s=5e-3)
    inside, across = tiny(Layout(1, 2, 2, 1, 4), SHORT), tiny(Layout(1, 2, 8, 1, 4), SHORT)
    assert simulate_whole(inside, slow).seconds == simulate_whole(inside, host).seconds
    assert simulate_whole(across, slow).seconds > 3 * simulate_whole(across, host).seconds


@pytest.mark.in_turn
def test_a_host_that_polls_sleeps_six_times_for_each_neighbour_and_microbatch() -> None:
    polling = replace(PLAIN, polls_s=POLLING_NANOTRON.polls_s)
    two, three = (tiny(Layout(1, stages, 1, 1, 6), replace(SHORT, layers=stages)) for stages in (2, 3))
    for plan, neighbours in ((two, 1), (three, 2)):
        sleeps = 6 * neighbours * plan.layout.accumulation * polling.polls_s
        assert simulate_whole(plan).seconds < 0.01 * sleeps
        assert sleeps <= simulate_whole(plan, polling).seconds < 1.6 * sleeps


@pytest.mark.parametrize(("model", "tensor"), [("1B", 8), ("1B", 16), ("3B", 8), ("3B", 16), ("8B", 8), ("8B", 16)])
def test_a_token_more_costs_nanotron_what_is_kept_with_gathered_tokens(model: str, tensor: int) -> None:
    sizes = next(run.plan.job.model for run in nanotron() if run.model == model)
    # A layer's norms, q, k, v, attention's output and residuals, and an MLP's inner activations; scores of the loss.
    cut = sizes.layers * (18 * sizes.hidden + 8 * sizes.intermediate) + 10 * sizes.vocabulary
    gathered = 2 * 2 * sizes.layers * sizes.hidden  # before attention and before the MLP, whole on every tensor rank
    published = kept_by_nanotron(model, tensor)
    assert cut / tensor + gathered == pytest.approx(published, rel=0.21)
    assert cut / tensor < 0.85 * published


@pytest.mark.in_turn
def test_a_device_that_is_quicker_than_its_programs_host_waits_for_it() -> None:
    plan, host = tiny(Layout(1, 1, 1, 1, 4)), replace(PLAIN, layer_s=20e-3, step_s=50e-3)
    quick, slow = simulate(plan), simulate(plan, host)
    assert quick.seconds < 0.5 * slow.seconds
    assert slow.seconds == pytest.approx(4 * 2 * 20e-3 + 50e-3, rel=0.1)


@pytest.mark.in_turn
def test_a_host_that_reads_shapes_waits_for_each_message() -> None:
    plan, slow = tiny(Layout(1, 2, 1, 1, 6), replace(TINY, layers=4, vocabulary=256)), replace(PLAIN, layer_s=5e-3)
    ahead, waits = simulate_whole(plan, slow), simulate_whole(plan, replace(slow, shapes_first=True))
    assert waits.seconds > 1.005 * ahead.seconds


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("model", "layout", "kept"),
    [
        (replace(TINY, layers=4, vocabulary=1024), Layout(1, 1, 4, 16, 1), replace(PLAIN, keeps_gathered=True)),
        (WIDE, Layout(1, 1, 1, 4, 1), replace(PLAIN, keeps_logits=True)),
        (SHORT, Layout(8, 1, 1, 1, 2, 1), replace(PLAIN, gradients_together=True)),
        (SHORT, Layout(2, 1, 1, 1, 2), replace(PLAIN, reducer_buckets=True)),
    ],
    ids=["gathered", "logits", "gradients", "buckets"],
)
def test_what_a_program_keeps_is_held(model: Model, layout: Layout, kept: Program) -> None:
    plan = tiny(layout, model)
    assert simulate_whole(plan, kept).memory_bytes > 1.01 * simulate_whole(plan).memory_bytes


@pytest.mark.in_turn
def test_the_first_flash_attention_takes_longer() -> None:
    plan = tiny(Layout(1, 1, 1, 1, 1), replace(TINY, sequence=8192))
    assert simulate(plan, FOUNDRY).seconds > 1.1 * simulate(plan).seconds
