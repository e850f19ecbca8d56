"""Open a file in a folder that a student's code may have changed: links are refused, and so is what lies outside."""

from __future__ import annotations

import os
from collections.abc import Callable


class NotInsideError(Exception):
    """The path leaves the folder, goes through a link, or names another kind of file."""


def open_inside(folder: int, path: str, is_kind: Callable[[int], bool]) -> int:
    """Return a descriptor (``O_PATH``) of what `path` names inside `folder`.

    Open it, or connect to it, as ``/proc/self/fd/N``: that stays the same file even if the path is replaced later.

    Args:
        folder: A descriptor of the folder.
        path: Names with ``/`` between them, none of them a link.
        is_kind: Tests the mode, such as ``stat.S_ISSOCK``.

    Raises:
        NotInsideError: If a part of the path is a link, or the file is of another kind.
        OSError: If there is no such file.
    """
    *above, name = path.split("/")
    if any(part in ("", ".", "..") for part in (*above, name)):
        raise NotInsideError(f"{path!r} is not a path below a folder")
    opened = os.dup(folder)
    try:
        for part in above:
            inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
            os.close(opened)
            opened = inner
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
    except NotADirectoryError:
        raise NotInsideError(f"{path!r} has a link or a file where a folder should be") from None
    finally:
        os.close(opened)
    if not is_kind(os.fstat(found).st_mode):
        os.close(found)
        raise NotInsideError(f"{path!r} is not the kind of file it should be")
    return found
