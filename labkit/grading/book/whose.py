"""Who is in the roster, and whose a file is, for commands that keep no book themselves."""

from __future__ import annotations

from collections.abc import Iterable

from labkit.grading.book.opening import opened_book


def whose_in(url: str, names: Iterable[str]) -> dict[str, str]:
    """Return whose each file is by the roster, as far as that is known; without a roster each is its own."""
    with opened_book(url) as opened:
        return dict(opened.whose(names).people)


def people_in(url: str) -> list[str]:
    """Return the names of everybody in the roster."""
    with opened_book(url) as opened:
        return sorted(opened.people())
