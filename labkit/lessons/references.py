"""What a course's sources call each other by: slugs in the text, numbers on the page.

``[[ring_plan]]`` in a markdown cell becomes "2.4", and ``[[ring_all_reduce]]`` "02"; in a heading of its own,
``### Exercise [[ring_plan]]``, the title follows the number.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labkit.errors import LessonError
from labkit.lessons.lesson import TASKS

_HEADER = re.compile(
    r'^# %% (?:\[markdown\] )?tags=\[[^\]]*"(?:' + "|".join(TASKS) + r')"[^\]]*\] .*\bexercise="(?P<slug>[^"]*)".*$',
    re.M,
)
_TITLE = re.compile(r'\btitle="([^"]*)"')
_GUESS = re.compile(r'^labkit\.predict\("([^"]*)"', re.M)
_REFERENCE = re.compile(r"\[\[(\w+)\]\]")
_HEADING = re.compile(r"^(#+ (?:Exercise|Question) )\[\[(\w+)\]\]$", re.M)


@dataclass(frozen=True)
class References:
    """What may stand in double brackets.

    Attributes:
        numbers: Slug of an exercise or a lesson -> its number.
        titles: Slug of an exercise -> its title, as its heading has it.
    """

    numbers: Mapping[str, str]
    titles: Mapping[str, str]

    def resolved(self, text: str) -> str:
        """Return a markdown cell's text with numbers in place of slugs.

        Raises:
            UnknownSlugError: At the first slug that nothing in the course has.
        """
        text = _HEADING.sub(lambda found: f"{found[0]} {self._of(self.titles, found, 2, text)}", text)
        return _REFERENCE.sub(lambda found: self._of(self.numbers, found, 1, text), text)

    def _of(self, known: Mapping[str, str], found: re.Match[str], group: int, text: str) -> str:
        slug = found[group]
        if slug == "minutes":  # what the lesson takes, or is left of it: known when all of it is read
            return found[0]
        if slug not in known:
            raise UnknownSlugError(slug, text.count("\n", 0, found.start()), known)
        return known[slug]


class UnknownSlugError(ValueError):
    """Nothing has this slug. ``offset`` is its line within the cell, from 0."""

    def __init__(self, slug: str, offset: int, known: Mapping[str, str]) -> None:
        near = difflib.get_close_matches(slug, known, n=1)
        hint = f" (did you mean [[{near[0]}]]?)" if near else ""
        super().__init__(f"[[{slug}]] names no exercise or lesson of the course{hint}.")
        self.offset = offset


def references(name: str, text: str, folder: Path | None) -> References:
    """Return what the lesson `name` may refer to: its own exercises, and those of the sources beside it.

    Args:
        name: The lesson's full name.
        text: Its source.
        folder: Where the course's sources are; None for a lesson by itself.

    Raises:
        LessonError: If two lessons use one slug for an exercise, a guess or a lesson.
    """
    sources = {path.stem: path.read_text(encoding="utf-8") for path in _beside(folder)} | {name: text}
    owners: dict[str, str] = {}
    numbers: dict[str, str] = {}
    titles: dict[str, str] = {}
    for stem, source in sorted(sources.items()):
        number, _, slug = stem.partition("_")
        exercises, guesses = _keys(source)
        for key in ([slug] if slug else []) + list(dict.fromkeys([*exercises, *guesses])):
            if owners.setdefault(key, stem) != stem:
                raise LessonError(f"{owners[key]} and {stem} both use the key {key!r}; a key is unique in the course.")
        numbers |= {slug: number} if slug else {}
        for position, exercise in enumerate(exercises, 1):
            numbers[exercise] = exercise_number(stem, position)
            titles[exercise] = exercises[exercise]
    return References(numbers, titles)


def exercise_number(name: str, position: int) -> str:
    """Return what people call an exercise by: "2.4" for the fourth of 02_ring_all_reduce."""
    number = name.partition("_")[0]
    return f"{int(number) if number.isdigit() else 0}.{position}"


def _beside(folder: Path | None) -> list[Path]:
    return sorted(folder.glob("[0-9][0-9]_*.py")) if folder is not None else []


@cache
def _keys(source: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return a source's exercises with their titles, in order, and its guesses."""
    exercises: dict[str, str] = {}
    for header in _HEADER.finditer(source):
        title = _TITLE.search(header[0])
        bonus = " (bonus)" if " bonus=true" in header[0] else ""
        exercises[header["slug"]] = f"{title[1] if title else ''}{bonus}"
    return exercises, tuple(_GUESS.findall(source))
