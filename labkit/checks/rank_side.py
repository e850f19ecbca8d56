"""What runs in a rank during a check: one case after another, each marked on the timeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Driver, Functions
from labkit.checks.wire_format import encode
from labkit.launch.rank import device, span
from labkit.torch_port.own_parallelism import close_reducer

CASE_KIND = "case"
OUTPUT_MARK = "\x1e"
"""Begins the line that a rank prints before each case: what follows it was printed in that case."""


def run_cases(
    driver: Driver,
    functions: Functions,
    inputs: Sequence[Sequence[Values]],
    kind: str = "cpu",
    folder: str = "",
    torchs_own: bool = True,
) -> list[bytes]:
    """Return this rank's result of each case, as bytes.

    Args:
        driver: Of the exercise.
        functions: The learner's.
        inputs: For each case, the inputs of every rank.
        kind: "cuda" where tensors belong on the rank's GPU: those of the inputs, and those that are made meanwhile.
        folder: Where each result is kept as soon as it is there, in case a later case ends the run; "" for nowhere.
        torchs_own: Whether torch's own DistributedDataParallel can be made in this process, from here on.
    """
    if not torchs_own:
        close_reducer()
    rank, place = int(os.environ["RANK"]), None if kind == "cpu" else device()
    together = _meeting_place() if len(inputs) > 1 and place is None else None
    results = []
    for number, of_ranks in enumerate(inputs):
        print(f"{OUTPUT_MARK}{number}", flush=True)
        with span(f"case {number}", kind=CASE_KIND), nullcontext() if place is None else place:
            result = driver(functions, of_ranks[rank] if place is None else moved(of_ranks[rank], place))
        results.append(encode(result))
        if folder:
            begun = Path(folder, f"{number}.{rank}.part")
            begun.write_bytes(results[-1])
            begun.replace(kept(folder, number, rank))
        if together is not None:
            together()
    return results


def _meeting_place() -> Callable[[], object] | None:
    """Return what waits until every rank has done its part of a case, so that none runs ahead into the next.

    It has a group of its own: nothing that a learner's ranks do, or forget, can be taken for it.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    group = dist.new_group()
    return lambda: dist.barrier(group)


def kept(folder: str, number: int, rank: int) -> Path:
    """Return where a rank's result of a case is kept."""
    return Path(folder, f"{number}.{rank}")


def moved(values: Values, place: torch.device) -> Values:
    """Return the same values with every tensor on this device."""

    def there(value: Value) -> Value:
        if isinstance(value, torch.Tensor):
            return value.to(place)
        if isinstance(value, Mapping):
            return {key: there(each) for key, each in value.items()}
        return [there(each) for each in value] if isinstance(value, list | tuple) else value

    return {key: there(value) for key, value in values.items()}
