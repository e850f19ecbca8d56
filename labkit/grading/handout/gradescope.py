"""Gradescope's autograder for a lesson: the zip to upload, and what runs there.

Source: Gradescope, "Autograder Specifications": setup.sh and run_autograder at the zip's root, which is unpacked to
/autograder/source; a submission lies in /autograder/submission; results.json is wanted in /autograder/results.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import ConfigError
from labkit.grading.class_key import class_key, key_file
from labkit.grading.course import find_course
from labkit.grading.from_packs import read_packs
from labkit.grading.handout.repository_files import REPOSITORY, repository_files
from labkit.grading.handout.runtime_lock import CPU_BUILDS, pinned, runtime_lock
from labkit.grading.own_folders import own_prefix
from labkit.grading.reports.student_report import write_whole
from labkit.links import refuse_links

_FILES = ("labkit", "pyproject.toml", "requirements.lock", "README.md", "LICENSE")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NAME = "submission"
_KEY = "class.key"
_PACKS = "packs"
_MODES = {"setup.sh": 0o100755, "run_autograder": 0o100755, _KEY: 0o100600}

_SETUP = """#!/usr/bin/env bash
# Gradescope runs this once, when the autograder's image is built: Python, bubblewrap, and what requirements.lock names.
set -euo pipefail
root=${AUTOGRADER_ROOT:-/autograder}
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends bubblewrap
for version in 3.12 3.13 3.11 3.14; do
    if DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "python$version-venv"; then
        "python$version" -m venv "$root/venv"
        # PyTorch's CPU build: no GPU is here, and the CUDA build is several GB more.
        "$root/venv/bin/python" -m pip install --index-url CPU_BUILDS TORCH
        "$root/venv/bin/python" -m pip install -r "$root/source/requirements.lock"
        "$root/venv/bin/python" -m pip install --no-deps --no-build-isolation --editable "$root/source"
        exit 0
    fi
done
echo "This image has no Python 3.11 or newer; choose an Ubuntu 24.04 base image in the autograder's settings." >&2
exit 1
"""

_RUN = """#!/usr/bin/env bash
# Gradescope runs this for each submission; what it prints is for instructors alone.
set -euo pipefail
root=${{AUTOGRADER_ROOT:-/autograder}}
cd "$root/source"
exec "$root/venv/bin/python" -P -m labkit.grading.handout.gradescope "$root" {lesson}
"""


@dataclass(frozen=True)
class Autograder:
    """The zip that was written."""

    path: Path
    lesson: str
    num_files: int
    num_bytes: int

    def __str__(self) -> str:
        """Return what the terminal shows."""
        return (
            f"{self.path}: the autograder of {self.lesson}, {self.num_files} files, {self.num_bytes / 1e6:.1f} MB. "
            "It holds the hidden cases and the class key: give it to Gradescope and to nobody else."
        )


def write_autograder(
    out: str | Path,
    lesson: str,
    course: str | Path | None = None,
    key: str | Path | None = None,
    packs: Sequence[Path] = (),
) -> Autograder:
    """Write the zip that Gradescope takes as a programming assignment's autograder.

    It holds labkit, the lesson's notebook and hidden cases, the class key, and no solution.

    Args:
        out: The zip.
        lesson: Its number or name.
        course: The course's folder.
        key: The file of the class key, as for `labkit.grading.grade.grade`.
        packs: Packs of answers that were handed out.

    Raises:
        ConfigError: If there is no such lesson, or `out` is no zip.
    """
    path = Path(out)
    if path.suffix != ".zip":
        raise ConfigError(f"--gradescope writes a zip, and {path.name} does not end in .zip; name a file that does")
    refuse_links(path, "the zip")
    found = find_course(lesson, course)
    contents = {
        name: (REPOSITORY / name).read_bytes() for name in repository_files(_FILES, "labkit grade --gradescope")
    }
    contents[f"notebooks/{found.notebook.name}"] = found.notebook.read_bytes()
    contents |= {name: path.read_bytes() for name, path in found.own_files().items()}
    contents[_KEY] = f"{class_key(Path(key) if key is not None else key_file(os.environ)).hex()}\n".encode()
    read_packs(packs, found.name)
    contents |= {f"{_PACKS}/{number}.pack": path.read_bytes() for number, path in enumerate(packs, 1)}
    contents["requirements.lock"] = (lock := runtime_lock(REPOSITORY)).encode()
    setup = _SETUP.replace("CPU_BUILDS", CPU_BUILDS).replace("TORCH", pinned(lock, "torch"))
    contents["setup.sh"] = setup.encode()
    contents["run_autograder"] = _RUN.format(lesson=found.lesson).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = _MODES.get(name, 0o100644) << 16
            archive.writestr(entry, contents[name])
    return Autograder(path, found.name, len(contents), path.stat().st_size)


def run(root: Path, lesson: str) -> None:
    """Grade the submission in ``root/submission`` and write ``root/results/results.json``.

    Where the container allows no sandbox, the submission runs without: it is alone in the container, but it could read
    the hidden cases and write a result of its own. What is printed says so to the instructor.
    """
    from labkit.grading.grade import grade
    from labkit.grading.sandbox import bubblewrap

    problem = bubblewrap.problem()
    if problem:
        print(
            f"This container allows no sandbox ({problem}), so the submission ran with the grader's rights and could "
            "have read hidden cases or written its own result. Grade what counts with labkit grade on a machine of "
            "your own: Gradescope exports all submissions."
        )
    with tempfile.TemporaryDirectory(prefix=own_prefix("gs")) as folder:
        handed_in, out = Path(folder) / "in", Path(folder) / "out"
        shutil.copytree(root / "submission", handed_in / _NAME, symlinks=True)
        key = Path(folder) / _KEY
        shutil.copyfile(root / "source" / _KEY, key)
        key.chmod(0o600)  # whatever unpacked it
        confined = "none" if problem else "bubblewrap"
        packs = sorted((root / "source" / _PACKS).glob("*.pack"))
        grade([handed_in], lesson, out, jobs=1, key=key, course=root / "source", sandbox=confined, packs=packs)
        result = (out / _NAME / "result.json").read_bytes()
    write_whole(root / "results" / "results.json", result)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
