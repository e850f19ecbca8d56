"""The ring adds up."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from labkit.checks.case import Case, Values
from labkit.checks.declared import declared
from labkit.checks.finding import Finding
from labkit.checks.structure import and_more
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce.ring_sum.driver import drive
from labkit.exercises.sums_over_ranks.sum_mistakes import RING
from labkit.exercises.sums_over_ranks.sum_outcome import sum_outcome, wrong_sums
from labkit.exercises.sums_over_ranks.sums import expected_bases, least_traffic, sum_case
from labkit.exercises.sums_over_ranks.traffic import outsiders, ring_traffic
from labkit.exercises.sums_over_ranks.world_sizes import ring_steps, sweep


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with the sums, or with the way they came: round a ring, chunk by chunk."""
    yield from library_calls(wire)
    yield from wrong_sums(sum_outcome(case, got, wire))
    yield from outsiders(case, wire)
    yield from ring_traffic(case, wire)
    yield from lost_messages(wire)


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
        sum_case(29, 3, (5,), dtype=torch.float64),
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
    mistakes=RING,
)
