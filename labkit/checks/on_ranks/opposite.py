"""A rank opposite: what it gives is needed where it is asked for, and comes in no other way.

What happens inside one process, only that process knows. So where an exercise asks for something that happens there
(that threads run together, that a module runs again), rank 1 of a hidden case has drawn numbers that rank 0's values
need, and gives each when what it was asked before says that it happened.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

Ask = Callable[[int, int], float]
"""ask(what, number): returns the number that the rank opposite has for it, once it gives it."""

_ASKED = 0


def asker() -> Ask:
    """Return what asks rank 1; any thread may call it, and waits for its own answer."""
    tags = itertools.count(_ASKED + 1)

    def ask(what: int, number: int) -> float:
        tag, came = next(tags), torch.zeros((), dtype=torch.float64)
        dist.send(torch.tensor([tag, what, number]), 1, tag=_ASKED)
        dist.recv(came, 1, tag=tag)
        return float(came)

    return ask


def asked(count: int) -> Iterator[tuple[int, int, int]]:
    """Yield what rank 0 asks, so many times, as it comes: where an answer goes, what is asked, its number."""
    for _ in range(count):
        came = torch.zeros(3, dtype=torch.int64)
        dist.recv(came, 0, tag=_ASKED)
        tag, what, number = came.tolist()
        yield tag, what, number


def give(tag: int, value: float) -> None:
    """Answer what was asked under this tag."""
    dist.send(torch.tensor(value, dtype=torch.float64), 0, tag=tag)
