"""Where a course lies on disk: solutions/, notebooks/ and slides/ under one root, and its lessons by name."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from labkit.errors import LessonError
from labkit.lessons.manifest import read
from labkit.lessons.prediction_cell import read_prediction
from labkit.slugs import names_lesson

_LONGEST_QUESTION = 160


def find_course(start: Path | None = None, *, sources: bool = False) -> Path:
    """Return the course's root: the nearest folder, from start upwards, that holds ``notebooks/``.

    Args:
        start: Where to begin; None is the working directory. A file stands for its folder.
        sources: True also asks for ``solutions/``, which a student release lacks, and not for ``notebooks/``,
            which building makes.

    Raises:
        LessonError: If no such folder is found.
    """
    wanted = "solutions" if sources else "notebooks"
    begin = (start or Path()).resolve()
    for folder in (begin, *begin.parents):
        if (folder / wanted).is_dir():
            return folder
    why = " (a student release has none; building needs the full repository)" if sources else ""
    raise LessonError(f"No folder from {begin} upwards holds {wanted}/{why}; say where with --course DIR.")


def brought_course() -> Path:
    """Return the root of the course that labkit itself brings: what a wheel carries, else its repository."""
    package = Path(__file__).resolve().parents[1]
    return package / "course" if (package / "course").is_dir() else package.parent


def exercise_titles(start: Path | None = None) -> dict[str, list[tuple[str, str, str]]]:
    """Return each lesson's exercises as (slug, number, title), by the lesson's number, read from the notebooks.

    Sentences that a person reads are not among them: nothing is known of them while a class works.

    Raises:
        LessonError: If no course is found, or a notebook carries no manifest.
    """
    notebooks = sorted((find_course(start) / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    return {
        path.stem[:2]: [(each.id, each.number, each.title) for each in read(path).exercises if each.kind != "write"]
        for path in notebooks
    }


def predictions_and_questions(start: Path | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the course has learners guess, read from the notebooks: units by name, and what is asked by name.

    What is asked is the last question of the text above; of a guess before which nothing is asked there is none.

    Raises:
        LessonError: If no course is found.
    """
    found = list(_guesses(start))
    return {name: unit for name, unit, _ in found}, {name: asked for name, _, asked in found if asked}


def _guesses(start: Path | None) -> Iterator[tuple[str, str, str]]:
    """Give the name, the unit and the question of each guess."""
    for path in sorted((find_course(start) / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        prose = ""
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                prose = source
            elif "predict" in cell["metadata"].get("tags", ()):
                read = [each for each in map(read_prediction, ast.parse(source).body) if each and each.is_call]
                for each in read:
                    yield each.name, each.unit, _last_question(prose)
                prose = "" if read else prose  # one question, one guess


def _last_question(prose: str) -> str:
    """Return the last sentence of Markdown that is a question, without its marks; "" for none."""
    text = " ".join(line for line in prose.splitlines() if not line.startswith("#"))
    plain = re.sub(r"[*`]", "", " ".join(text.split()))
    asked = [each for each in re.split(r"(?<=[.:;!?)]) (?=[A-Z(])", plain) if each.endswith("?")]
    return asked[-1] if asked and len(asked[-1]) <= _LONGEST_QUESTION else ""


def source_files(course: Path) -> list[Path]:
    """Return the lesson sources of a course, in the order of their numbers."""
    return sorted((course / "solutions").glob("[0-9][0-9]_*.py"))


def select(available: list[Path], asked: str) -> Path:
    """Return the one file that a lesson's number, slug, name or path means.

    Raises:
        LessonError: If none or several match; the message lists what there is.
    """
    matching = [path for path in available if names_lesson(path.stem, Path(asked).stem)]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(path.stem for path in available) or "none"
    raise LessonError(f"{'No' if not matching else 'More than one'} lesson is called {asked!r}; there are: {names}.")
