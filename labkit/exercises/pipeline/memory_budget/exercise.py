"""What must fit into memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.checks.case import Case
from labkit.checks.formulas import NOTHING, Call, Counted, as_if, calls_case, counting, judging
from labkit.checks.judged import Mistake, judged
from labkit.exercises.pipeline.memory_budget.driver import drive

_PER_PARAMETER = ("parameter", "gradient", "Adam's mean", "Adam's mean of squares")


def _state(num_parameters: int, size: int = 4) -> float:
    return sum(num_parameters * size for _ in _PER_PARAMETER)


def _gradients(num_parameters: int, size: int = 4) -> float:
    return num_parameters * size


def _stages(num_parameters: int, activation_bytes: int, device_bytes: int) -> float:
    stages = 1
    while stages * device_bytes < _state(num_parameters) + activation_bytes:
        stages += 1
    return stages


COUNTED: Counted = {"state_bytes": _state, "gradient_bytes": _gradients, "stages_needed": _stages}


def budget_case(name: str, models: Sequence[tuple[int, int, int, int]]) -> Case:
    """Return a case of memory_budget: (parameters, bytes a number, of activations, of a device) for each model."""
    calls: list[Call] = []
    for parameters, size, activations, device in models:
        calls += [
            ("state_bytes", (parameters,)),
            ("state_bytes", (parameters, size)),
            ("gradient_bytes", (parameters, size)),
            ("stages_needed", (parameters, activations, device)),
        ]
    return calls_case(name, calls)


EXERCISE = judged(
    id="memory_budget",
    functions=("state_bytes", "gradient_bytes", "stages_needed"),
    driver=drive,
    oracle=counting(COUNTED),
    judge=judging(COUNTED),
    visible=(
        budget_case("a billion parameters on devices of 10 GB", [(10**9, 4, 19 * 10**9, 10**10)]),
        budget_case("2-byte numbers; what fits exactly", [(1000, 2, 4000, 20_000), (1001, 2, 0, 16_016)]),
    ),
    distributed=False,
    hints=(
        "Which numbers are kept for each parameter from one step to the next, or until the optimizer has run?",
        "Four: the parameter, its gradient, and Adam's two averages. The stages share all of that and the "
        "activations; what does not divide needs one stage more.",
        "4 * num_parameters * bytes_per_number; num_parameters * bytes_per_number; and for the stages "
        "-(-(state_bytes(num_parameters) + activation_bytes) // device_bytes).",
    ),
    mistakes=(
        NOTHING,
        Mistake(
            "one number for Adam",
            "state_bytes counts three numbers for each parameter: Adam keeps two, the mean of the gradients and that "
            "of their squares.",
            as_if(COUNTED, "state_bytes", lambda n, size=4: 3 * n * size),
        ),
        Mistake(
            "gradients forgotten",
            "state_bytes counts two numbers for each parameter: parameter, gradient and two for Adam are four.",
            as_if(COUNTED, "state_bytes", lambda n, size=4: 2 * n * size),
        ),
        Mistake(
            "the parameters alone",
            "state_bytes counts one number for each parameter: beside it stand its gradient and Adam's two, four in "
            "all.",
            as_if(COUNTED, "state_bytes", lambda n, size=4: n * size),
        ),
        Mistake(
            "always four bytes",
            "bytes_per_number is not used: with 2 it is half as much.",
            as_if(COUNTED, "state_bytes", lambda n, size=4: 16 * n),
        ),
        Mistake(
            "activations forgotten",
            "stages_needed leaves the activations out: they must fit beside the state.",
            as_if(COUNTED, "stages_needed", lambda n, a, device: math.ceil(16 * n / device)),
        ),
        Mistake(
            "rounded down",
            "stages_needed rounds down: what is left over needs a stage too.",
            as_if(COUNTED, "stages_needed", lambda n, a, device: (16 * n + a) // device),
        ),
        Mistake(
            "part of a stage",
            "stages_needed gives part of a stage: there are whole devices only, so round up.",
            as_if(COUNTED, "stages_needed", lambda n, a, device: (16 * n + a) / device),
        ),
        Mistake(
            "one stage too many",
            "stages_needed adds a stage where everything fits exactly: round up, do not add one.",
            as_if(COUNTED, "stages_needed", lambda n, a, device: (16 * n + a) // device + 1),
        ),
    ),
)
