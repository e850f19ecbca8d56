"""Hidden cases of staleness_policy."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.parameter_server.staleness_policy.exercise import policy_case
from labkit.plans.policies import Crew


def cases(draw: random.Random) -> list[Case]:
    return [policy_case(crew) for crew in draw.sample([Crew(6, 0.3, 8.0), Crew(12, 0.15, 25.0), Crew(8, 0.1, 40.0)], 2)]
