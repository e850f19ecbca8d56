"""What is known of operators: what they are, and for shapes seen before what they cost and yield.

All ranks run the same few operators on the same few shapes, thousands of times. What a call costs hangs on shapes
alone, and so does what it yields where its tensors are on meta: both are worked out once in a run. Nothing is
remembered of views, of results that share memory with an argument, and where an argument cannot be looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from labkit.simulator.storages import tensors_in
from labkit.torch_port.operators import NAMES_OF_ITS_OWN, READS_ONE, UNREAD, VIEWS, compiled, name_of, quick, schema_of

_TORCHS = ("aten", "prim", "prims", "profiler", "c10d", *NAMES_OF_ITS_OWN, "labkit")
_TORCHS_LIBRARIES = (
    *_TORCHS,
    *("_dtensor", "_native", "_quantized", "cplib", "debugprims", "export", "flex_lib", "fsdp", "higher_order"),
    *("inductor", "inductor_prims", "mkl", "mkldnn", "onednn", "onnx", "pippy", "quantized", "quantized_decomposed"),
    *("rngprims", "sparse", "streams", "symm_mem"),
)
"""Namespaces of operators that come with torch."""
_MOVES_STORAGE = ("set_", "resize")
_FILLED = ("empty", "zeros", "ones", "full", "new_empty", "new_zeros", "new_full", "new_ones")
VIEW, USES, MAKES = range(3)
"""What an operator does to memory: it views what there is, uses it, or makes more."""

_FREE = (
    *("empty", "detach", "alias", "lift_fresh", "set_", "is_same_size", "resize_"),
    READS_ONE,
    *UNREAD,
)
BY_INDEX = frozenset(("index", "index_put", "index_put_", "_index_put_impl_"))
"""Operators that take a list of indices, of numbers or of masks, as their second argument."""
_MASKS = (torch.bool, torch.uint8)
LISTS = ("_foreach", "_fused", "_amp_foreach")
"""Operators on lists of tensors, by how their names begin: in place they return nothing."""

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_STRIDED = torch.strided

Result = Callable[[Any], Any]
"""Returns what a remembered call yields, from its arguments."""

Cost = tuple[float, int, int | None, float, int]
"""Nanoseconds, bytes, floating-point operations, nanoseconds at the device's peak, whole nanoseconds it takes."""


@dataclass(slots=True)
class Remembered:
    """What is known of a call on meta: what yields its result, and what it costs, None before that is known."""

    result: Result
    cost: Cost | None = None


@dataclass(slots=True)
class Operator:
    """What is known of one operator.

    Attributes:
        func: The operator; it is looked up by its address, for to hash it takes Python code.
        call: What calls it.
        quick: What does the same to plain tensors where no function mode looks on, None for most.
        name: As the timeline shows it.
        free: Whether it costs nothing.
        draws: Whether it may use torch's generator of random numbers.
        in_place: Whether it changes its first argument and returns it.
        remembers: Whether what it yields on meta may be remembered.
        reads: Whether the program learns a value of it, or a shape that hangs on values, and so waits for the device.
        views: Whether it yields a view, by torch's word or, as _unsafe_view, without it.
        on_memory: VIEW, USES or MAKES.
        fills: Whether it makes tensors that are empty or filled with a constant.
        resizes: Whether it may give its first argument another size.
        foreign: Whether another library made it.
        costs: What a call hangs on -> what it costs.
        results: What a call on meta hangs on -> what yields its result, and its cost.
    """

    func: Any
    call: Callable[..., Any]
    quick: Callable[..., Any] | None
    name: str
    free: bool
    draws: bool
    in_place: bool
    remembers: bool
    views: bool
    reads: bool
    on_memory: int
    fills: bool
    resizes: bool
    foreign: bool
    costs: dict[Any, Cost] = field(default_factory=dict)
    results: dict[Any, Remembered] = field(default_factory=dict)


def describe(func: Any) -> Operator:
    """Return what is known of an operator before it is called."""
    name, schema = name_of(func), schema_of(func)
    written = [one for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write]
    in_place = len(written) == 1 and written[0] is schema.arguments[0] and len(schema.returns) == 1
    in_place = in_place and name.endswith("_") and not name.startswith(_MOVES_STORAGE)
    in_place = in_place and torch.Tag.inplace_view not in func.tags and str(schema.arguments[0].type) == "Tensor"
    aliases = any(one.alias_info is not None for one in (*schema.arguments, *schema.returns))
    remembers = func.namespace in ("aten", "labkit") and bool(schema.returns) and (in_place or not aliases)
    remembers = remembers or _changes_lists(name, schema)
    return Operator(
        func, compiled(func), quick(func), name, is_free(func), may_draw(func), in_place, remembers,
        bool(func.is_view) or name in VIEWS, _reads(func), _on_memory(func), name.startswith(_FILLED),
        name.startswith(_MOVES_STORAGE), func.namespace not in _TORCHS_LIBRARIES,
    )  # fmt: skip


def _on_memory(func: Any) -> int:
    if func.is_view and not name_of(func).startswith("lift"):  # torch.tensor() lifts what no operator was seen to make
        return VIEW
    makes = any(one.alias_info is None and "Tensor" in str(one.type) for one in schema_of(func).returns)
    return MAKES if makes else USES


def _reads(func: Any) -> bool:
    """Return whether a program that calls an operator waits for values, whatever the arguments are."""
    if name_of(func) in BY_INDEX:
        return False
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def chooses_by_mask(args: Any) -> bool:
    """Return whether a call of an operator in BY_INDEX waits until the device knows how many a mask chooses.

    One number for all that are chosen is filled in without knowing.
    """
    puts_one = len(args) > 2 and isinstance(args[2], _Tensor) and args[2].numel() == 1
    return not puts_one and any(each is not None and each.dtype in _MASKS for each in args[1])


def _changes_lists(name: str, schema: Any) -> bool:
    """Return whether an operator changes lists of tensors in place and returns nothing: on meta that is no work."""
    return name.startswith(LISTS) and name.endswith("_") and not schema.returns


def written_by(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that a call of an operator writes."""
    for place, argument in enumerate(schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in([args[place] if place < len(args) else (kwargs or {}).get(argument.name)])


def is_free(func: Any) -> bool:
    """Return whether an operator costs nothing: views, and what only says something about a tensor."""
    name = name_of(func)
    works = bool(schema_of(func).returns) or name.startswith(LISTS)
    return bool(func.is_view) or name.startswith(_FREE) or func.namespace == "profiler" or not works


def may_draw(func: Any) -> bool:
    """Return whether an operator may use torch's generator: those tagged so, and any that is not torch's own."""
    return torch.Tag.nondeterministic_seeded in func.tags or func.namespace not in _TORCHS


def signature(args: Iterable[Any]) -> tuple[list[Any], bool]:
    """Return what a call hangs on besides values: shapes, dtypes, numbers; and whether all its tensors are on meta.

    What stands in a place is the same kind of thing in every call of an operator, so a tensor's shape, strides and
    dtype stand in one row with the rest.
    """
    parts: list[Any] = []
    meta = True
    for value in args:
        kind = type(value)
        if kind is _Tensor or kind is _Parameter:
            if value.is_meta and value.layout is _STRIDED:
                parts += value.shape, value.stride(), value.dtype
            else:
                parts += value.shape, None, value.dtype
                meta = False
        elif kind is int or value is None:
            parts.append(value)
        elif isinstance(value, torch.Tensor):
            parts += value.shape, None, value.dtype
            meta = False
        elif isinstance(value, list | tuple):
            inner, inner_meta = signature(value)
            parts.append(tuple(inner))
            meta = meta and inner_meta
        elif kind is float or kind is bool:  # 1, 1.0 and True are equal, and yield different dtypes
            parts.append((kind, value))
        else:
            parts.append(value)
    return parts, meta


def remember(known: Operator, key: Any, args: Any, out: Any) -> None:
    """Remember what a call on meta yields, if the next like it is sure to yield the same.

    Args:
        known: The operator.
        key: What the call hangs on, as it was before.
        args: Its arguments.
        out: What it returned.
    """
    if known.in_place:
        if out is args[0] and signature([out])[0] == list(key[:3]):
            known.results[key] = Remembered(_first)
        return
    if out is None:
        known.results[key] = Remembered(_nothing)
        return
    outs = list(out) if isinstance(out, list | tuple) else [out]
    shared = {id(tensor.untyped_storage()) for tensor in tensors_in(args)}
    for one in outs:
        if isinstance(one, torch.Tensor):
            plain = type(one) is torch.Tensor and one.is_meta and one.layout is torch.strided and not one.is_complex()
            if not plain or one.storage_offset() or id(one.untyped_storage()) in shared:
                return
            like = _like(one)
            again = like.clone()
            if again.stride() != one.stride() or again.untyped_storage().nbytes() != one.untyped_storage().nbytes():
                return
        elif not (one is None or isinstance(one, bool | int | float)):
            return
    makers = [_maker(one) for one in outs]
    if isinstance(out, list | tuple):
        kind = type(out)
        if kind in (list, tuple):
            known.results[key] = Remembered(lambda _: kind([make(None) for make in makers]))
    else:
        known.results[key] = Remembered(makers[0])


def _maker(one: Any) -> Result:
    if not isinstance(one, torch.Tensor):
        return lambda _: one
    clone = _like(one).clone  # on meta the quickest way to a new tensor
    return lambda _: clone()


def _like(one: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device="meta")


def _first(args: Any) -> Any:
    return args[0]


def _nothing(args: Any) -> None:
    return None
