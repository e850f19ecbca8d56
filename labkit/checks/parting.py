"""How a wrong result is off, in a sentence: a factor, a shift, another rank's, another order, one part of it alone.

It says what wrong results on all ranks have in common. It knows no formula and no mistake, so what it says holds
whatever the slip was, and it is said only where no mistake is known by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from labkit.words import SIMPLE_FACTORS, number, span_of

Pairs = Mapping[int, tuple[Any, Any]]
"""Of each rank what came and what should have."""
_CLOSE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
_MOST_RANKS = 4


def parting(pairs: Pairs, wrong: Sequence[int], given: Sequence[Any] = ()) -> str:
    """Return how the results of the wrong ranks are off, as a sentence that begins with a space, or "".

    Args:
        pairs: Of all ranks that are looked at.
        wrong: Those that are wrong, at least one.
        given: What each rank was given, by rank; nothing is said of it where it is not known.
    """
    came, wanted = pairs[wrong[0]]
    if isinstance(came, list) and isinstance(wanted, list) and not (_holds_tensors(came) or _holds_tensors(wanted)):
        return _of_lists(came, wanted)
    flat = {rank: (_flat(one), _flat(other)) for rank, (one, other) in pairs.items()}
    if any(a is None or b is None or a.shape != b.shape or not len(b) for a, b in flat.values()):
        return ""
    known: dict[int, tuple[Tensor, Tensor]] = flat  # type: ignore[assignment]
    found = next(_of_tensors(known, wrong, _close_to(wanted), given), "")
    if not found and isinstance(wanted, Tensor) and wanted.dim():
        found = next(_in_part(came, wanted, _close_to(wanted)), "")
    return f" {found}" if found else ""


def _holds_tensors(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, Tensor) or any(map(_holds_tensors, parts))


def _flat(value: Any) -> Tensor | None:
    """Return a tensor, a list of tensors or a number as one flat tensor of float64, None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return torch.tensor([float(value)], dtype=torch.float64)
    if isinstance(value, Tensor):
        return value.detach().double().flatten()
    if isinstance(value, list) and value and all(isinstance(each, Tensor) for each in value):
        return torch.cat([each.detach().double().flatten() for each in value])
    return None


def _close_to(wanted: Any) -> float:
    dtype = wanted.dtype if isinstance(wanted, Tensor) else wanted[0].dtype if isinstance(wanted, list) else None
    return _CLOSE.get(dtype, 1e-9) if dtype is not None else 1e-9


def _of_tensors(
    pairs: Mapping[int, tuple[Tensor, Tensor]], wrong: Sequence[int], close: float, given: Sequence[Any]
) -> Iterator[str]:
    came, wanted = pairs[wrong[0]]
    whose = "All numbers" if len(wanted) > 1 else "The number"

    def all_are(way: Callable[[Tensor, int], Tensor]) -> bool:
        return all(_near(pairs[rank][0], way(pairs[rank][1], rank), close) for rank in wrong)

    if all_are(lambda right, _: torch.zeros_like(right)):
        yield f"{whose} {_are(wanted)} 0."
    elif len(set(wanted.tolist())) > 1 and len(set(came.tolist())) == 1 and all_are(lambda right, _: came):
        yield f"{whose} are {number(float(came[0]))}."
    if all_are(lambda right, _: -right):
        yield f"{whose} {_are(wanted)} right but for the sign."
    if given and all(_is_given(pairs[rank][0], given[rank], close) for rank in wrong):
        yield "It is what the rank was given, unchanged."
    other = [_whose(pairs, rank, close) for rank in wrong]
    if len(wanted) > 1 and None not in other:
        yield f"It is what rank {other[0]} should have."
    yield from _by_factors(pairs, wrong, close)
    apart = came - wanted
    if len(wanted) > 1 and len(set(wanted.tolist())) > 1 and all_are(lambda right, _: right + apart[0]):
        yield f"Each number is {number(abs(float(apart[0])))} too {'large' if apart[0] > 0 else 'small'}."
    if all_are(lambda right, _: right.floor()):
        yield f"{whose} {_are(wanted)} rounded down to {'whole ones' if len(wanted) > 1 else 'a whole one'}."
    if all_are(lambda right, _: right.square()):
        yield f"{whose} {_are(wanted)} the square of what should be there."
    if bool((wanted != 0).all()) and all_are(lambda right, _: 1 / right):
        yield f"{whose} {_are(wanted)} upside down: one divided by what should be there."
    if all_are(lambda right, _: right.abs().sqrt()) and bool((wanted >= 0).all()):
        yield f"{whose} {_are(wanted)} the root of what should be there."
    if len(wanted) > 2 and len(set(wanted.tolist())) > 2:
        if all_are(lambda right, _: right.flip(0)):
            yield "The numbers are the right ones, in reverse order."
        for places in range(1, min(len(wanted), 64)):
            if all_are(lambda right, _, places=places: right.roll(places)):  # type: ignore[misc]
                back = len(wanted) - places
                far, way = (places, "on") if places <= back else (back, "back")
                yield f"The numbers are the right ones, each {far} place{'' if far == 1 else 's'} too far {way}."
        if all(_near(pairs[rank][0].sort().values, pairs[rank][1].sort().values, close) for rank in wrong):
            yield "The numbers are the right ones, in another order."


def _are(wanted: Tensor) -> str:
    return "are" if len(wanted) > 1 else "is"


def _near(one: Tensor, other: Tensor, close: float) -> bool:
    size = max(float(other.abs().max()), 1e-30)
    return bool(((one - other).abs() <= close * size).all())


def _is_given(came: Tensor, given: Any, close: float) -> bool:
    """Return whether this is one of the tensors that a rank was given."""
    tensors = [each for each in given.values() if isinstance(each, Tensor)] if isinstance(given, Mapping) else []
    return len(came) > 1 and any(
        each.numel() == len(came) and _near(came, each.double().flatten(), close) for each in tensors
    )


def _whose(pairs: Mapping[int, tuple[Tensor, Tensor]], rank: int, close: float) -> int | None:
    """Return the other rank for which this would be right."""
    came, mine = pairs[rank]
    others = (
        other
        for other, (_, right) in pairs.items()
        if other != rank and right.shape == came.shape and _near(came, right, close) and not _near(mine, right, close)
    )
    return next(others, None)


def _by_factors(pairs: Mapping[int, tuple[Tensor, Tensor]], wrong: Sequence[int], close: float) -> Iterator[str]:
    """Yield by which factor each wrong rank's numbers are off, where there is one."""
    factors: dict[int, float] = {}
    for rank in wrong:
        came, right = pairs[rank]
        square = float((right * right).sum())
        factor = float((came * right).sum()) / square if square > 0 else 0.0
        if not factor or abs(factor - 1) < 1e-3 or not _near(came, factor * right, close):
            return
        factors[rank] = factor
    first, length = factors[wrong[0]], len(pairs[wrong[0]][1])
    same = all(abs(each - first) <= 1e-4 * abs(first) for each in factors.values())
    if same and (length > 1 or len({float(pairs[rank][1][0]) for rank in wrong}) > 1):
        whose, they = ("All numbers are", "they") if length > 1 else ("The number is", "it")
        yield f"{whose} {_times(first)} what {they} should be."
    elif not same and length > 1 and len(wrong) <= _MOST_RANKS:
        each = ", ".join(f"{_short(factor)} on rank {rank}" for rank, factor in factors.items())
        yield f"All numbers of a rank are off by one factor: {each}."


def _times(factor: float) -> str:
    near = next((said for times, said in SIMPLE_FACTORS.items() if abs(times - factor) < 1e-4 * times), "")
    share = Fraction(factor).limit_denominator(16)
    if not near and 0 < factor < 1 and abs(share - factor) < 1e-4 * factor:
        near = f"{share} of"
    return near or f"{_short(factor)} times"


def _short(factor: float) -> str:
    return f"{factor:.4g}"


def _in_part(came: Tensor, wanted: Tensor, close: float) -> Iterator[str]:
    """Yield which part of a tensor is wrong, where the rest is right."""
    size = max(float(wanted.double().abs().max()), 1e-30)
    off = (came.double() - wanted.double()).abs() > close * size
    flat = off.flatten()
    places = flat.nonzero().flatten().tolist()
    if not places or len(places) == len(flat):
        return
    zero = " They are 0." if not came[off].any() else ""
    yield from _rows_elsewhere(came, wanted, off, close * size)
    if len(places) == 1:
        yield f"Entry {places[0]} alone is wrong."
    elif places[-1] - places[0] + 1 == len(places):
        yield f"Only {span_of(places[0], places[-1] + 1)} of {len(flat)} are wrong.{zero}"
    steps = {b - a for a, b in pairwise(places)}
    if len(steps) == 1 and len(places) > 2:
        yield f"One element in {steps.pop()} is wrong, from element {places[0]} on.{zero}"
    for dim in range(off.dim()):
        here = off.transpose(0, dim).flatten(1).any(1).nonzero().flatten().tolist() if off.dim() > 1 else []
        if here and len(here) < off.shape[dim] and here[-1] - here[0] + 1 == len(here):
            which = f"is {here[0]}" if len(here) == 1 else f"is {here[0]} to {here[-1]}"
            yield f"Only entries whose index {which} in dimension {dim} are wrong.{zero}"


def _rows_elsewhere(came: Tensor, wanted: Tensor, off: Tensor, allowed: float) -> Iterator[str]:
    """Yield that each wrong row is another row's, and which the first one is."""
    if came.dim() != 2 or came.shape[1] < 2:
        return
    rows = off.any(1).nonzero().flatten().tolist()
    alike = {row: ((wanted - came[row]).abs() <= allowed).all(1).nonzero().flatten().tolist() for row in rows}
    if len(rows) > 1 and all(alike.values()):
        first = rows[0]
        yield f"Each wrong row is another row's: first, in row {first} stands what belongs in row {alike[first][0]}."


def _of_lists(came: Sequence[Any], wanted: Sequence[Any]) -> str:
    """Return where two nested lists part first."""
    found = _first(came, wanted, "")
    return f" {found}" if found else ""


def _first(came: Any, wanted: Any, path: str) -> str:
    where = f"At {path} it" if path else "It"
    if isinstance(came, list) and isinstance(wanted, list):
        if len(came) != len(wanted):
            count = "1 entry" if len(came) == 1 else f"{len(came) or 'no'} entries"
            return f"{where} has {count}, expected {len(wanted)}."
        if came != wanted and _plain(came) and sorted(came) == sorted(wanted):
            order = "in reverse" if came == wanted[::-1] else "in another order"
            return f"{where} has the right entries, {order}."
        parts = zip(came, wanted, strict=True)
        return next((_first(a, b, f"{path}[{place}]") for place, (a, b) in enumerate(parts) if a != b), "")
    if isinstance(came, dict) and isinstance(wanted, dict) and came.keys() == wanted.keys():
        apart = (key for key in wanted if came[key] != wanted[key])
        return next((_first(came[key], wanted[key], f"{path}[{key!r}]") for key in apart), "")
    return f"{where} is {came!s:.60} where {wanted!s:.60} belongs." if path else ""


def _plain(values: Sequence[Any]) -> bool:
    return all(isinstance(each, int | float | str) and not isinstance(each, bool) for each in values) and (
        len({isinstance(each, str) for each in values}) == 1
    )
