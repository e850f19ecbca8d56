"""What a rank prints."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class Output(io.TextIOBase):
    """What one rank prints: kept whole, and shown line by line with its number.

    Attributes:
        silent: Whether nothing more is taken in, because the rank was ended.
    """

    def __init__(self, rank: int, show: Callable[[str], None] | None) -> None:
        super().__init__()
        self._tag, self._show = f"[rank {rank}] ", show
        self._parts: list[str] = []
        self._line = ""
        self.silent = False

    def write(self, text: str) -> int:
        """Take in what is printed, as long as its rank has not been ended."""
        if self.silent:
            return len(text)
        self._parts.append(text)
        if self._show is not None:
            *lines, self._line = (self._line + text).split("\n")
            for line in lines:
                self._show(self._tag + line)
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What bytes are taken for."""
        return "utf-8"

    @property
    def buffer(self) -> Any:
        """What takes bytes."""
        return _Bytes(self)

    def fileno(self) -> int:
        """Return this process's own output, for programs that ranks start and for faulthandler."""
        return 1

    def reconfigure(self, **_: object) -> None:
        """Do nothing: lines are shown when they end."""

    def finish(self) -> None:
        """Show a last line that had no end."""
        if self._line and self._show is not None:
            self._show(self._tag + self._line)
            self._line = ""

    def text(self) -> str:
        """Return all that was printed."""
        return "".join(self._parts)


class _Bytes(io.RawIOBase):
    """sys.stdout.buffer of a rank."""

    def __init__(self, text: Output) -> None:
        super().__init__()
        self._text = text

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Take in what is printed."""
        self._text.write(bytes(data).decode("utf-8", "replace"))
        return len(data)
