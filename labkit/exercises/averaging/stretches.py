"""The wire cut at the driver's barriers: which collectives a rank called in which stretch of a training step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from labkit.checks.case import Case
from labkit.checks.cut_wire import between_barriers
from labkit.checks.on_ranks.hard_model import HardModel
from labkit.checks.values import listed
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.averaging.on_ranks import LAYERS

MARKS = frozenset({"barrier", "all_to_all", "all_to_all_single"})
"""What the driver separates the parts of a step with: see on_ranks.mark_layers."""
_READY_WITH = {"scale": "head", "shift": "head", "spare": "fixed"}


@dataclass(frozen=True)
class Stretch:
    """What a rank called between two barriers of the driver.

    Attributes:
        step: Number of the training step, -1 before the first.
        run: Number of the backward pass within the step.
        part: "start", "construct", "forward", "finish", "evaluate", "end", or within backward "loss" and the names of
            layers: from the moment that layer's output has its gradient.
        calls: In order.
    """

    step: int
    run: int
    part: str
    calls: tuple[CollectiveCall, ...]


def labels(case: Case) -> list[tuple[int, int, str]]:
    """Return step, backward pass and part of each stretch, in order."""
    found = [(-1, 0, "start"), (-1, 0, "construct")]
    for number, step in enumerate(listed(case.inputs[0], "steps")):
        passes, quiet = len(step["x"]), int(step.get("quiet", 0))
        for run in range(passes):
            found.append((number, run, "forward"))
            found += [(number, run, part) for part in ("loss", *reversed(LAYERS))]
            if run >= quiet:
                found.append((number, run, "finish"))
    after = ("evaluate", "end") if "evaluate" in case.inputs[0] else ("end",)
    return [*found, *((len(listed(case.inputs[0], "steps")), 0, part) for part in after)]


def stretches(case: Case, wire: Wire, rank: int) -> list[Stretch] | None:
    """Return the stretches of a rank, or None where barriers are missing or are too many."""
    parts, names = between_barriers(wire, rank, MARKS), labels(case)
    if len(names) != len(parts):
        return None
    return [Stretch(*name, tuple(calls)) for name, calls in zip(names, parts, strict=True)]


def ready_part(name: str, model: HardModel) -> str:
    """Return the part of backward in which a parameter's gradient is complete."""
    layer = name.split(".")[0]
    if name == "mix.weight" or (
        layer == "remix" and name.endswith("weight") and model.remix.weight is model.mix.weight
    ):
        return "mix"
    return _READY_WITH.get(layer, layer)


def trained(model: HardModel) -> list[tuple[str, int]]:
    """Return name and size in bytes of each parameter that needs a gradient, as module.parameters() yields them."""
    return [(n, p.numel() * p.element_size()) for n, p in model.named_parameters() if p.requires_grad]


def partition(sizes: list[int], pieces: list[int]) -> list[list[int]] | None:
    """Return which parameters lie in each piece when pieces take them from the last to the first, or None.

    Args:
        sizes: Bytes of each parameter.
        pieces: Bytes of each all_reduce, in order.
    """
    found: list[list[int]] = []
    index = len(sizes) - 1
    for piece in pieces:
        bucket: list[int] = []
        while index >= 0 and sum(sizes[i] for i in bucket) < piece:
            bucket.append(index)
            index -= 1
        if sum(sizes[i] for i in bucket) != piece or not bucket:
            return None
        found.append(bucket)
    return found if index < 0 else None


def in_another_order(sizes: list[int], pieces: list[int]) -> bool:
    """Return whether the pieces, in some other order, are buckets of consecutive parameters from the last down."""
    if not pieces:
        return not sizes
    for piece in sorted(set(pieces)):
        taken = next((n for n in range(1, len(sizes) + 1) if sum(sizes[-n:]) == piece), None)
        if taken is not None:
            rest = list(pieces)
            rest.remove(piece)
            if in_another_order(sizes[:-taken], rest):
                return True
    return False


def of_backward(parts: list[Stretch], step: int, run: int) -> Iterator[tuple[str, CollectiveCall]]:
    """Yield part and call of every collective of one backward pass and its finish, in order."""
    for stretch in parts:
        if (stretch.step, stretch.run) == (step, run) and stretch.part != "forward":
            for call in stretch.calls:
                yield stretch.part, call
