"""Run a rebuilt notebook with papermill, in a kernel of its own that cannot outstay its welcome.

An error in a cell does not stop the later ones, so that feedback covers the whole notebook. What runs too long is
interrupted, then ended; what prints too much is cut. Nothing here earns points.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook

from labkit.errors import EnvironmentProblem
from labkit.grading.limits import Limits
from labkit.grading.notebook.kernel_client import PromptClient
from labkit.grading.notebook.sandbox_specs import SandboxSpecs
from labkit.grading.preloaded.client import Preloaded
from labkit.grading.sandbox.environments import submission_environment
from labkit.grading.sandbox.memory_watch import MemoryWatch

ENGINE = "labkit"
_GRACE_SECONDS = 3.0
_MESSAGES_HELD = 128


@dataclass(frozen=True)
class CellRun:
    """What became of one code cell.

    Attributes:
        id: The cell's id.
        state: ``ok``, ``error``, ``timeout``, ``flood``, ``died`` (the kernel ended in it) or ``not_run``.
        error: The exception's name, "" if none.
        message: What it said.
        text: What the cell printed, cut.
    """

    id: str
    state: str
    error: str = ""
    message: str = ""
    text: str = ""


@dataclass(frozen=True)
class NotebookRun:
    """What became of a notebook: its code cells in order, the executed notebook, and one sentence."""

    cells: tuple[CellRun, ...]
    notebook: Any
    summary: str
    finished: bool


@dataclass
class _Record:
    """Where the engine leaves what it saw."""

    limits: Limits
    states: dict[int, str]
    notebook: Any = None
    deadline: float = math.inf
    cells: tuple[Any, ...] = ()
    stopped: str = ""
    out_of_memory: bool = False


class LabkitClient(PapermillNotebookClient):  # type: ignore[misc]
    """papermill's client with our limits on time and output."""

    def __init__(self, nb_man: Any, record: _Record, **kw: Any) -> None:
        super().__init__(nb_man, **kw)
        self._record = record
        self._seen_bytes: dict[int, int] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        record.notebook = self.nb
        record.cells = tuple(self.nb.cells)  # papermill inserts cells of its own where there is an error

    def execute(self, **kwargs: Any) -> Any:
        """Start the kernel, run the cells, end the kernel; ask nothing more of a kernel that may be dead."""
        self.reset_execution_trackers()
        with self.setup_kernel(**kwargs):
            self.papermill_execute_cells()
        return self.nb

    def papermill_execute_cells(self) -> None:
        """Run every code cell, whatever happens in the others, until the kernel or the time is gone."""
        self._record.deadline = time.monotonic() + self._record.limits.notebook_seconds  # the kernel is there
        for index, cell in enumerate(self.nb.cells):
            if cell.cell_type != "code" or not cell.source.strip():
                continue
            if self._record.deadline - time.monotonic() <= 0:
                self._record.stopped = "time"
                return
            self.nb_man.cell_start(cell, index)
            try:
                self.execute_cell(cell, index)
            except DeadKernelError:
                self._record.states.setdefault(index, "died")
                self._record.stopped = "kernel"
                return
            except CellTimeoutError:
                self._record.states.setdefault(index, "timeout")
                self.end_kernel()
                self._record.stopped = "kernel"
                return
            finally:
                self.nb_man.cell_complete(self.nb.cells[index], cell_index=index)

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Keep a cell's output up to the limit; interrupt a cell that floods."""
        if msg["msg_type"] in ("comm_open", "comm_msg", "comm_close"):
            return None  # the state of widgets is not kept, so it need not be held either
        if msg["msg_type"] not in ("stream", "display_data", "execute_result", "error", "update_display_data"):
            return super().process_message(msg, cell, cell_index)
        before = self._seen_bytes.get(cell_index, 0)
        seen = before + _size(msg["content"])
        self._seen_bytes[cell_index] = seen
        limits = self._record.limits
        if seen > limits.flood_bytes and self._record.states.get(cell_index) != "flood":
            self._record.states[cell_index] = "flood"
            self._soon(self.km.interrupt_kernel())
        if seen > limits.cell_output_bytes:
            if msg["msg_type"] == "error":
                return super().process_message(msg, cell, cell_index)
            if before <= limits.cell_output_bytes and msg["msg_type"] == "stream":
                room = limits.cell_output_bytes - before
                msg["content"]["text"] = msg["content"]["text"][:room] + "\n[the rest of the output was cut]\n"
                return super().process_message(msg, cell, cell_index)
            return None
        return super().process_message(msg, cell, cell_index)

    async def _async_handle_timeout(self, timeout: float, cell: Any = None) -> dict[str, Any]:
        """Interrupt the cell; if it does not end then, end the kernel."""
        index = self.nb.cells.index(cell)
        self._record.states[index] = "timeout"
        await _maybe(self.km.interrupt_kernel())
        reply: dict[str, Any]
        with suppress(Exception):
            reply = await _maybe(self.kc.shell_channel.get_msg(timeout=_GRACE_SECONDS))
            return reply
        self.end_kernel()
        raise DeadKernelError("the cell did not end when it was interrupted")

    def end_kernel(self) -> None:
        """End the kernel and its process group, or its sandbox, at once."""
        process = getattr(getattr(self.km, "provisioner", None), "process", None)
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _soon(self, awaitable: Any) -> None:
        if asyncio.iscoroutine(awaitable):
            task = asyncio.ensure_future(awaitable)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class LabkitEngine(NBClientEngine):  # type: ignore[misc]
    """papermill's engine with our client; registered below under the name "labkit"."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> None:
        """Run the notebook in `nb_man`; what happened is left in kwargs["record"]."""
        record: _Record = kwargs["record"]
        work: Path = kwargs["work"]
        sandbox: Sequence[Path] | None = kwargs["sandbox"]
        client = LabkitClient(
            nb_man,
            record,
            kernel_name=kernel_name,
            startup_timeout=60,
            timeout_func=lambda cell: max(0.1, min(record.limits.cell_seconds, record.deadline - time.monotonic())),
            allow_errors=True,
            record_timing=False,
            raise_on_iopub_timeout=False,
            iopub_timeout=10,
            coalesce_streams=True,
            store_widget_state=False,
            shutdown_kernel="immediate",
            resources={"metadata": {"path": str(work)}},
        )
        client.km = client.create_kernel_manager()
        client.km.context.setsockopt(zmq.MAXMSGSIZE, record.limits.kernel_message_bytes)
        client.km.context.setsockopt(zmq.RCVHWM, _MESSAGES_HELD)
        client.km.client_factory = PromptClient
        client.km.connection_file = str(work / "connection.json")
        if sandbox is None:
            client.km.transport = "ipc"
            client.km.ip = str(work / "kernel")
        else:
            client.km.kernel_spec_manager = SandboxSpecs(sandbox, record.limits, kwargs["preloaded"])
        client.owns_km = True
        with _memory_watch(client, record):
            client.execute(env=kwargs["environment"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


papermill_engines.register(ENGINE, LabkitEngine)


def _memory_watch(client: LabkitClient, record: _Record) -> MemoryWatch:
    def roots() -> Sequence[int]:
        provisioner = getattr(client.km, "provisioner", None)
        return getattr(provisioner, "roots", None) or [getattr(provisioner, "pid", None) or 0]

    def end() -> None:
        record.out_of_memory = True
        client.end_kernel()

    return MemoryWatch(roots, record.limits.kernel_memory_bytes, end)


def execute(
    notebook: Any,
    work: Path,
    limits: Limits | None = None,
    sandbox: Sequence[Path] | None = None,
    preloaded: Preloaded | None = None,
) -> NotebookRun:
    """Return what became of `notebook`, run in a fresh kernel in the folder `work`.

    Args:
        notebook: A rebuilt notebook (nbformat node); it is filled with its outputs.
        work: An empty folder, short enough for a socket's path.
        limits: Time, memory and output it may use.
        sandbox: Run it in a sandbox, which sees none of these files and folders; None for no sandbox.
        preloaded: Fork the kernel from it; else, and without a sandbox, the kernel is a new program.
    """
    limits = limits or Limits()
    record = _Record(limits, {}, notebook)
    failure = ""
    try:
        execute_notebook(
            notebook,
            None,
            engine_name=ENGINE,
            kernel_name="python3",
            progress_bar=False,
            record=record,
            work=work,
            sandbox=sandbox,
            preloaded=preloaded,
            environment=submission_environment(work),
        )
    except PapermillExecutionError:
        pass  # errors of cells are read from their outputs below
    except EnvironmentProblem:
        raise
    except Exception as error:  # whatever the kernel's side sends us, the notebook ends here and no points hang on it
        record.stopped = record.stopped or "start"
        failure = f"{type(error).__name__}: {error}"
    return _collect(record, failure)


def _collect(record: _Record, failure: str) -> NotebookRun:
    cells: list[CellRun] = []
    for index, cell in enumerate(record.cells or record.notebook.cells):
        if cell.cell_type == "code" and cell.source.strip():
            cells.append(_cell_run(cell, record.states.get(index)))
    ran = [cell for cell in cells if cell.state != "not_run"]
    if record.stopped == "start":
        summary = f"The kernel did not start, so the notebook could not be run ({failure})."
    elif record.stopped == "time":
        summary = f"The notebook used up its {record.limits.notebook_seconds:g} s; the cells after that were not run."
    elif record.stopped == "kernel":
        last = ran[-1]
        why = {
            "timeout": f"did not end within {record.limits.cell_seconds:g} s, nor when it was interrupted",
            "flood": "printed without end and did not stop when it was interrupted",
        }.get(last.state, "ended the kernel (an exit, a crash, or out of memory)")
        if record.out_of_memory:
            gigabytes = record.limits.kernel_memory_bytes / 1e9
            why = f"took more than the {gigabytes:.1f} GB of memory that a notebook and its ranks may have together"
        summary = f"Cell {last.id} {why}; the cells after it were not run."
    else:
        wrong = [cell for cell in ran if cell.state != "ok"]
        summary = (
            "Every cell ran." if not wrong else f"{len(ran) - len(wrong)} of {len(ran)} cells ran without an error."
        )
    return NotebookRun(tuple(cells), record.notebook, summary, not record.stopped)


def _cell_run(cell: Any, state: str | None) -> CellRun:
    error = next((output for output in cell.outputs if output.output_type == "error"), None)
    texts = [output.get("text", "") for output in cell.outputs if output.output_type == "stream"]
    texts += [
        output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
        if output.output_type in ("execute_result", "display_data")
    ]
    if state is None:
        state = "error" if error is not None else "ok" if cell.execution_count is not None else "not_run"
    return CellRun(
        str(cell.get("id", "")),
        state,
        str(error.ename)[:200] if error is not None else "",
        str(error.evalue)[:4000] if error is not None else "",
        "".join(texts)[:20_000],
    )


def _size(content: Mapping[str, Any]) -> int:
    """Return roughly how many bytes of output a message carries."""
    size = len(content.get("text", "")) if isinstance(content.get("text"), str) else 0
    data = content.get("data")
    if isinstance(data, dict):
        size += sum(len(value) if isinstance(value, str) else 1000 for value in data.values())
    size += sum(len(line) for line in content.get("traceback", []) or [])
    return size


async def _maybe(value: Any) -> Any:
    return await value if asyncio.iscoroutine(value) or asyncio.isfuture(value) else value
