"""The sum through rank 0."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.checks.case import Case, Got
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce import sum_marks
from labkit.exercises.ring_all_reduce import sum_mistakes as mistakes
from labkit.exercises.ring_all_reduce.naive_all_reduce.driver import drive
from labkit.exercises.ring_all_reduce.sums import expected_bases, reduce_case, whole_numbers, wrong_values
from labkit.exercises.ring_all_reduce.traffic import library_calls, lost_messages, root_traffic
from labkit.exercises.ring_all_reduce.world_sizes import sweep


def naive_case(seed: int, world_size: int, shape: Sequence[int]) -> Case:
    """Return a case of naive_all_reduce."""
    what = " x ".join(map(str, shape))
    return reduce_case(f"{world_size} ranks, {what} elements", whole_numbers(seed, world_size, shape))


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether the sums are right and everything passed through rank 0."""
    assert isinstance(got, tuple)
    return (
        library_calls(wire)
        or wrong_values(case, got)
        or root_traffic(case, wire)
        or lost_messages(wire)
        or Verdict(True)
    )


def _one_peer_only(case: Case, got: Got, wire: Wire) -> bool:
    table = sum_marks.shares(case, got)
    return (
        case.world_size > 2
        and table is not None
        and any(s is not None and sum(s) == 2 and max(s) == 1 for s in table[0])
    )


def _lost_last_value(case: Case, got: Got, wire: Wire) -> bool:
    table = sum_marks.shares(case, got)
    return table is not None and any(s is not None and s[0] == 0 and sum(s) >= 1 for s in table[0])


EXERCISE = judged(
    id="naive_all_reduce",
    functions=("naive_all_reduce",),
    driver=drive,
    oracle=expected_bases,
    judge=judge,
    visible=(naive_case(2, 3, (7,)), naive_case(1, 2, (5,)), naive_case(3, 4, (2, 3))),
    hints=(
        "There are two kinds of rank: rank 0, and all the others. What does each of them send, and when?",
        "Rank 0 receives N-1 tensors, one after another, and adds each of them to its own; then it sends the total N-1 "
        "times. Every other rank sends once, then receives once, into the same tensor.",
        "if rank == 0: for each peer from 1: dist.recv(incoming, src=peer); tensor += incoming; then for each peer "
        "dist.send(tensor, dst=peer). else: dist.send(tensor, dst=0); dist.recv(tensor, src=0).",
    ),
    sweep=sweep(lambda size: naive_case(100 + size, size, (size + 2,))),
    mistakes=(
        mistakes.LIBRARY,
        mistakes.IN_FLIGHT,
        Mistake(
            "everybody sends first",
            "Every rank stands in send: rank 0 must receive while the others send.",
            lambda case, got, wire: sum_marks.waits_in(got, "send"),
        ),
        Mistake(
            "everybody receives first",
            "Every rank that waits stands in a receive: the others must send their tensor before they wait for the "
            "total, and rank 0 must send the total to each of them.",
            lambda case, got, wire: sum_marks.waits_in(got, "recv"),
        ),
        mistakes.NOT_IN_PLACE,
        mistakes.DIVIDED,
        mistakes.ROOT_ONLY,
        Mistake(
            "rank 0 overwrites its own part",
            "Rank 0's own contribution is missing from the sum: receive into a buffer of its own and add that.",
            _lost_last_value,
        ),
        Mistake(
            "only one rank is added",
            "Rank 0 added one other rank's tensor only: do it for every peer from 1 to N-1.",
            _one_peer_only,
        ),
        mistakes.TWICE,
        mistakes.EVERYBODY,
        Mistake(
            "does not pass through rank 0",
            "Some messages have rank 0 at neither end. Here every rank sends to rank 0 and gets the total from it.",
            lambda case, got, wire: any(0 not in (m.src, m.dst) for m in wire.messages),
        ),
        Mistake(
            "a peer that is not there",
            "The number of ranks seems to be written into the code: ask dist.get_world_size().",
            lambda case, got, wire: sum_marks.stranger(case, got, wire) or ("invalid rank" in str(got)),
        ),
    ),
)
