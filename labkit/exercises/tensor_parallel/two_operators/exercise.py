"""Two operators: identity and all-reduce, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from labkit.checks import values
from labkit.checks.as_if import Way
from labkit.checks.case import Case, Values
from labkit.checks.draws import normal, part_of
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import both_ways
from labkit.checks.structure import NOTHING
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import NO_GRADIENT, Ways, members, summed, wrong_tensors
from labkit.exercises.tensor_parallel.two_operators.driver import drive

_UNREDUCED, _AGAIN, _UNSUMMED, _SWAPPED, _MEAN, _GROUP, _CHANGED = (
    "gradient not reduced", "gradient reduced again", "not summed", "swapped", "mean instead of sum", "group ignored",
    "x was changed",
)  # fmt: skip
MISTAKES = {
    _UNREDUCED: (
        "The gradient that leaves `enter` is this rank's own. Every rank read x, so its gradient is the sum over all "
        "ranks: an all-reduce in backward."
    ),
    _AGAIN: "`leave` reduces the gradient, too. Its sum is on every rank already and so is the sum's gradient: hand it "
    "on as it is, or everything below is N times too large.",
    _UNSUMMED: "`leave` returns this rank's own x: all-reduce it in forward.",
    _SWAPPED: "`enter` adds up in forward. That is `leave`'s work; `enter` returns x.",
    _MEAN: "You divide by the number of ranks. These are parts of one sum, not copies to be averaged.",
    _GROUP: "The sum runs over all ranks. Hand the group on: dist.all_reduce(..., group=group), in backward, too.",
    _CHANGED: "After the call x holds other numbers: dist.all_reduce works in place. Give it a copy.",
    NOTHING: NO_GRADIENT,
}


def operators_case(
    name: str,
    seed: int,
    world_size: int,
    shape: Sequence[int],
    groups: list[list[int]] | None = None,
    turn: bool = False,
) -> Case:
    """Return a case of two_operators; `turn` hands over transposed views."""
    inputs = [
        {
            "x": normal(part_of(seed, "rank", rank, "x"), *shape).double(),
            "gradient": normal(part_of(seed, "rank", rank, "gradient"), *shape).double(),
            "transposed": turn,
            **({} if groups is None else {"groups": groups}),
        }
        for rank in range(world_size)
    ]
    return Case(name, world_size, tuple(inputs))  # type: ignore[arg-type]


def expected(case: Case) -> list[Values]:
    """Return what each rank gets."""
    found: list[Values] = []
    for rank, inputs in enumerate(case.inputs):
        x, gradient = values.tensor(inputs, "x"), values.tensor(inputs, "gradient")
        entered: Values = {"out": x, "kept": x, "gradient": summed(case, rank, "gradient")}
        left: Values = {"out": summed(case, rank, "x"), "kept": x, "gradient": gradient}
        found.append({"enter": dict(entered), "leave": dict(left)})
    return found


def _ways(case: Case, key: str, own: str, total: str) -> Ways:
    """Return, for each rank, what its own tensor, the group's sum or mean, and all ranks' sum would point to."""

    def ways(rank: int) -> list[Way[Tensor]]:
        size = len(members(case, rank))
        world: list[Way[Tensor]] = [(_GROUP, lambda: sum((values.tensor(i, key) for i in case.inputs[1:]),
                                                         values.tensor(case.inputs[0], key)))]  # fmt: skip
        return [
            (own, lambda: values.tensor(case.inputs[rank], key)),
            (total, lambda: summed(case, rank, key)),
            (_MEAN, lambda: summed(case, rank, key) / size),
            *(world if size < case.world_size else []),
        ]

    return ways


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with either operator, forward before backward."""
    right = expected(case)

    def of(name: str, rows: Sequence[Values]) -> list[Values]:
        return [values.record(row, name) for row in rows]

    for name in ("enter", "leave"):
        came, wanted = of(name, got), of(name, right)
        yield from wrong_tensors(came, wanted, "kept", f"x after {name}(x)", _changed(came))
        yield from wrong_tensors(came, wanted, "out", f"{name}(x)", _ways(case, "x", _UNSUMMED, _SWAPPED))
        yield from wrong_tensors(
            came, wanted, "gradient", f"the gradient of x behind {name}", _ways(case, "gradient", _UNREDUCED, _AGAIN)
        )


def _changed(came: Sequence[Values]) -> Ways:
    return lambda rank: [(_CHANGED, lambda: values.tensor(came[rank], "kept"))]


EXERCISE = Exercise(
    id="two_operators",
    functions=("enter", "leave"),
    driver=drive,
    oracle=expected,
    find=find,
    least=lambda case: both_ways(range(case.world_size), values.tensor(case.inputs[0], "x").numel()),
    visible=(
        operators_case("2 ranks", 1201, 2, (3, 4)),
        operators_case("3 ranks, transposed views", 1202, 3, (4, 5), turn=True),
        operators_case("4 ranks, two groups of two", 1203, 4, (2, 3), [[0, 1], [2, 3]]),
    ),
    hints=(
        "Take a pencil and two ranks: y = (x @ A0) + (x @ A1). Which part of dy/dx does each rank know?",
        "A torch.autograd.Function has forward(ctx, x, group) and backward(ctx, gradient); ctx.group keeps the group. "
        "backward returns one gradient for each argument: None for the group.",
        "enter: forward returns x.view_as(x), backward all-reduces a contiguous clone of the gradient. leave: forward "
        "all-reduces a contiguous clone of x, backward returns the gradient.",
    ),
    mistakes=MISTAKES,
)
