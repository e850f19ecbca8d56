"""Whether ranks meet, wait and hold memory only as much as they must."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Call
from labkit.auditing.finding import Change, Finding
from labkit.auditing.origins import kept_at, origin
from labkit.auditing.roles import first_steps, replicas
from labkit.auditing.seen import Seen
from labkit.auditing.telling import listed
from labkit.timeline import metrics
from labkit.timeline.memory import has_memory, memory_peaks
from labkit.units import format_bytes, format_percent, format_time

BARRIERS = rule(
    "barrier-each-step",
    "ranks meet where they exchange something, and nowhere else",
    seen="barriers on one line in every step",
    why="Collectives wait for all ranks already; a barrier adds its latency, and the host may not run ahead.",
    todo="Take it away; keep barriers for files that one rank writes and others read.",
    lesson="03",
)
OBJECTS = rule(
    "objects-each-step",
    "tensors travel as tensors",
    seen="broadcast_object_list and its like on one line again and again",
    why="An object is pickled on the host, and its length is sent before it: two calls, and the device waits.",
    todo="Send the tensor itself; send shapes once, before training.",
    lesson="03",
    sources="vllm-project/vllm#4440",
)
BUCKET_ORDER = rule(
    "buckets-against-backward",
    "the first gradients to be ready are the first to be sent",
    seen="how many gradients are ready when a hook first sends one",
    why="The first bucket is full when backward ends, and no message is hidden beside it.",
    todo="Fill buckets in the reverse order of model.parameters().",
    lesson="04",
)
LATE = rule(
    "one-rank-is-late",
    "replicas come to their collectives at the same time",
    seen="how long each rank waits, and on which line a rank that never waits does more than the others",
    why="All ranks are as slow as the last one.",
    todo="Spread the work over the ranks, or let it run beside training.",
    lesson="00",
    sources="pytorch/examples#461",
)
MEMORY = rule(
    "one-rank-holds-more",
    "ranks with one role hold as much memory as each other",
    seen="the peak of each rank's memory, and lines that keep what was gathered",
    why="The model must fit the rank that holds most; the others' memory is left empty.",
    todo="Keep it on the host, or spread it over the ranks.",
    lesson="13",
    sources="intelligent-machine-learning/dlrover#840",
)
SLOW_AXIS = rule(
    "busy-axis-between-nodes",
    "the mesh's axis that communicates most lies within a node",
    seen="bytes that each group sends in a step, and which groups span nodes",
    why="Most bytes take the slowest link.",
    todo="Make tensor parallelism the last axis of the mesh: neighbours in rank are neighbours in the node.",
    lesson="14",
)
ONE_GROUP = rule(
    "sharded-as-one",
    "fully_shard is called on layers first, then on the model",
    seen="how many modules' parameters each of fully_shard's groups gathers in one call",
    why="All parameters are gathered before the first layer runs, and held: nothing overlaps.",
    todo="Call fully_shard on each layer, then on the model.",
    lesson="13",
)
_WAITED, _MORE, _OFTEN, _LAYERS = 0.1, 1.25, 4, 4


def look(seen: Seen) -> Iterator[Finding]:
    """Yield what makes ranks meet, wait or hold memory for nothing."""
    for found in (
        _barriers(seen), _objects(seen), _bucket_order(seen), _late(seen), _memory(seen), _slow_axis(seen),
        _one_group(seen),
    ):  # fmt: skip
        if found is not None:
            yield found


def _by_line(seen: Seen, keep: list[Call]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = defaultdict(list)
    for call in keep:
        found[call.source].append(call)
    return found


def _barriers(seen: Seen) -> Finding | None:
    steps = seen.num_steps.get(0, 0)
    mine = [call for call in seen.calls if call.rank == 0 and call.kind == "barrier" and len(call.ranks) > 1]
    for source, some in _by_line(seen, mine).items():
        if steps < 3 or len({call.step for call in some}) < steps - 1:
            continue
        took = sum(call.ns for call in some) // len(some)
        count = len({call.step for call in some})
        text = (
            f"Rank 0 stands in {len(some)} barriers in {count} steps, for {format_time(took)} of its own time in each."
        )
        evidence = {"barriers": len(some), "takes_ns": took}
        todo, change = "Take it out of the loop.", Change("free", "without these barriers", frozenset({source}))
        return Finding(BARRIERS, "slow", text, todo, 0, some[0].step, source, "", evidence, change)
    return None


def _objects(seen: Seen) -> Finding | None:
    mine = [call for call in seen.calls if call.rank == 0 and "_object" in call.api and len(call.ranks) > 1]
    for source, some in _by_line(seen, mine).items():
        if len(some) < 2 * _OFTEN or len({(call.step, call.forwards) for call in some}) < _OFTEN:
            continue
        took, num_bytes = sum(call.ns for call in some), sum(call.bytes for call in some)
        text = (
            f"Rank 0 calls {some[0].api} {len(some) // 2} times on one line: {format_bytes(num_bytes)} of pickled "
            f"objects in {len(some)} collectives, {format_time(took)}."
        )
        todo = "Broadcast the tensor; what it looks like can be sent once."
        evidence = {"collectives": len(some), "bytes": num_bytes, "takes_ns": took}
        change = Change("tensors", "with the tensors themselves in these calls", frozenset({source}))
        return Finding(OBJECTS, "slow", text, todo, 0, some[0].step, source, "", evidence, change)
    return None


def _bucket_order(seen: Seen) -> Finding | None:
    by_pass: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for call in seen.calls:
        if call.rank == 0 and call.hooked and call.op and not call.row.blocking:
            by_pass[call.step, call.passes].append(call)
    for (step, _), some in by_pass.items():
        if step and len(some) >= _OFTEN and some[0].ready >= len(some):
            took = sum(call.ns for call in some)
            text = (
                f"Rank 0's hooks send the first of {len(some)} gradients when all {some[0].ready} are ready: backward "
                f"is over, and {format_time(took)} of messages lie behind it."
            )
            todo = f"Send them in the order in which backward makes them: up to {format_time(took)} less a step."
            source = origin(some[0].source, some[0].api)
            evidence = {"messages": len(some), "ready_before_the_first": some[0].ready, "takes_ns": took}
            return Finding(BUCKET_ORDER, "slow", text, todo, 0, step, source, "", evidence)
    return None


def _late(seen: Seen) -> Finding | None:
    if seen.timeline is None or not len(seen.timeline):
        return None
    waits, whole = metrics.wait_ns(seen.timeline), max(1, seen.timeline.makespan_ns)
    for ranks in _roles(seen):
        late = min(ranks, key=lambda rank: int(waits[rank]))
        others = sorted(int(waits[rank]) for rank in ranks if rank != late)
        least = others[0]
        if least < _WAITED * whole or int(waits[late]) > least // 4:
            continue
        source, most = _extra_line(seen, late, ranks)
        if not source:
            continue
        text = (
            f"Ranks {listed([rank for rank in ranks if rank != late])} wait {format_time(least)} or more for rank "
            f"{late}, {format_percent(least / whole)} of the run: it computes {most:.3g} elements on a line where "
            "another rank computes none, or half as many."
        )
        todo = f"Spread it over the ranks: up to {format_time(least)} less."
        evidence = {"waits_ns": {str(rank): int(waits[rank]) for rank in ranks}, "saves_at_most_ns": least}
        words = f"with this line's work spread over {len(ranks)} ranks"
        change = Change("spread", words, frozenset({source}), late, len(ranks))
        return Finding(LATE, "slow", text, todo, late, -1, source, "", evidence, change)
    return None


def _roles(seen: Seen) -> list[tuple[int, ...]]:
    """Return groups of ranks that do the same: replicas, and holders of shards of the same parameters."""
    found = {ranks for step in first_steps(seen) for ranks in replicas(step)}
    for step in first_steps(seen):
        by_names: dict[frozenset[str], list[int]] = defaultdict(list)
        for rank, names in step.held_by.items():
            by_names[names].append(rank)
        found |= {tuple(sorted(ranks)) for ranks in by_names.values() if len(ranks) > 1}
    return sorted(found)


def _extra_line(seen: Seen, rank: int, ranks: tuple[int, ...]) -> tuple[str, float]:
    """Return the line on which a rank computes most that the others do not, and how many elements."""
    extra = {
        source: own
        for source, own in seen.work.get(rank, {}).items()
        if all(seen.work.get(other, {}).get(source, 0) <= own / 2 for other in ranks if other != rank)
    }
    source = max(extra, key=lambda line: extra[line], default="")
    return source, extra.get(source, 0.0)


def _memory(seen: Seen) -> Finding | None:
    if seen.timeline is None or not has_memory(seen.timeline):
        return None
    peaks = {peak.rank: peak for peak in memory_peaks(seen.timeline)}
    for ranks in _roles(seen):
        rank = max(ranks, key=lambda one: peaks[one].bytes)
        next_most = max(peaks[one].bytes for one in ranks if one != rank)
        if peaks[rank].bytes < _MORE * next_most or not next_most:
            continue
        gathered = _by_line(seen, [c for c in seen.calls if c.rank == rank and c.kind.startswith("all_gather")])
        kept = [(sum(call.bytes for call in some), kept_at(line)) for line, some in gathered.items()]
        source = max((one for one in kept if one[1]), default=(0, ""))[1] or _extra_line(seen, rank, ranks)[0]
        if not source:
            continue
        more = peaks[rank].bytes - next_most
        text = (
            f"Rank {rank} holds up to {format_bytes(peaks[rank].bytes)} and no other more than "
            f"{format_bytes(next_most)}: {format_bytes(more)} are on this rank alone."
        )
        todo = f"Move it to the host, or spread it: {format_bytes(more)} less on rank {rank}."
        evidence = {"peak_bytes": {str(one): peaks[one].bytes for one in ranks}}
        return Finding(MEMORY, "slow", text, todo, rank, -1, source, "", evidence)
    return None


def _slow_axis(seen: Seen) -> Finding | None:
    sent: dict[tuple[int, ...], list[Call]] = defaultdict(list)
    for call in seen.calls:
        if call.rank == 0 and len(call.ranks) > 1 and call.ranks in seen.meshes and call.step:
            sent[call.ranks].append(call)
    across = [ranks for ranks in sent if len({seen.nodes.get(rank, 0) for rank in ranks}) > 1]
    within = [ranks for ranks in sent if ranks not in across]
    for ranks in across:
        far = sum(call.bytes for call in sent[ranks])
        for other in within:
            near = sum(call.bytes for call in sent[other])
            if far < 2 * near or len(ranks) > len(other):
                continue
            took = sum(call.ns for call in sent[ranks])
            text = (
                f"Ranks {listed(ranks)} are on different nodes and exchange {format_bytes(far)}; ranks "
                f"{listed(other)} share a node and exchange {format_bytes(near)}: the busy axis takes the slow link."
            )
            todo = f"Exchange the two axes of the mesh: up to {format_time(took)} less."
            evidence = {"bytes_between_nodes": far, "bytes_within": near, "takes_ns": took}
            change = _exchanged(seen, ranks)
            return Finding(SLOW_AXIS, "slow", text, todo, 0, -1, seen.meshes[ranks], "", evidence, change)
    return None


def _exchanged(seen: Seen, ranks: tuple[int, ...]) -> Change | None:
    """Return the change that puts each group of the busy axis on neighbouring accelerators."""
    groups = sorted(one for one in seen.meshes if len(one) == len(ranks) and one[1] - one[0] == ranks[1] - ranks[0])
    order = [rank for group in groups for rank in group]
    if sorted(order) != list(range(seen.world_size)):
        return None
    places = tuple(order.index(rank) for rank in range(seen.world_size))
    return Change("placed", "with the ranks of the busy axis next to each other", places=places)


def _one_group(seen: Seen) -> Finding | None:
    mine = [one for one in seen.gatherings if one.rank == 0]
    whole = sum(one.numel for one in mine)
    for one in mine[-1:]:  # the model's own group, made last: what its layers' calls left
        if one.modules < _LAYERS or one.numel < 0.9 * whole:
            continue
        text = (
            f"fully_shard gathers the parameters of {one.modules} layers in one call, {one.numel} elements: all of "
            "them are whole on every rank before the first layer runs."
        )
        todo = "Call fully_shard on each layer before the model."
        evidence = {"layers": one.modules, "elements": one.numel}
        return Finding(ONE_GROUP, "slow", text, todo, 0, -1, one.source, "", evidence)
    return None
