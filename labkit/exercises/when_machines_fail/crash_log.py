"""What a program did to its files, as data, and what follows from that: what a crash at each moment leaves.

The disk on which a learner's program saves is simulated in the learner's own process, which could have it forget
nothing. So the driver tells what was done, operation by operation, and the judge works out by the rules of
`labkit.simulator.disk` what a power cut would have left.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import torch
from torch import Tensor

from labkit.failures.records import KEEPS

Files: TypeAlias = dict[str, bytes | None]
Node: TypeAlias = tuple[int, int]
"""An inode's number, and how often that number had been given to another file before."""
LINK = -1
"""Stands for the number of a symbolic link, which a power cut takes."""
_MAKES, _WRITES, _NAMES = ("open", "mkdir"), ("open", "write", "truncate"), ("open", "replace", "unlink", "mkdir",
                                                                              "rmdir", "link")  # fmt: skip


@dataclass(frozen=True)
class Event:
    """A file operation that a rank was about to make.

    Attributes:
        rank: Which rank.
        op: "open", "write", "replace", "fsync", ... as the disk calls it.
        path: On what, below the program's folder.
        files: What was there: path -> contents, None for a folder.
        numbers: Path -> number of its inode.
    """

    rank: int
    op: str
    path: str
    files: Mapping[str, bytes | None]
    numbers: Mapping[str, int]


def packed(logs: Sequence[Sequence[Event]]) -> Tensor:
    """Return logs of events as bytes, shape (N,), uint8."""
    kept: dict[bytes, int] = {}
    told = []
    for log in logs:
        rows = []
        for each in log:
            there = [
                [path, each.numbers[path], -1 if data is None else kept.setdefault(data, len(kept))]
                for path, data in each.files.items()
            ]
            rows.append([each.rank, each.op, each.path, there])
        told.append(rows)
    text = json.dumps([told, [base64.b64encode(each).decode() for each in kept]])
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def unpacked(data: Any) -> list[list[Event]] | None:
    """Return the logs of events; None where these bytes are none."""
    if not isinstance(data, Tensor) or data.dtype != torch.uint8 or data.dim() != 1:
        return None
    try:
        told, texts = json.loads(bytes(data.tolist()))
        kept = [base64.b64decode(each) for each in texts]
        return [[_event(row, kept) for row in log] for log in told]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, binascii.Error):
        return None


def _event(row: Any, kept: list[bytes]) -> Event:
    rank, op, path, there = row
    if type(rank) is not int or not all(isinstance(each, str) for each in (op, path, *(p for p, _, _ in there))):
        raise TypeError("no event")
    files = {each: None if at == -1 else kept[at] for each, _, at in there}
    return Event(rank, op, path, files, {each: int(number) for each, number, _ in there})


@dataclass
class _Disk:
    """What is synced of each node; None while that is what is in it (see `labkit.simulator.disk`)."""

    synced: dict[Node, Any] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)

    def nodes(self, event: Event) -> dict[str, Node]:
        return {path: (number, self.given.get(number, 0)) for path, number in event.numbers.items()}

    def keep(self, event: Event, path: str, *, deep: bool = False) -> None:
        """Keep what is synced of what is at a path, before it changes."""
        node = self.nodes(event).get(path)
        if node is None or event.numbers[path] == LINK:
            return
        data = event.files[path]
        if self.synced.get(node) is None and (data is not None or deep):
            self.synced[node] = self.entries(event, path) if data is None else data
            if data is None:
                for name in self.synced[node]:
                    self.keep_name(event, _joined(path, name))

    def keep_name(self, event: Event, path: str) -> None:
        """Keep the entries of a path's folder, and what is at the path, before the name changes its meaning."""
        folder = _folder(path)
        node = self.nodes(event).get(folder)
        if node is not None and self.synced.get(node) is None:
            self.synced[node] = self.entries(event, folder)
        self.keep(event, path, deep=True)

    def entries(self, event: Event, folder: str) -> dict[str, Node]:
        """Return the nodes in a folder by their names; links, too."""
        nodes = self.nodes(event)
        return {PurePosixPath(path).name: node for path, node in nodes.items() if path and _folder(path) == folder}

    def happens(self, event: Event, after: Event) -> None:
        """Let an operation come."""
        before, path = set(event.numbers.values()), event.path
        if event.op == "fsync":
            node = self.nodes(event).get(path)
            if node is not None:
                data = event.files[path]
                self.synced[node] = self.entries(event, path) if data is None else data
        elif event.op in _NAMES:
            moved = [each for each, number in event.numbers.items() if number == after.numbers.get(path, LINK) != LINK]
            for each in {path, *(moved if event.op in ("replace", "link") else ())}:
                self.keep_name(event, each)
        if event.op in _WRITES:
            self.keep(event, path)
        for place, number in after.numbers.items():
            if number not in before and number != LINK:
                self.given[number] = self.given.get(number, -1) + 1
                if place == path and event.op in _MAKES:
                    self.synced[number, self.given[number]] = {} if after.files[place] is None else b""

    def would_leave(self, event: Event, keeps: str) -> Files:
        """Return what a power cut before the event leaves; keeps is "nothing", "names" or "torn"."""
        found: Files = {}
        there = {node: path for path, node in self.nodes(event).items()}

        def add(path: str, node: Node) -> None:
            if node[0] == LINK:
                return
            now = there.get(node)
            synced = self.synced.get(node)
            if isinstance(synced, dict) or (now is not None and event.files[now] is None):
                found[path] = None
                live = keeps != "nothing" or synced is None
                rows = self.entries(event, now) if live and now is not None else synced or {}
                for name, child in rows.items():
                    add(_joined(path, name), child)
            else:
                data = (event.files[now] if now is not None else synced) or b""
                found[path] = data if synced is None else _torn(data, synced) if keeps == "torn" else synced

        add("", self.nodes(event)[""])
        return found


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _torn(now: bytes, synced: bytes) -> bytes:
    begin, end = len(now) // 3, 2 * len(now) // 3
    return now[:begin] + synced[begin:end].ljust(end - begin, b"\0") + now[end:]


def would_leave(log: Sequence[Event], killed: int = -1) -> list[dict[str, Files]]:
    """Return, for each event of a log, what is left by a crash before it, by how it crashes.

    Args:
        log: Of a run from its beginning.
        killed: Place of the event that did not happen, because its rank was killed; -1 for none.
    """
    disk, found = _Disk(), list[dict[str, Files]]()
    disk.given = dict.fromkeys(log[0].numbers.values(), 0) if log else {}
    for place, each in enumerate(log):
        found.append({"kill": dict(each.files), **{keeps: disk.would_leave(each, keeps) for keeps in KEEPS}})
        if place + 1 < len(log) and place != killed:
            disk.happens(each, log[place + 1])
    return found
