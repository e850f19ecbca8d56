"""The Jupyter kernel provisioner ``labkit-sandbox``: a kernel in a sandbox, reached over sockets inside it.

The kernel's sockets lie in the sandbox's own /run; we reach them through ``/proc/PID/root``, so that no folder is
shared with it. A kernel spec names it in its metadata:
``{"kernel_provisioner": {"provisioner_name": "labkit-sandbox"}}``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Dict, Instance, Int, List, Unicode

from labkit.errors import EnvironmentProblem
from labkit.grading.limits import Limits
from labkit.grading.own_folders import own_prefix
from labkit.grading.preloaded.client import KERNEL, Preloaded, process_id
from labkit.grading.sandbox.bubblewrap import Sandbox, read_info, require
from labkit.grading.sandbox.cgroup import Cgroup
from labkit.grading.sandbox.empty import EmptySandbox
from labkit.grading.sandbox.environments import submission_environment
from labkit.grading.sandbox.keyring import forget_keys
from labkit.grading.sandbox.process_tree import child_pids
from labkit.grading.sandbox.view import SCRATCH

NAME = "labkit-sandbox"
_SOCKETS = "/run/kernel"
_CONNECTION_FILE = "/etc/connection.json"
_START_SECONDS = 30.0


def kernel_ulimits(limits: Limits) -> dict[str, int]:
    """Return the limits of a kernel and each process it starts, by the names that prlimit(1) has for them."""
    return {
        "nproc": limits.kernel_processes,
        "nofile": limits.open_files,
        "fsize": limits.kernel_file_bytes,
        "cpu": int(limits.notebook_seconds) + 5,
    }


class SandboxProvisioner(LocalProvisioner):
    """Starts a kernel inside bubblewrap; killing it ends everything it started."""

    hidden: Any = List(Unicode(), help="Files and folders covered even where a folder above them is seen.", config=True)
    scratch_bytes: Any = Int(Limits().scratch_bytes, help="Size of the kernel's /tmp and /dev/shm.", config=True)
    ulimits: Any = Dict(default_value=kernel_ulimits(Limits()), help="Limits as prlimit(1) names them.", config=True)
    memory_bytes: Any = Int(Limits().kernel_memory_bytes, help="Memory of all it runs, by a cgroup.", config=True)
    max_tasks: Any = Int(2 * Limits().kernel_processes, help="Processes and threads of all it runs.", config=True)

    preloaded: Any = Instance(Preloaded, allow_none=True, help="Fork the kernel from it; else run a new program.")

    _control: str | None = None
    _cgroup: Cgroup | None = None
    _entered: EmptySandbox | None = None
    _first_pid = 0

    @property
    def first_pid(self) -> int:
        """The process id, as seen from here, of the sandbox's process 1; 0 before the start."""
        return self._first_pid

    @property
    def roots(self) -> tuple[int, ...]:
        """The processes below which everything is that the kernel has started."""
        entry = self._entered.entry_pid if self._entered else 0
        return tuple(pid for pid in (self.pid, entry) if pid)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Return the start's arguments; sockets are ipc, whatever the manager had in mind."""
        require()
        manager: Any = self.parent
        manager.transport, manager.ip = "ipc", _SOCKETS
        found = await super().pre_launch(**kwargs)
        assert isinstance(found, dict)
        return found

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start the kernel and return where it can be reached from here."""
        manager: Any = self.parent
        self._cgroup = Cgroup(self.memory_bytes, self.max_tasks)
        self._control = tempfile.mkdtemp(prefix=own_prefix("kernel"))
        control, file = Path(self._control), os.path.realpath(manager.connection_file)
        shutil.copyfile(file, control / "connection.json")
        (control / "connection.json").chmod(0o444)
        sandbox = Sandbox(
            control,
            hidden=tuple(map(Path, self.hidden)),
            shown={_CONNECTION_FILE: control / "connection.json"},
            scratch_bytes=self.scratch_bytes,
            ulimits=dict(self.ulimits),
        )
        inside = [_CONNECTION_FILE if word == file else word for word in cmd]
        if self.preloaded is not None:
            self._enter(sandbox, inside, kwargs.get("stderr"))
        else:
            self._run(sandbox, inside, kwargs)
        assert self.process is not None
        self.pid = self.pgid = self.process.pid
        return {**self.connection_info, "ip": f"/proc/{self._first_pid}/root{_SOCKETS}"}

    def _run(self, sandbox: Sandbox, command: list[str], kwargs: dict[str, Any]) -> None:
        """Run the kernel as a new program."""
        read, write = os.pipe()
        try:
            self.process = subprocess.Popen(
                sandbox.command(command, submission_environment(Path(SCRATCH)), write),
                stdin=subprocess.DEVNULL,
                stdout=kwargs.get("stdout"),
                stderr=kwargs.get("stderr"),
                pass_fds=[write],
                start_new_session=True,
                preexec_fn=self._before_it_starts,
            )
            os.close(write)
            write = -1
            self._first_pid = read_info(read, _START_SECONDS)
        finally:
            os.close(read)
            if write >= 0:
                os.close(write)
        if not self._first_pid:
            self.process.kill()
            raise EnvironmentProblem("the sandbox of the kernel did not start; `labkit doctor` says what is missing")

    def _enter(self, sandbox: Sandbox, command: list[str], stderr: Any) -> None:
        """Fork the kernel from the process that has everything loaded, into a sandbox of its own."""
        assert self._cgroup is not None
        self._entered = EmptySandbox(sandbox, self._cgroup, self._before_it_starts, stderr)
        self.process = self._entered.process
        environment = submission_environment(Path(SCRATCH)) | {"PWD": SCRATCH}
        told = {"environment": environment, "work": SCRATCH, "argv": command[2:]}
        with self.preloaded.fork(KERNEL) as sock:
            self._entered.let_in(sock, process_id(sock), told)
        self._first_pid = self._entered.first_pid

    def _before_it_starts(self) -> None:
        forget_keys()
        if self._cgroup is not None:
            self._cgroup.enter()

    async def send_signal(self, signum: int) -> None:
        """Interrupt the kernel itself; any other signal ends the sandbox, and all that is in it."""
        if self.process is None:
            return
        if signum == signal.SIGINT:
            for pid in [self._entered.inside_pid] if self._entered else child_pids(self._first_pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)
        else:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def kill(self, restart: bool = False) -> None:
        """End the kernel, and return when it has ended: jupyter_client would look only every 0.1 s."""
        await super().kill(restart=restart)
        await self._look_often()

    async def wait(self) -> int | None:
        """Wait until it has ended."""
        await self._look_often()
        ended: int | None = await super().wait()
        return ended

    async def _look_often(self) -> None:
        """Return when it has ended, or after a second: what was killed has ended sooner."""
        for _ in range(200):
            if await self.poll() is not None:
                return
            await asyncio.sleep(0.005)

    async def cleanup(self, restart: bool = False) -> None:
        """Remove what was written for the start."""
        if self._control:
            shutil.rmtree(self._control, ignore_errors=True)
            self._control = None
        if self._entered is not None:
            self._entered.end()
            self._entered = None
        if self._cgroup is not None:
            self._cgroup.close()
            self._cgroup = None
        await super().cleanup(restart=restart)
