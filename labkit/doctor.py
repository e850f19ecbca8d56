"""The self-check in words: what this machine has, what is missing, and what that costs.

Nothing is read off a list where it can be tried: a sandbox is started, a port is bound, two ranks add two tensors.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Literal

from labkit.errors import LabkitError
from labkit.launch.local import default_start_method

State = Literal["ok", "note", "missing", "essential"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        topic: What was looked at, in one word.
        state: ``ok``; ``note`` (works, but know this); ``missing`` (something is not there, labs run without it);
            ``essential`` (labs cannot run).
        text: What was found.
        cost: What it costs you and what to do about it; empty if nothing.
    """

    topic: str
    state: State
    text: str
    cost: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the finding as plain data, for JSON."""
        return asdict(self)


def examine(jupyter_args: str = "") -> list[Finding]:
    """Return what this machine has and lacks, most basic first.

    Args:
        jupyter_args: The arguments JupyterLab will be started with; only its port is read.
    """
    _begin_to_load_torch_for_ranks()
    findings = [_python(), _cores(), _memory(), _disk(), _start_method(), *_torch()]
    if not any(finding.state == "essential" for finding in findings):
        findings.append(_two_ranks())
    return [*findings, _sandbox(), _port(jupyter_args), _jupyterlab(), *_browser()]


_UNDER = 11
"""Letters before what a finding costs."""


def as_text(findings: list[Finding], width: int = 0) -> str:
    """Return the findings as lines for a terminal, ending in one sentence that says whether labs can run.

    Args:
        findings: What was found.
        width: Letters of a line, no word of which is parted; 0 for those of this terminal.
    """
    width = width or shutil.get_terminal_size((200, 24)).columns
    mark: dict[State, str] = {"ok": "ok", "note": "note", "missing": "missing", "essential": "STOPS US"}
    lines = []
    for finding in findings:
        told = [f"  {mark[finding.state]:9}{finding.text}"]
        told += [f"{'':{_UNDER}}{line}" for line in finding.cost.splitlines()]
        for line in told:
            lines += wrap(line, max(width, 2 * _UNDER), subsequent_indent=" " * _UNDER)
    lines.append("")
    stopping = [finding.topic for finding in findings if finding.state == "essential"]
    missing = [finding.topic for finding in findings if finding.state == "missing"]
    if stopping:
        lines.append(f"Labs cannot run yet: see {', '.join(stopping)} above.")
    elif missing:
        lines.append(f"Labs can run; without {', '.join(missing)} they do less, as said above.")
    else:
        noted = any(finding.state == "note" for finding in findings)
        lines.append(f"Labs can run; nothing is missing{', and the notes need no action' if noted else ''}.")
    return "\n".join(lines)


def _python() -> Finding:
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.prefix == sys.base_prefix:
        return Finding("Python", "note", text, "It is not a virtual environment; `make setup` makes one in .venv.")
    return Finding("Python", "ok", text)


def _cgroup(name: str) -> str | None:
    path = Path("/sys/fs/cgroup") / name
    return path.read_text().strip() if path.is_file() else None


def _num_cores() -> float:
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota, _, period = (_cgroup("cpu.max") or "max").partition(" ")
    return cores if quota == "max" else min(cores, int(quota) / int(period or 100_000))


def _cores() -> Finding:
    cores = _num_cores()
    text = f"{cores:g} core{'s' if cores != 1 else ''}"
    if cores >= 4:
        return Finding("cores", "ok", text)
    return Finding(
        "cores",
        "note",
        text,
        f"You can run any number of ranks; beyond {max(1, int(cores))} they take turns, which shows in measured times.",
    )


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    if limit and limit != "max":
        total, free = min(total, int(limit)), min(free, int(limit) - int(used or 0))
    text = f"{total / 1e9:.1f} GB memory, {free / 1e9:.1f} GB free"
    if free < 2e9:
        cost = "A lesson's ranks need about 1 GB together; close something, or expect ranks to be killed."
        return Finding("memory", "missing", text, cost)
    return Finding("memory", "ok", text)


def _disk() -> Finding:
    here, temporary = Path.cwd(), Path(tempfile.gettempdir())
    free = {path: shutil.disk_usage(path).free for path in (here, temporary)}
    text = f"{free[here] / 1e9:.1f} GB disk free here"
    if here.stat().st_dev != temporary.stat().st_dev:
        text += f", {free[temporary] / 1e9:.1f} GB in {temporary}"
    if min(free.values()) < 1e9:
        return Finding("disk", "missing", text, "Runs record into temporary files; free 1 GB, or set TMPDIR elsewhere.")
    return Finding("disk", "ok", text)


def _start_method() -> Finding:
    if default_start_method() == "zygote":
        return Finding("start", "ok", "Ranks are forked from a preloaded process: a run starts in tenths of a second")
    return Finding(
        "start",
        "note",
        f"Ranks are spawned: this Python on {platform.system()} has no fork that is safe",
        "Each run takes some seconds to start; everything else is the same. Nobody has tried this platform yet.",
    )


def _begin_to_load_torch_for_ranks() -> None:
    """Start the process that ranks are forked from, so that it loads torch while this one does.

    Torch is loaded twice, as in every lesson: in the process that calls labkit.run, and in the one that is forked,
    because torch starts threads and a fork of a process with threads is not safe.
    """
    if default_start_method() == "zygote":
        from labkit.launch.preloaded import warm

        warm()


def _torch() -> Iterator[Finding]:
    try:
        import torch
        import torch.distributed as dist
    except (ImportError, OSError) as error:
        yield Finding("torch", "essential", f"torch does not load: {error}", "Install again: rm -r .venv; make setup")
        return
    if not dist.is_available() or not dist.is_gloo_available():
        cost = "Without gloo ranks on CPUs cannot talk. Install PyTorch's own build: rm -r .venv; make setup"
        yield Finding("gloo", "essential", f"torch {torch.__version__} was built without gloo", cost)
        return
    yield Finding("torch", "ok", f"torch {torch.__version__} with gloo")
    yield _gpus()


def _gpus() -> Finding:
    import torch

    from labkit.launch.gpus import gpus

    here = gpus()
    if not here.usable:
        cost = "Ranks run on the CPU over gloo; every lesson works. GPU code and NCCL are not used."
        if here.counted:
            text = f"{here.counted} counted, none usable: {here.problem}"
            return Finding("GPUs", "missing", f"GPUs: {text}", f"{cost}\nA driver that fits this torch would fix that.")
        if torch.version.cuda is None and shutil.which("nvidia-smi"):
            cost = (
                "nvidia-smi is here, but this torch is a CPU build: install a CUDA build into .venv to use the GPU.\n"
                "Until then ranks run on the CPU over gloo."
            )
        return Finding("GPUs", "note", "No GPU, no NCCL", cost)
    first = here.usable[0]
    text = f"{len(here.usable)} x {first.model}, {first.memory_bytes / 1e9:.0f} GB each, tried"
    if here.problem:
        text += f" ({here.counted - len(here.usable)} more cannot be used: {here.problem})"
    if not here.nccl:
        return Finding(
            "NCCL", "missing", f"{text}, but torch has no NCCL", "Ranks on GPUs use gloo, which is correct but slow."
        )
    text += f", NCCL {here.nccl}"
    if len(here.usable) == 1:
        cost = "Several ranks share the one GPU through gloo: collectives work, send and recv take CPU tensors."
        return Finding("GPUs", "note", text, cost)
    return Finding("GPUs", "ok", text)


def _sum_of_ranks() -> float:
    import torch
    import torch.distributed as dist

    value = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(value)
    return float(value.item())


def _two_ranks() -> Finding:
    from labkit.worlds import local, run

    try:
        results = run(_sum_of_ranks, on=local(2, device="cpu"), timeout=60.0, echo=False).results
    except LabkitError as error:
        cost = f"{error}\nIf it names an address: does this machine's loopback (127.0.0.1) work?"
        return Finding("ranks", "essential", "Two ranks tried to add two tensors and failed", cost)
    if results != [3.0, 3.0]:
        return Finding(
            "ranks", "essential", f"Two ranks added 1 and 2 over gloo and got {results}", "Please report it."
        )
    return Finding("ranks", "ok", "Two ranks started and added two tensors over gloo")


def _sandbox() -> Finding:
    """Start a program in a sandbox of its own namespaces, as grading does."""
    try:
        from labkit.grading.sandbox.bubblewrap import TRUSTED_ONLY, problem
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("labkit.grading"):
            raise
        return Finding("bubblewrap", "ok", "No sandbox needed: this copy of labkit is for students and does not grade")
    why = problem()
    if not why:
        return Finding("bubblewrap", "ok", "Submissions can be graded in a sandbox: one was started with bubblewrap")
    cost = f"Only grading needs it, to isolate submissions; lessons do not.\n{TRUSTED_ONLY}"
    return Finding("bubblewrap", "missing", f"No sandbox: {why}", cost)


def _asked_port(jupyter_args: str) -> int:
    words = jupyter_args.replace("=", " ").split()
    for flag, value in pairwise(words):
        if flag.lstrip("-") in ("port", "ServerApp.port") and value.isdigit():
            return int(value)
    return 8888


def _port(jupyter_args: str) -> Finding:
    port = _asked_port(jupyter_args)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            return Finding(
                "port",
                "note",
                f"Port {port} is not free ({os.strerror(error.errno or 0).lower()})",
                "JupyterLab takes the next free one: open the address it prints. To choose one: "
                'make lab ARGS="--port 8899"',
            )
    return Finding("port", "ok", f"Port {port} is free for JupyterLab")


def _jupyterlab() -> Finding:
    try:
        jupyterlab = importlib.import_module("jupyterlab")
    except ImportError as error:
        return Finding("JupyterLab", "essential", f"JupyterLab does not load: {error}", "rm -r .venv; make setup")
    return Finding("JupyterLab", "ok", f"JupyterLab {jupyterlab.__version__}")


def find_browser() -> str | None:
    """Return the path of a Chromium or Chrome, or None; the browser tests drive it."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def _browser() -> list[Finding]:
    """Look for Chromium in the full repository; no other copy has what drives it."""
    if not (Path(__file__).parents[1] / "tests" / "browser").is_dir():
        return []
    path = find_browser()
    if path is None:
        cost = "Only labkit's own tests and slides printed to PDF need it; use any browser for the lessons."
        return [Finding("Chromium", "note", "No Chromium", cost)]
    return [Finding("Chromium", "ok", f"Chromium for labkit's own tests and for slides as PDF ({path})")]
