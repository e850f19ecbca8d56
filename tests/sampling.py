"""Which of many tests of one kind `make test` runs: one in a few, and the others are `long` or wait for their turn.

What is `long` is the same on every machine and every day. Tests marked `in_turn` cost seconds each and take turns: of
those of one folder, one in TURNS runs. Whose turn it is follows from the commit, so that a failure is there again when
the test is run again, and the next commits run the others. What a change touches always runs.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from zlib import crc32

import pytest

TURNS = 8
"""How many runs it takes until each test has run; CONTRIBUTING.md says so."""


def one_in(
    few: int, values: Iterable[Any], name: Callable[[Any], str] = str, always: Collection[str] = ()
) -> list[Any]:
    """Return the values as parameters of a test, most of them marked `long`.

    Args:
        few: How many values make one that runs every time.
        values: One for each test.
        name: What a test is called by.
        always: Names of those that run every time besides.
    """
    return [
        pytest.param(
            value, id=name(value), marks=[] if place % few == 0 or name(value) in always else [pytest.mark.long]
        )
        for place, value in enumerate(values)
    ]


def turn_of_commit(root: Path) -> int:
    """Return whose turn it is at the commit that is checked out: drawn from its files' names and contents."""
    tree = _git(root, "rev-parse", "HEAD^{tree}")
    return int(tree[0], 16) % TURNS if tree else 0


def touched(root: Path) -> list[str]:
    """Return the files that differ from main, or on main from the commit before; those not committed are among them."""
    branched = _git(root, "merge-base", "HEAD", "main")
    since = branched if branched and branched != _git(root, "rev-parse", "HEAD") else ["HEAD~1"]
    return _git(root, "diff", "--name-only", *since) + _git(root, "ls-files", "--others", "--exclude-standard")


def _git(root: Path, *words: str) -> list[str]:
    """Return the lines that git prints; none where it has no answer, as in a copy without its history."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return done.stdout.splitlines()


def waiting(items: Sequence[pytest.Item], turn: int, changed: Collection[str]) -> list[pytest.Item]:
    """Return the tests whose turn it is not.

    Tests that are marked in their file take turns one by one, those of a file that is marked all at once. So some of
    each folder run every time, and some of each function that has TURNS parameters or stands in so many lessons.

    Args:
        items: All tests, in the order in which they were found.
        turn: Whose turn it is, below TURNS.
        changed: Files that were touched, as git names them.
    """
    units: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in sorted(items, key=_written):
        if item.get_closest_marker("in_turn") and not any(map(item.get_closest_marker, ("long", "gpu1", "gpu2"))):
            file = item.nodeid.partition("::")[0]
            together = any(mark.name == "in_turn" for node in item.listchain()[:-1] for mark in node.own_markers)
            folder = "/".join(PurePosixPath(file).parent.parts[:2])  # of tests/; solutions/ has none
            units.setdefault(folder, {}).setdefault(file if together else item.nodeid, []).append(item)
    left_out: list[pytest.Item] = []
    for folder, of_folder in units.items():
        few = min(TURNS, len(of_folder))
        now = (turn + crc32(folder.encode())) % few  # not every folder's first, which tend to cost alike
        for place, unit in enumerate(of_folder.values()):
            if place % few != now:
                left_out += unit
    always = _concerned(changed)
    return [item for item in left_out if not any(each.search(item.nodeid) for each in always)]


def _written(item: Any) -> tuple[str, str]:
    """Return where a test's function is written, which for one of many lessons is another file, and its name."""
    function = getattr(item, "function", None)
    return getattr(function, "__module__", ""), getattr(function, "__name__", "")


def _concerned(changed: Collection[str]) -> list[re.Pattern[str]]:
    """Return how the tests are called that concern files: of themselves, of an exercise, of a lesson."""
    files = [rf"^{re.escape(each)}(::|$)" for each in changed]
    exercises = re.findall(r"^labkit/exercises/\w+/(\w+)/", "\n".join(changed), re.M)
    lessons = re.findall(r"^solutions/(\d\d)_", "\n".join(changed), re.M)
    names = [rf"\b{each}\b" for each in exercises]
    return [re.compile(each) for each in itertools.chain(files, names, (rf"_{each}\.py::" for each in lessons))]
