"""What ranks are to each other, judged by what they did: who are replicas, who averages gradients with whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.facts import Call
from labkit.auditing.seen import Groups, Seen, Step

_OF_ACTIVATIONS = ("all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor")
_FEWEST = 8  # elements: what is smaller is a count or a metric


def first_steps(seen: Seen) -> list[Step]:
    """Return the first step of each optimizer."""
    return [step for step in seen.steps if step.number == 0]


def replicas(step: Step) -> list[tuple[int, ...]]:
    """Return the groups of ranks whose optimizers hold the same parameters, bit for bit, as a step begins."""
    names = [name for name in step.held if name in step.parameters and name not in step.sharded]
    held: dict[int, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        for place, ranks in enumerate(step.parameters[name]):
            for rank in ranks:
                if name in step.held_by.get(rank, ()):
                    held[rank] += [number, place]
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in sorted(held):
        groups[tuple(held[rank])].append(rank)
    return [tuple(ranks) for ranks in groups.values() if len(ranks) > 1]


def sharing(step: Step) -> set[tuple[int, ...]]:
    """Return the groups whose ranks computed different gradients and shared every one of them in a step."""
    common: dict[int, set[int]] = {}
    for fits in step.fits.values():
        for rank, fit in fits.items():
            if fit is not None:
                common[rank] = common.get(rank, set(fit.ranks)) & set(fit.ranks)
    return {tuple(sorted(ranks)) for ranks in common.values() if len(ranks) > 1}


def averaging(seen: Seen) -> dict[tuple[int, ...], list[Step]]:
    """Return the groups whose ranks computed different gradients and shared them all, and in which steps."""
    found: dict[tuple[int, ...], list[Step]] = defaultdict(list)
    for step in seen.steps:
        for ranks in sharing(step):
            found[ranks].append(step)
    return found


def data_parallel(seen: Seen) -> list[tuple[int, ...]]:
    """Return the groups over which data is parallel: they hold one model and share gradients, or nothing else."""
    shared = set(averaging(seen))
    for step in first_steps(seen):
        shared |= {ranks for ranks in replicas(step) if not entangled(seen, ranks)}
    split = [set(ranks) for ranks in together(seen)]
    shared = {ranks for ranks in shared if not any(len(set(ranks) & one) > 1 for one in split)}
    return sorted(ranks for ranks in shared if not any(set(ranks) < set(other) for other in shared))


def entangled(seen: Seen, ranks: tuple[int, ...]) -> bool:
    """Return whether these ranks work on one batch together: one's forward or backward pass needs another's."""
    members = set(ranks)
    return in_turn(seen, ranks) or any(len(members & set(other)) > 1 for other in together(seen))


def of_one_model(seen: Seen, ranks: tuple[int, ...]) -> bool:
    """Return whether these ranks hold parts of one model: they work together, or gather each other's parameters."""
    return entangled(seen, ranks) or any(
        call.holds == "parameter" and call.kind.startswith("all_gather") and set(ranks) <= set(call.ranks)
        for call in seen.calls
    )


def in_turn(seen: Seen, ranks: tuple[int, ...]) -> bool:
    """Return whether one of these ranks sends messages to another, as stages of a pipeline and servers do."""
    return any(sender in ranks and receiver in ranks for sender, receiver in seen.messages)


def together(seen: Seen) -> set[tuple[int, ...]]:
    """Return the groups over which activations travel in collectives, as in tensor and sequence parallelism."""
    if "together" not in seen.known:
        passes = {each.source for step in seen.steps for some in step.backwards.values() for each in some}
        seen.known["together"] = {
            call.ranks for call in seen.calls if len(call.ranks) > 1 and _of_activations(seen, call, passes)
        }
    found: set[tuple[int, ...]] = seen.known["together"]
    return found


def _of_activations(seen: Seen, call: Call, passes: set[str]) -> bool:
    if call.kind.startswith("all_to_all"):
        return call.numel >= _FEWEST
    if call.kind not in _OF_ACTIVATIONS or call.holds or call.numel < _FEWEST:
        return False
    if call.in_backward:
        return call.source not in passes  # a backward of the program's own; DDP's reducer is called by no line of it
    if call.in_forward and call.in_graph:
        return True
    return call.before_backward and 1 <= call.step < seen.num_steps.get(call.rank, 0)


def averages_parameters(seen: Seen, ranks: tuple[int, ...]) -> bool:
    """Return whether these ranks average parameters in place of gradients, now and then."""
    members = set(ranks)
    if any(call.holds == "parameter" and call.op and call.step and members <= set(call.ranks) for call in seen.calls):
        return True
    apart: set[str] = set()
    for step in [*sorted(seen.steps, key=lambda one: one.number), *seen.ends]:  # they part, and are one again
        names = {name for name in step.parameters if name not in step.sharded}
        if (
            apart
            and apart <= names
            and all(any(members <= set(same) for same in step.parameters[name]) for name in names)
        ):
            return True
        apart |= {name for name in names if splits(step.parameters[name], ranks)}
    return False


def pairs(seen: Seen) -> Iterator[tuple[Step, Step]]:
    """Yield each step with the one that comes after it; the end of the run comes after the last."""
    by_optimizer: dict[int, list[Step]] = defaultdict(list)
    for step in seen.steps:
        by_optimizer[step.optimizer].append(step)
    for steps in by_optimizer.values():
        steps.sort(key=lambda step: step.number)
        yield from zip(steps, [*steps[1:], *seen.ends[:1]], strict=False)


def splits(groups: Groups, ranks: tuple[int, ...]) -> bool:
    """Return whether some of these ranks hold other bits than others."""
    return sum(bool(set(group) & set(ranks)) for group in groups) > 1
