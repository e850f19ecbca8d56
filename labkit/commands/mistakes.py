"""Commands for mistakes that a class makes and no check names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labkit.commands.loading import load

_EXAMPLE = 'Example: labkit mistake add ring_plan anna.ipynb --name "goes round twice" --hint "Count the steps."'
app = typer.Typer(
    no_args_is_help=True, help="Mistakes that your class makes and no check names: give them a hint.", epilog=_EXAMPLE
)

Slug = Annotated[str, typer.Argument(help="The exercise, such as ring_plan.")]


@app.command(epilog=_EXAMPLE)
def add(
    exercise: Slug,
    notebook: Annotated[Path, typer.Argument(help="A student's notebook with the mistake in it.")],
    name: Annotated[str, typer.Option(help="A few words for it; the class board shows them.")],
    hint: Annotated[str, typer.Option(help="What everybody who makes it is told.")],
    sandbox: Annotated[
        str, typer.Option(help="How the answer is confined: bubblewrap, or none for a file you trust.")
    ] = "bubblewrap",
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/ and notebooks/.")] = None,
) -> None:
    """Name the mistake in a student's answer: labkit.check then gives your hint to everybody who makes it."""
    path = load("labkit.grading.class_mistakes", "add_mistake")(exercise, notebook, name, hint, course, sandbox)
    typer.echo(f"{path}: labkit.check({exercise!r}, ...) gives this hint from now on, and in the next `labkit release`")


@app.command(epilog='Example: labkit mistake remove ring_plan --name "goes round twice"')
def remove(exercise: Slug, name: Annotated[str, typer.Option(help="Of the mistake, as it was added.")]) -> None:
    """Take a mistake that was added away again."""
    typer.echo(load("labkit.grading.class_mistakes", "remove_mistake")(exercise, name))
