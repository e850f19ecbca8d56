"""A rank's event log on its way to the notebook: the pages that changed, put into a copy there."""

from __future__ import annotations

import os
from pathlib import Path

from labkit.launch.recording import RankLog, layout, read_log

_PAGE = layout.PAGE
Pages = list[tuple[int, bytes]]
"""Where in the log, and what stands there now."""


class LogSource:
    """Reads a log that a rank writes, and tells what changed since the last look."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._sent: dict[int, bytes] = {}

    def changed(self) -> Pages:
        """Return the pages that differ from what was told before; runs of them come as one."""
        found: list[tuple[int, bytes]] = []
        try:
            with self._path.open("rb") as file:
                head = file.read(layout.HEADER.size)
                if len(head) < layout.HEADER.size or head[: len(layout.MAGIC)] != layout.MAGIC:
                    return []
                begun, names = layout.HEADER.unpack_from(head, 0)[5], layout.HEADER.unpack_from(head, 0)[7]
                for start, end in (
                    (0, layout.NAMES_AT),
                    (layout.NAMES_AT, layout.NAMES_AT + names),
                    (layout.RECORDS_AT, layout.RECORDS_AT + (begun + 64) * layout.RECORD_BYTES),
                ):
                    file.seek(start // _PAGE * _PAGE)
                    at = start // _PAGE * _PAGE
                    while at < end and (page := file.read(_PAGE)):
                        if self._sent.get(at) != page:
                            self._sent[at] = page
                            found.append((at, page))
                        at += len(page)
        except OSError:
            return []
        return _joined(found)


class LogCopy:
    """The notebook's copy of a rank's log, in memory that has no name."""

    def __init__(self, rank: int) -> None:
        self.fd = os.memfd_create(f"labkit-log-{rank}")
        os.ftruncate(self.fd, layout.RECORDS_AT)
        self._seen_ns = 0
        self._alive = True

    def put(self, pages: Pages, seen_ns: int, alive: bool) -> None:
        """Take in what changed.

        Args:
            pages: From LogSource.changed().
            seen_ns: When the rank's host looked, on its clock.
            alive: Whether the rank lived then.
        """
        for at, page in pages:
            os.pwrite(self.fd, page, at)
        self._seen_ns, self._alive = seen_ns, alive

    def read(self) -> RankLog | None:
        """Return what the rank had recorded when its host last looked, None where that is nothing."""
        log = read_log(f"/proc/self/fd/{self.fd}", alive_until_ns=self._seen_ns if self._alive else 0)
        return None if log.missing else log


def _joined(pages: Pages) -> Pages:
    runs: list[tuple[int, list[bytes]]] = []
    end = -1
    for at, page in pages:
        if at == end:
            runs[-1][1].append(page)
        else:
            runs.append((at, [page]))
        end = at + len(page)
    return [(at, b"".join(parts)) for at, parts in runs]
