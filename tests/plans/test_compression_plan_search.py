"""What lesson 10's design calls the best known is what the search behind it finds."""

from __future__ import annotations

import pytest

from labkit.checks.case import Case
from labkit.exercises.gradient_compression.compression_plan.exercise import EXERCISE, pars
from tests.plans.compression_plan_search import FINE, loss_of


@pytest.mark.long
@pytest.mark.parametrize("case", EXERCISE.visible, ids=lambda case: str(case.name))
def test_no_family_near_the_best_beats_the_best_known_by_more_than_one_percent(case: Case) -> None:
    assert min(loss_of(family, case) for family in FINE) > 0.99 * pars(case).best
