"""The ring adds up."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from labkit.checks.case import Case, Failure, Values
from labkit.checks.declared import declared
from labkit.checks.finding import Finding
from labkit.checks.hanging import hangs
from labkit.checks.structure import and_more
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce.ring_sum.driver import drive
from labkit.exercises.sums_over_ranks.sum_mistakes import RING, common, reworded, sum_mistake
from labkit.exercises.sums_over_ranks.sum_outcome import SumOutcome, sum_outcome, wrong_sums
from labkit.exercises.sums_over_ranks.sums import expected_bases, input_of, least_traffic, members_of, sum_case
from labkit.exercises.sums_over_ranks.traffic import outsiders, ring_traffic
from labkit.exercises.sums_over_ranks.world_sizes import ring_steps, sweep


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with the sums, or with the way they came: round a ring, chunk by chunk."""
    yield from library_calls(wire)
    yield from wrong_sums(sum_outcome(case, got, wire))
    yield from outsiders(case, wire)
    yield from ring_traffic(case, wire)
    yield from lost_messages(wire)


def _too_few_chunks(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether torch.chunk cuts fewer chunks than there are ranks, and a list ended too early."""
    members = members_of(case)
    numel = input_of(case, members[0]).numel()
    return failure.error == "IndexError" and len(torch.empty(numel).chunk(len(members))) < len(members)


def _waits_for_itself(case: Case, failure: Failure, wire: Wire) -> bool:
    itself = any(wait.peer == wait.rank for wait in failure.waits)
    return hangs(failure) and itself and "group" not in case.inputs[0]


def _leaves_short_ones(came: SumOutcome) -> bool:
    return 0 < len(came.exact) < len(came.members) and came.unchanged and not came.wire.messages


EXERCISE = declared(
    id="ring_sum",
    functions=("ring_sum",),
    driver=drive,
    oracle=expected_bases,
    structure=and_more(expected_bases, returned=str, raised=str),
    looks=(find,),
    least=least_traffic,
    visible=(
        sum_case(21, 3, (6,)),
        sum_case(22, 3, (7,)),
        sum_case(23, 4, (4, 5)),
        sum_case(24, 4, (3,)),
        sum_case(25, 4, (0,)),
        sum_case(26, 2, (5,)),
        sum_case(27, 5, (8,)),
        sum_case(28, 5, (2, 5), group=(1, 3, 4)),
        sum_case(29, 3, (5,), dtype=torch.float64, least=2**25),
    ),
    hints=(
        "You have all the parts: bounds, a plan, an executor. What does the executor want, and how do you get it from "
        "a tensor of any shape?",
        "Flatten the tensor to one dimension without copying it, cut it into as many chunks as the group has ranks, "
        "take this rank's plan, run it.",
        "flat = tensor.view(-1); chunks = [flat[a:b] for a, b in chunk_bounds(flat.numel(), n)]; "
        "run_plan(ring_plan(rank, n), chunks, group), with rank and n from dist.get_rank(group), "
        "dist.get_world_size(group).",
    ),
    sweep=sweep(lambda size: sum_case(100 + size, size, (2 * size + 1,)), ring_steps, slack=3),
    mistakes=(
        sum_mistake(
            "fewer chunks than ranks",
            "The plan names more chunks than there are: tensor.chunk(N) may cut fewer than N, 3 elements into 3 "
            "for 4 ranks. chunk_bounds always gives N, the last of them empty.",
            failed=_too_few_chunks,
            certain=True,
        ),
        sum_mistake(
            "short tensors left alone",
            "No message was sent for a tensor with fewer elements than ranks. It has a sum like any other: some "
            "of its chunks are empty, and run_plan leaves those out.",
            came=_leaves_short_ones,
        ),
        reworded(
            "another operation",
            "These are the numbers of another operation: what arrives has to be added, and run_plan does so unless "
            "you hand it another combine.",
        ),
        *(each for each in RING if each.name == "everybody sends first"),
        reworded(
            "whole tensor at each step",
            "Each message holds the whole tensor. A message is one chunk, numel/N elements. tensor[start:end] cuts a "
            "tensor of several dimensions by rows; make it flat first, tensor.view(-1), and cut that.",
        ),
        sum_mistake(
            "another rank's plan",
            "A rank waits for itself: it runs a plan that was made for another rank. Each rank runs one plan, its own: "
            "ring_plan(rank, N) with the rank that dist.get_rank(group) returns.",
            failed=_waits_for_itself,
        ),
        *common("in a narrower type"),
        *(each for each in RING if each.name not in ("everybody sends first", "whole tensor at each step")),
    ),
)
