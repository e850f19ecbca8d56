"""Commands for whoever writes lessons: notebooks from their sources, new exercises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labkit.commands.loading import load

app = typer.Typer()
_PANEL = "Write lessons"


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit build 02")
def build(
    lessons: Annotated[list[str] | None, typer.Argument(help="Lessons to build, such as 02 (default: all).")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 if a file is not what its source says.")
    ] = False,
    execute: Annotated[bool, typer.Option(help="Run solutions whose code changed.")] = True,
    always: Annotated[bool, typer.Option("--always", help="Run every solution, changed or not.")] = False,
    course: Annotated[Path, typer.Option(help="The folder that holds solutions/, notebooks/, slides/.")] = Path(),
) -> None:
    """Write notebooks, executed solutions and slides from the lesson sources."""
    if not check:
        run = load("labkit.lessons.build", "build")
        with load("labkit.progress", "steps")("building") as told:
            report = run(course, lessons, execute, always=always, say=typer.echo, told=told)
        typer.echo(report)
        return
    drifted = load("labkit.lessons.build", "check")(course, lessons)
    for each in drifted:
        typer.echo(each, err=True)
    if drifted:
        raise typer.Exit(1)


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit new-exercise 02 'Ring plan'")
def new_exercise(
    lesson: Annotated[str, typer.Argument(help="The lesson it goes into, such as 02.")],
    title: Annotated[str, typer.Argument(help='Its title, such as "Ring plan".')],
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
    ranks: Annotated[bool, typer.Option("--ranks", help="The learner's function runs on several ranks.")] = False,
) -> None:
    """Write the files and cells of a new exercise; they work as they are, and say what to change."""
    for path in load("labkit.lessons.new_exercise", "new_exercise")(lesson, title, course, on_ranks=ranks):
        typer.echo(path)
