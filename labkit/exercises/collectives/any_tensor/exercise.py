"""A ring for any tensor: every operation, layout and type, over the ranks that take part."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from labkit.checks.case import Case, Failure, Values
from labkit.checks.declared import declared
from labkit.checks.finding import Finding
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.collectives.any_tensor.driver import drive
from labkit.exercises.collectives.tensor_cases import bits16, both_signs, case_on, drop_in_case, near_the_end, small
from labkit.exercises.collectives.tensor_mistakes import FIRST, IN_NUMBERS, IN_THE_RING, LAST
from labkit.exercises.sums_over_ranks.sum_mistakes import reworded, sum_mistake
from labkit.exercises.sums_over_ranks.sum_outcome import SumOutcome, sum_outcome, wrong_sums
from labkit.exercises.sums_over_ranks.sums import expected_bases, least_traffic, whole_numbers
from labkit.exercises.sums_over_ranks.traffic import outsiders, ring_traffic
from labkit.exercises.sums_over_ranks.world_sizes import ring_steps, sweep


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with the numbers, or with the way they came: round a ring, chunk by chunk."""
    yield from library_calls(wire)
    yield from wrong_sums(sum_outcome(case, got, wire))
    yield from outsiders(case, wire)
    yield from ring_traffic(case, wire)
    yield from lost_messages(wire)


def _looks_past_the_chunks(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether a list of one chunk for each of some ranks was asked for a chunk that it does not have."""
    return "group" in case.inputs[0] and failure.error == "IndexError" and "out of range" in failure.message


def _cuts_for_the_world(came: SumOutcome) -> bool:
    """Return whether the chunks of some ranks are right, and those of the rest of the world as they were."""
    chunks = torch.empty(len(came.exact)).tensor_split(came.case.world_size)
    kept = sum(map(len, chunks[: len(came.members)]))
    return kept < len(came.exact) and all(
        torch.equal(view[:kept].double(), came.exact[:kept].double()) and torch.equal(view[kept:], own[kept:])
        for view, own in zip(came.views, came.inputs, strict=True)
    )


EXERCISE = declared(
    id="any_tensor",
    functions=("all_reduce_over",),
    driver=drive,
    oracle=expected_bases,
    structure=expected_bases,
    looks=(find,),
    least=least_traffic,
    visible=(
        drop_in_case("3 ranks, sum of 7 elements", whole_numbers(31, 3, (7,))),
        drop_in_case("3 ranks, average of 7 elements", whole_numbers(32, 3, (7,), torch.float64), op="AVG"),
        drop_in_case("3 ranks, average of 7 integers", both_signs(44, 3, 7), op="AVG"),
        drop_in_case("3 ranks, largest of each", small(33, 3, 5), op="MAX"),
        drop_in_case("3 ranks, smallest of each", small(34, 3, 5), op="MIN"),
        drop_in_case("3 ranks, product", bits16(35, 3, 32, torch.bfloat16), op="PRODUCT"),
        drop_in_case("3 ranks, transposed 4 x 3", whole_numbers(36, 3, (3, 4)), layout="transposed"),
        drop_in_case("3 ranks, every other element", whole_numbers(37, 3, (9,)), layout="every other"),
        drop_in_case("3 ranks, int64", whole_numbers(38, 3, (5,), torch.int64, 1 << 55)),
        drop_in_case("5 ranks, of which 1, 3 and 4 take part", whole_numbers(40, 5, (7,)), group=(1, 3, 4)),
        drop_in_case(
            "5 ranks, average over 1, 3 and 4", whole_numbers(45, 5, (7,), torch.float64), op="AVG", group=(1, 3, 4)
        ),
        drop_in_case("8 ranks, bfloat16", bits16(41, 8, 64, torch.bfloat16)),
        drop_in_case("8 ranks, float16", bits16(43, 8, 64, torch.float16)),
        drop_in_case("4 ranks, average of large numbers, float16", near_the_end(46, 4, 12), op="AVG"),
    ),
    hints=(
        "Start from ring_sum and change one thing at a time: the ranks, the operation, the memory layout, the dtype. "
        "What does each of them ask for?",
        "AVG is SUM and one division by the number of ranks, once for each element. A non-contiguous tensor is reduced "
        "as a contiguous copy and copied back. bfloat16 is added up in float32 and rounded once, at the end.",
        "flat = tensor.contiguous().view(-1); work = flat.float() if flat.dtype in (torch.bfloat16, torch.float16) "
        "else flat; cut both with tensor_split(len(ranks)); reduce_scatter the pieces of work over ranks with "
        "torch.add, torch.maximum, torch.minimum or torch.mul; for AVG divide the one piece that is complete here, "
        "number ranks.index(dist.get_rank()); copy it into flat's piece and all_gather the pieces of flat; at the end "
        "tensor.copy_(flat.view(tensor.shape)).",
    ),
    sweep=sweep(case_on, ring_steps, slack=3),
    mistakes=(
        *FIRST,
        sum_mistake("a rank for a place in ranks",
                    "The list of chunks is shorter than this index: there is one chunk for each of ranks, and the "
                    "piece of this rank is number ranks.index(dist.get_rank()), not number dist.get_rank().",
                    failed=_looks_past_the_chunks, certain=True),
        *IN_NUMBERS,
        sum_mistake("chunks for all ranks of the world",
                    "The last elements were left as they were: the ring goes round one chunk for each of ranks, and "
                    "there are more. Cut the tensor into len(ranks) chunks.", came=_cuts_for_the_world),
        *IN_THE_RING,
        reworded(
            "group ranks taken for global ranks",
            "ranks holds global ranks, such as 1, 3 and 4: the first of them is not rank 0. Hand ranks itself to "
            "reduce_scatter and all_gather, and send to nobody else.",
        ),
        *LAST,
    ),
)  # fmt: skip
