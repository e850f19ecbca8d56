"""The most that a rank of each stage holds: state, microbatches in flight, what recomputation keeps, logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.checks.case import Case
from labkit.checks.declared import Mistake, declared
from labkit.checks.structure import ANYTHING
from labkit.exercises.planner import costs
from labkit.exercises.planner.cases import asked, plans_case
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
    Mistake("no optimizer", "AdamW keeps 12 bytes of a parameter: a float32 copy of it and two moments.",
            {"stages": _way(sharded=0)}),
    Mistake("no master weights", "AdamW works on a float32 copy of each parameter: 4 bytes beside its two moments.",
            {"stages": _way(sharded=8)}),
    Mistake("gradients in bfloat16", "Gradients are added up in float32: 4 bytes, beside 2 of the parameter.",
            {"stages": _way(state=4)}),
    Mistake("an optimizer on every replica", "Replicas share the optimizer's state: each holds 12 / data bytes of a "
            "parameter.", {"stages": _way(shared=False)}),
    Mistake("gradients shared", "Replicas share the optimizer's 12 bytes alone. Each has its whole gradient: 4 bytes.",
            {"stages": _way(zero2=True)}),
    Mistake("one microbatch in flight",
            "Before its first backward, stage s has run p - s microbatches forward, and holds the activations of all.",
            {"stages": _way(in_flight="one")}),
    Mistake("as many on each stage",
            "The last stage runs each microbatch backward at once: it holds one, the one before it two.",
            {"stages": _way(in_flight="stages")}),
    Mistake("all microbatches", "1F1B holds p - s microbatches, not all of the step: that would be GPipe.",
            {"stages": _way(in_flight="all")}),
    Mistake("warm-up alone", "After warm-up, stage s runs one forward more before its first backward: p - s in all.",
            {"stages": _way(in_flight="warmup")}),
    Mistake("the last one fullest", "The first stage waits longest for its first backward: it holds most, the last one "
            "a single microbatch.", {"stages": _way(in_flight="reversed")}),
    Mistake("more than there are", "No more microbatches are in flight than the step has: min(p - s, microbatches).",
            {"stages": _way(in_flight="unlimited")}),
    Mistake("one end", "A single stage has both ends: the embedding and the head.", {"stages": _way(ends="one")}),
    Mistake("no embedding", "The first stage holds the embedding: job.end_params parameters.",
            {"stages": _way(ends="last")}),
    Mistake("no head", "The last stage holds the head: job.end_params parameters.", {"stages": _way(ends="first")}),
    Mistake("no ends", "The embedding is on the first stage, the head on the last: job.end_params parameters each.",
            {"stages": _way(ends="none")}),
    Mistake("ends everywhere", "Only the first stage has the embedding, only the last one the head.",
            {"stages": _way(ends="everywhere")}),
    Mistake("no scores", "The last stage holds a microbatch's scores: 6 bytes each, one for each token and word.",
            {"stages": _way(without="logits")}),
    Mistake("scores everywhere", "Only the last stage has scores: it alone has the head.",
            {"stages": _way(scores="everywhere")}),
    Mistake("one sequence", "A microbatch has plan.microbatch x job.num_tokens tokens.",
            {"stages": _way(without="microbatch")}),
    Mistake("in place of its input", "The layer that is computed again holds its 34 bytes on top of the 2 that it "
            "kept.", {"stages": _way(without="input")}),
    Mistake("no layer again", "While a layer is computed again, all of its activations are there, of one microbatch.",
            {"stages": _way(without="whole")}),
    Mistake("everything kept", "With plan.recompute a layer keeps its input alone: 2 bytes a number in place of 34.",
            {"stages": _way(without="again")}),
    Mistake("whole activations", "Tensor ranks share a layer's activations: divide by plan.tensor.",
            {"stages": _way(without="cut")}),
    Mistake("GB", "Return bytes, not gigabytes or gibibytes: the job's memory_bytes are bytes, too.",
            {"stages": (_way(unit=1e9), _way(unit=2.0**30))}),
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
                     unit=1e-9, sign="GB"),
    ),
    mistakes=MISTAKES,
    visible=(
        plans_case("a pipeline", _SMALL, [Plan(2, 4, 2), Plan(4, 4, 1, 2)]),
        plans_case("layers that run again", _SMALL, [Plan(2, 4, 2, 2, True)]),
        plans_case("one stage", _SMALL, [Plan(16, 1, 1), Plan(2, 1, 8, 4)]),
        plans_case("two microbatches, eight stages", job_of(2048, 16, 16, 4), [Plan(2, 8, 1), Plan(1, 8, 2, 2)]),
    ),
    hints=(
        "List what a rank holds when it is fullest: its parameters with what belongs to them, and the activations of "
        "which microbatches?",
        "(6 + 12 / data) bytes of each parameter / tensor; min(p - s, microbatches) x layers x 34 bytes of each number "
        "of an activation / tensor, or 2 with one layer's 34 on top; on the last stage 6 bytes of each score / tensor.",
        "For each stage s: params = layers * job.layer_params + (s == 0) * job.end_params + (s == p - 1) * "
        "job.end_params; kept = in_flight * layers * (2 if plan.recompute else 34) + (34 if plan.recompute else 0).",
    ),
    distributed=False,
)  # fmt: skip
