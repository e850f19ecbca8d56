"""Runs a command as if this were no Linux: `python -m tests.elsewhere make unit`.

No fork, no memfd, no affinity in any Python; no bubblewrap, which hides itself; no control groups.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent


def command(asked: list[str], bubblewrap: str | None) -> list[str]:
    """Return what runs the command without any of it."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    inner = ["env", f"PYTHONPATH={path}", *asked]
    if bubblewrap is None:
        return inner
    hidden = ["--ro-bind", "/dev/null", bubblewrap, "--tmpfs", "/sys/fs/cgroup"]
    return [bubblewrap, "--dev-bind", "/", "/", *hidden, "--die-with-parent", *inner]


if __name__ == "__main__":
    words = command(sys.argv[1:], shutil.which("bwrap"))
    os.execvp(words[0], words)
