"""A step's time by its parts, held against what the virtual cluster took by every plan of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.planner import costs
from labkit.exercises.planner.cases import Runs, asked, in_parts, plans_case, runs_of
from labkit.exercises.planner.looks import NO_NUMBER, numbers_look
from labkit.exercises.planner.step_time.driver import drive
from labkit.plans.hybrid_step import cost
from labkit.plans.planned_step import Plan, hop_seconds, job_of
from labkit.words import join

WITHIN = 0.10
"""How far a step may be off, as a share; the right formula is at most 0.09 off."""


def step_case(name: str, runs: Runs) -> Case:
    """Return the case of every plan of a job; what the cluster took is the judge's."""
    case = plans_case(name, runs.job, list(runs.seconds))
    return Case(case.name, 1, case.inputs, {"seconds": list(runs.seconds.values())})


def _measured(case: Case) -> list[float]:
    return [float(each) for each in listed(case.about, "seconds")]


def _way(**how: Any) -> Callable[[Case], list[float]]:
    def of(case: Case) -> list[float]:
        job, plans = asked(case)
        return [costs.step_seconds(job, plan, **how) for plan in plans]

    return of


def _by_lesson_14(case: Case) -> list[float]:
    job, plans = asked(case)
    return [cost(job, plan.mesh(job)).seconds for plan in plans]


def _hop_for_each_stage(case: Case) -> list[float]:
    job, plans = asked(case)
    return [costs.step_seconds(job, plan) + 2 * hop_seconds(job, plan) for plan in plans]


def _one_hop(case: Case) -> list[float]:
    job, plans = asked(case)
    return [costs.step_seconds(job, each, hops=0.0) + 2 * hop_seconds(job, each) for each in plans]


def _by_stages(case: Case) -> list[float]:
    job, plans = asked(case)
    return [costs.step_seconds(job, each, hops=4 / each.pipeline) for each in plans]


def _within(came: Any, wanted: float) -> bool:
    return isinstance(came, float) and abs(came / wanted - 1) <= WITHIN


def _made_of(case: Case, place: int) -> str:
    """Return what a step of a plan is added up of, in a sentence."""
    job, plans = asked(case)
    parts = list(costs.step_parts(job, plans[place]).items())
    wanted = [(name.rstrip(","), takes) for name, takes in parts[:3]]
    wanted += [each for each in parts if each[0] == "what is left of the gradients"]
    return f" The right step has {join([f'{takes * 1e3:.4g} ms for {name}' for name, takes in wanted])}."


def _slow(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    if got[0].get("quick") is not True:
        yield Finding("plays the step", "step_seconds took more than 2 s for the plans of one job.")


MISTAKES = (
    NO_NUMBER,
    Mistake("plays the step", "A planner asks about thousands of plans: add up what the parts take, and play nothing."),
    Mistake("no messages", "One microbatch goes from stage to stage and back: 2 * (p - 1) messages that nothing hides.",
            {"seconds": _way(hops=0.0)}),
    Mistake("one way", "Activations go forward, their gradients come back: two messages for each stage but one.",
            {"seconds": _way(hops=1.0)}),
    Mistake("the head for the last stage", "The last stage has its layers and the head: add the head's passes, +=.",
            {"seconds": (_way(fill="head alone"), _way(fill="head alone", hops=0.0))}),
    Mistake("no bubble", "The pipeline fills and drains once a step: every stage is taken once, the slowest one for "
            "each microbatch but one.", {"seconds": (_way(fill="none"), _way(fill="none", hops=0.0))}),
    Mistake("a share of the work",
            "(p - 1) / (m + p - 1) is the bubble's share of the *whole* step. Of the work it is (p - 1) / m.",
            {"seconds": (_way(fill="share"), _way(fill="share", hops=0.0))}),
    Mistake("stages as slow as the slowest",
            "Every stage counts as slow as the last one, which alone has the head. So it is with m + p - 1 times the "
            "slowest stage, and with the head on every stage.",
            {"seconds": (_way(fill="alike"), _way(fill="alike", hops=0.0))}),
    Mistake("a mean stage", "All stages go at the pace of the slowest one, not of the mean.",
            {"seconds": (_way(fill="mean"), _way(fill="mean", hops=0.0))}),
    Mistake("no head", "The last stage has the head as well: head_seconds(job, plan), forward and backward.",
            {"seconds": (_way(head=False), _way(head=False, hops=0.0))}),
    Mistake("the head's forward alone", "The head has a backward, too: both of what head_seconds returns.",
            {"seconds": (_way(head_pass="forward"), _way(head_pass="forward", hops=0.0))}),
    Mistake("too long a backward", "gradient_seconds wants backward as layer_seconds returns it: of one layer and one "
            "microbatch. A longer one hides too much.",
            {"seconds": (_way(hides="stage"), _way(hides="stage", hops=0.0))}),
    Mistake("forward hides it, too", "Forward is over when the gradients leave: a layer's backward alone hides them.",
            {"seconds": tuple(_way(hides=each, hops=hops) for each in ("forward", "forward alone")
                              for hops in (2.0, 0.0))}),
    Mistake("the head runs again", "plan.recompute is for layers: the head does not run again.",
            {"seconds": (_way(head_pass="again"), _way(head_pass="again", hops=0.0))}),
    Mistake("the head on both ends", "The last stage alone has the head: the first one has the embedding, which takes "
            "no time here.", {"seconds": (_way(head_pass="both ends"), _way(head_pass="both ends", hops=0.0))}),
    Mistake("computed again twice", "layer_seconds counts in backward already what plan.recompute runs again.",
            {"seconds": (_way(passes="again"), _way(passes="again", hops=0.0))}),
    Mistake("one microbatch more", "sum(stages) is the first microbatch: the slowest stage comes for each other one.",
            {"seconds": (_way(fill="one more"), _way(fill="one more", hops=0.0))}),
    Mistake("the head's own pass", "While the pipeline fills and drains, one microbatch passes the head as well.",
            {"seconds": (_way(fill="layers"), _way(fill="layers", hops=0.0))}),
    Mistake("one microbatch less", "sum(stages) is one microbatch; the slowest stage comes for all but that one.",
            {"seconds": (_way(fill="one less"), _way(fill="one less", hops=0.0))}),
    Mistake("forward fills it", "Filling costs forwards, draining costs backwards: one microbatch passes each stage "
            "both ways.", {"seconds": (
                _way(fill="forward"), _way(fill="forward", hops=1.0), _way(fill="forward", hops=0.0)
            )}),
    Mistake("a stage too many", "The slowest stage is counted for each microbatch: the others, p - 1, are left.",
            {"seconds": (_way(fill="p"), _way(fill="p", hops=0.0))}),
    Mistake("gradients of each stage", "Stages send their gradients at the same time: the first stage's end the step.",
            {"seconds": (_way(each="gradients"), _way(each="gradients", hops=0.0))}),
    Mistake("one stage at a time", "Stages work at the same time: only one microbatch's way is a sum of all of them.",
            {"seconds": (_way(fill="sum"), _way(fill="sum", hops=0.0))}),
    Mistake("messages of each microbatch", "Messages hide behind other microbatches: a step pays one microbatch's way, "
            "2 * (p - 1) * hop_seconds.", {"seconds": _way(each="hop")}),
    Mistake("lesson 14's formula", "That is lesson 14's cost, which knows no head: build the step of your own parts.",
            {"seconds": _by_lesson_14}),
    Mistake("the head once", "Every microbatch passes the head: it belongs to what the last stage takes.",
            {"seconds": (_way(head_pass="once"), _way(head_pass="once", hops=0.0))}),
    Mistake("one hop there and back", "A microbatch makes p - 1 hops, and as many back: 2 * (p - 1) * hop_seconds.",
            {"seconds": (_one_hop, _by_stages)}),
    Mistake("both ways twice", "2 * (p - 1) messages are one microbatch's way there and back already.",
            {"seconds": _way(hops=4.0)}),
    Mistake("the fastest stage", "The slowest stage sets the pace for each microbatch but one: the last one, with the "
            "head.", {"seconds": (_way(fill="first"), _way(fill="first", hops=0.0))}),
    Mistake("forward alone", "Each microbatch passes a stage forward and backward.",
            {"seconds": (_way(passes="forward"), _way(passes="forward", head_pass="forward"))}),
    Mistake("backward alone", "Each microbatch passes a stage forward and backward.",
            {"seconds": (_way(passes="backward"), _way(passes="backward", head_pass="backward"))}),
    Mistake("a hop too many", "Between p stages there are p - 1 hops.", {"seconds": _hop_for_each_stage}),
    Mistake("no gradients", "After the first stage's last backward, gradient_seconds are left.",
            {"seconds": (_way(gradients=False), _way(gradients=False, hops=0.0))}),
    Mistake("the whole batch", "Replicas share the batch: plan.num_microbatches(job) says how many each has.",
            {"seconds": (_way(counts="batch"), _way(counts="batch", hops=0.0))}),
    Mistake("sequences for microbatches", "job.batch // plan.data are sequences; plan.num_microbatches(job) are of "
            "plan.microbatch each.", {"seconds": (_way(counts="sequences"), _way(counts="sequences", hops=0.0))}),
    Mistake("one layer a stage", "A stage has job.num_layers / plan.pipeline layers.",
            {"seconds": (_way(per_layer=True), _way(per_layer=True, hops=0.0))}),
)  # fmt: skip

FEW = Runs(
    job_of(4096, 16, 16, 16, num_tokens=1024, vocabulary=131_072),
    {Plan(8, 1, 2, 2): 0.07326, Plan(8, 2, 1, 2): 0.076256, Plan(16, 1, 1): 0.078986},
)
"""With so few microbatches the head's own pass and what hides gradients are over a tenth of a step."""
NARROW = Runs(
    job_of(512, 4, 32, 64, num_tokens=4096, vocabulary=8192),
    {Plan(16, 2, 1, 4): 0.003117, Plan(8, 4, 1, 4): 0.005356},
)
"""Messages to the next node are a fifth of a step and more, with two stages and with four."""

EXERCISE = declared(
    id="step_time",
    functions=("step_seconds",),
    driver=drive,
    oracle=lambda case: [{"seconds": _measured(case)}],
    structure=lambda case: [{"seconds": ANYTHING, "quick": bool}],
    looks=(
        _slow,
        numbers_look("seconds", "step_seconds", _measured, lambda case, place: str(asked(case)[1][place]), MISTAKES,
                     good=_within, furthest=True, plans=lambda case: asked(case)[1],
                     more=lambda case, came: in_parts(case, came, costs.step_seconds, costs.step_parts), made=_made_of),
    ),
    mistakes=MISTAKES,
    visible=(
        *(step_case(f"{name}, each plan", runs) for name, runs in runs_of().items()),
        step_case("4.3 B on 16 H100s, one or two microbatches", FEW),
        step_case("a narrow GPT on four nodes", NARROW),
    ),
    hints=(
        "The check names the plan that is furthest off. Play it, and look for a rank that waits: for whom, how often?",
        "The slowest stage sets the pace for every microbatch but one; one microbatch passes every stage. Then come "
        "two messages for each stage but one, and what is left of the gradients.",
        "(num_microbatches - 1) * max(stages) + sum(stages) + 2 * (p - 1) * hop_seconds(job, plan) + "
        "gradient_seconds(job, plan, backward), where stages has a time for each stage.",
    ),
    distributed=False,
)  # fmt: skip
