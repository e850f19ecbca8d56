"""What one process that has all samples comes to: in the right way, and in ways that are taken for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Case, Value, Values
from labkit.checks.groups import group_of
from labkit.checks.values import number, record, tensor, tensors
from labkit.exercises.keys_rows_failures.server_hybrid.driver import Dense, optimizer_of


def train(
    case: Case,
    weigh: Callable[[int], float] = lambda rank: 1.0,
    *,
    keeps: bool = False,
    anew: bool = False,
    plain: bool = False,
    shared: bool = False,
    factor: float = 1.0,
    parameters: bool = False,
    after: bool = False,
) -> list[Values]:
    """Return what each rank should have, from one process.

    Args:
        case: With every rank's samples.
        weigh: What a rank's loss is multiplied by; 1 is right.
        keeps: Whether gradients of the layers add up from step to step (a mistake).
        anew: Whether the optimizer forgets its momentum between steps (a mistake).
        plain: Whether an SGD of the answer's own takes its place, with the learning rate alone (a mistake).
        shared: Whether each rank returns the mean loss of all (a mistake).
        factor: What the layers' gradients are multiplied by before the step.
        after: Whether the loss is that after the step (a mistake).
        parameters: Whether the layers are divided in place of their gradients (a mistake).
    """
    ranks, first = group_of(case), case.inputs[0]
    model, table = Dense(cast(dict[str, Tensor], record(first, "dense"))), tensor(first, "table")
    optimizer = optimizer_of(model, first)
    losses: dict[int, list[Value]] = {rank: [] for rank in ranks}
    pushes: dict[int, list[Value]] = {rank: [] for rank in ranks}
    for step in range(len(tensors(first, "keys"))):
        if not keeps:
            optimizer.zero_grad()
        if anew:
            optimizer = optimizer_of(model, first)
        if plain:
            optimizer = torch.optim.SGD(model.parameters(), lr=number(first, "lr"))
        for rank in ranks:
            keys, targets = (tensors(case.inputs[rank], name)[step] for name in ("keys", "targets"))
            rows = table[keys].requires_grad_()
            loss = nn.functional.mse_loss(model(rows), targets)
            torch.autograd.backward(loss * weigh(rank) / len(ranks))
            losses[rank].append(loss.detach())
            assert rows.grad is not None
            gradient = rows.grad / weigh(rank)
            pushes[rank].append(torch.zeros_like(table).index_add_(0, keys.flatten(), gradient.flatten(0, 1)))
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad *= factor
                parameter.data /= len(ranks) if parameters else 1
        optimizer.step()
        for rank in ranks if after else ():
            keys, targets = (tensors(case.inputs[rank], name)[step] for name in ("keys", "targets"))
            losses[rank][-1] = nn.functional.mse_loss(model(table[keys]), targets).detach()
    dense = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    if shared:
        mean: list[Value] = list(torch.stack([torch.stack(cast(Any, each)) for each in losses.values()]).mean(0))
        losses = dict.fromkeys(ranks, mean)
    return [
        {"dense": dense, "losses": losses[rank], "pushes": pushes[rank]} if rank in ranks else {"member": False}
        for rank in range(case.world_size)
    ]


_TINY = 1e-30  # a rank that is left out


def alone(case: Case) -> list[Values]:
    """Return what each rank has if it trains alone."""
    ranks, count = group_of(case), float(len(group_of(case)))

    def of(rank: int) -> Values:
        return train(case, lambda other: count if other == rank else _TINY)[rank]

    return [of(rank) if rank in ranks else {} for rank in range(case.world_size)]


def own_steps(case: Case) -> list[Values]:
    """Return what each rank has if it takes a step of its own, and the layers are averaged after it."""
    ranks, first = group_of(case), case.inputs[0]
    models = {rank: Dense(cast(dict[str, Tensor], record(first, "dense"))) for rank in ranks}
    optimizers = {rank: optimizer_of(model, first) for rank, model in models.items()}
    losses: dict[int, list[Value]] = {rank: [] for rank in ranks}
    for step in range(len(tensors(first, "keys"))):
        for rank, model in models.items():
            keys, targets = (tensors(case.inputs[rank], name)[step] for name in ("keys", "targets"))
            optimizers[rank].zero_grad()
            loss = nn.functional.mse_loss(model(tensor(first, "table")[keys]), targets)
            torch.autograd.backward(loss)
            optimizers[rank].step()
            losses[rank].append(loss.detach())
        for layers in zip(*(model.parameters() for model in models.values()), strict=True):
            mean = torch.stack([layer.data for layer in layers]).mean(0)
            for layer in layers:
                layer.data.copy_(mean)
    dense: Value = {name: layer.detach() for name, layer in models[ranks[0]].named_parameters()}
    return [{"dense": dense, "losses": losses.get(rank, [])} for rank in range(case.world_size)]


def all_ranks(case: Case) -> list[Values]:
    """Return what each rank has if the sum over the group is divided by the number of all ranks."""
    if case.inputs[0].get("group") is None:
        return []
    return train(case, lambda of: len(group_of(case)) / case.world_size)
