"""``labkit audit`` and ``labkit explain``: what is wrong with a distributed training run, and why it matters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labkit.commands.loading import load

app = typer.Typer()
_PANEL = "Learn"


@app.command(
    rich_help_panel=_PANEL, epilog="Example: labkit audit train.py --on virtual:8 --steps 4 -- --batch-size 32"
)
def audit(
    script: Annotated[Path, typer.Argument(help="The Python file.")],
    args: Annotated[list[str] | None, typer.Argument(help="The script's own arguments, after --.")] = None,
    on: Annotated[str, typer.Option(help="Virtual ranks, such as virtual:8.")] = "virtual:8",
    steps: Annotated[int | None, typer.Option(min=1, help="End after this many training steps.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write the findings to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to hand on.")] = None,
    against: Annotated[
        int | None, typer.Option(min=1, max=1, help="1: run it on one process, too, and compare values.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(help='Stop, resume and compare: "auto", or arguments that end it early, "--steps 2".'),
    ] = None,
    late: Annotated[
        bool, typer.Option("--late", help="Make one rank late after the other, and say whether the run ends the same.")
    ] = False,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Run again with what is slow changed, and say what that saves.")
    ] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Exit code 1 where anything is wrong, not only slow.")] = False,
    seed: Annotated[int, typer.Option(help="Rank r seeds torch, numpy and random with seed + r.")] = 0,
    timeout: Annotated[float | None, typer.Option(help="Seconds the run may take (default: no limit).")] = None,
    echo: Annotated[bool, typer.Option("--echo", help="Show what the ranks print.")] = False,
) -> None:
    """Run a training script on virtual ranks, and say what is wrong with it: rank, step, tensor, line."""
    found = load("labkit.auditing.command", "audited")(
        script, args or [], on, steps=steps, as_json=as_json, html=html, seed=seed, timeout=timeout, echo=echo,
        against=against, resume=resume, late=late, what_if=what_if,
    )  # fmt: skip
    typer.echo(str(found))
    if fail and found.is_wrong:
        raise typer.Exit(1)


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit explain replicas-drift")
def explain(rule: Annotated[str, typer.Argument(help="A rule, as a finding names it.")]) -> None:
    """Say what a rule of `labkit audit` looks at, why it matters, what to do, and which lesson explains it."""
    typer.echo(load("labkit.auditing.command", "explain")(rule))
