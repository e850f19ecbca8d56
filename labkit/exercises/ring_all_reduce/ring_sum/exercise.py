"""The ring adds up."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.checks.case import Case, Got
from labkit.checks.judged import judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce import sum_mistakes as mistakes
from labkit.exercises.ring_all_reduce.ring_sum.driver import drive
from labkit.exercises.ring_all_reduce.sums import expected_bases, reduce_case, whole_numbers, wrong_values
from labkit.exercises.ring_all_reduce.traffic import library_calls, lost_messages, outsiders, ring_traffic
from labkit.exercises.ring_all_reduce.world_sizes import ring_steps, sweep
from labkit.words import plural


def sum_case(seed: int, world_size: int, shape: Sequence[int], *, group: Sequence[int] | None = None) -> Case:
    """Return a case of ring_sum, tree_all_reduce or halving_doubling: whole numbers in a contiguous tensor."""
    what = " x ".join(map(str, shape)) + (" element" if list(shape) == [1] else " elements")
    who = plural(world_size, "rank") + ("" if group is None else f", of which {list(group)} take part")
    return reduce_case(f"{who}, {what}", whole_numbers(seed, world_size, shape), group=group)


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether the sums are right and came round a ring, chunk by chunk."""
    assert isinstance(got, tuple)
    return (
        library_calls(wire)
        or wrong_values(case, got)
        or outsiders(case, wire)
        or ring_traffic(case, wire)
        or lost_messages(wire)
        or Verdict(True)
    )


EXERCISE = judged(
    id="ring_sum",
    functions=("ring_sum",),
    driver=drive,
    oracle=expected_bases,
    judge=judge,
    visible=(
        sum_case(21, 3, (6,)),
        sum_case(22, 3, (7,)),
        sum_case(23, 4, (4, 5)),
        sum_case(24, 4, (3,)),
        sum_case(25, 4, (0,)),
        sum_case(26, 2, (5,)),
        sum_case(27, 5, (8,)),
        sum_case(28, 5, (2, 5), group=(1, 3, 4)),
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
    mistakes=mistakes.RING,
)
