"""The same hostile answers through nbgrader and otter-grader, to see what becomes of them there.

    .venv-bench/bin/python -m tests.security.other_graders [ATTACK...]

Each attack is handed in beside an honest answer. The graders run in namespaces of their own, so that what an attack
does to them it does not do to this machine; attacks that would fill it are left out.
Prints one line of JSON for each attack and grader; docs/attacks.md was written from them.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from security.attacks import FLOODS, PAST_THE_RELAY, Places, attacks  # noqa: E402
from tests.benchmarks.other_graders import POINTS, Nbgrader, Otter  # noqa: E402

SECONDS = 90.0
# They would take the machine, or need what the namespaces around the graders hide.
LEFT_OUT = {*FLOODS, *PAST_THE_RELAY, "looks-at-other-processes"} - {
    "orphans-and-daemons",
    "html-and-escapes-in-errors",
}


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ATTACK")
    asked = parser.parse_args()
    os.environ["LABKIT_TEST_SECRET"] = "hunter2"
    with socket.socket() as service, tempfile.TemporaryDirectory(prefix="lk-others-", dir="/var/tmp") as name:
        service.bind(("127.0.0.1", 0))
        service.listen(1000)
        folder = Path(name)
        (folder / "outside").mkdir()
        for kind in (Nbgrader, Otter):
            grader = kind(folder / kind.name)
            course = folder / kind.name / "course"
            for path in ("exercises/small/double/hidden.py", "exercises/small/double/exercise.py"):
                (course / path).parent.mkdir(parents=True, exist_ok=True)
                (course / path).write_text("ANSWER = 'twice'\n")
            (folder / kind.name / "submitted").mkdir(exist_ok=True)
            places = Places(course, folder / kind.name / "submitted", folder / kind.name, folder / "outside",
                            service.getsockname()[1], os.getpid())  # fmt: skip
            grader.around = _around(folder)
            every = {name: answers["double"] for name, answers in attacks(places).items() if name not in LEFT_OUT}
            for attack in asked.names or every:
                print(
                    json.dumps({"grader": kind.name, "attack": attack, **_try(grader, attack, every[attack])}),
                    flush=True,
                )


def _around(folder: Path) -> list[str]:
    """Return a command that keeps the grader's processes to themselves, with everything else as it is."""
    words = ["bwrap", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--ro-bind", "/", "/"]
    words += ["--dev", "/dev", "--proc", "/proc", "--size", str(512 << 20), "--tmpfs", "/tmp"]
    words += ["--bind", str(folder), str(folder), "--setenv", "HOME", str(folder)]
    return [*words, "--", "prlimit", f"--as={12 << 30}", f"--fsize={256 << 20}", "--"]


def _try(grader: Any, attack: str, answer: str) -> dict[str, Any]:
    honest = f"zz-honest-{attack}"
    grader.submit(attack, answer)
    grader.submit(honest)
    begin, problem = time.monotonic(), ""
    try:
        if isinstance(grader, Otter):
            ended = grader.grade_one(attack, timeout=SECONDS)
            problem = "" if ended.returncode == 0 else f"status {ended.returncode}"
        else:
            ended = grader.grade(timeout=SECONDS)
            problem = "" if ended.returncode == 0 else f"status {ended.returncode}"
    except subprocess.TimeoutExpired:
        problem = f"no end within {SECONDS:g} s"
    scores = grader.scores()
    neighbour = scores.get(honest)
    told = "its score" if neighbour == POINTS else "no score" if neighbour is None else f"{neighbour:g}"
    return {
        "points": scores.get(attack),
        "neighbour": "not run with it" if isinstance(grader, Otter) else told,
        "problem": problem,
        "seconds": round(time.monotonic() - begin, 1),
    }


if __name__ == "__main__":
    main()
