"""Whether ranks that split a layer hold different pieces of it."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.roles import first_steps, together
from labkit.auditing.seen import Seen, Step
from labkit.auditing.telling import listed

SHARDS_EQUAL = rule(
    "shards-equal",
    "ranks that split a layer hold different pieces of it",
    seen="the parameters and gradients of ranks that exchange activations, bit for bit",
    why="All ranks compute the same piece: the layer is as wide as one shard, and its sum so many times too large.",
    todo="Seed each rank of the group differently before it draws its shard, or cut a whole layer drawn alike.",
    lesson="12",
    sources="modelscope/ms-swift#7944, Modalities/modalities#426",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield ranks that work on one batch together and hold the same drawn numbers in place of pieces."""
    for step in first_steps(seen):
        for ranks in sorted(together(seen)):
            finding = _equal(seen, step, ranks)
            if finding is not None:
                yield finding
                return


def _equal(seen: Seen, step: Step, ranks: tuple[int, ...]) -> Finding | None:
    drawn = [name for name in step.held if name in step.parameters and name not in step.constant]
    equal = [name for name in drawn if any(set(ranks) <= set(group) for group in step.parameters[name])]
    if not drawn or len(equal) < len(drawn) or step.sharded:
        return None
    given = {one.rank: one.digest for one in reversed(seen.inputs) if one.step == step.step and one.rank in ranks}
    one_batch = len(given) == len(ranks) and len(set(given.values())) == 1
    if not one_batch and not all(name in step.alike for name in drawn if name not in step.without):
        return None
    source = seen.wrapped.get(ranks[0]) or step.made.get(equal[0]) or step.sources[ranks[0]]
    text = (
        f"Ranks {listed(ranks)} exchange activations and hold the same {len(equal)} parameters, of {equal[0]} on, "
        "and compute on the same batch: each computes what the others do."
    )
    todo = "Draw each rank's shard from a seed of its own; wrap it with the process group of its replicas alone."
    return Finding(SHARDS_EQUAL, "wrong", text, todo, ranks[1], step.step, source, equal[0], {"parameters": equal})
