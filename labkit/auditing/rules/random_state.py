"""Whether random numbers are equal where they must be, and differ where they must."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Mask
from labkit.auditing.finding import Finding
from labkit.auditing.roles import data_parallel
from labkit.auditing.seen import Seen

MASKS_EQUAL = rule(
    "dropout-masks-equal",
    "ranks that compute on different values drop different elements",
    seen="a digest of what each dropout is given and of what it leaves, on each rank",
    why="The ranks' noise is one: averaging over them does not average it out.",
    todo="Seed each data-parallel rank differently after the model is made.",
    lesson="05",
    sources="huggingface/transformers#31412",
)
MASKS_DIFFER = rule(
    "dropout-masks-differ",
    "ranks that compute on the same values drop the same elements",
    seen="the same",
    why="What must be one activation on all ranks of a tensor-parallel group is another on each.",
    todo="Fork the random state of the group: one seed where activations are replicated.",
    lesson="12",
    sources="awslabs/slapo#21, PaddlePaddle/PaddleFleetX#1005",
)
_FEWEST = 16  # elements: of fewer, masks are equal by chance


def look(seen: Seen) -> Iterator[Finding]:
    """Yield dropouts that are equal where they must differ, or differ where they must be equal."""
    data = data_parallel(seen)
    by_place: dict[tuple[int, int], dict[int, Mask]] = defaultdict(dict)
    for mask in seen.masks:
        if mask.numel >= _FEWEST:
            by_place[mask.step, mask.number][mask.rank] = mask
    equal = differ = False
    for (step, _), masks in sorted(by_place.items()):
        ranks = sorted(masks)
        for place, rank in enumerate(ranks):
            for other in ranks[:place]:
                one, two = masks[rank], masks[other]
                together = any(rank in group and other in group for group in data)
                if one.source != two.source or one.numel != two.numel:
                    continue
                if one.given != two.given and together and not equal and _same_mask(one, two):
                    equal = True
                    yield _told(MASKS_EQUAL, one, two, step)
                if one.given == two.given and one.left != two.left and not together and not differ:
                    differ = True
                    yield _told(MASKS_DIFFER, one, two, step)


def _same_mask(one: Mask, two: Mask) -> bool:
    """Return whether two dropouts left the same elements of those that were no zeros in either."""
    both = [kept for kept in zip(one.before, two.before, one.after, two.after, strict=False) if kept[0] and kept[1]]
    return len(both) >= _FEWEST and all(first == second for _, _, first, second in both)


def _told(name: str, one: Mask, two: Mask, step: int) -> Finding:
    if name == MASKS_EQUAL:
        text = (
            f"Ranks {two.rank} and {one.rank} drop the same of {one.numel} elements in step {step}, "
            "and compute on different values."
        )
        todo = "Call torch.manual_seed(seed + rank) once the model is made."
    else:
        text = (
            f"Ranks {two.rank} and {one.rank} have the same {one.numel} values in step {step}, and drop different "
            "ones of them: from here on their activations are no longer one."
        )
        todo = "Give the ranks of this group one random state where they compute the same."
    evidence = {"ranks": [two.rank, one.rank], "elements": one.numel}
    return Finding(name, "wrong", text, todo, one.rank, step, one.source, "", evidence)
