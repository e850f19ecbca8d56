"""papermill with our limits: a kernel cannot outstay its welcome, and of what it sends a bounded part is kept.

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import zmq
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook

from labkit.grading.guesses import revealed
from labkit.grading.limits import Limits
from labkit.grading.notebook.kernel_client import PromptClient
from labkit.grading.notebook.kernel_provisioner import SandboxProvisioner, Started
from labkit.grading.notebook.message_bounds import LONGEST_NAME, OUTPUTS, arrived_bytes, bounded_content, size_of
from labkit.grading.notebook.notebook_run import KERNEL, START, TIME, CellRun
from labkit.grading.notebook.sandbox_specs import SandboxSpecs
from labkit.grading.sandbox.environments import submission_environment

Ask = Callable[[Mapping[str, Any]], Started]
ENGINE = "labkit"
_MESSAGES_HELD = 16


@dataclass
class _Record:
    """Where the engine leaves what it saw."""

    limits: Limits
    states: dict[int, str]
    notebook: Any = None
    deadline: float = math.inf
    cells: tuple[Any, ...] = ()
    stopped: str = ""
    cells_seconds: float = 0.0


class LabkitClient(PapermillNotebookClient):  # type: ignore[misc]
    """papermill's client with our limits on time and output."""

    def __init__(self, nb_man: Any, record: _Record, **kw: Any) -> None:
        super().__init__(nb_man, **kw)
        self._record = record
        self._seen_bytes: dict[int, int] = {}
        self._errors_kept: set[int] = set()
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
                self._record.stopped = TIME
                return
            self.nb_man.cell_start(cell, index)
            begin = time.monotonic()
            try:
                self.execute_cell(cell, index)
            except DeadKernelError:
                self._record.states.setdefault(index, "died")
                self._record.stopped = KERNEL
                return
            except CellTimeoutError:
                self._record.states.setdefault(index, "timeout")
                self.end_kernel()
                self._record.stopped = KERNEL
                return
            finally:
                self._record.cells_seconds += time.monotonic() - begin
                self.nb_man.cell_complete(self.nb.cells[index], cell_index=index)

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Keep a cell's output up to the limit, every field of it bounded; interrupt a cell that floods."""
        kind = msg["msg_type"]
        if kind in ("status", "clear_output"):
            msg["content"] = {name: msg["content"].get(name) for name in ("execution_state", "wait")}
            return super().process_message(msg, cell, cell_index)
        if kind == "execute_input":
            cell["execution_count"] = cell_index + 1  # it ran; what number the kernel gave it is nobody's business
        if kind not in OUTPUTS:
            return None  # the state of widgets is not kept, so it need not be held either
        limits = self._record.limits
        before = self._seen_bytes.get(cell_index, 0)
        arrived = arrived_bytes(msg["content"])
        content = bounded_content(kind, msg["content"], max(0, limits.cell_output_bytes - before))
        msg["content"], msg["buffers"], msg["metadata"] = content, [], {}
        seen = self._seen_bytes[cell_index] = before + max(arrived, size_of(content))
        if seen > limits.flood_bytes and self._record.states.get(cell_index) != "flood":
            self._record.states[cell_index] = "flood"
            self._soon(self.km.interrupt_kernel())
        if seen > limits.cell_output_bytes:
            if kind == "error" and cell_index not in self._errors_kept:
                self._errors_kept.add(cell_index)
            elif kind == "stream" and before <= limits.cell_output_bytes:
                content["text"] += "\n[the rest of the output was cut]\n"
            else:
                return None
        return super().process_message(msg, cell, cell_index)

    async def _async_handle_timeout(self, timeout: float, cell: Any = None) -> dict[str, Any]:
        """Interrupt the cell; if it does not end then, end the kernel."""
        index = self.nb.cells.index(cell)
        self._record.states[index] = "timeout"
        await _maybe(self.km.interrupt_kernel())
        reply: dict[str, Any]
        with suppress(Exception):
            reply = await _maybe(self.kc.shell_channel.get_msg(timeout=self._record.limits.grace_seconds))
            return reply
        self.end_kernel()
        raise DeadKernelError("the cell did not end when it was interrupted")

    def end_kernel(self) -> None:
        """End the kernel and its process group, or its sandbox, at once."""
        provisioner = self.km.provisioner
        if isinstance(provisioner, SandboxProvisioner):
            provisioner.end_at_once()
        elif provisioner is not None and provisioner.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(provisioner.process.pid, signal.SIGKILL)

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
        ask: Ask | None = kwargs["ask"]
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
        if ask is None:
            client.km.transport = "ipc"
            client.km.ip = str(work / "kernel")
        else:
            client.km.kernel_spec_manager = SandboxSpecs(ask)
            client.km.write_connection_file = lambda **_: None  # whoever starts the kernel writes it
        client.owns_km = True
        client.execute(env=submission_environment(work), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


papermill_engines.register(ENGINE, LabkitEngine)


def run_notebook(notebook: Any, work: Path, limits: Limits, ask: Ask | None) -> dict[str, Any]:
    """Return what became of `notebook`, run in a fresh kernel, as plain data: `execute` reads it.

    Args:
        notebook: A rebuilt notebook (nbformat node).
        work: An empty folder, short enough for a socket's path.
        limits: Time and output it may use.
        ask: Has a kernel started in a sandbox; None starts one here, without.
    """
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
            ask=ask,
        )
    except PapermillExecutionError:
        pass  # errors of cells are read from their outputs below
    except Exception as error:  # whatever the kernel's side sends us, the notebook ends here and no points hang on it
        record.stopped = record.stopped or START
        failure = f"{type(error).__name__}: {error}"[:1000]
    listed = list(record.cells or record.notebook.cells)
    cells = [
        astuple(_cell_run(cell, record.states.get(index)))
        for index, cell in enumerate(listed)
        if cell.cell_type == "code" and cell.source.strip()
    ]
    told = {"cells": cells, "stopped": record.stopped, "failure": failure, "revealed": revealed(listed)}
    return {**told, "cells_seconds": record.cells_seconds}


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
        str(cell.get("id", ""))[:LONGEST_NAME],
        state,
        error.ename if error is not None else "",
        error.evalue if error is not None else "",
        "".join(texts)[:20_000],
    )


async def _maybe(value: Any) -> Any:
    return await value if asyncio.iscoroutine(value) or asyncio.isfuture(value) else value
