"""Lessons with their answers, executed on this host: where each got to, and on which backend its runs were."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from labkit.errors import EnvironmentProblem, LabkitError
from labkit.lessons.course import brought_course, source_files
from labkit.lessons.executed import execute
from labkit.lessons.lesson import Lesson
from labkit.lessons.source import load

NUMBERS = ("00", "01", "02", "03", "04")
"""The lessons that a report executes."""
_CORES_EACH = 3
_LIMIT_S = 600


class NoTimeLeft(Exception):
    """The report's time is over."""


def lessons(until_s: float, found: Callable[[dict[str, Any]], None]) -> None:
    """Execute the lessons, several at a time where there are cores for it, and report each when it is done.

    Args:
        until_s: When to stop, by time.monotonic().
        found: Told of each lesson.

    Raises:
        EnvironmentProblem: If this copy of labkit has no sources of lessons; a student release has none.
    """
    sources = [path for path in source_files(brought_course()) if path.name[:2] in NUMBERS]
    if not sources:
        raise EnvironmentProblem("this copy of labkit has no lessons with answers; a checkout or a wheel has them")
    at_once = max(1, min(len(sources), (os.cpu_count() or 1) // _CORES_EACH))
    with ThreadPoolExecutor(at_once) as pool:
        for done in as_completed([pool.submit(_one, load(path), until_s) for path in sources]):
            found(done.result())


def _one(lesson: Lesson, until_s: float) -> dict[str, Any]:
    """Return what came of one lesson."""
    begun, begin_s = 0, time.monotonic()

    def begins() -> None:
        nonlocal begun
        if time.monotonic() > until_s:
            raise NoTimeLeft
        begun += 1

    outcome, words = "ran through", ""
    with tempfile.TemporaryDirectory(prefix="labkit-report-") as folder:
        notes = Path(folder, "notes.jsonl")
        watch = f"from labkit.gpu_report.watched import begin\nbegin({str(notes)!r})\n"
        try:
            if begin_s > until_s:
                raise NoTimeLeft
            execute(
                lesson, Path(folder), cell_timeout_s=_LIMIT_S, begins=begins, first=watch, steady=False, until_s=until_s
            )
        except NoTimeLeft:
            outcome = "no time"
        except LabkitError as error:
            outcome, words = ("failed", str(error)) if time.monotonic() < until_s else ("no time", "")
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.is_file() else []
    noted = [json.loads(line) for line in lines]
    checks = [each for each in noted if "exercise" in each]
    return {
        "lesson": lesson.name, "outcome": outcome, "words": words, "seconds": round(time.monotonic() - begin_s, 1),
        "cells": sum(cell.kind == "code" and cell.role != "slide-only" for cell in lesson.cells), "cells_begun": begun,
        "runs": dict(Counter(each["backend"] for each in noted if "backend" in each)), "checks": checks,
    }  # fmt: skip
