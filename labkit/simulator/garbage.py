"""Reference cycles, collected at the same points of every run.

Python looks for cycles after so many allocations, which depends on all that the process did before. Tensors in a cycle
would then be freed at another virtual time in every run. So while ranks run, Python's own collection is off, and ours
comes after so many tensors, counted over all ranks: young objects often, as Python does, and all objects when the
number of tensors has doubled, for runs on hundreds of ranks have millions of objects, hardly any in a cycle.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_EVERY = 2_000
"""Tensors between two looks at young objects."""
_ALL_AFTER = 50_000


class Garbage:
    """Counts tensors and collects.

    Attributes:
        until: Tensors left until the next collection; whoever makes one counts it down and calls :meth:`collect` at 0.
    """

    __slots__ = ("_since_all", "_total", "until")

    def __init__(self) -> None:
        self.until = YOUNG_EVERY
        self._total = self._since_all = 0

    def collect(self) -> None:
        """Collect what is due."""
        self.until = YOUNG_EVERY
        self._total += YOUNG_EVERY
        self._since_all += YOUNG_EVERY
        if self._since_all >= max(_ALL_AFTER, self._total // 2):
            self._since_all = 0
            gc.collect()
        else:
            gc.collect(1)

    def collect_all(self) -> None:
        """Collect everything, as before saying that memory is full."""
        gc.collect()


@contextmanager
def swept() -> Iterator[None]:
    """Collect what the body leaves in cycles, and nothing that was there before.

    For what happens once in a process and not in every run: an import catches exceptions, whose frames hold the tensors
    of whoever imports. What the program itself leaves in cycles must not go here, for in the next run nothing is
    imported.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


@contextmanager
def collected_by_us() -> Iterator[None]:
    """Keep Python from collecting on its own, and set aside what was there before; undone on leaving."""
    was_enabled, had_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    if not had_frozen:
        gc.freeze()
    try:
        yield
    finally:
        if not had_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()
