"""A bar that says when it will be done, for a command that takes long while somebody watches its terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

Told = Callable[[str, int, int], None]
"""Called with what is done now, how many steps are done, and of how many."""


def untold(now: str, done: int, total: int) -> None:
    """Tell nobody."""


class _DoneAt(ProgressColumn):
    """When it will be done, from the steps done since the start."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """Return "done at 17:42, in 12 min", "" before the first step is done."""
        begun = task.fields.setdefault("begun", task.completed)  # what an earlier run did took no time of this one
        did, elapsed = task.completed - begun, task.elapsed or 0.0
        if task.remaining is None or did <= 0:
            return Text("")
        left = elapsed / did * task.remaining
        at = time.strftime("%H:%M", time.localtime(time.time() + left))
        return Text(f"done at {at}, in {f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s'}" if left else "done")


def bar(console: Console, doing: str) -> Progress:
    """Return the bar of one piece of work; its tasks have a field ``now``, which is cut where the line is short."""
    now = TextColumn(
        "{task.fields[now]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
    )
    fixed = (MofNCompleteColumn(table_column=Column(no_wrap=True)), _DoneAt(Column(no_wrap=True)))
    name = TextColumn(doing, table_column=Column(no_wrap=True))
    return Progress(name, BarColumn(14), *fixed, now, console=console, expand=True)


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
