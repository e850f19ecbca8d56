"""A bar with the remaining time, for a command that takes long while somebody watches its terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Told = Callable[[str, int, int], None]
"""Called with what is done now, how many steps are done, and of how many."""


def untold(now: str, done: int, total: int) -> None:
    """Tell nobody."""


def bar(console: Console, doing: str) -> Progress:
    """Return the bar of one piece of work; its tasks have a field ``now``."""
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn())
    return Progress(*columns, *left, TextColumn("{task.fields[now]}", markup=False), console=console)


@contextmanager
def steps(doing: str, console: Console | None = None) -> Iterator[Told]:
    """Yield what a piece of work tells its steps to: a bar on stderr where that is a terminal, else nobody."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield untold
        return
    with bar(console, doing) as progress:
        task = progress.add_task(doing, total=None, now="")

        def told(now: str, done: int, total: int) -> None:
            progress.update(task, now=now, completed=done, total=total)

        yield told
