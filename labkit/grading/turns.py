"""Whose turn it is on one machine: notebooks' kernels, submissions' hidden cases or one second run, never two of these.

A kernel can call the checks' oracles, ranks of hidden cases know inputs, and ranks of a second run hold answers. What
runs at the same time can tell each other something by load, whatever a sandbox cuts.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from labkit.errors import EnvironmentProblem

KERNELS, CASES, SECOND_RUN = "kernels", "cases", "second run"
TURNS = "LABKIT_TURNS"
"""The environment variable that names the folder of the locks, where containers of one machine share one."""


@contextmanager
def turn(folder: Path, of: str) -> Iterator[None]:
    """Hold a turn: beside others of its kind, a second run alone. Who waits is not overtaken.

    Args:
        folder: Where the locks lie that share the turns.
        of: `KERNELS`, `CASES` or `SECOND_RUN`.
    """
    with ExitStack() as held:
        gate, *locks = (held.enter_context(open(folder / name, "ab")) for name in ("gate", KERNELS, CASES))
        fcntl.flock(gate, fcntl.LOCK_EX)
        for name, lock in zip((KERNELS, CASES), locks, strict=True):
            fcntl.flock(lock, fcntl.LOCK_SH if name == of else fcntl.LOCK_EX)  # waits for all of the other kind
        for name, lock in zip((KERNELS, CASES), locks, strict=True):
            if of not in (name, SECOND_RUN):
                fcntl.flock(lock, fcntl.LOCK_UN)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield


def folder_of_this_machine() -> Path:
    """Return a folder for the locks of all that one user grades on this machine, by any command; it stays there.

    Raises:
        EnvironmentProblem: If somebody else made what has its name.
    """
    folder = Path(os.environ.get(TURNS) or Path(tempfile.gettempdir()) / f"labkit-turns-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise EnvironmentProblem(
            f"{folder} is where graders keep whose turn it is to grade, and it is not a folder of yours; remove it"
        )
    return folder
