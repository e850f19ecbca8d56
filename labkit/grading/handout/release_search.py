"""Searching a student bundle for what must not be in it: answers, hidden cases, markers, outputs, whole files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.checks.kept_back import WRONG, is_kept_back
from labkit.checks.question import KEY, RECORDING
from labkit.grading.handout.texts_within import notebook_texts, texts_within
from labkit.lessons.drift import leaks
from labkit.lessons.figures import digest, pictures_of
from labkit.lessons.lesson import Lesson
from labkit.lessons.source import load
from labkit.lessons.student import student_cells

_WINDOW = 3
_LEAST_LETTERS = 36
_MARKER = re.compile(r"^\s*#+\s*(BEGIN|END) SOLUTION\b", re.MULTILINE)
_READS_MARKERS = ("labkit/lessons/",)  # the code that cuts answers names its markers
_PICTURES = (".png",)
_IMPORT = re.compile(r"^(from \S+ )?import \S")
_PASSED_ON = re.compile(r"^\w+=\w+,$")  # find=find,


@dataclass(frozen=True)
class Found:
    """Something in the bundle that must not be there."""

    file: str
    why: str

    def __str__(self) -> str:
        """Return one line for the terminal."""
        return f"{self.file}: {self.why}"


@dataclass(frozen=True)
class Secrets:
    """What is looked for.

    Attributes:
        lessons: Whose answers.
        fragments: Each piece of code, three lines that say something, and where it is from.
        files: Hash of each whole file that stays with instructors, and its name.
        figures: Hashes of the pictures that learners' notebooks may bring: no other output is let through.
    """

    lessons: tuple[Lesson, ...]
    fragments: dict[str, str]
    files: dict[str, str]
    figures: frozenset[str] = frozenset()


def secrets_of(course: Path, package: Path) -> Secrets:
    """Return what no bundle of a course may hold, whichever of its lessons are given out.

    Args:
        course: With ``solutions/`` and, perhaps, ``exercises/``.
        package: Where labkit is; its ``grading/`` stays with instructors.
    """
    lessons = tuple(load(path) for path in sorted((course / "solutions").glob("[0-9][0-9]_*.py")))
    fragments: dict[str, str] = {}
    for lesson in lessons:
        for cell in lesson.cells:
            for each in cell.cuts:
                fragments |= _fragments("\n".join(each.lines), f"the answer to exercise {each.exercise}")
            if cell.role == "solution":
                fragments |= _fragments(cell.source, f"a solution cell of {lesson.name}")
    for shown in (cell.student_source for lesson in lessons for cell in student_cells(lesson)):
        for text in _fragments(shown, ""):  # what learners are shown is no secret
            fragments.pop(text, None)
    own, labkits = course / "exercises", package / "exercises"
    kept = [path for path in sorted(labkits.rglob("*")) if is_kept_back(path.name)]
    searched = [path for path in kept if path.suffix == ".py" and path.name != WRONG]  # wrong answers are half right
    courses = [path for folder in (own, course / "solutions" / "hidden") for path in sorted(folder.rglob("*.py"))]
    for path in [*searched, *(path for path in courses if path.name not in ("driver.py", WRONG))]:
        above = package.parent if path.is_relative_to(package) else course
        fragments |= _fragments(path.read_text(encoding="utf-8"), path.relative_to(above).as_posix())
    whole = [own, course / "solutions", package / "grading"]
    kept += [path for folder in whole for path in folder.rglob("*")]
    files = {_digest(path): path.name for path in kept if _says_something(path)}
    keys = [*(course / "solutions" / "hidden").glob(f"*/*/{KEY}")]
    files |= {
        _digest(key): "/".join(key.parts[-3:])
        for path in keys
        for key in (path, _labkits(path, package))
        if key.is_file()
    }
    executed = (course / "solutions").glob("[0-9][0-9]_*.ipynb")
    figures = {digest(output) for path in executed for output in pictures_of(path).values()}
    return Secrets(lessons, fragments, files, frozenset(figures))


def belongs_to_instructors(name: str) -> bool:
    """Return whether a file of labkit, by its path from the checkout, stays with instructors."""
    parts = name.split("/")
    return parts[:2] == ["labkit", "grading"] or (parts[:2] == ["labkit", "exercises"] and is_kept_back(parts[-1]))


def _labkits(key: Path, package: Path) -> Path:
    """Return the key that learners have who are in no class, of the question that a class's key is for."""
    return package / "exercises" / Path(*key.parts[-3:])


def search(bundle: Path, secrets: Secrets) -> list[Found]:
    """Return everything in a bundle that must not be there; what an empty list does not prove, `NOT_SEARCHED` says."""
    found = [Found(drift.file, drift.why) for drift in leaks(list(secrets.lessons), bundle)]
    for path in sorted(path for path in bundle.rglob("*") if path.is_file() and ".git" not in path.parts):
        name = path.relative_to(bundle).as_posix()
        found += (Found(name, why) for why in _why_not(name, path, secrets))
    return found


def _why_not(name: str, path: Path, secrets: Secrets) -> Iterator[str]:
    if name.split("/")[0] in ("solutions", "tests", "exercises") or belongs_to_instructors(name):
        yield "belongs to instructors"
    if (same := secrets.files.get(_digest(path))) is not None:
        yield f"is the instructors' file {same}"
    if path.suffix in _PICTURES:
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        yield "is neither text nor a picture, so it cannot be searched"
        return
    texts = [text]
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        texts = ["".join(cell["source"]) for cell in cells]
        outputs = [output for cell in cells for output in cell.get("outputs") or ()]
        ran = any(cell.get("execution_count") is not None for cell in cells)
        if ran or not all(digest(output) in secrets.figures for output in outputs):
            yield "carries outputs of a run"
        if any("solution" in cell["metadata"].get("tags", []) for cell in cells):
            yield "holds a cell tagged solution"
    if not name.startswith(_READS_MARKERS) and any(_MARKER.search(each) for each in texts):
        yield "holds a marker of a solution"
    everything = notebook_texts(text) if path.suffix == ".ipynb" else [text]
    inner = (inner for each in everything for inner in texts_within(each))
    windows = {window for each in (*texts, *inner) for window in _fragments(each, "")}
    yield from sorted({f"holds lines of {secrets.fragments[window]}" for window in windows & secrets.fragments.keys()})


def _fragments(text: str, where: str) -> dict[str, str]:
    """Return each run of three lines that say something.

    Shorter answers are looked for where learners read, in notebooks and slides, by :mod:`labkit.lessons.leaks`: in code
    a line or two may be a formula that a check has to know.
    """
    squeezed = [re.sub(r"\s+", " ", line).strip() for line in text.split("\n")]
    lines = [line for line in squeezed if len(re.findall(r"\w", line)) >= 4 and not line.startswith("#")]
    windows = (lines[at : at + _WINDOW] for at in range(len(lines) - _WINDOW + 1))
    return {"\n".join(window): where for window in windows if _tells(window)}


def _tells(window: Iterable[str]) -> bool:
    code = [line for line in window if not _IMPORT.match(line) and not _PASSED_ON.match(line)]
    return len(re.findall(r"\w", "".join(code))) >= _LEAST_LETTERS


def _says_something(path: Path) -> bool:
    if path.name == RECORDING:  # students get the class's own, without its key
        return False
    return path.is_file() and "__pycache__" not in path.parts and path.stat().st_size > 200


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
