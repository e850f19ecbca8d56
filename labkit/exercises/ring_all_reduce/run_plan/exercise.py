"""An executor of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import values
from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Failure, Values
from labkit.checks.compare import difference, listing
from labkit.checks.declared import declared
from labkit.checks.finding import Finding
from labkit.checks.hanging import hangs, nobody_waited, waits_in
from labkit.checks.traffic import library_calls, lost_messages, unfinished_sends
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce.plan_cases import (
    drawn_plans,
    executed,
    least_traffic,
    plan_case,
    plan_of,
    reduces_behind,
    rotation,
    simulate,
    simulate_again_and_again,
    sizes_of,
)
from labkit.exercises.ring_all_reduce.run_plan.driver import drive
from labkit.exercises.sums_over_ranks.sum_mistakes import in_failures, sum_mistake
from labkit.exercises.sums_over_ranks.sums import members_of
from labkit.exercises.sums_over_ranks.traffic import GROUP_RANKS, leaves_the_group
from labkit.exercises.sums_over_ranks.world_sizes import sweep
from labkit.words import are_wrong, plural

_EMPTY_BATCH, _EMPTY, _ADDS, _NO_OUT, _ALWAYS, _NEVER, _ITSELF, _NOTHING, _NOT_IN_PLACE, _ONE, _GAPS, _WAIT = (
    "empty batch", "empty messages", "combine ignored", "no Reduce changed its chunk", "always adds", "never adds",
    "adds the chunk to itself", "nothing sent", "chunks not changed in place",
    "one message at a time", "steps counted without gaps", "not waited for",
)  # fmt: skip


_AGAIN, _OUT = "what arrived before, once more", "combine without out"
_SHARED, _MORE, _OTHER_STEP, _SWAPPED, _LATE = (
    "one buffer for two messages", "more receives than the plan has", "the Reduce of another step",
    "combine's arguments swapped", "reduced after the last step",
)  # fmt: skip

_TOGETHER, _ANOTHERS, _SKIPPED, _INTO_EMPTY, _RINGS, _BEFORE = (
    "a step begins before the last one ends", "the Reduce of another chunk", "a step with an empty chunk left out",
    "receives for empty chunks", "taken for a ring's plan", "a Reduce before its Recv",
)  # fmt: skip


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield which chunks are wrong, and which messages are not the plan's."""
    yield from library_calls(wire)
    yield from _wrong_chunks(case, got, wire)
    yield from _messages(case, wire)
    yield from (replace(each, mistake=each.mistake and _WAIT) for each in lost_messages(wire))
    yield from (replace(each, mistake=_WAIT) for each in unfinished_sends(wire))


def _wrong_chunks(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    came, expected = [values.tensor(each, "base") for each in got], simulate(case)
    found = {rank: difference(*pair) for rank, pair in enumerate(zip(came, expected, strict=True))}
    wrong = {rank: first for rank, first in found.items() if first is not None}
    for rank, first in wrong.items():
        chunk, offset = _chunk_of(case, first.index)
        yield Finding(
            _cause(case, came, wire),
            f"{are_wrong(wrong, case.world_size)}. Rank {rank} has {first.got} in chunk {chunk} (element {offset} of "
            f"it), expected {first.expected}.{_what_happens(case, rank, chunk)}",
            f"rank {rank}: {listing(expected[rank], first.index)}",
            f"rank {rank}: {listing(came[rank], first.index)}",
            rank,
        )


def _cause(case: Case, came: list[Tensor], wire: Wire) -> str:
    """Return the mistake that gives these chunks, or ""."""
    if any(not message.bytes for message in wire.messages):
        return _EMPTY
    if wire.problems_of("not_waited", "read_before_wait"):
        return _WAIT
    ways = (
        (_ADDS, lambda: simulate(case, combine=torch.add)),
        (_SWAPPED, lambda: simulate(case, combine=lambda chunk, incoming: _combine_of(case)(incoming, chunk))),
        (_LATE, lambda: simulate(case, late_reduces=True)),
        (_AGAIN, lambda: simulate_again_and_again(case)),
        (_NO_OUT, lambda: simulate(case, combine=lambda chunk, incoming: chunk)),
        (_ALWAYS, lambda: simulate(case, reduce=True)),
        (_NEVER, lambda: simulate(case, reduce=False)),
        (_OTHER_STEP, lambda: simulate(case, anywhere=True)),
        (_TOGETHER, lambda: simulate(case, together=True)),
        (_ANOTHERS, lambda: simulate(case, with_others=True)),
        (_RINGS, lambda: simulate(case, like_a_ring=True)),
        (_SHARED, lambda: simulate(case, shared=1)),
        (_SHARED, lambda: simulate(case, shared=-1)),
        (_SHARED, lambda: simulate(case, shared=2)),
        (_SHARED, lambda: simulate(case, shared=-2)),
        (_BEFORE, lambda: simulate(reduces_behind(case, directly=False))),
        (_BEFORE, lambda: simulate(reduces_behind(case, directly=True))),
        (_ITSELF, lambda: simulate(case, combine=lambda chunk, incoming: 2 * incoming)),
        (_NOT_IN_PLACE if wire.messages else _NOTHING, lambda: [values.tensor(each, "tensor") for each in case.inputs]),
    )
    known = as_if(came, ways, lambda a, b: all(map(torch.equal, a, b)))
    return known or (_TOGETHER if _partly_together(case, came) else _from_wire(case, wire))


def _partly_together(case: Case, came: list[Tensor]) -> bool:
    """Return whether each number is right or what a step sends that does not wait; on processes some are in time."""
    found = zip(came, simulate(case), simulate(case, together=True), strict=True)
    return all(bool(((mine == right) | (mine == early)).all()) for mine, right, early in found)


def _combine_of(case: Case) -> Callable[[Tensor, Tensor], Tensor]:
    return cast(Callable[[Tensor, Tensor], Tensor], getattr(torch, str(case.inputs[0].get("combine", "add"))))


def _from_wire(case: Case, wire: Wire) -> str:
    """Return the mistake that the messages show, or ""."""
    if not wire.messages:
        return _NOTHING
    if "gaps" in case.name and len(wire.messages) < sum(len(_sends(case, rank)) for rank in members_of(case)):
        return _GAPS
    if leaves_the_group(case, wire):
        return GROUP_RANKS
    return _WAIT if wire.problems_of("not_waited", "unmatched_recv") else ""


def _chunk_of(case: Case, index: int) -> tuple[int, int]:
    """Return a chunk's number and the place in it of an element of the tensor."""
    for chunk, size in enumerate(sizes_of(case)):
        if index < size:
            return chunk, index
        index -= size
    raise IndexError(index)


def _what_happens(case: Case, rank: int, chunk: int) -> str:
    plan = [record for record in plan_of(case, rank) if record["chunk"] == chunk and record["kind"] != "Send"]
    shown = ", ".join(_record_text(record) for record in plan[:4])
    return f" Its plan for this chunk: {shown}{', ...' if len(plan) > 4 else ''}." if plan else ""


def _record_text(record: dict[str, Any]) -> str:
    fields = ", ".join(f"{name}={value}" for name, value in record.items() if name != "kind")
    return f"{record['kind']}({fields})"


def _sends(case: Case, rank: int) -> list[dict[str, Any]]:
    return [record for record in plan_of(case, rank) if record["kind"] == "Send"]


def _messages(case: Case, wire: Wire) -> Iterator[Finding]:
    """Yield a finding unless each rank sends what its plan says: peers and bytes."""
    members, item = members_of(case), values.tensor(case.inputs[0], "tensor").element_size()
    for rank in members:
        planned = [(members[each["peer"]], item * sizes_of(case)[each["chunk"]]) for each in _sends(case, rank)]
        wanted = sorted((peer, size) for peer, size in planned if size)
        for message in wire.messages:
            if message.src == rank and not message.bytes:
                text = f"The chunks are right, but rank {rank} sent rank {message.dst} a message of 0 bytes: leave "
                yield Finding(_EMPTY, f"{text}messages of empty chunks out.", rank=rank, call=message.sent)
        sent = sorted((message.dst, message.bytes) for message in wire.sent_by(rank))
        if sent != wanted:
            yield Finding(
                _from_wire(case, wire),
                f"The chunks are right, but rank {rank} sent {plural(len(sent), 'message')} with "
                f"{sum(size for _, size in sent)} bytes and its plan has {len(wanted)} with "
                f"{sum(size for _, size in wanted)} bytes.",
                rank=rank,
            )


def _travelled(case: Case, wire: Wire) -> bool:
    """Return whether all messages of the first step have arrived."""
    members, sizes = members_of(case), sizes_of(case)
    for rank in members:
        sends = [each for each in _sends(case, rank) if sizes[each["chunk"]]]
        first = [each for each in sends if each["step"] == sends[0]["step"]]
        if sum(message.received is not None for message in wire.sent_by(rank)) < len(first):
            return False
    return bool(wire.messages)


def _one_at_a_time(case: Case, failure: Failure, wire: Wire) -> bool:
    return waits_in(failure, "send") or (waits_in(failure, "recv") and not _travelled(case, wire))


def _one_too_many(case: Case, failure: Failure, wire: Wire) -> bool:
    return waits_in(failure, "recv") and _travelled(case, wire)


def _looks_up_too_early(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether what a Reduce looked up was not there, on a rank whose plan has one before its Recv."""
    if failure.error not in ("KeyError", "UnboundLocalError") or failure.rank is None or 0 in sizes_of(case):
        return False
    met: set[tuple[int, int]] = set()
    for record in plan_of(case, failure.rank):
        at = (record["step"], record["chunk"])
        if record["kind"] == "Reduce" and at not in met:
            return True
        met |= {at} if record["kind"] == "Recv" else set()
    return False


def _leaves_a_step_out(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether ranks wait for ever where a chunk is empty: a plan without one has passed before."""
    return hangs(failure) and 0 in sizes_of(case) and bool(wire.messages)


def _receives_nothing(case: Case, failure: Failure, wire: Wire) -> bool:
    said = ("receives into 0 x", "asked for 0 B")
    return 0 in sizes_of(case) and any(words in failure.message for words in said)


def _hangs_in_no_ring(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether ranks wait for ever in a plan that has steps with several messages, after some have arrived."""
    several = any(
        len([each for each in plan_of(case, rank) if each["kind"] == "Send" and each["step"] == step]) > 1
        for rank in members_of(case)
        for step in {each["step"] for each in plan_of(case, rank)}
    )
    return hangs(failure) and several and any(message.received is not None for message in wire.messages)


def _posted_nothing(case: Case, failure: Failure, wire: Wire) -> bool:
    return failure.error == "IndexError" and "batch_isend_irecv" in failure.detail.rpartition("\n")[2]


EXERCISE = declared(
    id="run_plan",
    functions=("run_plan",),
    given=("Send", "Recv", "Reduce"),
    driver=drive,
    oracle=executed,
    looks=(find,),
    least=least_traffic,
    visible=(
        plan_case("3 ranks pass a chunk on and overwrite", rotation(3, 2, 1, 2), (2, 2), 11),
        plan_case("3 ranks, one step adds, one overwrites", rotation(3, 2, 1, 3, reduce_on=(1,)), (3, 3), 12),
        plan_case("4 ranks, messages drawn at random, gaps between steps", drawn_plans(3, 4, 4, 5), (2, 2, 2, 2), 13),
        plan_case("4 ranks, chunks of different sizes, one empty", drawn_plans(5, 4, 4, 5), (3, 0, 2, 1), 14),
        plan_case("3 ranks, combine=torch.sub", rotation(3, 3, 1, 4, (0, 1, 3)), (2, 2, 2), 16, combine="sub"),
        plan_case(
            "5 ranks, of which 1, 3 and 4 take part",
            drawn_plans(7, 3, 3, 4),
            (2, 2, 2),
            15,
            world_size=5,
            group=(1, 3, 4),
        ),
        plan_case("3 ranks, float64", rotation(3, 2, 1, 3, (1,)), (3, 3), 17, dtype=torch.float64),
    ),
    hints=(
        "What must happen before any rank waits? All messages of one step travel at the same time.",
        "Group the records by step. For each step make a P2POp for every Send and Recv, call dist.batch_isend_irecv "
        "once, wait for all of it, and then do the Reduces. A Recv that is reduced needs a buffer of its own; one "
        "that is not can receive straight into its chunk.",
        "dist.P2POp(dist.isend, chunks[r.chunk], group=group, group_peer=r.peer); for work in "
        "dist.batch_isend_irecv(ops): work.wait(); then combine(chunks[r.chunk], incoming[r.chunk], "
        "out=chunks[r.chunk]) for each Reduce. Skip empty chunks, and the batch where a step has no message left.",
    ),
    sweep=sweep(
        lambda size: plan_case(
            f"{size} ranks, drawn at random", drawn_plans(size, size, 4, 5), (3, 0, 2, 1), 100 + size
        )
    ),
    mistakes=(
        *in_failures("calls the library", "buffer of another type"),
        sum_mistake(_WAIT,
                    "A chunk was used before its message had arrived, or had left: call wait() on every work that "
                    "dist.batch_isend_irecv returns, before you touch a tensor.",
                    failed=lambda case, failure, wire: nobody_waited(case, failure, wire, "isend")
                    or nobody_waited(case, failure, wire, "irecv")),
        sum_mistake(_EMPTY_BATCH,
                    "dist.batch_isend_irecv does not take an empty list: where all chunks of a step are empty there "
                    "is nothing to post, so leave the call out.", failed=_posted_nothing, certain=True),
        sum_mistake(_EMPTY,
                    "A message was sent for an empty chunk: go on to the next record where "
                    "chunks[record.chunk].numel() == 0."),
        sum_mistake(_ADDS,
                    "What arrived was added although the caller asked for another combine: a Reduce calls "
                    "combine(chunk, incoming, out=chunk)."),
        sum_mistake(_SWAPPED,
                    "combine got its arguments the wrong way round: combine(chunk, incoming, out=chunk). For torch.sub "
                    "the order matters."),
        sum_mistake(_LATE,
                    "What arrived was combined after the last step. A step's Reduces belong to the step: the next one "
                    "may send the chunk on."),
        sum_mistake(_AGAIN,
                    "A step also dealt with what had arrived in the steps before it: a collection of incoming tensors "
                    "that is made once, before the loop over steps, keeps them. Begin each step with an empty one."),
        sum_mistake(_OUT,
                    "A Reduce calls combine(chunk, incoming, out=chunk): the operation that the caller hands over here "
                    "writes its result where it is told to, and must be told.",
                    failed=lambda case, failure, wire: "keyword-only argument: 'out'" in failure.message,
                    certain=True),
        sum_mistake(_NO_OUT,
                    "No Reduce has changed its chunk. Do a step's Reduces when its messages have arrived, and before "
                    "the next step; combine(chunk, incoming) returns a new tensor, with out=chunk it writes into the "
                    "chunk."),
        sum_mistake(_ALWAYS,
                    "Everything that arrives is added. A Recv without a Reduce of the same step and chunk overwrites "
                    "the chunk."),
        sum_mistake(_OTHER_STEP,
                    "A chunk that some other step reduces was added in a step without a Reduce: look for the Reduce "
                    "among the records of the same step."),
        sum_mistake(_NEVER,
                    "Everything that arrives overwrites its chunk. Where the step also has a Reduce of that chunk, "
                    "receive into a buffer of its own and add it."),
        sum_mistake(_ITSELF,
                    "The chunk was received into and then added to itself: a Recv that is reduced needs a buffer of "
                    "its own."),
        sum_mistake(_SHARED,
                    "Two messages of a step landed in the same buffer, and the second replaced the first: each Recv "
                    "that is reduced needs a buffer of its own; the others can receive straight into their chunks."),
        sum_mistake(_BEFORE,
                    "A Reduce may stand before its Recv in the plan, or not right behind it: the records of a step "
                    "may stand in any order. Look at all records of the step, and act after that.",
                    failed=_looks_up_too_early, certain=True),
        sum_mistake(_NOTHING, "No message was sent: a P2POp only describes one, dist.batch_isend_irecv posts them."),
        sum_mistake(_NOT_IN_PLACE,
                    "Messages arrived, but the chunks did not change: write into them (chunk.copy_(incoming), chunk "
                    "+= incoming); chunks[i] = incoming only puts another tensor into the list."),
        sum_mistake(_TOGETHER,
                    "A later step sent what a chunk held before an earlier one was over. Wait for all messages of a "
                    "step, and do its Reduces, before you post those of the next."),
        sum_mistake(_ANOTHERS,
                    "All that arrived in a step with a Reduce was added. A Reduce names its chunk; what arrives for "
                    "the step's other chunks overwrites them."),
        sum_mistake(_INTO_EMPTY,
                    "A receive was posted for an empty chunk, and took the next message of that rank: no message is "
                    "sent for an empty chunk, so leave out its Send and its Recv.", failed=_receives_nothing),
        sum_mistake(_SKIPPED,
                    "Ranks wait for ever, and here a chunk is empty: leave out the records of that chunk alone. The "
                    "step's other messages are sent, and the steps after it are run.", failed=_leaves_a_step_out),
        sum_mistake(_RINGS,
                    "This plan is no ring's: a step may have several sends and receives, or none, with any ranks, and "
                    "a Reduce may stand in any step. Do what the records of the step say, with the peers that they "
                    "name.", failed=_hangs_in_no_ring),
        sum_mistake(_ONE,
                    "Every waiting rank is stuck in the same kind of call, and nobody has posted the other end: make a "
                    "P2POp for each Send and each Recv of a step, post them together with dist.batch_isend_irecv, "
                    "not one after another, and go through all of the plan's steps.",
                    failed=_one_at_a_time),
        sum_mistake(_MORE,
                    "The messages of a step have arrived, and the ranks wait for more: make one P2POp for each Send "
                    "and each Recv of the step, and no other.", failed=_one_too_many),
        sum_mistake(_GAPS,
                    "The numbers of the steps have gaps: group the records you are given, do not count steps "
                    "yourself."),
        *in_failures(GROUP_RANKS),
    ),
)  # fmt: skip
