"""All-reduce in every dress: cases, and what each rank must hold afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from labkit.checks import draws, values
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import tolerance
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.exercises.sums_over_ranks.on_ranks import view_of
from labkit.words import plural


def whole_numbers(
    seed: int, world_size: int, shape: Sequence[int], dtype: torch.dtype = torch.float32, largest: int | None = None
) -> list[Tensor]:
    """Return one tensor of whole numbers for each rank, all different and in no order; sums of them are exact."""
    most = largest or (999 if world_size <= 4 else 19_999)
    return [
        torch.randint(1, most + 1, tuple(shape), generator=draws.generator(seed, "rank", rank)).to(dtype)
        for rank in range(world_size)
    ]


def fractions(seed: int, world_size: int, shape: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    """Return one tensor of fractions between 1 and 2 for each rank, rounded to `dtype`."""
    return [
        (torch.rand(tuple(shape), generator=draws.generator(seed, "rank", rank), dtype=torch.float64) + 1).to(dtype)
        for rank in range(world_size)
    ]


def reduce_case(
    name: str,
    tensors: Sequence[Tensor],
    *,
    layout: str = "plain",
    group: Sequence[int] | None = None,
    extra: Mapping[str, Value] | None = None,
) -> Case:
    """Return a case in which rank i gives view_of(tensors[i], layout).

    Args:
        name: What is special about it.
        tensors: What each rank holds, group or not.
        layout: Which view of it is reduced.
        group: Global ranks that take part; None is everybody.
        extra: Further inputs of every rank: op, async, args, catch.
    """
    shared: dict[str, Value] = {"layout": layout, **(extra or {})}
    if group is not None:
        shared["group"] = list(group)
    return Case(name, len(tensors), tuple({"tensor": tensor, **shared} for tensor in tensors))


def sum_case(
    seed: int,
    world_size: int,
    shape: Sequence[int],
    *,
    group: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
    least: int = 0,
) -> Case:
    """Return a case of an all-reduce that only adds: whole numbers, greater than `least`, in a contiguous tensor."""
    what = " x ".join(map(str, shape)) + (" element" if list(shape) == [1] else " elements")
    who = plural(world_size, "rank") + ("" if group is None else f", of which {list(group)} take part")
    kind = "" if dtype == torch.float32 else f", {str(dtype).removeprefix('torch.')}"
    tensors = [each + least for each in whole_numbers(seed, world_size, shape, dtype)]
    return reduce_case(f"{who}, {what}{kind}", tensors, group=group)


def used_before(case: Case, seed: int, numel: int, dtype: torch.dtype = torch.float32) -> Case:
    """Return a case in which the function has been called for tensors of another size before; only values are judged.

    Args:
        case: The second use.
        seed: For the first tensors' numbers.
        numel: Their length.
        dtype: Their type.
    """
    first = whole_numbers(seed, case.world_size, (numel,), dtype)
    inputs = tuple({**given, "before": tensor} for given, tensor in zip(case.inputs, first, strict=True))
    return Case(f"{case.name}, a second time", case.world_size, inputs, {**case.about, "second": True})


def is_second_use(case: Case) -> bool:
    """Return whether what travelled is that of two calls."""
    return "second" in case.about


def members_of(case: Case) -> list[int]:
    """Return the global ranks that take part."""
    return values.integers(case.inputs[0], "group") if "group" in case.inputs[0] else list(range(case.world_size))


def base_of(case: Case, rank: int) -> Tensor:
    """Return the whole tensor of a rank, before."""
    return values.tensor(case.inputs[rank], "tensor")


def input_of(case: Case, rank: int) -> Tensor:
    """Return what a rank contributes, flat and contiguous."""
    return view_of(base_of(case, rank), layout_of(case)).reshape(-1)


def layout_of(case: Case) -> str:
    """Return which view of the tensor is reduced."""
    return values.text(case.inputs[0], "layout")


def op_of(case: Case) -> str:
    """Return "SUM", "AVG", ..."""
    return values.text(case.inputs[0], "op") if "op" in case.inputs[0] else "SUM"


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: each member's tensor into all sums, and the others' into its own."""
    members = members_of(case)
    given = input_of(case, members[0])
    return both_ways(members, given.numel(), given.element_size())


def exact_reduction(case: Case) -> tuple[Tensor, Tensor]:
    """Return the reduced view in float64 (or int64) and how far a result may be from it."""
    views = [view_of(base_of(case, rank), layout_of(case)) for rank in members_of(case)]
    dtype = views[0].dtype
    stack = torch.stack([view.double() if dtype.is_floating_point else view.long() for view in views])
    op = op_of(case)
    if op in ("SUM", "AVG"):
        exact, magnitude = stack.sum(0), stack.abs().sum(0)
        if op == "AVG":
            rounding = None if dtype.is_floating_point else "trunc"
            exact, magnitude = torch.div(exact, len(views), rounding_mode=rounding), magnitude / len(views)
    elif op == "PRODUCT":
        exact = stack.prod(0)
        magnitude = exact.abs()
    else:
        exact = stack.amax(0) if op == "MAX" else stack.amin(0)
        return exact, torch.zeros_like(exact, dtype=torch.float64)
    if not dtype.is_floating_point:
        return exact, torch.zeros_like(exact, dtype=torch.float64)
    return exact, tolerance(exact, magnitude, dtype)


def expected_bases(case: Case) -> list[Values]:
    """Return what each rank's tensor must be afterwards, rounded to its dtype (the oracle)."""
    exact, _ = exact_reduction(case)
    members = set(members_of(case))
    results: list[Values] = []
    for rank in range(case.world_size):
        base = base_of(case, rank).clone()
        if rank in members:
            view_of(base, layout_of(case)).copy_(exact)
        results.append({"base": base})
    return results
