"""Buckets as torch's DDP cuts them.

How was watched in its own runs (tests/plans/test_bucket_plans.py, torch 2.13); why the first step has one bucket
stands in torch/nn/parallel/distributed.py.
"""

from __future__ import annotations

from collections.abc import Sequence

GRAPHS = ("default", "find_unused_parameters", "static_graph")
"""What torch's DDP is told of the model's graph."""


def bucket_plan(
    sizes: Sequence[int], cap_bytes: float, first_bytes: float = 0, order: Sequence[int] | None = None
) -> list[list[int]]:
    """Return the buckets in the order they are sent: from the last parameter to the first, each filled to the cap.

    Args:
        sizes: Bytes of each parameter's gradient, in the order of the model.
        cap_bytes: What a bucket may hold.
        first_bytes: What the first may hold; 0: as the others. (torch: 1 MiB, so that it leaves early.)
        order: Indices in the order they are put into buckets; None: from the last to the first.
    """
    plan: list[list[int]] = []
    room = 0.0
    for index in reversed(range(len(sizes))) if order is None else order:
        size = sizes[index]
        if size > room or not plan:
            plan, room = [*plan, []], (first_bytes or cap_bytes) if not plan else cap_bytes
        plan[-1] += [index]
        room -= size
    return plan


def ddp_plan(
    sizes: Sequence[int], cap_bytes: float, first_bytes: float, used: Sequence[int], graph: str, step: int
) -> list[list[int]]:
    """Return the buckets of one step of torch's DDP in the order they are sent; an empty one says what was used.

    The first step has one bucket: which order is right is not known yet. Then buckets are cut anew, in the order in
    which gradients became ready; with a static graph only after the second step. Where DDP searches for unused
    parameters it never does: it keeps the order of registration, from the last to the first. (torch closes a
    bucket when it is full, one gradient later than is done here; the explorer's row of its default does so, too.)

    Args:
        sizes: Bytes of each parameter's gradient, in the order of registration.
        cap_bytes: What a bucket may hold.
        first_bytes: What the first may hold; 0: as the others.
        used: Indices into sizes in the order in which forward uses them.
        graph: One of GRAPHS.
        step: 1 is the first.
    """
    if graph == "find_unused_parameters":
        return [*bucket_plan(sizes, cap_bytes, first_bytes), []]
    if step > 1 + (graph == "static_graph"):
        return bucket_plan(sizes, cap_bytes, first_bytes, used[::-1])
    return [*([[]] if graph == "static_graph" and step == 1 else []), list(range(len(sizes)))]
