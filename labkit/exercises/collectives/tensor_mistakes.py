"""Mistakes that are seen in the numbers of lesson 03's drop-in, or in the bytes that its ring sends.

Both exercises look for them: a drop-in may be built on any_tensor's function, or be written in one piece.
"""

from __future__ import annotations

import torch

from labkit.checks import values
from labkit.checks.case import Case, Failure
from labkit.checks.declared import Mistake
from labkit.checks.wire import Wire
from labkit.exercises.sums_over_ranks.on_ranks import view_of
from labkit.exercises.sums_over_ranks.sum_mistakes import common, is_scaled, sum_mistake
from labkit.exercises.sums_over_ranks.sum_outcome import SumOutcome
from labkit.exercises.sums_over_ranks.sums import base_of, layout_of, op_of
from labkit.exercises.sums_over_ranks.traffic import chunk_bytes


def _changed_beside(came: SumOutcome) -> bool:
    """Return whether elements of a member's storage that are not in the view were changed."""
    for rank in came.members:
        now, before = values.tensor(came.got[rank], "base").clone(), base_of(came.case, rank).clone()
        for each in (now, before):
            view_of(each, layout_of(came.case)).zero_()
        if not torch.equal(now, before):
            return True
    return False


def _is_undivided(came: SumOutcome) -> bool:
    """Return whether the sum came where another operation was asked for."""
    return op_of(came.case) != "SUM" and came.is_near(torch.stack([x.double() for x in came.inputs]).sum(0), 1e-2)


def _is_divided_wrongly(came: SumOutcome) -> bool:
    size = len(came.members)
    factors = (1 / size, 1 / size**2, size / came.case.world_size, size / 2, size / 4)
    return op_of(came.case) == "AVG" and any(is_scaled(came, factor) for factor in factors)


def _averages_pairs(came: SumOutcome) -> bool:
    """Return whether each element is what the ranks' numbers become that are averaged two by two, round the ring."""
    size = len(came.members)
    if op_of(came.case) != "AVG" or size < 3:
        return False
    ways = []
    for first in range(size):
        total, *others = (came.inputs[(first + turn) % size].double() for turn in range(size))
        for each in others:
            total = (total + each) / 2
        ways.append(total)
    return all(
        torch.stack([(view.double() - way).abs() <= 1e-6 * way.abs() for way in ways]).any(0).all()
        for view in came.views
    )


def _is_in_other_places(came: SumOutcome) -> bool:
    """Return whether a transposed or strided tensor has the right numbers in the wrong places."""
    exact, views = came.exact.double().reshape(-1), [view.double().reshape(-1) for view in came.views]
    sorted_alike = all(torch.equal(view.sort().values, exact.sort().values) for view in views)
    return layout_of(came.case) != "plain" and sorted_alike and not all(torch.equal(view, exact) for view in views)


def _sends_wide_numbers(came: SumOutcome) -> bool:
    """Return whether the results are right, and a chunk travels with twice the bytes that its elements have."""
    view, chunk = came.views[0], chunk_bytes(came.case, len(came.members))
    wide = 2 * view.element_size() if view.element_size() > 2 else 8
    sizes = {message.bytes for message in came.wire.messages}
    return max(sizes, default=0) == chunk // view.element_size() * wide > chunk


def _is_rounded_otherwise(came: SumOutcome) -> bool:
    """Return whether every member holds an average of integers to within what one division for each part can lose."""
    is_whole = op_of(came.case) == "AVG" and not came.exact.is_floating_point()
    return is_whole and all(((view - came.exact).abs() <= len(came.members)).all() for view in came.views)


def _is_coarse(came: SumOutcome) -> bool:
    return came.exact.is_floating_point() and came.views[0].element_size() <= 2 and came.is_near(came.exact, 0.1)


def _went_through_float32(came: SumOutcome) -> bool:
    """Return whether integers are wrong, or float64 is right in float32's precision only."""
    dtype = came.views[0].dtype
    return not dtype.is_floating_point or (dtype == torch.float64 and came.is_near(came.exact, 1e-5))


def _overflowed(came: SumOutcome) -> bool:
    return op_of(came.case) == "AVG" and any(bool(view.isinf().any()) for view in came.views)


def _divides_integers(case: Case, failure: Failure, wire: Wire) -> bool:
    return op_of(case) == "AVG" and "can't be cast" in failure.message


FIRST: tuple[Mistake, ...] = common("calls the library", "fewer chunks than ranks")
"""What is looked for before anything else."""

IN_NUMBERS: tuple[Mistake, ...] = (
    sum_mistake("writes beside the view",
                "Elements of the storage that are not in the tensor were changed: work on a copy and copy back "
                "into the tensor.", came=_changed_beside),
    *common("works on a copy of a non-contiguous tensor"),
    sum_mistake("not divided",
                "The sum came back undivided. Either nothing divides, or the wrong chunk is divided: after the "
                "reduce-scatter, only the chunk this rank owns counts, because the all-gather overwrites the "
                "others.", came=lambda came: op_of(came.case) == "AVG" and _is_undivided(came)),
    sum_mistake("op ignored",
                "The sum came back although another operation was asked for: what combines two chunks depends on "
                "op.", came=_is_undivided),
    sum_mistake("averaged pair by pair",
                "Each step of the ring took the mean of two numbers, so the ranks do not count alike. Add in every "
                "step, and divide once, by the number of ranks that take part.", came=_averages_pairs),
    sum_mistake("written back in another order",
                "The numbers are right and stand in other places: copy the flat result back in the order in which "
                "contiguous() laid it out, tensor.copy_(flat.view(tensor.shape)).", came=_is_in_other_places),
    sum_mistake("divided wrongly",
                "The average is off by a whole factor: divide once, by the number of ranks that take part (not in "
                "every step, not on both the partial and the final sum, not by the world's size).",
                came=_is_divided_wrongly),
    sum_mistake("an average of integers rounded otherwise",
                'AVG of integers is rounded towards zero: torch.div(total, n, rounding_mode="trunc"). Floor '
                "division, //, rounds down; /= refuses integers; and parts that are divided before they are added "
                "lose a remainder each.", came=_is_rounded_otherwise, failed=_divides_integers),
    *common("mean instead of sum", "another operation", "cut to whole numbers"),
    sum_mistake("an average rounded before it is divided",
                "The sum of these numbers is beyond float16's range, their average is not: divide while it is "
                "float32, and round once, after that.", came=_overflowed),
    sum_mistake("adds up in 16 bits",
                "The error grows with the number of ranks: every hop rounded to 16 bits. Whatever op is, combine "
                "in float32 and round once, at the end.", came=_is_coarse),
    sum_mistake("a detour through float32",
                "The last digits are lost: only bfloat16 and float16 are added up in float32; integers must stay "
                "integers, and float64 must stay float64.", came=_went_through_float32),
    sum_mistake("wider than the tensor",
                "The results are right, and what travels is wider than the tensor's type. Partial sums of 16-bit "
                "tensors are float32; all others travel in the type that they have.", came=_sends_wide_numbers),
)  # fmt: skip
"""Mistakes of layout, operation and type."""

IN_THE_RING: tuple[Mistake, ...] = common(
    "cut by rows",
    "whole tensor at each step",
    "nobody sent anything",
    "not in place",
    "no all-gather",
    "nothing added up",
    "remainder dropped",
)
"""Mistakes of the ring itself."""

LAST: tuple[Mistake, ...] = common("needs sizes that divide", "contributions missing")
"""What other mistakes bring about, too."""
