"""Find what was handed in and read it as data, within limits; what is wrong with it is told, never raised."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError
from labkit.grading.limits import Limits
from labkit.grading.plain_text import shown
from labkit.lessons.submitted_cell import SubmittedCell
from labkit.links import refuse_links

_SKIPPED_FOLDERS = {".ipynb_checkpoints", "__MACOSX", "__pycache__"}
_SEARCH_DEPTH = 3
_LONGEST_NAME_BYTES = 180
_RESERVED = re.compile(
    r"(gradebook\.csv|(class|copies|index)(\.html)?|attempts|(con|prn|aux|nul|com\d|lpt\d)(\..*)?)", re.IGNORECASE
)
"""What lies beside the reports and pages of students, and what Windows takes for a device."""
_TEXT_OF_MOODLE = re.compile(r"_\d+_assignsubmission_(onlinetext|comments)_?$")
_NOTEBOOK = re.compile(r"(?P<stem>.+)\.ipynb(?:\.(?:txt|json))?", re.IGNORECASE | re.DOTALL)
"""A notebook's file name, and what some browsers and systems make of it when they save one."""
_WIDE = (b"\xff\xfe", b"\xfe\xff")
"""How a file begins that Windows calls Unicode."""
AGAIN = "Open your notebook in JupyterLab, save it, and hand in the .ipynb file again."
_NO_NOTEBOOK = "There is no notebook in what was handed in. " + AGAIN


READ_NO_LINK = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY"))
"""How a file is opened that a student can still exchange for a link, or for a pipe that nobody writes to."""


@dataclass(frozen=True)
class Submission:
    """One student's work, found but not read.

    Attributes:
        name: Names its folder of reports; safe as a file name, unique in its class.
        path: The notebook, or the folder in which one was looked for.
        problem: Why there is no notebook to read, or "".
    """

    name: str
    path: Path
    problem: str = ""


@dataclass(frozen=True)
class SubmittedNotebook:
    """What could be read of a submission.

    Attributes:
        cells: Its cells in order.
        problem: Why nothing could be read, or "".
        notes: What was odd and was mended.
        lesson: The lesson that its metadata names, or "".
    """

    cells: tuple[SubmittedCell, ...] = ()
    problem: str = ""
    notes: tuple[str, ...] = ()
    lesson: str = ""


def find_submissions(paths: Iterable[Path], lesson_name: str) -> tuple[list[Submission], list[str]]:
    """Return the submissions in `paths`, sorted by name, and remarks on what was passed over or renamed.

    A notebook is a submission named after its file; so is a folder that holds one, named after the folder. In a folder
    of submissions, each notebook and each subfolder counts.

    Args:
        paths: Notebooks and folders.
        lesson_name: The lesson's own notebook name; a notebook that bears it is named after its folder.

    Raises:
        ConfigError: If a path is or goes through a link, does not exist, or nothing was found.
    """
    found: list[Submission] = []
    notes: list[str] = []
    for path in paths:
        refuse_links(path, "the submission")
        if not path.exists():
            raise ConfigError(f"there is no {path}; name notebooks or folders of them")
        if path.is_dir():
            found += _in_folder(path, lesson_name, notes)
        elif _NOTEBOOK.fullmatch(path.name):
            found.append(Submission(_file_name(path, lesson_name), path))
        elif path.suffix == ".zip":
            raise ConfigError(f"{path} is a zip; unpack it (python -m zipfile -e FILE.zip FOLDER) and name the folder")
        else:
            raise ConfigError(f"{path} is not a notebook; name .ipynb files or folders of them")
    if not found:
        raise ConfigError(
            f"there is no submission in {', '.join(str(path) for path in paths)}: neither a .ipynb file nor a folder"
        )
    unique = _unique(found, notes)
    # A folder on the way may become a link later: what is opened then lies elsewhere than its path says.
    return [replace(each, path=each.path.parent.resolve() / each.path.name) for each in unique], notes


def read_submission(submission: Submission, limits: Limits | None = None) -> SubmittedNotebook:
    """Return the cells of a submission, or what is wrong with it; no exception leaves this function for bad data."""
    limits = limits or Limits()
    if submission.problem:
        return SubmittedNotebook(problem=submission.problem)
    found = opened_submission(submission.path, limits)
    if isinstance(found, SubmittedNotebook):
        return found
    with os.fdopen(found, "rb") as file:
        return read_cells(file.read(), limits)


def opened_submission(path: Path, limits: Limits) -> int | SubmittedNotebook:
    """Return a descriptor of a file handed in, or why it is not read: a link is not, whenever it came there.

    Args:
        path: Without links, as find_submissions gives it.
        limits: What a submission may have.
    """
    try:
        fd = os.open(path, READ_NO_LINK)
    except OSError as error:
        return SubmittedNotebook(problem=f"The file could not be read ({error.strerror}). " + AGAIN)
    info = os.fstat(fd)
    problem = ""
    if not stat.S_ISREG(info.st_mode):
        problem = "This is not a plain file. " + AGAIN
    elif _lies_elsewhere(fd, path):
        problem = "A folder above the file has become a link. " + AGAIN
    elif info.st_size > limits.notebook_bytes:
        problem = (
            f"The notebook is {info.st_size / 1e6:.0f} MB large; the limit is {limits.notebook_bytes / 1e6:.0f} MB. "
            "Clear the outputs of all cells, save it, and hand it in again."
        )
    if not problem:
        return fd
    os.close(fd)
    return SubmittedNotebook(problem=problem)


def _lies_elsewhere(fd: int, path: Path) -> bool:
    """Return whether an opened file is another than its path says; False where the system does not tell."""
    try:
        return Path(f"/proc/self/fd/{fd}").readlink() != Path.cwd() / path
    except OSError:
        return False


def read_cells(data: bytes, limits: Limits) -> SubmittedNotebook:
    """Return the cells that the bytes of a file hold, or what is wrong with them."""
    if not data.strip():
        return SubmittedNotebook(problem="The file is empty. " + AGAIN)
    try:
        content = json.loads(data.decode("utf-16" if data.startswith(_WIDE) else "utf-8-sig"))
    except UnicodeDecodeError:
        return SubmittedNotebook(problem="The file is not text, so it is not a notebook. " + AGAIN)
    except ValueError as error:
        where = f" (at line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        return SubmittedNotebook(problem=f"The file is not a notebook: it is cut off or damaged{where}. " + AGAIN)
    except RecursionError:
        return SubmittedNotebook(problem="The file is nested too deeply to be a notebook. " + AGAIN)
    return _cells(content, limits)


def _cells(content: Any, limits: Limits) -> SubmittedNotebook:
    if _depth_exceeds(content, limits.notebook_depth):
        return SubmittedNotebook(problem="The file is nested too deeply to be a notebook. " + AGAIN)
    if not isinstance(content, dict):
        return SubmittedNotebook(problem="The file is JSON, but not a notebook. " + AGAIN)
    listed = content.get("cells")
    notes: list[str] = []
    if listed is None and isinstance(content.get("worksheets"), list):
        sheets = [sheet.get("cells") for sheet in content["worksheets"] if isinstance(sheet, dict)]
        listed = [cell for cells in sheets if isinstance(cells, list) for cell in cells]
        notes.append("The notebook is in an old format (version 3); its cells were read anyway.")
    if not isinstance(listed, list):
        return SubmittedNotebook(problem="The file is JSON, but it has no cells, so it is not a notebook. " + AGAIN)
    if len(listed) > limits.notebook_cells:
        return SubmittedNotebook(problem=f"The notebook has {len(listed)} cells; the limit is {limits.notebook_cells}.")
    cells, odd = [], 0
    for position, cell in enumerate(listed, start=1):
        read = _cell(position, cell)
        if read is None:
            odd += 1
        else:
            cells.append(read)
    if odd:
        notes.append(f"{odd} cell{'s' if odd > 1 else ''} of the file could not be read and {_were(odd)} left out.")
    if not cells:
        return SubmittedNotebook(problem="The notebook has no cells. " + AGAIN)
    metadata = content.get("metadata")
    ours = metadata.get("labkit") if isinstance(metadata, dict) else None
    lesson = _text(ours.get("lesson")) if isinstance(ours, dict) else ""
    return SubmittedNotebook(tuple(cells), notes=tuple(notes), lesson=lesson)


def _cell(position: int, cell: Any) -> SubmittedCell | None:
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        return None
    source = cell.get("source", cell.get("input"))
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return None
    metadata = cell.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    ours = metadata.get("labkit")
    tags = metadata.get("tags")
    exercise = ours.get("exercise") if isinstance(ours, dict) else None
    return SubmittedCell(
        position,
        _text(cell.get("id")),
        cell["cell_type"],
        _text(exercise),
        tuple(_text(tag) for tag in tags) if isinstance(tags, list) else (),
        source.encode("utf-8", "replace").decode(),
    )


def _text(value: Any) -> str:
    return value.encode("utf-8", "replace").decode()[:200] if isinstance(value, str) else ""


def _were(count: int) -> str:
    return "were" if count > 1 else "was"


def _depth_exceeds(content: Any, limit: int) -> bool:
    level = [content]
    for _ in range(limit):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += [value for value in item.values() if isinstance(value, dict | list)]
            elif isinstance(item, list):
                below += [value for value in item if isinstance(value, dict | list)]
        if not below:
            return False
        level = below
    return True


# ---- names and places


def _in_folder(folder: Path, lesson_name: str, notes: list[str]) -> list[Submission]:
    entries = sorted(folder.iterdir(), key=lambda path: path.name)
    notebooks = [path for path in entries if _NOTEBOOK.fullmatch(path.name) and not path.is_dir()]
    folders = [
        path
        for path in entries
        if path.is_dir() and path.name not in _SKIPPED_FOLDERS and not path.name.startswith(".")
    ]
    found = []
    for path in notebooks:
        problem = "This is a link, not a file; hand in the notebook itself." if path.is_symlink() else ""
        found.append(Submission(_file_name(path, lesson_name), path, problem))
    if len(folders) == 1 and not notebooks and (folders[0] / "submission_metadata.yml").is_file():
        return _in_folder(folders[0], lesson_name, notes)  # Gradescope's export, in the folder it was unpacked to
    for path in folders:
        one = _of_folder(path, lesson_name)
        if one.problem == _NO_NOTEBOOK and _TEXT_OF_MOODLE.search(path.name):
            notes.append(f"{shown(path)}: skipped, because it is the text that Moodle keeps beside the files")
        else:
            found.append(one)
    passed_over = [
        path.name for path in entries if path not in notebooks and path not in folders and not path.name.startswith(".")
    ]
    if passed_over:
        notes.append(
            f"{shown(folder)}: skipped, because they are neither notebooks nor folders: "
            f"{', '.join(map(shown, passed_over))}"
        )
    return found


def _of_folder(folder: Path, lesson_name: str) -> Submission:
    """Return the one submission that a folder inside a class folder is."""
    name = safe_name(folder.name)
    if folder.is_symlink():
        return Submission(name, folder, "This is a link to a folder, not a folder; hand in the notebook itself.")
    try:
        notebooks = _notebooks_below(folder, _SEARCH_DEPTH)
    except OSError as error:
        return Submission(name, folder, f"What was handed in cannot be read ({error.strerror}). " + AGAIN)
    notebooks = [path for path in notebooks if path.suffix == ".ipynb"] or notebooks
    if len(notebooks) > 1:
        named = [path for path in notebooks if _stem(path) == lesson_name]
        notebooks = named if len(named) == 1 else notebooks
    if not notebooks:
        return Submission(name, folder, _NO_NOTEBOOK)
    if len(notebooks) > 1:
        names = ", ".join(shown(path.relative_to(folder)) for path in notebooks[:5])
        return Submission(
            name, folder, f"There are {len(notebooks)} notebooks in what was handed in ({names}); hand in one."
        )
    return Submission(name, notebooks[0])


def _notebooks_below(folder: Path, depth: int) -> list[Path]:
    found: list[Path] = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_symlink() or path.name.startswith(".") or path.name in _SKIPPED_FOLDERS:
            continue
        if path.is_dir() and depth > 0:
            found += _notebooks_below(path, depth - 1)
        elif _NOTEBOOK.fullmatch(path.name) and path.is_file():
            found.append(path)
    return found


def _file_name(path: Path, lesson_name: str) -> str:
    return safe_name(path.resolve().parent.name if _stem(path) == lesson_name else _stem(path))


def _stem(path: Path) -> str:
    found = _NOTEBOOK.fullmatch(path.name)
    return found["stem"] if found else path.stem


def safe_name(name: str) -> str:
    """Return `name` as a folder name that is safe on any system and in a CSV: letters, digits, ``._-@+`` and spaces."""
    plain = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
    plain = re.sub(r"[^\w .@+-]", "_", plain).lstrip("-+@ .")[:80]
    plain = plain.encode()[:_LONGEST_NAME_BYTES].decode("utf-8", "ignore").strip(" .") or "submission"
    return f"{plain}_" if _RESERVED.fullmatch(plain) else plain


def _unique(found: Sequence[Submission], notes: list[str]) -> list[Submission]:
    """Give each a name of its own: who has one keeps it, and a name that is made is nobody's here.

    Of several with one name the file that bears it letter by letter keeps it.
    """
    natural = {submission.name.casefold() for submission in found}
    taken: dict[str, Path] = {}
    unique = []
    for submission in sorted(found, key=_exactness):
        name, count = submission.name, 1
        while name.casefold() in taken or (count > 1 and name.casefold() in natural):
            count += 1
            name = f"{submission.name}-{count}"
        if name != submission.name:
            first = taken[submission.name.casefold()]
            here, there = shown(submission.path), shown(first)
            notes.append(f"{here} is reported as {name!r}: {there} has the name {submission.name!r}")
        taken[name.casefold()] = submission.path
        unique.append(replace(submission, name=name))
    return sorted(unique, key=lambda each: each.name)


def _exactness(submission: Submission) -> tuple[str, bool, str]:
    names = {submission.path.name, _stem(submission.path), submission.path.parent.name}
    return submission.name, submission.name not in names, str(submission.path)


def submission_hash(path: Path) -> str:
    """Return a hash of the file handed in, or "no file" where there is none that is read.

    Args:
        path: As of :func:`opened_submission`.
    """
    digest = hashlib.sha256()
    try:
        with open(os.open(path, READ_NO_LINK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or _lies_elsewhere(file.fileno(), path):
                return "no file"  # a pipe would keep us waiting for ever
            for _ in range(64):
                digest.update(file.read(1 << 20))
            digest.update(str(os.fstat(file.fileno()).st_size).encode())
    except OSError:
        return "no file"
    return digest.hexdigest()
