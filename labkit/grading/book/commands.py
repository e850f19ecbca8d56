"""`labkit gradebook`: record what grading found, adjust it by hand, and give it to Canvas, Moodle or a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labkit.errors import ConfigError
from labkit.slugs import names_lesson

if TYPE_CHECKING:
    from labkit.grading.book.gradebook import Gradebook
    from labkit.grading.book.sheets import Sheet

app = typer.Typer(no_args_is_help=True, help="Attempts, deadlines, adjustments and the class's grades, in a database.")

Url = Annotated[
    str,
    typer.Option("--book", envvar="LABKIT_GRADEBOOK", help="A file, or postgresql+psycopg://user@host/name."),
]
Lesson = Annotated[str, typer.Option(help="The lesson, such as 02.")]
Keep = Annotated[str, typer.Option(help="Which attempt counts: best or latest.")]
_DEFAULT = "sqlite:///gradebook.db"


@app.command()
def record(
    folder: Annotated[Path, typer.Argument(help="What was --out of labkit grade.")],
    book: Url = _DEFAULT,
    handed_in: Annotated[
        Path | None, typer.Option(help="CSV with the columns Student and Handed in; who is not in it handed in now.")
    ] = None,
    exercise: Annotated[list[str] | None, typer.Option(help="Regrade only this exercise; may be repeated.")] = None,
    reason: Annotated[str, typer.Option(help="Why marks recorded before may change.")] = "",
) -> None:
    """Add the results of a grading run; nothing recorded before is changed or lost."""
    from labkit.grading.book.handed_in import read_times
    from labkit.grading.reports.results import read_results

    results = read_results(folder)
    times = read_times(handed_in) if handed_in else {}
    with _opened(book) as opened:
        found = opened.record(results, handed_in=times, exercises=exercise or (), reason=reason)
    typer.echo(f"{found.new_attempts} new attempts, {found.unchanged} as before, {len(found.regraded)} marks regraded")
    for student, number, before, now in found.regraded:
        typer.echo(f"  {student}, {number}: {before:g} to {now:g} points")


@app.command()
def adjust(
    student: Annotated[str, typer.Argument(help="As in the gradebook.")],
    points: Annotated[float, typer.Argument(help="Points to give; with a minus (after --) to take.")],
    lesson: Lesson,
    reason: Annotated[str, typer.Option(help="Kept beside it.")],
    book: Url = _DEFAULT,
) -> None:
    """Give a student points by hand, with the reason."""
    with _opened(book) as opened:
        opened.adjust(_lesson(opened, lesson), student, points, reason)
    typer.echo(f"{student}: {points:+g} points ({reason})")


@app.command()
def deadline(
    due: Annotated[str, typer.Argument(help="ISO 8601 with a zone: 2026-12-01T18:00+01:00.")],
    lesson: Annotated[str, typer.Option(help="The lesson as graded, such as 02_ring_all_reduce.")],
    student: Annotated[str, typer.Option(help="An extension for this student alone.")] = "",
    grace_minutes: Annotated[float, typer.Option(help="Minutes after it that cost nothing.")] = 0.0,
    percent_per_day: Annotated[float, typer.Option(help="What each day begun costs.")] = 10.0,
    percent_at_most: Annotated[float, typer.Option(help="The most that lateness costs.")] = 100.0,
    book: Url = _DEFAULT,
) -> None:
    """Set when a lesson is due and what lateness costs."""
    from labkit.grading.book.lateness import Lateness

    try:
        moment = datetime.fromisoformat(due)
    except ValueError:
        raise ConfigError(f"{due!r} is not a time; write 2026-12-01T18:00+01:00, or ...Z for UTC") from None
    lateness = Lateness(moment, timedelta(minutes=grace_minutes), percent_per_day, percent_at_most)
    with _opened(book) as opened:
        name = _lesson(opened, lesson)
        opened.set_deadline(name, lateness, student)
    typer.echo(f"{name} is due {moment.isoformat()}{f' for {student}' if student else ''}")


@app.command()
def show(lesson: Lesson, book: Url = _DEFAULT, keep: Keep = "best") -> None:
    """Print what every student has."""
    with _opened(book) as opened:
        grades = opened.grades(_lesson(opened, lesson), keep)
    width = max(len(grade.student) for grade in grades)
    for grade in grades:
        notes = [f"{grade.num_attempts} attempt{'s' if grade.num_attempts != 1 else ''}"]
        notes += [f"late, {grade.percent_lost:g} % off"] if grade.percent_lost else []
        notes += [f"adjusted by {grade.adjusted:+g}"] if grade.adjusted else []
        typer.echo(f"{grade.student:{width}}  {grade.score:6g} of {grade.max_score:g}  ({', '.join(notes)})")


@app.command()
def history(
    student: Annotated[str, typer.Argument(help="As in the gradebook.")], lesson: Lesson, book: Url = _DEFAULT
) -> None:
    """Print all that is known of one student's lesson, oldest first."""
    with _opened(book) as opened:
        for moment, words in opened.history(_lesson(opened, lesson), student):
            typer.echo(f"{moment:%Y-%m-%d %H:%M}  {words}")


@app.command()
def export(
    out: Annotated[Path, typer.Argument(help="The CSV to write.")],
    lesson: Lesson,
    book: Url = _DEFAULT,
    keep: Keep = "best",
    canvas: Annotated[Path | None, typer.Option(help="A gradebook exported from Canvas, to be filled.")] = None,
    column: Annotated[str, typer.Option(help="The assignment's column in it, or how it begins.")] = "",
    moodle: Annotated[Path | None, typer.Option(help="Moodle's offline grading worksheet, to be filled.")] = None,
) -> None:
    """Write the class's grades: a plain table, or the sheet that Canvas or Moodle takes back."""
    from labkit.grading.book.sheets import canvas_csv, grades_csv, moodle_csv
    from labkit.grading.reports.student_report import write_whole

    if canvas and moodle:
        raise ConfigError("--canvas and --moodle together would write two sheets to one file; use one of them")
    if canvas and not column:
        raise ConfigError("--canvas needs --column, the assignment's column in that file")
    with _opened(book) as opened:
        grades = opened.grades(_lesson(opened, lesson), keep)
    sheet: Sheet | None = None
    if canvas:
        sheet = canvas_csv(canvas, column, grades)
    elif moodle:
        sheet = moodle_csv(moodle, grades)
    write_whole(out, sheet.data if sheet else grades_csv(grades))
    typer.echo(f"{out}: {sheet.num_filled if sheet else len(grades)} of {len(grades)} grades")
    for student in sheet.unmatched if sheet else ():
        typer.echo(f"labkit: {student} has a grade and no row in the sheet", err=True)
    if sheet and sheet.unmatched:
        raise typer.Exit(1)


@contextmanager
def _opened(url: str) -> Iterator[Gradebook]:
    from labkit.grading.book.gradebook import Gradebook

    opened = Gradebook(url if ":" in url or not url else f"sqlite:///{url}")
    try:
        yield opened
    finally:
        opened.close()


def _lesson(opened: Gradebook, wanted: str) -> str:
    """Return the lesson's whole name: as recorded, or as the course here has it."""
    found = [name for name in opened.lessons() if names_lesson(name, wanted)]
    if len(found) == 1:
        return found[0]
    from labkit.grading.course import find_course

    return find_course(wanted, None).manifest.lesson
