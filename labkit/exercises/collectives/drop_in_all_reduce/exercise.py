"""A drop-in for dist.all_reduce."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from labkit.checks import values
from labkit.checks.case import Case, Failure, Values
from labkit.checks.declared import declared
from labkit.checks.finding import Finding
from labkit.checks.structure import and_more
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.collectives.drop_in_all_reduce.driver import drive
from labkit.exercises.collectives.tensor_cases import bits16, both_signs, case_on, drop_in_case, near_the_end, small
from labkit.exercises.collectives.tensor_mistakes import FIRST, IN_NUMBERS, IN_THE_RING, LAST
from labkit.exercises.sums_over_ranks.sum_mistakes import is_scaled, reworded, sum_mistake
from labkit.exercises.sums_over_ranks.sum_outcome import SumOutcome, sum_outcome, wrong_sums
from labkit.exercises.sums_over_ranks.sums import (
    expected_bases,
    is_second_use,
    least_traffic,
    members_of,
    op_of,
    used_before,
    whole_numbers,
)
from labkit.exercises.sums_over_ranks.traffic import outsiders, ring_traffic
from labkit.exercises.sums_over_ranks.world_sizes import ring_steps, sweep

_OUTSIDER, _NO_WORK, _WORK_ALWAYS, _WAITED, _RETURNED, _TWICE, _SHARED = (
    "a rank outside the group takes part", "no work object", "always a work object", "wait returns something else",
    "returned without async_op", "reduced twice", "handles that share a tensor",
)  # fmt: skip


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield where ring_all_reduce does not do what dist.all_reduce does, over a ring, or returns something else."""
    yield from library_calls(wire)
    yield from wrong_sums(sum_outcome(case, got, wire))
    yield from outsiders(case, wire)
    yield from _outside(case, got)
    yield from _returned(case, got)
    yield from ring_traffic(case, wire)
    yield from lost_messages(wire)


def _outside(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield a finding for each rank outside the group that did anything but return None at once."""
    members = members_of(case)
    for rank, came in enumerate(got):
        returned = values.text(came, "returned")
        if rank in members or (returned == "NoneType" and not values.flag(came, "written")):
            continue
        did = f"got back a {returned}" if returned != "NoneType" else "wrote to its tensor"
        yield Finding(
            _OUTSIDER,
            f"Rank {rank} is not in the group {members}, but {did}; such a rank returns None at once.",
            f"rank {rank}: None, and a tensor that was not touched",
            f"rank {rank}: {did}",
            rank,
        )


def _returned(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    for rank in members_of(case):
        returned, can_wait = values.text(got[rank], "returned"), values.flag(got[rank], "can_wait")
        if "async" in case.inputs[0] and not can_wait:
            text = f"With async_op=True rank {rank} got back a {returned}; it must be an object with wait()."
            yield Finding(_NO_WORK, text, "an object with wait()", returned, rank)
        if (waited := values.text(got[rank], "waited")) != "True":
            yield Finding(_WAITED, f"wait() returned {waited} on rank {rank}; it returns True.", "True", waited, rank)
        if "async" not in case.inputs[0] and returned != "NoneType":
            text = f"Without async_op rank {rank} got back a {returned}; dist.all_reduce returns None then."
            yield Finding(_WORK_ALWAYS if can_wait else _RETURNED, text, "None", returned, rank)


def _keeps_an_outsider(case: Case, failure: Failure, wire: Wire) -> bool:
    ranks = {failure.rank, *(wait.rank for wait in failure.waits)} - {None}
    return not ranks <= set(members_of(case))


def _is_reduced_twice(came: SumOutcome) -> bool:
    """Return whether every member holds the sum of as many sums as there are ranks, and sent each chunk twice."""
    size = len(came.members)
    return op_of(came.case) == "SUM" and size > 1 and is_scaled(came, size)


def _asynchronous(case: Case) -> Case:
    """Return the case, with async_op=True where the number of ranks is odd."""
    if case.world_size % 2 == 0:
        return case
    inputs = tuple({**each, "async": True} for each in case.inputs)
    return replace(case, name=f"{case.name}, async_op=True", inputs=inputs)


EXERCISE = declared(
    id="drop_in_all_reduce",
    functions=("ring_all_reduce",),
    driver=drive,
    oracle=expected_bases,
    structure=and_more(expected_bases, returned=str, can_wait=bool, waited=str, written=bool),
    looks=(find,),
    least=least_traffic,
    visible=(
        drop_in_case("3 ranks, sum of 7 elements", whole_numbers(31, 3, (7,))),
        drop_in_case("3 ranks, largest of each", small(33, 3, 5), op="MAX"),
        drop_in_case("3 ranks, async_op=True", whole_numbers(39, 3, (8,)), asynchronous=True),
        replace(
            used_before(drop_in_case("", whole_numbers(48, 3, (8,)), asynchronous=True), 49, 5),
            name="3 ranks, async_op=True, two calls before the first wait()",
        ),
        drop_in_case("5 ranks, of which 1, 3 and 4 take part", whole_numbers(40, 5, (7,)), group=(1, 3, 4)),
        drop_in_case(
            "5 ranks, of which 1, 3 and 4 take part, async_op=True",
            whole_numbers(42, 5, (9,)),
            group=(1, 3, 4),
            asynchronous=True,
            layout="every other",
        ),
        drop_in_case(
            "5 ranks, average over 1, 3 and 4", whole_numbers(45, 5, (7,), torch.float64), op="AVG", group=(1, 3, 4)
        ),
        drop_in_case("5 ranks, average of integers over 1, 3 and 4", both_signs(44, 5, 7), op="AVG", group=(1, 3, 4)),
        drop_in_case("8 ranks, bfloat16", bits16(41, 8, 64, torch.bfloat16)),
        drop_in_case(
            "4 ranks, average of large numbers, float16, async_op=True",
            near_the_end(46, 4, 12),
            op="AVG",
            asynchronous=True,
        ),
        drop_in_case(
            "3 ranks, transposed 4 x 3, async_op=True",
            whole_numbers(36, 3, (3, 4)),
            layout="transposed",
            asynchronous=True,
        ),
    ),
    hints=(
        "All of the arithmetic is in all_reduce_over. What is left: who takes part, and when the work is done.",
        "A rank outside the group (dist.get_rank(group) < 0) returns at once. For the others, "
        "dist.get_process_group_ranks(group) is the list of global ranks. async_op=True returns an object with wait().",
        "members = dist.get_process_group_ranks(group); a class whose wait() calls all_reduce_over(tensor, members, "
        "op) and returns True; with async_op return such an object, else call all_reduce_over here and return None.",
    ),
    sweep=sweep(lambda size: _asynchronous(case_on(size)), ring_steps, slack=3),
    mistakes=(
        *FIRST,
        sum_mistake(_OUTSIDER,
                    "A rank outside the group must return at once, sending and receiving nothing: "
                    "dist.get_rank(group) is -1 there.", failed=_keeps_an_outsider),
        sum_mistake(_SHARED,
                    "Two calls were made before their handles were waited for, and one tensor was reduced twice: each "
                    "handle keeps the tensor, the ranks and the op of its own call.",
                    came=lambda came: is_second_use(came.case) and _is_reduced_twice(came)),
        sum_mistake(_TWICE,
                    "The reduction ran twice, and the second run added up sums. With async_op=True either the call or "
                    "wait() does the work, not both.", came=_is_reduced_twice),
        *IN_NUMBERS,
        sum_mistake(_WAITED, "wait() finishes the work, writes the result into the tensor and returns True."),
        sum_mistake(_RETURNED,
                    "Without async_op the call returns None, as dist.all_reduce does: the result is in the tensor."),
        sum_mistake(_NO_WORK, "async_op=True must return an object with wait(); None is for async_op=False."),
        sum_mistake(_WORK_ALWAYS,
                    "Without async_op the reduction must be finished when the call returns, and it returns None."),
        reworded("nobody sent anything",
                 "No tensor changed, and no rank sent anything: does the line that does the work run? Without async_op "
                 "the caller gets no handle, and nobody calls its wait()."),
        *IN_THE_RING,
        reworded("group ranks taken for global ranks",
                 "The ring goes round other ranks than those of the group: dist.get_process_group_ranks(group) lists "
                 "its global ranks, which are neither 0 to N-1 nor those of the whole world. isend and irecv take "
                 "global ranks, or ranks within the group as group_peer=, with group=group."),
        *LAST,
    ),
)  # fmt: skip
