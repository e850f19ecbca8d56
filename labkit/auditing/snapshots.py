"""Snapshots of a rank as its optimizer steps: its parameters, gradients and learning rates at that moment."""

from __future__ import annotations

import torch

from labkit.auditing.bits import kept, same_bits, unseen
from labkit.auditing.meeting import Snapshot
from labkit.auditing.rank_watch import RankWatch


def model_snapshot(mine: RankWatch, source: str) -> Snapshot:
    """Return a snapshot of the parameters of a rank's models."""
    snapshot = Snapshot(source, mine.step, tuple(mine.backwards), mine.scale)
    with unseen():
        for name, one in mine.names.parameters().items():
            copy = kept(one)
            if copy is not None:
                snapshot.parameters[name] = copy
                if any(not place.is_replicate() for place in getattr(one, "placements", ())):
                    snapshot.sharded.add(name)
    return snapshot


def step_snapshot(mine: RankWatch, optimizer: torch.optim.Optimizer, source: str) -> Snapshot:
    """Return a snapshot of a rank as it steps an optimizer: parameters, gradients, learning rates."""
    named = {id(one): name for name, one in mine.names.parameters().items()}
    snapshot = model_snapshot(mine, source)
    snapshot.called, snapshot.norms = mine.names.parameters_of(mine.called), mine.names.of_norms()
    snapshot.unsynced, snapshot.rates = (
        mine.unsynced,
        tuple(float(group.get("lr", 0)) for group in optimizer.param_groups),
    )
    snapshot.zeroed = mine.passes.zeroed
    snapshot.optimizer_made = mine.made.get(id(optimizer), "")
    with unseen():
        number = 0
        for group in optimizer.param_groups:
            for one in group["params"]:
                name = named.get(id(one), f"parameter {number} of the optimizer")
                snapshot.held.append(name)
                snapshot.made[name] = mine.names.made.get(id(one), snapshot.optimizer_made)
                if id(one) not in named:
                    snapshot.unknown.append(name)
                    if (values := kept(one)) is not None:
                        snapshot.parameters[name] = values
                number += 1
                if not one.requires_grad:
                    snapshot.frozen[name] = id(one) in mine.hooked
                own = mine.passes.own.pop(id(one), None)
                before, after = mine.clipped.pop(id(one), (None, None))
                copy = None if one.grad is None else kept(one.grad)
                if copy is not None:
                    snapshot.given[name] = copy
                if one.grad is None:
                    snapshot.without.append(name)
                elif own is not None and copy is not None:
                    last = before is not None and after is not None and same_bits(copy, after)
                    snapshot.gradients[name] = before if last and before is not None else copy
                    snapshot.own[name] = own if last or after is None else after
                    snapshot.passes[name] = mine.passes.counts.get(id(one), 1)
                    if id(one) in mine.passes.left_over:
                        snapshot.left_over.add(name)
                    if id(one) in mine.passes.thrown:
                        snapshot.thrown[name] = mine.passes.thrown[id(one)]
    if len(snapshot.without) == len(snapshot.held) and not snapshot.unsynced:  # as fully_shard leaves it
        snapshot.unsynced = mine.passes.last_unsynced
    return snapshot
