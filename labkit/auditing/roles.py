"""What ranks are to each other, judged by what they did: who are replicas, who averages gradients with whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.seen import Call, Seen, Step


def first_steps(seen: Seen) -> list[Step]:
    """Return the first step of each optimizer."""
    return [step for step in seen.steps if step.number == 0]


def replicas(step: Step) -> list[tuple[int, ...]]:
    """Return the groups of ranks that hold one whole model, bit for bit, as a step begins."""
    names = [name for name in step.parameters if name not in step.sharded]
    held: dict[int, list[int]] = defaultdict(list)
    for name in names:
        for place, ranks in enumerate(step.parameters[name]):
            for rank in ranks:
                held[rank] += [names.index(name), place]
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in sorted(held):
        groups[tuple(held[rank])].append(rank)
    return [tuple(ranks) for ranks in groups.values() if len(ranks) > 1]


def averaging(seen: Seen) -> dict[tuple[int, ...], list[Step]]:
    """Return the groups whose ranks computed different gradients and shared them, and in which steps."""
    found: dict[tuple[int, ...], list[Step]] = defaultdict(list)
    for step in seen.steps:
        groups = {fit.ranks for fits in step.fits.values() for fit in fits.values() if fit is not None}
        for ranks in groups:
            if len(ranks) > 1:
                found[ranks].append(step)
    return found


def data_parallel(seen: Seen) -> list[tuple[int, ...]]:
    """Return the groups over which data is parallel: they hold one model and share gradients, or nothing else."""
    shared = set(averaging(seen))
    for step in first_steps(seen):
        shared |= {ranks for ranks in replicas(step) if not entangled(seen, ranks)}
    return sorted(ranks for ranks in shared if not any(set(ranks) < set(other) for other in shared))


def entangled(seen: Seen, ranks: tuple[int, ...]) -> bool:
    """Return whether these ranks work on one batch together: a forward or backward pass waits for another rank's."""
    members = set(ranks)
    if any(sender in members and receiver in members for sender, receiver in seen.messages):
        return True
    return any(_works_together(call) and len(members & set(call.ranks)) > 1 for call in seen.calls)


def _works_together(call: Call) -> bool:
    if call.kind.startswith("all_to_all"):
        return True
    return (call.in_forward or call.in_backward) and not call.holds and call.kind in _OF_ACTIVATIONS and call.in_graph


_OF_ACTIVATIONS = ("all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor")


def averages_parameters(seen: Seen, ranks: tuple[int, ...]) -> bool:
    """Return whether these ranks average parameters in place of gradients, now and then."""
    members = set(ranks)
    return any(
        call.holds == "parameter" and call.op and call.step > 0 and members <= set(call.ranks) for call in seen.calls
    )


def pairs(seen: Seen) -> Iterator[tuple[Step, Step]]:
    """Yield each step with the one that comes after it; the end of the run comes after the last."""
    by_optimizer: dict[int, list[Step]] = defaultdict(list)
    for step in seen.steps:
        by_optimizer[step.optimizer].append(step)
    for steps in by_optimizer.values():
        steps.sort(key=lambda step: step.number)
        yield from zip(steps, [*steps[1:], *seen.ends[:1]], strict=False)
