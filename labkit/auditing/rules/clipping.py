"""Whether gradients are clipped by the norm of all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.roles import data_parallel, entangled
from labkit.auditing.seen import Clip, Seen

OWN_NORM = rule(
    "clipped-by-own-norm",
    "all ranks clip by one norm, that of the whole gradient",
    seen="the norm that clip_grad_norm_ finds on each rank",
    why="Each rank scales its part by another number: the step is no multiple of the gradient, and replicas drift.",
    todo="Clip after gradients are averaged; over shards, add up the squares of all ranks' norms first.",
    lesson="12",
    sources="pytorch/torchtitan#596, pytorch/pytorch#72548",
)
_LOOSE = 1e-3


def look(seen: Seen) -> Iterator[Finding]:
    """Yield a rank that clips by a norm of its own."""
    by_place: dict[tuple[int, str], dict[int, Clip]] = defaultdict(dict)
    for clip in seen.clips:
        if not clip.sharded:
            by_place[clip.step, clip.source].setdefault(clip.rank, clip)
    data = data_parallel(seen)
    for (step, _), clips in sorted(by_place.items()):
        low, high = (take(clips.values(), key=lambda clip: clip.norm) for take in (min, max))
        if high.norm <= low.norm * (1 + _LOOSE) or high.norm <= high.most:
            continue
        ranks = tuple(sorted(clips))
        if any(low.rank in group and high.rank in group for group in data):
            why, todo = "before their gradients are averaged", "Clip after the average: then all norms are one."
        elif entangled(seen, ranks):
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
        return
