"""Who is in the roster, and whose a file is, for commands that keep no book themselves."""

from __future__ import annotations

from collections.abc import Iterable

from labkit.errors import ConfigError
from labkit.grading.book.file_names import of_system
from labkit.grading.book.opening import opened_book, refuse_missing


def whose_in(url: str, names: Iterable[str]) -> dict[str, str]:
    """Return whose each file is by the roster, as far as that is known; without a roster each is its own."""
    with opened_book(url) as opened:
        return dict(opened.whose(names).people)


def called_in(url: str, names: Iterable[str]) -> dict[str, str]:
    """Return what people call the owner of each file: by the roster, or as the platform wrote the name into it.

    Args:
        url: Of a gradebook; where it is not there yet there is no roster.
        names: Of files.
    """
    listed = list(names)
    try:
        refuse_missing(url)  # before a database is loaded, which a machine that only grades need not have
        with opened_book(url) as opened:
            known = dict(opened.whose(listed).people) if opened.people() else {}
    except ConfigError:
        known = {}
    told = {name: of_system(name) for name in listed if name not in known}
    return {name: named.name.replace("_", " ") for name, named in told.items() if named and named.name} | known


def people_in(url: str) -> list[str]:
    """Return the names of everybody in the roster."""
    with opened_book(url) as opened:
        return sorted(opened.people())
