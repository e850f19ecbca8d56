"""What a process does when its program has ended, done in a rank, whose process then goes on for the others' sake.

A rank's process ends with ``os._exit``, for it was forked from one that holds much, and others may still need its
sockets. What Python does at an orderly end is done before: threads are waited for, ``atexit`` is called, and what open
files still hold is written.
"""

from __future__ import annotations

import atexit
import gc
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_PATIENCE_SECONDS = 1.0
"""How long others may learn later of a failed rank, while its program's last words are said."""
_FILE: Any = io.IOBase.__base__
"""What every file inherits from, as C knows it: thousands of objects are asked, and io.IOBase asks in Python."""
_python: Any = threading
_exits: Any = atexit


def ended(*, failed: bool = False) -> None:
    """Do what comes after a program's last line, for one that failed without waiting for its threads."""
    if not failed:
        _python._shutdown()
    _exits._run_exitfuncs()
    write_open_files()


@contextmanager
def at_latest(tell: Callable[[], None]) -> Iterator[None]:
    """Tell something once, after the body: or during it, where that takes too long for those who wait for the word."""
    lock = threading.Lock()
    told: list[bool] = []

    def once() -> None:
        with lock:
            if not told:
                told.append(True)
                tell()

    timer = threading.Timer(_PATIENCE_SECONDS, once)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        once()


def forget(main: ModuleType) -> None:
    """Let go of what the program's globals held: files are closed as their last owner goes."""
    main.__dict__.clear()
    gc.collect()
    write_open_files()


def write_open_files() -> None:
    """Write what files that the program did not close still hold."""
    for found in gc.get_objects():
        try:
            if issubclass(type(found), _FILE) and not found.closed and found.writable():
                found.flush()
        except Exception:  # a program's own file may raise anything; at the end of a process, Python goes on, too
            continue
