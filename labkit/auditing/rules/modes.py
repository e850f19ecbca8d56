"""Whether replicas train in one mode: dropout and normalisation at work on all of them or on none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.modes import Mode
from labkit.auditing.roles import data_parallel
from labkit.auditing.seen import Seen

DIFFER = rule(
    "modes-differ",
    "replicas train in one mode",
    seen="which modules of the model are in training mode at each backward pass, on each rank",
    why="One rank trains without dropout or with fixed statistics, and its gradients are averaged with the others'.",
    todo="Call model.train() on every rank after evaluating.",
    lesson="05",
    sources="shubhamagarwal92/mmd#14",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield the first backward pass in which a replica is in another mode than the others."""
    by_step: dict[int, dict[int, list[Mode]]] = defaultdict(lambda: defaultdict(list))
    for one in seen.modes:
        by_step[one.step][one.rank].append(one)
    groups = data_parallel(seen)
    for step, by_rank in sorted(by_step.items()):
        for ranks in groups:
            for passes in zip(*(by_rank[rank] for rank in ranks if rank in by_rank), strict=False):
                if len(passes) == len(ranks) and len({len(one.training) for one in passes}) == 1:
                    low = min(passes, key=lambda one: sum(one.training))
                    high = max(passes, key=lambda one: sum(one.training))
                    if low.training != high.training:
                        yield _told(low, high, step)
                        return


def _told(low: Mode, high: Mode, step: int) -> Finding:
    off = sum(one and not other for one, other in zip(high.training, low.training, strict=True))
    text = (
        f"In step {step} {off} of {len(low.training)} modules are in training mode on rank {high.rank} and not on "
        f"rank {low.rank}, and the two average their gradients."
    )
    todo = "Call train() after eval(), on all ranks."
    evidence = {"training": {str(one.rank): sum(one.training) for one in (low, high)}, "modules": len(low.training)}
    return Finding(DIFFER, "wrong", text, todo, low.rank, step, low.source or low.called, "", evidence)
