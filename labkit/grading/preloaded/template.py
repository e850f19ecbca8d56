"""The trusted side's handle on the template process that forks ranks."""

from __future__ import annotations

import select
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from labkit.errors import EnvironmentProblem
from labkit.grading.frames import Channel, FrameError, pack, read_frame, write_frame
from labkit.grading.limits import Limits
from labkit.grading.own_folders import own_prefix
from labkit.grading.preloaded.client import TEMPLATE, Preloaded, process_id
from labkit.grading.sandbox.bubblewrap import Sandbox
from labkit.grading.sandbox.cgroup import Cgroup
from labkit.grading.sandbox.empty_sandbox import EmptySandbox
from labkit.grading.sandbox.gpus import device_files
from labkit.grading.sandbox.process_tree import end_descendants
from labkit.grading.sandbox.view import runtime


class TemplateGoneError(Exception):
    """The template ended: a rank killed it, or the machine ran out of memory."""


class Template:
    """Starts the template process at once, in the background; `ready` waits for it.

    Args:
        hidden: Files and folders its sandbox must not show; None for no sandbox at all.
        limits: What ranks may use.
        preloaded: What it is forked from; else one of its own.
        gpu: UUID of the GPU that its ranks use; "" for none.
    """

    def __init__(
        self,
        hidden: Sequence[Path] | None,
        limits: Limits | None = None,
        preloaded: Preloaded | None = None,
        gpu: str = "",
    ) -> None:
        self.num_threads = 0
        self.gpu = gpu
        self.divides = hidden is not None
        self._limits = limits = limits or Limits()
        self._owns, self._preloaded = preloaded is None, preloaded or Preloaded()
        self._control = tempfile.TemporaryDirectory(prefix=own_prefix("ranks"))
        self._cgroup = Cgroup(2 * limits.case_memory_bytes, 16 * limits.rank_processes) if self.divides else None
        self._sandbox = self._make_sandbox(hidden) if hidden is not None else None
        self.channel = Channel(self._preloaded.fork(TEMPLATE), max_header=1 << 16, max_payload=0)
        self._entry_pid = 0
        self._process: psutil.Process | None = None

    def _make_sandbox(self, hidden: Sequence[Path]) -> EmptySandbox:
        assert self._cgroup is not None
        sandbox = Sandbox(
            Path(self._control.name),
            hidden=tuple(hidden),
            package=runtime(),
            scratch_bytes=self._limits.rank_scratch_bytes,
            may_divide=True,
            devices=device_files(self.gpu),
        )
        return EmptySandbox(sandbox, self._cgroup, self._cgroup.enter)

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the processes that stay between submissions; the first use waits until torch is loaded."""
        return (self._entry(), *([self._sandbox.process.pid] if self._sandbox else []))

    def _entry(self) -> int:
        """Return the id of the fork that becomes the template, or whose child does."""
        if not self._entry_pid and not self.channel.closed:
            self._entry_pid = process_id(self.channel.sock)
        return self._entry_pid

    @property
    def first_pid(self) -> int:
        """The template's own process id, as seen from here; 0 before it is ready."""
        return self._process.pid if self._process else 0

    @property
    def alive(self) -> bool:
        """Whether the process is there, or will be, and its socket is open."""
        if self.channel.closed:
            return False
        return self._process is None or self._process.is_running()

    def ready(self, rank_side: bytes) -> None:
        """Wait until the template can fork.

        Args:
            rank_side: What ranks are told of the exercises: `Oracle.rank_side`.

        Raises:
            EnvironmentProblem: If it does not start.
        """
        if self._process is not None:
            return
        sock = self.channel.sock
        if self._sandbox is not None:
            self._sandbox.let_in(sock, self._entry(), {})
            pid = self._sandbox.inside_pid
        else:
            pid = self._entry()
            write_frame(sock, {"first_pid": 0})
            read_frame(sock)
        about = {"divide": self.divides, "scratch_bytes": self._limits.rank_scratch_bytes, "on_gpu": bool(self.gpu)}
        write_frame(sock, about, rank_side)
        frame = read_frame(sock)
        if frame is None:
            self.close()
            raise EnvironmentProblem("the process that starts ranks could not be started; what it printed is above")
        sock.setblocking(False)
        self.num_threads = int(frame.header["threads"])
        self._process = psutil.Process(pid)

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
            raise TemplateGoneError("its socket is closed")
        return [frame.header for frame in frames]

    def end_ranks(self) -> list[str]:
        """End everything below the template and return the names of what still ran."""
        return end_descendants(self.first_pid) if self.first_pid else []

    def forget_reads(self) -> None:
        """Take out of memory what ranks have read and looked for, where they have a control group of their own."""
        if self._cgroup is not None:
            self._cgroup.forget()

    def close(self) -> None:
        """End the template and everything below it."""
        self.channel.close()
        if self._process is not None:
            end_descendants(self._process.pid)
            with suppress(psutil.NoSuchProcess):
                self._process.kill()
        if self._sandbox is not None:
            self._sandbox.end()
        if self._cgroup is not None:
            self._cgroup.close()
        self._control.cleanup()
        if self._owns:
            self._preloaded.close()
