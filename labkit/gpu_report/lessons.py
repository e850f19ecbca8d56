"""Lessons with their answers on this host, several at a time where there are cores for it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import labkit
from labkit.errors import EnvironmentProblem
from labkit.interpreter import python, safe_pythonpath
from labkit.lessons.course import brought_course, source_files

NUMBERS = ("00", "01", "02", "03", "04")
"""The lessons that a report executes."""
_CORES_EACH = 3
_TO_END_S = 20.0
"""How long a lesson whose time is over may take to end its kernel."""


def lessons(until_s: float, found: Callable[[dict[str, Any]], None]) -> None:
    """Execute the lessons and report each when it is done.

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
        for done in as_completed([pool.submit(_one, path, until_s) for path in sources]):
            found(done.result())


def _one(source: Path, until_s: float) -> dict[str, Any]:
    """Return what came of one lesson, in a process of its own that finds this labkit."""
    left_s, nothing = until_s - time.monotonic(), {"cells": 0, "cells_begun": 0, "runs": {}, "checks": []}
    if left_s <= 0:
        return {"lesson": source.stem, "outcome": "no time", "words": "", "seconds": 0.0, **nothing}
    command = python("-m", "labkit.gpu_report.one_lesson", str(source), str(left_s))
    path = safe_pythonpath(os.environ, str(Path(labkit.__file__).parents[1]))
    begin_s = time.monotonic()
    try:
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=left_s + _TO_END_S
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        outcome, words = "no time", ""
    except (ValueError, IndexError):
        outcome, words = "failed", f"its process ended with code {done.returncode}: {done.stderr[-2000:]}"
    seconds = round(time.monotonic() - begin_s, 1)
    return {"lesson": source.stem, "outcome": outcome, "words": words, "seconds": seconds, **nothing}
