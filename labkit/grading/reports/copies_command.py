"""`labkit copies`: who is alike in a class, against earlier years and the packs handed out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from labkit.grading.course import find_course
from labkit.grading.reports.class_report import find_copies, read_works
from labkit.grading.reports.copies import Copies
from labkit.grading.reports.copies_page import copies_page
from labkit.grading.reports.student_report import write_whole
from labkit.grading.submission import find_submissions, submission_hash
from labkit.lessons.catching_up import read_pack
from labkit.links import refuse_links
from labkit.progress import Told, untold


def write_copies(
    paths: Sequence[Path],
    lesson: str,
    out: Path,
    earlier: Sequence[Path] = (),
    packs: Sequence[Path] = (),
    course: str | Path | None = None,
    closed: Mapping[str, str] | None = None,
    owners: Callable[[Iterable[str]], Mapping[str, str]] | None = None,
    told: Told = untold,
) -> Copies:
    """Return who is alike, with the page of their code written to `out`.

    Args:
        paths: Notebooks, or folders of them, of this class.
        lesson: The lesson's number or name.
        out: The page.
        earlier: Folders of earlier years; whoever is alike among them alone is not told.
        packs: Packs that were handed out; their answers make nobody alike.
        course: The folder that holds ``notebooks/``.
        closed: Notes of cases that were closed, by id.
        owners: Whose files are, as a roster has it.
        told: Told each submission before it is read.

    Raises:
        ConfigError: If something named is not there.
    """
    refuse_links(out, "the page")
    found = find_course(lesson, course, paths)
    works = []
    people: dict[str, str] = {}
    for origin, folders in [("", list(paths)), *((folder.name or str(folder), [folder]) for folder in earlier)]:
        submissions, _ = find_submissions(folders, found.manifest.lesson)
        hashes = {each.name: submission_hash(each.path) for each in submissions}
        hashes = {name: each for name, each in hashes.items() if each != "no file"}
        known = owners(each.name for each in submissions) if owners else {}
        people |= dict(known) if not origin else {}
        works += read_works(submissions, found, hashes, origin, known, told)
    alike = find_copies(works, found, [read_pack(path).answers for path in packs])
    write_whole(out, copies_page(alike, works, found.manifest, closed or {}, people))
    return replace(alike, people=people)
