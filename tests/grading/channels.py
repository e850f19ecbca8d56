"""What one process tries to tell another through the kernel they share, as a program: ``telling(rank, meet)``.

Rank 0 tells a bit and rank 1 looks, for each means that goes without CPU load: locks of three kinds, watches, futexes,
pages in memory, an abstract socket. It runs in the ranks of a hidden case, and in two plain processes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

MEANS = (
    "flock", "posix lock", "open file lock", "inotify", "futex", "pages", "abstract socket", "threads of the machine",
    "sysinfo", "open files of the machine", "memory of the machine",
)  # fmt: skip


def telling(rank: int, meet: Callable[[], None]) -> dict[str, list[str]]:
    """Return what rank 1 saw of each means, where rank 0 told 0 and where it told 1.

    Args:
        rank: 0 or 1.
        meet: Waits for the other.
    """
    import ctypes
    import fcntl
    import mmap
    import os
    import socket
    import struct
    import threading
    import time

    libc = ctypes.CDLL(None, use_errno=True)
    path = "/usr/bin/env"
    file = open(path, "rb")  # noqa: SIM115 - it is held for as long as its locks
    lock = "hhlliI"
    kept: dict[str, Any] = {}

    def asked(number: int, *arguments: Any) -> int:
        found = int(libc.syscall(number, *arguments))
        if found < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return found

    def flock_told(bit: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX if bit else fcntl.LOCK_UN)

    def flock_seen() -> str:
        with open(path, "rb") as mine:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "free"

    def range_told(command: int, bit: int) -> None:
        kind = fcntl.F_RDLCK if bit else fcntl.F_UNLCK
        fcntl.fcntl(file, command, struct.pack(lock, kind, 0, command, 1, 0, 0))

    def range_seen(command: int) -> str:
        place = command + 1  # F_GETLK asks for what F_SETLK sets, and stands before it
        kind, *_ = struct.unpack(lock, fcntl.fcntl(file, command, struct.pack(lock, fcntl.F_WRLCK, 0, place, 1, 0, 0)))
        return "free" if kind == fcntl.F_UNLCK else "held"

    def watch() -> None:
        kept["watch"] = asked(294, os.O_NONBLOCK)
        asked(254, kept["watch"], path.encode(), 0x20 | 0x1)

    def watch_told(bit: int) -> None:
        if bit:
            with open(path, "rb") as opened:
                opened.read(1)

    def watch_seen() -> str:
        try:
            return "opened" if os.read(kept["watch"], 4096) else "nothing"
        except BlockingIOError:
            return "nothing"

    mapped = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
    word = libc.mmap
    word.restype, word.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 4, ctypes.c_long]
    address = word(None, 4096, 1, 1, file.fileno(), 0)
    value = int.from_bytes(mapped[:4], "little")

    def futex_wait() -> None:
        kept["woken"] = "asleep"

        def wait() -> None:
            until = struct.pack("ll", 0, 400_000_000)
            found = libc.syscall(202, ctypes.c_void_p(address), 0, ctypes.c_uint32(value), until, None, 0)
            kept["woken"] = "woken" if found == 0 else "asleep"

        kept["thread"] = threading.Thread(target=wait)
        kept["thread"].start()
        time.sleep(0.1)

    def futex_told(bit: int) -> None:
        if bit:
            asked(202, ctypes.c_void_p(address), 1, 1, None, None, 0)

    def futex_seen() -> str:
        kept["thread"].join()
        return str(kept["woken"])

    def pages_told(bit: int) -> None:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED if bit else os.POSIX_FADV_DONTNEED)

    def pages_seen() -> str:
        asked(27, ctypes.c_void_p(address), 4096, ctypes.create_string_buffer(1))
        return "told"

    def listen() -> None:
        kept["socket"] = socket.socket(socket.AF_UNIX)
        kept["socket"].bind("\0labkit-channel")
        kept["socket"].listen()
        kept["socket"].setblocking(False)

    def socket_told(bit: int) -> None:
        if bit:
            with socket.socket(socket.AF_UNIX) as mine:
                mine.connect("\0labkit-channel")

    def socket_seen() -> str:
        try:
            kept["socket"].accept()[0].close()
        except BlockingIOError:
            return "nobody"
        finally:
            kept.pop("socket").close()
        return "called"

    def nothing() -> None:
        pass

    def many_threads(bit: int) -> None:
        done = threading.Event()
        threads = [threading.Thread(target=done.wait, args=(2.0,)) for _ in range(30 if bit else 0)]
        for each in threads:
            each.start()
        kept["threads"] = (done, threads)

    def no_threads() -> None:
        done, threads = kept.pop("threads")
        done.set()
        for each in threads:
            each.join()

    def many_files(bit: int) -> None:
        kept["files"] = [open(path, "rb") for _ in range(200 if bit else 0)]  # noqa: SIM115 - held for the bit

    def much_memory(bit: int) -> None:
        kept["block"] = bytes(bytearray(b"x") * (300 << 20)) if bit else b""

    def more_than(name: str, least: float, now: Callable[[], float]) -> str:
        """Return whether a number has risen since rank 1 began to watch."""
        return "more" if now() > kept[name] + least else "as before"

    def threads_now() -> float:
        with open("/proc/loadavg") as told:
            return int(told.read().split()[3].partition("/")[2])

    def threads_by_sysinfo() -> float:
        about = ctypes.create_string_buffer(128)
        asked(99, about)
        return int.from_bytes(about.raw[80:82], "little")

    def files_now() -> float:
        with open("/proc/sys/fs/file-nr") as told:
            return int(told.read().split()[0])

    def memory_now() -> float:
        with open("/proc/meminfo") as told:
            return -next(int(line.split()[1]) for line in told if line.startswith("MemAvailable"))

    def watched(name: str, now: Callable[[], float]) -> Callable[[], None]:
        return lambda: kept.__setitem__(name, now())

    means: dict[str, tuple[Callable[[], None], Callable[[int], None], Callable[[], str]]] = {
        "flock": (nothing, flock_told, flock_seen),
        "posix lock": (nothing, lambda bit: range_told(fcntl.F_SETLK, bit), lambda: range_seen(fcntl.F_GETLK)),
        "open file lock": (nothing, lambda bit: range_told(37, bit), lambda: range_seen(36)),
        "inotify": (watch, watch_told, watch_seen),
        "futex": (futex_wait, futex_told, futex_seen),
        "pages": (nothing, pages_told, pages_seen),
        "abstract socket": (listen, socket_told, socket_seen),
        "threads of the machine": (
            watched("t", threads_now),
            many_threads,
            lambda: more_than("t", 15, threads_now),
        ),
        "sysinfo": (
            watched("s", threads_by_sysinfo),
            many_threads,
            lambda: more_than("s", 15, threads_by_sysinfo),
        ),
        "open files of the machine": (watched("f", files_now), many_files, lambda: more_than("f", 100, files_now)),
        "memory of the machine": (
            watched("m", memory_now),
            much_memory,
            lambda: more_than("m", 150 << 10, memory_now),
        ),
    }

    def tried(what: Callable[..., Any], *arguments: Any) -> str:
        try:
            return str(what(*arguments))
        except (OSError, KeyError) as error:
            return type(error).__name__

    seen: dict[str, list[str]] = {name: [] for name in means}
    for name, (arm, tell, look) in means.items():
        for bit in (0, 1):
            if rank == 1:
                tried(arm)
            meet()
            if rank == 0:
                tried(tell, bit)
            meet()
            if rank == 1:
                seen[name].append(tried(look))
            meet()
            if "threads" in kept:
                no_threads()
            kept.pop("files", None)
            kept.pop("block", None)
    return seen


SOURCE = "from __future__ import annotations\n" + inspect.getsource(telling)
