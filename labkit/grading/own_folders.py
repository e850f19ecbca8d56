"""Temporary folders that bear their owner's name, so that what a killed run left behind can be told and removed.

A folder's name holds the owner's process namespace, its process id and when it started: ids are used again, and another
container that shares the folder has other processes with the same ids.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

import psutil

_NAME = re.compile(r"lk-[a-z]+-(?P<namespace>\d+)_(?P<pid>\d+)_(?P<started>\d+)_")
_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat, counted from behind the command's name."""


def own_prefix(kind: str) -> str:
    """Return how the names of this process's temporary folders of this kind begin, for the functions of tempfile."""
    pid = os.getpid()
    return f"lk-{kind}-{_namespace()}_{pid}_{_started(pid)}_"


def remove_left_behind() -> list[Path]:
    """Return the folders that were removed from where temporary files go: ours, of processes that are no more.

    Folders of other users, of other process namespaces and of processes that live are left alone.
    """
    removed = []
    for path in Path(tempfile.gettempdir()).glob("lk-*"):
        name = _NAME.match(path.name)
        if name is None or int(name["namespace"]) != _namespace() or not _is_ours(path):
            continue
        if _started(int(name["pid"])) != int(name["started"]):
            shutil.rmtree(path, ignore_errors=True)  # another run may be removing it too
            removed.append(path)
    return removed


def _is_ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _namespace() -> int:
    """Return the number of this process's namespace of process ids, 0 where the system has none."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except FileNotFoundError:
        return 0


def _started(pid: int) -> int | None:
    """Return when a process started (clock ticks since boot; seconds where there is no /proc), None if it has ended."""
    if not Path("/proc/self/stat").exists():
        try:
            return int(psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[_STARTED]) if fields[_STATE] not in "ZX" else None
