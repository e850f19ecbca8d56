"""Whether gradients are clipped by the norm of all of them, each counted once, on all ranks alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Clip, Number, SquareSum
from labkit.auditing.finding import Finding
from labkit.auditing.roles import data_parallel, of_one_model
from labkit.auditing.seen import Seen, Step
from labkit.auditing.telling import listed, on_ranks

OWN_NORM = rule(
    "clipped-by-own-norm",
    "all ranks clip by one norm, that of the whole gradient",
    seen="the norms that clip_grad_norm_ and the program find of gradients, and what it multiplies them by",
    why="Each rank scales its part by another number: the step is no multiple of the gradient, and replicas drift.",
    todo="Clip after gradients are averaged; over shards, add up the squares of all ranks' norms first.",
    lesson="12",
    sources="pytorch/torchtitan#596, pytorch/pytorch#72548",
)
COUNTED_TWICE = rule(
    "norm-counts-twice",
    "a norm over ranks counts a parameter once, however many ranks hold it",
    seen="sums of squares that ranks add up, against the gradients they hold",
    why="The norm is too large, and gradients are clipped that need not be.",
    todo="Add up the squares of what is sharded over the ranks, and those of replicated parameters on one.",
    lesson="12",
    sources="NVIDIA-NeMo/RL#3788, ByteDance-Seed/VeOmni#184",
)
SCALED = rule(
    "clipped-while-scaled",
    "gradients are clipped once they are unscaled",
    seen="what a gradient scaler had multiplied gradients with when clip_grad_norm_ found their norm",
    why="The norm is as many times too large as the loss scale: next to nothing of the gradient is left.",
    todo="Call scaler.unscale_(optimizer) before clip_grad_norm_.",
    lesson="11",
    sources="Lightning-AI/pytorch-lightning#9599, pytorch/examples#1196",
)
_LOOSE = 1e-3
_MEANT = 0.01  # of the scale: who clips scaled gradients on purpose scales the bound, too


def look(seen: Seen) -> Iterator[Finding]:
    """Yield a rank that clips by a norm of its own, and a norm that counts a parameter more than once."""
    groups = data_parallel(seen)
    own = next(_own_norm(seen, groups), None) or next(_own_factor(seen, groups), None)
    twice = next((found for one in seen.steps if (found := _twice(seen, one)) is not None), None)
    yield from (one for one in (own, twice, _scaled(seen)) if one is not None)


def _scaled(seen: Seen) -> Finding | None:
    for clip in seen.clips:
        if clip.norm > clip.most and clip.most < _MEANT * clip.scale:
            text = (
                f"Rank {clip.rank} clips gradients to {clip.most:g} that are still multiplied by the loss scale of "
                f"{clip.scale:g}: their norm is {clip.norm:.6g}, and {clip.norm / clip.scale:.6g} unscaled."
            )
            todo = "Call scaler.unscale_(optimizer) first; scaler.step() then unscales nothing twice."
            evidence = {"norm": clip.norm, "scale": clip.scale, "max_norm": clip.most}
            return Finding(SCALED, "wrong", text, todo, clip.rank, clip.step, clip.source, "", evidence)
    return None


def _own_norm(seen: Seen, groups: list[tuple[int, ...]]) -> Iterator[Finding]:
    by_place: dict[tuple[int, str], dict[int, Clip]] = defaultdict(dict)
    for clip in seen.clips:
        if not clip.sharded:
            by_place[clip.step, clip.source].setdefault(clip.rank, clip)
    for (step, _), clips in sorted(by_place.items()):
        low, high = (take(clips.values(), key=lambda clip: clip.norm) for take in (min, max))
        if not (high.norm > low.norm * (1 + _LOOSE) and high.norm > high.most):  # nor do NaNs
            continue
        ranks = tuple(sorted(clips))
        if any(low.rank in group and high.rank in group for group in groups):
            why, todo = "before their gradients are averaged", "Clip after the average: then all norms are one."
        elif of_one_model(seen, ranks):
            why = "each by the norm of its own piece of the model"
            todo = "Add up the squares of all pieces' norms with all_reduce, and clip by the root."
        else:
            continue
        text = (
            f"Ranks {low.rank} and {high.rank} clip to {high.most:g} {why}: their norms are {low.norm:.6g} and "
            f"{high.norm:.6g}, so they scale by {min(1, low.most / low.norm):.4g} and {high.most / high.norm:.4g}."
        )
        evidence = {"norms": {str(rank): clips[rank].norm for rank in ranks}, "max_norm": high.most}
        yield Finding(OWN_NORM, "wrong", text, todo, high.rank, step, high.source, "", evidence)


def _own_factor(seen: Seen, groups: list[tuple[int, ...]]) -> Iterator[Finding]:
    """Yield ranks that scale gradients by hand, each by a number that hangs on its own norm."""
    factors: dict[tuple[int, str], dict[int, Number]] = defaultdict(dict)
    for one in seen.numbers:
        if one.kind == "factor":
            factors[one.step, one.source].setdefault(one.rank, one)
    for (step, _), found in sorted(factors.items()):
        low, high = (take(found.values(), key=lambda one: one.value) for take in (min, max))
        ranks = tuple(sorted(found))
        if not abs(high.value - low.value) > _LOOSE * abs(high.value):  # NaNs part from everything and say nothing
            continue
        together = any(low.rank in group and high.rank in group for group in groups)
        norms = {rank: _norm_before(seen, found[rank]) for rank in ranks}
        if not (together or of_one_model(seen, ranks)) or (_reduced_after(seen, high) and None in norms.values()):
            continue
        first = norms[low.rank]
        if first is None and not together:
            continue  # parts of a model may be scaled each in its own way
        text = (
            f"Ranks {low.rank} and {high.rank} multiply their gradients by {low.value:.4g} and {high.value:.4g}"
            + ("" if first is None else ", each by a norm of its own")
            + f": {on_ranks(ranks)} take one step together."
        )
        todo = "Add up the squares of all ranks' norms with all_reduce, and scale all gradients by one number."
        evidence = {"factors": {str(rank): found[rank].value for rank in ranks}}
        source = low.source if first is None else first.source
        yield Finding(OWN_NORM, "wrong", text, todo, low.rank, step, source, "", evidence)


def _norm_before(seen: Seen, factor: Number) -> Number | None:
    found = [
        one
        for one in seen.numbers
        if (one.kind, one.rank, one.step) == ("norm", factor.rank, factor.step) and one.order < factor.order
    ]
    return found[-1] if found else None


def _reduced_after(seen: Seen, factor: Number) -> bool:
    return any(
        (call.rank, call.step) == (factor.rank, factor.step) and call.op and call.number >= factor.calls
        and call.numel > 1 and not call.before_backward
        for call in seen.calls
    )  # fmt: skip


def _twice(seen: Seen, step: Step) -> Finding | None:
    by_place: dict[str, dict[int, SquareSum]] = defaultdict(dict)
    for one in seen.squares:
        if one.step == step.step:
            by_place[one.source].setdefault(one.rank, one)
    for source, sums in sorted(by_place.items()):
        ranks = tuple(sorted(sums))
        if len(ranks) < 2 or set(ranks) != set(next(iter(sums.values())).ranks):
            continue
        totals = {rank: sum(one.squares.values()) for rank, one in sums.items()}
        if any(abs(one.value - totals[rank]) > _LOOSE * totals[rank] for rank, one in sums.items()):
            continue
        names = [name for name in step.held if _replicated(step, name, ranks, sums)]
        twice = sum(sums[ranks[0]].squares[name] for name in names)
        whole = sum(one.value for one in sums.values())
        if twice <= _LOOSE * whole:
            continue
        right = whole - (len(ranks) - 1) * twice
        text = (
            f"The norm that ranks {listed(ranks)} add up is {whole**0.5:.6g}, and that of all gradients is "
            f"{max(right, 0) ** 0.5:.6g}: {listed(names)} are on every rank and count {len(ranks)} times."
        )
        todo = "Add up sharded parameters' squares over the ranks, and add the replicated ones' afterwards."
        evidence = {"norm": whole**0.5, "right": max(right, 0) ** 0.5, "counted_twice": names}
        return Finding(COUNTED_TWICE, "wrong", text, todo, ranks[0], step.step, source, names[0], evidence)
    return None


def _replicated(step: Step, name: str, ranks: tuple[int, ...], sums: dict[int, SquareSum]) -> bool:
    if not any(set(ranks) <= set(group) for group in step.parameters.get(name, ())):
        return False
    values = [sums[rank].squares.get(name) for rank in ranks]
    return values[0] is not None and all(one is not None and abs(one - values[0]) <= 1e-6 * values[0] for one in values)
