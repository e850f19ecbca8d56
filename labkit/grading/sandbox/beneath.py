"""Opening what lies in a folder that a student's code could have changed: never outside of it, never by a link."""

from __future__ import annotations

import os
from collections.abc import Callable


class NotBeneathError(Exception):
    """Something else stands where a thing was to be opened."""


def open_beneath(folder: int, path: str, is_kind: Callable[[int], bool]) -> int:
    """Return a descriptor of what `path` names beneath `folder`: of the thing itself, to be opened or connected to.

    It is reached as ``/proc/self/fd/N``, whatever stands under the path later.

    Args:
        folder: A descriptor of the folder.
        path: Names with ``/`` between them, none of them a link.
        is_kind: What it has to be, such as ``stat.S_ISSOCK``.

    Raises:
        NotBeneathError: If a part of the path is a link, or it is something else.
        OSError: If it is not there.
    """
    *above, name = path.split("/")
    if any(part in ("", ".", "..") for part in (*above, name)):
        raise NotBeneathError(f"{path!r} is not a path below a folder")
    opened = os.dup(folder)
    try:
        for part in above:
            inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
            os.close(opened)
            opened = inner
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
    except NotADirectoryError:
        raise NotBeneathError(f"{path!r} has a link or a file where a folder should be") from None
    finally:
        os.close(opened)
    if not is_kind(os.fstat(found).st_mode):
        os.close(found)
        raise NotBeneathError(f"{path!r} is not the kind of file it should be")
    return found
