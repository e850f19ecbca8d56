"""Mistakes learners make in any all-reduce, by name, with the hint that says so."""

from __future__ import annotations

from labkit.checks.case import Failure
from labkit.checks.judged import Mistake
from labkit.exercises.ring_all_reduce import sum_marks as marks
from labkit.exercises.ring_all_reduce.sums import layout_of, members_of, op_of

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
    marks.changed_in_flight,
)
BLOCKING_SENDS = Mistake(
    "everybody sends first",
    "Every rank stands in send and nobody receives: a blocking send may wait until its receiver is there. Post send "
    "and receive together with dist.batch_isend_irecv, or let some ranks receive first.",
    lambda case, got, wire: marks.waits_in(got, "send"),
)
BLOCKING_RECVS = Mistake(
    "everybody receives first",
    "Every rank that waits stands in a receive, and nobody is left who sends: check who sends what to whom, or post "
    "send and receive together with dist.batch_isend_irecv.",
    lambda case, got, wire: marks.waits_in(got, "recv"),
    general=True,
)
STRANGER = Mistake(
    "a rank that is not there",
    "A rank waits for one that is not there. Either a number of ranks is written into the code (ask "
    "dist.get_world_size(group)), or a modulo is missing: the last rank's right neighbour is rank 0.",
    marks.stranger,
)
NOT_IN_PLACE = Mistake(
    "not in place",
    "Every rank's tensor is as it was: the result must be written into the tensor that was handed in "
    "(tensor.copy_(total), tensor += incoming), not bound to a new name or returned.",
    lambda case, got, wire: marks.unchanged(case, got) and layout_of(case) != "transposed",
)
NOT_CONTIGUOUS = Mistake(
    "works on a copy of a non-contiguous tensor",
    "This tensor is not contiguous: contiguous() makes a copy of it, view(-1) refuses, and reshape(-1) gives a copy "
    "or, as of x[::2], a view with gaps that cannot be sent. Work on flat = tensor.contiguous().view(-1) and copy the "
    "result back: tensor.copy_(flat.view(tensor.shape)).",
    lambda case, got, wire: (
        layout_of(case) in ("transposed", "every other", "column")
        and (marks.unchanged(case, got) or (isinstance(got, Failure) and got.kind in ("exception", "died")))
    ),
)
ROOT_ONLY = Mistake(
    "only rank 0 has the sum",
    "Rank 0 has the sum and the others do not: it must be sent back to them.",
    marks.root_only,
)
DIVIDED = Mistake(
    "mean instead of sum",
    "The numbers are the sum divided by the number of ranks: SUM was asked for, not the mean.",
    lambda case, got, wire: op_of(case) == "SUM" and marks.is_scaled(case, got, 1 / len(members_of(case))),
)
NO_GATHER = Mistake(
    "no all-gather",
    "After the reduce-scatter each rank owns one complete chunk; the others are still partial sums. The second half, "
    "the all-gather, must hand the complete chunks round.",
    marks.no_gather,
)
ONE_STEP_SHORT = Mistake(
    "one step too few",
    "Every rank is wrong in one chunk only: one step is missing. Each half of the ring takes N-1 steps; the usual "
    "slip is the last step of the all-gather.",
    marks.one_step_short,
)
TAIL = Mistake(
    "remainder dropped",
    "The last elements were left out: numel // N loses the remainder. Give the first numel % N chunks one element "
    "more.",
    marks.tail,
)
TWICE = Mistake(
    "a contribution added twice",
    "Some contributions are in the sum twice. Usual causes: the all-gather adds what arrives instead of overwriting; "
    "the first step sends the wrong chunk; the chunk that was just received is added and received again.",
    marks.twice,
    general=True,
)
WHOLE_TENSOR = Mistake(
    "whole tensor at each step",
    "Each message holds the whole tensor. A ring is fast because a message is one chunk, numel/N elements: cut the "
    "tensor up first.",
    marks.whole_tensor,
)
EVERYBODY = Mistake(
    "everything to everyone",
    "Every rank sends to every other one. In a ring a rank talks to two neighbours only: it sends to the right and "
    "receives from the left.",
    marks.everything_to_everyone,
)
THROUGH_ONE = Mistake(
    "reduce to one rank",
    "All messages pass through one rank, whose link carries 2(N-1) tensors. Spread the work: chunks that go round.",
    marks.all_through_one,
)
GROUP_RANKS = Mistake(
    "group ranks taken for global ranks",
    "With a group, dist.get_rank(group) and dist.get_world_size(group) count within the group, while a peer is a "
    "global rank: use group_peer=, group_src= and group_dst=, or dist.get_global_rank(group, r); and pass group on to "
    "every call.",
    marks.group_ranks,
)
SOME_MISSING = Mistake(
    "contributions missing",
    "Some contributions never arrived. Look at the step where the named rank should have been added: the chunk index "
    "modulo N, the neighbour, and the number of steps, N-1 in each half.",
    lambda case, got, wire: any(
        s is not None and not marks.complete(s) for row in (marks.shares(case, got) or []) for s in row
    ),
    general=True,
)


UNEVEN = Mistake(
    "needs sizes that divide",
    "The tensor's length does not divide by the number of ranks (it may even be shorter, or empty). Sender and "
    "receiver must agree on each chunk's size: use chunk bounds, and let empty chunks be.",
    marks.short_of_elements,
    general=True,
)

SIZES_DISAGREE = Mistake(
    "sizes disagree",
    "What a rank receives in a step must be the chunk that its left neighbour sends in it, cut at the same places: "
    "check which chunk each of the two names in that step (ring_plan says it), then the chunk bounds.",
    marks.sizes_disagree,
)

RING = (
    LIBRARY, SIZES_DISAGREE,
    STRANGER, IN_FLIGHT, BLOCKING_SENDS, NOT_CONTIGUOUS, NOT_IN_PLACE, DIVIDED, THROUGH_ONE, WHOLE_TENSOR,
    EVERYBODY, NO_GATHER, TAIL, ONE_STEP_SHORT, TWICE, GROUP_RANKS, BLOCKING_RECVS, UNEVEN, SOME_MISSING,
)  # fmt: skip
"""What is tried for an all-reduce over a ring, in this order."""
