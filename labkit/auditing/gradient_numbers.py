"""What a program does to gradients by hand between backward() and the step: norms, factors, sums of squares."""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch

from labkit.auditing.bits import kept, tensors_of, unseen
from labkit.auditing.facts import Call, Number, SquareSum
from labkit.auditing.rank_watch import RankWatch, line
from labkit.auditing.seen import Seen
from labkit.torch_port.tensors import local_part

NORMS = ("linalg_vector_norm", "norm", "_foreach_norm")
FACTORS = ("mul_", "div_", "_foreach_mul_", "_foreach_div_")
LOOKED_AT = frozenset((*NORMS, *FACTORS))
"""Operators that find a norm, or scale."""


def of_gradients(args: Any, gradients: Iterable[torch.Tensor]) -> bool:
    """Return whether an operator's first argument is a gradient, or a list with one."""
    given = {address_of(one) for one in tensors_of(args[0])} - {0}
    return bool(given) and any(address_of(one) in given for one in gradients)


def address_of(tensor: torch.Tensor) -> int:
    """Return the address of the storage behind a tensor on this rank, 0 where it has none."""
    local = local_part(tensor)
    if local is None or local.is_meta or local.layout is not torch.strided:
        return 0
    return local.untyped_storage().data_ptr()


def number_of(name: str, args: Any, out: Any) -> float | None:
    """Return the norm that an operator found or the factor that it scaled by, None where it is not one number."""
    if name in NORMS:
        norms = tensors_of(out)
        values = [float(one) for one in norms if one.numel() == 1 and not one.is_meta]
        return sum(value * value for value in values) ** 0.5 if len(values) == len(norms) and values else None
    factor = args[1] if len(args) > 1 else None
    if isinstance(factor, torch.Tensor):
        factor = float(factor) if factor.numel() == 1 and not factor.is_meta else None
    if not isinstance(factor, int | float) or not factor:
        return None
    return 1 / factor if "div" in name else float(factor)


def squares(parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[str, float]:
    """Return the sum of squares of each gradient on this rank, by its parameter's name."""
    found = {}
    for name, one in parameters:
        values = None if one.grad is None else kept(one.grad)
        if values is not None:
            found[name] = float(values.to(torch.float64).square().sum())
    return found


def gradient_number(seen: Seen, mine: RankWatch, name: str, args: Any, out: Any, frame: FrameType) -> None:
    """Note a norm that a program finds of gradients, or a factor that it scales them by."""
    with unseen():
        gradients = [one.grad for one in mine.hooked.values() if one.grad is not None]
        value = number_of(name, args, out) if of_gradients(args, gradients) else None
    if value is not None:
        kind, order = "norm" if name in NORMS else "factor", len(seen.numbers)
        seen.numbers.append(Number(kind, mine.rank, mine.step, value, order, mine.num_calls, line(frame)))


def square_sum(seen: Seen, mine: RankWatch, call: Call, first: torch.Tensor) -> None:
    """Note a number that ranks add up, and the squares of the gradients they have then."""
    named = mine.named()
    with unseen():
        value = kept(first)
        if value is None or not value.is_floating_point():
            return
        of_each = squares((named.get(key, f"parameter {key}"), one) for key, one in mine.hooked.items())
    seen.squares.append(SquareSum(mine.rank, mine.step, call.ranks, float(value), of_each, call.source))
