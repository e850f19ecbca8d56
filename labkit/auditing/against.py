"""A run held against the same program on one process: where they part first, by more than rounding explains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from labkit.auditing.bits import rows
from labkit.auditing.probes import Place, Probes

_TIMES = 10.0
"""So many times what rounding was measured to do may be rounding: the ranks' sums are cut in more ways than one."""
_LEAST = 8.0
"""Units in the last place by which any two orders of summation may differ: of the largest element, for parameters and
gradients of the largest in the step."""
_COMPARED = ("parameter", "input", "output", "function", "target", "loss", "gradient")
_OTHER_BATCH = "the ranks together do not read what one process reads in a step: it is not the same global batch"
Layout = dict[int, torch.Tensor]
"""Rank -> which rows of the reference its rows are."""


@dataclass(frozen=True)
class Parting:
    """The first value in which a run parts from its reference.

    Attributes:
        place: Where it arose.
        rank: On which rank it lies farthest.
        by: How far, at most.
        explained: How far rounding explains.
        source: The program's line.
        callee: What the module that is called is named there, "" where that is not known.
    """

    place: Place
    rank: int
    by: float
    explained: float
    source: str
    callee: str = ""


def parting(run: Probes, reference: Probes, others: list[Probes]) -> Parting | str:
    """Return where a run parts first from its reference, "" where it does not, else why nobody can say.

    Args:
        run: The values of the ranks.
        reference: Those of one process.
        others: Those of the same process with other roundings.
    """
    run, reference, others = _losses_summed(run), _losses_summed(reference), [_losses_summed(one) for one in others]
    reason = _cannot(run, reference)
    if reason:
        return reason
    layouts: dict[int, Layout] = {}
    found: Parting | None = None
    largest, coarsest = _largest(reference), _coarsest(run)
    for place, whole in _of_rank_0(reference):
        parts = run.values.get(place)
        if not parts:
            continue
        if found is not None and (place.step != found.place.step or place.kind != "parameter"):
            continue
        if place.kind == "input" and (layout := _layout(parts, whole)) is not None:
            layouts[place.step] = layout
            continue
        if place.kind == "input" and place.step not in layouts and not _fits(parts, whole, 0):
            return _OTHER_BATCH  # this is what the program reads: no rounding is in it yet
        apart = _apart(place, parts, whole, layouts.get(place.step, {}))
        explained = _explained(place, whole, others, largest.get((place.step, place.kind), 0.0), coarsest)
        rank = next((rank for rank in sorted(apart) if apart[rank] > explained), None)
        if rank is not None:
            source, callee = run.sources[place], run.callees.get(place, "")
            found = Parting(place, rank, apart[rank], explained, source, callee)
            if place.kind == "parameter" or not place.step:
                break  # in a later step, the parameters that it begins with are looked at first
    return found or ""


def _of_rank_0(probes: Probes) -> Iterator[tuple[Place, torch.Tensor]]:
    for place, values in probes.values.items():
        if 0 in values and place.kind in _COMPARED:
            yield place, values[0]


def _losses_summed(probes: Probes) -> Probes:
    """Return values in which the losses of a step are one, their sum: ranks may come to them in orders of their own."""
    found: dict[Place, dict[int, torch.Tensor]] = {}
    for place, values in probes.values.items():
        if place.kind != "loss":
            found[place] = values
            continue
        one = replace(place, number=0)
        before = found.pop(one, {})  # it is the last loss that completes the sum
        found[one] = {rank: value + before[rank] if rank in before else value for rank, value in values.items()}
    return replace(probes, values=found)


def _cannot(run: Probes, reference: Probes) -> str:
    if run.by_batch:
        return f"{run.by_batch} computes with the statistics of each rank's own batch"
    if run.draws or reference.draws:
        return "its forward pass draws random numbers, which are others on one process"
    begins = [(place, whole) for place, whole in _of_rank_0(reference) if place.kind == "parameter" and not place.step]
    if not begins:
        return "no optimizer.step() was seen on one process"
    for place, whole in begins:
        apart = _apart(place, run.values.get(place, {}), whole, {})
        if any(apart.values()):
            return f"{place.name} begins with other values on one process"
    return ""


def _largest(reference: Probes) -> dict[tuple[int, str], float]:
    """Return the largest element of a step's parameters and gradients: what is near zero was rounded beside it."""
    found: dict[tuple[int, str], float] = {}
    for place, whole in _of_rank_0(reference):
        if place.kind in ("parameter", "gradient") and whole.numel():
            key = place.step, place.kind
            found[key] = max(found.get(key, 0.0), float(whole.abs().max()))
    return found


def _coarsest(probes: Probes) -> float:
    """Return a unit in the last place, relative, of the type with fewest digits that modules compute with."""
    kinds = {
        value.dtype
        for place, values in probes.values.items()
        for value in values.values()
        if place.kind in ("input", "output") and value.is_floating_point()
    }
    return max((torch.finfo(kind).eps for kind in kinds), default=0.0)


def _explained(place: Place, whole: torch.Tensor, others: list[Probes], largest: float, coarsest: float) -> float:
    """Return by how much rounding explains that a value is another.

    Args:
        place: Where it arose.
        whole: The value on one process.
        others: Values with other roundings.
        largest: The largest of what it was computed with.
        coarsest: The relative unit in the last place of the type with fewest digits.
    """
    if not whole.is_floating_point():
        return 0.0
    measured = [0.0]
    for other in others:
        value = other.values.get(place, {}).get(0)
        if value is not None and value.shape == whole.shape:
            measured.append(_farthest(value, whole))
    largest = max(largest, float(whole.abs().max()) if whole.numel() else 0.0)
    return max(_TIMES * max(measured), _LEAST * max(torch.finfo(whole.dtype).eps, coarsest) * largest)


def _farthest(one: torch.Tensor, other: torch.Tensor) -> float:
    if not one.numel():
        return 0.0
    gap = (one.double() - other.double()).abs()
    return float("inf") if bool(gap.isnan().any()) else float(gap.max())


def _apart(place: Place, parts: dict[int, torch.Tensor], whole: torch.Tensor, layout: Layout) -> dict[int, float]:
    """Return how far each rank lies from the reference, in the layout that fits best; nothing where none fits."""
    if place.kind == "loss":
        return _loss_apart(parts, whole)
    found = []
    if all(part.shape == whole.shape for part in parts.values()):
        found.append({rank: _farthest(part, whole) for rank, part in parts.items()})
    rows_of = _rows(parts, whole, layout)
    if rows_of is not None:
        found.append({rank: _farthest(part, whole[rows_of[rank]]) for rank, part in parts.items()})
    for dim in range(whole.dim()):
        if _fits(parts, whole, dim):
            pieces = torch.split(whole, [part.shape[dim] for _, part in sorted(parts.items())], dim)
            ranks = sorted(parts)
            found.append({rank: _farthest(parts[rank], pieces[place]) for place, rank in enumerate(ranks)})
    return min(found, key=lambda by_rank: max(by_rank.values()), default={})


def _loss_apart(parts: dict[int, torch.Tensor], whole: torch.Tensor) -> dict[int, float]:
    """Return how far the ranks' losses are from the reference's: each alone, their mean, or their sum is it."""
    values = {rank: float(part) for rank, part in parts.items()}
    target, total = float(whole), sum(values.values())
    together = min(abs(total / len(values) - target), abs(total - target))
    apart = {rank: min(abs(value - target), together) for rank, value in values.items()}
    return {rank: by if by == by else float("inf") for rank, by in apart.items()}


def _fits(parts: dict[int, torch.Tensor], whole: torch.Tensor, dim: int) -> bool:
    shapes = [part.shape for part in parts.values()]
    if len(parts) < 2 or any(len(shape) != whole.dim() for shape in shapes):
        return False
    same = all(shape[:dim] + shape[dim + 1 :] == whole.shape[:dim] + whole.shape[dim + 1 :] for shape in shapes)
    return same and sum(shape[dim] for shape in shapes) == whole.shape[dim]


def _rows(parts: dict[int, torch.Tensor], whole: torch.Tensor, layout: Layout) -> Layout | None:
    """Return which rows of the reference the ranks' rows are, for values that have a multiple of the batch's rows."""
    found: Layout = {}
    num_rows = sum(len(one) for one in layout.values())
    for rank, part in parts.items():
        mine = layout.get(rank)
        if mine is None or not part.dim() or not whole.dim() or part.shape[1:] != whole.shape[1:] or not len(mine):
            return None
        times, rest = divmod(len(part), len(mine))
        if rest or not times or int(mine.max()) * times >= len(whole) or len(whole) > times * num_rows:
            return None
        found[rank] = (mine[:, None] * times + torch.arange(times)).reshape(-1)
    return found


def _layout(parts: dict[int, torch.Tensor], whole: torch.Tensor) -> Layout | None:
    """Return which rows of a batch each rank has, None where they are not the batch's."""
    if not whole.dim() or any(not part.dim() or part.shape[1:] != whole.shape[1:] for part in parts.values()):
        return None
    ranks, size = sorted(parts), len(whole)
    ends = torch.tensor([0, *(len(parts[rank]) for rank in ranks)]).cumsum(0).tolist()
    by_digest = {bits: row for row, bits in enumerate(rows(whole, size))}
    looked_up = {rank: [by_digest.get(bits, -1) for bits in rows(parts[rank], len(parts[rank]))] for rank in ranks}
    for candidate in (
        {rank: torch.arange(size) for rank in ranks},
        {rank: torch.arange(ends[place], ends[place + 1]) for place, rank in enumerate(ranks)},
        {rank: torch.arange(size)[place :: len(ranks)] for place, rank in enumerate(ranks)},
        {rank: torch.tensor(found) for rank, found in looked_up.items()},
    ):
        fits = all(
            len(mine) == len(parts[rank]) and len(mine) and int(mine.min()) >= 0 and int(mine.max()) < size
            and torch.equal(parts[rank], whole[mine])
            for rank, mine in candidate.items()
        )  # fmt: skip
        if fits and len({int(row) for mine in candidate.values() for row in mine}) == size:
            return candidate
    return None
