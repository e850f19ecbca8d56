"""The part of `labkit gradebook` that gives marks back: pages, comments, requests to look again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from labkit.errors import ConfigError
from labkit.grading.book.commands import (
    DEFAULT,
    Keep,
    Lesson,
    Url,
    app,
    lesson_named,
    refuse_two_sheets,
    write_sheet,
)
from labkit.grading.book.opening import opened_book
from labkit.words import some

__all__ = ["app"]


@app.command(epilog="Example: labkit gradebook pages pages/ --lesson 02")
def pages(
    out: Annotated[Path, typer.Argument(help="The folder: it gets a page for each student, to hand back or mail.")],
    lesson: Lesson,
    book: Url = DEFAULT,
    keep: Keep = "best",
    canvas: Annotated[Path | None, typer.Option(help="Also write the zip that Canvas takes back.")] = None,
    moodle: Annotated[Path | None, typer.Option(help="Also write the zip that Moodle takes back.")] = None,
) -> None:
    """Write a page for each student's mark and, under attempts/, each attempt's page as it was graded."""
    from labkit.grading.book.handing_back import write_pages

    with opened_book(book, new=False) as opened:
        written = write_pages(opened, lesson_named(opened, lesson), out, keep, {"Canvas": canvas, "Moodle": moodle})
    typer.echo(f"{out}: {written.num_pages} pages")
    for system, left_out in written.left_out.items():
        if left_out:
            typer.echo(f"labkit: {system} named no file of {some(left_out)}; their pages are not in that zip", err=True)


@app.command(epilog="Example: labkit gradebook page --lesson 02")
def page(
    lesson: Lesson,
    out: Annotated[
        Path | None, typer.Argument(help="Write the page to this file, beside those of students, and serve none.")
    ] = None,
    book: Url = DEFAULT,
    keep: Keep = "best",
    port: Annotated[int, typer.Option(help="The TCP port; 0 for any free one.", min=0, max=65535)] = 0,
) -> None:
    """Show the class as one page: marks, code and findings, with boxes for comments and answers to requests."""
    from labkit.grading.book.class_desk import ClassDesk
    from labkit.grading.book.class_lines import class_lines
    from labkit.grading.book.handing_back import page_names
    from labkit.grading.book.headings import lesson_title
    from labkit.grading.reports.class_page import class_page
    from labkit.grading.reports.student_report import write_whole
    from labkit.grading.review.own_machine import serve

    def say(link: str) -> None:
        typer.echo(f"Class: {link}")
        typer.echo("The link works on this machine until Ctrl+C. What you write is kept as you send it.")

    with opened_book(book, new=False) as opened:
        name = lesson_named(opened, lesson)
        if out is None:
            desk = ClassDesk(opened, name, keep)
            serve(desk.application(), desk.path, port, say)
            return
        grades = opened.grades(name, keep)
        pages = {student: f"{page}.html" for student, page in page_names(grades).items()}
        write_whole(out, class_page(class_lines(opened, name, grades, pages), lesson_title(name)))
    typer.echo(f"{out}: {len(grades)} students")


@app.command(epilog="Example: labkit gradebook comment ada 'Short, and easy to read.' --lesson 02 --exercise ring_sum")
def comment(
    student: Annotated[str, typer.Argument(help="The student's name, address, login or number.")],
    words: Annotated[str, typer.Argument(help="What the student will read.")],
    lesson: Lesson,
    exercise: Annotated[str, typer.Option(help="The exercise's name, such as ring_sum.")] = "",
    book: Url = DEFAULT,
) -> None:
    """Write a comment to a student; it appears on the page of the mark."""
    with opened_book(book) as opened:
        student = opened.person(student)
        opened.comment(lesson_named(opened, lesson), student, exercise, words)
    typer.echo(f"{student}: kept")


@app.command(epilog="Example: labkit gradebook missing --lesson 02")
def missing(lesson: Lesson, book: Url = DEFAULT) -> None:
    """List everybody in the roster who has handed in nothing."""
    with opened_book(book, new=False) as opened:
        people = opened.people()
        if not people:
            raise ConfigError(
                "without a roster labkit cannot know who is missing; first run: labkit roster import FILE"
            )
        grades = opened.grades(lesson_named(opened, lesson))
    nobody = [grade.student for grade in grades if not grade.num_attempts]
    for name in nobody:
        person = people.get(name)
        typer.echo("  ".join(each for each in (name, *((person.email, person.section) if person else ())) if each))
    typer.echo(f"{len(nobody)} of {len(grades)} have handed in nothing")


@app.command(epilog="Example: labkit gradebook course course.csv --lesson 02:2 --lesson 04:1 --drop-lowest 1")
def course(
    out: Annotated[Path, typer.Argument(help="The CSV to write.")],
    lesson: Annotated[list[str], typer.Option(help="A lesson and its weight, 02:2, or 02 for 1; may be repeated.")],
    drop_lowest: Annotated[int, typer.Option(help="How many of each student's lowest lessons do not count.")] = 0,
    cap: Annotated[float, typer.Option(help="The highest percentage that a lesson can count for.")] = 100.0,
    book: Url = DEFAULT,
    keep: Keep = "best",
    canvas: Annotated[Path | None, typer.Option(help="A gradebook exported from Canvas, to fill in.")] = None,
    column: Annotated[
        str, typer.Option(help="The total's column in Canvas's file, or the beginning of its name.")
    ] = "",
    moodle: Annotated[Path | None, typer.Option(help="Moodle's offline grading worksheet, to fill in.")] = None,
    out_of: Annotated[float, typer.Option(help="In such a sheet, the points for a total of 100 percent.")] = 100.0,
) -> None:
    """Write one total for several lessons: a plain table, or the sheet that Canvas or Moodle takes back."""
    from labkit.grading.book.course_total import course_totals, out_of_points, totals_csv
    from labkit.grading.reports.student_report import write_whole

    refuse_two_sheets(canvas, column, moodle)
    with opened_book(book, new=False) as opened:
        weights: dict[str, float] = {}
        for each in lesson:
            asked, _, weight = each.partition(":")
            try:
                weights[lesson_named(opened, asked)] = float(weight or 1)
            except ValueError:
                raise ConfigError(f"{each!r} is not a lesson with its weight; write 02:2") from None
        grades = {name: opened.grades(name, keep) for name in weights}
        known = {grade.student: opened.known_by(grade.student) for each in grades.values() for grade in each}
    totals = course_totals(grades, weights, drop_lowest, cap)
    if canvas or moodle:
        write_sheet(out, out_of_points(totals, grades, out_of), known, canvas, column, moodle)
        return
    write_whole(out, totals_csv(totals))
    typer.echo(f"{out}: {len(totals)} students, {len(weights)} lessons")


@app.command(epilog="Example: labkit gradebook said 'every rank' --lesson 02")
def said(
    words: Annotated[str, typer.Argument(help="Part of what students were told, in upper or lower case.")],
    lesson: Lesson,
    book: Url = DEFAULT,
) -> None:
    """Find out which students were told something, in which exercise and attempt."""
    from labkit.grading.book.mark_page import attempts

    with opened_book(book, new=False) as opened:
        name = lesson_named(opened, lesson)
        count = 0
        for grade in opened.grades(name):
            for tried in attempts(opened, name, grade):
                for each in tried.findings["exercises"]:
                    lines = [line for line in each.get("said", "").splitlines() if words.casefold() in line.casefold()]
                    for line in lines[:1]:
                        typer.echo(f"{grade.student}, attempt {tried.number}, {each['number'] or each['id']}: {line}")
                    count += bool(lines)
    typer.echo(f"told {count} times")


@app.command(epilog="Example: labkit gradebook request - < mail.txt")
def request(
    text: Annotated[
        str, typer.Argument(help="What the student sent, beginning with labkit-regrade; - reads it from stdin.")
    ],
    book: Url = DEFAULT,
) -> None:
    """Record that a student asks for another look."""
    with opened_book(book) as opened:
        asked = opened.ask(sys.stdin.read() if text == "-" else text)
    typer.echo(f"request {asked.id}: {asked.student}, {asked.exercise}: {asked.words}")


@app.command(epilog="Example: labkit gradebook requests --lesson 02")
def requests(
    lesson: Annotated[str, typer.Option(help="Only this lesson.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Include answered ones.")] = False,
    book: Url = DEFAULT,
) -> None:
    """List requests for another look, open ones first, oldest first."""
    with opened_book(book, new=False) as opened:
        found = opened.requests(lesson_named(opened, lesson) if lesson else "")
    for each in found:
        if every or not each.answer:
            answer = f" -> {each.answer} ({each.points:+g} points)" if each.answer else ""
            typer.echo(f"{each.id}  {each.lesson} {each.exercise}, {each.student}: {each.words}{answer}")
    typer.echo(f"{sum(not each.answer for each in found)} open, {sum(bool(each.answer) for each in found)} answered")


@app.command(epilog="Example: labkit gradebook answer 1 'You are right: two points more.' --points 2")
def answer(
    number: Annotated[int, typer.Argument(help="As labkit gradebook requests lists it.")],
    words: Annotated[str, typer.Argument(help="What the student will read.")],
    points: Annotated[float, typer.Option(help="Points to add, or to subtract if negative.")] = 0.0,
    book: Url = DEFAULT,
) -> None:
    """Answer a request; the answer appears on the student's page and in the history."""
    if number < 1:
        raise ConfigError(f"there is no request {number}; labkit gradebook requests lists them")
    with opened_book(book, new=False) as opened:
        asked = opened.answer(number, words, points)
    typer.echo(f"request {asked.id} of {asked.student} is answered{f', {points:+g} points' if points else ''}")
