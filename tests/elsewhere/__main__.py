"""The tests that other systems than Linux run: `python -m tests.elsewhere [pytest's arguments]`.

On Linux as if it were none: no fork, no memfd, no affinity in any Python; no bubblewrap, which hides itself; no control
groups. On macOS and Windows, or with --as-it-is, on the system as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = (
    *(
        "board",
        "calibration",
        "checks",
        "gpu_report",
        "launch",
        "lessons",
        "failures",
        "planner",
        "plans",
        "repository",
    ),
    *("scripts", "simulator", "timeline", "torch_port", "widgets"),
)
"""Of tests/."""
NOTEBOOK = "solutions/00_start_here.ipynb"
"""Runs whole, in a kernel: the other lessons' answers are in tests/checks."""
LEFT_OUT = {
    "grading": "submissions are graded in a sandbox of Linux",
    "security": "what is attacked is that sandbox",
    "browser": "what a page does, it does in every system's browser",
    "docs": "the site and README are files, which Linux reads as well",
}
"""Folders of tests/ that need Linux, or that would find the same on it, and why."""
NO_TESTS = {"audit", "benchmarks", "elsewhere", "submissions", "vectors"}
MARKS = "not long and not browser and not gpu1 and not gpu2"


def tests(arguments: list[str]) -> list[str]:
    """Return the command that runs them."""
    spread = ["-n", "4", "--dist", "loadfile", "--no-loadscope-reorder", "--durations=15"]
    paths = [f"tests/{folder}" for folder in FOLDERS]
    paths += [f"tests/{path.name}" for path in sorted(HERE.parent.glob("test_*.py"))]
    return [
        *(sys.executable, "-m", "pytest", *spread, "--nbval", "--nbval-cell-timeout=180", "-m", MARKS),
        *(*paths, NOTEBOOK, *arguments),
    ]


def command(asked: list[str], bubblewrap: str | None) -> list[str]:
    """Return what runs the command without any of it."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    inner = ["env", f"PYTHONPATH={path}", *asked]
    if bubblewrap is None:
        return inner
    hidden = ["--ro-bind", "/dev/null", bubblewrap, "--tmpfs", "/sys/fs/cgroup"]
    return [bubblewrap, "--dev-bind", "/", "/", *hidden, "--die-with-parent", *inner]


if __name__ == "__main__":
    given = sys.argv[1:]
    as_it_is = sys.platform != "linux" or "--as-it-is" in given
    words = tests([each for each in given if each != "--as-it-is"])
    sys.exit(subprocess.call(words if as_it_is else command(words, shutil.which("bwrap"))))
