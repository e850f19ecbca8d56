"""Reading what a class wrote: `labkit review` beside nbgrader's formgrader, both in a headless Chromium."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.formgrader import Formgrader
from tests.benchmarks.table import Bar, ratio, table
from tests.benchmarks.views import headless
from tests.grading.written_answers import served, write_answers


def run(quick: bool) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table, the bars and the figures."""
    students, theirs = (40, 8) if quick else (300, 40)
    wrote = {
        f"student{n:03}": f"The mean is too small, says student {n} of group {n % 30}: it is divided twice."
        for n in range(students)
    }
    with tempfile.TemporaryDirectory(prefix="lk-bench-", dir="/var/tmp") as name, headless() as browser:
        found: dict[str, tuple[float, float] | None] = {"labkit review": _ours(browser, Path(name) / "ours", wrote)}
        try:
            course = Formgrader(Path(name) / "theirs", wrote, sys.executable)
            found["formgrader"] = course.seconds(browser, theirs)
        except (RuntimeError, OSError) as error:
            sys.stderr.write(f"formgrader: {error}\n")
            found["formgrader"] = None
    rows = [[each, *(f"{one:.3f}" for one in times)] for each, times in found.items() if times is not None]
    text = table([f"seconds, {students} answers", "opened", "from one to the next"], rows)
    ours, other = found["labkit review"], found["formgrader"]
    bars = [
        Bar(f"{what}, at {students} answers, at most formgrader's", ratio(ours and ours[at], other and other[at]), 1)
        for at, what in enumerate(("opening the page", "from giving points to reading the next answer"))
    ]
    return text, bars, {"students": students, "seconds": found}


def _ours(browser: Any, folder: Path, wrote: dict[str, str]) -> tuple[float, float]:
    """Return the seconds until all answers are there, and the median from one to the next, of all."""
    folder.mkdir()
    with served(write_answers(folder, wrote)) as link:
        page = browser.new_page()
        page.set_default_timeout(150_000)
        begin = time.perf_counter()
        page.goto(link)
        page.get_by_text(f"0 of {len(wrote)} answers read").wait_for()
        opened, between = time.perf_counter() - begin, []
        for count in range(1, len(wrote) + 1):
            begin = time.perf_counter()
            page.keyboard.press("1")
            page.keyboard.press("Enter")
            page.get_by_text(f"{count} of {len(wrote)} answers read").wait_for()
            between.append(time.perf_counter() - begin)
        page.close()
    return opened, median(between)
