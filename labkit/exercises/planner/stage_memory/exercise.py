"""The most that a rank of each stage holds: microbatches in flight, and what recomputation keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.checks.case import Case
from labkit.checks.declared import Mistake, declared
from labkit.checks.structure import ANYTHING
from labkit.exercises.planner import costs
from labkit.exercises.planner.cases import asked, in_parts, plans_case
from labkit.exercises.planner.looks import numbers_look
from labkit.exercises.planner.stage_memory.driver import drive
from labkit.plans.planned_step import Plan, job_of


def _way(**how: Any) -> Callable[[Case], list[list[float]]]:
    def of(case: Case) -> list[list[float]]:
        job, plans = asked(case)
        return [costs.stage_bytes(job, plan, **how) for plan in plans]

    return of


def _fullest(case: Case) -> list[float]:
    return [max(each) for each in _way()(case)]


_NO_LIST = "no number"
MISTAKES = (
    Mistake("the fullest alone", "Return a number for each stage, the first stage first; their max comes later.",
            {"stages": _fullest}),
    Mistake(_NO_LIST, "Return a list: the bytes of a rank of each stage, the first stage first."),
    Mistake("one microbatch in flight",
            "Before its first backward, stage s has run p - s microbatches forward, and holds the activations of all.",
            {"stages": _way(in_flight="one")}),
    Mistake("as many on each stage",
            "The last stage runs each microbatch backward at once: it holds one, the one before it two.",
            {"stages": _way(in_flight="stages")}),
    Mistake("all microbatches", "1F1B holds p - s microbatches, not all of the step: that would be GPipe.",
            {"stages": _way(in_flight="all")}),
    Mistake("all replicas' microbatches", "Each replica has microbatches of its own: a rank holds those of its "
            "replica, plan.num_microbatches(job) in a step.", {"stages": _way(in_flight="replicas")}),
    Mistake("sequences for microbatches", "A step has plan.num_microbatches(job) microbatches on each replica: "
            "job.batch counts the sequences of all.",
            {"stages": (_way(in_flight="batch"), _way(in_flight="sequences"))}),
    Mistake("warm-up alone", "After warm-up, stage s runs one forward more before its first backward: p - s in all.",
            {"stages": (_way(in_flight="warmup"), _way(in_flight="warmup, or one"))}),
    Mistake("the last one fullest", "The first stage waits longest for its first backward: it holds most, the last one "
            "a single microbatch.", {"stages": _way(in_flight="reversed")}),
    Mistake("more than there are", "No more microbatches are in flight than the step has: min(p - s, microbatches).",
            {"stages": _way(in_flight="unlimited")}),
    Mistake("one sequence", "A microbatch has plan.microbatch x job.num_tokens tokens.",
            {"stages": _way(without="microbatch")}),
    Mistake("no tokens", "A layer's input has microbatch x job.num_tokens rows of job.width numbers.",
            {"stages": (_way(without="tokens"), _way(without="width"))}),
    Mistake("one layer", "Each of the stage's layers keeps activations.", {"stages": _way(without="layers")}),
    Mistake("all layers", "A stage has job.num_layers / plan.pipeline layers, and keeps their activations alone.",
            {"stages": _way(without="split")}),
    Mistake("activations shared by replicas", "Replicas share AdamW's state alone: each has activations of its own "
            "microbatches.", {"stages": _way(on_top="replicas")}),
    Mistake("divided by stages again", "The stage's own layers are counted: do not divide by plan.pipeline again.",
            {"stages": _way(on_top="stages")}),
    Mistake("microbatches and layers added", "Each microbatch in flight keeps something of each "
            "layer: multiply the two.",
            {"stages": _way(in_flight="added")}),
    Mistake("one too many", "Stage s runs p - s microbatches forward before its first backward, and not one more.",
            {"stages": _way(in_flight="one more")}),
    Mistake("all layers again", "Layers are computed again one at a time: 34 bytes of one are there, not of all.",
            {"stages": _way(on_top="layers")}),
    Mistake("all microbatches again", "One layer of one microbatch is computed again at a time: 34 on top, once.",
            {"stages": _way(on_top="microbatches")}),
    Mistake("in place of its input", "The layer that is computed again holds its 34 bytes on top of the 2 that it "
            "kept.", {"stages": _way(without="input")}),
    Mistake("no layer again", "While a layer is computed again, all of its activations are there, of one microbatch.",
            {"stages": _way(without="whole")}),
    Mistake("everything kept", "With plan.recompute a layer keeps its input alone: 2 bytes a number in place of 34.",
            {"stages": (_way(without="again"), _way(on_top="everything"))}),
    Mistake("again and not cut", "Tensor ranks share the layer that is computed again, too: divide its 34 bytes by "
            "plan.tensor.", {"stages": _way(without="cut again")}),
    Mistake("a layer again in every plan", "Only with plan.recompute is a layer computed again: without it, nothing "
            "comes on top of the 34 bytes that every layer keeps.", {"stages": _way(on_top="always")}),
    Mistake("kept inputs not cut", "Tensor ranks share the inputs that layers keep, too: divide by plan.tensor with "
            "plan.recompute as without.", {"stages": _way(without="cut inputs")}),
    Mistake("bytes taken for numbers", "34 and 2 are bytes already: do not multiply them by two bytes a number.",
            {"stages": (_way(on_top="bytes"), _way(on_top="bytes", without="microbatch"))}),
    Mistake("whole activations", "Tensor ranks share a layer's activations: divide by plan.tensor.",
            {"stages": _way(without="cut")}),
)  # fmt: skip

_SMALL = job_of(2048, 16, 16, 64)

EXERCISE = declared(
    id="stage_memory",
    functions=("stage_bytes",),
    driver=drive,
    oracle=lambda case: [{"stages": _way()(case)}],
    structure=lambda case: [{"stages": ANYTHING}],
    looks=(
        numbers_look("stages", "stage_bytes", _way(), lambda case, place: str(asked(case)[1][place]), MISTAKES,
                     unit=1e-9, sign="GB", plans=lambda case: asked(case)[1],
                     more=lambda case, came: in_parts(case, came, costs.stage_bytes, costs.stage_parts)),
    ),
    mistakes=MISTAKES,
    visible=(
        plans_case("a pipeline", _SMALL, [Plan(2, 4, 2), Plan(8, 2, 1, 4)]),
        plans_case("layers that run again", _SMALL, [Plan(2, 4, 2, 2, True)]),
        plans_case("one stage", _SMALL, [Plan(16, 1, 1), Plan(2, 1, 8, 4)]),
        plans_case("two microbatches, eight stages", job_of(2048, 16, 16, 4), [Plan(2, 8, 1), Plan(1, 8, 2, 2)]),
    ),
    hints=(
        "Stage s runs microbatches forward before its first backward. Of how many layers "
        "does it keep their activations?",
        "min(p - s, microbatches) x layers x 34 bytes of each number of a layer's input / tensor; or x 2, with one "
        "layer's 34 on top.",
        "kept = in_flight * layers * (2 if plan.recompute else 34) + (34 if plan.recompute else 0); activations = "
        "kept * tokens * job.width / plan.tensor.",
    ),
    distributed=False,
)  # fmt: skip
