"""A run of one's own for each student, drawn for finds from the class key and the student: no answer is a neighbour's.

A find's ``solutions/hidden/LESSON/SLUG/record.py`` may have a function ``drawn(draw)``: it returns a run on virtual
ranks and what the key of that run says. `labkit release --variants` writes each student's runs and keeps the keys;
`labkit grade` judges each student's answers by them.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import runpy
import stat
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from labkit.checks.hidden import Draw
from labkit.checks.question import RECORDING, RECORDINGS
from labkit.errors import ConfigError
from labkit.grading.class_key import class_key, key_file, write_for_owner
from labkit.lessons.class_course import HIDDEN
from labkit.lessons.course import find_course
from labkit.links import refuse_links
from labkit.progress import Told, steps, untold

Keys: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Slug of a find -> what the key of a student's own run says."""

NOBODYS: Keys = {"": {}}
"""The keys of a file of which nobody knows whose it is."""


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        folder: The folder.
        keys: The file of what is right.
        students: How many have runs of their own.
        finds: Slugs of the finds that are drawn.
    """

    folder: Path
    keys: Path
    students: int
    finds: tuple[str, ...]

    def __str__(self) -> str:
        """Return what the terminal shows."""
        return (
            f"{self.folder}: a ZIP file for each of {self.students} people, with runs of their own for "
            f"{', '.join(self.finds)}; it is unpacked beside the notebooks\n"
            f"{self.keys}: what is right, for you alone; labkit grade looks there"
        )


def recorders(course: Path) -> dict[str, Path]:
    """Return the file that draws runs, by the find's slug; finds whose file draws none are left out."""
    found = sorted((course / HIDDEN).glob("*/*/record.py"))
    return {path.parent.name: path for path in found if "\ndef drawn(" in path.read_text(encoding="utf-8")}


def draw_for(key: bytes, student: str, slug: str) -> Draw:
    """Return what a student's run of a find is drawn from; nothing of it follows from another student's."""
    return Draw(hmac.new(key, "\0".join(("variant", student, slug)).encode(), "sha256").hexdigest())


def write_variants(folder: Path, students: Iterable[str], course: Path, key: Path, told: Told = untold) -> Written:
    """Write the runs of each student and the keys to all of them.

    Args:
        folder: A folder outside what students get.
        students: Names as the gradebook has them.
        course: Its root.
        key: The file of the class key; the keys of the runs lie beside it.
        told: Told before each student's runs.

    Raises:
        ConfigError: If there are no students or nothing draws runs.
    """
    people, files = sorted(set(students)), recorders(course)
    if not people:
        raise ConfigError("there is nobody to draw runs for; labkit roster import tells who is in the class")
    if not files:
        raise ConfigError(f"no find of {course / HIDDEN} draws its run: no record.py there has a function drawn(draw)")
    refuse_links(folder, "the folder for runs of one's own")
    secret = class_key(key)
    folder.mkdir(parents=True, exist_ok=True)
    draws: dict[str, Callable[..., Any]] = {slug: runpy.run_path(str(path))["drawn"] for slug, path in files.items()}
    keys: dict[str, dict[str, Any]] = {}
    names = file_names(people)
    for number, student in enumerate(people):
        told(student, number, len(people))
        keys[student] = {}
        with zipfile.ZipFile(folder / f"{names[student]}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for slug, path in files.items():
                timeline, keys[student][slug] = draws[slug](draw_for(secret, student, slug))
                packed.writestr(f"{RECORDINGS}/{path.parts[-3]}/{slug}/{RECORDING}", _as_text(timeline, folder))
    kept = keys_file(key)
    write_for_owner(kept, json.dumps(keys, indent=1))
    return Written(folder, kept, len(people), tuple(files))


def released_variants(folder: Path, release: Path, students: Iterable[str], course: Path | None) -> Written:
    """Write each student's runs beside a release, drawn from the class key of this folder's gradebook.

    Raises:
        ConfigError: If the folder lies in what students get.
    """
    if folder.resolve().is_relative_to(release.resolve()):
        raise ConfigError(f"{folder} lies in {release}, which students get; name a folder outside for --variants")
    root = find_course(course, sources=True)
    with steps("runs of one's own") as told:
        return write_variants(folder, students, root, key_file(os.environ), told)


def keys_file(key: Path) -> Path:
    """Return where the keys of students' own runs lie, whether or not there are any: beside the class key."""
    return key.with_name(f"{key.stem}.variants.json")


def keys_for(file: Path, whose: Mapping[str, str], names: Iterable[str]) -> dict[str, Keys]:
    """Return the keys of each submission.

    Args:
        file: What `write_variants` wrote.
        whose: Submission -> student, as far as that is known.
        names: Of all submissions.

    Raises:
        ConfigError: If the file holds no keys.
    """
    try:
        if stat.S_IMODE(file.stat().st_mode) & 0o077:  # as the class key: a file that somebody handed in is none
            raise ValueError("others can read it; chmod 600")
        kept = json.loads(file.read_text(encoding="utf-8"))
        return {name: dict(kept.get(whose.get(name, ""), NOBODYS)) for name in names}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{file} cannot be read ({error}); labkit release --variants writes it") from None


def _as_text(timeline: Any, folder: Path) -> str:
    path = folder / f".{RECORDING}"
    try:
        timeline.save(path)
        return path.read_text(encoding="utf-8")
    finally:
        path.unlink(missing_ok=True)


def file_names(people: Iterable[str]) -> dict[str, str]:
    """Return a file name for each, no two alike."""
    names: dict[str, str] = {}
    for student in people:
        plain = re.sub(r"[^\w.@-]+", "-", student).strip("-.") or "student"
        taken = {each.casefold() for each in names.values()}
        number = next(at for at in range(1, len(names) + 2) if _numbered(plain, at).casefold() not in taken)
        names[student] = _numbered(plain, number)
    return names


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"
