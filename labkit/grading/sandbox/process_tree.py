"""Nothing a submission started outlives it: orphans come back to us, and everything below a process can be ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper(wanted: bool = True) -> bool:
    """Make orphans among our descendants our own children (Linux), so that none escapes by a double fork.

    Args:
        wanted: False to be an ordinary process again.

    Returns:
        Whether the system can do it.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0)


def end_descendants(of: int | None = None, keep: Collection[int] = (), seconds: float = 60.0) -> list[str]:
    """End every process below `of` by SIGKILL and return the names of those that ran, sorted.

    They are stopped first, then killed, until none is found: a process that forks as fast as it can is outrun.

    Args:
        of: A process id, else this process.
        keep: Process ids that stay, and so does everything below them.
        seconds: After this long it gives up; hundreds of processes on a busy machine took more than 10.
    Raises:
        TimeoutError: If some could not be ended.
    """
    names: set[str] = set()
    deadline = time.monotonic() + seconds
    seen_none = False
    while True:
        if of is not None and not keep and _has_no_children(of):
            return sorted(names)
        found = descendants(of, keep)
        if of is None:
            _reap_orphans(keep)  # a sandbox cannot end before all that entered it from outside was collected
        if not found:
            if seen_none:  # the system may leave one out of a list that changes while it is read, so look twice
                return sorted(names)
            seen_none = True
            continue
        seen_none = False
        for process in found:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGSTOP)
        for process in found:
            with suppress(psutil.Error):
                names.add(process.name())
                process.kill()
        _reap(found)
        if time.monotonic() > deadline:
            left = ", ".join(str(process.pid) for process in descendants(of, keep))
            raise TimeoutError(f"these processes of a submission could not be ended in {seconds:g} s: {left}")
        time.sleep(0.005)


def descendants(of: int | None = None, keep: Collection[int] = ()) -> list[psutil.Process]:
    """Return the living processes below `of`, without zombies, without `keep` and what is below them."""
    found = []
    for pid in below([os.getpid() if of is None else of], keep):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if not _is_zombie(process):
                found.append(process)
    return found


def below(roots: Iterable[int], keep: Collection[int] = ()) -> list[int]:
    """Return the ids of everything below `roots`, without `keep` and what is below them."""
    found: list[int] = []
    level = list(roots)
    while level:
        level = [child for pid in level for child in child_pids(pid) if child not in keep]
        found += level
    return found


def any_runs_below(pid: int) -> bool:
    """Return whether a thread of a process below `pid` runs, would run on a free processor, or reads from a disk.

    Such a thread goes on by itself, however long a loaded machine lets it wait. Where the system does not tell the
    states of threads, none is said to run.
    """
    for each in below([pid]):
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                state = (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if state in (b"R", b"D"):
                    return True
    return False


def child_pids(pid: int) -> list[int]:
    """Return the process ids of the children of `pid`; empty where it is gone."""
    try:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except FileNotFoundError:
        try:
            return [child.pid for child in psutil.Process(pid).children()]
        except (psutil.NoSuchProcess, ValueError):
            return []
    except (OSError, ValueError):
        return []


def _has_no_children(pid: int) -> bool:
    """Whether the system knows of no child of `pid`, zombies included; False where it cannot say so quickly."""
    try:
        return all(not (task / "children").read_bytes() for task in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


def _reap_orphans(keep: Collection[int]) -> None:
    """Collect what has ended among our children, those included that came to us when their own parent ended."""
    for pid in child_pids(os.getpid()):
        if pid not in keep:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _reap(processes: list[psutil.Process]) -> None:
    """Collect those that are our own children; the others' parents do."""
    for process in processes:
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
