"""`labkit gradebook`: record what grading found, adjust it by hand, and give it to Canvas, Moodle or a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labkit.errors import ConfigError
from labkit.grading.book.opening import opened_book
from labkit.slugs import lesson_slug
from labkit.words import some

if TYPE_CHECKING:
    from labkit.grading.book.gradebook import Gradebook
    from labkit.grading.book.standing import Grade

app = typer.Typer(
    no_args_is_help=True,
    help="Attempts, deadlines, adjustments and the class's grades, in a database.",
    epilog="Example: labkit gradebook show --lesson 02",
)

Url = Annotated[
    str,
    typer.Option(
        "--book", envvar="LABKIT_GRADEBOOK", help="The gradebook: a file, or postgresql+psycopg://user@host/name."
    ),
]
Lesson = Annotated[str, typer.Option(help="The lesson: its number, such as 02, or its name.")]
Keep = Annotated[str, typer.Option(help="Which attempt counts: best or latest.")]
Preview = Annotated[bool, typer.Option("--preview", help="Show how grades would change, and record nothing.")]
DEFAULT = "sqlite:///gradebook.db"


@app.command(epilog="Example: labkit gradebook record grades --handed-in times.csv")
def record(
    folder: Annotated[Path, typer.Argument(help="The folder that labkit grade wrote with --out.")],
    book: Url = DEFAULT,
    handed_in: Annotated[
        list[Path] | None,
        typer.Option(
            help="When students handed in: a CSV with Student and Handed in, Moodle's grading worksheet, Canvas's "
            "submissions (JSON), Gradescope's or GitHub Classroom's grades; may be repeated. Nothing is deducted from "
            "students who are in none of them."
        ),
    ] = None,
    exercise: Annotated[list[str] | None, typer.Option(help="Regrade only this exercise; may be repeated.")] = None,
    reason: Annotated[str, typer.Option(help="Why recorded marks or times change.")] = "",
    preview: Preview = False,
    keep: Keep = "best",
) -> None:
    """Add the results of a grading run; nothing recorded before is changed or lost."""
    from labkit.grading.book.file_names import by_system, keys
    from labkit.grading.book.handed_in import assign, read_times
    from labkit.grading.book.roster import newest
    from labkit.grading.reports.class_report import read_cases
    from labkit.grading.reports.results import read_results

    results = read_results(folder)
    times: dict[str, datetime] = {}
    said: list[str] = []
    with opened_book(book, preview) as opened:
        whose = opened.whose(each.name for each in results).people
        people = opened.people()

        def known(name: str) -> frozenset[str]:
            return keys(name) | (opened.known_by(whose[name]) if whose[name] in people else frozenset())

        for path in handed_in or ():
            read = read_times(path, opened.zone)
            found = assign(read, newest(whose), known)
            times |= found.times
            if found.unmatched:
                said.append(f"{read.source}: no file here is of {', '.join(found.unmatched)}")
            said += [f"{read.source}: {each}; no time was taken from it" for each in found.ambiguous]
        before = {lesson: _grades_or_none(opened, lesson, keep) for lesson in {each.lesson for each in results}}
        recorded = opened.record(
            results, handed_in=times, source=", ".join(str(path) for path in handed_in or ()),
            exercises=exercise or (), reason=reason, folder=folder,
        )  # fmt: skip
        if cases := read_cases(folder):
            opened.keep_cases(cases)
        typer.echo(
            f"{recorded.new_attempts} new attempts, {recorded.unchanged} as before, "
            f"{len(recorded.regraded)} marks regraded{f', {recorded.times} times set' if recorded.times else ''}"
        )
        for student, number, old, now in recorded.regraded:
            typer.echo(f"  {student}, {number}: {old:g} to {now:g} points")
        for lesson, grades in sorted(before.items()):
            _tell_changes(opened, lesson, grades, keep)
    for each in said:
        typer.echo(f"labkit: {each}", err=True)
    fits = [each for each in recorded.nobodys if " fits " in each]
    for system, names in by_system(set(recorded.nobodys) - set(fits)).items():
        told = f"{some(names)} {'is' if len(names) == 1 else 'are'} not in the roster and not recorded"
        cure = "; Gradescope's grades (Download Grades) say whose each is: labkit roster import FILE"
        typer.echo(f"labkit: {told}{cure if system == 'Gradescope' else ''}", err=True)
    for each in fits:
        typer.echo(f"labkit: {each}; it was not recorded", err=True)
    if recorded.unknown:
        typer.echo(
            f"labkit: it is unknown when {recorded.num_unknown} of {len(results)} files were handed in "
            f"({some(recorded.unknown)}); nothing is deducted for them. Give --handed-in, or labkit gradebook "
            "handed-in for one",
            err=True,
        )
    _tell_preview(preview)
    if recorded.nobodys:
        raise typer.Exit(1)


@app.command(epilog="Example: labkit gradebook adjust grace 4 --lesson 02 --reason 'explained the ring in class'")
def adjust(
    student: Annotated[str, typer.Argument(help="The student's name, address, login or number.")],
    points: Annotated[float, typer.Argument(help="Points to add; to subtract, a negative number after --.")],
    lesson: Lesson,
    reason: Annotated[str, typer.Option(help="Why; it is kept in the history.")],
    book: Url = DEFAULT,
) -> None:
    """Give a student points by hand, with the reason."""
    with opened_book(book) as opened:
        student = opened.person(student)
        opened.adjust(lesson_named(opened, lesson), student, points, reason)
    typer.echo(f"{student}: {points:+g} points ({reason})")


@app.command(epilog="Example: labkit gradebook deadline 2026-12-01T18:00 --lesson 02 --percent-per-day 10 --preview")
def deadline(
    due: Annotated[
        str, typer.Argument(help="2026-12-01T18:00 in the class's time zone, or with an offset: ...+01:00.")
    ],
    lesson: Annotated[
        str, typer.Option(help="The lesson: its number, such as 02, or its name, such as ring_all_reduce.")
    ],
    student: Annotated[str, typer.Option(help="An extension for this student alone.")] = "",
    grace_minutes: Annotated[float, typer.Option(help="Minutes after the deadline that cost nothing.")] = 0.0,
    percent_per_day: Annotated[float, typer.Option(help="What each day that has begun costs, in percent.")] = 10.0,
    percent_at_most: Annotated[float, typer.Option(help="The most that lateness can cost, in percent.")] = 100.0,
    book: Url = DEFAULT,
    preview: Preview = False,
    keep: Keep = "best",
) -> None:
    """Set when a lesson is due and what lateness costs, and show whose grade it changes."""
    from labkit.grading.book.class_time import moment, shown
    from labkit.grading.book.lateness import Lateness

    with opened_book(book, preview) as opened:
        at = moment(due, opened.zone)
        lateness = Lateness(at, timedelta(minutes=grace_minutes), percent_per_day, percent_at_most)
        name = lesson_named(opened, lesson)
        before = _grades_or_none(opened, name, keep)
        student = opened.person(student) if student else ""
        opened.set_deadline(name, lateness, student)
        typer.echo(f"{name} is due {shown(at, opened.zone)}{f' for {student}' if student else ''}")
        _tell_changes(opened, name, before, keep)
    _tell_preview(preview)


@app.command("handed-in", epilog="Example: labkit gradebook handed-in ada 2026-12-02T17:59 --lesson 02 --reason mail")
def handed_in_at(
    student: Annotated[str, typer.Argument(help="The student's name, address, login or number.")],
    at: Annotated[
        str, typer.Argument(help="2026-12-01T17:20 in the class's time zone, with an offset, or the word unknown.")
    ],
    lesson: Lesson,
    reason: Annotated[str, typer.Option(help="Why; it is kept in the history.")],
    attempt: Annotated[
        int | None, typer.Option(help="Which of the student's files, from 1; by default the last.")
    ] = None,
    book: Url = DEFAULT,
    preview: Preview = False,
    keep: Keep = "best",
) -> None:
    """Correct when a file was handed in; the earlier time stays in the history."""
    from labkit.grading.book.class_time import moment, shown

    with opened_book(book, preview) as opened:
        name = lesson_named(opened, lesson)
        before = _grades_or_none(opened, name, keep)
        time = None if at == "unknown" else moment(at, opened.zone)
        student = opened.person(student)
        old = opened.correct_time(name, student, time, reason, attempt)
        words = [shown(each, opened.zone) if each else "unknown" for each in (old, time)]
        typer.echo(f"{student}: handed in {words[1]} (before: {words[0]})")
        _tell_changes(opened, name, before, keep)
    _tell_preview(preview)


@app.command(epilog="Example: labkit gradebook zone Europe/Berlin")
def zone(
    name: Annotated[str, typer.Argument(help="A name such as Europe/Berlin; without it, the zone is printed.")] = "",
    book: Url = DEFAULT,
) -> None:
    """Set the class's time zone, in which times are read and shown."""
    with opened_book(book) as opened:
        if name:
            opened.set_zone(name)
        typer.echo(str(opened.zone))


@app.command(epilog="Example: labkit gradebook show --lesson 02")
def show(lesson: Lesson, book: Url = DEFAULT, keep: Keep = "best") -> None:
    """Print every student's grade."""
    from labkit.grading.book.class_time import shown

    with opened_book(book, new=False) as opened:
        grades = opened.grades(lesson_named(opened, lesson), keep)
        class_zone = opened.zone
    width = max(len(grade.student) for grade in grades)
    for grade in grades:
        notes = [f"{grade.num_attempts} attempt{'s' if grade.num_attempts != 1 else ''}"]
        if grade.handed_in_at:
            notes.append(f"handed in {shown(grade.handed_in_at, class_zone)}")
        elif grade.num_attempts:
            notes.append("marked late, hand-in time unknown" if grade.marked_late else "hand-in time unknown")
        notes += [f"late, {grade.percent_lost:g} % off"] if grade.percent_lost else []
        notes += [f"adjusted by {grade.adjusted:+g}"] if grade.adjusted else []
        typer.echo(f"{grade.student:{width}}  {grade.score:6g} of {grade.max_score:g}  ({', '.join(notes)})")


@app.command(epilog="Example: labkit gradebook history grace --lesson 02")
def history(
    student: Annotated[str, typer.Argument(help="The student's name, address, login or number.")],
    lesson: Lesson,
    book: Url = DEFAULT,
) -> None:
    """Print everything recorded about one student's lesson, oldest first."""
    with opened_book(book, new=False) as opened:
        class_zone = opened.zone
        for moment, words in opened.history(lesson_named(opened, lesson), opened.person(student)):
            typer.echo(f"{moment.astimezone(class_zone):%Y-%m-%d %H:%M}  {words}")


@app.command("close-case", epilog="Example: labkit gradebook close-case 3f2a --note 'they told us: a pair'")
def close_case(
    case: Annotated[str, typer.Argument(help="As labkit copies prints it, such as 3fa91c20.")],
    note: Annotated[str, typer.Option(help="What you decided, and why.")],
    book: Url = DEFAULT,
) -> None:
    """Close a case of submissions that are alike, with a note."""
    with opened_book(book, new=False) as opened:
        names = opened.close_case(case, note)
    typer.echo(f"case {case} ({names}) is closed: {note}")


@app.command(epilog="Example: labkit gradebook export marks.csv --lesson 02 --canvas canvas.csv")
def export(
    out: Annotated[Path, typer.Argument(help="The CSV to write.")],
    lesson: Lesson,
    book: Url = DEFAULT,
    keep: Keep = "best",
    canvas: Annotated[Path | None, typer.Option(help="A gradebook exported from Canvas, to fill in.")] = None,
    column: Annotated[
        str, typer.Option(help="The assignment's column in Canvas's file, or the beginning of its name.")
    ] = "",
    moodle: Annotated[Path | None, typer.Option(help="Moodle's offline grading worksheet, to fill in.")] = None,
) -> None:
    """Write the class's grades: a plain table, or the sheet that Canvas or Moodle takes back."""
    from labkit.grading.book.sheets import grades_csv
    from labkit.grading.reports.student_report import write_whole

    refuse_two_sheets(canvas, column, moodle)
    with opened_book(book, new=False) as opened:
        grades = opened.grades(lesson_named(opened, lesson), keep)
        known = {grade.student: opened.known_by(grade.student) for grade in grades}
        class_zone = opened.zone
    if canvas or moodle:
        write_sheet(out, grades, known, canvas, column, moodle)
        return
    write_whole(out, grades_csv(grades, class_zone))
    typer.echo(f"{out}: {len(grades)} of {len(grades)} grades")


def refuse_two_sheets(canvas: Path | None, column: str, moodle: Path | None) -> None:
    """Return if at most one sheet is asked for, and of Canvas's with its column.

    Raises:
        ConfigError: If not.
    """
    if canvas and moodle:
        raise ConfigError("--canvas and --moodle together would write two sheets to one file; use one of them")
    if canvas and not column:
        raise ConfigError("--canvas needs --column too: the name of the assignment's column in that file")


def write_sheet(
    out: Path,
    grades: Sequence[Grade],
    known: Mapping[str, frozenset[str]],
    canvas: Path | None,
    column: str,
    moodle: Path | None,
) -> None:
    """Fill Canvas's sheet or Moodle's, and end with exit code 1 where somebody could not be filled in.

    Args:
        out: The file to write.
        grades: What students have.
        known: What each can be known by.
        canvas: A gradebook exported from Canvas, or None for Moodle's.
        column: The column in it.
        moodle: Moodle's worksheet.
    """
    from labkit.grading.book.sheets import canvas_csv, moodle_csv
    from labkit.grading.reports.student_report import write_whole

    if canvas is not None:
        sheet = canvas_csv(canvas, column, grades, known.__getitem__)
    else:
        assert moodle is not None
        sheet = moodle_csv(moodle, grades, known.__getitem__)
    write_whole(out, sheet.data)
    nothing = sum(not (grade.num_attempts or grade.adjusted) for grade in grades)
    why = f"; {nothing} handed in nothing" if nothing else ""
    typer.echo(f"{out}: {sheet.num_filled} of {len(grades)} grades{why}")
    if sheet.unmatched:
        has = "has a grade" if len(sheet.unmatched) == 1 else "have grades"
        typer.echo(f"labkit: {some(sheet.unmatched)} {has} and no row in the sheet", err=True)
    for words in sheet.capped:
        typer.echo(f"labkit: {words}", err=True)
    for words in sheet.ambiguous:
        typer.echo(f"labkit: {words}; it is left empty", err=True)
    if sheet.unmatched or sheet.ambiguous:
        raise typer.Exit(1)


def closed_cases(url: str) -> dict[str, str]:
    """Return the notes of closed cases, by their ids."""
    with opened_book(url) as opened:
        return opened.closed_cases()


def keep_cases(url: str, found: Mapping[str, str]) -> None:
    """Remember cases that were listed, by id, so that they can be closed."""
    with opened_book(url) as opened:
        opened.keep_cases(found)


def owners_in(url: str) -> Callable[[Iterable[str]], dict[str, str]]:
    """Return what tells whose files are: a person's or a team's, by the roster; without one it tells nothing."""

    def told(names: Iterable[str]) -> dict[str, str]:
        with opened_book(url) as opened:
            return {name: " ".join(sorted(all_of)) for name, all_of in opened.shared_by(names).items()}

    return told


def lesson_named(opened: Gradebook, wanted: str) -> str:
    """Return a lesson's slug, by which the book keeps it; a number is that of the course here.

    Raises:
        ConfigError: If neither the book nor the course here has such a lesson.
    """
    recorded = opened.lessons()
    if (slug := lesson_slug(wanted)) in recorded:
        return slug
    from labkit.grading.course import find_course

    try:
        return find_course(wanted, None).slug
    except ConfigError:
        there = ", ".join(recorded) or "no lesson yet"
        raise ConfigError(
            f"there is no lesson {wanted!r}: the gradebook has {there}, and no course in this folder has it either; "
            "name one that the gradebook has, or run the command in the course's folder"
        ) from None


def _grades_or_none(opened: Gradebook, lesson: str, keep: str) -> list[Grade]:
    return opened.grades(lesson, keep) if lesson_slug(lesson) in opened.lessons() else []


def _tell_changes(opened: Gradebook, lesson: str, before: list[Grade], keep: str) -> None:
    from labkit.grading.book.changes import changes

    for line in changes(before, _grades_or_none(opened, lesson, keep), opened.zone):
        typer.echo(f"  {line}")


def _tell_preview(preview: bool) -> None:
    if preview:
        typer.echo("A preview: nothing was recorded. Run it without --preview to record it.")
