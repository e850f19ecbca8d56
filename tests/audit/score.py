"""What `labkit audit` finds in the bank: python -m tests.audit.score [NAME...] prints a line for each program.

A bug is found where the wrong program has a finding of a rule that the twin keeps; it is in place where that finding
names a line marked `<- here`, seen where it names one marked `<- seen`. Anything but "slow" on a twin or on a right
program is a false alarm.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from pathlib import Path

import labkit
from labkit.auditing.finding import Finding
from labkit.errors import RunError
from tests.audit.bank import Program, bugs, right


def findings(program: Program, source: str) -> list[Finding]:
    """Return what an audit of the source says; it runs in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        path = Path(folder) / program.path.name
        path.write_text(source)
        world = labkit.virtual(program.world, **program.hardware)
        resume = ("--steps", 2) if program.fields.get("Effect") == "resume" else False
        late = program.fields.get("Effect", "late") == "late"  # and right programs
        return list(labkit.audit(path, on=world, timeout=120, against=1, resume=resume, late=late).findings)


def caught(program: Program) -> tuple[str, list[Finding]]:
    """Return how well the wrong program's mistake was found (in place, seen, elsewhere, missed), and false alarms."""
    on_twin = findings(program, program.twin)
    alarms = [one for one in on_twin if one.severity != "slow"]
    new = [one for one in findings(program, program.path.read_text()) if one.rule not in {was.rule for was in on_twin}]
    what = ", ".join(f"{one.severity} {one.rule} line {one.line} rank {one.rank} step {one.step}" for one in new)
    if any(one.line in program.places for one in new):
        return f"in place: {what}", alarms
    if any(one.line in program.seen for one in new):
        return f"seen: {what}", alarms
    return (f"elsewhere (line {program.places}): {what}" if new else "missed"), alarms


def main(names: list[str]) -> None:
    """Print a line for each program, and the counts."""
    warnings.simplefilter("ignore")
    count: dict[str, int] = {}
    for program in bugs() + right():
        if names and program.name not in names:
            continue
        try:
            if program.path.parent.name == "bugs":
                said, alarms = caught(program)
            else:
                said, alarms = "right", [one for one in findings(program, program.twin) if one.severity != "slow"]
        except RunError as error:
            said, alarms = f"failed: {str(error).splitlines()[0]}", []
        print(f"{program.name:42} {program.fields.get('Kind', ''):6} {said}", flush=True)
        for one in alarms:
            print(f"    false alarm: {one.severity} {one.rule} line {one.line}: {one.text}", flush=True)
        for key in (said.split(" ")[0].strip(":"), *["false alarm"] * len(alarms)):
            count[key] = count.get(key, 0) + 1
    print(", ".join(f"{key} {number}" for key, number in count.items()))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1:])
