"""The trusted side's handle on the template process that forks ranks."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from labkit.errors import EnvironmentProblem
from labkit.grading.course import Course
from labkit.grading.environments import trusted_environment
from labkit.grading.frames import Channel, FrameError, pack
from labkit.grading.process_tree import end_descendants

_START_SECONDS = 120.0


class TemplateGoneError(Exception):
    """The template ended: a rank killed it, or the machine ran out of memory."""


class Template:
    """Starts the template process at once, in the background; `ready` waits for it.

    Args:
        course: The lesson whose drivers the ranks need.
    """

    def __init__(self, course: Course) -> None:
        self.num_threads = 0
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "labkit.grading.probe_rank", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=trusted_environment(),
                start_new_session=True,
            )
        self.channel = Channel(ours, max_header=1 << 16, max_payload=0)
        self.channel.send({"lesson": course.lesson, "checks": str(course.checks) if course.checks else None})
        self._is_ready = False

    @property
    def pid(self) -> int:
        """The template's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process is there and its socket is open."""
        return self._process.poll() is None and not self.channel.closed

    def ready(self) -> None:
        """Wait until the template can fork.

        Raises:
            EnvironmentProblem: If it does not start.
        """
        while not self._is_ready:
            readable, _, _ = select.select([self.channel], [], [], _START_SECONDS)
            frames = self.channel.receive() if readable else []
            if not frames:
                self.close()
                raise EnvironmentProblem(
                    f"the process that starts ranks did not come up (status {self._process.poll()}); "
                    "its own words are above"
                )
            self.num_threads = int(frames[0].header["threads"])
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
        return end_descendants(self.pid)

    def close(self) -> None:
        """End the template and everything below it."""
        end_descendants(self.pid)
        self._process.kill()
        self._process.wait()
        self.channel.close()
