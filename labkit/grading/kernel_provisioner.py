"""The Jupyter kernel provisioner ``labkit-sandbox``: a kernel in a sandbox, reached over sockets inside it.

The kernel's sockets lie in the sandbox's own /run; we reach them through ``/proc/PID/root``, so that no folder is
shared with it. A kernel spec names it in its metadata:
``{"kernel_provisioner": {"provisioner_name": "labkit-sandbox"}}``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Int, List, Unicode

from labkit.errors import EnvironmentProblem
from labkit.grading.cgroup import Cgroup
from labkit.grading.environments import submission_environment
from labkit.grading.keyring import forget_keys
from labkit.grading.limits import Limits
from labkit.grading.process_tree import child_pids
from labkit.grading.sandbox import Sandbox, read_info, require
from labkit.grading.sandbox_view import SCRATCH

NAME = "labkit-sandbox"
_SOCKETS = "/run/kernel"
_CONNECTION_FILE = "/etc/connection.json"
_START_SECONDS = 30.0


def kernel_ulimits(limits: Limits) -> tuple[str, ...]:
    """Return prlimit's options for a kernel and each process it starts."""
    return (
        f"--nproc={limits.kernel_processes}",
        f"--nofile={limits.open_files}",
        f"--fsize={limits.kernel_file_bytes}",
        f"--cpu={int(limits.notebook_seconds) + 5}",
    )


class SandboxProvisioner(LocalProvisioner):
    """Starts a kernel inside bubblewrap; killing it ends everything it started."""

    hidden: Any = List(Unicode(), help="Files and folders covered even where a folder above them is seen.", config=True)
    scratch_bytes: Any = Int(Limits().scratch_bytes, help="Size of the kernel's /tmp and /dev/shm.", config=True)
    ulimits: Any = List(Unicode(), list(kernel_ulimits(Limits())), help="Options of prlimit(1).", config=True)

    memory_bytes: Any = Int(Limits().kernel_memory_bytes, help="Memory of all it runs, by a cgroup.", config=True)
    max_tasks: Any = Int(2 * Limits().kernel_processes, help="Processes and threads of all it runs.", config=True)

    _control: str | None = None
    _cgroup: Cgroup | None = None
    _first_pid = 0

    @property
    def first_pid(self) -> int:
        """The process id, as seen from here, of the sandbox's process 1; 0 before the start."""
        return self._first_pid

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
        self._control = tempfile.mkdtemp(prefix="lk-kernel-")
        control, file = Path(self._control), os.path.realpath(manager.connection_file)
        shutil.copyfile(file, control / "connection.json")
        (control / "connection.json").chmod(0o444)
        sandbox = Sandbox(
            control,
            hidden=tuple(map(Path, self.hidden)),
            shown={_CONNECTION_FILE: control / "connection.json"},
            scratch_bytes=self.scratch_bytes,
            ulimits=tuple(self.ulimits),
        )
        inside = [_CONNECTION_FILE if word == file else word for word in cmd]
        read, write = os.pipe()
        try:
            self.process = subprocess.Popen(
                sandbox.command(inside, submission_environment(Path(SCRATCH)), write),
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
        self.pid = self.pgid = self.process.pid
        return {**self.connection_info, "ip": f"/proc/{self._first_pid}/root{_SOCKETS}"}

    def _before_it_starts(self) -> None:
        forget_keys()
        if self._cgroup is not None:
            self._cgroup.enter()

    async def send_signal(self, signum: int) -> None:
        """Interrupt the kernel itself; any other signal ends the sandbox, and all that is in it."""
        if self.process is None:
            return
        if signum == signal.SIGINT:
            for pid in child_pids(self._first_pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)
        else:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def cleanup(self, restart: bool = False) -> None:
        """Remove what was written for the start."""
        if self._control:
            shutil.rmtree(self._control, ignore_errors=True)
            self._control = None
        if self._cgroup is not None:
            self._cgroup.close()
            self._cgroup = None
        await super().cleanup(restart=restart)
