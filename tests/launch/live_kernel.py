"""Real notebook kernels, and the processes below them.

Not in conftest.py: a rank imports what a test's function uses by its module's name, and `conftest` is many modules.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.manager import KernelManager

SETUP = """
import ctypes, functools, os, sys, threading, time
import torch
import torch.distributed as dist
import labkit
from labkit.launch import supervisor
supervisor._ARRIVE_LIMIT = supervisor._STACK_LIMIT = 30.0  # of a loaded machine
labkit.run(lambda: None, on=labkit.local(1))
"""


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Return the first true value of condition(), failing where there is none in time."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)
    return value


@dataclass(frozen=True)
class Reply:
    """What a cell showed, and the error it raised: name, message, traceback as shown."""

    number: int
    text: str
    error: tuple[str, str, str] | None
    seconds: float


class Notebook:
    """A live kernel that cells are sent to."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(180)
        self.pid: int = self.manager.provisioner.pid
        reply = self.run(SETUP)
        assert reply.error is None, reply

    def start(self, code: str) -> str:
        return self.client.execute(code)

    def finish(self, message_id: str, seconds: float = 180.0) -> Reply:
        began, number, text, error = time.monotonic(), 0, "", None
        while True:
            message = self.client.get_iopub_msg(timeout=seconds)
            if message["parent_header"].get("msg_id") != message_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "execute_input":
                number = content["execution_count"]
            elif kind == "stream":
                text += content["text"]
            elif kind == "execute_result":
                text += content["data"]["text/plain"]
            elif kind == "error":
                shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
                error = (content["ename"], content["evalue"], shown)
            elif kind == "status" and content["execution_state"] == "idle":
                return Reply(number, text, error, time.monotonic() - began)

    def run(self, code: str) -> Reply:
        return self.finish(self.start(code))

    def processes(self) -> list[psutil.Process]:
        """Return everything below the kernel: the zygote, its ranks and what they started."""
        return psutil.Process(self.pid).children(recursive=True)

    def wait_for_ranks(self, count: int) -> list[psutil.Process]:
        """Return the zygote and all below it once there are count ranks or more that have begun their cell."""
        return wait_until(lambda: len(found := self.processes()) > count and found)

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


def noted(folder: Path) -> list[psutil.Process]:
    """Return the processes whose ids are the names of a folder's files, without those that have gone since."""
    found = []
    for file in folder.iterdir():
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(file.name)))
    return found


def alive(processes: list[psutil.Process]) -> list[int]:
    """Return which of these processes still live."""
    return [process.pid for process in processes if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it went between the two questions
        return False
