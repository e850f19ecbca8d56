"""Whether ranks that update together decide together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Decision
from labkit.auditing.finding import Finding
from labkit.auditing.origins import decided
from labkit.auditing.seen import Seen

APART = rule(
    "decided-apart",
    "ranks that communicate skip a step together or not at all",
    seen="what each rank's own code reads of a test for infinities and NaNs, line by line",
    why="One rank skips, or halves its loss scale, and the others go on: from here on they hold different models.",
    todo="all_reduce the flag with ReduceOp.MAX before anybody reads it.",
    lesson="11",
    sources="facebookresearch/fairscale#180, NVIDIA-NeMo/Automodel#2468",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield the first decision over infinities in which ranks part that communicate."""
    by_place: dict[tuple[str, int], dict[int, Decision]] = defaultdict(dict)
    for one in seen.decisions:
        if one.of_infinities:
            by_place[one.source, one.number][one.rank] = one
    groups = {call.ranks for call in seen.calls if call.op or call.kind.startswith(("all_gather", "reduce_scatter"))}
    for (source, _), some in by_place.items():
        for ranks in groups:
            here = {rank: one for rank, one in some.items() if rank in ranks}
            if len({bool(one.value) for one in here.values()}) < 2:
                continue
            yes = min(rank for rank, one in here.items() if one.value)
            no = min(rank for rank, one in here.items() if not one.value)
            rank = yes if sum(bool(one.value) for one in here.values()) * 2 <= len(here) else no
            step = here[rank].step
            text = (
                f"Rank {yes} finds infinities or NaNs in step {step} and rank {no} finds none, and each goes its own "
                "way: they communicate, and nobody told the other."
            )
            todo = "dist.all_reduce(flag, op=dist.ReduceOp.MAX) before it is read."
            evidence = {"read": {str(number): one.value for number, one in here.items()}}
            yield Finding(APART, "wrong", text, todo, rank, step, decided(source), "", evidence)
            return
