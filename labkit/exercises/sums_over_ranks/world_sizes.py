"""The world sizes on which lesson 02's answers are tried on virtual ranks, and how many steps they need there."""

from __future__ import annotations

import math
from collections.abc import Callable

from labkit.checks.case import Case
from labkit.checks.exercise import Sweep

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 13, 16)
"""Small ones, a prime, odd and even ones, powers of two, and one beyond three doublings."""

_PROVES = "results, bytes, steps, no deadlock, nothing touched in flight"


def sweep(
    case_of: Callable[[int], Case],
    steps: Callable[[Case], int] | None = None,
    *,
    slack: int = 1,
    sizes: tuple[int, ...] = SIZES,
) -> Sweep:
    """Return the sweep of an exercise.

    Args:
        case_of: Makes the case of a world size.
        steps: How many messages one after another a case needs; None: not asked.
        slack: How many times as many pass.
        sizes: World sizes.
    """
    proves = _PROVES if steps is not None else _PROVES.replace(" steps,", "")
    return Sweep(tuple(case_of(size) for size in sizes), proves, steps, slack)


def ring_steps(case: Case) -> int:
    """Return the 2(N-1) steps of a ring."""
    return 2 * (case.world_size - 1)


def tree_steps(case: Case) -> int:
    """Return the 2 ceil(log2 N) steps of a tree."""
    return 2 * math.ceil(math.log2(case.world_size))
