"""Plans beside their steps on the virtual cluster, and plans carried over to virtual ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from typer.testing import CliRunner

import labkit
from labkit.cli import app
from labkit.planned_steps.verify import PARTS, Verified, at_cluster_prices, simulate, simulate_whole, verify
from labkit.planner.carry_over import as_device_mesh
from labkit.planner.layout import Layout
from labkit.planner.model import Model
from labkit.planner.plan import Job, Plan, planned
from tests.planner.simulated_plans import H100S, MODELS, drawn
from tests.sampling import one_in

TINY = Model("tiny", 2, 1024, 8, 4, 4096, 8192, 1024)


def tiny(layout: Layout) -> Plan:
    return planned(Job(TINY, layout.world_size, layout.batch, H100S), layout)


@pytest.mark.in_turn
@pytest.mark.parametrize("number", [7, pytest.param(18, marks=pytest.mark.long)])
def test_a_drawn_plan_is_within_ten_percent_of_its_step(number: int) -> None:
    found = verify(drawn()[number])
    assert abs(found.error) < 0.10
    assert abs(found.memory_error) < 0.20


@pytest.mark.in_turn
def test_each_part_of_a_step_is_told_where_it_is_off() -> None:
    layout = Layout(1, 1, 1, 1, 2)
    found = verify(planned(Job(MODELS[1], 1, 2, H100S), layout))
    assert abs(found.error) < 0.05
    off = {name: seconds / found.simulated.seconds for name, seconds in found.differences()}
    assert set(off) == set(PARTS)
    assert all(abs(share) < 0.03 for share in off.values()), off
    assert abs(sum(found.simulated.parts.values()) / found.simulated.seconds - 1) < 0.01
    # A plan that leaves out what the optimizer takes is told so.
    time = replace(found.plan.time, optimizer=0.0)
    told = Verified(replace(found.plan, time=time), found.simulated).lines()
    assert told[1].startswith("most off: optimizer, ")
    assert "too short" in told[0]


@pytest.mark.in_turn
def test_a_step_of_many_microbatches_is_as_long_as_two_with_few_say() -> None:
    plan = tiny(Layout(1, 2, 1, 1, 14))
    assert simulate(plan).seconds == pytest.approx(simulate_whole(plan).seconds, rel=1e-3)


@pytest.mark.in_turn
def test_a_step_of_many_layers_is_as_long_and_holds_as_much_as_two_with_few_say() -> None:
    plan = planned(Job(replace(TINY, layers=9), 2, 2, H100S), Layout(2, 1, 1, 1, 1, 3))
    folded, whole = simulate(plan), simulate_whole(plan)
    assert folded.seconds == pytest.approx(whole.seconds, rel=0.01)
    assert folded.memory_bytes == pytest.approx(whole.memory_bytes, rel=0.02)


def test_planner_and_cluster_price_one_product_alike() -> None:
    plan = at_cluster_prices(tiny(Layout(1, 1, 1, 8, 1)))
    assert plan.time.products == pytest.approx(simulate(plan).parts["products"], rel=0.02)
    assert plan.job.machines.device is labkit.virtual(1, gpu="h100").cluster.device


@pytest.mark.in_turn
def test_the_command_runs_a_step_of_the_best_plans() -> None:
    words = "--layers 2 --hidden 1024 --heads 8 --intermediate 4096 --vocabulary 8192 --seq 1024 --gpus 2 --batch 4"
    result = CliRunner().invoke(app, ["plan", *words.split(), "--verify", "1"])
    assert result.exit_code == 0, result.output
    assert "planned with the cluster's prices" in result.output
    assert "most off: " in result.output
    assert "Fastest there, planned and simulated: plan 1." in result.output


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.distributed.optim, when it is imported
@pytest.mark.parametrize("zero", one_in(3, [0, 1, 2, 3]))
def test_the_device_mesh_of_a_plan_runs(zero: int) -> None:
    code = as_device_mesh(tiny(Layout(2, 2, 2, 1, 2, zero)))

    def step() -> list[int]:
        torch.cuda.set_device(dist.get_rank())
        names: dict[str, Any] = {"model": nn.Linear(4, 4).cuda()}
        exec(code, names)
        names["model"](torch.ones(1, 4).cuda()).sum().backward()
        names["optimizer"].step()
        return [names["mesh"].get_group(axis).size() for axis in ("pipeline", "data", "tensor")]

    done = labkit.run(step, on=labkit.virtual(8, cuda=True), echo=False)
    assert done.results == [[2, 2, 2]] * 8
    assert len(code.splitlines()) <= 12
