"""Hidden cases of staleness_policy."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.parameter_server.staleness_policy.exercise import policy_case
from labkit.plans.policies import Crew


def cases(draw: random.Random) -> list[Case]:
    crews = [Crew(6, 0.3, 8.0), Crew(12, 0.15, 25.0), Crew(10, 0.2, 15.0)]
    return for_half_and_all([policy_case(crew) for crew in draw.sample(crews, 2)])
