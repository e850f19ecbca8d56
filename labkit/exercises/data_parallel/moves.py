"""What moves between devices in one step of data parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Move = list[Any]
Arguments = tuple[list[int], int, int, int, int]

KINDS = ("inputs", "model", "outputs", "output gradients", "model gradients")
DOWN = ("inputs", "model", "output gradients")


def right_plan(sizes: Sequence[int], *amounts: int) -> list[Move]:
    """Return the moves [what, src, dst, num_bytes] of one step, in order."""
    of_input, of_output, model, gradients = amounts
    found: list[Move] = []
    for what in KINDS:
        for device, size in list(enumerate(sizes))[1:]:
            each = {"inputs": size * of_input, "model": model, "model gradients": gradients}
            ends = [0, device] if what in DOWN else [device, 0]
            found.append([what, *ends, each.get(what, size * of_output)])
    return found
