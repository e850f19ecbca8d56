"""A sandbox for each rank, made by the template that forks it: own process, network, IPC, mount and user namespaces.

The template itself runs in bubblewrap, sees only what a rank may see, and holds capabilities in its own user namespace
alone. Each rank gets a process 1 of its own, which makes the file system's writable places anew and reaps; when the
rank ends, process 1 ends, and with it everything the rank has started. Linux only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import traceback
from pathlib import Path
from typing import NoReturn

from labkit.grading.sandbox.keyring import forget_keys
from labkit.grading.sandbox.view import SCRATCH, shown_in_scratch

NOT_MADE = -1000
"""Exit status where a rank's sandbox could not be made."""
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPSET = 126 if os.uname().machine == "x86_64" else 91
_CAPABILITY_VERSION_3 = 0x20080522
_SIOCSIFFLAGS, _IFF_UP_AND_RUNNING = 0x8914, 0x41
_NUM_FILES = 10_000

_libc = ctypes.CDLL(None, use_errno=True)


class RankNamespaces:
    """Forks ranks into namespaces of their own; for a process with one thread, and in bubblewrap.

    Args:
        scratch_bytes: Size of a rank's /tmp, and of its /dev/shm.
    """

    def __init__(self, scratch_bytes: int) -> None:
        self._scratch_bytes = scratch_bytes
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._statuses: dict[int, int] = {}
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)

    def fork(self) -> int:
        """Return the id of a new rank's process 1, as the template sees it; in the rank itself return 0."""
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        _call("unshare", _NEWPID)
        try:
            first = os.fork()
        except OSError:
            _call("setns", self._own_pids, _NEWPID)
            raise
        if first == 0:
            os.close(status_read)
            _be_process_1(status_write, self._scratch_bytes)
            return 0
        _call("setns", self._own_pids, _NEWPID)
        os.close(status_write)
        self._statuses[first] = status_read
        return first

    def status(self, first: int) -> int:
        """Return how the rank of a process 1 that has ended has ended itself: an exit status, or minus a signal."""
        with open(self._statuses.pop(first), "rb") as pipe:
            told = pipe.read(20)
        return int(told) if told else -int(signal.SIGKILL)


def _be_process_1(status: int, scratch_bytes: int) -> None:
    """Make the namespaces, fork the rank, and return in the rank only."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        _call("unshare", _NEWNS | _NEWIPC | _NEWNET | _NEWUTS)
        _make_file_system(scratch_bytes)
        _raise_loopback()
        rank = os.fork()
        if rank == 0:
            _become_nobody_to_the_others()
            os.close(status)
            return
    except BaseException:
        traceback.print_exc()
        _tell(status, NOT_MADE)
        os._exit(1)
    _reap_until(rank, status)


def _reap_until(rank: int, status: int) -> NoReturn:
    drop_capabilities()
    os.dup2(status, 3)
    os.closerange(4, 4096)
    while True:
        try:
            pid, ended = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        if pid == rank:
            _tell(3, os.waitstatus_to_exitcode(ended))
            os._exit(0)


def _tell(status: int, code: int) -> None:
    os.write(status, str(code).encode())


def _make_file_system(scratch_bytes: int) -> None:
    """Give this mount namespace its own /proc, and its own empty folder wherever something can be written."""
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    covered = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in shown_in_scratch()]
    for folder, size in ((SCRATCH, scratch_bytes), ("/dev/shm", scratch_bytes), ("/run", 4096)):
        options = f"size={size},nr_inodes={_NUM_FILES},mode=1777"
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    for path, opened in covered:  # still read-only, and with all that is hidden in them
        path.mkdir(parents=True)
        _mount(f"/proc/self/fd/{opened}", str(path), None, _MS_BIND | _MS_REC)
        os.close(opened)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP_AND_RUNNING))


def _become_nobody_to_the_others() -> None:
    """Leave for a user namespace of one's own, the last there can be, with no capability even there."""
    uid, gid = os.getuid(), os.getgid()
    forget_keys()
    _call("unshare", _NEWUSER)
    _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own files in /proc are not its own
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    drop_capabilities()


def drop_capabilities() -> None:
    """Give up every capability of this process for good."""
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _call("syscall", _CAPSET, header, (ctypes.c_uint32 * 6)())


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind, options)]
    _call("mount", *words[:3], ctypes.c_ulong(flags), words[3])


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
