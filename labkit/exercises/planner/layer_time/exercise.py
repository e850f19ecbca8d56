"""How long a layer takes on a tensor rank: products at the size of its pieces, and all-reduces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.structure import ANYTHING
from labkit.exercises.planner import costs
from labkit.exercises.planner.cases import asked, in_parts, plans_case
from labkit.exercises.planner.layer_time.driver import drive
from labkit.exercises.planner.looks import NO_NUMBER, numbers_look
from labkit.plans.planned_step import Plan, job_of


def _layers(**how: Any) -> Callable[[Case], list[list[float]]]:
    def of(case: Case) -> list[list[float]]:
        job, plans = asked(case)
        return [list(costs.layer_seconds(job, plan, **how)) for plan in plans]

    return of


def _always_again(case: Case) -> list[list[float]]:
    job, plans = asked(case)
    return [list(costs.layer_seconds(job, replace(plan, recompute=True))) for plan in plans]


def _again_in_forward(case: Case) -> list[list[float]]:
    job, plans = asked(case)
    pairs = [(plan, costs.layer_seconds(job, plan, again=False)) for plan in plans]
    return [[forward * (2 if plan.recompute else 1), backward] for plan, (forward, backward) in pairs]


def _with_the_head(case: Case) -> list[list[float]]:
    """Return what comes of adding the head's two passes to a layer's, the second before or after what runs again."""
    job, plans = asked(case)
    found = []
    for plan in plans:
        (forward, backward), (there, back) = costs.layer_seconds(job, plan), costs.head_seconds(job, plan)
        found.append([forward + there, backward + back + (there if plan.recompute else 0.0)])
    return found


def _with_the_heads_product(case: Case) -> list[list[float]]:
    """Return what comes of adding the head's product to a layer's forward alone."""
    job, plans = asked(case)
    pairs = [(costs.layer_seconds(job, plan), costs.head_seconds(job, plan)[0]) for plan in plans]
    return [[forward + head, backward] for (forward, backward), head in pairs]


def _hidden_forward(case: Case) -> list[list[float]]:
    """Return what comes of a wide second all-reduce in forward, and two as they are in backward."""
    wide = _layers(other="hidden second")(case)
    return [[one, other] for (one, _), (_, other) in zip(wide, _layers(again=False)(case), strict=True)]


def _backward_twice(case: Case) -> list[list[float]]:
    """Return what comes where backward runs twice in plans that recompute."""
    job, plans = asked(case)
    pairs = [(plan, costs.layer_seconds(job, plan, again=False)) for plan in plans]
    return [[forward, backward * (2 if plan.recompute else 1)] for plan, (forward, backward) in pairs]


def _of_a_step(case: Case) -> list[list[float]]:
    """Return what all microbatches of a step take one after the other."""
    job, plans = asked(case)
    pairs = zip(plans, _layers()(case), strict=True)
    return [[plan.num_microbatches(job) * each for each in pair] for plan, pair in pairs]


def _swapped(case: Case) -> list[list[float]]:
    return [[backward, forward] for forward, backward in _layers()(case)]


def _milliseconds(case: Case) -> list[list[float]]:
    return [[1e3 * each for each in pair] for pair in _layers()(case)]


def _right(case: Case) -> list[Values]:
    return [{"layers": _layers()(case)}]


MISTAKES = (
    NO_NUMBER,
    Mistake("whole products", "Tensor ranks share each product: one of its two matrices is cut.",
            {"layers": _layers(cut=False)}),
    Mistake("rows shared", "Tensor ranks do not share the tokens: each has all microbatch x num_tokens rows, and a "
            "piece of each matrix.", {"layers": (_layers(other="tokens"), _layers(other="tokens travel"))}),
    Mistake("cut twice", "A matrix is cut along one dim: the first and third product by columns, the others by rows.",
            {"layers": _layers(both=True)}),
    Mistake("all by columns", "Only the first and third product are cut by columns. The other two are cut by rows: "
            "inner is h / t and 4h / t.", {"layers": _layers(other="columns")}),
    Mistake("all by rows", "The first and third product are cut by columns: inner stays h, columns are 3h / t and "
            "4h / t.", {"layers": _layers(other="rows")}),
    Mistake("swapped cuts", "It is the other way round: the first and third product by columns, the other two by rows.",
            {"layers": _layers(other="swapped")}),
    Mistake("divided afterwards",
            "That counts operations alone, as one large product does. A small piece takes as long as its bytes or a "
            "launch: time each of the four at its own size, by product_seconds.",
            {"layers": (_layers(other="at once"), _layers(other="one product"))}),
    Mistake("q alone", "The first product makes queries, keys and values: its matrix is h x 3h.",
            {"layers": _layers(other="q alone")}),
    Mistake("the longest product alone", "The four products run one after the other: add their seconds up.",
            {"layers": _layers(other="largest")}),
    Mistake("always again", "Only with plan.recompute does backward begin with the layer's forward.",
            {"layers": _always_again}),
    Mistake("swapped", "Forward comes first, then backward.", {"layers": _swapped}),
    Mistake("milliseconds", "Return seconds.", {"layers": _milliseconds}),
    Mistake("again in forward", "What runs again runs when backward begins: forward takes as long as ever.",
            {"layers": _again_in_forward}),
    Mistake("backward twice", "With plan.recompute it is forward that runs again, and then backward once.",
            {"layers": _backward_twice}),
    Mistake("a sum after each product", "The first and the third product are cut by columns, and leave nothing to sum: "
            "a layer has two all-reduces.", {"layers": (_layers(sums=(4.0, 2.0)), _layers(sums=(4.0, 4.0)))}),
    Mistake("four times the activation", "What is summed is the layer's activation, h wide: the third product's 4h "
            "stay cut.", {"layers": (_layers(other="hidden"), _layers(other="hidden second"), _hidden_forward)}),
    Mistake("the head in a layer", "The head is no part of a layer: it comes once, on the last stage.",
            {"layers": (_with_the_head, _with_the_heads_product)}),
    Mistake("one sequence's activation", "The whole microbatch's activation is summed: 2 * rows * h bytes.",
            {"layers": _layers(other="sequence")}),
    Mistake("one sequence", "A product has microbatch x num_tokens rows.", {"layers": _layers(microbatch=False)}),
    Mistake("no all-reduces", "After the second and the fourth product comes an all-reduce, and two more in backward.",
            {"layers": _layers(sums=(0.0, 0.0))}),
    Mistake("sums in backward only", "Forward has two all-reduces as well: each product that is cut by rows leaves "
            "partial sums.", {"layers": _layers(sums=(0.0, 2.0))}),
    Mistake("one sum forward", "Forward has two all-reduces: one after attention, one after the MLP.",
            {"layers": _layers(sums=(1.0, 2.0))}),
    Mistake("replicas' sums", "Tensor ranks sum the activation, replicas do not: the axis is \"tensor\".",
            {"layers": _layers(other="replicas")}),
    Mistake("sums in forward only", "Backward has as many all-reduces as forward: gradients of a layer's input are "
            "partial sums, too.", {"layers": _layers(sums=(2.0, 0.0))}),
    Mistake("two sums as four", "The products' count doubles in backward, that of the all-reduces does not: two there.",
            {"layers": _layers(sums=(2.0, 4.0))}),
    Mistake("one sum backward", "Backward has two all-reduces, as forward has: one for each half of the layer.",
            {"layers": _layers(sums=(2.0, 1.0))}),
    Mistake("a piece of the activation", "Each tensor rank has partial sums of the whole activation: it travels whole.",
            {"layers": _layers(other="piece")}),
    Mistake("the whole replica's batch", "One microbatch: plan.microbatch sequences, and not all that a replica has in "
            "a step.", {"layers": (_layers(other="replica"), _of_a_step)}),
    Mistake("rows of the microbatch", "A sequence has num_tokens rows: microbatch x job.num_tokens.",
            {"layers": _layers(other="no tokens")}),
    Mistake("a whole stage", "One layer: a stage's layers are counted later, in the step.",
            {"layers": _layers(other="stage")}),
    Mistake("half the traffic",
            "A layer has two all-reduces in each direction, after attention and after the MLP; each is a "
            "reduce-scatter and an all-gather.", {"layers": _layers(halves=1)}),
    Mistake("not two bytes", "Activations travel in bfloat16: two bytes a number.",
            {"layers": (_layers(fp32=True), _layers(other="one byte"))}),
    Mistake("backward once", "For each product forward there are two in backward: one for the input's gradient, one "
            "for the weight's.", {"layers": _layers(backward=1)}),
    Mistake("nothing again", "With plan.recompute, backward starts with the layer's whole forward.",
            {"layers": _layers(again=False)}),
    Mistake("no sums again", "What runs again runs whole: its all-reduces are there again, too.",
            {"layers": _layers(sums_again=False)}),
)  # fmt: skip


def of_plan(case: Case, place: int) -> str:
    """Return which plan of a case this is."""
    return str(asked(case)[1][place])


_SMALL, _WIDE = job_of(2048, 16, 16, 64), job_of(8192, 48, 64, 128)

EXERCISE = declared(
    id="layer_time",
    functions=("layer_seconds",),
    driver=drive,
    oracle=_right,
    structure=lambda case: [{"layers": ANYTHING}],
    looks=(
        numbers_look("layers", "layer_seconds", _layers(), of_plan, MISTAKES, unit=1e6, sign="us",
                     plans=lambda case: asked(case)[1],
                     more=lambda case, came: in_parts(case, came, costs.layer_seconds, costs.layer_parts)),
    ),
    mistakes=MISTAKES,
    visible=(
        plans_case("a wide layer", _WIDE, [Plan(8, 8, 1), Plan(8, 4, 2, 2), Plan(2, 4, 8)]),
        plans_case("small pieces", _SMALL, [Plan(4, 2, 2, 2), Plan(2, 1, 8), Plan(2, 1, 8, 4)]),
        plans_case("layers that run again", _SMALL,
                   [Plan(2, 2, 4, 2), Plan(2, 2, 4, 2, True), Plan(16, 1, 1, 1, True)]),
    ),
    hints=(
        "What is each piece's shape on a tensor rank? Add up product_seconds of the four.",
        "The four pieces of a tensor rank: (h, 3h/t), (h/t, h), (h, 4h/t), "
        "(4h/t, h). An all-reduce of the activation is twice scatter_seconds(job, plan, \"tensor\", its bytes).",
        "forward = products + 2 * reduce; backward = 2 * products + 2 * reduce, plus forward if plan.recompute; reduce "
        "= 2 * scatter_seconds(job, plan, \"tensor\", 2 * rows * h).",
    ),
    distributed=False,
)  # fmt: skip
