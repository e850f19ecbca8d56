"""Lessons for Kaggle and Colab: each notebook with one cell in front, which installs labkit beside the PyTorch there.

    python -m labkit.lessons.hosted DIST

writes DIST/hosted/NN_slug.ipynb for the wheel in DIST; `make dist` does it.
"""

from __future__ import annotations

import copy
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import nbformat

from labkit.errors import LessonError
from labkit.lessons.course import brought_course
from labkit.lessons.notebook import as_text

ABSENT = ("anywidget", "jupytext", "papermill")
"""What labkit asks for and their images lack; the rest they bring, PyTorch first of all."""
PLACES = ("/kaggle/input/*/", "/kaggle/input/", "/content/")
"""Where an uploaded file lies: in a data set on Kaggle, in the working folder on Colab."""
_ID = "install-labkit"
_CELL = """\
# Installs labkit beside the PyTorch that is here. First upload {wheel}:
# on Kaggle as a data set (Add Input, Upload), with Internet on; on Colab into the folder that its file browser shows.
import glob, subprocess, sys
wheels = [each for place in {places!r} for each in glob.glob(place + "labkit_torch-*.whl")]
if not wheels:
    raise FileNotFoundError("{wheel} is in none of {told}: upload it, then run this cell again")
for what in (["--no-deps", wheels[-1]], {absent!r}):
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *what], check=True)
import labkit
labkit.run(print, "hello", on=labkit.local(2))  # says on which backend: two GPUs are NCCL, one is shared"""


def first_cell(wheel: str) -> str:
    """Return the cell's source.

    Args:
        wheel: The wheel's file name.
    """
    asked = [line.partition(";")[0].strip() for line in requires("labkit-torch") or []]
    absent = [line for line in asked if line.startswith(ABSENT)]
    return _CELL.format(wheel=wheel, places=PLACES, told=" and ".join(PLACES[::2]), absent=absent)


def hosted(notebook: Any, wheel: str) -> Any:
    """Return a learner's notebook with the cell in front."""
    made = copy.deepcopy(notebook)
    cell = {"id": _ID, "cell_type": "code", "metadata": {}, "source": first_cell(wheel)}
    made["cells"].insert(0, nbformat.from_dict(cell | {"execution_count": None, "outputs": []}))  # type: ignore[no-untyped-call]
    return made


def write(dist: Path) -> list[Path]:
    """Write the notebooks of the course that this labkit brings, for the wheel in a folder; return their paths.

    Raises:
        LessonError: If the folder holds no wheel of labkit, or several.
    """
    wheels = sorted(path.name for path in dist.glob("labkit_torch-*.whl"))
    if len(wheels) != 1:
        raise LessonError(f"{dist} must hold one wheel of labkit, and holds {len(wheels)}; `make dist` writes it.")
    (dist / "hosted").mkdir(exist_ok=True)
    written = []
    for path in sorted((brought_course() / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        made = hosted(nbformat.read(path, as_version=4), wheels[0])  # type: ignore[no-untyped-call]
        written.append(dist / "hosted" / path.name)
        written[-1].write_text(as_text(made), encoding="utf-8")
    return written


if __name__ == "__main__":
    print(f"{len(write(Path(sys.argv[1])))} notebooks for Kaggle and Colab in {sys.argv[1]}/hosted")
