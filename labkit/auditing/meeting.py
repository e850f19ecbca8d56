"""One optimizer step as all ranks take it: what each brings is compared once the last has come, and let go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from labkit.auditing.bits import difference, ranks_by_bits, same_bits, unseen
from labkit.auditing.facts import Backward, Fit
from labkit.auditing.seen import Step

_LOOSE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}
"""By how much of its norm a gradient may differ from a sum of others and still be taken for it."""


@dataclass
class Snapshot:
    """What one rank brings to a step.

    Attributes:
        source: The program's line.
        step: The rank's training step.
        backwards: Its backward passes since the last step.
        scale: What a gradient scaler multiplied the loss with.
        held: Names of the optimizer's parameters.
        made: Name -> the line that made a parameter.
        optimizer_made: The line that made the optimizer.
        norms: Names of parameters that are a normalisation's.
        parameters: Name of each parameter of its models and of the optimizer -> its values.
        sharded: Names of those that are pieces.
        gradients: Name of each parameter of the optimizer -> what the optimizer is given.
        given: The same, as it comes to the step, for every parameter that has one.
        own: Name -> what this rank's own backward passes made, before anybody else's came to it.
        passes: Name -> how many backward passes made that.
        left_over: Names of parameters whose gradient still holds what the step before used.
        thrown: Name -> how many backward passes made a gradient of it that was zeroed before this step.
        zeroed: The line that zeroed gradients last.
        without: Names of parameters without a gradient.
        unknown: Names of parameters that are no module's.
        frozen: Names of parameters of the optimizer that require no gradient -> whether they did when it got them.
        called: Names of parameters whose modules were called.
        unsynced: The line of the last forward pass, where that was inside no_sync().
        rates: The learning rates of the optimizer's groups.
    """

    source: str
    step: int
    backwards: Sequence[Backward] = ()
    scale: float = 1.0
    held: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    optimizer_made: str = ""
    norms: set[str] = field(default_factory=set)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    sharded: set[str] = field(default_factory=set)
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    given: dict[str, torch.Tensor] = field(default_factory=dict)
    own: dict[str, torch.Tensor] = field(default_factory=dict)
    passes: dict[str, int] = field(default_factory=dict)
    left_over: set[str] = field(default_factory=set)
    thrown: dict[str, int] = field(default_factory=dict)
    zeroed: str = ""
    without: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    frozen: dict[str, bool] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    unsynced: str = ""
    rates: tuple[float, ...] = ()


def met(optimizer: int, number: int, snapshots: dict[int, Snapshot], groups: Sequence[tuple[int, ...]]) -> Step:
    """Return one step, made of the snapshots of all ranks.

    Args:
        optimizer: The optimizer's number.
        number: How many steps it took before.
        snapshots: Rank -> its snapshot.
        groups: The groups over which ranks communicated so far.
    """
    step = Step(optimizer, number, max(snapshot.step for snapshot in snapshots.values()))
    for rank, snapshot in snapshots.items():
        step.sources[rank], step.backwards[rank], step.scale[rank] = snapshot.source, snapshot.backwards, snapshot.scale
        step.sharded |= snapshot.sharded
        step.rates[rank] = snapshot.rates
        step.held_by[rank] = frozenset(snapshot.held)
        step.called |= snapshot.called
        for name, count in snapshot.passes.items():
            step.passes[name] = max(count, step.passes.get(name, 0))
        if snapshot.left_over:
            step.left_over[rank] = snapshot.left_over
        if snapshot.thrown:
            step.thrown[rank], step.zeroed[rank] = snapshot.thrown, snapshot.zeroed
        if snapshot.unsynced:
            step.unsynced[rank] = snapshot.unsynced
        step.norms |= snapshot.norms
        step.held += [name for name in snapshot.held if name not in step.held]
        step.made |= snapshot.made
        step.optimizer_made = step.optimizer_made or snapshot.optimizer_made
        step.lost |= {name for name, did in snapshot.frozen.items() if did}
        for name in snapshot.frozen:
            step.frozen.setdefault(name, []).append(rank)
        if snapshot.unknown:
            step.unknown[rank] = snapshot.unknown
        for name in snapshot.without:
            step.without.setdefault(name, []).append(rank)
    with unseen():
        for name in _names(snapshots, "parameters"):
            tensors = {
                rank: snapshot.parameters[name] for rank, snapshot in snapshots.items() if name in snapshot.parameters
            }
            groups_alike = step.parameters[name] = ranks_by_bits(tensors)
            if all(bool((one == one.reshape(-1)[0]).all()) for one in tensors.values() if one.numel()):
                step.constant.add(name)
            if len(groups_alike) > 1 and name not in step.sharded:
                first, other = groups_alike[0][0], groups_alike[1][0]
                if tensors[first].shape == tensors[other].shape:
                    step.differences[name] = difference((first, other), tensors[first], tensors[other])
        for name in _names(snapshots, "gradients"):
            _fit(step, name, snapshots, groups)
    return step


def _names(snapshots: dict[int, Snapshot], part: str) -> list[str]:
    """Return every name that a rank has, in the order of the ranks' models."""
    return list(dict.fromkeys(name for rank in sorted(snapshots) for name in getattr(snapshots[rank], part)))


def _fit(step: Step, name: str, snapshots: dict[int, Snapshot], groups: Sequence[tuple[int, ...]]) -> None:
    """Find out what the gradients of one parameter are made of."""
    own = {rank: snapshot.own[name] for rank, snapshot in snapshots.items() if name in snapshot.own}
    given = {rank: snapshot.gradients[name] for rank, snapshot in snapshots.items() if name in snapshot.gradients}
    if len(own) == 1 and set(own) <= set(
        given
    ):  # nobody else holds it: how many times its own does the rank step with?
        rank, mine = next(iter(own.items()))
        if mine.shape == given[rank].shape:
            ratio = _ratio(given[rank], (rank,), {rank: mine.to(torch.float64)}, {})
            step.fits[name] = {rank: Fit((rank,), ratio) if ratio else None}
        return
    if len(own) < 2 or len({tensor.shape for tensor in (*own.values(), *given.values())}) > 1:
        return
    if len(ranks_by_bits(own)) == 1:
        step.alike.add(name)
        return
    wide = {rank: tensor.to(torch.float64) for rank, tensor in own.items()}
    sums: dict[tuple[int, ...], torch.Tensor] = {}
    found: dict[int, Fit | None] = {}
    for rank, gradient in given.items():
        twin = next((one for one in found if same_bits(given[one], gradient)), None)
        fit = found[twin] if twin is not None else None
        if fit is not None and rank in fit.ranks:
            found[rank] = fit
            continue
        candidates = [members for members in groups if rank in members and all(one in wide for one in members)]
        candidates = sorted({*candidates, (rank,), tuple(sorted(wide))}, key=len, reverse=True)
        found[rank] = next(
            (Fit(members, ratio) for members in candidates if (ratio := _ratio(gradient, members, wide, sums))), None
        )
    step.fits[name] = found


def _ratio(
    gradient: torch.Tensor, members: tuple[int, ...], wide: dict[int, torch.Tensor],
    sums: dict[tuple[int, ...], torch.Tensor],
) -> float | None:  # fmt: skip
    """Return how many times the sum of the members' own gradients a gradient is, None where it is no multiple."""
    if members not in sums:
        sums[members] = torch.stack([wide[one] for one in members]).sum(0)
    total, mine = sums[members].reshape(-1), gradient.to(torch.float64).reshape(-1)
    square = float(total @ total)
    if not square or not bool(torch.isfinite(mine).all()):
        return None
    ratio = float(mine @ total) / square
    loose = _LOOSE.get(gradient.dtype, 2e-4)
    rest = float((mine - ratio * total).norm())
    if not ratio or rest > loose * float(mine.norm()):
        return None
    if mine.numel() == 1:  # any number is a multiple of any other
        nice = (1.0, 1 / len(members), 1 / len(members) ** 2)
        return next((one for one in nice if abs(ratio - one) < loose * one), None)
    return ratio
