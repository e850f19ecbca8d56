"""Whether replicas evaluate with the same buffers, and the same copy of the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.finding import Finding
from labkit.auditing.modes import Used
from labkit.auditing.roles import first_steps, replicas
from labkit.auditing.seen import Seen

DIFFER = rule(
    "buffers-differ",
    "replicas evaluate with the same buffers",
    seen="the bits of each model's buffers when it is called to evaluate, those left out that DDP broadcasts",
    why="Every rank evaluates another model, and a checkpoint holds one of them.",
    todo="Keep broadcast_buffers=True, use SyncBatchNorm, or average the buffers before evaluating.",
    lesson="05",
    sources="pytorch/pytorch#13711",
)
COPIES = rule(
    "copies-differ",
    "replicas evaluate with the same copy of the model",
    seen="the bits of a model that has the trained parameters' shapes and none of them, as it is called to evaluate",
    why="An average of weights that began otherwise on each rank is another model on each, and one of them is saved.",
    todo="Copy the model once all ranks begin alike: after DistributedDataParallel is made, or after a broadcast.",
    lesson="05",
    sources="m2lines/Samudra#326",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield the first evaluation in which replicas' buffers differ, and that in which their copies do."""
    for first, other, apart in _apart(seen, lambda one: one.copied):
        text = (
            f"Ranks {first.rank} and {other.rank} train one model and evaluate different copies of it: "
            f"{apart[0]}, {len(apart)} of {len(other.copied)} parameters in all."
        )
        todo, evidence = "Copy it after DistributedDataParallel has made all ranks begin alike.", {"parameters": apart}
        source = other.made or other.source
        yield Finding(COPIES, "wrong", text, todo, other.rank, other.step, source, apart[0], evidence)
        break
    for first, other, apart in _apart(seen, lambda one: one.buffers):
        if other.step:
            yield _told(seen, first, other, apart)
            break


def _apart(seen: Seen, bits: Callable[[Used], dict[str, bytes]]) -> Iterator[tuple[Used, Used, list[str]]]:
    """Yield two replicas' uses of a model in one evaluation, and of which tensors in both the bits differ."""
    groups = [ranks for step in first_steps(seen) for ranks in replicas(step)]
    by_place: dict[tuple[int, str], dict[int, Used]] = defaultdict(dict)
    for one in seen.used:
        if bits(one):
            by_place[one.step, one.source].setdefault(one.rank, one)
    for some in by_place.values():
        for ranks in groups:
            here = [some[rank] for rank in ranks if rank in some]
            for one in here[1:]:
                first = bits(here[0])
                if apart := [name for name, said in bits(one).items() if first.get(name, said) != said]:
                    yield here[0], one, apart


def _told(seen: Seen, first: Used, other: Used, apart: list[str]) -> Finding:
    text = (
        f"Ranks {first.rank} and {other.rank} hold one model and evaluate it after step {other.step - 1} with "
        f"different buffers: {apart[0]}, {len(apart)} of {len(other.buffers)} in all."
    )
    todo = "Broadcast or average them before the model evaluates."
    source = seen.wrapped.get(other.rank) or other.source
    return Finding(DIFFER, "wrong", text, todo, other.rank, other.step - 1, source, apart[0], {"buffers": apart})
