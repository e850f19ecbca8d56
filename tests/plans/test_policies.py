"""What a policy does with an erratic worker, and that each best known time is a policy's."""

from __future__ import annotations

from functools import partial

import pytest

from labkit.exercises.parameter_server.staleness_policy.exercise import PARS
from labkit.plans.policies import (
    Crew,
    Policy,
    asynchronous,
    bounded,
    faults_of,
    milliseconds,
    play,
    staleness_aware,
    synchronous,
    with_best_rate,
)

BEST = {
    Crew(8, 0.25, 10.0): Policy(2, None, (0.6,) * 3),
    Crew(4, 0.5, 4.0): Policy(3, None, (1.6, 1.1314, 0.9238, 0.8)),
    Crew(16, 0.3, 20.0): Policy(1, None, (0.25,) * 6),
    Crew(6, 0.3, 8.0): Policy(4, None, (1.8, 1.2728)),
    Crew(12, 0.15, 25.0): Policy(1, None, (0.15,) * 24),
    Crew(10, 0.2, 15.0): Policy(7, None, (1.5,) * 2),
}


def test_each_best_known_time_is_that_of_a_policy() -> None:
    found = {crew: milliseconds(policy, crew) for crew, policy in BEST.items()}
    assert found == pytest.approx({crew: pars.best for crew, pars in PARS.items()}, rel=1e-4)


@pytest.mark.parametrize(
    "crew", [pytest.param(crew, marks=[pytest.mark.long] * (crew != Crew(6, 0.3, 8.0))) for crew in PARS]
)
def test_the_other_pars_are_those_of_published_policies(crew: Crew) -> None:
    naive = min(with_best_rate(policy, crew)[0] for policy in (synchronous, asynchronous, bounded))
    aware = min(with_best_rate(partial(staleness_aware, needed=needed), crew)[0] for needed in (1, 2))
    assert (naive, aware) == pytest.approx((PARS[crew].naive, PARS[crew].paper), rel=1e-4)


def test_the_named_servers_are_as_stale_as_they_promise() -> None:
    crew = Crew(8, 0.25, 10.0)
    assert set(play(synchronous(crew), crew, 1).staleness) == {0}
    assert max(play(bounded(crew), crew, 1).staleness) <= 7 * 7
    assert max(play(asynchronous(crew), crew, 1).staleness) > 7 * 7


def test_what_is_too_stale_is_dropped_and_does_not_move_the_weights() -> None:
    crew = Crew(8, 0.25, 10.0)
    played = play(Policy(2, None, (0.6,) * 3), crew, 1)
    assert max(played.staleness) <= 2 and played.dropped > 0


@pytest.mark.parametrize(
    "plan",
    [None, {"needed": 1}, {"needed": True, "bound": None, "rates": [1.0]}, {"needed": 1, "bound": -1, "rates": [1]}],
)
def test_what_is_no_policy_is_said_in_words(plan: object) -> None:
    assert faults_of(plan, 8)
