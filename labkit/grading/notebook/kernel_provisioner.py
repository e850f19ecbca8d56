"""How the process that reads a notebook's messages gets at its kernel: asked for, never started, by whoever reads.

The grader starts the kernel's sandbox, with the rights that takes; this side has none of them. The kernel's sockets lie
in the sandbox's own /run. They are opened, each once and before a line of the submission has run, beneath the root that
the kernel sees; what stands there later is never looked at.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Any as AnyTrait

from labkit.grading.notebook.sandboxed_kernel import CHANNELS, SOCKETS, socket_name
from labkit.grading.sandbox.safe_open import open_inside

NAME = "labkit-sandbox"
_START_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.005


@dataclass(frozen=True)
class Started:
    """A kernel that was started for us.

    Attributes:
        first_pid: Its sandbox's process 1: killing it ends all.
        kernel_pid: The kernel's own process.
    """

    first_pid: int
    kernel_pid: int


class SandboxProvisioner(KernelProvisionerBase):
    """Has a kernel started in a sandbox; killing it ends everything it started."""

    ask: Any = AnyTrait(help="Starts it: told the connection.", config=True)

    _alive = -1
    _started: Started | None = None
    _sockets: Mapping[str, int] = {}

    def url(self, channel: str) -> str:
        """Return where a channel's socket is, whatever stands under its name by now."""
        return f"ipc:///proc/self/fd/{self._sockets[channel]}"

    @property
    def has_process(self) -> bool:
        """Whether it was started and not yet cleaned up."""
        return self._alive >= 0

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Return the start's arguments; there is no command."""
        return await super().pre_launch(cmd=[], **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Have it started, open its sockets, and return how it is reached."""
        manager: Any = self.parent
        manager.transport, manager.ip = "ipc", SOCKETS
        connection: dict[str, Any] = {f"{name}_port": port for port, name in enumerate(CHANNELS, start=1)}
        connection |= {"transport": "ipc", "ip": SOCKETS, "signature_scheme": manager.session.signature_scheme}
        self._started = self.ask({**connection, "key": manager.session.key.decode()})
        self._alive = os.pidfd_open(self._started.first_pid)
        root = f"/proc/{self._started.kernel_pid}/root"
        self._sockets = {name: await self._open(root, socket_name(name)) for name in CHANNELS}
        return {**connection, "key": manager.session.key}

    async def _open(self, root: str, path: str) -> int:
        for _ in range(int(_START_SECONDS / _LOOK_AGAIN_SECONDS)):
            with suppress(FileNotFoundError, PermissionError):  # it gives up its rights before it can be seen
                folder = os.open(root, os.O_PATH | os.O_DIRECTORY)
                try:
                    return open_inside(folder, path, stat.S_ISSOCK)
                finally:
                    os.close(folder)
            if await self.poll() is not None:
                break
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        raise RuntimeError("the kernel ended, or took too long, before its sockets were there")

    async def poll(self) -> int | None:
        """Return None while it runs."""
        return 1 if self._alive < 0 or select.select([self._alive], [], [], 0)[0] else None

    async def wait(self) -> int | None:
        """Wait until it has ended; what was killed has ended within a second."""
        for _ in range(200):
            if await self.poll() is not None:
                break
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        return await self.poll()

    async def send_signal(self, signum: int) -> None:
        """Interrupt the kernel itself; any other signal ends the sandbox, and all that is in it."""
        if signum == signal.SIGINT and self._started is not None:
            with suppress(ProcessLookupError):
                os.kill(self._started.kernel_pid, signum)
        else:
            self.end_at_once()

    def end_at_once(self) -> None:
        """Kill the sandbox's process 1, and with it everything."""
        if self._alive >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._alive, signal.SIGKILL)

    async def kill(self, restart: bool = False) -> None:
        """End it, and return when it has ended."""
        self.end_at_once()
        await self.wait()

    async def terminate(self, restart: bool = False) -> None:
        """End it."""
        await self.kill(restart)

    async def cleanup(self, restart: bool = False) -> None:
        """Close what was opened."""
        for fd in (*self._sockets.values(), *([self._alive] if self._alive >= 0 else [])):
            os.close(fd)
        self._sockets, self._alive = {}, -1
