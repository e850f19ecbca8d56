"""Where a lesson's pristine notebook, checks and hidden cases are, and what it is worth."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from labkit.checks.kept_back import HIDDEN, MISTAKES, WRONG
from labkit.checks.predictions import Plain
from labkit.errors import ConfigError
from labkit.grading.guesses import revealed
from labkit.lessons.catching_up import Pack
from labkit.lessons.cuts import without_markers
from labkit.lessons.manifest import Manifest
from labkit.lessons.manifest import read as read_manifest
from labkit.slugs import lesson_slug, names_lesson

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOMS = _PACKAGE / "exercises"

_JUDGES = (".py", ".json")


@dataclass(frozen=True)
class Course:
    """One lesson of a course, seen by the grader.

    Attributes:
        root: The course's folder, with ``notebooks/``.
        lesson: The lesson's number, "02".
        notebook: The notebook learners get.
        class_keys: The folder where a class's own keys and recordings lie, if it has any.
        exercises: The folder of the lesson's exercises where the course brings its own (``exercises/LESSON``), or None
            for labkit's.
    """

    root: Path
    lesson: str
    notebook: Path
    class_keys: Path
    exercises: Path | None

    @property
    def name(self) -> str:
        """The lesson's full name, "02_ring_all_reduce"."""
        return self.notebook.stem

    @property
    def slug(self) -> str:
        """The lesson's key, "ring_all_reduce"."""
        return lesson_slug(self.name)

    @property
    def rooms(self) -> Path:
        """The folder of the lesson's exercises: the course's own, or labkit's."""
        return self.exercises or _ROOMS / self.slug

    @cached_property
    def pristine(self) -> dict[str, Any]:
        """The notebook learners get, as JSON."""
        found = json.loads(self.notebook.read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        for cell in found["cells"]:
            cell["source"] = "".join(cell["source"])
        return found

    @cached_property
    def manifest(self) -> Manifest:
        """The lesson's exercises and points, out of the notebook's metadata."""
        return read_manifest(self.notebook)

    @cached_property
    def revealed(self) -> dict[str, Plain]:
        """What the executed solution shows beside each prediction, by the prediction's id; empty without a solution."""
        if not self._solution.is_file():
            return {}
        return revealed(json.loads(self._solution.read_text(encoding="utf-8"))["cells"])

    @cached_property
    def references(self) -> dict[str, str]:
        """The answers of the solution, by exercise; empty without a solution."""
        if not self._solution.is_file():
            return {}
        cells = json.loads(self._solution.read_text(encoding="utf-8"))["cells"]
        tagged = [cell for cell in cells if {"exercise", "design"} & set(cell["metadata"].get("tags", []))]
        return {
            str(cell["metadata"]["labkit"]["exercise"]): without_markers("".join(cell["source"])) for cell in tagged
        }

    @property
    def _solution(self) -> Path:
        return self.root / "solutions" / self.notebook.name

    @property
    def secrets(self) -> tuple[Path, ...]:
        """What no submission may see, wherever it lies: answers, keys, the course's own exercises.

        Labkit's own hidden cases are in no sandbox; see `sandbox.view`.
        """
        own = (self.class_keys.parent, *([self.exercises.parent] if self.exercises else []))
        return (*(self.root / name for name in ("solutions", "tests", "exercises")), *own)

    def own_files(self) -> dict[str, Path]:
        """Return the course's files that judge the lesson, code and keys, by their path in the course."""
        folders = (self.class_keys, *([self.exercises] if self.exercises else []))
        found = sorted(path for folder in folders for path in folder.rglob("*") if _judges(path))
        return {path.relative_to(self.root).as_posix(): path for path in found}

    def fingerprint(
        self,
        key: bytes,
        second_run: bool = True,
        packs: Sequence[Pack] = (),
        *,
        on_gpu: bool = False,
        drawn: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a hash of everything besides the submission that a score depends on.

        Args:
            key: The class key.
            second_run: Whether what stands on a mistake is run once more with reference answers.
            packs: Answers that were handed out.
            on_gpu: Whether hidden cases run on a GPU.
            drawn: The keys of students' own runs.
        """
        digest = hashlib.sha256(f"labkit grading 3, key {hashlib.sha256(key).hexdigest()}\n".encode())
        if on_gpu:
            digest.update(b"on a GPU")
        if drawn:
            digest.update(json.dumps(drawn, sort_keys=True).encode())
        for pack in packs:
            digest.update(json.dumps(asdict(pack), sort_keys=True).encode())
        if second_run:
            digest.update(json.dumps(self.references, sort_keys=True).encode())
        files = {"notebook": self.notebook, **self.own_files()}
        files |= {path.relative_to(_PACKAGE.parent).as_posix(): path for path in self._code_that_judges()}
        for name, path in files.items():
            for data in (name.encode(), path.read_bytes()):
                digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    def _code_that_judges(self) -> list[Path]:
        """Return the files of labkit, but for the exercises of other lessons and the wrong answers."""
        others = {path.parents[1] for path in _ROOMS.glob("*/*/exercise.py")} - {_ROOMS / self.slug}
        return sorted(
            path
            for path in _PACKAGE.rglob("*")
            if _judges(path) and "js" not in path.relative_to(_PACKAGE).parts and others.isdisjoint(path.parents)
        )


def _judges(path: Path) -> bool:
    return path.suffix in _JUDGES and path.name not in (MISTAKES, WRONG)


def find_course(lesson: str, course: str | Path | None = None, handed_in: Iterable[Path] = ()) -> Course:
    """Return the lesson `lesson` (its number, slug or full name) of the course in the folder `course`.

    Args:
        lesson: Its number, slug or name.
        course: The course's folder; else the working folder or the one labkit is installed from, whichever has it.
        handed_in: Submissions. The working folder is not taken for the course where one of them lies in it: it may be
            a student's, and a course brings code that judges.

    Raises:
        ConfigError: If there is no such lesson; the message says what was looked for and what there is.
    """
    here = Path.cwd()
    is_theirs = any((here / path).resolve().is_relative_to(here) for path in handed_in)
    roots = [Path(course)] if course is not None else [_PACKAGE.parent] if is_theirs else [here, _PACKAGE.parent]
    for root in roots:
        notebooks = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
        found = [path for path in notebooks if names_lesson(path.stem, lesson)]
        if len(found) == 1:
            number, slug = found[0].stem[:2], lesson_slug(found[0].stem)
            own, keys = root.resolve() / "exercises" / slug, root.resolve() / "solutions" / "hidden" / slug
            one = Course(root.resolve(), number, found[0], keys, own if own.is_dir() else None)
            named = course is not None or one.exercises is not None
            is_a_course = named or (root / "solutions").is_dir()  # a learner's folder has none
            if is_a_course and any(one.rooms.glob(f"*/{HIDDEN}")):
                return one
    root = roots[0]
    there = sorted(path.stem for path in (root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    raise ConfigError(
        f"lesson {lesson!r} cannot be graded from {root}: grading needs the lesson's notebook in notebooks/ "
        f"and the hidden cases beside its exercises, {HIDDEN}, which learners' copies of labkit do not have. Notebooks "
        f"there: {', '.join(there) or 'none'}. Name the course's folder with --course"
        + (", the working folder too: submissions lie in it, so it may be a student's." if is_theirs else ".")
    )
