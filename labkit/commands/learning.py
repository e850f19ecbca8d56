"""Commands for whoever learns: the notebooks, this machine, own programs."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated

import typer

from labkit import __version__
from labkit.class_machines import as_table, read_machines
from labkit.commands.loading import load
from labkit.errors import ConfigError

app = typer.Typer()
_PANEL = "Learn"
_NOTEBOOKS = Annotated[Path, typer.Option(help="The folder with your notebooks.")]


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit lab --folder ~/lessons -- --port 8899")
def lab(
    arguments: Annotated[list[str] | None, typer.Argument(help="JupyterLab's own arguments, after --.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="The lessons' folder, written if missing (default: the course here, else labkit-lessons/)."),
    ] = None,
) -> None:
    """Check this machine, write the lessons if there are none yet, and open JupyterLab on the first."""
    raise typer.Exit(load("labkit.commands.lab", "open_lab")(folder, arguments or [], typer.echo))


_COLOURS = {"ok": "green", "note": "yellow", "missing": "yellow", "STOPS US": "red"}


def _coloured(found: re.Match[str]) -> str:
    """Return the word before a finding in its colour; where no terminal reads it, typer leaves the colour out."""
    return f"  {typer.style(found[1], fg=_COLOURS[found[1]])}"


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit doctor")
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    table: Annotated[
        list[Path] | None,
        typer.Option(
            help="Show other machines in a table instead: files that --json wrote there, or a folder of them."
        ),
    ] = None,
) -> None:
    """Say what this machine has, what is missing, and what that costs. Exit code 1 if labs cannot run."""
    if table:
        machines = read_machines(table)
        typer.echo(as_table(machines))
        if any(machine.problem or machine.gravity[0] == 3 for machine in machines):
            raise typer.Exit(1)
        return

    findings = load("labkit.doctor", "examine")()
    if as_json:
        typer.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        told = load("labkit.doctor", "as_text")(findings)
        whole, _, verdict = told.rpartition("\n")
        typer.echo(re.sub(rf"^  ({'|'.join(_COLOURS)})\b", _coloured, whole, flags=re.MULTILINE))
        states = {finding.state for finding in findings}
        colour = "red" if "essential" in states else "yellow" if "missing" in states else "green"
        typer.secho(verdict, fg=colour, bold=True)
    if any(finding.state == "essential" for finding in findings):
        raise typer.Exit(1)


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit catch-up 03 --pack answers.pack")
def catch_up(
    lesson: Annotated[str, typer.Argument(help="The lesson you want to begin, such as 03.")],
    pack: Annotated[Path | None, typer.Option(help="A pack of answers that your instructor gave you.")] = None,
    notebooks: _NOTEBOOKS = Path("notebooks"),
) -> None:
    """Get ready for a lesson although you have not finished the one before; what you wrote is kept."""
    load("labkit.lessons.catching_up", "catch_up")(lesson, _found(notebooks), pack, typer.echo)


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit reset 2.6")
def reset(
    exercise: Annotated[str, typer.Argument(help="The exercise, such as 2.6 or ring_sum.")],
    notebooks: _NOTEBOOKS = Path("notebooks"),
) -> None:
    """Restore one exercise to how it was handed out; your notebook is copied to kept/ first."""
    load("labkit.lessons.catching_up", "reset")(exercise, _found(notebooks), typer.echo)


def _found(notebooks: Path) -> Path:
    """Return the folder with the learner's notebooks, also for a terminal that was opened in it or below it."""
    if notebooks.is_dir():
        return notebooks
    here = Path().resolve()
    return next((each / notebooks for each in (here, *here.parents) if (each / notebooks).is_dir()), notebooks)


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit launch train.py --on virtual:64 --gpu h100 -- --steps 20")
def launch(
    script: Annotated[Path, typer.Argument(help="The Python file.")],
    args: Annotated[list[str] | None, typer.Argument(help="The script's own arguments, after --.")] = None,
    on: Annotated[
        str, typer.Option(help="Where it runs: virtual:64, or local:4 for processes of this host.")
    ] = "local:2",
    gpu: Annotated[str | None, typer.Option(help="The virtual accelerator (default: h100).")] = None,
    link: Annotated[str | None, typer.Option(help="What connects accelerators within a node, such as nvlink4.")] = None,
    nic: Annotated[str | None, typer.Option(help="What connects the nodes, such as ib_ndr.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="Virtual accelerators in each node.")] = None,
    memory: Annotated[str | None, typer.Option(help='Memory of each accelerator, such as "16 GB".')] = None,
    launch_us: Annotated[
        float | None, typer.Option(help="Microseconds in which the host issues one operator (default: 4).")
    ] = None,
    cuda: Annotated[bool | None, typer.Option(help="Show accelerators as CUDA devices (the default).")] = None,
    kill: Annotated[
        list[str] | None, typer.Option(help="Kill a rank: 3@step:100, 3@call:20, 3@file:2 or 3@1.5s; may be repeated.")
    ] = None,
    restarts: Annotated[int, typer.Option(help="Start all ranks again so often, as torchrun does.")] = 0,
    shapes: Annotated[
        bool, typer.Option("--shapes", help="Compute no values: a model needs no memory of this host.")
    ] = False,
    fold: Annotated[
        str | None, typer.Option(help="Run two of the replicas, of so many ranks each: 8, or 8x64 (with --shapes).")
    ] = None,
    kernels: Annotated[
        Path | None, typer.Option(help="A Python file that states costs with labkit.hardware.kernel; run before.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Rank r seeds torch, numpy and random with seed + r.")] = 0,
    timeout: Annotated[float | None, typer.Option(help="Seconds the run may take (default: no limit).")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the timeline: .npz or .json to load, .html to open in a browser.")
    ] = None,
) -> None:
    """Run a training script as torchrun would, on virtual accelerators or on processes of this host."""
    hardware: dict[str, object] = {"gpu": gpu, "link": link, "nic": nic, "gpus_per_node": gpus_per_node}
    hardware |= {"memory": memory, "cuda": cuda, "launch_us": launch_us, "shapes": shapes or None, "fold": fold}
    run = load("labkit.commands.launch_script", "launch")
    run(
        script, args or [], on, hardware, kills=kill or [], restarts=restarts, kernels=kernels, timeout=timeout,
        seed=seed, out=out, say=typer.echo,
    )  # fmt: skip


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit crash-test train.py --on virtual:4 --json crashes.json")
def crash_test(
    script: Annotated[Path, typer.Argument(help="The Python file.")],
    args: Annotated[list[str] | None, typer.Argument(help="The script's own arguments, after --.")] = None,
    on: Annotated[str, typer.Option(help="Where it runs: virtual:N.")] = "virtual:2",
    gpu: Annotated[str | None, typer.Option(help="The virtual accelerator (default: h100).")] = None,
    cuda: Annotated[bool | None, typer.Option(help="Show accelerators as CUDA devices (the default).")] = None,
    restarts: Annotated[int, typer.Option(help="How often it may fail to start before it counts as unable to.")] = 2,
    limit: Annotated[int, typer.Option(help="How many crash points are tried at most, evenly spaced.")] = 200,
    seed: Annotated[int, typer.Option(help="Rank r seeds torch, numpy and random with seed + r.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds of real time that one run may take.")] = 120.0,
    out: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON.")] = None,
) -> None:
    """Crash a script at every moment that leaves another state, restart it, and compare how it ends.

    Exit code 1 if a crash leaves it wrong, stuck or unable to start. One that only loses work says so and ends with 0.
    It runs in copies of the current folder.
    """
    test = load("labkit.commands.crash_test", "crash_test")
    report = test(
        script, args or [], on, {"gpu": gpu, "cuda": cuda}, restarts=restarts, limit=limit, seed=seed, timeout=timeout,
        out=out, say=typer.echo,
    )  # fmt: skip
    if not report.only_lost_work:
        raise typer.Exit(1)


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit export 02 --out ring.py")
def export(
    lesson: Annotated[str, typer.Argument(help="A lesson such as 02, or a notebook's path.")],
    function: Annotated[str, typer.Option(help="The function every rank runs.")] = "main",
    out: Annotated[Path | None, typer.Option(help="The script to write (default: beside the notebook).")] = None,
    course: Annotated[Path, typer.Option(help="The folder that holds solutions/ and notebooks/.")] = Path(),
) -> None:
    """Write the script that torchrun starts, from a notebook's exported cells."""
    typer.echo(load("labkit.lessons.export", "export")(lesson, function=function, out=out, course=course))


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit calibrate --out host.json")
def calibrate(
    out: Annotated[Path | None, typer.Option(help="The JSON file to write.")] = None,
) -> None:
    """Measure this host for `labkit.virtual(n, gpu=labkit.hardware.load("host.json"))`; takes half a minute."""
    measure, as_text = (load("labkit.calibration", name) for name in ("calibrate", "as_text"))
    if out is not None and out.is_dir():
        raise ConfigError(
            f"{out} could not be written: it is a folder; name a file in it, such as {out / 'host.json'}."
        )
    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError(f"{out} could not be written: make the folder {out.absolute().parent}, or name another file.")
    host = measure(say=lambda text: typer.echo(f"measuring {text}", err=True))
    typer.echo(as_text(host))
    if out is not None:
        host.save(out)
        typer.echo(f"Written to {out}.")


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit gpu-report --out h100 --minutes 15")
def gpu_report(
    out: Annotated[Path, typer.Option(help="The report's name: .json and .html are written.")] = Path("gpu-report"),
    minutes: Annotated[
        float, typer.Option(help="After this time nothing new is begun; what is left out is named.")
    ] = 15,
    only: Annotated[
        str, typer.Option(help="Some parts, in this order: timelines,all-reduce,gpt,tests,lessons (default: all).")
    ] = "",
    rehearse: Annotated[bool, typer.Option(help="On the CPU, to see what a report looks like.")] = False,
) -> None:
    """Try labkit on this host's GPUs and write what came of it, for others: nothing private is in it."""
    report = load("labkit.gpu_report.report", "gpu_report")
    wanted = [part.strip() for part in only.split(",") if part.strip()]
    report(out, minutes=minutes, only=wanted, rehearse=rehearse, say=typer.echo)
    typer.echo(
        f"Written to {out.with_suffix('.json')} and {out.with_suffix('.html')}; look through them, and send both."
    )


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit version")
def version() -> None:
    """Print the version of labkit, Python and torch."""

    typer.echo(f"labkit {__version__}, Python {sys.version.split()[0]}, torch {installed('torch')}")
