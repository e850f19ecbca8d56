"""The marks that mistakes leave in the result of an all-reduce and on the wire."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got
from labkit.checks.contributions import Shares
from labkit.checks.failures import NOBODY_EXPECTED, SIZES_DIFFER
from labkit.checks.wire import Wire
from labkit.errors import NoSuchRank
from labkit.exercises.ring_all_reduce.sums import (
    exact_reduction,
    input_of,
    members_of,
    shares_at,
    view_that_came,
    wrong_values,
)
from labkit.exercises.ring_all_reduce.traffic import chunk_bytes, tensor_bytes

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
    if got.error == NoSuchRank.__name__:
        return True
    waited = any(wait.peer is not None and not 0 <= wait.peer < case.world_size for wait in got.waits)
    return waited or any(not 0 <= message.dst < case.world_size for message in wire.messages)


def hangs(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the run hung."""
    return isinstance(got, Failure) and got.kind in ("deadlock", "timeout")


def complete(share: Shares) -> bool:
    """Return whether every contribution is in a share once."""
    return share is not None and set(share) == {1}


def partial(share: Shares) -> bool:
    """Return whether some contributions are in a share once and others not at all."""
    return share is not None and max(share) == 1 and min(share) == 0


def counts(case: Case, got: Got) -> tuple[int, list[float]] | None:
    """Return the elements of a tensor, and for each member which part of them is complete."""
    table = shares(case, got)
    if not table or not table[0]:
        return None
    return len(table[0]), [sum(map(complete, row)) / len(row) for row in table]


def no_gather(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether each rank has one complete chunk and partial sums elsewhere."""
    table, found, size = shares(case, got), counts(case, got), len(members_of(case))
    if table is None or found is None or size < 3:
        return False
    slack = 1 / found[0]
    return all(0 < part <= 1 / size + slack for part in found[1]) and all(
        complete(s) or partial(s) for row in table for s in row
    )


def one_step_short(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every rank lacks one chunk."""
    found, size = counts(case, got), len(members_of(case))
    if found is None or size < 3:
        return False
    return all(1 - 1 / size - 1 / found[0] - 1e-9 <= part < 1 for part in found[1])


def root_only(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the first rank alone has all the sums."""
    found = counts(case, got)
    return found is not None and len(found[1]) > 1 and found[1][0] == 1 and not any(found[1][1:])


def twice(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a contribution is somewhere in a sum twice."""
    table = shares(case, got)
    return table is not None and any(s is not None and max(s) > 1 for row in table for s in row)


def tail(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether only the elements beyond the last multiple of the ranks are wrong."""
    table, size = shares(case, got), len(members_of(case))
    if table is None or not table[0] or len(table[0]) % size == 0:
        return False
    keep = len(table[0]) // size * size
    return all(all(map(complete, row[:keep])) and not any(map(complete, row[keep:])) for row in table)


def float_detour(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether integers came back wrong, or as another type."""
    if not isinstance(got, tuple) or wrong_values(case, got) is None:
        return False
    before = cast(Tensor, case.inputs[0]["tensor"]).dtype
    after = got[members_of(case)[0]].get("base")
    return isinstance(after, Tensor) and (after.dtype != before or not before.is_floating_point)


def whole_tensor(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every message to the one neighbour holds the whole tensor."""
    members, whole = members_of(case), tensor_bytes(case)
    if len(members) < 2 or whole <= chunk_bytes(case, len(members)):
        return False
    largest = [max((m.bytes for m in wire.sent_by(rank)), default=0) for rank in members]
    one_neighbour = all(len(wire.peers(rank)) == 1 for rank in members)
    return one_neighbour and min(largest) * (4 // min(4, itemsize(case))) >= whole


def itemsize(case: Case) -> int:
    """Return the bytes of one element."""
    return input_of(case, members_of(case)[0]).element_size()


def everything_to_everyone(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether each rank sent to all others."""
    members = members_of(case)
    return len(members) > 2 and all(len(wire.peers(rank)) == len(members) - 1 for rank in members)


def all_through_one(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether one rank is at an end of every message."""
    members = members_of(case)
    if len(members) < 3 or not wire.messages or not isinstance(got, tuple):
        return False  # of a run that was cut short only some messages are known
    return any(all(rank in (m.src, m.dst) for m in wire.messages) for rank in members)


def group_ranks(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether ranks within the group were taken for global ones."""
    if case.inputs[0].get("group") is None:
        return False
    members = set(members_of(case))
    outside = not all({m.src, m.dst} <= members for m in wire.messages)
    if isinstance(got, Failure):
        text = got.message.partition(" raised ")[2].lower()
        named = any(word in text for word in ("rank", "group")) or NOBODY_EXPECTED in got.message
        return outside or named
    return outside or not wire.messages


def changed_in_flight(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the buffer of an isend was written before its wait."""
    return bool(wire.problems_of("changed_in_flight"))


def sizes_disagree(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the run ended because a message was longer than what its receiver asked for."""
    return isinstance(got, Failure) and SIZES_DIFFER in got.message


def short_of_elements(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a run failed on a length that does not divide by the number of ranks."""
    if not isinstance(got, Failure):
        return False
    members = members_of(case)
    numel = input_of(case, members[0]).numel()
    if got.kind in ("deadlock", "timeout"):
        return numel < len(members)
    said = got.message.lower()
    if SIZES_DIFFER in got.message:
        return False
    return numel % len(members) != 0 and any(word in said for word in ("size", "shape", "divi", "multiple", "chunk"))
