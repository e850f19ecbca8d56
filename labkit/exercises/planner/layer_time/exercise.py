"""How long a layer takes on a tensor rank: products at the size of its pieces, and all-reduces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labkit.checks.case import Case, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.structure import ANYTHING
from labkit.checks.values import listed
from labkit.exercises.planner import costs
from labkit.exercises.planner.cases import asked, plans_case
from labkit.exercises.planner.layer_time.driver import drive
from labkit.exercises.planner.looks import NO_NUMBER, numbers_look
from labkit.plans.planned_step import Job, Plan, job_of


def layer_case(name: str, job: Job, products: Sequence[tuple[int, int, int]], plans: Sequence[Plan]) -> Case:
    """Return a case: products by (rows, inner, columns), and a layer by each plan."""
    rows: list[Value] = [list(each) for each in products]
    return plans_case(name, job, plans, products=rows)


def _products(**how: Any) -> Callable[[Case], list[float]]:
    def of(case: Case) -> list[float]:
        job, _ = asked(case)
        return [costs.product_seconds(job, *sizes, **how) for sizes in listed(case.inputs[0], "products")]

    return of


def _layers(**how: Any) -> Callable[[Case], list[list[float]]]:
    def of(case: Case) -> list[list[float]]:
        job, plans = asked(case)
        return [list(costs.layer_seconds(job, plan, **how)) for plan in plans]

    return of


def _timed(*hows: dict[str, Any]) -> dict[str, tuple[Callable[[Case], Any], ...]]:
    return {"products": tuple(_products(**how) for how in hows)}


def _right(case: Case) -> list[Values]:
    return [{"products": _products()(case), "layers": _layers()(case)}]


MISTAKES = (
    NO_NUMBER,
    Mistake("a multiply and an add are two", "Each of rows x inner x columns is a multiply and an add: two operations.",
            _timed({"once": True}, {"once": True, "moved": False})),
    Mistake("what it reads alone", "A product reads two matrices and writes a third: count the bytes of all three.",
            _timed({"writes": False})),
    Mistake("numbers of four bytes", "Matrices are in bfloat16: two bytes a number.", _timed({"number_bytes": 4})),
    Mistake("operations alone",
            "product_seconds counts operations alone. A narrow product waits for memory: it reads two matrices and "
            "writes one, two bytes a number.",
            _timed({"moved": False}, {"moved": False, "launch": False})),
    Mistake("the datasheet's rate", "job.flops is what products reach; job.peak_flops is what the datasheet says.",
            _timed({"peak": True})),
    Mistake("no launch", "A product takes job.launch_s at least, however small it is.",
            _timed({"launch": False})),
    Mistake("added up", "Computing and moving bytes overlap: a product takes the longest of its three times, not "
            "their sum.", _timed({"added": True})),
    Mistake("whole products", "Tensor ranks share each product: one of its two matrices is cut.",
            {"layers": _layers(cut=False)}),
    Mistake("cut twice", "A matrix is cut along one dim: the first and third product by columns, the others by rows.",
            {"layers": _layers(both=True)}),
    Mistake("all by columns", "Only the first and third product are cut by columns. The other two are cut by rows: "
            "inner is h / t and 4h / t.", {"layers": _layers(columns=True)}),
    Mistake("divided afterwards",
            "That is what a whole product takes, divided by the ranks. Pieces are slower than that: time each of the "
            "four at its own size.",
            {"layers": _layers(at_once=True)}),
    Mistake("one sequence", "A product has microbatch x num_tokens rows.", {"layers": _layers(microbatch=False)}),
    Mistake("sums in forward only", "Backward has as many all-reduces as forward: gradients of a layer's input are "
            "partial sums, too.", {"layers": _layers(sums=(2.0, 0.0))}),
    Mistake("half the traffic",
            "A layer has two all-reduces in each direction, after attention and after the MLP; each is a "
            "reduce-scatter and an all-gather.", {"layers": _layers(halves=1)}),
    Mistake("four bytes", "Activations travel in bfloat16: two bytes a number.", {"layers": _layers(fp32=True)}),
    Mistake("backward once", "For each product forward there are two in backward: one for the input's gradient, one "
            "for the weight's.", {"layers": _layers(backward=1)}),
    Mistake("nothing again", "With plan.recompute, backward starts with the layer's whole forward.",
            {"layers": _layers(again=False)}),
    Mistake("no sums again", "What runs again runs whole: its all-reduces are there again, too.",
            {"layers": _layers(sums_again=False)}),
)  # fmt: skip


def _of_product(case: Case, place: int) -> str:
    return "({} x {}) @ ({} x {})".format(*(listed(case.inputs[0], "products")[place][at] for at in (0, 1, 1, 2)))


def of_plan(case: Case, place: int) -> str:
    """Return which plan of a case this is."""
    return str(asked(case)[1][place])


_SMALL, _WIDE = job_of(2048, 16, 16, 64), job_of(8192, 48, 64, 128)

EXERCISE = declared(
    id="layer_time",
    functions=("product_seconds", "layer_seconds"),
    driver=drive,
    oracle=_right,
    structure=lambda case: [{"products": ANYTHING, "layers": ANYTHING}],
    looks=(
        numbers_look("products", "product_seconds", _products(), _of_product, MISTAKES, unit=1e6, sign="us"),
        numbers_look("layers", "layer_seconds", _layers(), of_plan, MISTAKES, unit=1e6, sign="us"),
    ),
    mistakes=MISTAKES,
    visible=(
        layer_case("a wide layer", _WIDE, [(4096, 8192, 8192), (4096, 1024, 8192)],
                   [Plan(8, 8, 1), Plan(8, 4, 2, 2), Plan(2, 4, 8)]),
        layer_case("small pieces", _SMALL, [(4096, 256, 4096), (64, 128, 256), (128, 4096, 4096)],
                   [Plan(4, 2, 2, 2), Plan(2, 1, 8), Plan(2, 1, 8, 4)]),
        layer_case("layers that run again", _SMALL, [(2048, 2048, 2048)],
                   [Plan(2, 2, 4, 2), Plan(2, 2, 4, 2, True), Plan(16, 1, 1, 1, True)]),
    ),
    hints=(
        "What is each piece's shape? How many bytes does it read and write, and how many operations are that?",
        "product_seconds is a max of three. The four pieces of a tensor rank: (h, 3h/t), (h/t, h), (h, 4h/t), "
        "(4h/t, h). An all-reduce of the activation is twice scatter_seconds(job, plan, \"tensor\", its bytes).",
        "forward = products + 2 * reduce; backward = 2 * products + 2 * reduce, plus forward if plan.recompute; reduce "
        "= 2 * scatter_seconds(job, plan, \"tensor\", 2 * rows * h).",
    ),
    distributed=False,
)  # fmt: skip
