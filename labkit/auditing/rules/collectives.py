"""Whether the calls of one collective belong together, and give each rank what it expects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Call, Declared
from labkit.auditing.finding import Finding
from labkit.auditing.origins import first_call, is_handed_in, origin
from labkit.auditing.seen import Seen
from labkit.auditing.telling import listed
from labkit.cells import place

ALIASED = rule(
    "results-share-memory",
    "each tensor that a collective fills has memory of its own",
    seen="the addresses of the tensors that a collective writes its results to",
    why="Every result is written over by the next one: all ranks' entries are the last rank's.",
    todo="Make the tensors one by one, in a list comprehension; [tensor] * n is one tensor n times.",
    lesson="02",
    sources="Lightning-AI/pytorch-lightning#3253",
)
MISMATCHED = rule(
    "collectives-mismatched",
    "the calls that meet in one collective speak of the same thing",
    seen="of each collective on gradients, whose gradients each rank gives and from which batch",
    why="Shapes match, so nothing raises: gradients of different parameters, or of different batches, are averaged.",
    todo="Let all ranks call the same collectives in the same order, whatever their samples are.",
    lesson="04",
    sources="NVIDIA-NeMo/Automodel#2468",
)
IN_16_BITS = rule(
    "summed-in-16-bits",
    "gradients of many ranks are added in 32 bits",
    seen="the type in which gradients of float32 parameters are added over eight ranks or more",
    why="A sum in 16 bits keeps 8 or 11 bits: what a rank adds to seven others is partly rounded away, in every step.",
    todo="Add in float32, or send 16 bits and add in 32, as reduce_scatter in float32 and all_gather in 16 bits do.",
    lesson="10",
    sources="NVIDIA/nccl#1026, allenai/OLMo#280",
)
DECLARED = rule(
    "declared-whole",
    "what a DTensor declares to be replicated is the same on all ranks",
    seen="the bits of what DTensor.from_local() is given, on all ranks of the mesh",
    why="Nothing adds up the ranks' parts: each goes on with its own, and nobody compares.",
    todo="Declare partial sums as Partial(), pieces as Shard(dim); run_check=True compares.",
    lesson="12",
)
CUT = rule(
    "gathered-without-gradient",
    "what a loss is made of is gathered with its gradient",
    seen="what all_gather gives of a tensor in the graph, until it is computed with beside one that is in the graph",
    why="c10d's collectives are not differentiated: what other ranks' losses say of this rank's part is lost.",
    todo="Use torch.distributed.nn.functional.all_gather, or an autograd.Function that reduces on the way back.",
    lesson="12",
    sources="huggingface/accelerate#1154",
)
_POLICY = "MixedPrecisionPolicy"
_MANY = 8


def look(seen: Seen) -> Iterator[Finding]:
    """Yield collectives whose calls do not belong together."""
    for found in (_aliased(seen), _mismatched(seen), _in_16_bits(seen), _declared(seen), _cut(seen)):
        if found is not None:
            yield found


def meetings(seen: Seen) -> Iterator[dict[int, Call]]:
    """Yield of each collective the calls that met in it, by rank."""
    by_turn: dict[tuple[tuple[int, ...], int], dict[int, Call]] = defaultdict(dict)
    for call in seen.calls:
        by_turn[call.ranks, call.turn][call.rank] = call
    yield from (calls for calls in by_turn.values() if len(calls) > 1)


def _aliased(seen: Seen) -> Finding | None:
    call = next((call for call in seen.calls if call.aliased and len(call.ranks) > 1), None)
    if call is None:
        return None
    text = (
        f"Rank {call.rank} gives {call.api or call.kind} a list in which tensors share memory: all of them will hold "
        "what is written last."
    )
    todo = "Make a tensor for each rank: [torch.empty_like(x) for _ in range(world_size)]."
    source = origin(call.source, call.api)
    return Finding(ALIASED, "wrong", text, todo, call.rank, call.step, source, "", {"call": call.kind})


def _mismatched(seen: Seen) -> Finding | None:
    ahead: dict[tuple[int, int], int] = {}  # by how many forward passes, as two ranks first meet: a warm-up's
    for calls in meetings(seen):
        some = [call for call in calls.values() if call.names and call.op]
        if len(some) < 2:
            continue
        one = some[0]
        for other in some[1:]:
            if set(one.names) != set(other.names) and _hold_both(seen, one, other):
                return _told_names(one, other)
            more = one.forwards - other.forwards
            begun = ahead.setdefault((one.rank, other.rank), more) if one.passes and other.passes else more
            if more != begun:
                return _told_batches(seen, *((one, other) if more > begun else (other, one)))
    return None


def _hold_both(seen: Seen, one: Call, other: Call) -> bool:
    """Return whether both ranks hold what the two give: stages may tie a weight that each has by another name."""
    held = [step.held_by for step in seen.steps if one.rank in step.held_by and other.rank in step.held_by]
    names = {*one.names, *other.names}
    return any(names <= by_rank[one.rank] and names <= by_rank[other.rank] for by_rank in held)


def _told_names(one: Call, other: Call) -> Finding:
    text = (
        f"Ranks {one.rank} and {other.rank} meet in one {one.kind} in step {one.step} with gradients of different "
        f"parameters: {listed(one.names)} on rank {one.rank}, {listed(other.names)} on rank {other.rank}."
    )
    todo = "Reduce gradients after backward(), in the order of model.parameters(), or leave it to DDP's buckets."
    evidence = {"gradients": {str(call.rank): list(call.names) for call in (one, other)}}
    source = other.hooked or other.outer or other.source
    return Finding(MISMATCHED, "wrong", text, todo, other.rank, other.step, source, other.names[0], evidence)


def _told_batches(seen: Seen, ahead: Call, behind: Call) -> Finding:
    text = (
        f"Rank {ahead.rank} averages gradients of its batch {ahead.forwards - 1} with those of rank {behind.rank}'s "
        f"batch {behind.forwards - 1} in step {ahead.step}: it left out a batch, and with it its collectives."
    )
    todo = "Let all ranks decide together: all_reduce the flag, then skip everywhere or nowhere."
    evidence = {"batches": {str(call.rank): call.forwards - 1 for call in (ahead, behind)}}
    source = next(
        (each.source for each in reversed(seen.decisions) if (each.rank, each.step) == (ahead.rank, ahead.step)
         and each.value),
        ahead.source,
    )  # fmt: skip
    return Finding(MISMATCHED, "wrong", text, todo, ahead.rank, ahead.step, source, ahead.names[0], evidence)


def _in_16_bits(seen: Seen) -> Finding | None:
    for call in seen.calls:
        if call.dtype not in ("bfloat16", "float16") or not call.op or len(call.ranks) < _MANY or call.numel < _MANY:
            continue
        if not (call.in_backward or call.holds == "gradient") or call.in_forward or not seen.wide_parameters:
            continue
        bits = 8 if call.dtype == "bfloat16" else 11
        text = (
            f"Gradients of float32 parameters are added over {len(call.ranks)} ranks in {call.dtype}, which keeps "
            f"{bits} bits: each addition rounds by up to 1 part in {1 << bits}."
        )
        policy = first_call(call.source, _POLICY) if call.kind.startswith("reduce_scatter") else ""
        source = policy or origin(call.source, call.api)
        todo = "Reduce in float32: reduce_dtype=torch.float32." if policy else "Reduce in float32."
        evidence = {"dtype": call.dtype, "ranks": len(call.ranks)}
        return Finding(IN_16_BITS, "suspected", text, todo, call.rank, call.step, source, "", evidence)
    return None


def _cut(seen: Seen) -> Finding | None:
    for number, used in seen.cut:
        call = seen.calls[number]
        if len(call.ranks) < 2:
            continue
        text = (
            f"Rank {call.rank} gathers a tensor that has a gradient with {call.api or call.kind}, which "
            f"cuts the graph, and computes its loss with what came ({place(used)}): nothing of the other ranks' "
            "losses comes back."
        )
        todo = "Gather with a function that autograd knows, or detach first where that is meant."
        source = call.caller if call.caller and is_handed_in(call.source, call.api) else call.source
        return Finding(CUT, "suspected", text, todo, call.rank, call.step, source, "", {"used_at": used})
    return None


def _declared(seen: Seen) -> Finding | None:
    by_place: dict[tuple[str, int, tuple[int, ...]], dict[int, Declared]] = defaultdict(dict)
    for one in seen.declared:
        by_place[one.source, one.number, one.ranks][one.rank] = one
    for (source, _, ranks), some in by_place.items():
        if len(some) < len(ranks) or len({one.digest for one in some.values()}) < 2:
            continue
        first = some[min(some)]
        other = next(one for one in some.values() if one.digest != first.digest)
        text = (
            f"Ranks {first.rank} and {other.rank} declare a tensor to be replicated in step {first.step} "
            f"({place(source)}), and hold different values of it."
        )
        todo = "If each holds a summand, declare Partial(); if each holds a piece, Shard(dim)."
        return Finding(DECLARED, "wrong", text, todo, other.rank, first.step, source, "", {"ranks": list(ranks)})
    return None
