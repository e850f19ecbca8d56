"""A kernel in a sandbox of its own, started by the grader; `kernel_provisioner` is the side that talks to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.errors import EnvironmentProblem
from labkit.grading.limits import Limits
from labkit.grading.own_folders import own_prefix
from labkit.grading.preloaded.client import KERNEL, Preloaded, process_id
from labkit.grading.sandbox.bubblewrap import Sandbox, read_info, require
from labkit.grading.sandbox.cgroup import Cgroup
from labkit.grading.sandbox.empty_sandbox import EmptySandbox
from labkit.grading.sandbox.environments import submission_environment
from labkit.grading.sandbox.keyring import forget_keys
from labkit.grading.sandbox.process_tree import child_pids
from labkit.grading.sandbox.seccomp import filter_file
from labkit.grading.sandbox.view import SCRATCH

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
SOCKETS = "/run/kernel"
_CONNECTION_FILE = "/etc/connection.json"
_COMMAND = ("-m", "ipykernel_launcher", "-f", _CONNECTION_FILE)
_START_SECONDS = 30.0


def socket_name(channel: str) -> str:
    """Return where the socket of a channel lies beneath the kernel's root."""
    return f"{SOCKETS[1:]}-{CHANNELS.index(channel) + 1}"


def kernel_ulimits(limits: Limits) -> dict[str, int]:
    """Return the limits of a kernel and each process it starts, by the names that prlimit(1) has for them."""
    return {
        "nproc": limits.kernel_processes,
        "nofile": limits.open_files,
        "fsize": limits.kernel_file_bytes,
        "cpu": int(limits.notebook_seconds) + 5,
    }


class SandboxedKernel:
    """Starts a kernel inside bubblewrap; `close` ends everything it started.

    Args:
        connection: What its connection file says; its transport is ipc and its ip is ``SOCKETS``.
        hidden: Files and folders it must not see.
        limits: What it may use.
        preloaded: What it is forked from; else it is a new program.

    Raises:
        EnvironmentProblem: If there can be no sandbox here.
    """

    def __init__(
        self, connection: Mapping[str, Any], hidden: Sequence[Path], limits: Limits, preloaded: Preloaded | None
    ) -> None:
        require()
        # A wall behind the watch over memory, which ends it with words.
        self._cgroup = Cgroup(2 * limits.kernel_memory_bytes, 2 * limits.kernel_processes)
        self._control = tempfile.TemporaryDirectory(prefix=own_prefix("kernel"))
        self._entered: EmptySandbox | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.first_pid = self.kernel_pid = 0
        file = Path(self._control.name) / "connection.json"
        file.write_text(json.dumps(connection))
        file.chmod(0o444)
        sandbox = Sandbox(
            Path(self._control.name),
            hidden=tuple(hidden),
            shown={_CONNECTION_FILE: file},
            scratch_bytes=limits.scratch_bytes,
            ulimits=kernel_ulimits(limits),
        )
        try:
            if preloaded is not None:
                self._enter(sandbox, preloaded)
            else:
                self._run(sandbox)
        except BaseException:
            self.close()
            raise

    @property
    def roots(self) -> tuple[int, ...]:
        """The processes below which everything is that the kernel has started."""
        entry = self._entered.entry_pid if self._entered else 0
        outside = self._process.pid if self._process else 0
        return tuple(pid for pid in (outside, entry) if pid)

    def _run(self, sandbox: Sandbox) -> None:
        """Run the kernel as a new program."""
        read, write = os.pipe()
        rules = filter_file()
        try:
            self._process = subprocess.Popen(
                sandbox.command([sys.executable, *_COMMAND], submission_environment(Path(SCRATCH)), write, rules),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[write, rules],
                start_new_session=True,
                preexec_fn=self._before_it_starts,
            )
            os.close(write)
            write = -1
            self.first_pid = read_info(read, _START_SECONDS)
        finally:
            os.close(read)
            os.close(rules)
            if write >= 0:
                os.close(write)
        deadline = time.monotonic() + _START_SECONDS
        while self.first_pid and self._process.poll() is None and time.monotonic() < deadline:
            for pid in child_pids(self.first_pid):
                if Path(f"/proc/{pid}/comm").read_text() != "bwrap\n":  # it has become the program
                    self.kernel_pid = pid
                    return
            time.sleep(0.002)
        raise EnvironmentProblem("the kernel's sandbox did not start; `labkit doctor` says what is missing")

    def _enter(self, sandbox: Sandbox, preloaded: Preloaded) -> None:
        """Fork the kernel from the process that has everything loaded, into a sandbox of its own."""
        self._entered = EmptySandbox(sandbox, self._cgroup, self._before_it_starts, subprocess.DEVNULL)
        self._process = self._entered.process
        environment = submission_environment(Path(SCRATCH)) | {"PWD": SCRATCH}
        told = {"environment": environment, "work": SCRATCH, "argv": _COMMAND[1:]}
        with preloaded.fork(KERNEL) as sock:
            self._entered.let_in(sock, process_id(sock), told)
        self.first_pid, self.kernel_pid = self._entered.first_pid, self._entered.inside_pid

    def _before_it_starts(self) -> None:
        forget_keys()
        self._cgroup.enter()

    def kill(self) -> None:
        """End the sandbox, and all that is in it."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it and remove what was made for it."""
        self.kill()
        if self._entered is not None:
            self._entered.end()
        elif self._process is not None:
            self._process.wait()
        self._control.cleanup()
        self._cgroup.close()
