"""An executor of plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Value
from labkit.checks.compare import difference, listing
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce import sum_marks, sum_mistakes
from labkit.exercises.ring_all_reduce.plan_cases import (
    Plan,
    drawn_plans,
    executed,
    plan_case,
    plans_of,
    rotation,
    simulate,
)
from labkit.exercises.ring_all_reduce.run_plan.driver import drive
from labkit.exercises.ring_all_reduce.sums import members_of
from labkit.exercises.ring_all_reduce.traffic import library_calls, lost_messages
from labkit.exercises.ring_all_reduce.world_sizes import sweep
from labkit.words import are_wrong, plural


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every chunk of every rank is right and the messages are the plan's."""
    assert isinstance(got, tuple)
    called = library_calls(wire)
    if called:
        return called
    expected = [cast(Tensor, values["base"]) for values in executed(case)]
    found = {rank: difference(got[rank].get("base"), expected[rank]) for rank in range(case.world_size)}
    wrong = {rank: first for rank, first in found.items() if first is not None}
    if wrong:
        rank, first = next(iter(wrong.items()))
        came = got[rank].get("base")
        where = ""
        if first.index >= 0:
            chunk, offset = _chunk_of(case, first.index)
            where = f" in chunk {chunk} (element {offset} of it)"
        return Verdict(
            False,
            message=f"{are_wrong(wrong, case.world_size)}. Rank {rank} has "
            f"{first.got}{where}, expected {first.expected}.{_what_happens_there(case, rank, first.index)}",
            expected=f"rank {rank}: {listing(expected[rank], first.index)}",
            got=f"rank {rank}: {listing(came, first.index) if isinstance(came, Tensor) else first.got}",
            rank=rank,
        )
    return _messages(case, wire) or lost_messages(wire) or Verdict(True)


def _chunk_of(case: Case, index: int) -> tuple[int, int]:
    chunk = 0
    for size in cast(list[int], case.inputs[0]["sizes"]):
        if index < size:
            break
        index -= size
        chunk += 1
    return chunk, index


def _what_happens_there(case: Case, rank: int, index: int) -> str:
    if index < 0 or rank not in members_of(case):
        return ""
    chunk, _ = _chunk_of(case, index)
    plan = [r for r in cast(Plan, case.inputs[rank]["plan"]) if r["chunk"] == chunk and r["kind"] != "Send"]
    shown = ", ".join(_record_text(record) for record in plan[:4])
    return f" Its plan for this chunk: {shown}{', ...' if len(plan) > 4 else ''}." if plan else ""


def _record_text(record: dict[str, Value]) -> str:
    fields = ", ".join(f"{name}={value}" for name, value in record.items() if name != "kind")
    return f"{record['kind']}({fields})"


def _messages(case: Case, wire: Wire) -> Verdict | None:
    """Return a verdict unless each rank sends what its plan says: peers and bytes, in the order of the steps."""
    members, sizes = members_of(case), cast(list[int], case.inputs[0]["sizes"])
    for rank in members:
        plan = [r for r in cast(Plan, case.inputs[rank]["plan"]) if r["kind"] == "Send"]
        planned = [(members[cast(int, r["peer"])], 4 * sizes[cast(int, r["chunk"])], r["step"]) for r in plan]
        wanted = sorted((step, peer, size) for peer, size, step in planned if size)
        empty = next((m for m in wire.messages if m.src == rank and not m.bytes), None)
        if empty is not None:
            return Verdict(
                False,
                message=f"The chunks are right, but rank {rank} sent rank {empty.dst} a message of 0 bytes: leave "
                "messages of empty chunks out.",
                rank=rank,
                call=empty.sent,
            )
        sent = [(m.dst, m.bytes) for m in wire.sent_by(rank)]
        if sorted((peer, size) for _, peer, size in wanted) != sorted(sent):
            return Verdict(
                False,
                message=f"The chunks are right, but rank {rank} sent {plural(len(sent), 'message')} with "
                f"{sum(b for _, b in sent)} bytes and its plan has {len(wanted)} with "
                f"{sum(size for *_, size in wanted)} bytes.",
                rank=rank,
            )
    return None


def _as_if(**wrong: Any) -> Callable[[Case, Got, Wire], bool]:
    """Return whether what came is what another way to run the plan gives."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple):
            return False
        other = simulate(case, **wrong)
        return all(difference(got[rank].get("base"), other[rank]) is None for rank in members_of(case))

    return seen


def _unchanged(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and all(
        difference(got[rank].get("base"), cast(Tensor, case.inputs[rank]["tensor"])) is None
        for rank in members_of(case)
    )


def _nothing_received(case: Case, got: Got, wire: Wire) -> bool:
    return _unchanged(case, got, wire) and bool(wire.messages)


EXERCISE = judged(
    id="run_plan",
    functions=("run_plan",),
    given=("Send", "Recv", "Reduce"),
    driver=drive,
    oracle=executed,
    judge=judge,
    visible=(
        plan_case("3 ranks pass a chunk on and overwrite", rotation(3, 2, 1, 2), (2, 2), 11),
        plan_case("3 ranks, one step adds, one overwrites", rotation(3, 2, 1, 3, reduce_on=(1,)), (3, 3), 12),
        plan_case("4 ranks, messages drawn at random, gaps between steps", drawn_plans(3, 4, 4, 5), (2, 2, 2, 2), 13),
        plan_case("4 ranks, chunks of different sizes, one empty", drawn_plans(5, 4, 4, 5), (3, 0, 2, 1), 14),
        plan_case("3 ranks, combine=torch.maximum", rotation(3, 3, 1, 4, (0, 1, 3)), (2, 2, 2), 16, combine="maximum"),
        plan_case(
            "5 ranks, of which 1, 3 and 4 take part",
            drawn_plans(7, 3, 3, 4),
            (2, 2, 2),
            15,
            world_size=5,
            group=(1, 3, 4),
        ),
    ),
    hints=(
        "What must happen before anybody waits? All messages of one step are on their way at the same time.",
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
        sum_mistakes.LIBRARY,
        Mistake(
            "empty batch",
            "dist.batch_isend_irecv does not take an empty list: where all chunks of a step are empty there is "
            "nothing to post, so leave the call out.",
            lambda case, got, wire: (
                isinstance(got, Failure)
                and got.error == "IndexError"
                and "batch_isend_irecv" in got.detail.rpartition("\n")[2]
            ),
            certain=True,
        ),
        Mistake(
            "empty messages",
            "A message was sent for an empty chunk: go on to the next record where chunks[record.chunk].numel() == 0.",
            lambda case, got, wire: isinstance(got, tuple) and any(not m.bytes for m in wire.messages),
        ),
        Mistake(
            "combine ignored",
            "What arrived was added although the caller asked for another combine: a Reduce calls "
            "combine(chunk, incoming, out=chunk).",
            lambda case, got, wire: "combine" in case.inputs[0] and _as_if(combine=torch.add)(case, got, wire),
        ),
        Mistake(
            "out=chunk forgotten",
            "What a Reduce computed was not kept: combine(chunk, incoming) returns a new tensor; with out=chunk it "
            "writes into the chunk.",
            _as_if(combine=lambda chunk, incoming: chunk),
        ),
        Mistake(
            "always adds",
            "Everything that arrives is added. A Recv without a Reduce of the same step and chunk overwrites the "
            "chunk.",
            _as_if(reduce=True),
        ),
        Mistake(
            "never adds",
            "Everything that arrives overwrites its chunk. Where the step also has a Reduce of that chunk, receive "
            "into a buffer of its own and add it.",
            _as_if(reduce=False),
        ),
        Mistake(
            "adds the chunk to itself",
            "The chunk was received into and then added to itself: a Recv that is reduced needs a buffer of its own.",
            _as_if(combine=lambda chunk, incoming: 2 * incoming),
        ),
        Mistake(
            "sends after receiving",
            "What is sent was already changed by a receive of the same step: post all sends and receives of a step "
            "first.",
            _as_if(late_sends=True),
        ),
        Mistake(
            "nothing sent",
            "No message was sent: a P2POp only describes one, dist.batch_isend_irecv posts them.",
            lambda case, got, wire: isinstance(got, tuple) and not wire.messages,
        ),
        Mistake(
            "chunks not changed in place",
            "Messages came, but the chunks are as they were: write into them (chunk.copy_(incoming), chunk += "
            "incoming); chunks[i] = incoming only puts another tensor into the list.",
            _nothing_received,
        ),
        Mistake(
            "one message at a time",
            "Every rank stands in send: a step's messages must be posted together, with dist.batch_isend_irecv, not "
            "one after another.",
            lambda case, got, wire: sum_marks.waits_in(got, "send"),
        ),
        Mistake(
            "one message at a time",
            "Every rank that waits stands in a receive: post a step's sends and receives together, with "
            "dist.batch_isend_irecv, and go through all of the plan's steps.",
            lambda case, got, wire: sum_marks.waits_in(got, "recv"),
        ),
        Mistake(
            "steps counted without gaps",
            "The numbers of the steps have gaps: group the records you are given, do not count steps yourself.",
            lambda case, got, wire: (
                "gaps" in case.name and not isinstance(got, Failure) and len(wire.messages) < _planned(case)
            ),
        ),
        sum_mistakes.GROUP_RANKS,
        Mistake(
            "not waited for",
            "A chunk was used before its message had come: call wait() on every work that dist.batch_isend_irecv "
            "returns.",
            lambda case, got, wire: isinstance(got, tuple) and bool(wire.problems_of("not_waited", "unmatched_recv")),
        ),
    ),
)


def _planned(case: Case) -> int:
    return sum(record["kind"] == "Send" for plan in plans_of(case) for record in plan)
