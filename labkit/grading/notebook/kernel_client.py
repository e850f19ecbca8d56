"""A client of a kernel that goes on as soon as the kernel is ready, with no pauses to make sure."""

from __future__ import annotations

import time
from queue import Empty
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient

from labkit.grading.notebook.kernel_provisioner import SandboxProvisioner

_LOOK_AGAIN_SECONDS = 0.5


class PromptClient(AsyncKernelClient):
    """Waits for one answer on each channel; jupyter_client's own waits until a channel has been silent for 0.2 s."""

    def _make_url(self, channel: str) -> str:
        provisioner = getattr(self.parent, "provisioner", None)
        return provisioner.url(channel) if isinstance(provisioner, SandboxProvisioner) else super()._make_url(channel)

    async def wait_for_ready(self, timeout: float | None = None) -> None:
        """Return when the kernel has answered and what it publishes is heard.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RuntimeError: If it died, or does not answer in time.
        """
        deadline = time.monotonic() + (timeout if timeout is not None else float("inf"))
        while not await self._is_ready():
            if not await self._async_is_alive():
                raise RuntimeError("Kernel died before replying to kernel_info")
            if time.monotonic() > deadline:
                raise RuntimeError(f"Kernel didn't respond in {timeout:g} seconds")

    async def _is_ready(self) -> bool:
        asked = self.kernel_info()
        try:
            await self.shell_channel.get_msg(timeout=_LOOK_AGAIN_SECONDS)
            while not _is_idle(await self.iopub_channel.get_msg(timeout=_LOOK_AGAIN_SECONDS), asked):
                pass
        except Empty:
            return False
        return True


def _is_idle(message: dict[str, Any], asked: str) -> bool:
    if message["msg_type"] != "status" or message["parent_header"].get("msg_id") != asked:
        return False
    return bool(message["content"]["execution_state"] == "idle")
