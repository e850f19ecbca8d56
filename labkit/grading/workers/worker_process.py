"""One worker from outside: a process of its own that grades what it is sent, one submission after another."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

from labkit.grading.frames import Channel
from labkit.grading.sandbox.environments import trusted_environment
from labkit.interpreter import python

_CLOSING_SECONDS = 10.0


class WorkerProcess:
    """Starts a worker at once; it loads torch in the background before it is told of any lesson."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                python("-m", "labkit.grading.workers.worker", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=trusted_environment(),
                start_new_session=True,
            )
        self.channel = Channel(ours, max_header=1 << 20, max_payload=0)

    def open(self, opening: Mapping[str, Any]) -> None:
        """Tell it of the lesson; see `Setting.opening`."""
        self.channel.send(opening)

    def stop(self, at_once: bool) -> None:
        """Have it end all that it has started, and itself; `end` waits for that.

        Args:
            at_once: Also where it has a submission in hand.
        """
        self.channel.close()
        if at_once:
            self.process.send_signal(signal.SIGTERM)

    def end(self, at_once: bool) -> None:
        """Do what `stop` does and wait until it has ended."""
        self.stop(at_once)
        try:
            self.process.wait(_CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
