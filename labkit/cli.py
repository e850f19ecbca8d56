"""The ``labkit`` command: one function a command, each a thin shell over one function of the package.

Modules are imported when their command runs, so that ``labkit --help`` is quick and loads no torch.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from labkit import __version__
from labkit.doctor import BROWSERS, as_text, examine, find_browser
from labkit.errors import ConfigError, EnvironmentProblem, LabkitError


class _Commands(TyperGroup):
    """Ends a command that raised a LabkitError with one clean message and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Return what the command returns; ``--debug`` lets errors through with their traceback."""
        try:
            return super().invoke(ctx)
        except LabkitError as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"labkit: {error}", err=True)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Learn distributed training by building it: self-check, notebooks from their sources, export, grading.",
)


try:
    app.add_typer(import_module("labkit.grading.book.mark_commands").app, name="gradebook")
    app.add_typer(import_module("labkit.grading.book.roster_commands").app, name="roster")
except ModuleNotFoundError:
    pass  # a student release has no grading


def main() -> None:
    """Run the command line; the entry point that pip installs as ``labkit``."""
    app()


def _load(module: str, function: str) -> Any:
    """Return one function of the package, or say that this copy of labkit lacks it (a student release does)."""
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("labkit"):
            raise
        raise EnvironmentProblem(
            f"this copy of labkit has no {error.name}; it is part of the full repository, not of a student release"
        ) from error


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


@app.command()
def version() -> None:
    """Print the version of labkit, Python and torch."""

    typer.echo(f"labkit {__version__}, Python {sys.version.split()[0]}, torch {installed('torch')}")


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    jupyter_args: Annotated[str, typer.Option(help="Arguments JupyterLab will get, to look at its port.")] = "",
) -> None:
    """Say what this machine has, what is missing, and what that costs. Exit code 1 if labs cannot run."""

    findings = examine(jupyter_args=jupyter_args)
    if as_json:
        typer.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        typer.echo(as_text(findings))
    if any(finding.state == "essential" for finding in findings):
        raise typer.Exit(1)


@app.command()
def calibrate(
    out: Annotated[Path | None, typer.Option(help="The JSON file to write.")] = None,
) -> None:
    """Measure this host for `labkit.virtual(n, gpu=labkit.hardware.load("host.json"))`; takes half a minute."""
    measure, as_text = (_load("labkit.calibration", name) for name in ("calibrate", "as_text"))
    host = measure(say=lambda text: typer.echo(f"measuring {text}", err=True))
    typer.echo(as_text(host))
    if out is not None:
        host.save(out)
        typer.echo(f"written to {out}")


@app.command()
def launch(
    script: Annotated[Path, typer.Argument(help="The Python file.")],
    args: Annotated[list[str] | None, typer.Argument(help="Its own arguments, after --.")] = None,
    on: Annotated[str, typer.Option(help="The world: virtual:64, or local:4 for processes of this host.")] = "local:2",
    gpu: Annotated[str | None, typer.Option(help="Virtual accelerators, such as h100 (the default).")] = None,
    link: Annotated[str | None, typer.Option(help="What connects those of a node, such as nvlink4.")] = None,
    nic: Annotated[str | None, typer.Option(help="What connects nodes, such as ib_ndr.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="Virtual accelerators of a node.")] = None,
    memory: Annotated[str | None, typer.Option(help='What each accelerator holds, such as "16 GB".')] = None,
    cuda: Annotated[bool | None, typer.Option(help="Show virtual accelerators as CUDA devices (the default).")] = None,
    seed: Annotated[int, typer.Option(help="Rank r seeds torch, numpy and random with seed + r.")] = 0,
    timeout: Annotated[float | None, typer.Option(help="Seconds the run may take (default: no limit).")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the timeline: .npz or .json to load, .html to look at.")
    ] = None,
) -> None:
    """Run a training script as torchrun would, on virtual accelerators or on processes of this host."""
    hardware = {"gpu": gpu, "link": link, "nic": nic, "gpus_per_node": gpus_per_node, "memory": memory, "cuda": cuda}
    run = _load("labkit.launch_command", "launch")
    run(script, args or [], on, hardware, timeout=timeout, seed=seed, out=out, say=typer.echo)


@app.command()
def build(
    lessons: Annotated[list[str] | None, typer.Argument(help="Lessons to build, such as 02; all if none.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 1 if a file drifted.")] = False,
    execute: Annotated[bool, typer.Option(help="Run solutions whose code changed.")] = True,
    always: Annotated[bool, typer.Option("--always", help="Run every solution, changed or not.")] = False,
    course: Annotated[Path, typer.Option(help="The folder that holds solutions/, notebooks/, slides/.")] = Path(),
) -> None:
    """Write notebooks, executed solutions and slides from the lesson sources."""
    if not check:
        run = _load("labkit.lessons.build", "build")
        typer.echo(run(course, lessons, execute, always=always, say=typer.echo))
        return
    drifted = _load("labkit.lessons.build", "check")(course, lessons)
    for each in drifted:
        typer.echo(each, err=True)
    if drifted:
        raise typer.Exit(1)


@app.command()
def new_exercise(
    lesson: Annotated[str, typer.Argument(help="The lesson that gets it, such as 02.")],
    title: Annotated[str, typer.Argument(help='What it is called, such as "Ring plan".')],
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
) -> None:
    """Write the files of a new exercise and its cells; they work as they stand, and say what to change."""
    for path in _load("labkit.lessons.new_exercise", "new_exercise")(lesson, title, course):
        typer.echo(path)


_NOTEBOOKS = Annotated[Path, typer.Option(help="The folder with your notebooks.")]


@app.command()
def catch_up(
    lesson: Annotated[str, typer.Argument(help="The lesson you want to begin, such as 03.")],
    pack: Annotated[Path | None, typer.Option(help="A pack of answers that your instructor gave you.")] = None,
    notebooks: _NOTEBOOKS = Path("notebooks"),
) -> None:
    """Make you ready for a lesson though you have not finished the one before; what you wrote stays yours."""
    _load("labkit.lessons.catching_up", "catch_up")(lesson, notebooks, pack, typer.echo)


@app.command()
def reset(
    exercise: Annotated[str, typer.Argument(help="The exercise, such as 2.6 or ring_sum.")],
    notebooks: _NOTEBOOKS = Path("notebooks"),
) -> None:
    """Put one exercise back as it was handed out; your notebook as it was goes into kept/."""
    _load("labkit.lessons.catching_up", "reset")(exercise, notebooks, typer.echo)


@app.command()
def upgrade(
    notebooks: _NOTEBOOKS = Path("notebooks"),
    book: Annotated[
        str | None, typer.Option(help="Upgrade a gradebook instead: a file, or postgresql+psycopg://user@host/name.")
    ] = None,
) -> None:
    """Carry notebooks or a gradebook of the first edition over to this one; nothing written is lost."""
    if book is not None:
        typer.echo(_load("labkit.grading.book.upgrading", "upgrade_book")(book))
        return
    _load("labkit.lessons.upgrading", "upgrade")(notebooks, typer.echo)


@app.command()
def pack(
    lesson: Annotated[str, typer.Argument(help="The lesson whose answers the room gets, such as 02.")],
    out: Annotated[Path, typer.Option(help="The file to write.")],
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
) -> None:
    """Write a lesson's answers as a file for `labkit catch-up --pack`; hand it out when the room goes on."""
    packed = _load("labkit.lessons.catching_up", "write_pack")(lesson, out, course)
    typer.echo(f"{out}: {len(packed.answers)} answers of {packed.lesson}")


@app.command()
def slides(
    lessons: Annotated[list[str] | None, typer.Argument(help="Lessons, such as 02; everything if none.")] = None,
    workshop: Annotated[list[Path] | None, typer.Option(help="The plan of a workshop, a TOML file.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the decks.")] = Path("build/slides"),
    pdf: Annotated[bool, typer.Option("--pdf", help="Print each deck as PDF too; needs Chromium.")] = False,
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
) -> None:
    """Write decks with speaker notes that need no network: a lesson's slides, figures and exercises."""

    browser = find_browser() if pdf else None
    if pdf and browser is None:
        raise EnvironmentProblem(f"printing slides needs Chromium (none of {', '.join(BROWSERS)} is there)")
    write = _load("labkit.lessons.decks", "write_decks")
    write(lessons or [], workshop or [], out, course=course, browser=browser, say=typer.echo)


@app.command()
def export(
    lesson: Annotated[str, typer.Argument(help="A lesson such as 02, or a notebook's path.")],
    function: Annotated[str, typer.Option(help="The function every rank runs.")] = "main",
    out: Annotated[Path | None, typer.Option(help="The script to write (default: beside the notebook).")] = None,
    course: Annotated[Path, typer.Option(help="The folder that holds solutions/ and notebooks/.")] = Path(),
) -> None:
    """Write the script that torchrun starts, from a notebook's exported cells."""
    typer.echo(_load("labkit.lessons.export", "export")(lesson, function=function, out=out, course=course))


@app.command()
def export_nbgrader(
    lesson: Annotated[str, typer.Argument(help="A lesson such as 02.")],
    out: Annotated[Path, typer.Option(help="The folder of the nbgrader course; the notebook goes to its source/.")],
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
) -> None:
    """Write a lesson as an assignment of nbgrader, with its cell metadata and solution regions."""
    typer.echo(_load("labkit.grading.handout.nbgrader_export", "export_nbgrader")(lesson, out, course))


@app.command()
def release(
    destination: Annotated[Path, typer.Argument(help="The folder to write: new, empty, or of an earlier release.")],
    lesson: Annotated[list[str] | None, typer.Option(help="Only this lesson, such as 02; may be repeated.")] = None,
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/ and notebooks/.")] = None,
) -> None:
    """Write what students get: no answers, no hidden cases, no grading; searched before it is written."""
    typer.echo(_load("labkit.grading.handout.release", "release")(destination, lesson or (), course))


@app.command()
def review(
    out: Annotated[Path, typer.Argument(help="What was --out of labkit grade, recorded in the gradebook.")],
    by: Annotated[str, typer.Option(help="Who reads; kept beside every point.")],
    book: Annotated[
        str, typer.Option(envvar="LABKIT_GRADEBOOK", help="A file, or postgresql+psycopg://user@host/name.")
    ] = "sqlite:///gradebook.db",
    port: Annotated[int, typer.Option(help="The TCP port; 0 for any free one.")] = 0,
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
) -> None:
    """Read what students wrote: a page with all answers to a question and its rubric; points go to the gradebook."""

    def say(link: str) -> None:
        typer.echo(f"Review: {link}")
        typer.echo("The link is for this machine and this run. Points are kept as you give them; Ctrl+C ends the page.")

    _load("labkit.grading.review.command", "review")(out, book, by, port, course, say)


@app.command()
def board(
    results: Annotated[Path, typer.Option(help="The SQLite file; the same file again goes on with the class.")] = Path(
        "class-board.sqlite"
    ),
    host: Annotated[str, typer.Option(help="The address to listen on (default: all of this machine).")] = "",
    port: Annotated[int, typer.Option(help="The TCP port.")] = 8321,
    course: Annotated[Path | None, typer.Option(help="The folder that holds notebooks/.")] = None,
) -> None:
    """Show a room's progress: learners join with the class link, results of labkit.check appear on its page."""
    exercises = _load("labkit.lessons.course", "exercise_titles")(course)

    def say(link: str) -> None:
        typer.echo(f"Class board: {link}")
        typer.echo(f'Learners run once, in any notebook: labkit.join_class("{link}", "a nickname")')
        typer.echo("Whoever has the link can see the page and send results. Ctrl+C ends the board; results stay.")

    def score(exercise: str, plans: object) -> float:
        value: float = _load("labkit.checks.challenge", "relative_score")(
            _load("labkit.checks.rooms", "find")(exercise), plans
        )
        return value

    _load("labkit.board.server", "serve")(results, exercises, host, port, say, score)


@app.command()
def copies(
    lesson: Annotated[str, typer.Option(help="The lesson, such as 02.")],
    paths: Annotated[list[Path], typer.Argument(help="Notebooks, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The page to write.")],
    earlier: Annotated[list[Path] | None, typer.Option(help="An earlier year's folder; may be repeated.")] = None,
    pack: Annotated[list[Path] | None, typer.Option(help="A pack you handed out; may be repeated.")] = None,
    book: Annotated[
        str | None, typer.Option(envvar="LABKIT_GRADEBOOK", help="The gradebook that knows which cases are closed.")
    ] = None,
    course: Annotated[Path | None, typer.Option(help="The folder that holds notebooks/.")] = None,
) -> None:
    """Say whose submissions are alike, and write a page with their code side by side."""
    closed = _load("labkit.grading.book.commands", "closed_cases")(book) if book else {}
    write = _load("labkit.grading.reports.copies_command", "write_copies")
    found = write(paths, lesson, out, earlier or (), pack or (), course, closed)
    for case in found.cases:
        names = ", ".join(case.names[:12]) + (f" and {len(case.names) - 12} more" if len(case.names) > 12 else "")
        note = f" (closed: {closed[case.id]})" if case.id in closed else ""
        typer.echo(f"{case.id}  {case.kind}, {case.share:.0%}: {names}{note}")
    if found.from_pack:
        typer.echo(f"cells from a pack: {', '.join(found.from_pack)}")
    typer.echo(f"{out}: {len(found.cases)} cases")


@app.command()
def grade(
    lesson: Annotated[str, typer.Option(help="The lesson, such as 02.")],
    paths: Annotated[list[Path] | None, typer.Argument(help="Notebooks, or folders of them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where reports and the gradebook go.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Submissions graded at a time (default: by cores).")] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Grade on a Dask cluster instead, such as tcp://HOST:8786.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(envvar="LABKIT_CLASS_KEY", help="The class key's file (default: beside the gradebook; made)."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Grade everybody, also who has a result already.")] = False,
    points_only: Annotated[
        bool, typer.Option("--points-only", help="Do not run the notebooks; points rest on hidden cases alone.")
    ] = False,
    second_run: Annotated[
        bool,
        typer.Option(
            "--second-run/--no-second-run",
            help="What fails beside something it needs is tried once more with reference answers for that.",
        ),
    ] = True,
    sandbox: Annotated[
        str, typer.Option(help="How submissions are confined: bubblewrap, or none for input you trust.")
    ] = "bubblewrap",
    fail_under: Annotated[
        float | None, typer.Option(help="Exit code 1 if a score is below this many percent (for a student's CI).")
    ] = None,
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/ and notebooks/.")] = None,
    gradescope: Annotated[
        Path | None, typer.Option(help="Grade nothing: write the lesson's autograder for Gradescope to this zip.")
    ] = None,
) -> None:
    """Grade submissions: feedback for each student, a gradebook for the class."""
    if gradescope is not None:
        typer.echo(_load("labkit.grading.handout.gradescope", "write_autograder")(gradescope, lesson, course, key))
        return
    if not paths or out is None:
        raise ConfigError("name notebooks or folders of them, and with --out where reports go")
    # A worker loads torch while we load the rest.
    spare = None if dask else _load("labkit.grading.workers.worker_process", "WorkerProcess")()
    in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
    place = ("labkit.grading.reports.github", "grade_in_actions") if in_actions else ("labkit.grading.grade", "grade")
    run = _load(*place)
    report = run(
        paths,
        lesson=lesson,
        out=out,
        jobs=jobs,
        key=key,
        course=course,
        again=again,
        sandbox=sandbox,
        points_only=points_only,
        second_run=second_run,
        spare=spare,
        dask=dask,
    )
    below = [each.name for each in report if fail_under is not None and 100 * each.score < fail_under * each.max_score]
    if below:
        typer.echo(f"labkit: below {fail_under:g} %: {', '.join(below)}", err=True)
        raise typer.Exit(1)
