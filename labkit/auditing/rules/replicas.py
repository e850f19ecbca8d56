"""Whether ranks that hold one model begin with the same bits and keep them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Draw
from labkit.auditing.finding import Finding
from labkit.auditing.modes import Mean
from labkit.auditing.origins import origin
from labkit.auditing.roles import averages_parameters, entangled, first_steps, pairs, replicas, splits
from labkit.auditing.seen import Seen, Step
from labkit.auditing.telling import listed, parted

BEGIN_UNEQUAL = rule(
    "parameters-begin-unequal",
    "ranks that average a gradient begin with the same parameter",
    seen="the bits of each parameter on each rank as the first step begins, where its gradient is averaged",
    why="The average belongs to none of the models; the ranks stay as far apart as they began.",
    todo="Broadcast parameters and buffers from rank 0, or seed every rank alike before the model is made.",
    lesson="01",
    sources="pytorch/torchtitan#166, allenai/OLMo-core#319",
)
DRIFT = rule(
    "replicas-drift",
    "replicas hold the same bits after every step",
    seen="the bits of each parameter on each rank before every step and at the end",
    why="From here on ranks compute gradients of different models, and average them.",
    todo="Find what the ranks do differently between backward() and the end of optimizer.step().",
    lesson="04",
    sources="NVIDIA/Megatron-LM#1736, pytorch/torchtitan#1750",
)
MEANS = rule(
    "parameters-wrong-mean",
    "where ranks average their parameters, the sum is divided by as many ranks as were added",
    seen="how long parameters are before the ranks reduce them in place, and as the next step begins",
    why="The model grows or shrinks by that factor each time the ranks meet.",
    todo="Divide by the size of the group that all_reduce was called with, or use ReduceOp.AVG.",
    lesson="01",
)
_NEAR = 0.1  # of a factor: local models are not quite one


def look(seen: Seen) -> Iterator[Finding]:
    """Yield parameters that begin unequal, and replicas that part."""
    for step in first_steps(seen):
        finding = _unequal(step)
        if finding is not None:
            yield finding
            return
    yield from _means(seen)
    for before, after in sorted(pairs(seen), key=lambda pair: (pair[0].number, pair[0].optimizer)):
        finding = _drift(seen, before, after)
        if finding is not None:
            yield finding
            return


def _unequal(step: Step) -> Finding | None:
    found = []
    for name, apart in step.differences.items():
        groups = step.parameters[name]
        if all(len(group) > 1 for group in groups) and any(len(each) == 1 for each in step.parameters.values()):
            continue  # as experts are held: it is a matter of the group that averages
        for fit in step.fits.get(name, {}).values():
            if fit is not None and len(fit.ranks) > 1 and splits(groups, fit.ranks):
                found.append((name, apart, fit))
                break
    if not found:
        return None
    name, apart, fit = found[0]
    rank = apart.ranks[1]
    text = (
        f"Ranks {listed(fit.ranks)} average the gradient of {name} and begin with different values: "
        f"{parted(name, apart)}; so do {len(found)} of {len(step.parameters)} parameters."
    )
    todo = "Broadcast the model from one rank before the first step, or make it under one seed on all ranks."
    evidence = {"parameters": [one for one, _, _ in found], "index": list(apart.index), "values": list(apart.values)}
    source = step.made.get(name) or step.sources.get(rank, "")
    return Finding(BEGIN_UNEQUAL, "wrong", text, todo, rank, step.step, source, name, evidence)


def _means(seen: Seen) -> Iterator[Finding]:
    by_place: dict[tuple[int, tuple[int, ...]], list[Mean]] = defaultdict(list)
    for one in seen.means:
        by_place[one.step, one.ranks].append(one)
    for (step, ranks), some in sorted(by_place.items()):
        low, high = (take(some, key=lambda one: one.times) for take in (min, max))
        divisors = (size for size in range(1, len(ranks) ** 2 + 1) if size != len(ranks))
        size = next((size for size in divisors if abs(high.times * size / len(ranks) - 1) < _NEAR), None)
        if len(some) < len(ranks) or high.times > low.times * (1 + _NEAR) or size is None or 1 / 2 < high.times < 3 / 2:
            continue
        text = (
            f"After step {step - 1} ranks {listed(ranks)} add up their parameters, which are then {high.times:.3g} "
            f"times as long as before: the sum of {len(ranks)} was divided by {size}."
        )
        todo = f"Divide by {len(ranks)}."
        evidence = {"times": high.times, "ranks": list(ranks)}
        yield Finding(MEANS, "wrong", text, todo, high.rank, step - 1, high.source, "", evidence)
        return


def _drew_apart(seen: Seen, step: Step, ranks: tuple[int, ...]) -> Draw | None:
    """Return random numbers that these ranks drew differently between the last backward pass and the step, or None."""
    by_place: dict[tuple[str, int], list[Draw]] = defaultdict(list)
    for one in seen.draws:
        last = len(step.backwards.get(one.rank, ()))
        if one.step == step.step and one.passes == last > 0 and one.own and one.rank in ranks:
            by_place[one.source, one.number].append(one)
    return next((some[-1] for some in by_place.values() if len({one.result for one in some}) > 1), None)


def _drift(seen: Seen, before: Step, after: Step) -> Finding | None:
    whole = [ranks for ranks in replicas(before) if not entangled(seen, ranks)]
    for name, apart in after.differences.items():
        shared = [fit.ranks for fit in before.fits.get(name, {}).values() if fit is not None and len(fit.ranks) > 1]
        for ranks in {*whole, *shared}:
            if splits(before.parameters.get(name, ()), ranks) or not splits(after.parameters[name], ranks):
                continue
            if averages_parameters(seen, ranks) or name not in before.parameters:
                continue
            rank, also = apart.ranks[1], sum(splits(after.parameters[one], ranks) for one in after.differences)
            text = (
                f"Ranks {listed(ranks)} held the same model before step {before.step} and do not after it: "
                f"{parted(name, apart)}; {also} of {len(after.parameters)} parameters part in this step."
            )
            evidence = {"index": list(apart.index), "values": list(apart.values), "largest": apart.largest}
            todo = "Look at what the ranks do differently up to the end of this optimizer step."
            source = before.sources.get(rank, "")
            drew = _drew_apart(seen, before, ranks)
            if drew is not None:
                text += f" They drew different numbers with {drew.name}() between backward() and the step."
                todo = "Draw with one seed on all ranks what they must have alike, such as the entries that travel."
                source = origin(drew.source, drew.name, "generator")
            return Finding(DRIFT, "wrong", text, todo, rank, before.step, source, name, evidence)
    return None
