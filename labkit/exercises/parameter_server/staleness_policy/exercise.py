"""staleness_policy: a design. Which policy reaches the loss first when one worker is erratic; the answer is data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.values import record
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.staleness_policy.driver import crew_of, drive
from labkit.plans.policies import GOAL, SEEDS, Crew, Policy, faults_of, milliseconds, play, policy_of

PARS = {
    Crew(8, 0.25, 10.0): Pars(127.1312, 119.4621, 88.8372),
    Crew(4, 0.5, 4.0): Pars(165.1403, 155.1987, 118.9897),
    Crew(16, 0.3, 20.0): Pars(140.0889, 96.3881, 81.6989),
    Crew(6, 0.3, 8.0): Pars(145.9713, 125.7470, 122.3822),
    Crew(12, 0.15, 25.0): Pars(123.4756, 111.3551, 92.6470),
    Crew(10, 0.2, 15.0): Pars(105.1006, 97.0120, 95.7557),
}
"""Of each crew: the best of sync, async and bounded with their best rates, staleness-aware SGD, and the best known. A
test holds policies against each."""


def policy_case(crew: Crew) -> Case:
    """Return the case of a crew of which the best is known."""
    name = f"{crew.num_workers} workers; one takes {crew.factor:g} times as long in {crew.share:.0%} of its steps"
    return Case(name, 1, ({"num_workers": crew.num_workers, "share": crew.share, "factor": crew.factor},))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why it is no policy, or why the loss is never reached."""
    crew, plan = crew_of(case.inputs[0]), cast(Any, got[0]["policy"])
    if faults := [plan] if isinstance(plan, str) else faults_of(plan, crew.num_workers):
        yield Finding(_NO_POLICY, " ".join(map(str, faults)))
        return
    played = {seed: play(policy_of(plan), crew, seed) for seed in SEEDS}
    for seed, each in played.items():
        if each.ms is None:
            used = len(each.staleness)
            text = f"The loss never gets to {GOAL}: {used} gradients were used, {each.dropped} dropped (seed {seed})."
            yield Finding(_DROPS if used < each.dropped else _NEVER, text)


def score(case: Case, got: tuple[Values, ...]) -> float:
    """Return the milliseconds until the loss is reached, the mean over seeds."""
    found = milliseconds(_policy(got[0]), crew_of(case.inputs[0]))
    assert found is not None
    return found


def _policy(values: Values) -> Policy:
    return policy_of(record(values, "policy"))


def pars(case: Case) -> Pars:
    """Return what others take with this crew."""
    return PARS[crew_of(case.inputs[0])]


_NO_POLICY, _NEVER, _DROPS = "no policy", "the loss is never reached", "drops too much"

EXERCISE = declared(
    id="staleness_policy",
    functions=("staleness_policy",),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"policy": ANYTHING}],
    looks=(find,),
    visible=(policy_case(Crew(8, 0.25, 10.0)), policy_case(Crew(4, 0.5, 4.0)), policy_case(Crew(16, 0.3, 20.0))),
    distributed=False,
    hints=(
        "Whom does each of the three wait for, and what does the erratic worker's gradient do when it arrives?",
        "Do not wait for the erratic one: few gradients make a version. Do not trust its old gradient: divide the rate "
        "by the staleness, or drop it with a short list of rates. What is fresh can then take a larger rate.",
        "Try them: for needed in (1, 2, crew.num_workers - 1), for a rate from 0.1 to 2 and lists of 2 rates or many, "
        "milliseconds(policy_of(plan), crew) says how long it takes (None: never). Return the best plan.",
    ),
    mistakes=(
        Mistake(_NO_POLICY,
                'Return {"needed": 1, "bound": None, "rates": [0.1, 0.1]}: how many gradients make a version, how far '
                "a worker may run ahead, and a learning rate for each staleness from 0 on."),
        Mistake(_NEVER,
                "The rates are too large, so the weights diverge, or too small, so they never arrive. A version moves "
                "by the mean of its gradients; with staleness s the stable rate shrinks like 1/s."),
        Mistake(_DROPS,
                "Most gradients are staler than your list of rates is long, and are dropped. Make it longer, or let "
                "more gradients make a version, so that there are fewer versions to miss."),
    ),
    challenge=Challenge("ms", score, pars, plan="policy", reference="staleness-aware"),
)  # fmt: skip
