"""What a rank runs of who_gets_what: one process asks for every rank of a mesh."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer
from labkit.exercises.hybrid_parallelism.meshes import places, sizes_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Ask for samples and seeds, those of the next run too. Inputs: sizes (of the mesh), batch, microbatch, seed."""
    sizes = sizes_of(inputs)
    samples: list[Value] = []
    seeds: dict[str, Value] = {}
    for place in places(sizes):
        try:
            came = functions["my_samples"](
                integer(inputs, "batch"), integer(inputs, "microbatch"), dict(sizes), dict(place)
            )
            samples.append(_plain(came))
        except ValueError as error:
            samples.append({"raised": str(error)[:200]})
    asks = (("whole", False, 0), ("cut", True, 0), ("another_run", False, 1), ("another_cut", True, 1))
    for key, is_cut, run in asks:
        asked = [
            functions["dropout_seed"](integer(inputs, "seed") + run, dict(sizes), dict(each), is_cut)
            for each in places(sizes)
        ]
        seeds[key] = [each if type(each) is int else f"{each!r:.60}" for each in asked]
    return {"samples": samples, **seeds}


def _plain(value: Any) -> Value:
    """Return lists of numbers as they are, any other thing as its text."""
    try:
        return [[int(each) for each in microbatch] for microbatch in value]
    except (TypeError, ValueError):
        return f"{value!r:.60}"
