"""The grading process's handle on the one process that has loaded torch and the kernel, and only forks.

Loading them takes longer than grading a small submission. The oracle, the template of ranks and the kernel of each
notebook are forked from it, so it is paid once for a worker. It reads nothing: what a fork is told goes over a socket
of the fork's own, so that nothing about one submission can be in the memory of the next.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import threading
from pathlib import Path

from labkit.errors import EnvironmentProblem
from labkit.grading.frames import read_frame
from labkit.grading.own_folders import own_prefix
from labkit.grading.sandbox.environments import submission_environment
from labkit.grading.sandbox.view import SCRATCH
from labkit.interpreter import python

ORACLE, TEMPLATE, KERNEL = b"O", b"T", b"K"
START_SECONDS = 120.0


class Preloaded:
    """Starts the process at once, in the background; a fork that is asked for meanwhile comes when it has loaded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._compiled = tempfile.TemporaryDirectory(prefix=own_prefix("torch"))
        self._start()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            # What it is started with can be read in /proc by all that it forks: nothing of ours.
            environment = submission_environment(Path(SCRATCH)) | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            # torch makes this folder on the way, in the temporary folder where it is told nothing, and leaves it there.
            environment["TORCHINDUCTOR_CACHE_DIR"] = self._compiled.name
            # A heap of huge pages is forked in half the time; where the system has none, this changes nothing.
            environment["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
            self._process = subprocess.Popen(
                python("-m", "labkit.grading.preloaded.process", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fork(self, role: bytes) -> socket.socket:
        """Return our end of a socket to a new fork: ``ORACLE``, ``TEMPLATE`` or ``KERNEL``.

        The fork's first frame says its process id; it comes when torch is loaded. A process that was ended is started
        again, unless all is over.

        Raises:
            EnvironmentProblem: If it has ended.
        """
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._process.poll() is not None and not self._is_over:
                self._control.close()
                self._start()
            try:
                if self._is_over:
                    raise BrokenPipeError
                socket.send_fds(self._control, [role], [theirs.fileno()])
            except OSError:
                ours.close()
                raise EnvironmentProblem("the process that others are forked from has ended") from None
        return ours

    def stop(self) -> None:
        """Fork nothing any more, and start nothing again."""
        self._is_over = True

    def close(self) -> None:
        """End it; forks that were not ended go on."""
        self.stop()
        self._process.kill()
        self._process.wait()
        self._control.close()
        self._compiled.cleanup()


def process_id(sock: socket.socket) -> int:
    """Return the process id that a fork tells first.

    Raises:
        EnvironmentProblem: If it does not come.
    """
    sock.settimeout(START_SECONDS)
    try:
        frame = read_frame(sock)
    except TimeoutError:
        frame = None
    if frame is None:
        raise EnvironmentProblem("the process that preloads torch could not be started; what it printed is above")
    return int(frame.header["pid"])
