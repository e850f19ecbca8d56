"""A bar where somebody watches a terminal, and nothing in a log."""

from __future__ import annotations

import io

from rich.console import Console

from labkit.progress import steps


def test_a_terminal_sees_how_far_the_work_is_and_what_is_left() -> None:
    screen = io.StringIO()
    with steps("building", Console(file=screen, force_terminal=True, width=120)) as told:
        told("02_ring_all_reduce", 3, 40)
    shown = screen.getvalue()
    assert "building" in shown and "3/40" in shown and "left" in shown and "02_ring_all_reduce" in shown


def test_a_log_sees_nothing() -> None:
    log = io.StringIO()
    with steps("building", Console(file=log)) as told:
        told("02_ring_all_reduce", 3, 40)
    assert log.getvalue() == ""
