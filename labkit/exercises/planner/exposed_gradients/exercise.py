"""What of the gradients' traffic nothing hides: buckets behind backward, the embedding last, parameters back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labkit.checks.case import Case, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.structure import ANYTHING
from labkit.checks.values import listed
from labkit.exercises.planner import costs
from labkit.exercises.planner.cases import asked, plans_case
from labkit.exercises.planner.exposed_gradients.driver import drive
from labkit.exercises.planner.looks import NO_NUMBER, numbers_look
from labkit.plans.planned_step import Job, Plan, job_of

Buckets = tuple[list[float], list[float]]
Exposed = Callable[[Sequence[float], Sequence[float]], float]


def gradients_case(name: str, job: Job, plans: Sequence[Plan], buckets: Sequence[Buckets]) -> Case:
    """Return a case: buckets by what is computed before each and what each takes, and gradients by each plan."""
    backwards: list[Value] = [[costs.layer_seconds(job, plan)[1], costs.head_seconds(job, plan)[1]] for plan in plans]
    return plans_case(name, job, plans, buckets=[list(each) for each in buckets], backwards=backwards)


def _of_buckets(way: Exposed) -> Callable[[Case], list[float]]:
    return lambda case: [way(*each) for each in listed(case.inputs[0], "buckets")]


def _gradients(**how: Any) -> Callable[[Case], list[float]]:
    def of(case: Case) -> list[float]:
        job, plans = asked(case)
        both = zip(plans, listed(case.inputs[0], "backwards"), strict=True)
        return [costs.gradient_seconds(job, plan, *backwards, **how) for plan, backwards in both]

    return of


def _exposed(way: Exposed) -> dict[str, Callable[[Case], list[float]]]:
    return {"buckets": _of_buckets(way), "gradients": _gradients(exposed=way)}


def _all_at_once(computing: Sequence[float], takes: Sequence[float]) -> float:
    ready = [sum(computing[: at + 1]) for at in range(len(computing))]
    return max(0.0, max(at + each for at, each in zip(ready, takes, strict=True)) - sum(computing))


def _right(case: Case) -> list[Values]:
    return [{"buckets": _of_buckets(costs.exposed_seconds)(case), "gradients": _gradients()(case)}]


MISTAKES = (
    NO_NUMBER,
    Mistake("nothing hidden", "A bucket travels while the next layer is computed; only the rest is exposed.",
            _exposed(lambda computing, takes: sum(takes))),
    Mistake("hidden before it is ready",
            "A bucket cannot leave before its layer is computed. The last one leaves when all is computed: nothing "
            "hides it.", _exposed(lambda computing, takes: max(0.0, sum(takes) - sum(computing)))),
    Mistake("the last bucket alone",
            "Where a bucket takes longer than the next layer's backward, those behind it queue.",
            _exposed(lambda computing, takes: takes[-1])),
    Mistake("all at once", "Buckets follow one another: one leaves when it is ready *and* the one before is through.",
            _exposed(_all_at_once)),
    Mistake("the end, not the rest", "Return how long buckets travel *after* all is computed: subtract that time.",
            _exposed(lambda computing, takes: costs.exposed_seconds(computing, takes) + sum(computing))),
    Mistake("bfloat16 gradients", "Gradients travel in float32: 4 bytes each.",
            {"gradients": _gradients(of_gradient=2)}),
    Mistake("all-reduced", "Replicas share the optimizer's state: gradients are reduce-scattered, half of an "
            "all-reduce. The other half is the parameters, in bfloat16.", {"gradients": _gradients(halves=2)}),
    Mistake("no parameters back", "Each replica has updated its shard only: parameters are gathered, 2 bytes each.",
            {"gradients": _gradients(of_parameter=0)}),
    Mistake("parameters in float32", "Parameters come back in bfloat16: 2 bytes each.",
            {"gradients": _gradients(of_parameter=4)}),
    Mistake("uncut", "A tensor rank has the gradients of its pieces alone: divide by plan.tensor.",
            {"gradients": _gradients(cut=False)}),
    Mistake("no embedding", "The embedding's gradient is ready last, and nothing hides it.",
            {"gradients": _gradients(embedding=False)}),
    Mistake("no head", "With a single stage the head is here, too: its bucket is ready first, after its own backward.",
            {"gradients": _gradients(head=False)}),
)  # fmt: skip


_LAYERS, _WIDE = job_of(2048, 16, 16, 64), job_of(4096, 32, 32, 64)

EXERCISE = declared(
    id="exposed_gradients",
    functions=("exposed_seconds", "gradient_seconds"),
    driver=drive,
    oracle=_right,
    structure=lambda case: [{"buckets": ANYTHING, "gradients": ANYTHING}],
    looks=(
        numbers_look("buckets", "exposed_seconds", _of_buckets(costs.exposed_seconds),
                     lambda case, place: "{}, {}".format(*listed(case.inputs[0], "buckets")[place]), MISTAKES,
                     unit=1.0, sign="s"),
        numbers_look("gradients", "gradient_seconds", _gradients(), lambda case, place: str(asked(case)[1][place]),
                     MISTAKES),
    ),
    mistakes=MISTAKES,
    visible=(
        gradients_case("two and three buckets", _LAYERS, [Plan(16, 1, 1, 4), Plan(4, 2, 2)],
                       [([3.0, 3.0, 3.0], [1.0, 1.0, 1.0]), ([1.0, 1.0], [3.0, 1.0])]),
        gradients_case("long buckets", _WIDE, [Plan(16, 2, 1), Plan(4, 1, 8)],
                       [([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]), ([4.0, 1.0, 0.0], [1.0, 3.0, 2.0])]),
        gradients_case("one replica", _WIDE, [Plan(1, 4, 8), Plan(1, 32, 1)], [([5.0], [0.5])]),
    ),
    hints=(
        "Draw two lines: what is computed, and what travels. When does each bucket leave, when is it through?",
        "A bucket is through at max(when it is ready, when the one before is through) + what it takes. For the step: "
        "one bucket for each layer, the embedding's last, for which nothing is computed; on a single stage the head's "
        "first.",
        "now += computed; done = max(now, done) + travels; at the end done - now. A layer's bucket takes "
        "scatter_seconds(job, plan, \"data\", 4 * job.layer_params / plan.tensor); the gather 2 bytes of all "
        "parameters of the stage / plan.tensor.",
    ),
    distributed=False,
)  # fmt: skip
