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
import select
import signal
import socket
import struct
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labkit.grading.sandbox.counted_calls import CountedCalls
from labkit.grading.sandbox.keyring import forget_keys
from labkit.grading.sandbox.seccomp import forbid_calls, forbid_sending, prepare
from labkit.grading.sandbox.view import SCRATCH, shown_in_scratch

NOT_MADE = -1000
"""Exit status where a rank's sandbox could not be made."""
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 13, 1 << 14, 1 << 18
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPSET = 126 if os.uname().machine == "x86_64" else 91
_CAPABILITY_VERSION_3 = 0x20080522
_SIOCSIFFLAGS, _IFF_UP_AND_RUNNING = 0x8914, 0x41
_NUM_FILES = 10_000
_TRIES = 5
_SLEEPER = ("/bin/sh", "-c", "trap '' CHLD; exec sleep infinity")
"""A rank's process 1; that it ignores the end of children has the system collect orphans."""
_SILENT = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]

_OF_ITSELF = ("cmdline", "comm", "stat", "statm", "status")
"""What a rank sees in /proc: of itself, what tells how much memory and time it has used."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class _Rank:
    first: int
    said: socket.socket
    failed: bool = False
    calls: CountedCalls | None = None


class RankNamespaces:
    """Forks ranks into namespaces of their own; for a process with one thread, and in bubblewrap.

    Args:
        scratch_bytes: Size of a rank's /tmp, and of its /dev/shm.
        on_gpu: Whether CUDA runs there, which reads what its driver says in /proc.
        poller: What the process waits on; a descriptor of a rank's that comes of it is for `heard`.
    """

    def __init__(self, scratch_bytes: int, on_gpu: bool = False, poller: select.poll | None = None) -> None:
        self._scratch_bytes, self._on_gpu = scratch_bytes, on_gpu
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._made: dict[int, _Rank] = {}
        self._poller, self._waits = poller or select.poll(), dict[int, _Rank]()
        prepare()
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        for entry in list(Path("/proc/self/fd").iterdir()):
            with suppress(OSError):  # that of the listing itself is closed by now
                os.set_inheritable(int(entry.name), int(entry.name) < 3)

    def fork(self) -> int:
        """Return a new rank's process id, as the template sees it; in the rank itself return 0.

        No descriptor of the template but 0, 1 and 2 may be inheritable: process 1 would hold it open.
        """
        ours, theirs = socket.socketpair()
        for _ in range(_TRIES):
            first, rank = self._fork_two()
            if rank >= 0:
                break
        else:
            ours.close()
            theirs.close()
            raise OSError(errno.ENOMEM, "a rank could not be forked")
        if rank == 0:
            ours.close()
            self._become_rank(theirs)
            return 0
        _call("setns", self._own_pids, _NEWPID)
        theirs.close()
        self._made[rank] = self._waits[ours.fileno()] = _Rank(first, ours)
        self._poller.register(ours, select.POLLIN)
        return rank

    def heard(self, fd: int) -> None:
        """Take what a rank has said of its sandbox, or let a counted call of it go on."""
        rank = self._waits[fd]
        if rank.calls is None or fd != rank.calls.fileno():
            self._take(rank)
        elif not rank.calls.answer():
            self._forget(fd)
            rank.calls.close()
            rank.calls = None

    def _take(self, rank: _Rank) -> None:
        said, fds, _, _ = socket.recv_fds(rank.said, 1, 1)
        rank.failed = said == b"!"
        self._forget(rank.said.fileno())
        for fd in fds:  # those that come over a socket are inheritable
            os.set_inheritable(fd, False)
            rank.calls, self._waits[fd] = CountedCalls(fd), rank
            self._poller.register(fd, select.POLLIN)

    def _forget(self, fd: int) -> None:
        self._poller.unregister(fd)
        del self._waits[fd]

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
        rank = self._made.pop(pid)
        with suppress(ProcessLookupError):  # it may have been ended before, and with it the rank
            os.kill(rank.first, signal.SIGKILL)
        if rank.said.fileno() in self._waits:
            self._take(rank)
        rank.said.close()
        if rank.calls is not None:
            self._forget(rank.calls.fileno())
            rank.calls.close()
        return NOT_MADE if rank.failed else os.waitstatus_to_exitcode(status)

    def _become_rank(self, said: socket.socket) -> None:
        """Make the namespaces and leave every right over them behind; say so where that fails."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            _call("unshare", _NEWNS | _NEWIPC | _NEWNET | _NEWUTS)
            process, settings = _make_file_system(self._scratch_bytes, self._on_gpu)
            _raise_loopback()
            asks = _enter_own_user_namespace(process, settings, self._on_gpu)
            if asks >= 0:
                socket.send_fds(said, [b"n"], [asks])
                os.close(asks)
            forbid_sending()
        except BaseException:
            traceback.print_exc()
            said.send(b"!")
            os._exit(1)
        said.close()


def _make_file_system(scratch_bytes: int, whole_proc: bool) -> tuple[int, int]:
    """Give this mount namespace its own /proc, and its own empty folder wherever something can be written.

    Its /proc holds a few files of the rank itself: what counts for the whole machine (threads, open files, free memory,
    sockets, inodes) tells of other sandboxes.

    Returns:
        Descriptors of the process's folder in /proc and of the settings of user namespaces; neither is seen any more.
    """
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    process, settings = (
        os.open(f"/proc/{name}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for name in ("self", "sys/user")
    )
    covered = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in shown_in_scratch()]
    for folder, size in ((SCRATCH, scratch_bytes), ("/dev/shm", scratch_bytes), ("/run", 4096)):
        options = f"size={size},nr_inodes={_NUM_FILES},mode=1777"
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    for path, opened in covered:  # still read-only, and with all that is hidden in them
        path.mkdir(parents=True)
        _mount(f"/proc/self/fd/{opened}", str(path), None, _MS_BIND | _MS_REC)
        os.close(opened)
    if not whole_proc:
        _show_of_proc_itself_alone()
    return process, settings


def _show_of_proc_itself_alone() -> None:
    """Put a folder over /proc that holds a few files of this process; each is mounted, so its inode stays as it is."""
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    made = Path("/run/proc")
    own = made / str(os.getpid())
    made.mkdir()
    _mount("tmpfs", str(made), "tmpfs", flags, "size=4096,nr_inodes=16,mode=0755")
    own.mkdir()
    (made / "self").symlink_to(own.name)
    for name in _OF_ITSELF:
        (own / name).touch()
        _mount(f"/proc/self/{name}", str(own / name), None, _MS_BIND)
    _mount(None, str(made), None, flags | _MS_REMOUNT | _MS_RDONLY)
    _mount(str(made), "/proc", None, _MS_MOVE)
    made.rmdir()


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP_AND_RUNNING))


def _enter_own_user_namespace(process: int, settings: int, on_gpu: bool) -> int:
    """Leave for a user namespace of one's own, the last there can be, with no capability even there.

    Returns:
        As of :func:`labkit.grading.sandbox.seccomp.forbid_calls`.
    """
    uid, gid = os.getuid(), os.getgid()
    forget_keys()
    _call("unshare", _NEWUSER)
    _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own files in /proc are not its own
    _write("setgroups", process, "deny")
    _write("uid_map", process, f"{uid} {uid} 1")
    _write("gid_map", process, f"{gid} {gid} 1")
    _write("max_user_namespaces", settings, "0")
    os.close(process)
    os.close(settings)
    drop_capabilities()
    return forbid_calls(of_rank=True, on_gpu=on_gpu)


def _write(name: str, folder: int, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    os.write(file, text.encode())
    os.close(file)


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
