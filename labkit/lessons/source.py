"""A lesson's source: py:percent text into typed cells and exercises, with every mistake named by file and line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from labkit.checks.answer_cell import read_answer
from labkit.errors import LessonError
from labkit.lessons import code
from labkit.lessons.budget import promised
from labkit.lessons.cell_ids import cell_id
from labkit.lessons.cuts import Cut, MarkerError, cut, has_marker
from labkit.lessons.headers import HeaderError, exercise_of, nearest, refuse_unknown
from labkit.lessons.lesson import MODIFIERS, ROLES, TASKS, Cell, Lesson
from labkit.lessons.manifest import Exercise
from labkit.lessons.prediction_cell import without_guess
from labkit.lessons.references import References, UnknownSlugError, exercise_number, references
from labkit.lessons.write_cell import PLACEHOLDER, model_answer
from labkit.slugs import is_slug

__all__ = ["Cell", "Lesson", "load", "parse"]

_MARKDOWN_TAGS = ("slide", "slide-only", "solution", "stop", "write")
_HEADER = re.compile(r"^\s*#?\s*%%(%*)(\s|$)")


def load(path: Path) -> Lesson:
    """Return the lesson that a source file describes.

    Raises:
        LessonError: If the file is missing or anything in it is wrong; the message names file, line and cure.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LessonError(f"There is no lesson source {path}.") from None
    return parse(text, path)


def parse(text: str, path: Path | str | None = None) -> Lesson:
    """Return the lesson that a py:percent text describes.

    Args:
        text: The source.
        path: Where it came from; gives the lesson its name, and messages their file. None for a text of no file.

    Raises:
        LessonError: If anything is wrong; the message names file, line and cure.
    """
    file = "solutions/lesson.py" if path is None else f"{Path(path).parent.name or '.'}/{Path(path).name}"
    name = Path(file).stem
    if path is not None and not (re.match(r"\d\d_", name) and is_slug(name[3:])):
        raise LessonError(f"{file} is not a lesson's name; use NN_slug.py, such as 02_ring_all_reduce.py.")
    reader = _Reader(file, references(name, text, None if path is None else Path(path).parent))
    cells = tuple(reader.cells(text))
    lesson = Lesson(
        name=name,
        title=_title(cells, file),
        file=file,
        cells=cells,
        exercises=tuple(reader.exercises.values()),
        source_sha256=hashlib.sha256(text.encode()).hexdigest(),
        rubrics=reader.rubrics,
    )
    return promised(lesson)


@lru_cache(maxsize=32)
def _raw_cells(text: str) -> tuple[tuple[str, str, tuple[tuple[str, Any], ...]], ...]:
    """Return kind, source and metadata of each cell. One process asks again and again, and jupytext takes its time."""
    import jupytext  # type: ignore[import-untyped,unused-ignore]

    # jupytext notes in the metadata how many blank lines the formatter left; that says nothing of the cell.
    return tuple(
        (
            cell.cell_type,
            cell.source,
            tuple(each for each in cell.metadata.items() if not each[0].startswith("lines_to_")),
        )
        for cell in jupytext.reads(text, fmt="py:percent").cells
    )


class _Reader:
    """Reads the cells of one source, and keeps what must be unique."""

    def __init__(self, file: str, references: References) -> None:
        self.file = file
        self.references = references
        self.exercises: dict[str, Exercise] = {}
        self.rubrics: dict[str, dict[str, int]] = {}
        self.ids: set[str] = set()
        self.num_given = 0

    def fail(self, line: int, message: str) -> NoReturn:
        raise LessonError(f"{self.file}:{line}: {message}")

    def cells(self, text: str) -> Iterator[Cell]:
        """Yield the typed cells of a source text."""
        raw_cells = _raw_cells(text)
        lines = self._header_lines(text, [source for _, source, _ in raw_cells])
        for (kind, source, metadata), line in zip(raw_cells, lines, strict=True):
            yield self._cell(kind, source, dict(metadata), line)

    def _header_lines(self, text: str, sources: list[str]) -> list[int]:
        """Return the line of each cell's header. Markers quoted inside a cell are no headers."""
        text_lines = text.split("\n")
        headers = iter(
            [at for at, line in enumerate(text_lines, 1) if line.lstrip().startswith("#") and _HEADER.match(line)]
        )
        found: list[int] = []
        for source in sources:
            found.append(next(headers, 0))
            for _ in filter(_HEADER.match, source.split("\n")):
                next(headers, None)
        if 0 in found:
            self.fail(1, "there is text before the first `# %%` header; put it into a cell.")
        return found

    def _cell(self, kind: str, source: str, metadata: dict[str, Any], line: int) -> Cell:
        if kind not in ("markdown", "code"):
            self.fail(line, f"a cell of type {kind!r}; use `# %%` or `# %% [markdown]`.")
        if "incorrectly_encoded_metadata" in metadata:
            self.fail(
                line,
                f"cannot read {metadata['incorrectly_encoded_metadata']!r} in the cell's header; "
                'write tags=["exercise"] exercise="chunk_bounds" points=6, with double quotes.',
            )
        tags = self._tags(kind, metadata.pop("tags", []), line)
        role = next((tag for tag in tags if tag in ROLES), None)
        seconds = self._seconds(metadata.pop("seconds", 0), line) if kind == "code" and role not in TASKS else 0
        if kind == "code" and source.strip() == "":
            self.fail(line, "an empty cell; remove its header.")
        student_source = source
        cuts: tuple[Cut, ...] = ()
        exercise: str | None = None
        written = source
        try:
            if kind == "markdown":
                source = student_source = self.references.resolved(source)
            elif role in ("exercise", "design"):
                number = exercise_number(Path(self.file).stem, len(self.exercises) + 1)
                student_source, cuts = cut(source, f"Exercise {number}: {metadata.get('title')}")
            elif (marker := has_marker(source)) is not None and role != "solution":
                raise MarkerError("a SOLUTION marker in a cell that is not tagged exercise; tag the cell.", marker)
        except (MarkerError, UnknownSlugError) as error:
            self.fail(line + 1 + error.offset, str(error))
        try:
            if kind == "code":
                code.parse(source, strict=role in (*TASKS, "given", "predict") or "export" in tags)
            if role in ("given", "exercise", "design") or "export" in tags:
                code.refuse_side_effects(source)
            if role in TASKS:
                exercise = self._exercise(role, metadata, source, student_source, cuts, line)
                metadata = {}
            if role in ("find", "why"):
                student_source = self._unanswered(source, exercise or "", line)
            elif role == "write":
                student_source, cuts = PLACEHOLDER, (model_answer(exercise or "", source),)
            elif role == "check":
                exercise = self._checked(metadata.pop("exercise", None), source, line)
            predicted = code.predicted_name(source) if role == "predict" else None
            if role == "predict":
                student_source = without_guess(source)
            if predicted in self.references.titles:
                self.fail(line, f"a guess called {predicted!r}, as an exercise is; call it by what is guessed.")
        except code.CodeError as error:
            self.fail(line + error.line, str(error))
        self._refuse_attributes(metadata, role, line)
        self.num_given += role == "given"
        identity = cell_id(
            kind, written, role, exercise=exercise, predicted=predicted, num_given=self.num_given, taken=self.ids
        )
        if identity in self.ids:
            self.fail(line, f"a second cell would have the id {identity}; each {role} cell needs its own name.")
        self.ids.add(identity)
        return Cell(
            id=identity,
            kind="markdown" if kind == "markdown" else "code",
            source=source,
            student_source=student_source,
            tags=tags,
            exercise=exercise,
            cuts=cuts,
            line=line,
            seconds=seconds,
        )

    def _seconds(self, written: object, line: int) -> int:
        if not isinstance(written, int) or isinstance(written, bool) or written < 0:
            self.fail(line, f"seconds={written!r}; write how long the cell runs at most, seconds=20.")
        return written

    def _tags(self, kind: str, tags: object, line: int) -> tuple[str, ...]:
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            self.fail(line, f'tags={tags!r}; write tags=["exercise"].')
        known = ROLES + MODIFIERS
        for tag in tags:
            if tag not in known:
                self.fail(line, f"unknown tag {tag!r}{nearest(tag, known)}; known tags: {', '.join(known)}.")
            if kind == "markdown" and tag not in _MARKDOWN_TAGS:
                self.fail(line, f"tag {tag!r} on a markdown cell; it is for code.")
        roles = [tag for tag in tags if tag in ROLES]
        if len(roles) > 1:
            self.fail(line, f"tags {' and '.join(roles)} exclude each other; keep one.")
        return tuple(tags)

    def _exercise(
        self, tag: str, metadata: dict[str, Any], source: str, student_source: str, cuts: tuple[Cut, ...], line: int
    ) -> str:
        number = exercise_number(Path(self.file).stem, len(self.exercises) + 1)
        try:
            exercise = exercise_of(tag, metadata, number, tuple(self.exercises))
        except HeaderError as error:
            self.fail(line, str(error))
        for each in cuts:
            if each.exercise != exercise.id:
                self.fail(
                    line + 1 + each.offset,
                    f"BEGIN SOLUTION {each.exercise} in the cell of exercise {exercise.id}; use the same name in both.",
                )
        if exercise.is_code:
            code.refuse_uncut(source, student_source, exercise)
        self.exercises[exercise.id] = exercise
        if tag == "write":
            self.rubrics[exercise.id] = metadata["rubric"]
        return exercise.id

    def _unanswered(self, source: str, exercise: str, line: int) -> str:
        """Return a find or why cell as a learner gets it: None for each answer."""
        found = read_answer(source)
        if found is None or found.exercise != exercise or len(code.body(source)) != 1:
            self.fail(
                line,
                f'the cell of {exercise} is one call with literals: labkit.answer("{exercise}", rank=3), '
                f'or labkit.answer("{exercise}", 2.0) for a single one.',
            )
        return found.source({})

    def _checked(self, written: object, source: str, line: int) -> str:
        named = {written} if isinstance(written, str) else set(code.checked_exercises(source))
        if len(named) != 1:
            listed = " and ".join(sorted(named)) or "none"
            self.fail(
                line,
                f'a check cell checks one exercise, as in labkit.check("ring_sum", ring_sum); this one: {listed}.',
            )
        exercise_id = named.pop()
        if exercise_id not in self.exercises:
            known = ", ".join(self.exercises) or "none"
            self.fail(line, f"a check of exercise {exercise_id}, which is not above it; above are {known}.")
        return exercise_id

    def _refuse_attributes(self, metadata: dict[str, Any], role: str | None, line: int) -> None:
        try:
            refuse_unknown(metadata, (), role)
        except HeaderError as error:
            self.fail(line, str(error))


def _title(cells: tuple[Cell, ...], file: str) -> str:
    for cell in cells:
        if cell.kind == "markdown" and cell.role is None:
            for line in cell.source.split("\n"):
                if line.startswith("# "):
                    return line[2:].strip()
    raise LessonError(f"{file}: the lesson has no title; begin it with a markdown cell `# # Title`.")
