"""Pages as files: one for each student, every attempt's, and zips in the form that Canvas and Moodle take back.

Sources: Canvas gives a file to the student whose number, and the number of a file of theirs, stand in its name as in
the files it handed out (`infer_comment_context_from_filename` of instructure/canvas-lms: ..._USER_FILE_...). Moodle,
"Upload multiple feedback files in a zip": `Full name_NUMBER_assignsubmission_file_NAME`, split at the first four "_"
(`mod/assign/feedback/file/importziplib.php`), so the name must hold none.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.grading.book.file_names import key, of_system
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.headings import lesson_title
from labkit.grading.book.mark_page import attempts, mark_page
from labkit.grading.book.roster_files import Entry
from labkit.grading.book.standing import Grade
from labkit.grading.reports.student_report import write_whole
from labkit.grading.submission import safe_name

_MADE = (1980, 1, 1, 0, 0, 0)  # the same pages make the same zip


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        num_pages: Students.
        left_out: By system, students of whom it gave no file.
    """

    num_pages: int
    left_out: Mapping[str, tuple[str, ...]]


def write_pages(
    book: Gradebook, lesson: str, out: Path, keep: str = "best", zips: Mapping[str, Path | None] | None = None
) -> Written:
    """Write ``NAME.html`` for each student, ``attempts/NAME-N.html`` for each attempt, and zips for systems.

    Args:
        book: The gradebook.
        lesson: Whole name.
        out: A folder.
        keep: Which attempt counts.
        zips: "Canvas" and "Moodle", each with where its zip goes.
    """
    wanted = {system: path for system, path in (zips or {}).items() if path is not None}
    packed: dict[str, dict[str, bytes]] = {system: {} for system in wanted}
    left_out: dict[str, list[str]] = {system: [] for system in wanted}
    grades, title = book.grades(lesson, keep), lesson_title(lesson)
    people = book.people()
    names = page_names(grades)
    for grade in grades:
        made = mark_page(book, lesson, grade, title)
        name = names[grade.student]
        write_whole(out / f"{name}.html", made)
        tried = attempts(book, lesson, grade)
        for each in tried:
            if each.page is not None:
                write_whole(out / "attempts" / f"{name}-{each.number}.html", each.page)
        whose = book.whose(each.file_name for each in tried).people
        own = [each.file_name for each in reversed(tried) if whose.get(each.file_name) == grade.student]
        for system in wanted:
            files = [_file_for(system, each, lesson) for each in own]
            files += [_by_roster(system, people[grade.student], lesson)] if grade.student in people else []
            named = next((each for each in files if each), "")
            if named:
                packed[system][named] = made
            else:
                left_out[system].append(grade.student)
    for system, path in wanted.items():
        write_whole(path, _zipped(packed[system]))
    return Written(len(grades), {system: tuple(names) for system, names in left_out.items()})


def page_names(grades: Sequence[Grade]) -> dict[str, str]:
    """Return what each student's page is called, without its ending."""
    taken: set[str] = set()
    return {grade.student: _free_name(grade.student, taken) for grade in grades}


def _free_name(student: str, taken: set[str]) -> str:
    """Return what a student's page is called, which is added to those taken: two names may be one as a file's."""
    first = name = safe_name(student)
    count = 1
    while name.casefold() in taken:
        count += 1
        name = f"{first}_{count}"
    taken.add(name.casefold())
    return name


def _file_for(system: str, file_name: str, lesson: str) -> str:
    """Return what a system must find a page called, or "" where a student's own file bears no name of it."""
    named = of_system(file_name)
    if named is None or named.system != system or not named.id:
        return ""
    if system == "Moodle":
        return f"{named.name.replace('_', ' ')}_{named.id}_assignsubmission_file_{lesson}.html"
    return f"{file_name}.html"


def _by_roster(system: str, person: Entry, lesson: str) -> str:
    """Return what Moodle must find the page of somebody called who has no file there: a team's member, or an oral's."""
    start = key("Moodle", "")
    number = next((each.removeprefix(start) for each in sorted(person.keys) if each.startswith(start)), "")
    if system != "Moodle" or not number:
        return ""
    return f"{person.name.replace('_', ' ')}_{number}_assignsubmission_file_{lesson}.html"


def _zipped(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _MADE), data, zipfile.ZIP_DEFLATED)
    return made.getvalue()
