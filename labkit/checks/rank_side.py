"""What runs in a rank during a check: one case after another, each marked on the timeline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import torch

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Driver, Functions
from labkit.checks.wire_format import encode
from labkit.launch.rank import device, span

CASE_KIND = "case"
OUTPUT_MARK = "\x1e"
"""Begins the line that a rank prints before each case: what follows it was printed in that case."""


def run_cases(
    driver: Driver, functions: Functions, inputs: Sequence[Sequence[Values]], kind: str = "cpu"
) -> list[bytes]:
    """Return this rank's result of each case, as bytes.

    Args:
        driver: Of the exercise.
        functions: The learner's.
        inputs: For each case, the inputs of every rank.
        kind: "cuda" where tensors belong on the rank's GPU: those of the inputs, and those that are made meanwhile.
    """
    rank, place = int(os.environ["RANK"]), None if kind == "cpu" else device()
    results = []
    for number, of_ranks in enumerate(inputs):
        print(f"{OUTPUT_MARK}{number}", flush=True)
        with span(f"case {number}", kind=CASE_KIND), nullcontext() if place is None else place:
            result = driver(functions, of_ranks[rank] if place is None else moved(of_ranks[rank], place))
        results.append(encode(result))
    return results


def moved(values: Values, place: torch.device) -> Values:
    """Return the same values with every tensor on this device."""

    def there(value: Value) -> Value:
        if isinstance(value, torch.Tensor):
            return value.to(place)
        if isinstance(value, Mapping):
            return {key: there(each) for key, each in value.items()}
        return [there(each) for each in value] if isinstance(value, list | tuple) else value

    return {key: there(value) for key, value in values.items()}
