"""One lesson with its answers, executed in a process of its own: what the report starts for each.

    python -m labkit.gpu_report.one_lesson SOURCE SECONDS

prints, as JSON, how far it got in so many seconds, and on which backend its runs were. It loads no torch.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError
from labkit.lessons.executed import execute
from labkit.lessons.source import load

_CELL_LIMIT_S = 600


class NoTimeLeft(Exception):
    """The lesson's time is over."""


def run_lesson(source: Path, seconds: float) -> dict[str, Any]:
    """Return what came of a lesson that has so many seconds."""
    lesson, begin_s = load(source), time.monotonic()
    until_s, begun = begin_s + seconds, 0

    def begins() -> None:
        nonlocal begun
        if time.monotonic() > until_s:
            raise NoTimeLeft
        begun += 1

    outcome, words = "ran through", ""
    with tempfile.TemporaryDirectory(prefix="labkit-report-") as folder:
        notes = Path(folder, "notes.jsonl")
        watch = f"from labkit.gpu_report.watched import begin\nbegin({str(notes)!r})\n"
        options: dict[str, Any] = {"first": watch, "steady": False, "until_s": until_s}
        try:
            execute(lesson, Path(folder), cell_timeout_s=_CELL_LIMIT_S, begins=begins, **options)
        except NoTimeLeft:
            outcome = "no time"
        except LabkitError as error:
            outcome, words = ("failed", str(error)) if time.monotonic() < until_s else ("no time", "")
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.is_file() else []
    noted = [json.loads(line) for line in lines]
    return {
        "lesson": lesson.name, "outcome": outcome, "words": words, "seconds": round(time.monotonic() - begin_s, 1),
        "cells": sum(cell.kind == "code" and cell.role != "slide-only" for cell in lesson.cells), "cells_begun": begun,
        "runs": dict(Counter(each["backend"] for each in noted if "backend" in each)),
        "checks": [each for each in noted if "exercise" in each],
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run_lesson(Path(sys.argv[1]), float(sys.argv[2]))))
