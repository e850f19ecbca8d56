"""Recursive halving and doubling."""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce import sum_mistakes as mistakes
from labkit.exercises.ring_all_reduce.halving_doubling.driver import drive
from labkit.exercises.ring_all_reduce.sums import (
    base_of,
    expected_bases,
    input_of,
    members_of,
    reduce_case,
    whole_numbers,
    wrong_values,
)
from labkit.exercises.ring_all_reduce.traffic import library_calls, lost_messages, tensor_bytes, total_text
from labkit.exercises.ring_all_reduce.tree_all_reduce.exercise import doublings
from labkit.exercises.ring_all_reduce.world_sizes import sweep, tree_steps
from labkit.words import ranks_in_words


def halving_case(seed: int, world_size: int, numel: int) -> Case:
    """Return a case of halving_doubling; where the world size is no power of two a ValueError is asked for."""
    word = "elements" if numel != 1 else "element"
    name = f"{world_size} ranks, {numel} {word}"
    if not is_power_of_two(world_size):
        name += ": ValueError"
    return reduce_case(name, whole_numbers(seed, world_size, (numel,)), extra={"catch": True})


def is_power_of_two(count: int) -> bool:
    """Return whether `count` is 1, 2, 4, 8, ..."""
    return count & (count - 1) == 0


def halving_expected(case: Case) -> list[Values]:
    """Return the sums, or for other world sizes the tensors as they were (the oracle)."""
    if is_power_of_two(case.world_size):
        return expected_bases(case)
    return [{"base": base_of(case, rank)} for rank in range(case.world_size)]


def judge_halving(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether the sums are right and came by halving and doubling with the partners rank XOR 2^k."""
    assert isinstance(got, tuple)
    raised = [cast(str, values.get("raised")) or "" for values in got]
    if not is_power_of_two(case.world_size):
        quiet = [rank for rank, text in enumerate(raised) if not text.startswith("ValueError")]
        if quiet:
            return Verdict(
                False,
                message=f"{case.world_size} is no power of two: ValueError was expected, {ranks_in_words(quiet)} "
                f"raised none.",
                expected="ValueError on every rank",
                got=f"none on {ranks_in_words(quiet)}",
                rank=quiet[0],
            )
        return Verdict(True)
    for rank, text in enumerate(raised):
        if text:
            return Verdict(
                False, message=f"Rank {rank} raised {text}, but {case.world_size} is a power of two.", rank=rank
            )
    return (
        library_calls(wire)
        or wrong_values(case, got)
        or _halving_traffic(case, wire)
        or lost_messages(wire)
        or Verdict(True)
    )


def _halving_traffic(case: Case, wire: Wire) -> Verdict | None:
    size, item = case.world_size, 4
    numel = tensor_bytes(case) // item
    halved = sum(math.ceil(numel / 2**k) for k in range(1, doublings(size) + 1))
    chunks = (size - 1) * math.ceil(numel / size)  # where not the tensor is halved, but a row of chunks
    most_bytes = 2 * item * max(halved, chunks)
    most_messages = 2 * doublings(size)
    for rank in range(size):
        partners = {rank ^ 2**k for k in range(doublings(size))}
        strangers = set(wire.peers(rank)) - partners
        if strangers:
            return Verdict(
                False,
                message=f"The sums are right, but rank {rank} sends to {ranks_in_words(strangers)}; its partners are "
                f"{ranks_in_words(partners)}, its own number with one bit flipped.",
                rank=rank,
                call=wire.first_send(rank, strangers),
            )
        sent = wire.sent_by(rank)
        if len(sent) > most_messages or sum(m.bytes for m in sent) > most_bytes:
            return Verdict(
                False,
                message=f"The sums are right, but rank {rank} sends {total_text(sent)}; halving and doubling need "
                f"{most_messages} messages with {most_bytes} bytes at most.",
                expected=f"at most {most_messages} messages, {most_bytes} bytes",
                got=total_text(sent),
                rank=rank,
            )
    return None


def _no_error(case: Case, got: Got, wire: Wire) -> bool:
    return not is_power_of_two(case.world_size)


def _whole_to_partner(case: Case, got: Got, wire: Wire) -> bool:
    whole = tensor_bytes(case)
    return (
        case.world_size > 2
        and whole > 8
        and all(
            wire.sent_by(rank) and min(m.bytes for m in wire.sent_by(rank)) == whole for rank in range(case.world_size)
        )
    )


def _same_half(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether partners with an odd range sent each other as many elements in the first round."""
    numel, distance = tensor_bytes(case) // 4, case.world_size // 2
    if not isinstance(got, Failure) or case.world_size < 2 or not is_power_of_two(case.world_size):
        return False
    firsts = {}
    for rank in range(case.world_size):
        firsts[rank] = next((m.bytes for m in wire.sent_by(rank) if m.dst == rank ^ distance), None)
    return numel % 2 == 1 and firsts[0] is not None and firsts[0] == firsts[distance] and 0 < firsts[0] < 4 * numel


def _uneven_halves(case: Case, got: Got, wire: Wire) -> bool:
    odd = input_of(case, members_of(case)[0]).numel() % case.world_size != 0
    if isinstance(got, Failure) and "size" not in got.message and "shape" not in got.message:
        return False
    came = got[0].get("base") if isinstance(got, tuple) else None
    failed = isinstance(got, Failure) or not isinstance(came, Tensor) or bool(cast(str, got[0].get("raised")))
    return odd and failed


EXERCISE = judged(
    id="halving_doubling",
    functions=("halving_doubling_all_reduce",),
    driver=drive,
    oracle=halving_expected,
    judge=judge_halving,
    visible=(
        halving_case(63, 4, 7),
        halving_case(61, 2, 5),
        halving_case(62, 4, 8),
        halving_case(64, 8, 19),
        halving_case(65, 3, 4),
    ),
    hints=(
        "In the first step two ranks hold a whole tensor each. How can they share the adding so that each sends half?",
        "For distance N/2, N/4, ..., 1 the partner is rank ^ distance: one of the two keeps the lower half of the "
        "part they share, the other the upper; each sends the half it gives away and adds what arrives to the half it "
        "keeps. Then the same way back: send the part you own, receive the partner's.",
        "middle = mine.numel() // 2; low, high = mine[:middle], mine[middle:]; theirs, mine = (low, high) if rank & "
        "distance else (high, low); swap in one batch_isend_irecv; mine += incoming. Keep (partner, theirs, mine) and "
        "go back over them in reverse.",
    ),
    sweep=sweep(lambda size: halving_case(100 + size, size, 2 * size + 1), tree_steps),
    mistakes=(
        mistakes.LIBRARY,
        Mistake(
            "no error",
            "A world size that is no power of two must raise ValueError on every rank before anything is sent.",
            _no_error,
        ),
        mistakes.BLOCKING_SENDS,
        mistakes.IN_FLIGHT,
        mistakes.NOT_IN_PLACE,
        mistakes.DIVIDED,
        Mistake(
            "both keep the same half",
            "Both partners gave away the same half, so both keep the other one: one must keep the lower half and the "
            "other the upper. rank & distance is 0 on one of them and not on the other.",
            _same_half,
        ),
        Mistake(
            "whole tensor to each partner",
            "Each message holds the whole tensor (that is recursive doubling). Send only the half that the partner "
            "keeps.",
            _whole_to_partner,
        ),
        mistakes.NO_GATHER,
        mistakes.THROUGH_ONE,
        mistakes.EVERYBODY,
        mistakes.TWICE,
        Mistake(
            "halves of different sizes",
            "A part with an odd number of elements has halves of different sizes: the partner must receive exactly as "
            "many as are sent.",
            _uneven_halves,
        ),
        mistakes.BLOCKING_RECVS,
        mistakes.ONE_STEP_SHORT,
        mistakes.SOME_MISSING,
    ),
)
