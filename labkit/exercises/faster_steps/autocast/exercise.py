"""Autocast: what is computed in which dtype."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks.case import Case, Values
from labkit.checks.compare import wrong_value
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import generator, normal
from labkit.checks.finding import Finding
from labkit.checks.structure import NOTHING
from labkit.checks.values import record, tensor, text
from labkit.checks.wire import Wire
from labkit.exercises.faster_steps.autocast.driver import DTYPES, drive

_RELATIVE = {"bfloat16": 2.0**-6, "float16": 2.0**-9}
_WEIGHTS = ("first", "bias", "second")


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
    low = DTYPES[text(inputs, "dtype")]
    x, labels = tensor(inputs, "x"), tensor(inputs, "labels")
    first, bias, second = weights = [tensor(inputs, name).clone().requires_grad_() for name in _WEIGHTS]
    hidden = functional.linear(x.to(low), first.to(low), bias.to(low))
    active = functional.relu(hidden)
    out = active @ second.to(low)
    loss = functional.cross_entropy(out.float(), labels)
    gradients = torch.autograd.grad(loss, weights)
    results = {
        "linear": hidden, "relu of a 16-bit tensor": active, "matmul": out, "cross_entropy": loss,
        "linear with named arguments": functional.linear(x.to(low), first.to(low)),
        "mse_loss": hidden.float().square().mean(), "exp": torch.exp((hidden * 0.1).float()),
        "relu of a float32 tensor": functional.relu(x), "@": out, "labels + 1": labels + 1,
        "linear after the mode": functional.linear(x, first),
        "linear of the other 16-bit type": functional.linear(*(each.to(_other(low)).to(low) for each in (x, first))),
        "relu of the other 16-bit type": functional.relu(x.to(_other(low))),
        "Tensor.softmax of a 16-bit tensor": active.softmax(-1),
        "x after all": x,
        "linear after its weight has changed": functional.linear(x.to(low), (first.detach() + 1).to(low)),
    }  # fmt: skip
    return [
        {
            "results": {name: value.detach() for name, value in results.items()},
            "gradients": dict(zip(_WEIGHTS, gradients, strict=True)),
        }
    ]


def _other(dtype: torch.dtype) -> torch.dtype:
    return torch.float16 if dtype == torch.bfloat16 else torch.bfloat16


_TOO_WIDE, _BY_NAME, _OLD_COPY = "computed in float64", "found by its name", "a copy of old values"
_NAMED = {
    "linear": "products in float32", "matmul": "products in float32", "@": "products in float32",
    "cross_entropy": "sums in 16 bits", "mse_loss": "sums in 16 bits", "exp": "sums in 16 bits",
    "linear with named arguments": "named arguments are left out", "relu of a float32 tensor": "everything is cast",
    "relu of a 16-bit tensor": "everything is cast", "labels + 1": "labels are cast",
    "linear after the mode": "still on after the mode", "x after all": "arguments are changed",
    "linear of the other 16-bit type": "the other 16 bits", "relu of the other 16-bit type": "everything is cast",
    "Tensor.softmax of a 16-bit tensor": _BY_NAME, "linear after its weight has changed": "products in float32",
}  # fmt: skip


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: dtypes first, then values, then gradients."""
    (right,), relative = expected(case), _RELATIVE[text(case.inputs[0], "dtype")]
    results, gradients = record(right, "results"), record(right, "gradients")
    for name in ("x after all", *results):
        wanted, dtype = tensor(results, name).dtype, tensor(record(got[0], "results"), name).dtype
        if dtype != wanted:
            other = {dtype, wanted} == {torch.bfloat16, torch.float16} and not name.startswith("relu")
            mistake = "the other 16 bits" if other else _TOO_WIDE if dtype == torch.float64 else _NAMED[name]
            yield Finding(mistake, f"{name}: the result has {dtype}.", f"{wanted}", f"{dtype}")
    for name in results:
        mine = tensor(record(got[0], "results"), name)
        mistake = _OLD_COPY if name == "linear after its weight has changed" else "a wrong value"
        yield from _far_off(mistake, name, mine, tensor(results, name), relative)
    for name in _WEIGHTS:
        if record(got[0], "gradients")[name] is None:
            yield Finding("no gradient", f"The weight {name} got no gradient: a cast must stay in the graph.")
        mine = tensor(record(got[0], "gradients"), name)
        yield from _far_off("a wrong gradient", f"The gradient of {name}", mine, tensor(gradients, name), relative)


def _far_off(mistake: str, what: str, mine: Tensor, wanted: Tensor, relative: float) -> Iterator[Finding]:
    if bool(((mine - wanted).abs().double() > relative * (1 + float(wanted.abs().max()))).any()):
        yield wrong_value(mistake, what, mine, wanted)


EXERCISE = declared(
    id="autocast",
    functions=("Autocast",),
    given=("IN_16_BITS", "IN_32_BITS"),
    driver=drive,
    oracle=expected,
    looks=(find,),
    mistakes=(
        Mistake("kwargs may be None",
                "Without named arguments kwargs is None: kwargs = kwargs or {}.",
                says=("must be a mapping", "'NoneType' object has no attribute 'items'"), certain=True),
        Mistake(NOTHING,
                "__torch_function__ must return what the function returns.",
                says=("must be Tensor, not NoneType",), certain=True),
        Mistake("no gradient",
                "The weights get no gradient: value.to(dtype) keeps the graph, value.data or detach() cuts it.",
                says=("does not require grad",), certain=True),
        Mistake("labels are cast",
                "Labels are whole numbers and must stay so: cast floating-point tensors only.",
                says=("expected scalar type Long", "expected floating point type for target", "Expected target",
                      "not implemented for 'Int'", "expected target"), certain=True),
        Mistake("not every argument is cast",
                "One product met two dtypes. Either not every floating-point tensor among its arguments was cast, a "
                "Parameter and the bias too, or the function was not found in its list: a @ b is Tensor.__matmul__.",
                says=("the same dtype", "should be the same"), certain=True),
        Mistake("arguments are changed",
                "After the call x itself has another dtype: value.data = ... changes the caller's tensor. "
                "value.to(...) makes a new one."),
        Mistake("products in float32",
                "A product came back in float32: cast its arguments to self.dtype, leave its result as it is, and "
                "check that the function is found in IN_16_BITS."),
        Mistake("the other 16 bits",
                "A product came back in another 16-bit type than the mode's: cast its arguments to self.dtype, "
                "whatever floating-point type they have."),
        Mistake(_TOO_WIDE, "Nothing is cast to float64 here: arguments of IN_32_BITS become torch.float32."),
        Mistake("sums in 16 bits",
                "A loss or an exponential came back in 16 bits: cast the arguments of IN_32_BITS to float32, whatever "
                "floating-point type they have, and leave the result as it is."),
        Mistake(_OLD_COPY,
                "A weight changed, as in an optimizer's step, and its old copy was used again: cast in every call, and "
                "keep no copies."),
        Mistake("named arguments are left out", "Keyword arguments come in kwargs: cast those too."),
        Mistake("everything is cast", "A function in neither list gets its arguments unchanged."),
        Mistake(_BY_NAME,
                "Tensor.softmax is in neither list, so its arguments stay as they are. It is another function than "
                "functional.softmax, of the same name: ask whether the function itself is in the list."),
    ),
    visible=(
        autocast_case("bfloat16", 691, "bfloat16", 6, 5, 8, 3),
        autocast_case("float16", 692, "float16", 4, 7, 5, 4),
    ),
    distributed=False,
    hints=(
        "What are the three cases for a function, and what happens to its arguments in each?",
        "If function is in IN_16_BITS, cast every floating-point tensor of args and kwargs to self.dtype; if it is in "
        "IN_32_BITS, to torch.float32; then call it. Else call it with what came.",
        "cast = lambda v: v.to(wanted) if isinstance(v, Tensor) and v.is_floating_point() else v; "
        "function(*map(cast, args), **{name: cast(v) for name, v in kwargs.items()})",
    ),
)  # fmt: skip
