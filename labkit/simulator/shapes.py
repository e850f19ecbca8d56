"""Operators of a rank whose tensors have no values: which results have some, and what the rest yield.

Values are kept where they decide what happens and cost little: numbers, and tensors of whole numbers or truth values,
as long as everything they are computed from has values. Tensors of fractions on the device have none, and neither has
what is computed from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from labkit.simulator.accelerator import Accelerator
from labkit.simulator.operators import Operator, written_by
from labkit.simulator.stand_ins import (
    MOST_OF_THE_HOST,
    MOST_WITH_VALUES,
    forget,
    has_fractions,
    is_stand_in,
    like,
    read_of,
    reads_as,
    was_read,
)
from labkit.simulator.storages import tensors_in
from labkit.torch_port.functional_collectives import carry_out
from labkit.torch_port.operators import NAMES_OF_ITS_OWN, READS_ONE, TO_COPY

_SCALES = ("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_")
"""What GradScaler asks for; no step overflows."""
_ON_META = {"device": torch.device("meta")}


def call(accelerator: Accelerator, known: Operator, args: Any, kwargs: Any) -> Any:
    """Return what an operator yields: values where all it is given has some, and shapes else.

    Raises:
        RuntimeError: If a shape hangs on values that there are not.
    """
    lacking = False
    for tensor in tensors_in((*args, *kwargs.values())):
        if is_stand_in(tensor):
            lacking = True
            break
    if known.name in _SCALES:
        return known.call(*_on_meta(known, args, kwargs)[0], **kwargs) if known.name == _SCALES[0] else args[0]
    if known.func.namespace in NAMES_OF_ITS_OWN:
        return carry_out(known.func, args, kwargs) if lacking else known.call(*args, **kwargs)
    if lacking:
        return _without_values(known, args, kwargs)
    return _with_values(accelerator, known, args, kwargs)


def _with_values(accelerator: Accelerator, known: Operator, args: Any, kwargs: Any) -> Any:
    """Return what an operator yields whose arguments all have values; none where it should have none."""
    if accelerator.makes_meta or known.views:
        return known.call(*args, **kwargs)
    target, device = accelerator.target, kwargs.get("device")
    by_cpp = device is not None and device.type == "meta" and target is None
    same = known.name == TO_COPY and kwargs.get("dtype") in (None, args[0].dtype)
    if by_cpp and same and not has_fractions(args[0]):
        return accelerator.put(args[0])  # C++ brings numbers to where parameters are
    if device is not None and (target is not None or device.type == "meta"):
        on_device = bool(target) or (target is None and device.type == "meta")
        arguments = _on_meta(known, args, kwargs)[0]
        planned = known.call(*arguments, **_plain(kwargs) | _ON_META)
        if _should_stand(planned, on_device, known.name):
            return planned if on_device else forget(planned)
        if device.type == "meta":  # C++ makes it where a stand-in is
            kwargs = kwargs | {"device": torch.device("cpu")}
            made = known.call(*args, **kwargs)
            return accelerator.put(made)
    out = known.call(*args, **kwargs)
    on, _, meta, given = accelerator.places(args, kwargs)
    if not (on if target is None and given else target) or meta:
        return out
    own = {id(one) for one in tensors_in(args)}
    return _each(out, lambda one: like(one) if id(one) not in own and _should_stand(one, True, "") else one)


def _should_stand(made: Any, on_device: bool, name: str) -> bool:
    if not isinstance(made, torch.Tensor):
        return False
    if on_device:
        return (has_fractions(made) and made.dim() > 0) or made.numel() > MOST_WITH_VALUES
    return name != TO_COPY and has_fractions(made) and made.numel() > MOST_OF_THE_HOST


def _without_values(known: Operator, args: Any, kwargs: Any) -> Any:
    """Return what an operator yields that is given a stand-in."""
    if known.name in (READS_ONE, "equal", "is_nonzero"):
        return True if known.name == "equal" else reads_as(args[0].dtype)
    if known.name == "copy_" and not args[0].is_meta:
        return forget(args[0])
    if known.name == "index" or known.name.startswith(("index_put", "_index_put")):
        one_value = known.name != "index" and args[2].numel() == 1
        args = (args[0], _places_of_masks(args[1], anywhere=one_value), *args[2:])
    arguments, twins = _on_meta(known, args, kwargs)
    options = _plain({name: twins.get(id(value), value) for name, value in kwargs.items()})
    if "device" in options:
        options |= _ON_META
    if known.reads:
        raise RuntimeError(
            f"With shapes only there is no {known.name}: how much it yields hangs on values that were not computed."
        )
    for tensor in written_by(known.func, args, kwargs):
        if not tensor.is_meta:
            forget(tensor)
    out = known.call(*arguments, **options)
    back = {id(twin): tensor for tensor, twin in _pairs(args, kwargs, twins)}
    return _each(out, lambda one: back.get(id(one), one))


def _pairs(args: Any, kwargs: Any, twins: dict[int, Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for tensor in tensors_in((*args, *kwargs.values())):
        if id(tensor) in twins:
            yield tensor, twins[id(tensor)]


def _on_meta(known: Operator, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[int, Any]]:
    """Return the arguments with twins on meta of the tensors that have memory, and the twins by the tensors' ids."""
    twins: dict[int, Any] = {}

    def twin(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                return value
            if id(value) not in twins:
                twins[id(value)] = like(value)
            return twins[id(value)]
        if type(value) in (list, tuple):
            return type(value)(twin(one) for one in value)
        return value

    arguments = tuple(twin(value) for value in args)
    for value in kwargs.values():
        twin(value)
    return tuple(None if isinstance(one, torch.Generator) else one for one in arguments), twins


def _plain(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return options as meta takes them: without a generator, not pinned."""
    left = {name: value for name, value in kwargs.items() if name not in ("generator", "pin_memory")}
    return left | ({"generator": None} if "generator" in kwargs else {})


def _places_of_masks(indices: Any, *, anywhere: bool) -> list[Any]:
    """Return indices in which masks have become the numbers of the places that they choose.

    Args:
        indices: One for each dimension, a mask for as many as it has; None for all of a dimension.
        anywhere: Whether it does not matter how many places a mask chooses, as where one value goes to all of them.

    Raises:
        RuntimeError: If it does, and a mask has no values.
    """
    found: list[Any] = []
    for one in indices:
        if one is None or one.dtype not in (torch.bool, torch.uint8):
            found.append(one)
        elif is_stand_in(one) and anywhere:
            found += [torch.zeros(1, dtype=torch.long, device="meta") for _ in range(one.dim())]
        elif is_stand_in(one):
            raise RuntimeError(
                "With shapes only a mask of values that were not computed cannot choose elements: how many there are "
                "is not known. Use torch.where, which keeps the shape."
            )
        else:
            found += one.nonzero(as_tuple=True)
    return found


def _each(out: Any, change: Any) -> Any:
    """Return what an operator yielded with its tensors changed."""
    if isinstance(out, torch.Tensor):
        return change(out)
    if type(out) in (list, tuple):
        return type(out)(_each(one, change) for one in out)
    return out


def read(tensor: torch.Tensor, how: str) -> Any:
    """Return what a tensor without values is read as, and note it."""
    value = read_of(tensor)
    was_read(how, value)
    return value
