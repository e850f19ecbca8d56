"""Programs with a torch.distributed that does nothing: what is left is their own work, the floor of any simulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist


class Nothing:
    """A torch.distributed in which every call returns at once, with a handle where it should."""

    def __init__(self, rank: int, world_size: int) -> None:
        """Be that of one rank."""
        self._rank, self._world_size = rank, world_size

    def __getattr__(self, name: str) -> Any:
        if name.islower():
            return self._done
        return getattr(dist, name)

    def get_rank(self, group: Any = None) -> int:
        """Return the rank."""
        return self._rank

    def get_world_size(self, group: Any = None) -> int:
        """Return the number of ranks."""
        return self._world_size

    def get_process_group_ranks(self, group: Any = None) -> list[int]:
        """Return all ranks."""
        return list(range(self._world_size))

    def P2POp(self, *args: Any, **kwargs: Any) -> None:  # as torch calls it
        """Describe nothing."""

    def batch_isend_irecv(self, ops: list[Any]) -> list[Any]:
        """Return a handle for each message."""
        return [self for _ in ops]

    def wait(self) -> bool:
        """Return at once: it is its own handle."""
        return True

    def _done(self, *args: Any, **kwargs: Any) -> Any:
        return self


class OneOf:
    """A mesh seen by one of its ranks."""

    def __init__(self, place: dict[str, int]) -> None:
        """Stand at these places of the axes."""
        self._place = place

    def get_group(self, axis: str) -> None:
        """Return no group."""

    def get_local_rank(self, axis: str) -> int:
        """Return the place on an axis."""
        return self._place[axis]


@contextmanager
def replaced(names: dict[str, Any], **others: Any) -> Iterator[None]:
    """Put others in the place of a module's names, and put those back."""
    before = {name: names[name] for name in others}
    names.update(others)
    try:
        yield
    finally:
        names.update(before)


def seconds_alone(
    function: Callable[[], object], names: dict[str, Any], rank: int, world_size: int, **others: Any
) -> float:
    """Return the processor time, in seconds, that a function takes as one rank, with no communication.

    Args:
        function: What the rank does.
        names: The globals in which it finds ``dist``.
        rank: Its rank.
        world_size: Number of ranks.
        **others: What else of the globals is to be replaced.
    """
    with replaced(names, dist=Nothing(rank, world_size), **others):
        begin = time.process_time()
        function()
        return time.process_time() - begin
