"""Mistakes learners make in any all-reduce, and the marks they leave in results and on the wire."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got
from labkit.checks.contributions import Shares
from labkit.checks.lesson_02.sums import (
    exact_reduction,
    input_of,
    layout_of,
    members_of,
    op_of,
    shares_at,
    view_that_came,
    wrong_values,
)
from labkit.checks.lesson_02.traffic import chunk_bytes, tensor_bytes
from labkit.checks.verdict import Mistake
from labkit.checks.wire import Wire

Seen = Callable[[Case, Got, Wire], bool]
_WAITING = re.compile(r"\bi?(?:send|recv)\b")


def views(case: Case, got: Got) -> list[Tensor] | None:
    """Return the flat view that came back from each member, or None after a failure or a malformed result."""
    found = [view_that_came(case, got, rank) for rank in members_of(case)]
    return None if any(view is None for view in found) else cast(list[Tensor], found)


def shares(case: Case, got: Got) -> list[list[Shares]] | None:
    """Return for each member which contributions its elements hold, or None where that cannot be told."""
    found = [shares_at(case, got, rank) for rank in members_of(case)]
    return None if any(item is None for item in found) else cast(list[list[Shares]], found)


def is_scaled(case: Case, got: Got, factor: float) -> bool:
    """Return whether every member holds the right result times `factor`."""
    came = views(case, got)
    if came is None or not came[0].numel() or factor == 1:
        return False
    exact = exact_reduction(case)[0].reshape(-1).double() * factor
    slack = 1e-4 if came[0].element_size() > 2 else 2e-2
    return all(bool(torch.allclose(view.double(), exact, rtol=slack, atol=1e-9)) for view in came)


def unchanged(case: Case, got: Got) -> bool:
    """Return whether every member's tensor is as it was."""
    came = views(case, got)
    return came is not None and all(
        torch.equal(view, input_of(case, rank)) for view, rank in zip(came, members_of(case), strict=True)
    )


def waits_in(got: Got, operation: str) -> bool:
    """Return whether a run hung with every waiting rank in this kind of call ("send" or "recv")."""
    if not isinstance(got, Failure) or got.kind not in ("deadlock", "timeout"):
        return False
    operations = [wait.operation for wait in got.waits] or _WAITING.findall(got.detail)
    return bool(operations) and all(operation in each for each in operations)


def stranger(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a rank waits for, or sent to, a rank that the world does not have."""
    if not isinstance(got, Failure):
        return False
    waited = any(wait.peer is not None and wait.peer >= case.world_size for wait in got.waits)
    return waited or any(message.dst >= case.world_size for message in wire.messages)


def hangs(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the run hung."""
    return isinstance(got, Failure) and got.kind in ("deadlock", "timeout")


def _complete(share: Shares) -> bool:
    return share is not None and set(share) == {1}


def _partial(share: Shares) -> bool:
    return share is not None and max(share) == 1 and min(share) == 0


def counts(case: Case, got: Got) -> tuple[int, list[float]] | None:
    """Return the elements of a tensor, and for each member which part of them is complete."""
    table = shares(case, got)
    if not table or not table[0]:
        return None
    return len(table[0]), [sum(map(_complete, row)) / len(row) for row in table]


def _no_gather(case: Case, got: Got, wire: Wire) -> bool:
    table, found, size = shares(case, got), counts(case, got), len(members_of(case))
    if table is None or found is None or size < 3:
        return False
    slack = 1 / found[0]
    return all(0 < part <= 1 / size + slack for part in found[1]) and all(
        _complete(s) or _partial(s) for row in table for s in row
    )


def _one_step_short(case: Case, got: Got, wire: Wire) -> bool:
    found, size = counts(case, got), len(members_of(case))
    if found is None or size < 3:
        return False
    return all(1 - 1 / size - 1 / found[0] - 1e-9 <= part < 1 for part in found[1])


def _root_only(case: Case, got: Got, wire: Wire) -> bool:
    found = counts(case, got)
    return found is not None and len(found[1]) > 1 and found[1][0] == 1 and not any(found[1][1:])


def _twice(case: Case, got: Got, wire: Wire) -> bool:
    table = shares(case, got)
    return table is not None and any(s is not None and max(s) > 1 for row in table for s in row)


def _tail(case: Case, got: Got, wire: Wire) -> bool:
    table, size = shares(case, got), len(members_of(case))
    if table is None or not table[0] or len(table[0]) % size == 0:
        return False
    keep = len(table[0]) // size * size
    return all(all(map(_complete, row[:keep])) and not any(map(_complete, row[keep:])) for row in table)


def _float_detour(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    before = cast(Tensor, case.inputs[0]["tensor"]).dtype
    after = got[members_of(case)[0]].get("base")
    return isinstance(after, Tensor) and (after.dtype != before or not before.is_floating_point)


def _whole_tensor(case: Case, got: Got, wire: Wire) -> bool:
    members, whole = members_of(case), tensor_bytes(case)
    if len(members) < 3 or whole <= chunk_bytes(case, len(members)):
        return False
    largest = [max((m.bytes for m in wire.sent_by(rank)), default=0) for rank in members]
    one_neighbour = all(len(wire.peers(rank)) == 1 for rank in members)
    return one_neighbour and min(largest) * (4 // min(4, _itemsize(case))) >= whole


def _itemsize(case: Case) -> int:
    return input_of(case, members_of(case)[0]).element_size()


def _everything_to_everyone(case: Case, got: Got, wire: Wire) -> bool:
    members = members_of(case)
    return len(members) > 2 and all(len(wire.peers(rank)) == len(members) - 1 for rank in members)


def _all_through_one(case: Case, got: Got, wire: Wire) -> bool:
    members = members_of(case)
    if len(members) < 3 or not wire.messages:
        return False
    return any(all(rank in (m.src, m.dst) for m in wire.messages) for rank in members)


def _group_ranks(case: Case, got: Got, wire: Wire) -> bool:
    if case.inputs[0].get("group") is None:
        return False
    if isinstance(got, Failure):
        text = got.message.partition(" raised ")[2].lower()
        return got.kind in ("deadlock", "timeout", "died") or "rank" in text or "group" in text
    members = set(members_of(case))
    return not all({m.src, m.dst} <= members for m in wire.messages) or not wire.messages


def changed_in_flight(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the buffer of an isend was written before its wait."""
    return bool(wire.problems_of("changed_in_flight"))


LIBRARY = Mistake(
    "calls the library",
    "You called a collective of torch.distributed; here you build it yourself, from dist.send, dist.recv, dist.isend, "
    "dist.irecv and dist.batch_isend_irecv.",
    lambda case, got, wire: bool(wire.collectives),
)
IN_FLIGHT = Mistake(
    "buffer reused in flight",
    "A buffer was written after isend and before wait: the receiver may get the old or the new numbers. Wait for the "
    "isend, or receive into a buffer of its own.",
    changed_in_flight,
)
BLOCKING_SENDS = Mistake(
    "everybody sends first",
    "Every rank stands in send and nobody receives: a blocking send may wait until its receiver is there. Post "
    "send and "
    "receive together with dist.batch_isend_irecv, or let some ranks receive first.",
    lambda case, got, wire: waits_in(got, "send"),
)
BLOCKING_RECVS = Mistake(
    "everybody receives first",
    "Every rank that waits stands in a receive, and nobody is left who sends: check who sends what to whom, or "
    "post send "
    "and receive together with dist.batch_isend_irecv.",
    lambda case, got, wire: waits_in(got, "recv"),
    general=True,
)
STRANGER = Mistake(
    "a rank that is not there",
    "A rank waits for one that is not there. Either a number of ranks is written into the code (ask "
    "dist.get_world_size(group)), or a modulo is missing: the last rank's right neighbour is rank 0.",
    stranger,
)
NOT_IN_PLACE = Mistake(
    "not in place",
    "Every rank's tensor is as it was: the result must be written into the tensor that was handed in "
    "(tensor.copy_(total), "
    "tensor += incoming), not bound to a new name or returned.",
    lambda case, got, wire: unchanged(case, got) and layout_of(case) != "transposed",
)
NOT_CONTIGUOUS = Mistake(
    "works on a copy of a non-contiguous tensor",
    "This tensor is not contiguous: reshape, flatten and contiguous make a copy of it, and view refuses. Work on a "
    "contiguous copy and copy the result back: tensor.copy_(flat.view(tensor.shape)).",
    lambda case, got, wire: (
        layout_of(case) in ("transposed", "every other", "column")
        and (unchanged(case, got) or (isinstance(got, Failure) and got.kind in ("exception", "died")))
    ),
)
ROOT_ONLY = Mistake(
    "only rank 0 has the sum",
    "Rank 0 has the sum and the others do not: it must be sent back to them.",
    _root_only,
)
DIVIDED = Mistake(
    "mean instead of sum",
    "The numbers are the sum divided by the number of ranks: SUM was asked for, not the mean.",
    lambda case, got, wire: op_of(case) == "SUM" and is_scaled(case, got, 1 / len(members_of(case))),
)
NO_GATHER = Mistake(
    "no all-gather",
    "After the reduce-scatter each rank owns one complete chunk; the others are still partial sums. The second half, "
    "the all-gather, must hand the complete chunks round.",
    _no_gather,
)
ONE_STEP_SHORT = Mistake(
    "one step too few",
    "Every rank is wrong in one chunk only: one step is missing. Each half of the ring takes N-1 steps; the usual "
    "slip is "
    "the last step of the all-gather.",
    _one_step_short,
)
TAIL = Mistake(
    "remainder dropped",
    "The last elements were left out: numel // N loses the remainder. Give the first numel % N chunks one element "
    "more.",
    _tail,
)
TWICE = Mistake(
    "a contribution added twice",
    "Some contributions are in the sum twice. Usual causes: the all-gather adds what arrives instead of "
    "overwriting; the "
    "first step sends the wrong chunk; the chunk that was just received is added and received again.",
    _twice,
    general=True,
)
WHOLE_TENSOR = Mistake(
    "whole tensor at each step",
    "Each message holds the whole tensor. A ring is fast because a message is one chunk, numel/N elements: cut the "
    "tensor "
    "up first.",
    _whole_tensor,
)
EVERYBODY = Mistake(
    "everything to everyone",
    "Every rank sends to every other one. In a ring a rank talks to two neighbours only: it sends to the right and "
    "receives from the left.",
    _everything_to_everyone,
)
THROUGH_ONE = Mistake(
    "reduce to one rank",
    "All messages pass through one rank, whose link carries 2(N-1) tensors. Spread the work: chunks that go round.",
    _all_through_one,
)
GROUP_RANKS = Mistake(
    "group ranks taken for global ranks",
    "With a group, dist.get_rank(group) and dist.get_world_size(group) count within the group, while a peer is a "
    "global "
    "rank: use group_peer=, group_src= and group_dst=, or dist.get_global_rank(group, r); and pass group on to "
    "every call.",
    _group_ranks,
)
SOME_MISSING = Mistake(
    "contributions missing",
    "Some contributions never arrived. Look at the step where the named rank should have been added: the chunk index "
    "modulo N, the neighbour, and the number of steps, N-1 in each half.",
    lambda case, got, wire: any(s is not None and not _complete(s) for row in (shares(case, got) or []) for s in row),
    general=True,
)


def _short_of_elements(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, Failure) or got.kind not in ("exception", "died", "deadlock", "timeout"):
        return False
    members = members_of(case)
    return input_of(case, members[0]).numel() % len(members) != 0 or input_of(case, members[0]).numel() == 0


UNEVEN = Mistake(
    "needs sizes that divide",
    "The tensor's length does not divide by the number of ranks (it may even be shorter, or empty). Sender and "
    "receiver "
    "must agree on each chunk's size: use chunk bounds, and let empty chunks be.",
    _short_of_elements,
    general=True,
)

RING = (
    LIBRARY, STRANGER, IN_FLIGHT, BLOCKING_SENDS, NOT_CONTIGUOUS, NOT_IN_PLACE, DIVIDED, THROUGH_ONE, WHOLE_TENSOR, EVERYBODY,
    NO_GATHER, TAIL, ONE_STEP_SHORT, TWICE, GROUP_RANKS, BLOCKING_RECVS, UNEVEN, SOME_MISSING,
)  # fmt: skip
"""What is tried for an all-reduce over a ring, in this order."""
