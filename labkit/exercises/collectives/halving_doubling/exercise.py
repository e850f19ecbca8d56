"""Recursive halving and doubling."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from labkit.checks.case import Case, Failure, Values
from labkit.checks.declared import declared
from labkit.checks.failures import sizes_differ
from labkit.checks.finding import Finding
from labkit.checks.hanging import hangs
from labkit.checks.structure import and_more
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.collectives.asked_error import NEEDLESS, NO_ERROR, sums_unless, wrong_errors
from labkit.exercises.collectives.halving_doubling.driver import drive
from labkit.exercises.sums_over_ranks.rounds import doublings, is_power_of_two
from labkit.exercises.sums_over_ranks.sum_mistakes import common, reworded, sum_mistake
from labkit.exercises.sums_over_ranks.sum_outcome import SumOutcome, sum_outcome, wrong_sums
from labkit.exercises.sums_over_ranks.sums import input_of, is_second_use, least_traffic, reduce_case, whole_numbers
from labkit.exercises.sums_over_ranks.traffic import (
    EVERYBODY,
    THROUGH_ONE,
    itemsize_of,
    passes_through_one,
    sends_to_everyone,
    tensor_bytes,
    total_text,
)
from labkit.exercises.sums_over_ranks.world_sizes import sweep, tree_steps
from labkit.words import plural, ranks_in_words

_EMPTY, _WRONG_ERROR, _NO_PAIR = (
    "an empty half is sent", "an error of another kind", "partners that are no pair",
)  # fmt: skip
_SAME_HALF, _WHOLE, _UNEVEN = "halves that do not fit", "whole tensor to each partner", "halves of different sizes"

_BACK_WHOLE = "the whole tensor on the way back"
_AS_THERE = "back in the order of the way there"


def halving_case(seed: int, world_size: int, numel: int, dtype: torch.dtype = torch.float32) -> Case:
    """Return a case of halving_doubling; where the world size is no power of two a ValueError is asked for."""
    kind = "" if dtype == torch.float32 else f", {str(dtype).removeprefix('torch.')}"
    error = "" if is_power_of_two(world_size) else ": ValueError"
    name = f"{world_size} ranks, {plural(numel, 'element')}{kind}{error}"
    return reduce_case(name, whole_numbers(seed, world_size, (numel,), dtype), extra={"catch": True})


def _asks_for_error(case: Case) -> bool:
    return not is_power_of_two(case.world_size)


def _sends_whole_tensors(case: Case, wire: Wire) -> bool:
    sent = [wire.sent_by(rank) for rank in range(case.world_size)]
    whole = tensor_bytes(case)
    return case.world_size > 2 and whole > 8 and all(each and min(m.bytes for m in each) == whole for each in sent)


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with the sums, or with the way they came: halved and doubled with partners rank XOR 2^k."""
    asked = _asks_for_error(case)
    odd = input_of(case, 0).numel() % case.world_size != 0
    reason = f"{case.world_size} is {'no' if asked else 'a'} power of two"
    yield from wrong_errors(got, asked, reason, _UNEVEN if odd else "")
    if asked:
        return
    yield from library_calls(wire)
    yield from wrong_sums(sum_outcome(case, got, wire))
    if not is_second_use(case):
        yield from _halving_traffic(case, wire)
    yield from lost_messages(wire)


def _halving_traffic(case: Case, wire: Wire) -> Iterator[Finding]:
    size, numel = case.world_size, input_of(case, 0).numel()
    halved = sum(math.ceil(numel / 2**k) for k in range(1, doublings(size) + 1))
    chunks = (size - 1) * math.ceil(numel / size)  # where not the tensor is halved, but a row of chunks
    most_bytes, most = 2 * itemsize_of(case) * max(halved, chunks), 2 * doublings(size)
    for message in wire.messages:
        if not message.bytes:
            text = f"The sums are right, but rank {message.src} sent rank {message.dst} a message of 0 bytes."
            yield Finding(_EMPTY, text, rank=message.src, call=message.sent)
    for rank in range(size):
        sent, partners = wire.sent_by(rank), {rank ^ 2**k for k in range(doublings(size))}
        strangers = set(wire.peers(rank)) - partners
        if strangers:
            yield Finding(
                THROUGH_ONE if passes_through_one(case, wire) else EVERYBODY if sends_to_everyone(case, wire) else "",
                f"The sums are right, but rank {rank} sends to {ranks_in_words(strangers)}; its partners are "
                f"{ranks_in_words(partners)}, its own number with one bit flipped.",
                rank=rank,
                call=wire.first_send(rank, strangers),
            )
        if len(sent) > most or sum(m.bytes for m in sent) > most_bytes:
            yield Finding(
                _WHOLE if _sends_whole_tensors(case, wire) else "",
                f"The sums are right, but rank {rank} sends {total_text(sent)}; halving and doubling need "
                f"{most} messages with {most_bytes} bytes at most.",
                f"at most {most} messages, {most_bytes} bytes",
                total_text(sent),
                rank,
            )


def _kept_the_same_half(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether partners with an odd range sent each other as many elements in the first round."""
    whole, far = tensor_bytes(case), case.world_size // 2
    if _asks_for_error(case) or not far:
        return False
    first, second = (next((m.bytes for m in wire.sent_by(a) if m.dst == b), 0) for a, b in ((0, far), (far, 0)))
    return input_of(case, 0).numel() % 2 == 1 and first == second and 0 < first < whole


def _raised_another(case: Case, failure: Failure, wire: Wire) -> bool:
    return _asks_for_error(case) and failure.error == "AssertionError"


def _waits_in_a_circle(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether no rank that waits is waited for by the one that it waits for."""
    peers = {wait.rank: wait.peer for wait in failure.waits if wait.peer is not None}
    return hangs(failure) and len(peers) > 2 and not any(peers.get(peer) == rank for rank, peer in peers.items())


def _back_as_there(came: SumOutcome) -> bool:
    """Return whether each rank met its partners on the way back in the order of the way there, not in reverse."""
    rounds = doublings(came.case.world_size)
    sent = [[message.dst for message in came.wire.sent_by(rank)] for rank in range(came.case.world_size)]
    return rounds > 1 and all(len(to) == 2 * rounds and to[rounds:] == to[:rounds] for to in sent)


def _goes_back_whole(came: SumOutcome) -> bool:
    """Return whether halves went there, and whole tensors came back."""
    rounds, whole = doublings(came.case.world_size), tensor_bytes(came.case)
    sent = [[message.bytes for message in came.wire.sent_by(rank)] for rank in range(came.case.world_size)]
    return rounds > 0 and all(
        len(sizes) == 2 * rounds and max(sizes[:rounds]) < min(sizes[rounds:]) == whole for sizes in sent
    )


def _cut_unevenly(case: Case, failure: Failure, wire: Wire) -> bool:
    odd = input_of(case, 0).numel() % case.world_size != 0
    return odd and (sizes_differ(failure) or "size" in failure.message or "shape" in failure.message)


EXERCISE = declared(
    id="halving_doubling",
    functions=("halving_doubling_all_reduce",),
    driver=drive,
    oracle=lambda case: sums_unless(case, _asks_for_error(case)),
    structure=and_more(lambda case: sums_unless(case, _asks_for_error(case)), returned=str, raised=str),
    looks=(find,),
    least=lambda case: {} if _asks_for_error(case) else least_traffic(case),
    visible=(
        halving_case(63, 4, 7),
        halving_case(61, 2, 5),
        halving_case(62, 4, 8),
        halving_case(64, 8, 19),
        halving_case(67, 8, 3),
        halving_case(65, 3, 4),
        halving_case(66, 4, 8, torch.float64),
    ),
    hints=(
        "In the first step two ranks each hold a whole tensor. How can they share the additions so that each sends "
        "half?",
        "For distance N/2, N/4, ..., 1 the partner is rank ^ distance: one of the two keeps the lower half of the "
        "part they share, the other the upper; each sends the half it gives away and adds what arrives to the half it "
        "keeps. Then go back the same way: send the part you own, receive the partner's.",
        "middle = mine.numel() // 2; low, high = mine[:middle], mine[middle:]; theirs, mine = (low, high) if rank & "
        "distance else (high, low); swap in one batch_isend_irecv; mine += incoming. Keep (partner, theirs, mine) and "
        "go back over them in reverse.",
    ),
    sweep=sweep(lambda size: halving_case(100 + size, size, 2 * size + 1), tree_steps),
    mistakes=(
        *common("calls the library"),
        sum_mistake(_WRONG_ERROR,
                    "A world size that is no power of two must raise ValueError on every rank; this error is of "
                    "another kind.", failed=_raised_another, certain=True),
        sum_mistake(_NO_PAIR,
                    "The ranks wait in a circle: your partner's partner must be you. rank ^ distance makes such pairs.",
                    failed=_waits_in_a_circle),
        sum_mistake(_EMPTY, "A message was sent for an empty half: leave out both its send and its receive."),
        sum_mistake(NO_ERROR,
                    "A world size that is no power of two must raise ValueError on every rank before anything is sent.",
                    failed=lambda case, failure, wire: _asks_for_error(case)),
        *common(
            "buffer of another type",
            "everybody sends first",
            "nobody sent anything",
            "not in place",
            "mean instead of sum",
        ),
        sum_mistake(_SAME_HALF,
                    "Of an odd range, both partners gave away as many elements: both gave away the same half, or they "
                    "cut at two places. Both cut at the same one, and one keeps the lower half, the other the upper: "
                    "rank & distance is 0 on one of them and not on the other.",
                    failed=_kept_the_same_half),
        sum_mistake(_WHOLE,
                    "Each message holds the whole tensor (that is recursive doubling). Send only the half that the "
                    "partner keeps.", came=lambda came: _sends_whole_tensors(came.case, came.wire),
                    failed=lambda case, failure, wire: _sends_whole_tensors(case, wire)),
        sum_mistake(_AS_THERE,
                    "The way back is the way there in reverse: the partner of the last round comes first. In the order "
                    "of the way there a rank hands on a part that is not complete yet.", came=_back_as_there),
        sum_mistake(_BACK_WHOLE,
                    "On the way back every message holds the whole tensor, and writes partial sums over complete ones. "
                    "Send the part that is complete here, and receive into the partner's alone.",
                    came=_goes_back_whole),
        *common("no all-gather", THROUGH_ONE, EVERYBODY, "a contribution added twice"),
        sum_mistake(_UNEVEN,
                    "A part with an odd number of elements has halves of different sizes: the partner must receive "
                    "exactly as many as are sent. A rank sends the half that its partner keeps, and receives as many "
                    "elements as the half that it keeps itself.", failed=_cut_unevenly),
        *common("everybody receives first"),
        reworded("contributions missing",
                 "Some contributions never arrived: look at the phase in which the ranks that are named should have "
                 "been added."),
        NEEDLESS,
    ),
)  # fmt: skip
