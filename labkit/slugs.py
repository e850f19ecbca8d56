"""Slugs: the keys of lessons, exercises and guesses. Numbers are for people and follow from files and positions."""

from __future__ import annotations

import re

_SLUG = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_NUMBER = re.compile(r"^[0-9]{2}_(?=[a-z])")
LONGEST = 48


def is_slug(text: object) -> bool:
    """Return whether this can be the key of a lesson, an exercise or a guess: ``ring_all_reduce``."""
    return isinstance(text, str) and len(text) <= LONGEST and _SLUG.fullmatch(text) is not None


def names_lesson(stem: str, asked: str) -> bool:
    """Return whether a lesson's number ("2", "02"), slug or full name means this one.

    Args:
        stem: The lesson's full name, "02_ring_all_reduce".
        asked: What somebody typed.
    """
    return asked in (stem, lesson_slug(stem)) or stem.partition("_")[0] == asked.zfill(2)


def lesson_slug(name: str) -> str:
    """Return a lesson's key, "ring_all_reduce", of its key or its full name, "02_ring_all_reduce"."""
    return _NUMBER.sub("", name)
