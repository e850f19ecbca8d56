"""A sandbox for each rank, made by the template that forks it: own process, network, IPC, mount and user namespaces.

The template itself runs in bubblewrap, sees only what a rank may see, and holds capabilities in its own user namespace
alone. Each rank gets a process 1 of its own, which only sleeps, for a second fork of a process with torch loaded would
cost as much as starting the rank does. The rank makes its file system's writable places anew before it gives up its
rights; when it ends, process 1 is ended, and with it everything the rank has started. Linux only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
import traceback
from contextlib import suppress
from pathlib import Path

from labkit.grading.sandbox.keyring import forget_keys
from labkit.grading.sandbox.seccomp import forbid_calls, prepare
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
_TRIES = 5
_SLEEPER = ("/bin/sh", "-c", "trap '' CHLD; exec sleep infinity")
"""A rank's process 1; that it ignores the end of children has the system collect orphans."""
_SILENT = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]

_libc = ctypes.CDLL(None, use_errno=True)


class RankNamespaces:
    """Forks ranks into namespaces of their own; for a process with one thread, and in bubblewrap.

    Args:
        scratch_bytes: Size of a rank's /tmp, and of its /dev/shm.
        on_gpu: Whether CUDA runs there, which reads what its driver says in /proc.
    """

    def __init__(self, scratch_bytes: int, on_gpu: bool = False) -> None:
        self._scratch_bytes, self._on_gpu = scratch_bytes, on_gpu
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._made: dict[int, tuple[int, int]] = {}
        prepare()
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        for entry in list(Path("/proc/self/fd").iterdir()):
            with suppress(OSError):  # that of the listing itself is closed by now
                os.set_inheritable(int(entry.name), int(entry.name) < 3)

    def fork(self) -> int:
        """Return a new rank's process id, as the template sees it; in the rank itself return 0.

        No descriptor of the template but 0, 1 and 2 may be inheritable: process 1 would hold it open.
        """
        said_read, said_write = os.pipe2(os.O_CLOEXEC)
        for _ in range(_TRIES):
            first, rank = self._fork_two()
            if rank >= 0:
                break
        else:
            os.close(said_read)
            os.close(said_write)
            raise OSError(errno.ENOMEM, "a rank could not be forked")
        if rank == 0:
            os.close(said_read)
            self._become_rank(said_write)
            return 0
        _call("setns", self._own_pids, _NEWPID)
        os.close(said_write)
        self._made[rank] = (first, said_read)
        return rank

    def _fork_two(self) -> tuple[int, int]:
        """Return the ids of a new namespace's process 1 and of the rank (0 in it, -1 where process 1 was gone by then).

        Whoever ends a case ends all that is below the template, and may meet process 1 before there is a rank. The
        system forks nothing into a namespace without one and says that there is no memory.
        """
        _call("unshare", _NEWPID)
        first = 0
        try:
            first = os.posix_spawn(_SLEEPER[0], _SLEEPER, {"PATH": "/usr/bin:/bin"}, file_actions=_SILENT)
            return first, os.fork()
        except OSError as error:
            _call("setns", self._own_pids, _NEWPID)
            if first:
                with suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)
            if error.errno != errno.ENOMEM:
                raise
            return first, -1

    def ended(self, pid: int, status: int) -> int | None:
        """End all that a rank has left, and return how it ended itself: an exit status, or minus a signal.

        Args:
            pid: A child of ours that was collected.
            status: What waitpid has told of it.

        Returns:
            None where that was no rank but a process 1.
        """
        if pid not in self._made:
            return None
        first, said = self._made.pop(pid)
        with suppress(ProcessLookupError):  # it may have been ended before, and with it the rank
            os.kill(first, signal.SIGKILL)
        with open(said, "rb") as pipe:
            failed = pipe.read(1)
        return NOT_MADE if failed else os.waitstatus_to_exitcode(status)

    def _become_rank(self, said: int) -> None:
        """Make the namespaces and leave every right over them behind; say so where that fails."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            _call("unshare", _NEWNS | _NEWIPC | _NEWNET | _NEWUTS)
            settings = _make_file_system(self._scratch_bytes, self._on_gpu)
            _raise_loopback()
            _enter_own_user_namespace(settings, self._on_gpu)
        except BaseException:
            traceback.print_exc()
            os.write(said, b"!")
            os._exit(1)
        os.close(said)


def _make_file_system(scratch_bytes: int, whole_proc: bool) -> int:
    """Give this mount namespace its own /proc, and its own empty folder wherever something can be written.

    Its /proc shows processes alone: what counts for the whole machine (threads, open files, free memory) tells of other
    sandboxes.

    Returns:
        A descriptor of the settings of user namespaces, which are not seen any more.
    """
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    settings = os.open("/proc/sys/user", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not whole_proc:
            _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "subset=pid")
    except OSError as error:
        if error.errno != errno.EINVAL:  # Linux before 5.8
            raise
    covered = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in shown_in_scratch()]
    for folder, size in ((SCRATCH, scratch_bytes), ("/dev/shm", scratch_bytes), ("/run", 4096)):
        options = f"size={size},nr_inodes={_NUM_FILES},mode=1777"
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    for path, opened in covered:  # still read-only, and with all that is hidden in them
        path.mkdir(parents=True)
        _mount(f"/proc/self/fd/{opened}", str(path), None, _MS_BIND | _MS_REC)
        os.close(opened)
    return settings


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP_AND_RUNNING))


def _enter_own_user_namespace(settings: int, on_gpu: bool) -> None:
    """Leave for a user namespace of one's own, the last there can be, with no capability even there."""
    uid, gid = os.getuid(), os.getgid()
    forget_keys()
    _call("unshare", _NEWUSER)
    _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own files in /proc are not its own
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    most = os.open("max_user_namespaces", os.O_WRONLY, dir_fd=settings)
    os.write(most, b"0")
    os.close(most)
    os.close(settings)
    drop_capabilities()
    forbid_calls(of_rank=True, on_gpu=on_gpu)


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
