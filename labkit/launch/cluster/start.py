"""What Dask runs on a host: start the agent, and stay with it until it ends.

The agent is a process of its own: ranks are started from a process that is small and known, not from a Dask worker,
and a worker that stands still does not stop what the agent promised. It ends when the worker does, for its standard
input then ends, and the task that stays here ends it when it says nothing any more. What a killed agent leaves in the
temporary folder goes with the task.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from labkit.interpreter import python

_START_SECONDS = 60.0
_SILENT_SECONDS = 10.0
_LEAVE_SECONDS = 3.0

_agents: dict[str, tuple[subprocess.Popen[bytes], str]] = {}
"""Name of an agent -> its process and the folder in which its runs' folders are made."""


def start_agent(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what the agent says of itself once it listens: its port, process, host and versions; or {"problem": ...}.

    Args:
        name: Of the agent, for stay().
        settings: Its secret, the address to listen at, the interface of the ranks, and the notebook's root of labkit.
    """
    from distributed import get_worker

    security = get_worker().security
    files = None
    if settings.pop("tls"):
        parts = ("tls_ca_file", "tls_worker_cert", "tls_worker_key")
        files = {part: _text(getattr(security, part)) for part in parts}
        if files["tls_worker_key"] is None:  # one file may hold both
            files["tls_worker_key"] = files["tls_worker_cert"]
    root = str(Path(__file__).parents[3])
    code = f"import sys; sys.path.insert(0, {root!r}); from labkit.launch.cluster.agent import main; main()"
    process = subprocess.Popen(
        python("-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    folder = tempfile.mkdtemp(prefix="labkit-agent-")
    process.stdin.write(json.dumps(settings | {"files": files, "folder": folder}).encode() + b"\n")
    process.stdin.flush()
    line = _line(process, _START_SECONDS)
    try:
        about: dict[str, Any] = json.loads(line)
    except ValueError:
        process.kill()
        about = {"problem": f"its agent did not start (exit status {process.wait()})"}
    if "problem" in about:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        _agents[name] = process, folder
    return about


def stay(name: str) -> int:
    """Return the agent's exit status when it has ended; end it with the worker, and where it is silent for long."""
    from distributed import Status, get_worker, secede

    secede()  # type: ignore[no-untyped-call]  # the worker's threads stay free for other tasks
    (process, folder), worker = _agents.pop(name), get_worker()
    assert process.stdout is not None
    assert process.stdin is not None
    heard = time.monotonic()
    while process.poll() is None and worker.status in (Status.running, Status.paused):
        if _readable(process, 0.5):
            if not os.read(process.stdout.fileno(), 4096):
                break
            heard = time.monotonic()
        elif time.monotonic() - heard > _SILENT_SECONDS:
            process.kill()  # what it started ends with it
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.stdout.close()
    try:
        return process.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the agent did, unless it was killed


def _readable(process: subprocess.Popen[bytes], seconds: float) -> bool:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return the first line, or what there is of it when the process ends or the time is up."""
    assert process.stdout is not None
    data, until = b"", time.monotonic() + seconds
    while not data.endswith(b"\n") and time.monotonic() < until:
        if _readable(process, 0.5):
            more = os.read(process.stdout.fileno(), 1)
            if not more:
                break
            data += more
    return data


def _text(part: str | None) -> str | None:
    """Return a certificate or key, which Dask's settings hold as text or as the name of a file."""
    if part is None or "\n" in part:
        return part
    return Path(part).read_text(encoding="ascii")
