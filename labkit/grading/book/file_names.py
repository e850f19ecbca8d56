"""What the names say that Canvas, Moodle and Gradescope give to files handed in.

Sources: Canvas, `lib/content_zipper.rb` of instructure/canvas-lms (`get_filename`, `add_upload_submission`: the name in
lower case without signs, "LATE" where it is late, the user's number, the file's number, the file's own name; of
anonymous assignments "anon" and five letters and digits). Moodle, "Download all submissions": `Full name_NUMBER_
assignsubmission_file_`, the number being that of "Participant NUMBER" in the grading worksheet. Gradescope, "Export
Submissions": folders `submission_NUMBER` beside `submission_metadata.yml`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.grading.submission import safe_name

_CANVAS = re.compile(
    r"(?:(?P<name>\w+?)_)??(?P<late>LATE_)?(?:anon_(?P<anonymous>[A-Za-z0-9]{5})|(?P<id>\d+))_(?P<file>\d+)_(?P<rest>.+)"
)
# The first number is Moodle's: the file's own name, which follows, may look the same.
_MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<rest>.*))?")
_GRADESCOPE = re.compile(r"submission_(?P<id>\d+)")
_NONE = re.compile(
    r"0*|x*|na|none|null|nil|nan|nv|tbd|tba|unknown|missing|empty|pending|notavailable|notapplicable|noid|noemail"
    r"|unbekannt|keiner?s?|ohne|ka|keineangabe|aucune?|sans|ninguno|ninguna"
)
_AGAIN = re.compile(r"-(?P<again>\d+)(?:\.ipynb)?")


@dataclass(frozen=True)
class FileName:
    """What a file's or folder's name says.

    Attributes:
        system: "Canvas", "Moodle" or "Gradescope".
        id: The number by which the system knows the student (of Gradescope the submission); "" of anonymous ones.
        name: The student's name as the system wrote it, or "".
        late: Whether the system calls it late.
        rest: The file's own name, or "".
        again: How many files of that name its student had handed in before; Canvas counts them.
    """

    system: str
    id: str
    name: str = ""
    late: bool = False
    rest: str = ""
    again: int = 0


def of_system(name: str) -> FileName | None:
    """Return what a name of a file or folder says that a learning platform gave; None for any other name."""
    if found := _MOODLE.fullmatch(name):
        return FileName("Moodle", found["id"], found["name"].strip(), rest=found["rest"] or "")
    if found := _GRADESCOPE.fullmatch(name):
        return FileName("Gradescope", found["id"])
    if found := _CANVAS.fullmatch(name):
        again = _AGAIN.search(found["rest"])
        count = int(again["again"]) if again and again.end() == len(found["rest"]) else 0
        return FileName(
            "Canvas", found["id"] or "", found["name"] or "", found["late"] is not None, found["rest"], count
        )
    return None


def by_system(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names of files by the system that gave them, "" for none, each system's in order."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        named = of_system(name)
        found.setdefault(named.system if named else "", []).append(name)
    return found


def keys(name: str) -> frozenset[str]:
    """Return what a submission can be known by: its name as a whole, and the number a system put into it."""
    found = {plain(name)} - {""}
    named = of_system(name)
    if named is not None and named.id:
        found.add(key(named.system, named.id))
    return frozenset(found)


def owner(name: str) -> str:
    """Return whose a file is as its name tells it alone: the number of Canvas or Moodle, else the name itself."""
    named = of_system(name)
    return key(named.system, named.id) if named and named.id and named.system != "Gradescope" else name


def key(system: str, number: str) -> str:
    """Return what stands for a number of a system: no name of a file is the same by chance."""
    return f"{system.casefold()}:{number.strip()}"


def plain(text: str | None) -> str:
    """Return a name, login or address as it is compared: as a file could be named after it, without its case."""
    return safe_name(text).casefold() if text and any(each.isalnum() for each in text) else ""


def identity(text: str | None) -> str:
    """Return a name, number, login or address as it is compared; "" where a cell only says that there is none."""
    signs = "".join(each for each in unicodedata.normalize("NFKC", text or "").casefold() if each.isalnum())
    return "" if _NONE.fullmatch(signs) else plain(text)
