"""What a rank brings to a step of its optimizer, as it is then."""

from __future__ import annotations

import torch

from labkit.auditing.bits import kept, same_bits, unseen
from labkit.auditing.meeting import Shot
from labkit.auditing.rank_watch import RankWatch


def held(mine: RankWatch, source: str) -> Shot:
    """Return a shot of what a rank's models hold."""
    shot = Shot(source, mine.step, tuple(mine.backwards), mine.scale)
    with unseen():
        for name, one in mine.names.parameters().items():
            copy = kept(one)
            if copy is not None:
                shot.parameters[name] = copy
                if any(not place.is_replicate() for place in getattr(one, "placements", ())):
                    shot.sharded.add(name)
    return shot


def brought(mine: RankWatch, optimizer: torch.optim.Optimizer, source: str) -> Shot:
    """Return a shot of what a rank brings to a step of an optimizer: parameters, gradients, rates."""
    named = {id(one): name for name, one in mine.names.parameters().items()}
    shot = held(mine, source)
    shot.called, shot.norms = mine.names.parameters_of(mine.called), mine.names.of_norms()
    shot.unsynced, shot.rates = mine.unsynced, tuple(float(group.get("lr", 0)) for group in optimizer.param_groups)
    shot.zeroed = mine.passes.zeroed
    shot.optimizer_made = mine.made.get(id(optimizer), "")
    with unseen():
        number = 0
        for group in optimizer.param_groups:
            for one in group["params"]:
                name = named.get(id(one), f"parameter {number} of the optimizer")
                shot.held.append(name)
                shot.made[name] = mine.names.made.get(id(one), shot.optimizer_made)
                if id(one) not in named:
                    shot.unknown.append(name)
                    if (values := kept(one)) is not None:
                        shot.parameters[name] = values
                number += 1
                if not one.requires_grad:
                    shot.frozen[name] = id(one) in mine.hooked
                own = mine.passes.own.pop(id(one), None)
                before, after = mine.clipped.pop(id(one), (None, None))
                copy = None if one.grad is None else kept(one.grad)
                if copy is not None:
                    shot.given[name] = copy
                if one.grad is None:
                    shot.without.append(name)
                elif own is not None and copy is not None:
                    last = before is not None and after is not None and same_bits(copy, after)
                    shot.gradients[name] = before if last and before is not None else copy
                    shot.own[name] = own if last or after is None else after
                    shot.passes[name] = mine.passes.counts.get(id(one), 1)
                    if id(one) in mine.passes.left_over:
                        shot.left_over.add(name)
                    if id(one) in mine.passes.thrown:
                        shot.thrown[name] = mine.passes.thrown[id(one)]
    if len(shot.without) == len(shot.held) and not shot.unsynced:  # as fully_shard leaves it
        shot.unsynced = mine.passes.last_unsynced
    return shot
