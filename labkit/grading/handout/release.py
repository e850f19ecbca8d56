"""`labkit release`: what students get: notebooks, slides and labkit without answers, hidden cases or grading.

The files are named by what is taken, not by what is left out, and then searched all the same: a bundle in which the
search finds anything is not written.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat

from labkit.errors import ConfigError, LessonError
from labkit.grading.handout.pages import write_pages
from labkit.grading.handout.release_search import belongs_to_instructors, search, secrets_of
from labkit.grading.handout.repository_files import REPOSITORY, repository_files
from labkit.grading.handout.runtime_lock import runtime_lock
from labkit.grading.handout.students_readme import students_readme
from labkit.grading.handout.texts_within import NOT_SEARCHED
from labkit.lessons.class_course import own_keys, own_recordings, showing
from labkit.lessons.course import find_course, select
from labkit.lessons.notebook import as_text
from labkit.lessons.pristine import ORIGINALS, TUTOR
from labkit.lessons.source import load
from labkit.links import refuse_links
from labkit.progress import Told, untold

_FILES = ("LICENSE", "environment.yml", ".jupyter")
_TARGETS = ("help", "setup", "$(STAMP)", "stale", "lab", "clean")
_LIST = ".labkit-release.json"
_SHOWN = 10


@dataclass(frozen=True)
class Release:
    """What was written.

    Attributes:
        folder: The bundle.
        lessons: Names of the lessons in it.
        num_files: How many files it has.
        num_bytes: Their size.
        num_fragments: For how many pieces of answers and hidden cases it was searched, in vain.
        num_secret_files: For how many whole files.
    """

    folder: Path
    lessons: tuple[str, ...]
    num_files: int
    num_bytes: int
    num_fragments: int
    num_secret_files: int

    def __str__(self) -> str:
        """Return what the terminal shows."""
        return (
            f"{self.folder}: {', '.join(self.lessons)}; {self.num_files} files, {self.num_bytes / 1e6:.1f} MB\n"
            f"searched for {self.num_fragments} fragments of answers and hidden cases, {self.num_secret_files} whole "
            f"files, markers and outputs: none is in it\n({NOT_SEARCHED})"
        )


def release(
    destination: str | Path,
    lessons: Sequence[str] = (),
    course: str | Path | None = None,
    pages: bool = False,
    told: Told = untold,
) -> Release:
    """Write the student bundle, once the search has found nothing in it that students must not have.

    Args:
        destination: A folder that does not exist, is empty, holds an earlier release or only ``.git``.
        lessons: Numbers or names; all if none is named.
        course: The folder that holds ``notebooks/`` and ``solutions/``; None looks upwards from the working directory.
        pages: With slides, glossary and site as pages.
        told: Told what is done before it is.

    Raises:
        ConfigError: If the folder holds anything else, or labkit is not installed from its repository.
        LessonError: If a lesson is not there, or the search found something.
    """
    root = find_course(Path(course) if course else None, sources=True)
    target = Path(destination)
    refuse_links(target, "the folder")
    earlier = _earlier(target)
    available = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    notebooks = [select(available, asked) for asked in lessons] or available
    secrets = secrets_of(root, REPOSITORY / "labkit")
    target.parent.mkdir(parents=True, exist_ok=True)
    total = 3 if pages else 2
    with tempfile.TemporaryDirectory(prefix=".release-", dir=target.parent) as folder:
        told("copying the course", 0, total)
        bundle = Path(folder) / "bundle"
        _copy_repository(bundle)
        for notebook in notebooks:
            slides = root / "slides" / f"{notebook.stem}.md"
            for path in (notebook, *([slides] if slides.is_file() else [])):
                _copy(path, bundle / path.parent.name / path.name)
            _copy(notebook, bundle / "notebooks" / ORIGINALS / notebook.name)  # for `labkit reset`
        _copy(REPOSITORY / "notebooks" / TUTOR, bundle / "notebooks" / TUTOR)
        _with_the_class_recordings(root, bundle)
        if pages:
            told("slides and site", 1, total)
            write_pages(notebooks, root, bundle / "pages")
        lock = runtime_lock(REPOSITORY)
        (bundle / "requirements.lock").write_text(lock, encoding="utf-8")
        (bundle / "README.md").write_text(students_readme(notebooks, lock, pages), encoding="utf-8")
        told("searching for answers", total - 1, total)
        found = search(bundle, secrets)
        if found:
            more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            listed = "\n  ".join(map(str, found[:_SHOWN]))
            anew = "\nNotebooks that were worked in: `labkit build --no-execute` writes them again."
            raise LessonError(f"nothing was released, because students would have got:\n  {listed}{more}{anew}")
        files = sorted(path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file())
        (bundle / _LIST).write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")
        size = sum((bundle / name).stat().st_size for name in files)
        for name in earlier:
            (target / name).unlink(missing_ok=True)
        for name in [*files, _LIST]:
            _copy(bundle / name, target / name)
    names = tuple(path.stem for path in notebooks)
    return Release(target, names, len(files) + 1, size, len(secrets.fragments), len(secrets.files))


def _earlier(target: Path) -> list[str]:
    """Return the files that an earlier release wrote to `target`; refuse a folder of something else."""
    if not target.exists():
        return []
    if not target.is_dir():
        raise ConfigError(f"{target} is a file; name a folder for the release")
    if (target / _LIST).is_file():
        listed: list[str] = json.loads((target / _LIST).read_text(encoding="utf-8"))
        return [name for name in listed if not Path(name).is_absolute() and ".." not in Path(name).parts]
    other = sorted(path.name for path in target.iterdir() if path.name != ".git")
    if other:
        raise ConfigError(f"{target} holds {other[0]!r} and is not an earlier release; name a new or an empty folder")
    return []


def _copy_repository(bundle: Path) -> None:
    for name in repository_files(("labkit", *_FILES), "labkit release"):
        if not belongs_to_instructors(name):
            _copy(REPOSITORY / name, bundle / name)
    _copy(REPOSITORY / "pyproject.toml", bundle / "pyproject.toml")
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    (bundle / "Makefile").write_text(_students_targets(makefile), encoding="utf-8")
    ignored = "\n".join([".venv/", "__pycache__/", "*.egg-info/", ".ipynb_checkpoints/", "notebooks/*.py", ""])
    (bundle / ".gitignore").write_text(ignored, encoding="utf-8")


def _with_the_class_recordings(root: Path, bundle: Path) -> None:
    """Where a class has a key of its own, put its recording in place of labkit's, and take labkit's key away.

    A figure that shows labkit's recording has no picture then: run, its cell shows the class's.
    """
    rooms = bundle / "labkit" / "exercises"
    for key in own_keys(root).values():
        (rooms / Path(*key.parts[-3:])).unlink(missing_ok=True)
    recordings = own_recordings(root)
    for path in recordings.values():
        _copy(path, rooms / Path(*path.parts[-3:]))
    for path in sorted((bundle / "notebooks").rglob("*.ipynb")):
        source = root / "solutions" / f"{path.stem}.py"
        shown = {cell.id for cell in showing(load(source), recordings)} if source.is_file() else set()
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        for cell in notebook.cells:
            if cell.id in shown:
                cell.outputs = []
        if shown:
            path.write_text(as_text(notebook), encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _students_targets(makefile: str) -> str:
    """Return the Makefile with its settings and the targets that students need."""
    head, *blocks = re.split(r"\n(?=[\w$().-][^\n=]*:(?!=))", makefile)
    kept = [block for block in blocks if block.split(":")[0].strip() in _TARGETS]
    return re.sub(r"(?m)^\.PHONY:.*$", ".PHONY: help setup lab clean stale", "\n".join([head, *kept])).rstrip() + "\n"
