"""A class with known scores, graded by the real command; the same command goes on where it was cut.

    .venv/bin/python -m tests.grading.class_with_known_scores --lesson 02 --students 300 --folder /var/tmp/class-300

Each student hands in one of the submissions of tests/submissions, with a remark in every exercise cell, so that no two
are alike and each has hidden inputs of its own: a judge that refuses a right answer for some inputs shows here. Prints
what a submission took, and what was wrong: every score is known.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.submissions.making import ROOT, everything

RARE = ("never_ends", "ends_the_process", "truncated", "not_a_notebook", "empty_file")
EVERY = 50
"""One in so many students hands in one of each of the rare kinds: what never ends takes minutes."""


def write_class(folder: Path, students: int, lesson: str = "02", only: str = "") -> dict[str, dict[str, Any]]:
    """Write a class into `folder`, of kinds that begin with `only`; return for each student what they must get."""
    made = everything(lesson)
    known = {name: each for name, each in json.loads(made["scores.json"]).items() if name.startswith(only)}
    rare = [name for name in sorted(known) if name in RARE]
    usual = [name for name in sorted(known) if name not in rare]
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for number in range(students):
        place = number % EVERY
        kind = rare[place - EVERY + len(rare)] if place >= EVERY - len(rare) else usual[number % len(usual)]
        name = f"student-{number:03}"
        (folder / f"{name}.ipynb").write_bytes(_varied(made[f"{kind}.ipynb"], name))
        expected[name] = known[kind] | {"kind": kind}
    return expected


def _varied(data: bytes, name: str) -> bytes:
    """Return a notebook with a remark in each exercise cell; what is no notebook as it is."""
    try:
        content = json.loads(data)
        cells = content["cells"]
    except (ValueError, KeyError, TypeError):
        return data
    for cell in cells:
        source = "".join(cell["source"])
        if "exercise" in cell["metadata"].get("tags", []) and "NotImplementedError" not in source:
            cell["source"] = f"{source.rstrip()}\n# {name}\n"
    return json.dumps(content).encode()


def wrong_scores(out: Path, expected: dict[str, dict[str, Any]]) -> list[str]:
    """Return a line for each student whose score is not what it must be, or who has none."""
    wrong = []
    for name, each in expected.items():
        path = out / name / "result.json"
        if not path.is_file():
            wrong.append(f"{name} ({each['kind']}): no result")
            continue
        points = {test["extra_data"]["exercise"]: test["score"] for test in json.loads(path.read_text())["tests"]}
        if points != {slug: float(value) for slug, value in each["exercises"].items()}:
            wrong.append(f"{name} ({each['kind']}): {points}, expected {each['exercises']}")
    return wrong


def command(folder: Path, jobs: int, lesson: str = "02", points_only: bool = False) -> list[str]:
    """Return the command that grades the class in `folder`."""
    program = "import sys; from labkit.cli import main; sys.argv[1:1] = ['grade']; main()"
    words = [str(folder / "in"), "--lesson", lesson, "--course", str(ROOT), "--out", str(folder / "out")]
    return [sys.executable, "-c", program, *words, "--jobs", str(jobs), *["--points-only"] * points_only]


def main() -> int:
    """Grade a class and return 0 where every score is right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lesson", default="02")
    parser.add_argument("--students", type=int, default=300)
    parser.add_argument("--only", default="", help="kinds of submissions that begin so, such as right")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--points-only", action="store_true", help="do not run the notebooks")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and the command with it
    expected = write_class(asked.folder / "in", asked.students, asked.lesson, asked.only)
    before = len(list((asked.folder / "out").glob("*/result.json")))
    begin = time.monotonic()
    ended = subprocess.run(command(asked.folder, asked.jobs, asked.lesson, asked.points_only))
    seconds = time.monotonic() - begin
    graded = len(list((asked.folder / "out").glob("*/result.json"))) - before
    print(f"{graded} submissions in {seconds:.0f} s with {asked.jobs} jobs: {seconds / max(graded, 1):.1f} s each")
    wrong = wrong_scores(asked.folder / "out", expected)
    print(f"{len(expected) - len(wrong)} of {len(expected)} have exactly their score", *wrong, sep="\n")
    return ended.returncode or bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
