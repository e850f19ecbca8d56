"""A training run of one small model, right or with one mistake: what the audit's own tests run."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

MISTAKES = {
    "sum": "gradient-wrong-scale",
    "divided twice": "gradient-wrong-scale",
    "alone": "gradient-not-averaged",
    "one left out": "gradient-partly-averaged",
    "half the ranks": "gradient-wrong-group",
    "accumulated": "gradient-wrong-scale",
    "own init": "parameters-begin-unequal",
    "own learning rate": "learning-rates-differ",
    "own weight decay": "replicas-drift",
    "own norm": "clipped-by-own-norm",
    "no sampler": "same-samples",
    "no epoch": "epochs-alike",
    "own sampler seed": "samples-never-read",
    "equal masks": "dropout-masks-equal",
    "not waited": "used-before-wait",
    "changed in flight": "changed-in-flight",
    "optimizer too early": "optimizer-of-other-parameters",
    "detached": "no-gradient",
    "frozen on one": "requires-grad-lost",
    "padding": "mean-of-unequal-means",
}
"""Mistake -> the rule that it breaks."""


def model_of() -> nn.Module:
    """Return the model."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def train(mistake: str = "", wrapped: bool = False) -> None:
    """Train for two epochs of two steps on as many ranks as there are."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(8 * size, 8), torch.randint(0, 3, (8 * size,)))
    torch.manual_seed(rank if mistake == "own init" else 0)
    model = model_of()
    if mistake != "equal masks":
        torch.manual_seed(100 + rank)
    if wrapped:
        model = DistributedDataParallel(model)
    if mistake == "detached":
        model[0].register_forward_hook(lambda module, given, out: out.detach())
    pairs = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
    rate, decay = 0.1 * (1 + rank if mistake == "own learning rate" else 1), 0.01 * rank
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, weight_decay=decay if mistake == "own weight decay" else 0)
    if mistake == "optimizer too early":
        model = model_of()
    if mistake == "frozen on one":
        model[0].bias.requires_grad_(rank != 1)
    sampler = DistributedSampler(data, seed=rank if mistake == "own sampler seed" else 0)
    loader = DataLoader(data, 4, sampler=None if mistake == "no sampler" else sampler)
    for epoch in range(2):
        if mistake != "no epoch":
            sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            if number == 2:
                break
            if mistake == "padding":
                y[: rank % 3] = -100
            optimizer.zero_grad()
            for part in range(2) if mistake == "accumulated" else [None]:
                here = slice(None) if part is None else slice(2 * part, 2 * part + 2)
                functional.cross_entropy(model(x[here]), y[here]).backward()
            if mistake == "own norm":
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            if not wrapped and mistake != "alone":
                average(model, mistake, pairs[rank // 2])
            if mistake == "divided twice":
                for parameter in model.parameters():
                    parameter.grad /= size
            optimizer.step()


def average(model: nn.Module, mistake: str, pair: dist.ProcessGroup) -> None:
    """Average gradients, or not quite."""
    group = pair if mistake == "half the ranks" else None
    for number, parameter in enumerate(model.parameters()):
        if mistake == "one left out" and number == 2:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter) if mistake == "frozen on one" else None
            if parameter.grad is None:
                continue
        work = dist.all_reduce(parameter.grad, group=group, async_op=True)
        if mistake == "changed in flight":
            parameter.grad.mul_(2.0)
        if mistake == "not waited":
            _ = parameter.grad.sum()
        work.wait()
        if mistake != "sum":
            parameter.grad /= dist.get_world_size(group)


wrapped = partial(train, wrapped=True)
