"""How a command opens a gradebook: a file or a URL; what only reads makes no new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import ConfigError

if TYPE_CHECKING:
    from labkit.grading.book.gradebook import Gradebook

_FILE = "sqlite:///"


def book_url(book: str) -> str:
    """Return the URL of a gradebook that is named by its file or its URL."""
    return book if ":" in book or not book else f"{_FILE}{book}"


def refuse_missing(book: str) -> None:
    """Return if the gradebook is on a server, or its file is there.

    Raises:
        ConfigError: If there is no such file.
    """
    url = book_url(book)
    if url.startswith(_FILE) and not Path(book := url.removeprefix(_FILE)).exists():
        raise ConfigError(f"there is no gradebook {book}; name the file that labkit wrote, or a database's URL.")


@contextmanager
def opened_book(book: str, preview: bool = False, *, new: bool = True) -> Iterator[Gradebook]:
    """The gradebook at a URL or in a file, closed afterwards.

    Args:
        book: SQLAlchemy's URL, or a file of SQLite.
        preview: What is written is gone afterwards.
        new: A file that is not there is made; False where there would be nothing to read in it.

    Raises:
        ConfigError: If a file that is not there must not be made.
    """
    from labkit.grading.book.gradebook import Gradebook

    if not new:
        refuse_missing(book)
    opened = Gradebook(book_url(book), preview=preview)
    try:
        yield opened
    finally:
        opened.close()
