"""Hosts of one machine: network namespaces on a bridge, links shaped by tbf, each with a clock of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

NOTEBOOK = "10.77.0.100"
PORT = 8786


def words_why_not() -> str:
    """Return why hosts cannot be made here, "" where they can."""
    if sys.platform != "linux" or os.geteuid() != 0 or any(not shutil.which(each) for each in ("ip", "tc", "unshare")):
        return "hosts made of network namespaces take Linux, root, and the programs ip, tc and unshare"
    name = f"labkit-try-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"no network namespaces here: {done.stderr.strip()}"
    try:
        link = ["ip", "-n", name, "link", "add", "br0", "type", "bridge"]
        done = subprocess.run(link, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"no bridges here: {done.stderr.strip()}"
        done = subprocess.run(["unshare", "--time", "--monotonic", "1", "true"], capture_output=True, check=False)
        return f"no time namespaces here: {done.stderr.decode().strip()}" if done.returncode else ""
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@dataclass
class Hosts:
    """Some hosts, one for the notebook among them, and what runs on them.

    Attributes:
        count: How many, without the notebook's.
        folder: Where logs go.
        rate: Of each host's link in either direction, as tc says it; "" for no limit.
        offsets: Seconds that each host's clock is ahead of this machine's.
    """

    count: int
    folder: Path
    rate: str = ""
    offsets: tuple[int, ...] = ()
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def tag(self) -> str:
        return f"lk{os.getpid()}"

    def name(self, number: int) -> str:
        return f"{self.tag}-h{number}"

    def address(self, number: int) -> str:
        return f"10.77.0.{number + 1}"

    @property
    def notebook(self) -> str:
        return f"{self.tag}-nb"

    @property
    def switch(self) -> str:
        return f"{self.tag}-sw"

    def __enter__(self) -> Hosts:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number in range(self.count):
            self._host(self.name(number), self.address(number), f"p{number}")
        self._host(self.notebook, NOTEBOOK, "pnb")
        return self

    def _host(self, name: str, address: str, port: str) -> None:
        ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", self.switch)
        ip("-n", self.switch, "link", "set", port, "master", "br0", "up")
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        if self.rate and port != "pnb":
            for space, device in ((name, "eth0"), (self.switch, port)):
                shape = ["root", "tbf", "rate", self.rate, "burst", "256kb", "latency", "100ms"]
                subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", device, *shape], check=True, timeout=60)

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            for each in _tree(process.pid):
                with contextlib.suppress(psutil.Error):
                    each.kill()
            process.kill()
            process.wait(30)
        for name in [*map(self.name, range(self.count)), self.notebook, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=300, check=False)

    def start(self, name: str, space: str, *command: str, offset: int = 0, **environ: str) -> subprocess.Popen[bytes]:
        """Start a program on a host; its output goes to a file of its name."""
        clock = ["unshare", "--time", "--monotonic", str(offset), "--boottime", str(offset)] if offset else []
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", space, *clock, *command],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, env=os.environ | environ,
            )  # fmt: skip
        self.processes[name] = process
        return process

    def start_dask(self, *tls: str) -> str:
        """Start a scheduler on host 0 and a worker on each; return the scheduler's address."""
        python = (sys.executable, "-m")
        scheme = "tls" if tls else "tcp"
        address = f"{scheme}://{self.address(0)}:{PORT}"
        self.start(
            "scheduler", self.name(0), *python, "distributed.cli.dask_scheduler", "--host", address.rpartition(":")[0],
            "--port", str(PORT), "--no-dashboard", *tls,
        )  # fmt: skip
        for number in range(self.count):
            ahead = self.offsets[number] if self.offsets else 0
            self.start(
                f"worker{number}", self.name(number), *python, "distributed.cli.dask_worker", address,
                "--host", f"{scheme}://{self.address(number)}", "--name", f"host-{'abcdefgh'[number]}",
                "--no-dashboard", "--nthreads", "1", "--no-nanny", *tls, offset=ahead,
            )  # fmt: skip
        return address

    def on_notebook(self, program: str, name: str = "notebook", seconds: float = 240) -> str:
        """Return what a Python program prints on the notebook's host."""
        process = self.start_notebook(program, name)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the notebook's program did not end:\n{self.said(name)}")
        assert process.returncode == 0, self.said(name)
        return self.said(name)

    def start_notebook(self, program: str, name: str = "notebook") -> subprocess.Popen[bytes]:
        path = self.folder / f"{name}.py"
        path.write_text(program)
        return self.start(name, self.notebook, sys.executable, "-u", str(path))

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for(self, name: str, words: str, seconds: float = 120) -> str:
        """Return what a program has printed once these words are there."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            said = self.said(name)
            if words in said:
                return said
            if self.processes[name].poll() is not None:
                break
            time.sleep(0.05)
        pytest.fail(f"{name} did not say {words!r}:\n{self.said(name)}")

    def processes_on(self, number: int) -> list[psutil.Process]:
        """Return every process in a host's network."""
        done = subprocess.run(["ip", "netns", "pids", self.name(number)], capture_output=True, text=True, check=True)
        found = []
        for pid in done.stdout.split():
            with contextlib.suppress(psutil.Error):
                found.append(psutil.Process(int(pid)))
        return found

    def ranks_on(self, number: int) -> list[psutil.Process]:
        """Return the ranks on a host: forks of an agent's preloaded process, which itself leads a session."""
        found = []
        for each in self.processes_on(number):
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if "labkit.launch.zygote" in " ".join(each.cmdline()) and os.getsid(each.pid) != each.pid:
                    found.append(each)
        return found

    def nothing_left(self, numbers: list[int], seconds: float = 20) -> bool:
        """Return whether no rank is left on these hosts, waiting for it this long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not any(self.ranks_on(number) for number in numbers):
                return True
            time.sleep(0.1)
        return False

    def cut(self, number: int) -> None:
        """Take a host's link down."""
        ip("-n", self.switch, "link", "set", f"p{number}", "down")

    def signal(self, processes: list[psutil.Process], number: signal.Signals) -> None:
        for each in processes:
            with contextlib.suppress(psutil.Error):
                each.send_signal(number)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=300, capture_output=True)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []
