"""The binomial tree."""

from __future__ import annotations

import torch

from labkit.checks.case import Case, Failure, Got
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce import sum_marks
from labkit.exercises.ring_all_reduce import sum_mistakes as mistakes
from labkit.exercises.ring_all_reduce.ring_sum.exercise import sum_case
from labkit.exercises.ring_all_reduce.sums import exact_reduction, expected_bases, members_of, wrong_values
from labkit.exercises.ring_all_reduce.traffic import (
    library_calls,
    lost_messages,
    outsiders,
    tensor_bytes,
    total_text,
    tree_rounds,
)
from labkit.exercises.ring_all_reduce.tree_all_reduce.driver import drive
from labkit.exercises.ring_all_reduce.world_sizes import sweep, tree_steps


def doublings(count: int) -> int:
    """Return how often 1 must be doubled to reach `count`."""
    return (count - 1).bit_length()


def judge_tree(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether the sums are right and came by a tree: 2(N-1) tensors in 2 ceil(log2 N) rounds."""
    assert isinstance(got, tuple)
    return (
        library_calls(wire)
        or wrong_values(case, got)
        or outsiders(case, wire)
        or _tree_traffic(case, wire)
        or lost_messages(wire)
        or Verdict(True)
    )


def _tree_traffic(case: Case, wire: Wire) -> Verdict | None:
    size, whole = len(members_of(case)), tensor_bytes(case)
    real = [message for message in wire.messages if message.bytes]
    allowed = 2 * (size - 1)
    if len(real) > allowed or sum(m.bytes for m in real) > allowed * whole:
        return Verdict(
            False,
            message=f"The sums are right, with {total_text(real)} among all ranks; a tree needs {allowed} of "
            f"{whole} bytes.",
            expected=f"{allowed} messages of {whole} bytes",
            got=total_text(real),
        )
    rounds, most = tree_rounds(real), 2 * doublings(size)
    if rounds > most:
        return Verdict(
            False,
            message=f"The sums are right, but take {rounds} rounds, one message at a time on each rank; a tree of "
            f"{size} ranks takes {most}.",
            expected=f"at most {most} rounds",
            got=f"{rounds} rounds",
        )
    return None


def _one_after_another(case: Case, got: Got, wire: Wire) -> bool:
    members = members_of(case)
    real = [message for message in wire.messages if message.bytes]
    return isinstance(got, tuple) and len(members) > 3 and len(real) == 2 * (len(members) - 1)


def _down_forwards(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether rank 0 is right and the last round's partner of rank 0 is, and its own children are not."""
    came, size = sum_marks.views(case, got), len(members_of(case))
    if came is None or size < 4 or not isinstance(got, tuple) or wrong_values(case, got) is None:
        return False
    members = members_of(case)
    place = {rank: index for index, rank in enumerate(members)}
    ups = {(place[m.src], place[m.dst]) for m in wire.messages if {m.src, m.dst} <= set(members) and m.src > m.dst}
    downs = {(b, a) for a, b in _pairs_of(case, wire, place) if a < b}
    exact = exact_reduction(case)[0].reshape(-1).double()
    right = [bool(torch.equal(view.double(), exact)) for view in came]
    tree = {(r + d, r) for d in (1, 2, 4, 8) for r in range(0, size, 2 * d) if r + d < size}
    return ups == tree == downs and right[0] and right[1]


def _pairs_of(case: Case, wire: Wire, place: dict[int, int]) -> set[tuple[int, int]]:
    return {(place[m.src], place[m.dst]) for m in wire.messages if m.src in place and m.dst in place}


def _too_few_rounds(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether rank 0 has the sum of the first 2, 4 or 8 ranks, of more."""
    table, size = sum_marks.shares(case, got), len(members_of(case))
    reached = [count for count in (2, 4, 8) if count < size]
    return bool(table) and any(
        share == (1,) * count + (0,) * (size - count) for count in reached for share in (table or [[]])[0][:1]
    )


def _needs_power_of_two(case: Case, got: Got, wire: Wire) -> bool:
    size = len(members_of(case))
    return size & (size - 1) != 0 and isinstance(got, Failure) and sum_marks.stranger(case, got, wire)


EXERCISE = judged(
    id="tree_all_reduce",
    functions=("tree_all_reduce",),
    driver=drive,
    oracle=expected_bases,
    judge=judge_tree,
    visible=(
        sum_case(51, 4, (5,)),
        sum_case(52, 3, (4,)),
        sum_case(53, 5, (2, 3)),
        sum_case(54, 5, (3,), group=(1, 3, 4)),
        sum_case(55, 8, (6,)),
    ),
    hints=(
        "With 8 ranks, which four send in the first round, and to whom, so that four ranks are left?",
        "With distance d = 1, 2, 4, ...: a rank whose number is an odd multiple of d sends to rank - d and is done; "
        "an even multiple of d receives from rank + d, if there is one, and adds. The way down is the same backwards.",
        "if rank % (2 * d) == d: dist.send(tensor, group_dst=rank - d, group=group); elif rank % (2 * d) == 0 and "
        "rank + d < n: dist.recv(incoming, group_src=rank + d, group=group); tensor += incoming. Then for d reversed, "
        "send and receive swapped.",
    ),
    sweep=sweep(lambda size: sum_case(100 + size, size, (3,)), tree_steps),
    mistakes=(
        mistakes.LIBRARY,
        mistakes.BLOCKING_SENDS,
        mistakes.NOT_IN_PLACE,
        mistakes.DIVIDED,
        mistakes.ROOT_ONLY,
        Mistake(
            "down in the order of the way up",
            "The way down goes backwards: take the distances in reverse order, the largest first, or a rank hands on "
            "the total before it has it.",
            _down_forwards,
        ),
        Mistake(
            "everything through rank 0",
            "Rank 0 talks to every rank itself: that is the sum through the root again, N-1 rounds each way. In a "
            "tree other ranks add too, at the same time.",
            lambda case, got, wire: len(members_of(case)) > 3 and sum_marks.all_through_one(case, got, wire),
        ),
        mistakes.EVERYBODY,
        Mistake(
            "one after another",
            "The messages are right in number but follow one another: pair the ranks so that half of those left send "
            "in each round.",
            _one_after_another,
        ),
        Mistake(
            "too few rounds",
            "The first 2, 4 or 8 ranks are in the sum and those after them are not: the distances go on doubling, "
            "1, 2, 4, 8, ..., as long as they are smaller than the number of ranks.",
            _too_few_rounds,
        ),
        mistakes.TWICE,
        mistakes.GROUP_RANKS,
        Mistake(
            "only for powers of two",
            "With a number of ranks that is no power of two a partner may not exist: check rank + d < N before "
            "receiving from or sending to it.",
            _needs_power_of_two,
        ),
        mistakes.BLOCKING_RECVS,
        mistakes.SOME_MISSING,
    ),
)
