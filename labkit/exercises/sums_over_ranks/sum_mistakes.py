"""Mistakes that learners make in any all-reduce.

An exercise takes those that it wants, in the order in which they are looked for.
"""

from __future__ import annotations

import re
from dataclasses import replace

import torch

from labkit.checks import traffic, values
from labkit.checks.blame import Sign
from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake
from labkit.checks.failures import NOBODY_EXPECTED, sizes_differ
from labkit.checks.hanging import hangs, looks_for_a_stranger, nobody_waited, waits_in, waits_on_the_finished
from labkit.checks.wire import Wire
from labkit.exercises.sums_over_ranks.on_ranks import view_of
from labkit.exercises.sums_over_ranks.sum_outcome import Mark, SumOutcome, is_complete, sum_outcome
from labkit.exercises.sums_over_ranks.sums import input_of, layout_of, members_of, op_of
from labkit.exercises.sums_over_ranks.traffic import (
    chunk_bytes,
    leaves_the_group,
    passes_through_one,
    sends_more_than_chunks,
    sends_to_everyone,
    sends_whole_tensors,
)


def sum_mistake(
    name: str, hint: str, *, came: Mark | None = None, failed: Sign | None = None, general: bool = False,
    certain: bool = False,
) -> Mistake:  # fmt: skip
    """Return a mistake that is known by what came, or by a failure."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if isinstance(got, Failure):
            return failed is not None and failed(case, got, wire)
        return came is not None and came(sum_outcome(case, got, wire))

    return Mistake(name, hint, seen=seen, general=general, certain=certain)


def _lacks_the_gather(came: SumOutcome) -> bool:
    """Return whether each rank has one complete chunk, another one than any other rank, and partial sums elsewhere."""
    size, slack = len(came.members), 1 / max(len(came.exact), 1)
    return (
        size > 2
        and all(sum(map(is_complete, of_ranks)) <= 1 for of_ranks in zip(*came.shares, strict=True))
        and bool(came.complete)
        and all(0 < part <= 1 / size + slack for part in came.complete)
        and all(share is not None and max(share) == 1 for share in came.elements)
    )


def _lacks_a_chunk(came: SumOutcome) -> bool:
    """Return whether every rank lacks one chunk."""
    size = len(came.members)
    least = 1 - 1 / size - 1 / max(len(came.exact), 1) - 1e-9
    return size > 2 and bool(came.complete) and all(least <= part < 1 for part in came.complete)


def _holds_one_each(came: SumOutcome) -> bool:
    """Return whether every element, on every rank the same, is one rank's alone, and not one rank's in all."""
    if op_of(came.case) == "PRODUCT":
        mine = torch.stack([each.reshape(-1) for each in came.inputs])
        return all((mine == view.reshape(-1)).any(0).all() for view in came.views)
    rows = [tuple(row) for row in came.shares]
    lone = bool(rows) and all(share is not None and sum(share) == max(share) == 1 for share in rows[0])
    return len(came.members) > 1 and lone and len(set(rows)) == 1 and len(set(rows[0])) > 1


def _is_another_operation(came: SumOutcome) -> bool:
    stack = torch.stack([each.double() for each in came.inputs])
    results = {"SUM": stack.sum(0), "MAX": stack.amax(0), "MIN": stack.amin(0), "PRODUCT": stack.prod(0)}
    return any(came.is_near(each, 1e-6) for op, each in results.items() if op != op_of(came.case))


def _lacks_the_tail(came: SumOutcome) -> bool:
    """Return whether only the elements beyond the last multiple of the ranks are wrong."""
    keep = len(came.exact) // len(came.members) * len(came.members)
    return 0 < keep < len(came.exact) and bool(came.shares) and all(
        [is_complete(share) for share in row] == [place < keep for place in range(len(row))] for row in came.shares
    )  # fmt: skip


def _took_group_ranks(case: Case, failure: Failure, wire: Wire) -> bool:
    said = failure.message.partition(" raised ")[2].lower()
    named = "rank" in said or "group" in said or NOBODY_EXPECTED in failure.message
    return "group" in case.inputs[0] and (named or leaves_the_group(case, wire))


def _is_short_of_elements(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether a run failed on a length that does not divide by the number of ranks."""
    size, numel = len(members_of(case)), input_of(case, members_of(case)[0]).numel()
    if hangs(failure):
        return numel < size
    if failure.kind == "exception" and failure.error not in ("RuntimeError", "ValueError", "DistBackendError"):
        return False  # Python's own error: it may speak of a name such as chunk_size
    said = failure.message.lower()
    if "ambiguous" in said or "larger than 0" in said:
        return False  # a tensor was asked whether it is true, or cut into no parts
    words = ("size", "shape", "divi", "multiple", "chunk")
    named = any(word in said for word in words) and re.search(rf"\b{size}\b|\b{-(-numel // size)}\b", said)
    return numel % size != 0 and not sizes_differ(failure) and named is not None


def _leaves_elements_out(came: SumOutcome) -> bool:
    """Return whether on every rank the same elements are not summed at all, and the others are right."""
    rows = [[is_complete(share) for share in row] for row in came.shares]
    own = all(
        share is not None and (is_complete(share) or (sum(share) == share[place] == 1))
        for place, row in enumerate(came.shares)
        for share in row
    )
    return (
        len(came.members) > 1
        and bool(rows)
        and own
        and any(rows[0])
        and not all(rows[0])
        and rows.count(rows[0]) == len(rows)
    )


def _is_wide(case: Case) -> bool:
    """Return whether an element has more bytes than one of float32."""
    return values.tensor(case.inputs[0], "tensor").element_size() > 4


def _is_narrower(came: SumOutcome) -> bool:
    """Return whether sums of 64 bits are right but for what float32 does not keep."""
    wide = bool(came.views) and came.views[0].element_size() == 8
    exact = all(torch.equal(view.double().reshape(-1), came.exact.double()) for view in came.views)
    return wide and not exact and came.is_near(came.exact, 1e-6)


def _is_narrow(case: Case) -> bool:
    """Return whether elements are whole numbers of less than 64 bits."""
    given = values.tensor(case.inputs[0], "tensor")
    return not given.is_floating_point() and given.element_size() < 8


def _is_mean(came: SumOutcome) -> bool:
    """Return whether every member holds the mean, or the mean in whole numbers, however it was rounded."""
    mean = came.exact.double() / len(came.members)
    whole = any(came.is_near(rounded(mean), 1e-6) for rounded in (torch.floor, torch.trunc))
    return is_scaled(came, 1 / len(came.members)) or (len(came.members) > 1 and whole)


def is_scaled(came: SumOutcome, factor: float) -> bool:
    """Return whether every member holds the right result times `factor`."""
    return factor != 1 and came.is_near(
        came.exact.double() * factor, 1e-4 if came.views[0].element_size() > 2 else 2e-2
    )


def _cuts_rows(came: SumOutcome) -> bool:
    """Return whether the sums are right, and messages hold whole rows of a tensor of several dimensions."""
    view = view_of(values.tensor(came.got[came.members[0]], "base"), layout_of(came.case))
    if view.dim() < 2 or not all(torch.equal(each.double(), came.exact.double()) for each in came.views):
        return False
    row = view[0].numel() * view.element_size()
    sizes = [message.bytes for message in came.wire.messages]
    return max(sizes, default=0) > chunk_bytes(came.case, len(came.members)) and all(size % row == 0 for size in sizes)


def _left_the_group(came: SumOutcome) -> bool:
    return "group" in came.case.inputs[0] and (leaves_the_group(came.case, came.wire) or not came.wire.messages)


def _has_too_few_chunks(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether a ring looked for a chunk that its list does not have."""
    rings = ("in reduce_scatter", "in all_gather")
    return failure.error == "IndexError" and "out of range" in failure.message and any(map(failure.detail.count, rings))


_GAPS = ("transposed", "every other", "column")
_LIBRARY, _IN_FLIGHT, _NOT_WAITED = traffic.SENT
_NOT_SENT = traffic.SEND_NOT_WAITED
_COMMON = (
    sum_mistake(_LIBRARY.name, _LIBRARY.hint, failed=lambda case, failure, wire: bool(wire.collectives)),
    sum_mistake(_IN_FLIGHT.name, _IN_FLIGHT.hint, came=lambda came: bool(came.wire.problems_of("changed_in_flight")),
                failed=lambda case, failure, wire: bool(wire.problems_of("changed_in_flight"))),
    sum_mistake(_NOT_WAITED.name, _NOT_WAITED.hint, came=lambda came: any(traffic.unread_messages(came.wire)),
                failed=lambda case, failure, wire: nobody_waited(case, failure, wire, "irecv")),
    sum_mistake(_NOT_SENT.name, _NOT_SENT.hint, came=lambda came: any(traffic.unfinished_sends(came.wire)),
                failed=lambda case, failure, wire: nobody_waited(case, failure, wire, "isend")),
    sum_mistake("sizes disagree",
                "What a rank receives in a step must be the chunk that its left neighbour sends in it, cut at the "
                "same places: check which chunk each of the two names in that step (ring_plan says it), then the "
                "chunk bounds.", failed=lambda case, failure, wire: sizes_differ(failure)),
    sum_mistake("fewer chunks than ranks",
                "The list that the ring goes round has fewer chunks than there are ranks: tensor.chunk(N) may return "
                "fewer than N. tensor_split(N) always returns N, the last ones shorter or empty.",
                failed=_has_too_few_chunks, certain=True),
    sum_mistake("buffer of another type",
                "This tensor is not float32, and torch.empty(n) is: what is received needs a buffer of the type that "
                "is sent. Make it with torch.empty_like(chunk).",
                failed=lambda case, failure, wire: _is_wide(case) and sizes_differ(failure)),
    sum_mistake("sums of another type",
                "torch.sum of whole numbers counts in int64, whatever they were: what is sent then has another type "
                "than the tensor that it is received into. tensor += incoming keeps the tensor's type.",
                failed=lambda case, failure, wire: _is_narrow(case) and sizes_differ(failure)
                and "int64" in failure.message),
    sum_mistake("in a narrower type",
                "The sums are right but for their last digits: they were computed in float32, which keeps 24 bits of a "
                "number. Keep the tensor's own type, without float().",
                came=_is_narrower),
    sum_mistake("a rank that is not there",
                "A rank waits for a rank that does not exist. Either the number of ranks is hard-coded (ask "
                "dist.get_world_size(group)), or a modulo is missing: the last rank's right neighbour is rank 0.",
                failed=looks_for_a_stranger),
    sum_mistake("everybody sends first",
                "Every rank is stuck in send and nobody receives: a blocking send may wait for its receiver. Post "
                "send and receive together with dist.batch_isend_irecv, or let some ranks receive first.",
                failed=lambda case, failure, wire: waits_in(failure, "send")
                and not waits_on_the_finished(case, failure)),
    sum_mistake("works on a copy of a non-contiguous tensor",
                "This tensor is not contiguous: contiguous() makes a copy of it, view(-1) refuses, and reshape(-1) "
                "gives a copy or, as of x[::2], a view with gaps that cannot be sent. Work on flat = "
                "tensor.contiguous().view(-1) and copy the result back: tensor.copy_(flat.view(tensor.shape)).",
                came=lambda came: layout_of(came.case) in _GAPS and came.unchanged,
                failed=lambda case, failure, wire: layout_of(case) in _GAPS and failure.kind in ("exception", "died")),
    sum_mistake("nobody sent anything",
                "No tensor changed, and no rank sent anything: does the line that sends run?",
                came=lambda came: came.unchanged and len(came.members) > 1 and not came.wire.messages),
    sum_mistake("not in place",
                "No tensor changed: the result must be written into the tensor that was passed in "
                "(tensor.copy_(total), tensor += incoming), not bound to a new name or returned.",
                came=lambda came: came.unchanged),
    sum_mistake("mean instead of sum",
                "The numbers are the sum divided by the number of ranks: SUM was asked for, not the mean.",
                came=lambda came: op_of(came.case) == "SUM" and _is_mean(came)),
    sum_mistake("only rank 0 has the sum", "Rank 0 has the sum and the others do not: it must be sent back to them.",
                came=lambda came: came.complete[:1] == [1] and not any(came.complete[1:])),
    sum_mistake("reduce to one rank",
                "All messages pass through one rank, whose link carries 2(N-1) tensors. Spread the work: chunks that "
                "go round.", came=lambda came: passes_through_one(came.case, came.wire)),
    sum_mistake("whole tensor at each step",
                "Each message holds the whole tensor. A ring is fast because a message is one chunk, numel/N "
                "elements: cut the tensor up first.", came=lambda came: sends_whole_tensors(came.case, came.wire),
                failed=lambda case, failure, wire: sends_whole_tensors(case, wire)),
    sum_mistake("more than a chunk at a time",
                "Some messages hold more than one chunk. Chunk i goes from the end of chunk i - 1 to its own end: "
                "flat[start:end], with both.", came=lambda came: sends_more_than_chunks(came.case, came.wire)),
    sum_mistake("everything to everyone",
                "Every rank sends to every other one. In a ring a rank talks to two neighbours only: it sends to the "
                "right and receives from the left.", came=lambda came: sends_to_everyone(came.case, came.wire),
                failed=lambda case, failure, wire: sends_to_everyone(case, wire)),
    sum_mistake("no all-gather",
                "After the reduce-scatter each rank owns one complete chunk; the others are still partial sums. The "
                "second half, the all-gather, must hand the complete chunks round.", came=_lacks_the_gather),
    sum_mistake("remainder dropped",
                "The last elements were left out: numel // N loses the remainder. Give the first numel % N chunks one "
                "element more.", came=_lacks_the_tail),
    sum_mistake("elements in no chunk",
                "Every rank still has its own numbers in the same elements: no chunk holds those. Together the chunks "
                "cover the whole tensor.", came=_leaves_elements_out),
    sum_mistake("one step too few",
                "Every rank is wrong in one chunk only: one step is missing. Each half of the ring takes N-1 steps; "
                "the usual slip is the last step of the all-gather.", came=_lacks_a_chunk),
    sum_mistake("a contribution added twice",
                "Some contributions are in the sum twice. The usual causes: the all-gather adds what arrives instead "
                "of overwriting; the first step sends the wrong chunk; the chunk that was just received is added and "
                "received again.", came=lambda came: any(share and max(share) > 1 for share in came.elements),
                general=True),
    sum_mistake("group ranks taken for global ranks",
                "With a group, dist.get_rank(group) and dist.get_world_size(group) count within the group, while a "
                "peer is a global rank: use group_peer=, group_src= and group_dst=, or dist.get_global_rank(group, "
                "r); and pass group on to every call.",
                came=_left_the_group,
                failed=_took_group_ranks),
    sum_mistake("everybody receives first",
                "Every waiting rank is stuck in a receive, and nobody is left to send: check who sends what to whom, "
                "or post send and receive together with dist.batch_isend_irecv.",
                failed=lambda case, failure, wire: waits_in(failure, "recv"), general=True),
    sum_mistake("needs sizes that divide",
                "The tensor's length does not divide by the number of ranks, so chunks have different sizes; some may "
                "be empty. What meets must be the same chunk on both sides, cut by the same bounds.",
                failed=_is_short_of_elements, general=True, certain=True),
    sum_mistake("contributions missing",
                "Some contributions never arrived. Look at the step where the named rank should have been added: the "
                "chunk index modulo N, the neighbour, and the number of steps, N-1 in each half.",
                came=lambda came: any(share and min(share) == 0 for share in came.elements), general=True),
    sum_mistake("nothing added up",
                "Each element holds one rank's number alone. Nothing was added up before the chunks were handed round, "
                "or the sum is in another tensor than the one that is handed round.", came=_holds_one_each),
    sum_mistake("another operation",
                "These are the numbers of another operation: what combines two chunks depends on op.",
                came=_is_another_operation),
    sum_mistake("cut by rows",
                "Messages hold whole rows: the tensor was cut along its first dimension. Cut the flat tensor, "
                ".view(-1), and pieces differ by one element at most.", came=_cuts_rows),
    sum_mistake("cut to whole numbers",
                "Every number is cut to a whole one: only averages of integers are rounded.",
                came=lambda came: came.exact.is_floating_point() and not torch.equal(came.exact, came.exact.trunc())
                and came.is_near(came.exact.trunc(), 1e-9)),
)  # fmt: skip
_NAMED = {each.name: each for each in _COMMON}


def common(*names: str) -> tuple[Mistake, ...]:
    """Return these mistakes, in this order."""
    return tuple(_NAMED[name] for name in names)


def in_failures(*names: str) -> tuple[Mistake, ...]:
    """Return these mistakes for an exercise whose results are no sums: they are looked for in failures alone."""

    def only(mistake: Mistake) -> Mistake:
        return replace(
            mistake, seen=lambda case, got, wire: isinstance(got, Failure) and mistake.marks(case, got, wire)
        )

    return tuple(map(only, common(*names)))


def reworded(name: str, hint: str) -> Mistake:
    """Return one of these mistakes with a hint of an exercise's own."""
    return replace(_NAMED[name], hint=hint)


RING = common(
    "calls the library", "buffer of another type", "a rank that is not there", "message not waited for",
    "buffer reused in flight",
    "everybody sends first", "nobody sent anything", "not in place",
    "mean instead of sum", "reduce to one rank", "cut by rows", "whole tensor at each step",
    "more than a chunk at a time",
    "everything to everyone", "no all-gather", "remainder dropped", "elements in no chunk", "one step too few",
    "a contribution added twice", "group ranks taken for global ranks",
    "everybody receives first", "needs sizes that divide", "contributions missing",
)  # fmt: skip
"""What is looked for in an all-reduce over a ring."""
