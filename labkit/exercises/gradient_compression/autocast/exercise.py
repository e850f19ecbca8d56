"""Autocast: what is computed in which dtype."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks.case import Case, Value, Values
from labkit.checks.judged import judged
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.autocast.driver import drive
from labkit.exercises.gradient_compression.findings import (
    Finding,
    generator,
    judging,
    mistakes,
    normal,
    raising,
    wrong_value,
)

_RELATIVE = {"bfloat16": 2.0**-6, "float16": 2.0**-9}


def autocast_case(name: str, seed: int, dtype: str, samples: int, inputs: int, hidden: int, classes: int) -> Case:
    """Return a case: a model of two layers of these sizes."""
    return Case(
        name,
        1,
        (
            {
                "dtype": dtype, "x": normal(seed, samples, inputs), "first": normal(seed + 1, hidden, inputs) / 4,
                "bias": normal(seed + 2, hidden), "second": normal(seed + 3, hidden, classes) / 4,
                "labels": torch.randint(0, classes, (samples,), generator=generator(seed)),
            },
        ),
    )  # fmt: skip


def expected(case: Case) -> list[Values]:
    """Return results and gradients, every cast written out (the oracle)."""
    inputs = case.inputs[0]
    low = {"bfloat16": torch.bfloat16, "float16": torch.float16}[cast(str, inputs["dtype"])]
    x, labels = cast(Tensor, inputs["x"]), cast(Tensor, inputs["labels"])
    weights = [cast(Tensor, inputs[name]).clone().requires_grad_() for name in ("first", "bias", "second")]
    first, bias, second = weights
    hidden = functional.linear(x.to(low), first.to(low), bias.to(low))
    active = functional.relu(hidden)
    out = active @ second.to(low)
    loss = functional.cross_entropy(out.float(), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    results = {
        "linear": hidden, "relu of a 16-bit tensor": active, "matmul": out, "cross_entropy": loss,
        "linear with named arguments": functional.linear(x.to(low), first.to(low)),
        "mse_loss": hidden.float().square().mean(), "exp": torch.exp((hidden * 0.1).float()),
        "relu of a float32 tensor": functional.relu(x), "@": out, "labels + 1": labels + 1,
        "linear after the mode": functional.linear(x, first),
    }  # fmt: skip
    return [
        {
            "results": {name: value.detach() for name, value in results.items()},
            "gradients": cast(Value, [each.grad for each in weights]),
        }
    ]


_NAMED = {
    "linear": "products in float32", "matmul": "products in float32", "@": "products in float32",
    "cross_entropy": "sums in 16 bits", "mse_loss": "sums in 16 bits", "exp": "sums in 16 bits",
    "linear with named arguments": "named arguments are left out", "relu of a float32 tensor": "everything is cast",
    "relu of a 16-bit tensor": "everything is cast", "labels + 1": "labels are cast",
    "linear after the mode": "still on after the mode",
}  # fmt: skip


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong: dtypes first, then values, then gradients."""
    right = expected(case)[0]
    came = cast(dict[str, Value], got[0]["results"])
    wanted = cast(dict[str, Tensor], right["results"])
    for name, value in wanted.items():
        mine = came.get(name)
        if not isinstance(mine, Tensor):
            return Finding("nothing comes back", f"{name} gave {mine!r:.60} under the mode.")
        if mine.dtype != value.dtype:
            other = {mine.dtype, value.dtype} == {torch.bfloat16, torch.float16}
            mistake = "the other 16 bits" if other else _NAMED[name]
            return Finding(mistake, f"{name}: the result has {mine.dtype}.", str(value.dtype), str(mine.dtype))
    relative = _RELATIVE[cast(str, case.inputs[0]["dtype"])]
    for name, value in wanted.items():
        mine = cast(Tensor, came[name])
        if mine.shape != value.shape or bool(
            ((mine - value).abs().double() > relative * (1 + float(value.abs().max()))).any()
        ):
            return wrong_value("a wrong value", name, mine, value)
    for name, mine, value in zip(
        ("first", "bias", "second"),
        cast(list[Value], got[0]["gradients"]),
        cast(list[Tensor], right["gradients"]),
        strict=True,
    ):
        if not isinstance(mine, Tensor):
            return Finding("no gradient", f"The weight {name} got no gradient: a cast must stay in the graph.")
        if mine.dtype != torch.float32 or bool(
            ((mine - value).abs() > relative * (1 + float(value.abs().max()))).any()
        ):
            return wrong_value("a wrong gradient", f"The gradient of {name}", mine, value)
    return None


EXERCISE = judged(
    id="autocast",
    functions=("Autocast",),
    given=("IN_16_BITS", "IN_32_BITS"),
    driver=drive,
    oracle=expected,
    judge=judging(find),
    visible=(
        autocast_case("bfloat16", 691, "bfloat16", 6, 5, 8, 3),
        autocast_case("float16", 692, "float16", 4, 7, 5, 4),
    ),
    distributed=False,
    hints=(
        "Which three cases are there for a function, and what must be done with its arguments in each?",
        "If function is in IN_16_BITS, cast every floating-point tensor of args and kwargs to self.dtype; if it is in "
        "IN_32_BITS, to torch.float32; then call it. Else call it with what came.",
        "cast = lambda v: v.to(wanted) if isinstance(v, Tensor) and v.is_floating_point() else v; "
        "function(*map(cast, args), **{name: cast(v) for name, v in kwargs.items()})",
    ),
    mistakes=(
        raising(
            "kwargs may be None",
            "Without named arguments kwargs is None: kwargs = kwargs or {}.",
            "must be a mapping",
            "'NoneType' object has no attribute 'items'",
        ),
        raising(
            "nothing comes back",
            "__torch_function__ must return what the function returns.",
            "must be Tensor, not NoneType",
        ),
        raising(
            "no gradient",
            "The weights get no gradient: value.to(dtype) keeps the graph, value.data or detach() cuts it.",
            "does not require grad",
        ),
        raising(
            "labels are cast",
            "Labels are whole numbers and must stay so: cast floating-point tensors only.",
            "expected scalar type Long",
            "expected floating point type for target",
            "not implemented for 'Int'",
            "Expected target",
            "expected target",
        ),
        raising(
            "not every argument is cast",
            "One product met two dtypes: every floating-point tensor among the arguments must be cast, the bias too.",
            "the same dtype",
            "should be the same",
        ),
        *mistakes(
            find,
            products_in_float32="A product was computed in float32: cast its arguments to self.dtype, and look "
            "that the "
            "function is found in IN_16_BITS.",
            the_other_16_bits="The mode was made with another type of 16 bits: cast to self.dtype.",
            sums_in_16_bits="A loss or an exponential was computed in 16 bits: arguments of IN_32_BITS become float32.",
            named_arguments_are_left_out="Arguments with names come in kwargs: cast those too.",
            everything_is_cast="A function of neither list takes its arguments as they come.",
            labels_are_cast="Labels are whole numbers and must stay so: cast floating-point tensors only.",
        ),
    ),
)
