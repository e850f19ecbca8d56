"""The mean over everything, from means over pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.whole_batch_loss.driver import drive
from labkit.words import number


def losses_case(name: str, seed: int, counts: Sequence[int]) -> Case:
    """Return a case of whole_batch_loss; where nothing counted the loss is nan."""
    generator = draws.generator(seed)
    losses = torch.rand(len(counts), generator=generator, dtype=torch.float64) + 0.5
    losses[torch.tensor(counts) == 0] = math.nan
    return Case(name, 1, ({"losses": losses, "counts": cast(Value, list(counts))},))


def _given(case: Case) -> tuple[Tensor, Tensor]:
    inputs = case.inputs[0]
    return cast(Tensor, inputs["losses"]), torch.tensor(cast(list[int], inputs["counts"])).double()


def expected(case: Case) -> list[Values]:
    """Return the loss and the gradient of each part (the oracle)."""
    losses, counts = _given(case)
    weights = counts / counts.sum()
    return [{"loss": (losses.nan_to_num(0.0) * weights).sum(), "gradient": weights}]


def close(mine: Value, wanted: Value) -> bool:
    """Return whether two tensors agree as far as float32 goes: counts may have become such weights."""
    if not isinstance(mine, Tensor) or not isinstance(wanted, Tensor) or mine.shape != wanted.shape:
        return False
    return torch.allclose(mine.double(), wanted.double(), rtol=1e-5, atol=1e-7)


def _text(values: Tensor) -> str:
    return f"[{', '.join(number(round(value, 4)) for value in values.tolist())}]"


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether loss and gradient are right."""
    assert isinstance(got, tuple)
    losses, counts = _given(case)
    right, came = expected(case)[0], got[0]
    call = f"whole_batch_loss(tensor({_text(losses)}), {[int(count) for count in counts.tolist()]})"
    loss, wanted = came.get("loss"), cast(Tensor, right["loss"])
    if not isinstance(loss, Tensor) or loss.dim():
        what = "a tensor with dimensions" if isinstance(loss, Tensor) else f"{loss!r:.40}"
        return Verdict(False, f"{call} gave {what}, expected a tensor without dimensions, {number(wanted.item())}.")
    if not close(loss.double(), wanted):
        mine = number(loss.item())
        return Verdict(
            False, f"{call} gave {mine}, expected {number(wanted.item())}.", expected=number(wanted.item()), got=mine
        )
    gradient = came.get("gradient")
    if not close(gradient, right["gradient"]):
        shown = _text(gradient) if isinstance(gradient, Tensor) else "nothing (None)"
        return Verdict(
            False, f"The loss is right, but its gradient is {shown}, expected {_text(cast(Tensor, right['gradient']))}."
        )
    return Verdict(True)


def _is(make: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Case, Got, Wire], bool]:
    """Return a test: whether the loss that came is what a wrong rule gives, and not the right one."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        loss = got[0].get("loss") if isinstance(got, tuple) else None
        losses, counts = _given(case)
        there = counts > 0
        wrong = make(losses[there], counts[there])
        return isinstance(loss, Tensor) and not loss.dim() and close(loss.double(), wrong) and not _right(case, loss)

    return seen


def _right(case: Case, loss: Tensor) -> bool:
    return close(loss.double(), expected(case)[0]["loss"])


def _nan(case: Case, got: Got, wire: Wire) -> bool:
    loss = got[0].get("loss") if isinstance(got, tuple) else None
    return isinstance(loss, Tensor) and bool(loss.isnan().any())


def _nan_gradient(case: Case, got: Got, wire: Wire) -> bool:
    gradient = got[0].get("gradient") if isinstance(got, tuple) else None
    return isinstance(gradient, Tensor) and bool(gradient.isnan().any())


EXERCISE = judged(
    id="whole_batch_loss",
    functions=("whole_batch_loss",),
    driver=drive,
    oracle=expected,
    judge=judge,
    visible=(
        losses_case("counts 3, 2 and 2", 161, (3, 2, 2)),
        losses_case("one piece is much larger", 162, (900, 20)),
        losses_case("in one piece nothing counted", 163, (4, 0, 1)),
        losses_case("equal counts", 164, (5, 5, 5, 5)),
    ),
    distributed=False,
    hints=(
        "From a mean and its count you get the sum back. What do you do with the sums?",
        "Add up mean times count, and divide once by all that counted. Leave out the pieces in which nothing did: nan "
        "times 0 is nan.",
        "sum(losses[i] * count for i, count in enumerate(counts) if count > 0) / sum(counts)",
    ),
    mistakes=(
        Mistake(
            "mean of means",
            "That is the mean over the devices. A sample in a small piece counts more than one in a large piece: weigh "
            "each loss by its count.",
            _is(lambda losses, counts: losses.mean()),
        ),
        Mistake(
            "nan from an empty piece",
            "The mean over nothing is nan, and nan times 0 is still nan. Leave such a piece out before you multiply.",
            lambda case, got, wire: _nan(case, got, wire) or _nan_gradient(case, got, wire),
        ),
        Mistake(
            "sum of sums", "You added up mean times count, and did not divide by all that counted.",
            _is(lambda losses, counts: (losses * counts).sum()),
        ),
        Mistake(
            "sum of means",
            "You added up the means. Weigh each by its count, and divide by the sum of the counts.",
            _is(lambda losses, counts: losses.sum()),
        ),
        Mistake(
            "divided by the number of devices",
            "The weighted sum must be divided by all that counted, not by the number of devices.",
            _is(lambda losses, counts: (losses * counts).sum() / len(counts)),
        ),
        Mistake(
            "weights the wrong way round",
            "The loss was divided by its count: but a mean over more samples must weigh more.",
            _is(lambda losses, counts: (losses / counts).sum() / (1 / counts).sum()),
        ),
        Mistake(
            "gradients cut off",
            "The loss is right and no gradient can go back: .item(), float(...) or torch.tensor(...) on the way. Stay "
            "with tensors.",
            lambda case, got, wire: isinstance(got, tuple) and got[0].get("gradient") is None,
        ),
    ),
)  # fmt: skip
