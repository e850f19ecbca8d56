"""The writing side of a rank's event log."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from pathlib import Path

from labkit.launch.recording import layout

DEFAULT_CAPACITY = 200_000


class EventLog:
    """A memory-mapped file of fixed records that any thread of the rank may write.

    What is written is in the kernel's page cache at once, so it outlives the process however that ends. Records past
    the capacity, or past the end of the disk, are counted and left out.

    Raises:
        OSError: If the file cannot be created.
    """

    def __init__(self, path: str | Path, rank: int, capacity: int = DEFAULT_CAPACITY) -> None:
        self.capacity = capacity
        size = layout.RECORDS_AT + capacity * layout.RECORD_BYTES
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._claimed = 0
            self._claim(layout.RECORDS_AT)
            os.ftruncate(self._file, size)
            self._map = mmap.mmap(self._file, size)
        except OSError:
            os.close(self._file)
            raise
        self._lock = threading.Lock()
        self._next = itertools.count()
        self._names: dict[str, int] = {}
        self._name_bytes = 0
        self._dropped = 0
        self._slots = itertools.count()
        self._thread = threading.local()
        self.intern("")
        layout.HEADER.pack_into(
            self._map, 0, layout.MAGIC, rank, os.getpid(), time.monotonic_ns(), 0, 0, 0, self._name_bytes
        )

    def intern(self, name: str) -> int:
        """Return the number of this name; the empty name, 0, stands in where the table is full."""
        found = self._names.get(name)
        if found is not None:
            return found
        with self._lock:
            if name in self._names:
                return self._names[name]
            data = name.encode("utf-8", "replace")[:1000]
            used = self._name_bytes + layout.NAME_LENGTH.size + len(data)
            if used > layout.NAME_BYTES:
                return 0
            at = layout.NAMES_AT + self._name_bytes
            layout.NAME_LENGTH.pack_into(self._map, at, len(data))
            self._map[at + layout.NAME_LENGTH.size : at + layout.NAME_LENGTH.size + len(data)] = data
            self._name_bytes = used
            layout.RECORD_END.pack_into(self._map, layout.NAME_BYTES_AT, used)
            self._names[name] = len(self._names)
            return self._names[name]

    def begin(
        self,
        start_ns: int,
        lane: int,
        kind: int,
        name: int,
        *,
        num_bytes: int = 0,
        peer: int = -1,
        tag: int = 0,
        group: int = 0,
        number: int = 0,
        source: int = 0,
        link: int = -1,
        flags: int = 0,
    ) -> int:
        """Return the index of a new open record, or -1 where it was dropped."""
        index = next(self._next)
        at = layout.RECORDS_AT + index * layout.RECORD_BYTES
        if index >= self.capacity or (at + layout.RECORD_BYTES > self._claimed and not self._claim_for(at)):
            self._drop()
            return -1
        thread = getattr(self._thread, "slot", None)
        if thread is None:
            thread = self._thread.slot = next(self._slots)
        layout.RECORD.pack_into(
            self._map, at, start_ns, start_ns, num_bytes, link, peer, tag, kind, name, group, number, source, thread,
            flags, lane, layout.OPEN,
        )  # fmt: skip
        layout.RECORD_END.pack_into(self._map, layout.BEGUN_AT, index + 1)
        return index

    def end(self, index: int, end_ns: int, lane: int, flags: int = 0) -> None:
        """Close the record; -1 is ignored."""
        if index < 0:
            return
        at = layout.RECORDS_AT + index * layout.RECORD_BYTES
        layout.RECORD_END.pack_into(self._map, at + layout.END_OFFSET, end_ns)
        layout.FLAGS.pack_into(self._map, at + layout.FLAGS_OFFSET, flags, lane, layout.DONE)

    def set_times(self, index: int, start_ns: int, end_ns: int) -> None:
        """Move the record to these times."""
        if index >= 0:
            layout.RECORD_END.pack_into(self._map, layout.RECORDS_AT + index * layout.RECORD_BYTES, start_ns)
            layout.RECORD_END.pack_into(self._map, layout.RECORDS_AT + index * layout.RECORD_BYTES + 8, end_ns)

    def set_peer(self, index: int, peer: int) -> None:
        """Note a peer that became known only when the call returned."""
        if index >= 0:
            layout.PEER.pack_into(self._map, layout.RECORDS_AT + index * layout.RECORD_BYTES + layout.PEER_OFFSET, peer)

    def relink(self, index: int, link: int, peer: int) -> None:
        """Note which record, with which peer, this one turned out to belong to."""
        if index >= 0:
            at = layout.RECORDS_AT + index * layout.RECORD_BYTES
            layout.RECORD_END.pack_into(self._map, at + layout.LINK_OFFSET, link)
            layout.PEER.pack_into(self._map, at + layout.PEER_OFFSET, peer)

    def answered_by(self, index: int, answering: int) -> None:
        """Note in the record of a serving which other record its answer came from: its number, and one more."""
        if index >= 0 and answering >= 0:
            at = layout.RECORDS_AT + index * layout.RECORD_BYTES + layout.NUMBER_OFFSET
            layout.NUMBER.pack_into(self._map, at, answering + 1)

    def waiting(
        self,
        since_ns: int,
        operation: int,
        num_bytes: int,
        peer: int,
        group: int,
        source: int,
        tag: int,
        record: int,
        root: int = -1,
    ) -> int:
        """Say that this thread blocks now; return the slot for :meth:`resumed`, or -1 where none is free."""
        thread = getattr(self._thread, "slot", None)
        if thread is None:
            thread = self._thread.slot = next(self._slots)
        if thread >= layout.NUM_WAITS:
            return -1
        at = layout.WAITS_AT + thread * layout.WAIT_BYTES
        layout.WAIT.pack_into(self._map, at, 0, num_bytes, peer, operation, group, source, thread, tag, record, root)
        layout.RECORD_END.pack_into(self._map, at, since_ns)
        return at

    def resumed(self, slot: int) -> None:
        """Say that the thread of this slot goes on."""
        if slot >= 0:
            layout.RECORD_END.pack_into(self._map, slot, 0)

    def set_device_error(self, error_ns: int) -> None:
        """Note by how much times of the device may be off those of the host."""
        layout.DEVICE_ERROR.pack_into(self._map, layout.DEVICE_ERROR_AT, error_ns)

    def close(self) -> None:
        """Note the time of the orderly end. The map stays, because other threads may still write."""
        layout.RECORD_END.pack_into(self._map, layout.CLOSED_AT, time.monotonic_ns())

    def _drop(self) -> None:
        with self._lock:
            self._dropped += 1
            layout.RECORD_END.pack_into(self._map, layout.DROPPED_AT, self._dropped)

    def _claim_for(self, at: int) -> bool:
        with self._lock:
            try:
                while at + layout.RECORD_BYTES > self._claimed:
                    self._claim(layout.CHUNK)
            except OSError:
                self.capacity = 0
                return False
            return True

    def _claim(self, num_bytes: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file, self._claimed, num_bytes)
        self._claimed += num_bytes
