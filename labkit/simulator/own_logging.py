"""What each rank sets of Python's loggers: handlers, filters, levels.

Loggers are found by name and kept by the modules that write to them, so all ranks have the same objects. While a run
goes on these attributes of theirs ask which rank's thread calls; a rank begins with what there was before the run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from labkit.simulator.state import current_rank

_OF_LOGGERS = ("handlers", "filters", "level", "propagate", "disabled")


def _each_ranks(name: str) -> property:
    def read(self: Any) -> Any:
        rank = current_rank()
        if rank is None:
            return vars(self)[name]
        table = rank.process.logging
        if (self, name) not in table:
            value = vars(self)[name]
            table[self, name] = list(value) if isinstance(value, list) else value
        return table[self, name]

    def write(self: Any, value: Any) -> None:
        rank = current_rank()
        if rank is not None:
            rank.process.logging[self, name] = value
            if name in vars(self):
                return
            value = list(value) if isinstance(value, list) else value  # a new logger, which others find, too
        vars(self)[name] = value

    return property(read, write)


class _Answers:
    """What a logger remembers of the levels it was asked for; ranks remember nothing."""

    def __get__(self, logger: Any, owner: Any) -> Any:
        return vars(logger)["_cache"] if current_rank() is None else {}

    def __set__(self, logger: Any, value: Any) -> None:
        vars(logger)["_cache"] = value


@contextmanager
def installed() -> Iterator[None]:
    """Let each rank set up logging for itself; leave loggers as they were."""
    logger: Any = logging.Logger
    for name in _OF_LOGGERS:
        setattr(logger, name, _each_ranks(name))
    logger._cache = _Answers()
    try:
        yield
    finally:
        for name in (*_OF_LOGGERS, "_cache"):
            delattr(logger, name)
