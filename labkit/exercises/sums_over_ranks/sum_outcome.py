"""What an all-reduce brought: which contributions every element holds, and the first wrong one in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from labkit.checks import values
from labkit.checks.case import Case, Values
from labkit.checks.compare import Difference, difference, listing
from labkit.checks.contributions import Shares, in_words, runs, shares_of
from labkit.checks.finding import Finding
from labkit.checks.wire import Wire
from labkit.exercises.sums_over_ranks.on_ranks import view_of
from labkit.exercises.sums_over_ranks.sums import (
    base_of,
    exact_reduction,
    expected_bases,
    input_of,
    layout_of,
    members_of,
    op_of,
)
from labkit.words import are_wrong, ranks_in_words, span_of

Mark: TypeAlias = "Callable[[SumOutcome], bool]"
"""Whether a wrong result bears the mark of a mistake."""


@dataclass(frozen=True, eq=False)
class SumOutcome:
    """What came back from the ranks of an all-reduce, and what passed on the wire meanwhile."""

    case: Case
    got: tuple[Values, ...]
    wire: Wire

    @cached_property
    def members(self) -> list[int]:
        """The ranks that take part."""
        return members_of(self.case)

    @cached_property
    def views(self) -> list[Tensor]:
        """What each member holds now, flat."""
        return [view_of(values.tensor(self.got[rank], "base"), layout_of(self.case)).reshape(-1)
                for rank in self.members]  # fmt: skip

    @cached_property
    def inputs(self) -> list[Tensor]:
        """What each member contributed, flat."""
        return [input_of(self.case, rank) for rank in self.members]

    @cached_property
    def exact(self) -> Tensor:
        """The result, flat, in float64 or int64."""
        return exact_reduction(self.case)[0].reshape(-1)

    @cached_property
    def shares(self) -> list[list[Shares]]:
        """For each member which contributions its elements hold; empty where that cannot be told from them.

        That is so of what is no sum, and of averages of integers, which lack their remainder. 16-bit numbers are so
        coarse that several sums come to the same: of those only all contributions or a single one are told.
        """
        told = op_of(self.case) == "SUM" or (op_of(self.case) == "AVG" and self.exact.is_floating_point())
        return [_told(view, shares_of(view, self.inputs)) for view in self.views] if told else []

    @cached_property
    def elements(self) -> list[Shares]:
        """Which contributions the elements of all members hold."""
        return [share for row in self.shares for share in row]

    @cached_property
    def complete(self) -> list[float]:
        """For each member the part of its elements that hold every contribution once; empty as shares are."""
        return [sum(map(is_complete, row)) / len(row) for row in self.shares if row]

    @property
    def unchanged(self) -> bool:
        """Whether every member's tensor is as it was."""
        return all(map(torch.equal, self.views, self.inputs))

    def is_near(self, wanted: Tensor, relative: float) -> bool:
        """Return whether every member holds these numbers, up to a part of each."""
        return bool(len(wanted)) and all(
            torch.allclose(view.double(), wanted.double(), rtol=relative, atol=1e-9) for view in self.views
        )


def sum_outcome(case: Case, got: tuple[Values, ...], wire: Wire) -> SumOutcome:
    """Return what came of a run; the marks of all mistakes look at one."""
    if not _LAST or _LAST[0].got is not got or _LAST[0].case is not case:
        _LAST[:] = [SumOutcome(case, got, wire)]
    return _LAST[0]


_LAST: list[SumOutcome] = []


def _told(view: Tensor, shares: list[Shares]) -> list[Shares]:
    """Return the shares that can be told for certain."""
    return (
        [each if each and (sum(each) == 1 or is_complete(each)) else None for each in shares]
        if is_coarse(view)
        else shares
    )


def is_coarse(view: Tensor) -> bool:
    """Return whether its numbers have 16 bits and a fraction."""
    return view.element_size() == 2 and view.is_floating_point()


def is_complete(share: Shares) -> bool:
    """Return whether every contribution is in a share once."""
    return share is not None and set(share) == {1}


def wrong_sums(came: SumOutcome) -> Iterator[Finding]:
    """Yield a finding on the first rank whose tensor is wrong."""
    found = {rank: place for rank in range(came.case.world_size) if (place := _first_wrong(came, rank))}
    for rank, (first, beside) in found.items():
        member = rank in came.members
        base, flat = (base_of(came.case, rank), values.tensor(came.got[rank], "base"))
        right, wrong = (came.exact, came.views[came.members.index(rank)]) if member else (base, flat)
        yield Finding(
            "",
            f"{_who(found, came.case.world_size)} {_what(came, rank, first, beside)}",
            f"rank {rank}: {listing(right, first.index)}",
            f"rank {rank}: {listing(wrong, first.index)}",
            rank,
        )


def _first_wrong(came: SumOutcome, rank: int) -> tuple[Difference, bool] | None:
    """Return the first difference on a rank, and whether it lies beside the view; None where there is none."""
    base, should = values.tensor(came.got[rank], "base").clone(), values.tensor(expected_bases(came.case)[rank], "base")
    if rank in came.members:
        view, right = (view_of(each, layout_of(came.case)) for each in (base, should))
        inside = difference(view, *exact_reduction(came.case))
        if inside is not None:
            return inside, False
        view.copy_(right)  # what is left is what lies outside the view
    beside = difference(base, should)
    return None if beside is None else (beside, True)


def _who(wrong: Mapping[int, object], world_size: int) -> str:
    right = [rank for rank in range(world_size) if rank not in wrong]
    more = f", {ranks_in_words(right)} {'is' if len(right) == 1 else 'are'} right" if right else ""
    return f"{are_wrong(wrong, world_size)}{more}."


def _what(came: SumOutcome, rank: int, first: Difference, beside: bool) -> str:
    if rank not in came.members:
        return f"Rank {rank} is not in the group; its tensor must stay as it was."
    if beside:
        return f"Rank {rank}'s view is right, but elements beside it in the same storage were changed."
    place = came.members.index(rank)
    where = f"On rank {rank} element {first.index} is {first.got}, expected {first.expected}"
    total = len(came.exact)
    if rounded_often(came, came.views[place]):
        return (
            f"{where}: nearly right, so nothing is missing, but rounded more than once ({first.count} of {total} "
            "elements)."
        )
    count = f" ({first.count} of {total} elements differ)" if first.count > 1 else ""
    return f"{where}{count}.{_contents(came, place)}"


def rounded_often(came: SumOutcome, view: Tensor) -> bool:
    """Return whether 16-bit numbers are all within some roundings of what they should be."""
    if not is_coarse(view):
        return False
    return torch.allclose(view.double(), came.exact, rtol=torch.finfo(view.dtype).eps * len(came.members))


def _contents(came: SumOutcome, place: int) -> str:
    """Return a few words on what each wrong stretch of elements holds, or ""."""
    stretches = runs(came.shares[place]) if came.shares else []
    wrong = [(start, end, share) for start, end, share in stretches if not is_complete(share)]
    if is_coarse(came.views[place]):  # what cannot be told may be a sum all the same
        wrong = [each for each in wrong if each[2] is not None]
    if all(share is None for *_, share in wrong):
        return ""
    shown = [f"in {span_of(start, end)} {in_words(share, came.members)}" for start, end, share in wrong[:3]]
    return f" There, {'; '.join(shown)}{'; and so on' if len(wrong) > 3 else ''}."
