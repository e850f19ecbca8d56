"""A bar where somebody watches a terminal, and nothing in a log."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from labkit.progress import bar, steps


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_of_any_width_sees_the_count_and_when_the_work_is_done(width: int) -> None:
    screen = io.StringIO()
    with bar(Console(file=screen, force_terminal=True, width=width), "grading") as progress:
        task = progress.add_task("", total=39, completed=3, now="Björn Köhler_5502_assignsubmission_file_: notebook")
        progress.refresh()
        progress.tasks[0].start_time = progress.get_time() - 32 * 60
        progress.update(task, completed=35)  # a minute each, and three that an earlier run did
        progress.refresh()
    last = [line for line in screen.getvalue().splitlines() if "grading" in line][-1]
    assert "grading" in last and "35/39" in last and "in 4 min" in last


def test_a_log_sees_nothing() -> None:
    log = io.StringIO()
    with steps("building", Console(file=log)) as told:
        told("02_ring_all_reduce", 3, 40)
    assert log.getvalue() == ""
