"""Which parameters travel together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.structure import Each, OneOf
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ddp.bucket_plan.driver import drive
from labkit.plans.buckets import BrokenRule, broken_rules


def plans_case(name: str, calls: Sequence[tuple[Sequence[int], int]]) -> Case:
    """Return a case: (sizes, cap) of each call."""
    return Case(name, 1, ({"calls": [{"sizes": list(sizes), "cap": cap} for sizes, cap in calls]},))


def _calls(case: Case) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], case.inputs[0]["calls"])


def rules(case: Case) -> list[Values]:
    """Return how many plans are asked for; labkit.plans.buckets tells what makes one right (the oracle)."""
    return [{"plans": len(_calls(case))}]


def structure(case: Case) -> list[Any]:
    """Return what comes: for each call a list of lists of indices, or in words what else."""
    return [{"plans": [OneOf((Each(Each(OneOf((int, str)))), str)) for _ in _calls(case)]}]


def _broken(case: Case, got: Got) -> list[tuple[dict[str, Any], Value, list[BrokenRule]]]:
    """Return call, plan and broken rules of each call."""
    plans = got[0].get("plans") if isinstance(got, tuple) else None
    found = []
    for number, call in enumerate(_calls(case)):
        plan = plans[number] if isinstance(plans, list) and number < len(plans) else None
        is_plan = isinstance(plan, list) and all(
            isinstance(bucket, list) and all(type(index) is int for index in bucket) for bucket in plan
        )
        form = [BrokenRule("form", "That is no list of lists.")]
        broken = broken_rules(cast(Any, plan), call["sizes"], call["cap"]) if is_plan else form
        found.append((call, plan, broken))
    return found


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every plan keeps every rule."""
    for call, plan, broken in _broken(case, got):
        for rule in broken:
            shown = f"bucket_plan({call['sizes']}, {call['cap']})"
            return Verdict(False, message=f"{shown}: {rule.text}", got=str(plan))
    return Verdict(True)


def _any(kind: str) -> Any:
    return lambda case, got, wire: any(rule.kind == kind for *_, broken in _broken(case, got) for rule in broken)


EXERCISE = judged(
    id="bucket_plan",
    functions=("bucket_plan",),
    driver=drive,
    oracle=rules,
    structure=structure,
    judge=judge,
    visible=(
        plans_case("four layers of 100 bytes, cap 200", [([100] * 4, 200), ([100] * 5, 250)]),
        plans_case("one parameter is larger than the cap", [([40, 900, 40, 40], 100), ([500], 100)]),
        plans_case("everything fits; nothing to plan", [([8, 16, 24], 1000), ([], 100)]),
    ),
    distributed=False,
    hints=(
        "In which order do gradients become complete in backward, and so in which order should you walk?",
        "Walk from the last index to 0. Keep the bytes of the bucket you are filling. If the next parameter would go "
        "over the cap, begin a new bucket with it; one larger than the cap has a bucket of its own.",
        "if not buckets or filled + sizes[index] > cap_bytes: buckets.append([]); filled = 0",
    ),
    mistakes=(
        Mistake("order of registration", "Backward ends with parameter 0: go from the last down.", _any("order")),
        Mistake(
            "over the cap",
            "Look before you add: a bucket is full when the next parameter would go over the cap.",
            _any("over_cap"),
        ),
        Mistake(
            "an empty bucket",
            "A parameter larger than the cap leaves an empty bucket before it: begin a new one only if the last holds "
            "something.",
            _any("empty"),
        ),
        Mistake(
            "closed too early",
            "A bucket is left although the next parameter still fits: exactly the cap is allowed.",
            _any("still_fits"),
        ),
        Mistake("a parameter is lost", "Do not forget the bucket that was filling at the end.", _any("missing")),
        Mistake(
            "a parameter twice", "A parameter stands in two buckets: after closing one, begin with an empty list.",
            _any("twice"),
        ),
        Mistake(
            "not a list of lists", "Return a list of buckets; a bucket is a list of indices into sizes.", _any("form")
        ),
    ),
)  # fmt: skip
