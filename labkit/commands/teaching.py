"""Commands for whoever teaches: what a class gets, its room, its marks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from labkit.commands.loading import load
from labkit.errors import ConfigError, EnvironmentProblem

app = typer.Typer()
_PANEL = "Teach"


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit release ../class")
def release(
    destination: Annotated[Path, typer.Argument(help="The folder to write: new, empty, or of an earlier release.")],
    lesson: Annotated[list[str] | None, typer.Option(help="Only this lesson, such as 02; may be repeated.")] = None,
    wheels: Annotated[
        Path | None,
        typer.Option(help="Also download all packages into this folder, for a USB stick or a slow network."),
    ] = None,
    pages: Annotated[
        bool, typer.Option(help="Include slides, glossary and site as pages that need no network.")
    ] = True,
    variants: Annotated[
        Path | None,
        typer.Option(help="Also draw a run of their own for everybody in the roster, for finds that have one: here."),
    ] = None,
    book: Annotated[
        str, typer.Option(envvar="LABKIT_GRADEBOOK", help="The gradebook whose roster --variants draws for.")
    ] = "sqlite:///gradebook.db",
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/ and notebooks/.")] = None,
) -> None:
    """Write what students get, after a search that it has no answers, hidden cases or grading in it."""
    make = load("labkit.grading.handout.release", "release")
    with load("labkit.progress", "steps")("release") as told:
        made = make(destination, lesson or (), course, pages=pages, told=told)
    typer.echo(made)
    if variants is not None:
        people = load("labkit.grading.book.whose", "people_in")(book)
        typer.echo(load("labkit.grading.variants", "released_variants")(variants, destination, people, course))
    if wheels is not None:
        typer.echo(load("labkit.grading.handout.wheels", "fetch_wheels")(destination, wheels))


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit exam ../exam")
def exam(
    folder: Annotated[Path, typer.Argument(help="The folder for papers, keys and marks, outside what students get.")],
    answers: Annotated[
        Path | None, typer.Option(help="Mark instead: the folder with NAME/answer.json or NAME.json for each student.")
    ] = None,
    book: Annotated[
        str, typer.Option(envvar="LABKIT_GRADEBOOK", help="The gradebook whose roster says who gets a paper.")
    ] = "sqlite:///gradebook.db",
    key: Annotated[
        Path | None,
        typer.Option(envvar="LABKIT_CLASS_KEY", help="The class key's file (default: beside the gradebook)."),
    ] = None,
) -> None:
    """Write the incident exam: another failing run for each student, who names the rank, the cause and the fix."""
    if answers is not None:
        typer.echo(load("labkit.grading.exam.papers", "mark_papers")(folder, answers))
        typer.echo(folder / "marks.csv")
        return
    people = load("labkit.grading.book.whose", "people_in")(book)
    place = key or load("labkit.grading.class_key", "key_file")(os.environ)
    secret = load("labkit.grading.class_key", "class_key")(place)
    with load("labkit.progress", "steps")("papers") as told:
        count = load("labkit.grading.exam.papers", "write_papers")(folder, people, secret, told)
    typer.echo(f"{folder / 'papers'}: {count} papers, a folder for each; {folder / 'keys.json'} is for you alone")


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit pack 02 --through 2.6 --earns 50 --out 02.pack")
def pack(
    out: Annotated[Path, typer.Option(help="The file to write; with --plan the folder.")],
    lesson: Annotated[str | None, typer.Argument(help="The lesson, such as 02.")] = None,
    through: Annotated[
        str | None, typer.Option(help="The last exercise to include, such as 2.6 or ring_sum (default: all).")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="A workshop's plan: write a pack for each lesson, up to the last exercise the plan names."),
    ] = None,
    earns: Annotated[
        int, typer.Option(help="Percent of its points that a cell earns if it is handed in as the pack filled it.")
    ] = 0,
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
) -> None:
    """Write a lesson's answers to a file for `labkit catch-up --pack`, to hand out when the room moves on."""
    if (lesson is None) == (plan is None) or (plan is not None and through is not None):
        raise ConfigError("name a lesson (and with --through the last exercise to include), or a workshop with --plan")
    if plan is not None:
        read = load("labkit.lessons.presentation", "read_workshop")
        packs = load("labkit.lessons.catching_up", "write_packs")(read(plan), out, course, earns=earns)
    else:
        write = load("labkit.lessons.catching_up", "write_pack")
        packs = [(out, write(lesson, out, course, through=through, earns=earns))]
    for path, packed in packs:
        answers = f"{len(packed.answers)} answer{'s' if len(packed.answers) != 1 else ''}"
        typer.echo(f"{path}: {answers} of {packed.lesson}; handed in unchanged, they earn {earns} %")


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit slides 02 --pdf")
def slides(
    lessons: Annotated[
        list[str] | None, typer.Argument(help="Lessons, such as 02 (default: all, and the workshops).")
    ] = None,
    workshop: Annotated[list[Path] | None, typer.Option(help="The plan of a workshop, a TOML file.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the decks.")] = Path("build/slides"),
    pdf: Annotated[bool, typer.Option("--pdf", help="Print each deck as PDF too; needs Chromium.")] = False,
    link: Annotated[str, typer.Option(help="The class link, for a workshop's slide that says how to join.")] = "",
    public: Annotated[
        bool, typer.Option("--public", help="Show labkit's own recordings: for a room that works without a release.")
    ] = False,
    board: Annotated[
        Path | None, typer.Option(help="A class board's file: the room's guesses stand beside what came out.")
    ] = None,
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
) -> None:
    """Write decks that need no network: a lesson's slides, figures, exercises and speaker notes."""

    find_browser, browsers = (load("labkit.doctor", name) for name in ("find_browser", "BROWSERS"))
    browser = find_browser() if pdf else None
    if pdf and browser is None:
        raise EnvironmentProblem(
            f"printing slides needs Chromium, and none of {', '.join(browsers)} is installed; without --pdf no "
            "browser is needed"
        )
    write = load("labkit.lessons.decks", "write_decks")
    with load("labkit.progress", "steps")("slides") as told:
        write(
            lessons or [], workshop or [], out, course=course, browser=browser, say=typer.echo, link=link,
            public=public, told=told, board=board,
        )  # fmt: skip


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit board --port 8321")
def board(
    results: Annotated[
        Path, typer.Option(help="The SQLite file; name the same file again to continue the class.")
    ] = Path("class-board.sqlite"),
    host: Annotated[str, typer.Option(help="The address to listen on (default: all of this machine).")] = "",
    port: Annotated[int, typer.Option(help="The TCP port.", min=0, max=65535)] = 8321,
    relay: Annotated[
        Path | None, typer.Option(help="A shared folder, for learners whose machines cannot reach this one.")
    ] = None,
    course: Annotated[Path | None, typer.Option(help="The folder that holds notebooks/.")] = None,
) -> None:
    """Show a room's progress on a page: learners join with a link, and results of labkit.check appear."""
    exercises = load("labkit.lessons.course", "exercise_titles")(course)
    predictions, questions = load("labkit.lessons.course", "predictions_and_questions")(course)

    def say(link: str, instructors: str) -> None:
        typer.echo(f"Class board: {link}")
        typer.echo(f'Learners run once, in any notebook: labkit.join_class("{link}", "a nickname")')
        if relay is not None:
            typer.echo(f'If that link cannot be reached: labkit.join_class("{relay.resolve()}", "a nickname")')
        typer.echo(f"Only for you (who wants help, which mistakes, names): {instructors}")
        typer.echo(
            "Anybody with a link can see its page and send results. Ctrl+C ends the board; the results are kept."
        )

    def score(exercise: str, plans: object) -> float:
        value: float = load("labkit.checks.challenge", "relative_score")(
            load("labkit.checks.rooms", "find")(exercise), plans
        )
        return value

    load("labkit.board.server", "serve")(results, exercises, host, port, say, score, relay, predictions, questions)


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit grade submissions/ --lesson 02 --out grades")
def grade(
    lesson: Annotated[str, typer.Option(help="The lesson, such as 02.")],
    paths: Annotated[list[Path] | None, typer.Argument(help="Notebooks, or folders of them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where reports and the gradebook go.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Submissions graded at the same time (default: by cores).")] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Grade on a Dask cluster instead, such as tcp://HOST:8786.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            envvar="LABKIT_CLASS_KEY", help="The class key's file (default: beside the gradebook, made if missing)."
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Grade everybody, including those who have a result.")] = False,
    points_only: Annotated[
        bool, typer.Option("--points-only", help="Do not run the notebooks: points come from hidden cases alone.")
    ] = False,
    second_run: Annotated[
        bool,
        typer.Option(
            "--second-run/--no-second-run",
            help="Try what failed once more, with reference answers for the exercises it needs.",
        ),
    ] = True,
    sandbox: Annotated[
        str, typer.Option(help="How submissions are confined: bubblewrap, or none for input you trust.")
    ] = "bubblewrap",
    fail_under: Annotated[
        float | None, typer.Option(help="Exit code 1 if a score is below this many percent (for a student's CI).")
    ] = None,
    pack: Annotated[
        list[Path] | None,
        typer.Option(help="A pack you handed out: its cells earn what it says, and the class page names who used it."),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where hidden cases run: cpu, or cuda for this machine's GPUs (see docs/attacks.md).")
    ] = "cpu",
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/ and notebooks/.")] = None,
    gradescope: Annotated[
        Path | None, typer.Option(help="Instead of grading, write the lesson's autograder for Gradescope to this zip.")
    ] = None,
) -> None:
    """Grade submissions: feedback for each student, a gradebook for the class."""
    if gradescope is not None:
        write = load("labkit.grading.handout.gradescope", "write_autograder")
        typer.echo(write(gradescope, lesson, course, key, pack or ()))
        return
    if not paths or out is None:
        raise ConfigError("name the notebooks or folders to grade, and the folder for the reports with --out")
    # A worker loads torch while we load the rest.
    spare = None if dask else load("labkit.grading.workers.worker_process", "WorkerProcess")()
    in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
    place = ("labkit.grading.reports.github", "grade_in_actions") if in_actions else ("labkit.grading.grade", "grade")
    run = load(*place)
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
        packs=pack or (),
        device=device,
    )
    below = [each.name for each in report if fail_under is not None and 100 * each.score < fail_under * each.max_score]
    if below:
        typer.echo(f"labkit: below {fail_under:g} %: {', '.join(below)}", err=True)
        raise typer.Exit(1)


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit review grades --by 'Your Name'")
def review(
    out: Annotated[
        Path,
        typer.Argument(help="The folder that labkit grade wrote with --out; it must be recorded in the gradebook."),
    ],
    by: Annotated[str, typer.Option(help="Your name; it is kept with every point you give.")],
    book: Annotated[
        str,
        typer.Option(envvar="LABKIT_GRADEBOOK", help="The gradebook: a file, or postgresql+psycopg://user@host/name."),
    ] = "sqlite:///gradebook.db",
    port: Annotated[int, typer.Option(help="The TCP port; 0 for any free one.", min=0, max=65535)] = 0,
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
) -> None:
    """Read what students wrote: a page with all answers to a question and its rubric; points go to the gradebook."""

    def say(link: str) -> None:
        typer.echo(f"Review: {link}")
        typer.echo("The link works on this machine until Ctrl+C. Points are saved as you give them.")

    load("labkit.grading.review.command", "review")(out, book, by, port, course, say)


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit copies submissions/ --lesson 02 --out copies.html")
def copies(
    lesson: Annotated[str, typer.Option(help="The lesson, such as 02.")],
    paths: Annotated[list[Path], typer.Argument(help="Notebooks, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The page to write.")],
    earlier: Annotated[list[Path] | None, typer.Option(help="An earlier year's folder; may be repeated.")] = None,
    pack: Annotated[list[Path] | None, typer.Option(help="A pack you handed out; may be repeated.")] = None,
    book: Annotated[
        str | None,
        typer.Option(envvar="LABKIT_GRADEBOOK", help="The gradebook: teams, and cases that are closed."),
    ] = None,
    course: Annotated[Path | None, typer.Option(help="The folder that holds notebooks/.")] = None,
) -> None:
    """Find submissions that are alike, and write a page with their code side by side."""
    closed = load("labkit.grading.book.commands", "closed_cases")(book) if book else {}
    owners = load("labkit.grading.book.commands", "owners_in")(book) if book else None
    write = load("labkit.grading.reports.copies_command", "write_copies")
    with load("labkit.progress", "steps")("reading") as told:
        found = write(paths, lesson, out, earlier or (), pack or (), course, closed, owners, told)
    whose = {}
    for case in found.cases:
        names = found.called(case.names)
        whose[case.id] = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    if book:
        load("labkit.grading.book.commands", "keep_cases")(book, whose)
    for case in found.cases:
        note = f" (closed: {closed[case.id]})" if case.id in closed else ""
        typer.echo(f"{case.id}  {case.kind}, {case.share:.0%}: {whose[case.id]}{note}")
    if found.from_pack:
        typer.echo(f"cells from a pack: {', '.join(found.called(found.from_pack))}")
    for name, problem in found.unread.items():
        typer.echo(f"not compared: {found.people.get(name, name)}: {problem}", err=True)
    typer.echo(f"{out}: {len(found.cases)} case{'s' if len(found.cases) != 1 else ''}")


@app.command(rich_help_panel=_PANEL, epilog="Example: labkit export-nbgrader 02 --out course/")
def export_nbgrader(
    lesson: Annotated[str, typer.Argument(help="A lesson such as 02.")],
    out: Annotated[Path, typer.Option(help="The folder of the nbgrader course; the notebook goes to its source/.")],
    course: Annotated[Path | None, typer.Option(help="The folder that holds solutions/.")] = None,
) -> None:
    """Write a lesson as an nbgrader assignment, with its cell metadata and solution regions."""
    typer.echo(load("labkit.grading.handout.nbgrader_export", "export_nbgrader")(lesson, out, course))
