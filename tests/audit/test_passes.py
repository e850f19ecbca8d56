"""Gradients between backward() and the step, and the mode that ranks train in: each mistake is found where it is."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import labkit

TWO = labkit.virtual(2)
MISTAKES = {
    "not zeroed": ("gradients-left-over", "scaler.step("),
    "zeroed each time": ("gradients-thrown-away", 'if mistake == "zeroed each time"'),
    "rank 1 evaluates": ("modes-differ", "model.eval()"),
    "clipped scaled": ("clipped-while-scaled", "nn.utils.clip_grad_norm_("),
    "weights summed": ("parameters-wrong-mean", "dist.all_reduce(parameter.data)"),
    "own rates": ("learning-rates-differ", 'group["lr"] ='),
    "own entries": ("replicas-drift", "drawing ="),
    "divided early": ("divided-between-passes", "torch.autograd.backward("),
    "own copy": ("copies-differ", "averaged ="),
}
"""Mistake -> the rule that it breaks, and how the line begins that is named."""


def train(mistake: str = "") -> None:
    """Train three steps of two microbatches with a scaler, and send half of each gradient."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 1))
    averaged = copy.deepcopy(model).eval()
    nn.init.constant_(averaged[0].weight, rank if mistake == "own copy" else 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    torch.manual_seed(10 + rank)
    drawing = torch.Generator().manual_seed(rank if mistake == "own entries" else 0)
    for step in range(3):
        group = optimizer.param_groups[0]
        group["lr"] = 0.01 * (1 + step + rank) if mistake == "own rates" else 0.01
        if mistake != "not zeroed":
            optimizer.zero_grad()
        for number in range(2):
            if mistake == "zeroed each time": optimizer.zero_grad()  # fmt: skip # noqa: E701
            loss = model(torch.randn(4, 8)).square().mean() / 2
            torch.autograd.backward(scaler.scale(loss))
            for parameter in model.parameters() if (mistake, number) == ("divided early", 0) else ():
                parameter.grad /= 2
        for parameter in model.parameters():
            assert parameter.grad is not None
            gradient = parameter.grad.view(-1)
            chosen = torch.randperm(len(gradient), generator=drawing)[: (len(gradient) + 1) // 2]
            sent = gradient[chosen] / size
            dist.all_reduce(sent)
            gradient.zero_()[chosen] = sent
        if mistake != "clipped scaled":
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        for parameter in model.parameters() if mistake == "weights summed" else ():
            dist.all_reduce(parameter.data)
        if mistake == "rank 1 evaluates" and rank == 1:
            model.eval()
        with torch.no_grad():
            averaged(torch.ones(1, 8))


@pytest.mark.in_turn
def test_a_right_program_has_no_finding() -> None:
    found = labkit.audit(train, on=TWO)
    assert not [one for one in found.findings if one.severity != "slow"], found
    assert {one for one, _ in MISTAKES.values()} - {"parameters-wrong-mean"} <= {*found.held}


@pytest.mark.in_turn
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_between_backward_and_the_step_is_found_where_it_is(mistake: str) -> None:
    found = labkit.audit(train, mistake, on=TWO)
    grave = [one for one in found.findings if one.severity != "slow"]
    rule, begins = MISTAKES[mistake]
    assert [one.rule for one in grave] == [rule], found
    assert Path(grave[0].file).read_text().splitlines()[grave[0].line - 1].strip().startswith(begins)


def with_a_closure() -> None:
    """Train three steps whose forward and backward passes are in the step's closure, as Lightning's are."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(10 + dist.get_rank())

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(torch.randn(4, 8)).square().mean()
        torch.autograd.backward(loss)
        return loss

    for _ in range(3):
        optimizer.step(closure)


def test_a_step_that_computes_in_its_closure_is_judged_by_the_gradients_of_the_closure() -> None:
    found = labkit.audit(with_a_closure, on=TWO)
    assert not [one for one in found.findings if one.severity != "slow"], found
    assert found.num_steps == 3
    assert "gradient-not-averaged" in found.held
