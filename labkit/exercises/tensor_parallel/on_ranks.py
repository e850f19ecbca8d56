"""What the drivers of this lesson share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from labkit.checks.case import Value


def through(function: Callable[..., Tensor], x: Tensor, gradient: Tensor, *, beside: bool = False) -> dict[str, Value]:
    """Return what a function makes of x, x afterwards, and the gradient that reaches x; None for what there is not.

    Of a result that is no tensor the kind is told, in words.

    Args:
        function: The learner's.
        x: What it is given.
        gradient: Of its result.
        beside: Whether something is added to the result; the gradient that reaches it comes back, too.
    """
    leaf, other = x.clone().requires_grad_(), gradient.clone().requires_grad_()
    added = other * 1
    given = leaf * 1
    out = function(given)
    kept = given.detach().clone()
    if isinstance(out, Tensor) and out.requires_grad and out.shape == gradient.shape:
        (out + added if beside else out).backward(gradient.clone())  # type: ignore[no-untyped-call]
    other_kind = None if out is None else f"a {type(out).__name__}"
    found: dict[str, Value] = {"out": out.detach().clone() if isinstance(out, Tensor) else other_kind, "kept": kept}
    return {**found, "gradient": leaf.grad, **({"beside": other.grad} if beside else {})}


def numbers_held(module: nn.Module) -> int:
    """Return how many floating-point numbers lie in the memory that a module keeps alive, whatever it keeps them in."""
    seen: dict[int, Any] = {}
    storages: dict[int, int] = {}
    waiting: list[Any] = [module]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, Tensor) and thing.is_floating_point():
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes() // thing.element_size()
        waiting.extend(_parts(thing))
    return sum(storages.values())


def _parts(thing: Any) -> Iterator[Any]:
    """Yield what a thing holds; what all share, classes, modules and groups of ranks, holds nothing of its own."""
    if isinstance(thing, type | ModuleType | dist.ProcessGroup | str | bytes):
        return
    if isinstance(thing, dict):
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing
    elif isinstance(thing, functools.partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, MethodType):
        yield thing.__self__
    elif isinstance(thing, FunctionType):
        for cell in thing.__closure__ or ():
            with suppress(ValueError):  # it is empty
                yield cell.cell_contents
        yield thing.__defaults__
    yield from getattr(thing, "__dict__", {}).values()
