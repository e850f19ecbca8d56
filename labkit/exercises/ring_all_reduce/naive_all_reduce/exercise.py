"""The sum through rank 0."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from labkit.checks.case import Case, Failure, Values
from labkit.checks.declared import declared
from labkit.checks.finding import Finding
from labkit.checks.hanging import hangs, looks_for_a_stranger, waits_in
from labkit.checks.structure import and_more
from labkit.checks.traffic import library_calls, lost_messages, unfinished_sends, unread_messages
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce.naive_all_reduce.driver import drive
from labkit.exercises.sums_over_ranks.sum_mistakes import common, reworded, sum_mistake
from labkit.exercises.sums_over_ranks.sum_outcome import SumOutcome, sum_outcome, wrong_sums
from labkit.exercises.sums_over_ranks.sums import expected_bases, least_traffic, sum_case
from labkit.exercises.sums_over_ranks.traffic import NOT_THROUGH_ROOT, root_traffic
from labkit.exercises.sums_over_ranks.world_sizes import sweep

_MEANS = "the others get the mean"
_RECEIVES_INTO = "rank 0 receives into its own tensor"
_ONE_ALONE, _ADDS_TOTAL = "rank 0 hands on one rank's numbers", "the total is added to one's own"
_UNHEARD, _LEFT_OUT, _UNBOUND, _TOO_EARLY, _OVERWRITTEN, _ONLY_ONE, _NOT_THERE = (
    "nobody receives the total", "somebody is not heard", "rank 0 binds the total to a new name",
    "the total is sent too early", "rank 0 overwrites its own part", "only one rank is added",
    "a peer that is not there",
)  # fmt: skip


def _adds_one_only(came: SumOutcome) -> bool:
    return len(came.members) > 2 and any(share and sum(share) == 2 and max(share) == 1 for share in came.shares[0])


def _adds_the_total(came: SumOutcome) -> bool:
    """Return whether rank 0 holds the sum, and each other rank the sum and its own numbers once more."""
    own_twice = [tuple(1 + (part == place) for part in range(len(came.members))) for place in range(len(came.members))]
    others = list(enumerate(came.shares))[1:]
    return came.complete[:1] == [1] and bool(others) and all(set(row) == {own_twice[place]} for place, row in others)


def _others_have_the_mean(came: SumOutcome) -> bool:
    mean = came.exact.double() / len(came.members)
    return (
        came.complete[:1] == [1]
        and len(came.views) > 1
        and all(torch.allclose(view.double(), mean, rtol=1e-5) for view in came.views[1:])
    )


def _kept_by_the_others(came: SumOutcome) -> bool:
    return came.complete[:1] == [0] and all(part == 1 for part in came.complete[1:])


def _holds_the_last(came: SumOutcome) -> bool:
    """Return whether the others hold the total, and rank 0 the numbers of one other rank alone."""
    if not _kept_by_the_others(came):
        return False
    rows = set(came.shares[0])
    return len(rows) == 1 and all(share is not None and share[0] == 0 and sum(share) == 1 for share in rows)


def _some_got_less(came: SumOutcome) -> bool:
    """Return whether rank 0 and the rank that was added last hold the total, and others a part of it."""
    first, *others = came.complete or [0.0]
    return first == 1 and others.count(1) == 1 and others.count(0) == len(others) - 1 > 0


def _hands_on_one_alone(came: SumOutcome) -> bool:
    """Return whether rank 0 holds its own numbers as they were, and all others those of one other rank."""
    rows = came.shares
    if len(rows) < 2 or not all(row and row[0] is not None and set(row) == {row[0]} for row in rows):
        return False
    lone = [row[0] for row in rows if row[0] is not None]
    own = tuple(int(place == 0) for place in range(len(rows)))
    return lone[0] == own and len(set(lone[1:])) == 1 and sum(lone[1]) == 1 and lone[1] != own


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with the sums, or with the way they came: through rank 0."""
    yield from library_calls(wire)
    yield from wrong_sums(sum_outcome(case, got, wire))
    yield from root_traffic(case, wire)
    yield from lost_messages(wire)
    yield from unread_messages(wire)
    yield from unfinished_sends(wire)


def _names_nobody(case: Case, failure: Failure, wire: Wire) -> bool:
    return looks_for_a_stranger(case, failure, wire) or "invalid rank" in str(failure)


def _waits_with_the_total(case: Case, failure: Failure, wire: Wire) -> bool:
    return waits_in(failure, "send") and {wait.rank for wait in failure.waits} == {0}


def _goes_on_too_early(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether rank 0 sends while some, not all, of the others still want to be heard."""
    sending = {wait.rank for wait in failure.waits if "send" in wait.operation}
    return hangs(failure) and 0 in sending and 0 < len(sending) - 1 < case.world_size - 1


EXERCISE = declared(
    id="naive_all_reduce",
    functions=("naive_all_reduce",),
    driver=drive,
    oracle=expected_bases,
    structure=and_more(expected_bases, returned=str, raised=str),
    looks=(find,),
    least=least_traffic,
    visible=(
        sum_case(2, 3, (7,)),
        sum_case(1, 2, (5,)),
        sum_case(3, 4, (2, 3)),
        sum_case(4, 3, (5,), dtype=torch.float64, least=2**25),
        sum_case(5, 2, (3,), dtype=torch.int32),
    ),
    hints=(
        "There are two kinds of rank: rank 0, and all the others. What does each of them send, and when?",
        "Rank 0 receives N-1 tensors, one after another, and adds each of them to its own; then it sends the total N-1 "
        "times. Every other rank sends once, then receives once, into the same tensor.",
        "if rank == 0: for each peer from 1: dist.recv(incoming, src=peer); tensor += incoming; then for each peer "
        "dist.send(tensor, dst=peer). else: dist.send(tensor, dst=0); dist.recv(tensor, src=0).",
    ),
    sweep=sweep(lambda size: sum_case(100 + size, size, (size + 2,))),
    mistakes=(
        *common("calls the library", "buffer of another type", "sums of another type", "in a narrower type",
                "buffer reused in flight", "message not waited for", "send not waited for"),
        sum_mistake(_RECEIVES_INTO,
                    "Rank 0 sent the total, and its own tensor holds what came last: it received into that tensor, and "
                    "added up in another. Receive into a buffer of its own, or copy the total back: "
                    "tensor.copy_(total).", came=_holds_the_last),
        sum_mistake(_UNHEARD,
                    "Rank 0 is stuck in send with the total: every other rank must receive it, dist.recv(tensor, "
                    "src=0).", failed=_waits_with_the_total),
        sum_mistake(_LEFT_OUT,
                    "Rank 0 sends the total before it has received from every other rank: the loop that adds must run "
                    "over all peers, 1 to N-1.", failed=_goes_on_too_early),
        reworded("another operation",
                 "These are the numbers of another operation: what arrives has to be added, tensor += incoming."),
        reworded("everybody sends first", "Every rank is stuck in send: rank 0 must receive while the others send."),
        reworded("everybody receives first",
                 "Every waiting rank is stuck in a receive: the others must send their tensor before they wait for the "
                 "total, and rank 0 must send the total to each of them."),
        sum_mistake(_UNBOUND,
                    "Rank 0 sent the total, and its own tensor does not hold it: tensor = tensor + incoming makes a "
                    "new tensor and leaves the caller's as it was; tensor += incoming writes into it.",
                    came=_kept_by_the_others),
        sum_mistake(_ONE_ALONE,
                    "Rank 0 handed on what one other rank had sent, and its own tensor is as it was: tensor = incoming "
                    "binds the name to what arrived; tensor += incoming adds it.", came=_hands_on_one_alone),
        sum_mistake(_TOO_EARLY,
                    "Rank 0 sent some ranks a sum that was not complete yet: add the tensors of all ranks first, and "
                    "only then send the total, in a second loop.", came=_some_got_less),
        sum_mistake(_MEANS, "The others hold the sum divided by the number of ranks: send the sum as it is.",
                    came=_others_have_the_mean),
        sum_mistake(_ADDS_TOTAL,
                    "Each other rank has added the total to its own numbers, which are in it already: what comes back "
                    "replaces its tensor.", came=_adds_the_total),
        *common("nobody sent anything", "not in place", "mean instead of sum", "only rank 0 has the sum"),
        sum_mistake(_OVERWRITTEN,
                    "Rank 0's own contribution is missing from the sum: receive into a buffer of its own and add that.",
                    came=lambda came: any(share and not share[0] and any(share) for share in came.shares[0])),
        sum_mistake(_ONLY_ONE,
                    "Rank 0 added only one other rank's tensor: for every peer from 1 to N-1, first receive, then add "
                    "what came.", came=_adds_one_only),
        *common("a contribution added twice", "everything to everyone"),
        sum_mistake(NOT_THROUGH_ROOT,
                    "Some messages have rank 0 at neither end. Here every rank sends to rank 0 and gets the total "
                    "from it."),
        sum_mistake(_NOT_THERE,
                    "There is no such rank: they count from 0 to dist.get_world_size() - 1. Is the number of ranks "
                    "written into the code, or a range one too long?", failed=_names_nobody),
    ),
)  # fmt: skip
