"""Runs of many people on one host take turns for its GPUs, instead of running out of memory together.

A GPU is taken by binding an abstract Unix socket of its name, and so is a place in the line: the kernel lets go of both
when the process ends, however it ends, and no file is left that another user could not remove. Only the first in line
takes GPUs, so a run that wants four is not overtaken for ever by runs that want one. Names are those of one network
namespace: containers with networks of their own do not see each other's turns.
"""

from __future__ import annotations

import errno
import getpass
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

_PREFIX = "labkit-gpu"
_LOOK_SECONDS = 0.1


@contextmanager
def gpu_turn(gpus: Sequence[str], wanted: int, say: Callable[[str], None] | None) -> Iterator[tuple[str, ...]]:
    """Hold some GPUs of this host while the block runs; wait in line for them first.

    Args:
        gpus: UUIDs of the GPUs this process may use: schedulers number them anew for each job, and "0" is many GPUs.
        wanted: How many of them, at most all.
        say: Told the place in the line whenever it changes; None for silence.

    Yields:
        The names of those held, in the order of gpus. Where turns cannot be taken (not on Linux), the first ones.
    """
    if sys.platform != "linux":
        yield tuple(gpus[:wanted])
        return
    with ExitStack() as held:
        with ExitStack() as line:
            ticket = f"{_PREFIX}/line/{time.time_ns():020}/{os.getpid()}/{_user()}/{wanted}"
            line.enter_context(_bound(ticket))
            said = ""
            taken: dict[str, socket.socket] = {}
            while True:
                names = _names()
                place = sum(name < ticket for name in names if name.startswith(f"{_PREFIX}/line/"))
                if place == 0:
                    for gpu in gpus:
                        lock = _try(f"{_PREFIX}/taken/{gpu}") if gpu not in taken and len(taken) < wanted else None
                        if lock is not None:
                            taken[gpu] = held.enter_context(lock)
                    if len(taken) == wanted:
                        break
                else:  # somebody asked earlier and came into the line later: each would wait for what the other has
                    for lock in taken.values():
                        lock.close()
                    taken.clear()
                now = _words(names, place, wanted, len(gpus))
                if say is not None and now != said:
                    say(now)
                    said = now
                time.sleep(_LOOK_SECONDS)
            # Who runs, for those who wait.
            held.enter_context(_bound(f"{_PREFIX}/run/{os.getpid()}-{time.time_ns()}/{_user()}/{wanted}"))
        if said and say is not None:
            say(f"[labkit] Your turn: GPU {', '.join(sorted(taken))}.")
        yield tuple(gpu for gpu in gpus if gpu in taken)


def _words(names: Sequence[str], place: int, wanted: int, count: int) -> str:
    """Return what somebody in line should know."""
    runs = [name.split("/")[3:5] for name in names if name.startswith(f"{_PREFIX}/run/")]
    running = ", ".join(f"{user} ({_gpus(number)})" for user, number in sorted(runs)) or "somebody"
    before = f"{place} {'run is' if place == 1 else 'runs are'} before you in line" if place else "you are next"
    return f"[labkit] Waiting for {_gpus(wanted)} of {count}: {before}; {running} running."


def _gpus(number: int | str) -> str:
    return f"{number} GPU" if int(number) == 1 else f"{number} GPUs"


def _user() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = f"user {os.getuid()}"
    return re.sub(r"[^\w.-]", "_", name)[:32]


@contextmanager
def _bound(name: str) -> Iterator[socket.socket]:
    lock = _try(name)
    assert lock is not None, name
    with lock:
        yield lock


def _try(name: str) -> socket.socket | None:
    """Return a socket that holds the name, None if somebody else's does."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0{name}")
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return lock


def _names() -> list[str]:
    """Return our names among all abstract sockets of this network namespace."""
    lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    return [name for line in lines if (name := line.rpartition("@")[2]).startswith(f"{_PREFIX}/")]
