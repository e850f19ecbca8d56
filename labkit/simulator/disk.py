"""A disk with a memory: what is in its files now, and what of that a power cut would leave.

The files really lie in a folder. Beside them it keeps what was synced: contents by ``fsync`` of a file, entries by
``fsync`` of a folder. What nobody has changed counts as synced, so only what a run touches is kept.
"""

# Paths are text here: each is compared with a folder's, and handed on as it came.
# ruff: noqa: PTH102, PTH108, PTH112, PTH114, PTH115, PTH118, PTH120, PTH208, PTH211

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(eq=False)
class _File:
    """A file: what is synced of it, None while that is what is in it; the node that wrote to it last."""

    synced: bytes | None = None
    writer: int = -1


@dataclass(eq=False)
class _Folder:
    """A folder: its entries that are synced, None while those are what is in it."""

    synced: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Symlink:
    """A symbolic link, which has no contents but its target."""

    target: str


_KEPT = object()
"""Stands for a file that nobody touched, where it lies."""


class VirtualDisk:
    """The files below a folder.

    Attributes:
        root: The folder, an absolute path without links.
        is_full: Whether nothing more can be written.
    """

    def __init__(self, root: str | Path) -> None:
        """Take what is there as synced."""
        self.root = os.path.realpath(root)
        self.is_full = False
        self._nodes: dict[int, Any] = {}

    def holds(self, path: str) -> bool:
        """Return whether an absolute path lies on it."""
        return path == self.root or path.startswith(self.root + os.sep)

    def will_change(self, path: str, writer: int) -> None:
        """Keep what is synced of a file before it is written to."""
        node = self._at(path)
        if isinstance(node, _File):
            if node.synced is None:
                node.synced = Path(path).read_bytes()
            node.writer = writer

    def will_name(self, path: str) -> None:
        """Keep the entries of the folder of a path, and what the path names, before the name changes its meaning."""
        folder = self._at(os.path.dirname(path))
        if isinstance(folder, _Folder) and folder.synced is None:
            folder.synced = self._entries(os.path.dirname(path))
        node = self._at(path)
        if isinstance(node, _File) and node.synced is None:
            node.synced = Path(path).read_bytes()
        elif isinstance(node, _Folder) and node.synced is None:
            node.synced = self._entries(path)
            for name in node.synced:
                self.will_name(os.path.join(path, name))

    def was_made(self, path: str, writer: int) -> None:
        """Note a new file or folder: nothing of it is synced."""
        made = os.lstat(path)
        self._nodes[made.st_ino] = _Folder({}) if os.path.isdir(path) else _File(b"", writer)

    def sync(self, path: str) -> None:
        """Note that a file's contents, or a folder's entries, are on the disk."""
        node = self._at(path)
        if isinstance(node, _File):
            node.synced = Path(path).read_bytes()
        elif isinstance(node, _Folder):
            node.synced = self._entries(path)

    def lose_power(self, writer: int | None, keeps: str) -> None:
        """Leave what a power cut leaves.

        Args:
            writer: The node that lost its power where others share the disk: what it wrote and did not sync is gone,
                and names are what they are. None for the disk of the node itself.
            keeps: "nothing" of what was not synced, "names", or "torn": names, and files with a hole.
        """
        _put(self.root, self._left(self.root, self._at(self.root), writer, keeps))
        self._nodes.clear()

    def would_leave(self, keeps: str) -> dict[str, bytes | None]:
        """Return what a power cut would leave: path below the root -> contents, None for a folder."""
        found: dict[str, bytes | None] = {}

        def add(path: str, left: Any) -> None:
            if isinstance(left, dict):
                found[path] = None
                for name, child in left.items():
                    add(os.path.join(path, name), child)
            elif not isinstance(left, _Symlink):
                found[path] = Path(self.root, path).read_bytes() if left is _KEPT else left

        add("", self._left(self.root, self._at(self.root), None, keeps))
        return found

    def _left(self, path: str, node: Any, writer: int | None, keeps: str) -> Any:
        if isinstance(node, _Symlink):
            return node
        if isinstance(node, _File):
            if node.synced is None:
                return _KEPT
            if writer is not None and node.writer != writer:
                return Path(path).read_bytes()
            return _torn(Path(path).read_bytes(), node.synced) if keeps == "torn" else node.synced
        entries = (
            self._entries(path) if keeps != "nothing" or writer is not None or node.synced is None else node.synced
        )
        return {name: self._left(os.path.join(path, name), child, writer, keeps) for name, child in entries.items()}

    def _entries(self, folder: str) -> dict[str, Any]:
        return {name: self._at(os.path.join(folder, name)) for name in os.listdir(folder)}

    def _at(self, path: str) -> Any:
        """Return what is at a path, None for nothing."""
        try:
            found = os.lstat(path)
        except OSError:
            return None
        node = self._nodes.get(found.st_ino)
        if node is None:
            if os.path.islink(path):
                return _Symlink(os.readlink(path))
            node = self._nodes[found.st_ino] = _Folder() if os.path.isdir(path) else _File()
        return node


def _torn(now: bytes, synced: bytes) -> bytes:
    """Return a file of which the middle third did not reach the disk: what was synced is there, or zeros."""
    begin, end = len(now) // 3, 2 * len(now) // 3
    return now[:begin] + synced[begin:end].ljust(end - begin, b"\0") + now[end:]


def _put(path: str, wanted: Any) -> None:
    """Make what is at a path what is wanted there."""
    if wanted is _KEPT:
        return
    if not isinstance(wanted, dict):
        if os.path.lexists(path):
            _remove(path)
        if isinstance(wanted, _Symlink):
            os.symlink(wanted.target, path)
        else:
            Path(path).write_bytes(wanted)
        return
    if os.path.islink(path) or not os.path.isdir(path):
        if os.path.lexists(path):
            _remove(path)
        os.mkdir(path)
    for name in os.listdir(path):
        if name not in wanted:
            _remove(os.path.join(path, name))
    for name, child in wanted.items():
        _put(os.path.join(path, name), child)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
