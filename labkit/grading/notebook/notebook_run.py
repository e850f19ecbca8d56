"""What became of a notebook that was run: plain data, and one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from labkit.checks.predictions import Plain
from labkit.grading.limits import Limits


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
    """What became of a notebook.

    Attributes:
        cells: Its code cells in order.
        summary: One sentence.
        finished: Whether it was run to its end.
        revealed: What it found, by prediction.
        cells_seconds: How long its cells took; for benchmarks only.
    """

    cells: tuple[CellRun, ...]
    summary: str
    finished: bool
    revealed: Mapping[str, Plain] = field(default_factory=dict)
    cells_seconds: float = 0.0


TIME, KERNEL, START, BROKEN = "time", "kernel", "start", "broken"
"""Why a notebook was not run to its end: see :func:`summary`."""


def summary(cells: Sequence[CellRun], stopped: str, failure: str, out_of_memory: bool, limits: Limits) -> str:
    """Return how a run went, in one sentence.

    Args:
        cells: Its code cells.
        stopped: Why it ended early: ``TIME``, ``KERNEL`` (it ended), ``START`` (it never came up), ``BROKEN`` (what it
            sent could not be read), or "" where it did not.
        failure: What was raised where it did not start.
        out_of_memory: Whether it was ended for its memory.
        limits: What it was allowed.
    """
    ran = [cell for cell in cells if cell.state != "not_run"]
    if out_of_memory:
        gigabytes = limits.kernel_memory_bytes / 1e9
        why = f"took more than the {gigabytes:.1f} GB of memory that a notebook and its ranks may have together"
        return f"{_last(ran)} {why}; the cells after it were not run."
    if stopped == BROKEN or (stopped == START and ran):
        return "What the notebook sent could not be read (too much at once, or no Jupyter messages), so it was ended."
    if stopped == START:
        return f"The kernel did not start, so the notebook could not be run ({failure})."
    if stopped == TIME:
        return f"The notebook used up its {limits.notebook_seconds:g} s; the cells after that were not run."
    if stopped == KERNEL:
        why = {
            "timeout": f"did not end within {limits.cell_seconds:g} s, nor when it was interrupted",
            "flood": "printed without end and did not stop when it was interrupted",
        }.get(ran[-1].state if ran else "", "ended the kernel (an exit, a crash, or out of memory)")
        return f"{_last(ran)} {why}; the cells after it were not run."
    num_wrong = sum(cell.state != "ok" for cell in ran)
    return "Every cell ran." if not num_wrong else f"{len(ran) - num_wrong} of {len(ran)} cells ran without an error."


def _last(ran: Sequence[CellRun]) -> str:
    return f"Cell {ran[-1].id}" if ran else "The notebook"
