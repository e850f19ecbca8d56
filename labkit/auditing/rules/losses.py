"""Whether losses are averaged as if they were one: over all elements, and scaled alike."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.roles import averaging
from labkit.auditing.rules.collectives import meetings
from labkit.auditing.seen import Seen, Step

UNEQUAL = rule(
    "mean-of-unequal-means",
    "means that are averaged with one weight are over as many elements each",
    seen="how many elements or targets each loss is the mean of, from its graph, on each rank and in each microbatch",
    why="A token counts more on a rank that has few of them: the gradient is not that of the whole batch.",
    todo="Divide the sum of losses by the number of all ranks' targets, times the ranks where DDP averages.",
    lesson="05",
    sources="pytorch/torchtitan#2206, ml-explore/mlx-lm#1413, verl-project/verl#906",
)
SCALES = rule(
    "loss-scale-differs",
    "all ranks scale their losses alike",
    seen="what the gradient scaler of each rank multiplies the loss with",
    why="Gradients of different scales are added up, and a rank skips steps that the others take.",
    todo="Average gradients before they are unscaled, so that every rank sees the same infinities.",
    lesson="11",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield losses that are averaged wrongly."""
    unequal = scales = None
    for ranks, steps in sorted(averaging(seen).items()):
        for step in steps:
            unequal = unequal or _unequal(step, ranks)
            scales = scales or _scales(step, ranks)
    yield from (one for one in (unequal or _measure(seen), scales) if one is not None)


def _unequal(step: Step, ranks: tuple[int, ...]) -> Finding | None:
    counts: list[tuple[float, int, int, str, str]] = []
    weights: list[float] = []
    for rank in ranks:
        passes = step.backwards.get(rank, ())
        if len({each.source for each in passes}) > 1:
            return None  # several losses
        for number, each in enumerate(passes):
            if each.root is None or each.given or not each.root.count or not each.root.weight:
                return None
            counts.append((each.root.count, rank, number, each.root.counted, each.made or each.source))
            weights.append(each.root.weight)
    if not counts or max(weights) > min(weights) * (1 + 1e-5) or min(counts)[0] == max(counts)[0]:
        return None
    low, high = min(counts), max(counts)
    what = "targets that are not ignored" if low[3] == "targets" else "elements"
    where = [
        f"on rank {one[1]}" + (f", microbatch {one[2]}" if any(c[2] for c in counts) else "") for one in (low, high)
    ]
    text = (
        f"In step {step.step} the loss is the mean over {low[0]:g} {what} {where[0]} and over {high[0]:g} {where[1]}, "
        f"and both gradients weigh the same: an element of the first counts {high[0] / low[0]:.3g} times as much."
    )
    todo = "Use the sum of losses, and divide by the count that all ranks and microbatches have together."
    evidence = {"fewest": low[0], "most": high[0], "counted": low[3], "ranks": [low[1], high[1]]}
    return Finding(UNEQUAL, "wrong", text, todo, low[1], step.step, low[4], "", evidence)


def _measure(seen: Seen) -> Finding | None:
    """Return a mean of a measure, such as an accuracy, that weighs ranks with unequal counts alike."""
    for calls in meetings(seen):
        counts = {rank: call.count for rank, call in calls.items() if call.count}
        if len(counts) < len(calls) or max(counts.values()) <= min(counts.values()) * (1 + 1e-6):
            continue
        low, high = (take(counts, key=lambda rank: counts[rank]) for take in (min, max))
        call = calls[low]
        text = (
            f"Ranks {low} and {high} give {call.api or call.kind} a mean over {counts[low]:g} and one over "
            f"{counts[high]:g}: each rank's counts alike, so one of rank {low}'s counts "
            f"{counts[high] / counts[low]:.3g} times."
        )
        todo = "Reduce sums and counts, then divide."
        evidence = {"counts": {str(rank): count for rank, count in counts.items()}}
        return Finding(UNEQUAL, "wrong", text, todo, low, call.step - 1, call.source, "", evidence)
    return None


def _scales(step: Step, ranks: tuple[int, ...]) -> Finding | None:
    scales = {rank: step.scale[rank] for rank in ranks if rank in step.scale}
    if len(set(scales.values())) < 2:
        return None
    low, high = min(scales, key=lambda rank: scales[rank]), max(scales, key=lambda rank: scales[rank])
    text = (
        f"Rank {low} scales its loss by {scales[low]:g} and rank {high} by {scales[high]:g} in step {step.step}, "
        "and their gradients are averaged."
    )
    todo = "Average gradients before scaler.step(), or reduce found_inf over the ranks."
    evidence = {"scales": {str(rank): scale for rank, scale in scales.items()}}
    return Finding(SCALES, "wrong", text, todo, low, step.step, step.sources[low], "", evidence)
