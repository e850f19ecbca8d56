"""How a process that has loaded torch gets into a sandbox: it enters the namespaces that bubblewrap has made.

bubblewrap can only run a program, which would have to load everything again. So it makes a sandbox in which one
sleeping process holds the namespaces, and a fork of the preloaded process enters all of them, in the order in which
its rights allow it. Linux only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from importlib import invalidate_caches
from pathlib import Path
from typing import Any, NoReturn

from labkit.grading.frames import read_frame, write_frame
from labkit.grading.sandbox.counted_calls import MOST_OF_KERNEL, CountedCalls
from labkit.grading.sandbox.keyring import forget_keys
from labkit.grading.sandbox.rank_namespaces import drop_capabilities
from labkit.grading.sandbox.seccomp import forbid_calls

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_NS_GET_USERNS = 0xB701
_NEWUSER = 0x10000000
_OTHERS = {
    "cgroup": 0x02000000, "ipc": 0x08000000, "uts": 0x04000000, "net": 0x40000000, "pid": 0x20000000,
    "mnt": 0x00020000,
}  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)


def enter(sock: socket.socket) -> Mapping[str, Any] | None:
    """Wait to be told of a sandbox, and return what was told, inside of it: in a new process, its only thread.

    The process that called waits outside until that one ends, and then ends the sandbox. Told are the sandbox's
    process 1 and the process that holds its namespaces, as they are seen from outside; ``uid``, who its processes are;
    ``divides``, whether capabilities over it are kept for making a sandbox for each rank; and ``ulimits``. A process 1
    of 0 means that there is no sandbox.

    Returns:
        All that was told, or None where the grading process is gone.
    """
    frame = read_frame(sock)
    if frame is None:
        return None
    told = frame.header
    if not told["first_pid"]:
        write_frame(sock, {"op": "entered", "pid": os.getpid()})
        return told
    sandbox = os.pidfd_open(told["first_pid"])
    _become(told["uid"])
    _into_namespaces_of(told["holder_pid"], divides=told["divides"])
    go_read, go_write = os.pipe()
    hears, says = socket.socketpair()
    inside = os.fork()
    if inside:
        says.close()
        write_frame(sock, {"op": "entered", "pid": inside})
        sock.close()
        for fd in (go_read, go_write):
            os.close(fd)
        _wait_outside(inside, sandbox, hears)
    hears.close()
    os.close(go_write)
    os.read(go_read, 1)  # ends when the one outside has told of us
    os.close(go_read)
    os.close(sandbox)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    forget_keys()
    if not told["divides"]:
        drop_capabilities()
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own files in /proc are not its own
    for name, value in told["ulimits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (value, value))
    if not told["divides"] and (asks := forbid_calls()) >= 0:
        socket.send_fds(says, [b"n"], [asks])
        os.close(asks)
    says.close()
    invalidate_caches()
    return told


def _become(uid: int) -> None:
    """As root, become the throw-away user that owns the sandbox; an ordinary user owns it already."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def _into_namespaces_of(pid: int, divides: bool) -> None:
    fds = {name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", *_OTHERS)}
    # Its mounts belong to the user namespace that bubblewrap made first; its program runs in one below that.
    owner = fcntl.ioctl(fds["mnt"], _NS_GET_USERNS)
    _setns(owner, _NEWUSER)
    for name, kind in _OTHERS.items():
        if not os.path.samestat(os.fstat(fds[name]), Path(f"/proc/self/ns/{name}").stat()):
            _setns(fds[name], kind)
    if not divides and not os.path.samestat(os.fstat(owner), os.fstat(fds["user"])):
        _setns(fds["user"], _NEWUSER)
    for fd in (owner, *fds.values()):
        os.close(fd)


def _setns(fd: int, kind: int) -> None:
    if _libc.setns(fd, kind) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _wait_outside(inside: int, sandbox: int, hears: socket.socket) -> NoReturn:
    """Hold nothing but the sandbox until the process inside has ended, and count its calls; then end the sandbox.

    Args:
        inside: The process.
        sandbox: The sandbox's descriptor.
        hears: Where the one comes on which counted calls ask, if any are counted.
    """
    ended = os.pidfd_open(inside)
    held, kept = 3, {sandbox: 3, ended: 4, hears.detach(): 5}
    high = {os.dup2(fd, 100 + place, inheritable=False): place for fd, place in kept.items()}
    for fd, place in high.items():
        os.dup2(fd, place, inheritable=False)
    os.closerange(6, 4096)

    def end(*_: object) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(held, signal.SIGKILL)
        os._exit(143)

    signal.signal(signal.SIGTERM, end)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # the preloaded process ends with its grader
    _count_calls(socket.socket(fileno=5), until=4)
    _, status = os.waitpid(inside, 0)
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(held, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _count_calls(hears: socket.socket, until: int) -> None:
    """Let so many counted calls of a kernel go on as it may make, until the descriptor says that it has ended."""
    with hears:
        _, fds, _, _ = socket.recv_fds(hears, 1, 1)
    if not fds:
        return
    calls = CountedCalls(fds[0], MOST_OF_KERNEL)
    poller = select.poll()
    poller.register(until, select.POLLIN)
    poller.register(calls, select.POLLIN)
    while until not in dict(poller.poll()) and calls.answer():
        pass
    calls.close()
