"""What Python keeps once for a process and a program changes: its ``__main__``, its arguments, where modules are found.

Exactly one rank runs at a time, so these are put away and brought back when another takes over.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType


def _main() -> ModuleType:
    return sys.modules["__main__"]


@dataclass
class Interpreter:
    """What one rank sees of them; a new one begins as a new process would, with what is there now.

    Attributes:
        main: ``sys.modules["__main__"]``.
        argv: ``sys.argv``.
        path: ``sys.path``.
    """

    main: ModuleType = field(default_factory=_main)
    argv: list[str] = field(default_factory=lambda: list(sys.argv))
    path: list[str] = field(default_factory=lambda: list(sys.path))

    def put_away(self) -> None:
        """Remember what is there now."""
        self.main, self.argv, self.path = sys.modules["__main__"], sys.argv, sys.path

    def bring(self) -> None:
        """Make it what the process sees."""
        sys.modules["__main__"], sys.argv, sys.path = self.main, self.argv, self.path


@contextmanager
def kept() -> Iterator[None]:
    """Leave the interpreter as it was before the body."""
    before = sys.modules["__main__"], sys.argv, sys.path
    try:
        yield
    finally:
        sys.modules["__main__"], sys.argv, sys.path = before
