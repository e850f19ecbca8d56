"""The binomial tree."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from labkit.checks.case import Case, Failure, Values
from labkit.checks.declared import declared
from labkit.checks.finding import Finding
from labkit.checks.hanging import looks_for_a_stranger
from labkit.checks.structure import and_more
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.collectives.tree_all_reduce.driver import drive
from labkit.exercises.sums_over_ranks.rounds import doublings, is_power_of_two, rounds_of
from labkit.exercises.sums_over_ranks.sum_mistakes import common, reworded, sum_mistake
from labkit.exercises.sums_over_ranks.sum_outcome import SumOutcome, sum_outcome, wrong_sums
from labkit.exercises.sums_over_ranks.sums import expected_bases, is_second_use, least_traffic, members_of, sum_case
from labkit.exercises.sums_over_ranks.traffic import (
    EVERYBODY,
    outsiders,
    passes_through_one,
    sends_to_everyone,
    tensor_bytes,
    total_text,
)
from labkit.exercises.sums_over_ranks.world_sizes import sweep, tree_steps

_DOWN, _THROUGH_ROOT, _ONE_BY_ONE, _FEW, _POWERS = (
    "down in the order of the way up", "everything through rank 0", "one after another", "too few rounds",
    "only for powers of two",
)  # fmt: skip
_OVER_ITS_OWN, _NEW_NAME = "received over its own numbers", "added under a new name"
_BOTH_WAYS = "more messages than in a tree"


def _hands_on_too_early(came: SumOutcome) -> bool:
    """Return whether the way up is right, and the way down has its pairs and not its order."""
    size, place = len(came.members), {rank: index for index, rank in enumerate(came.members)}
    sent = {(place.get(m.src, -1), place.get(m.dst, -1)) for m in came.wire.messages}
    up = {(rank + d, rank) for d in (1, 2, 4, 8) for rank in range(0, size, 2 * d) if rank + d < size}
    right = [torch.equal(view.double(), came.exact.double()) for view in came.views[:2]]
    return size > 3 and sent == up | {(low, high) for high, low in up} and all(right)


def _stops_early(came: SumOutcome) -> bool:
    """Return whether rank 0 has the sum of the first 2, 4 or 8 ranks, of more."""
    size = len(came.members)
    return any(came.shares[0][:1] == [(1,) * count + (0,) * (size - count)] for count in (2, 4, 8) if count < size)


def _passes_through_root(case: Case, wire: Wire) -> bool:
    return len(members_of(case)) > 3 and passes_through_one(case, wire)


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with the sums, or with the way they came: 2(N-1) tensors in 2 ceil(log2 N) rounds."""
    yield from library_calls(wire)
    yield from wrong_sums(sum_outcome(case, got, wire))
    yield from outsiders(case, wire)
    if not is_second_use(case):
        yield from _tree_traffic(case, wire)
    yield from lost_messages(wire)


def _tree_traffic(case: Case, wire: Wire) -> Iterator[Finding]:
    size, whole = len(members_of(case)), tensor_bytes(case)
    real = [message for message in wire.messages if message.bytes]
    needed, most = 2 * (size - 1), 2 * doublings(size)
    if len(real) > needed or sum(m.bytes for m in real) > needed * whole:
        text = f"The sums are right, with {total_text(real)} among all ranks; a tree needs {needed} of {whole} bytes."
        mistake = EVERYBODY if sends_to_everyone(case, wire) else _BOTH_WAYS
        yield Finding(mistake, text, f"{needed} messages of {whole} bytes", total_text(real))
    if (rounds := rounds_of(real)) > most:
        text = f"The sums are right, but take {rounds} rounds, one message at a time on each rank; a tree of {size} "
        mistake = _THROUGH_ROOT if _passes_through_root(case, wire) else _ONE_BY_ONE
        yield Finding(mistake, f"{text}ranks takes {most}.", f"at most {most} rounds", f"{rounds} rounds")


def _finds_no_partner(case: Case, failure: Failure, wire: Wire) -> bool:
    alone = "itself" in failure.message + failure.detail or any(wait.rank == wait.peer for wait in failure.waits)
    stranger = alone or looks_for_a_stranger(case, failure, wire)
    return not is_power_of_two(len(members_of(case))) and stranger


def _adders(size: int) -> set[int]:
    """Return the group ranks that receive on the way up."""
    return {rank for rank in range(0, size, 2) if rank + 1 < size}


def _receives_over_its_own(came: SumOutcome) -> bool:
    """Return whether every rank has what rank 0 gets if a rank that receives on the way up loses its own numbers.

    It then adds what came to itself, or adds nothing.
    """
    size = len(came.members)
    for factor in (2, 1):
        held, distance = [each.double() for each in came.inputs], 1
        while distance < size:
            for rank in range(0, size - distance, 2 * distance):
                held[rank] = factor * held[rank + distance]
            distance *= 2
        if size > 1 and came.is_near(held[0], 1e-6):
            return True
    return False


def _adds_under_a_new_name(came: SumOutcome) -> bool:
    """Return whether exactly the ranks that add on the way up hold their own numbers still, and the others the sum."""
    adders, wanted = _adders(len(came.members)), came.exact.double()
    return bool(adders) and all(
        torch.equal(view, mine) if place in adders else torch.equal(view.double(), wanted)
        for place, (view, mine) in enumerate(zip(came.views, came.inputs, strict=True))
    )


EXERCISE = declared(
    id="tree_all_reduce",
    functions=("tree_all_reduce",),
    driver=drive,
    oracle=expected_bases,
    structure=and_more(expected_bases, returned=str, raised=str),
    looks=(find,),
    least=least_traffic,
    visible=(
        sum_case(51, 4, (5,)),
        sum_case(52, 3, (4,)),
        sum_case(53, 5, (2, 3)),
        sum_case(54, 5, (3,), group=(1, 3, 4)),
        sum_case(55, 8, (6,)),
        sum_case(56, 4, (3,), dtype=torch.float64),
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
        *common(
            "calls the library",
            "buffer of another type",
            "everybody sends first",
            "nobody sent anything",
            "not in place",
            "mean instead of sum",
            "only rank 0 has the sum",
        ),
        sum_mistake(_OVER_ITS_OWN,
                    "What came on the way up was received into tensor, over this rank's own numbers: receive into a "
                    "buffer, incoming = torch.empty_like(tensor), then tensor += incoming.",
                    came=_receives_over_its_own),
        sum_mistake(_NEW_NAME,
                    "The ranks that add on the way up still hold their own numbers, and the others have the sum: "
                    "tensor = tensor + incoming makes a new tensor, and the caller's stays as it was. Add in place: "
                    "tensor += incoming.", came=_adds_under_a_new_name),
        sum_mistake(_DOWN,
                    "The way down is the way up in reverse: take the largest distance first, or a rank passes on the "
                    "total before it has it.", came=_hands_on_too_early),
        sum_mistake(_THROUGH_ROOT,
                    "Rank 0 talks to every rank itself: that is the sum through the root again, N-1 rounds each way. "
                    "In a tree other ranks add too, at the same time.",
                    came=lambda came: _passes_through_root(came.case, came.wire)),
        *common(EVERYBODY, "remainder dropped"),
        sum_mistake(_BOTH_WAYS,
                    "More messages travel than in a tree. On the way up one of each pair sends and drops out, and the "
                    "other receives; the same pairs, the other way round, are the way down."),
        sum_mistake(_ONE_BY_ONE,
                    "The number of messages is right, but they follow one another: pair the ranks so that half of the "
                    "remaining ones send in each round."),
        sum_mistake(_FEW,
                    "Only the first 2, 4 or 8 ranks are in the sum: keep doubling the distance, 1, 2, 4, 8, ..., as "
                    "long as it is smaller than the number of ranks.", came=_stops_early),
        *common("group ranks taken for global ranks"),
        sum_mistake(_POWERS,
                    "With a number of ranks that is no power of two a partner may not exist: check rank + d < N "
                    "before receiving from or sending to it. A rank left over waits for the next round, and no other "
                    "rank takes the missing one's place.", failed=_finds_no_partner),
        *common("everybody receives first"),
        reworded("contributions missing",
                 "Some contributions never came into the sum. On the way up a rank that receives adds what came, "
                 "tensor += incoming, after recv has returned, and hands its sum on only then."),
    ),
)  # fmt: skip
