"""The trusted side's handle on the template process that forks ranks."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.errors import EnvironmentProblem
from labkit.grading.cgroup import Cgroup
from labkit.grading.environments import submission_environment, trusted_environment
from labkit.grading.frames import Channel, FrameError, pack
from labkit.grading.limits import Limits
from labkit.grading.process_tree import end_descendants
from labkit.grading.sandbox import Sandbox, read_info
from labkit.grading.sandbox_view import SCRATCH, answers_of_checks

_START_SECONDS = 120.0


class TemplateGoneError(Exception):
    """The template ended: a rank killed it, or the machine ran out of memory."""


class Template:
    """Starts the template process at once, in the background; `ready` waits for it.

    Args:
        hidden: Files and folders its sandbox must not show; None for no sandbox at all.
        limits: What ranks may use.
    """

    def __init__(self, hidden: Sequence[Path] | None, limits: Limits | None = None) -> None:
        self.num_threads = 0
        self.divides = hidden is not None
        self._limits = limits or Limits()
        self._first_pid = 0
        self._control = tempfile.TemporaryDirectory(prefix="lk-ranks-")
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = self._start(theirs.fileno(), hidden)
        self.channel = Channel(ours, max_header=1 << 16, max_payload=0)
        self._is_ready = False

    def _start(self, fd: int, hidden: Sequence[Path] | None) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "labkit.grading.probe_rank", str(fd)]
        if hidden is None:
            return subprocess.Popen(
                program, pass_fds=[fd], stdin=subprocess.DEVNULL, env=trusted_environment(), start_new_session=True
            )
        sandbox = Sandbox(
            Path(self._control.name),
            hidden=(*hidden, *answers_of_checks()),
            scratch_bytes=self._limits.rank_scratch_bytes,
            may_divide=True,
        )
        environment = submission_environment(Path(SCRATCH)) | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._info, write = os.pipe()
        limits = self._limits
        self._cgroup = Cgroup(2 * limits.case_memory_bytes, 16 * limits.rank_processes)
        try:
            return subprocess.Popen(
                sandbox.command(program, environment, write),
                pass_fds=[fd, write],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=self._cgroup.enter,
            )
        finally:
            os.close(write)

    @property
    def pid(self) -> int:
        """The id of the process we have started: the template, or the sandbox around it."""
        return self._process.pid

    @property
    def first_pid(self) -> int:
        """The template's own process id, as seen from here; 0 before it is ready."""
        return self._first_pid

    @property
    def alive(self) -> bool:
        """Whether the process is there and its socket is open."""
        return self._process.poll() is None and not self.channel.closed

    def ready(self, rank_side: bytes) -> None:
        """Wait until the template can fork.

        Args:
            rank_side: What ranks are told of the exercises: `Oracle.rank_side`.

        Raises:
            EnvironmentProblem: If it does not start.
        """
        if not self._is_ready:
            opening = {"divide": self.divides, "scratch_bytes": self._limits.rank_scratch_bytes}
            self.channel.send(opening, rank_side)
        while not self._is_ready:
            if self.channel.wants_to_write:
                select.select([], [self.channel], [], _START_SECONDS)
                self.channel.flush()
                continue
            readable, _, _ = select.select([self.channel], [], [], _START_SECONDS)
            frames = self.channel.receive() if readable else []
            if not frames:
                self.close()
                raise EnvironmentProblem(
                    f"the process that starts ranks did not come up (status {self._process.poll()}); "
                    "its own words are above"
                )
            self.num_threads = int(frames[0].header["threads"])
            self._first_pid = read_info(self._info, _START_SECONDS) if self.divides else self._process.pid
            self._is_ready = True

    def fork(self, request: Mapping[str, Any], relay: socket.socket, jobs: socket.socket, output: int) -> None:
        """Ask for one rank; the answer comes over `channel`. The descriptors are handed over, not closed here.

        Raises:
            TemplateGoneError: If the template has ended.
        """
        data = memoryview(pack(request))
        try:
            socket.send_fds(self.channel.sock, [b"F"], [relay.fileno(), jobs.fileno(), output])
            while data:
                select.select([], [self.channel], [], 10.0)
                data = data[self.channel.sock.send(data) :]
        except OSError as error:
            raise TemplateGoneError(str(error)) from None

    def messages(self) -> list[Mapping[str, Any]]:
        """Return what the template has reported since the last call: ranks started and exited.

        Raises:
            TemplateGoneError: If it has ended.
        """
        try:
            frames = self.channel.receive()
        except FrameError as error:
            raise TemplateGoneError(str(error)) from None
        if self.channel.closed and not frames:
            raise TemplateGoneError(f"status {self._process.poll()}")
        return [frame.header for frame in frames]

    def end_ranks(self) -> list[str]:
        """End everything below the template and return the names of what still ran."""
        return end_descendants(self._first_pid) if self._first_pid else []

    def close(self) -> None:
        """End the template and everything below it."""
        end_descendants(self.pid)
        self._process.kill()
        self._process.wait()
        self.channel.close()
        if self.divides:
            os.close(self._info)
            self._cgroup.close()
        self._control.cleanup()
