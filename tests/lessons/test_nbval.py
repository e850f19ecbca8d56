"""An executed solution is what `pytest --nbval` finds again, in a process and a kernel of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labkit.lessons.executed import execute
from labkit.lessons.notebook import as_text
from labkit.lessons.source import parse

SOURCE = """# %% [markdown]
# # A picture and a number

# %%
import matplotlib.pyplot as plt

figure = plt.figure()
plt.plot([1, 2])
plt.show()

# %% tags=["nbval-ignore-output"]
import time

print(time.perf_counter())

# %%
6 * 7

# %%
plt.plot([1, 2])
plt.show()

# %%
7 * 6
"""


def write(path: Path, notebook: Any) -> None:
    path.write_text(as_text(notebook), encoding="utf-8")


@pytest.mark.long
def test_nbval_finds_the_same_outputs_but_for_pictures_and_measured_cells(tmp_path: Path) -> None:
    notebook = execute(parse(SOURCE, "solutions/03_tiny.py"), tmp_path)
    picture, measured, _, other_words, other_number = (cell for cell in notebook.cells if cell.cell_type == "code")
    picture.outputs[0].data["image/png"] = "iVBORw0KGgo="  # fonts differ from machine to machine
    measured.outputs[0].text = "17 s\n"
    other_words.outputs[0].data["text/plain"] = "<Figure size 1x1 with 9 Axes>"
    other_number.outputs[0].data["text/plain"] = "43"
    write(tmp_path / "tiny.ipynb", notebook)

    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-cell-timeout=60", "-p", "no:cacheprovider", "-q"]
    run = subprocess.run([*command, "-rf"], cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    failed = [line.split(" - ")[0] for line in run.stdout.splitlines() if line.startswith("FAILED")]
    assert failed == ["FAILED tiny.ipynb::Cell 3", "FAILED tiny.ipynb::Cell 4"], run.stdout
