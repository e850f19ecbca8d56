"""The solution notebook with its outputs: run in a fresh kernel of this Python, kept while its code is unchanged."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from labkit.checks.question import OWN
from labkit.errors import LessonError
from labkit.lessons import outputs_now
from labkit.lessons.lesson import Cell, Lesson
from labkit.lessons.notebook import as_notebook
from labkit.lessons.parameters import refuse_undeclared

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_TRACE_LINES = 20
_UNSTEADY = {
    "a memory address (give the object a repr without one)": re.compile(r"\b0x[0-9a-fA-F]{6,}\b"),
    "a date and time": re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d"),
    "a path of this machine": re.compile(r"/tmp/|\bipykernel_\d+|/(?:home/\w+|root|Users/\w+)/"),
}
_WIDGET = "application/vnd.jupyter.widget-view+json"


def solution_cells(lesson: Lesson) -> tuple[Cell, ...]:
    """Return the cells of the solution notebook: all but those for slides only."""
    return tuple(cell for cell in lesson.cells if cell.role != "slide-only")


def unexecuted(lesson: Lesson) -> Any:
    """Return the solution notebook as an nbformat node without outputs."""
    return as_notebook(lesson.manifest, solution_cells(lesson), answers=True)


def execute(
    lesson: Lesson,
    folder: Path,
    *,
    parameters: Mapping[str, Any] | None = None,
    cell_timeout_s: int = 600,
    begins: Callable[[], None] = lambda: None,
    first: str = "",
    steady: bool = True,
    until_s: float | None = None,
    own: Path | None = None,
) -> Any:
    """Return the solution notebook, executed from top to bottom.

    Args:
        lesson: What to run.
        folder: The kernel's working directory.
        parameters: Values for names that the lesson's ``parameters`` cell declares.
        cell_timeout_s: The longest one cell may take.
        begins: Called before each code cell.
        first: Code that the kernel runs before the first cell; it is in no notebook.
        steady: Whether outputs must be the same in every run.
        until_s: When all must be done, by time.monotonic(); a cell that then still runs took too long.
        own: A class's keys and recordings (labkit.checks.question.OWN); None for labkit's.

    Raises:
        LessonError: If a cell raises, takes too long or ends the kernel, if a parameter is not declared, or if an
            output holds what differs from run to run; the message names file, line and cell.
    """
    import nbclient

    notebook = unexecuted(lesson)
    _insert(notebook, parameters or {})
    plain_metadata = dict(notebook["metadata"])
    running = ""

    def note(cell: Any, cell_index: int) -> None:
        nonlocal running
        running = cell["id"]
        begins()

    limit_s = cell_timeout_s

    def patience(cell: Any) -> int:
        nonlocal limit_s
        if until_s is not None:
            limit_s = max(1, min(cell_timeout_s, round(until_s - time.monotonic())))
        return limit_s

    with tempfile.TemporaryDirectory(prefix="labkit-ipython-") as ipython_folder:
        if first:
            at_start = Path(ipython_folder, "profile_default", "startup", "first.py")
            at_start.parent.mkdir(parents=True)
            at_start.write_text(first, encoding="utf-8")
        client = _client(notebook, folder, patience, note, at_once=until_s is not None)
        try:
            settings = {"IPYTHONDIR": ipython_folder, "PYDEVD_DISABLE_FILE_VALIDATION": "1", "LABKIT_VIEWS": "kept"}
            client.execute(env=os.environ | {OWN: str(own or "")} | settings)
        except nbclient.exceptions.CellExecutionError as error:
            trace = _ANSI.sub("", error.traceback).strip().split("\n")[-_TRACE_LINES:]
            shown = "\n    ".join(trace)
            raise LessonError(f"{_at(lesson, running)} raised {error.ename}: {error.evalue}\n    {shown}") from error
        except nbclient.exceptions.CellTimeoutError as error:
            raise LessonError(
                f"{_at(lesson, running)} took more than {limit_s} s; make it smaller, or find out why it hangs."
            ) from error
        except nbclient.exceptions.DeadKernelError as error:
            raise LessonError(f"{_at(lesson, running)} ended the kernel (killed, or out of memory).") from error
    notebook["metadata"] = plain_metadata
    _drop_widgets(notebook)
    if steady and (troubles := list(problems(notebook))):
        raise LessonError("\n".join(f"{_at(lesson, identity)}: {why}." for identity, why in troubles))
    return notebook


def _client(
    notebook: Any, folder: Path, patience: Callable[[Any], int], note: Callable[..., None], *, at_once: bool
) -> Any:
    """Return what runs a notebook in a kernel of this Python.

    Args:
        notebook: What is run; its outputs are put into it.
        folder: The kernel's working directory.
        patience: Returns how long a cell may take, in seconds.
        note: Called before each code cell.
        at_once: Whether the kernel is ended at once when all is done, and not asked to end.
    """
    import nbclient
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    class ThisPython(KernelSpecManager):
        """Knows one kernel, that of the running interpreter, whatever kernelspecs this user has installed."""

        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
            return KernelSpec(argv=argv, display_name=kernel_name, language="python")

    class ThisKernel(AsyncKernelManager):
        """A kernel that nbclient owns, and therefore ends."""

        def _kernel_spec_manager_default(self) -> KernelSpecManager:
            return ThisPython()

    return nbclient.NotebookClient(
        notebook,
        timeout_func=patience,
        kernel_name="python3",
        kernel_manager_class=ThisKernel,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        on_cell_execute=note,
        shutdown_kernel="immediate" if at_once else "graceful",
    )


def _drop_widgets(notebook: Any) -> None:
    """Take out the views of live widgets, which a stored notebook cannot draw."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if _WIDGET in output.get("data", {}):
                del output["data"][_WIDGET]


def refreshed(lesson: Lesson, executed: Any) -> Any | None:
    """Return the lesson's notebook with the outputs of an earlier execution, or None if it must run again.

    Outputs stay while every code cell is what it was, in the same order, and the earlier execution was whole. Figures
    get the programs that draw them now.
    """
    notebook = unexecuted(lesson)
    fresh = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    old = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    if [cell["source"] for cell in fresh] != [cell["source"] for cell in old] or any(problems(executed)):
        return None
    for cell, before in zip(fresh, old, strict=True):
        outputs_now.draw_now(before)
        cell["outputs"], cell["execution_count"] = before["outputs"], before["execution_count"]
    return notebook


def problems(notebook: Any) -> Iterator[tuple[str, str]]:
    """Yield (cell id, what is wrong) where a notebook's execution is not one clean, repeatable run."""
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        found = cell.get("execution_count")
        if found is None:
            yield cell["id"], "was never executed"
        elif found != count:
            yield cell["id"], f"has execution count {found}, not {count}: not one run from top to bottom"
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                yield cell["id"], f"ended in {output['ename']}: {output['evalue']}"
        for text in _texts(cell):
            for what, pattern in _UNSTEADY.items():
                if match := pattern.search(text):
                    yield cell["id"], f"its output holds {what}: {_around(text, match)!r}"
        if "execution" in cell["metadata"]:
            yield cell["id"], "carries the times of its execution"
    if "widgets" in notebook["metadata"]:
        yield "", "the notebook carries widget state"


def _insert(notebook: Any, parameters: Mapping[str, Any]) -> None:
    """Set declared parameters by a line below their defaults."""
    refuse_undeclared(notebook, parameters)
    for cell in notebook["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            cell["source"] += "".join(f"\n{name} = {value!r}" for name, value in parameters.items())


def _texts(cell: Any) -> Iterator[str]:
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream":
            yield output["text"]
        for kind, content in output.get("data", {}).items():
            if kind.startswith("text/") or kind == "image/svg+xml":
                yield re.sub(r"base64,[A-Za-z0-9+/=\s]+", "", content)


def _around(text: str, match: re.Match[str]) -> str:
    start, end = max(0, match.start() - 30), match.end() + 20
    return text[start:end].replace("\n", " ").strip()


def _at(lesson: Lesson, identity: str) -> str:
    line = next((cell.line for cell in lesson.cells if cell.id == identity), 1)
    return f"{lesson.file}:{line}: cell {identity}"
