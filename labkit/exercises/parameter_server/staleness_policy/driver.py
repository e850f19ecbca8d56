"""What a rank runs of staleness_policy."""

from __future__ import annotations

from typing import Any

from labkit.checks import values
from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.plans.policies import Crew, faults_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Call staleness_policy for one crew; return the policy as data, or in words what else it is (staleness_policy)."""
    crew = crew_of(inputs)
    policy: Any = functions["staleness_policy"](crew)
    if faults := faults_of(policy, crew.num_workers):
        return {"policy": " ".join(faults)}
    rates: list[Value] = [float(each) for each in policy["rates"]]
    return {"policy": {"needed": policy["needed"], "bound": policy["bound"], "rates": rates}}


def crew_of(inputs: Values) -> Crew:
    """Return the crew of a case."""
    return Crew(values.integer(inputs, "num_workers"), values.number(inputs, "share"), values.number(inputs, "factor"))
