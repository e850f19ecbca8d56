"""Tensors that lesson 03's drop-in must take: every operation, layout and type, of all ranks or of some."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labkit.checks.case import Case, Value
from labkit.exercises.sums_over_ranks.sums import fractions, reduce_case, whole_numbers


def drop_in_case(
    name: str,
    tensors: Sequence[Tensor],
    *,
    op: str | None = None,
    layout: str = "plain",
    group: Sequence[int] | None = None,
    asynchronous: bool = False,
) -> Case:
    """Return a case of any_tensor or of drop_in_all_reduce.

    Args:
        name: What is special about it.
        tensors: What each rank holds.
        op: Name of a dist.ReduceOp; None calls with the default.
        layout: Which view of the tensor is reduced.
        group: Global ranks that take part; a drop-in is called on the others, too.
        asynchronous: Whether async_op=True is asked for.
    """
    extra: dict[str, Value] = {} if op is None else {"op": op}
    if asynchronous:
        extra["async"] = True
    return reduce_case(name, tensors, layout=layout, group=group, extra=extra)


def bits16(seed: int, world_size: int, numel: int, dtype: torch.dtype) -> list[Tensor]:
    """Return tensors of fractions in a 16-bit type."""
    return fractions(seed, world_size, (numel,), dtype)


def near_the_end(seed: int, world_size: int, numel: int) -> list[Tensor]:
    """Return float16 tensors of which one is within the range of float16, and the sum of four is not."""
    return [20000 + 16 * each for each in whole_numbers(seed, world_size, (numel,), torch.float16, largest=60)]


def small(seed: int, world_size: int, numel: int) -> list[Tensor]:
    """Return float32 tensors of whole numbers from -3 to 5."""
    return [tensor - 4 for tensor in whole_numbers(seed, world_size, (numel,), largest=9)]


def both_signs(seed: int, world_size: int, numel: int) -> list[Tensor]:
    """Return int64 tensors of positive and negative numbers."""
    return [tensor - 500 for tensor in whole_numbers(seed, world_size, (numel,), torch.int64, largest=999)]


def case_on(size: int) -> Case:
    """Return a case in which neighbouring sizes ask for another operation and type."""
    op, dtype = (("SUM", torch.float32), ("AVG", torch.float64), ("MAX", torch.float32), ("SUM", torch.int64))[size % 4]
    name = f"{size} ranks, {op} of {2 * size + 1} elements, {str(dtype).removeprefix('torch.')}"
    return drop_in_case(name, whole_numbers(100 + size, size, (2 * size + 1,), dtype), op=op)
