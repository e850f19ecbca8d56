"""A sandbox started ahead of time: a sleeping process keeps its namespaces open until a real one enters."""

from __future__ import annotations

import os
import select
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from labkit.errors import EnvironmentProblem
from labkit.grading.frames import read_frame, write_frame
from labkit.grading.preloaded.client import START_SECONDS
from labkit.grading.sandbox.bubblewrap import Sandbox, read_info, user_inside
from labkit.grading.sandbox.cgroup import Cgroup
from labkit.grading.sandbox.process_tree import child_pids

_HOLDER = ("/bin/sh", "-c", "echo; exec sleep infinity")
_NOT_STARTED = "a sandbox did not start; `labkit doctor` says what is missing"


class EmptySandbox:
    """A sandbox that starts in the background while the caller goes on.

    Args:
        sandbox: How it is confined.
        cgroup: The control group for all that runs in it.
        before: Called in the new process before bubblewrap runs.
        stderr: Where bubblewrap's own words go, as for subprocess.
    """

    def __init__(
        self, sandbox: Sandbox, cgroup: Cgroup, before: Callable[[], None] | None = None, stderr: Any = None
    ) -> None:
        self._sandbox, self._cgroup = sandbox, cgroup
        self.first_pid = 0
        self.entry_pid = 0
        self.inside_pid = 0
        self._info, write = os.pipe()
        try:
            self.process = subprocess.Popen(
                sandbox.command(_HOLDER, {"PATH": "/usr/bin:/bin"}, write),
                pass_fds=[write],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=before,
            )
        finally:
            os.close(write)

    def let_in(self, sock: socket.socket, entry_pid: int, told: Mapping[str, Any]) -> None:
        """Have a fork of the preloaded process enter; it forks once more, and `inside_pid` is who then runs inside.

        Args:
            sock: Our end of its socket.
            entry_pid: The process id that it has told.
            told: What it is told besides.

        Raises:
            EnvironmentProblem: If either does not come up.
        """
        holder_pid = self._wait()
        self.entry_pid = entry_pid
        self._cgroup.take(entry_pid)
        place = {"first_pid": self.first_pid, "holder_pid": holder_pid, "uid": user_inside()}
        place["divides"] = self._sandbox.may_divide
        write_frame(sock, {**told, **place, "ulimits": {"core": 0, **self._sandbox.ulimits}})
        try:
            frame = read_frame(sock)
        except TimeoutError:
            frame = None
        if frame is None:
            self.end()
            raise EnvironmentProblem("a sandbox could not be entered; what it printed is above")
        self.inside_pid = int(frame.header["pid"])

    def _wait(self) -> int:
        """Return the process that holds the namespaces, once everything of the sandbox is made."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], START_SECONDS)[0] or not self.process.stdout.read(1):
            self.end()
            raise EnvironmentProblem(_NOT_STARTED)
        self.first_pid = read_info(self._info, START_SECONDS)
        holders = child_pids(self.first_pid) if self.first_pid else []
        if len(holders) != 1:
            self.end()
            raise EnvironmentProblem(_NOT_STARTED)
        return holders[0]

    def end(self) -> None:
        """End it and all that is in it."""
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self._info >= 0:
            os.close(self._info)
            self._info = -1
