"""A storage in a rank's ledger: what it is for, where it lies, and how it is listed when memory is full.

What a storage is for shows later than it is made, so its category may rise, and counts for all its life:

* parameters and buffers are those of modules, and every ``nn.Parameter``;
* gradients are the ``.grad`` of these, and what else a backward pass made and left behind;
* optimizer state is what is in ``optimizer.state`` after a step;
* communication is what was allocated empty or filled with a constant and then given to a collective, as buckets are,
  or given to ``send`` and ``recv`` and used by no operator that autograd follows;
* activations are what else is there when a backward pass begins, and what it computes anew;
* other is the rest: temporaries, and tensors from outside, such as data.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence

import torch

from labkit.simulator.caching_allocator import Block, CachingAllocator
from labkit.simulator.memory_error import Held
from labkit.simulator.state import the_rank
from labkit.timeline.memory import CATEGORIES
from labkit.torch_port.backward import in_backward

GIVEN = len(CATEGORIES)
"""A tensor that came from outside: "other" in the table, and never an activation."""

Detail = tuple[tuple[int, ...], str, str, str]
"""Shape, dtype, operator and the learner's file:line of a large tensor."""


class StorageBlock(weakref.ref):  # type: ignore[type-arg]
    """A storage that lives; calls back when it dies."""

    __slots__ = ("index", "key", "place")

    index: int
    key: int
    place: Block | None


def room(allocator: CachingAllocator, num_bytes: int) -> Block | None:
    """Return where an allocator puts so many bytes, waiting for what streams give back; None where there is no room."""
    rank = the_rank()
    if allocator.pending:
        if not (rank.process.threaded and in_backward()):  # C++ holds locks there that other threads may need
            rank.turn()
        allocator.look(rank.now_ns)
    place = allocator.take(num_bytes, rank.queue())
    if place is None and allocator.pending:
        for _, events in allocator.pending:  # as the allocator synchronises before it gives up
            for event in events:
                rank.wait_for(event, "an allocation")
        allocator.look(rank.now_ns)
        place = allocator.take(num_bytes, rank.queue())
    return place


def held_alike(
    blocks: Iterable[StorageBlock], sizes: Sequence[int], categories: Sequence[int], details: Mapping[int, Detail]
) -> dict[Held, int]:
    """Return what is held, with how many storages agree in all that is told of them."""
    held: dict[Held, int] = {}
    for block in blocks:
        size, category = sizes[block.index], categories[block.index]
        name = CATEGORIES[0 if category == GIVEN else category]
        detail = details.get(block.index)
        one = Held(size, name) if detail is None else Held(size, name, *detail)
        held[one] = held.get(one, 0) + 1
    return held


def dtype_of(tensor: torch.Tensor) -> str:
    """Return a tensor's dtype in a word: "float32"."""
    return str(tensor.dtype).removeprefix("torch.")
