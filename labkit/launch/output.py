"""What ranks print: echoed with the rank's number while they run, kept within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from labkit.units import format_bytes

KEPT_HEAD_BYTES = 256 * 1024
KEPT_TAIL_BYTES = 256 * 1024
ECHOED_BYTES = 64 * 1024
LAST_LINES = 5
_LONGEST_LINE = 8 * 1024


class RankOutput:
    """One rank's output: the beginning and the end are kept, the beginning is echoed, what is cut is counted."""

    def __init__(self, rank: int, show: Callable[[str], None] | None) -> None:
        """Start with nothing.

        Args:
            rank: Whose output it is.
            show: Called with each tagged line while the rank runs, or None for a run that echoes nothing.
        """
        self._rank = rank
        self._show = show
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._total = 0
        self._line = bytearray()
        self._echoed = 0
        self._silent = False

    def feed(self, data: bytes) -> None:
        """Take in what the rank printed."""
        self._total += len(data)
        room = KEPT_HEAD_BYTES - len(self._head)
        self._head += data[:room]
        rest = data[room:] if room < len(data) else b""
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= KEPT_TAIL_BYTES:
                self._tail_bytes -= len(self._tail.popleft())
        if self._show is not None and not self._silent:
            self._echo(data)

    def finish(self) -> None:
        """Echo a last line that had no end, and say what was not echoed."""
        if self._show is None:
            return
        if self._silent:
            self._show(f"[rank {self._rank}] ... {format_bytes(self._total - self._echoed)} not shown; it ended with:")
            for line in self.last_lines(LAST_LINES):
                self._show(f"[rank {self._rank}] {line}")
        elif self._line:
            self._show_line(bytes(self._line))
            self._line.clear()

    def text(self) -> str:
        """Return what is kept; a line in the middle says how much was cut."""
        tail = b"".join(self._tail)[-KEPT_TAIL_BYTES:]
        cut = self._total - len(self._head) - len(tail)
        middle = f"\n... {format_bytes(cut)} cut here ...\n".encode() if cut else b""
        return (bytes(self._head) + middle + tail).decode("utf-8", "replace")

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines printed, each shortened to a sensible width."""
        end = (b"".join(self._tail) or bytes(self._head))[-_LONGEST_LINE:]
        return [line[-500:] for line in end.decode("utf-8", "replace").splitlines()[-count:]]

    def _echo(self, data: bytes) -> None:
        self._line += data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = bytes(self._line).split(b"\n")
        while len(rest) > _LONGEST_LINE:
            lines.append(rest[:_LONGEST_LINE])
            rest = rest[_LONGEST_LINE:]
        self._line = bytearray(rest)
        for line in lines:
            if self._echoed + len(line) > ECHOED_BYTES:
                self._silent = True
                self._line.clear()
                assert self._show is not None
                self._show(
                    f"[rank {self._rank}] ... prints more than {format_bytes(ECHOED_BYTES)}; the rest is not shown "
                    f"(output[{self._rank}] of the run keeps its beginning and its end)"
                )
                return
            self._echoed += len(line) + 1
            self._show_line(line)

    def _show_line(self, line: bytes) -> None:
        assert self._show is not None
        self._show(f"[rank {self._rank}] {line.decode('utf-8', 'replace')}")
