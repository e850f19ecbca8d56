"""Whether a step uses the gradients of its own backward passes, all of them and no others."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.origins import receiver
from labkit.auditing.seen import Seen, Step

LEFT_OVER = rule(
    "gradients-left-over",
    "a step uses the gradients of its own backward passes",
    seen="the bits of each gradient as a backward pass adds to it, against those that the step before used",
    why="Each step goes along the sum of all gradients so far: the rate grows with every step.",
    todo="Call optimizer.zero_grad() once for each step.",
    lesson="05",
    sources="meta-pytorch/torchforge#71, pytorch/pytorch#47175",
)
THROWN_AWAY = rule(
    "gradients-thrown-away",
    "what the microbatches of a step make is in the step",
    seen="gradients that were zeroed before a step used them, in every step, and what each loss was divided by",
    why="The step is that of the last microbatch, and as many times too short.",
    todo="Call optimizer.zero_grad() once for each step, outside the loop over microbatches.",
    lesson="05",
    sources="bytetriper/RAE#67, huggingface/accelerate#616",
)
DIVIDED = rule(
    "divided-between-passes",
    "accumulated gradients are divided once, and not after every pass",
    seen="each gradient as a further backward pass adds to it, against the sum of what the passes before made",
    why="What came first is divided again each time: the step is a moving average, far too short.",
    todo="Divide the losses in place of the gradients: scale_grads=False for a pipeline's schedule.",
    lesson="08",
    sources="pytorch/torchtitan#1732",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield gradients that are in a step and should not be, and those that should be and are not."""
    for found in (next(_left_over(seen), None), _thrown(seen), _divided(seen)):
        if found is not None:
            yield found


def _left_over(seen: Seen) -> Iterator[Finding]:
    for step in sorted(seen.steps, key=lambda one: (one.step, one.optimizer)):
        for rank, names in sorted(step.left_over.items()):
            name = next(one for one in step.held if one in names)
            text = (
                f"As step {step.step} of rank {rank} begins, the gradient of {name} is still the one that step "
                f"{step.step - 1} used, and backward() adds to it: {len(names)} of {len(step.held)} gradients."
            )
            todo = "Call optimizer.zero_grad() before backward()."
            evidence = {"parameters": sorted(names)}
            yield Finding(LEFT_OVER, "wrong", text, todo, rank, step.step, step.sources[rank], name, evidence)


def _divided(seen: Seen) -> Finding | None:
    for one in seen.divided:
        if len(set(one.by.values())) > 1:
            continue
        (by,) = set(one.by.values())
        text = (
            f"Rank {one.rank} divides what it has accumulated by {by} in step {one.step}, and backward() adds to it "
            "again: the first passes count less than the last."
        )
        todo = "Divide the loss by all microbatches of the step; scale_grads=False leaves gradients as they are."
        source = receiver(one.source, "step")
        return Finding(DIVIDED, "wrong", text, todo, one.rank, one.step, source, "", {"divided_by": by})
    return None


def _thrown(seen: Seen) -> Finding | None:
    by_optimizer: dict[int, list[Step]] = {}
    for step in seen.steps:
        by_optimizer.setdefault(step.optimizer, []).append(step)
    for steps in by_optimizer.values():
        for rank in sorted(steps[0].thrown):
            lost = {_lost(step, rank) for step in steps}
            count = lost.pop()
            if len(steps) < 2 or lost or not count:
                continue
            passes = len(steps[0].backwards[rank])
            text = (
                f"In each of {len(steps)} steps rank {rank} makes the gradients of {passes} microbatches, each divided "
                f"by {passes}, and zeroes {count} of them before the step."
            )
            todo = "Move zero_grad() out of the loop over microbatches."
            source = steps[0].zeroed[rank] or steps[0].sources[rank]
            evidence = {"microbatches": passes, "thrown_away": count}
            return Finding(THROWN_AWAY, "wrong", text, todo, rank, steps[0].step, source, "", evidence)
    return None


def _lost(step: Step, rank: int) -> int:
    """Return how many microbatches' gradients a step lost; 0 where it meant to, or where they were none."""
    passes, thrown = step.backwards.get(rank, ()), step.thrown.get(rank, {})
    counts = {thrown.get(name, 0) for name in step.held if name in step.passes}
    if len(counts) != 1 or len({each.source for each in passes}) != 1:
        return 0
    factors = {each.root.factor for each in passes if each.root is not None and each.root.is_mean and not each.given}
    divided = len(factors) == 1 and abs(factors.pop() / step.scale.get(rank, 1.0) * len(passes) - 1) < 1e-3
    count = counts.pop()
    return count if divided and 0 < count < len(passes) else 0
