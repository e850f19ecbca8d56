"""All-reduce in every dress: cases, what each rank must hold afterwards, and a wrong result in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.compare import Difference, difference, listing, tolerance
from labkit.checks.contributions import Shares, in_words, runs, shares_of
from labkit.checks.verdict import Verdict
from labkit.exercises.ring_all_reduce.on_ranks import view_of
from labkit.words import are_wrong, ranks_in_words, span_of


def whole_numbers(
    seed: int, world_size: int, shape: Sequence[int], dtype: torch.dtype = torch.float32, largest: int | None = None
) -> list[Tensor]:
    """Return one tensor of whole numbers for each rank, all different and in no order; sums of them are exact."""
    generator = torch.Generator().manual_seed(seed)
    most = largest or (999 if world_size <= 4 else 19_999)
    return [torch.randint(1, most + 1, tuple(shape), generator=generator).to(dtype) for _ in range(world_size)]


def fractions(seed: int, world_size: int, shape: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    """Return one tensor of fractions between 1 and 2 for each rank, rounded to `dtype`."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.rand(tuple(shape), generator=generator, dtype=torch.float64) + 1).to(dtype) for _ in range(world_size)
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


def members_of(case: Case) -> list[int]:
    """Return the global ranks that take part."""
    group = case.inputs[0].get("group")
    return list(range(case.world_size)) if group is None else list(cast(list[int], group))


def base_of(case: Case, rank: int) -> Tensor:
    """Return the whole tensor of a rank, before."""
    return cast(Tensor, case.inputs[rank]["tensor"])


def input_of(case: Case, rank: int) -> Tensor:
    """Return what a rank contributes, flat and contiguous."""
    return view_of(base_of(case, rank), layout_of(case)).reshape(-1)


def layout_of(case: Case) -> str:
    """Return which view of the tensor is reduced."""
    return cast(str, case.inputs[0]["layout"])


def op_of(case: Case) -> str:
    """Return "SUM", "AVG", ..."""
    return cast(str, case.inputs[0].get("op", "SUM"))


def exact_reduction(case: Case) -> tuple[Tensor, Tensor]:
    """Return the reduced view in float64 (or int64) and how far a result may be from it."""
    views = [view_of(base_of(case, rank), layout_of(case)) for rank in members_of(case)]
    dtype = views[0].dtype
    stack = torch.stack([view.double() if dtype.is_floating_point else view.long() for view in views])
    op = op_of(case)
    if op in ("SUM", "AVG"):
        exact, magnitude = stack.sum(0), stack.abs().sum(0)
        if op == "AVG":
            exact, magnitude = exact / len(views), magnitude / len(views)
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


def view_that_came(case: Case, got: Got, rank: int) -> Tensor | None:
    """Return the flat reduced view as it came back from a rank, or None where it is not of the right form."""
    if not isinstance(got, tuple):
        return None
    base = got[rank].get("base")
    if not isinstance(base, Tensor) or base.shape != base_of(case, rank).shape:
        return None
    return view_of(base, layout_of(case)).reshape(-1)


def wrong_values(case: Case, got: tuple[Values, ...]) -> Verdict | None:
    """Return a verdict on the first rank whose tensor is wrong, or None where all are right."""
    exact, allowed = exact_reduction(case)
    expected = expected_bases(case)
    found: dict[int, Difference] = {}
    outside: dict[int, bool] = {}
    for rank in range(case.world_size):
        came, should = got[rank].get("base"), cast(Tensor, expected[rank]["base"])
        form = difference(came, should)
        if form is None:
            continue
        if form.what != "value":
            found[rank] = form
            continue
        came = cast(Tensor, came).clone()
        view = view_of(came, layout_of(case))
        inside = None
        if rank in members_of(case):
            inside = difference(view, exact, allowed)
            view.copy_(view_of(should, layout_of(case)))  # what is left is what lies outside the view
        rest = difference(came, should)
        if inside is not None or rest is not None:
            found[rank] = inside or cast(Difference, rest)
            outside[rank] = inside is None
    if not found:
        return None
    rank, first = next(iter(found.items()))
    return Verdict(
        False,
        message=_message(case, got, found, outside),
        expected=f"rank {rank}: {_expected_text(case, rank, first, exact)}",
        got=f"rank {rank}: {_got_text(case, got, rank, first)}",
        rank=rank,
    )


def _expected_text(case: Case, rank: int, first: Difference, exact: Tensor) -> str:
    if first.what != "value":
        return first.expected
    if rank not in members_of(case):
        return listing(base_of(case, rank), first.index)
    return listing(exact.reshape(-1), first.index)


def _got_text(case: Case, got: Got, rank: int, first: Difference) -> str:
    came = view_that_came(case, got, rank) if first.what == "value" else None
    return first.got if came is None else listing(came, first.index)


def _message(case: Case, got: tuple[Values, ...], found: dict[int, Difference], outside: dict[int, bool]) -> str:
    rank, first = next(iter(found.items()))
    right = [other for other in range(case.world_size) if other not in found]
    who = are_wrong(found, case.world_size)
    who += f", {ranks_in_words(right)} {'is' if len(right) == 1 else 'are'} right." if right else "."
    if first.what != "value":
        return f"{who} Rank {rank}'s tensor has {first.what} {first.got}, expected {first.expected}."
    if outside.get(rank):
        if rank not in members_of(case):
            return f"{who} Rank {rank} is not in the group; its tensor must stay as it was."
        return f"{who} Rank {rank}'s view is right, but elements beside it in the same storage were changed."
    if _is_rounding(case, got, rank):
        return (
            f"{who} On rank {rank} element {first.index} is {first.got}, expected {first.expected}: nearly right, so "
            f"nothing is missing, but rounded more than once ({first.count} of {len(input_of(case, rank))} elements)."
        )
    where = f"{who} On rank {rank} element {first.index} is {first.got}, expected {first.expected}"
    if first.count > 1:
        where += f" ({first.count} of {len(input_of(case, rank))} elements differ)"
    return f"{where}.{contents_in_words(case, shares_at(case, got, rank))}"


def _is_rounding(case: Case, got: Got, rank: int) -> bool:
    """Return whether a rank's 16-bit numbers are all within some roundings of what they should be."""
    came = view_that_came(case, got, rank)
    if came is None or rank not in members_of(case) or came.element_size() > 2 or not came.is_floating_point():
        return False
    exact = exact_reduction(case)[0].reshape(-1)
    unit = torch.finfo(came.dtype).eps * len(members_of(case))
    return bool(torch.allclose(came.double(), exact, rtol=unit))


def shares_at(case: Case, got: Got, rank: int) -> list[Shares] | None:
    """Return which contributions each element on a rank holds (for SUM), or None where that cannot be told."""
    came = view_that_came(case, got, rank) if rank in members_of(case) else None
    if came is None or op_of(case) not in ("SUM", "AVG"):
        return None
    return shares_of(came, [input_of(case, member) for member in members_of(case)])


def contents_in_words(case: Case, shares: list[Shares] | None) -> str:
    """Return a few words on what each wrong stretch of elements holds, or ""."""
    if shares is None:
        return ""
    wrong = [(start, end, share) for start, end, share in runs(shares) if share is None or set(share) != {1}]
    if not wrong or all(share is None for _, _, share in wrong):
        return ""
    members = members_of(case)
    shown = [f"in {span_of(start, end)} {in_words(share, members)}" for start, end, share in wrong[:3]]
    return f" There, {'; '.join(shown)}{'; and so on' if len(wrong) > 3 else ''}."
