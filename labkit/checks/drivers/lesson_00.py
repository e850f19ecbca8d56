"""Drivers of lesson 00: call the learner's function on this rank's inputs, return what it gave."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.timeline import Message


def average_in_place(functions: Functions, inputs: Values) -> Values:
    """Call average on this rank's tensor; return the tensor as it is afterwards (average)."""
    tensor = cast(Tensor, inputs["tensor"]).clone()
    functions["average"](tensor)
    return {"tensor": tensor}


def read_environments(functions: Functions, inputs: Values) -> Values:
    """Call who_am_i with each environment; return its pair, or the name of the error it raised (who_am_i)."""
    answers: list[Value] = []
    for environment in cast(list[dict[str, str]], inputs["environments"]):
        try:
            answers.append(_plain(functions["who_am_i"](dict(environment))))
        except NotImplementedError:
            raise
        except Exception as error:
            answers.append({"raised": type(error).__name__})
    return {"answers": answers}


def compare_gradients(functions: Functions, inputs: Values) -> Values:
    """Call damaged with each pair of tensors; return what it gave (damaged)."""
    pairs = zip(cast(list[Tensor], inputs["before"]), cast(list[Tensor], inputs["after"]), strict=True)
    return {"answers": [_plain(functions["damaged"](before.clone(), after.clone())) for before, after in pairs]}


def read_messages(functions: Functions, inputs: Values) -> Values:
    """Call never_heard with each list of messages; return what it gave (never_heard)."""
    lists = cast(list[list[dict[str, Any]]], inputs["lists"])
    made = [[Message(**fields) for fields in each] for each in lists]
    return {"answers": [_plain(functions["never_heard"](each)) for each in made]}


def _plain(value: Any) -> Value:
    """Return numbers and lists or tuples of them as they are, and words for anything else."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return cast(Value, value)
    return f"a {type(value).__name__}"
