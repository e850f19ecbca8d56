"""The process that has loaded torch and the kernel, and forks what runs with them; `client` talks to it.

It loads no line of a submission, no hidden case and no lesson's checks, and reads nothing but one letter for each fork.
For that reason labkit.launch.zygote, which forks a notebook's ranks, is another program: it reads requests and holds
descriptors of runs, and all that it holds of one submission would be in the memory of the next.

Run as ``python -m labkit.grading.preloaded.process FD``; FD is a socket to the grading process.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module

from labkit.errors import EnvironmentProblem
from labkit.grading.frames import write_frame
from labkit.grading.preloaded.client import KERNEL, ORACLE, TEMPLATE

_ROLES = {
    ORACLE: "labkit.grading.hidden_cases.oracle_process",
    TEMPLATE: "labkit.grading.hidden_cases.probe_rank",
    KERNEL: "labkit.grading.preloaded.kernel",
}
_KERNEL = (
    "ipykernel.ipkernel", "ipykernel.kernelapp", "ipykernel.zmqshell", "tornado.platform.asyncio",
    "IPython.core.debugger", "IPython.core.completerlib", "IPython.extensions.storemagic", "sqlite3",
)  # fmt: skip


def main() -> None:
    """Fork until the grading process closes the socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()  # nothing that is loaded is given up again, and looking for it takes a tenth of the time
    _load_kernel_without_debugger()
    for name in (*_KERNEL, *_ROLES.values()):
        import_module(name)
    torch = import_module("torch")
    torch.set_num_threads(1)
    torch.backends.cpu.get_cpu_capability()  # torch asks once, and in a rank's /proc nothing would tell it
    with suppress(EnvironmentProblem):  # without a sandbox there need be none
        import_module("labkit.grading.sandbox.seccomp").prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks that have ended need not be collected
    gc.freeze()  # nor will the forks look: its memory is shared until they write to it
    gc.enable()
    while True:
        try:
            letter, fds, _, _ = socket.recv_fds(control, 1, 1)
        except ConnectionResetError:
            return
        if not letter or len(fds) != 1:
            return
        if os.fork() == 0:
            _be(letter, control, fds[0])
        os.close(fds[0])


def _load_kernel_without_debugger() -> None:
    """Have ipykernel do without debugpy, which nobody needs who is graded and which each kernel would load anew."""
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # what Python has for "not there"
    try:
        import_module("ipykernel.debugger")
    finally:
        del sys.modules["debugpy"]


def _be(letter: bytes, control: socket.socket, fd: int) -> None:
    """Take up a role in a fork; never returns."""
    status = 70
    try:
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sock = socket.socket(fileno=fd)
        write_frame(sock, {"op": "here", "pid": os.getpid()})
        import_module(_ROLES[letter]).serve(sock)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
    os._exit(0)  # to take apart what was loaded takes a third of a second
