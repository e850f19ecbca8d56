"""mine(): an earlier lesson's function is the learner's own where they wrote it, and torch's where they did not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import LessonError
from labkit.lessons.source import load
from labkit.lessons.student import student_text

ROOT = Path(__file__).parents[2]
LESSON = load(ROOT / "solutions" / "03_collectives.py")


def _write(folder: Path, *, answered: bool) -> None:
    notebook = json.loads(student_text(LESSON))
    sources = {cell.id: cell.source for cell in LESSON.cells}
    for cell in notebook["cells"]:
        if answered and cell["id"].startswith("exercise-"):
            cell["source"] = sources[cell["id"]]
    (folder / "03_collectives.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


def test_without_the_notebook_torchs_own_stands_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert labkit.mine("drop_in_all_reduce", otherwise=dist.all_reduce, folder=tmp_path) is dist.all_reduce
    assert "no notebook in this folder has this exercise; using all_reduce in its place." in capsys.readouterr().out


def test_a_stub_is_no_function_of_yours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path, answered=False)
    assert labkit.mine("drop_in_all_reduce", otherwise=dist.all_reduce, folder=tmp_path) is dist.all_reduce
    assert "leaves exercise drop_in_all_reduce as it was handed out" in capsys.readouterr().out


@pytest.mark.in_turn
def test_your_function_runs_on_the_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path, answered=True)
    ring = labkit.mine("drop_in_all_reduce", otherwise=dist.all_reduce, folder=tmp_path)
    assert capsys.readouterr().out == "drop_in_all_reduce: using your ring_all_reduce from 03_collectives.ipynb.\n"

    def total() -> list[float]:
        tensor = torch.tensor([1.0, 2.0]) * (dist.get_rank() + 1)
        ring(tensor)
        return tensor.tolist()

    assert labkit.run(total, on=labkit.virtual(3), echo=False).results == [[6.0, 12.0]] * 3


def test_what_an_answer_needs_of_other_cells_comes_along_and_nothing_beside_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path, answered=False)
    path = tmp_path / "03_collectives.ipynb"
    notebook = json.loads(path.read_text())
    place = next(at for at, cell in enumerate(notebook["cells"]) if cell["id"] == "exercise-drop-in-all-reduce")
    kept = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    notebook["cells"][place]["source"] = "# mine stands below"
    notebook["cells"][place + 1 : place + 1] = [
        {**kept, "id": "own-1", "source": "from math import *\nHALF = 0.5\nprint('ran')\n"},
        {**kept, "id": "own-2", "source": "def mean(values):\n    return floor(sum(values) * HALF)\n"},
        {**kept, "id": "own-3", "source": "%time 1\ndef ring_all_reduce(tensor):\n    return mean([tensor, 3])\n"},
    ]  # fmt: skip
    path.write_text(json.dumps(notebook), encoding="utf-8")
    ring = labkit.mine("drop_in_all_reduce", otherwise=dist.all_reduce, folder=tmp_path)
    assert ring(2) == 2
    assert capsys.readouterr().out == "drop_in_all_reduce: using your ring_all_reduce from 03_collectives.ipynb.\n"


def test_several_functions_of_an_exercise_are_asked_for_by_name(tmp_path: Path) -> None:
    _write(tmp_path, answered=True)
    busbw = labkit.mine("ring_cost", otherwise=None, name="bus_bandwidth", folder=tmp_path)
    assert busbw(100, 1.0, 4) == 150.0
    with pytest.raises(
        LessonError, match=r"provides ring_seconds, tree_seconds, bus_bandwidth; write name='ring_seconds'"
    ):
        labkit.mine("ring_cost", otherwise=None, folder=tmp_path)


def test_a_notebook_that_cannot_be_read_is_named_only_where_it_may_be_the_one(tmp_path: Path) -> None:
    (tmp_path / "01_data_parallel.ipynb").write_text("{half a notebook")
    with pytest.raises(LessonError, match=r"01_data_parallel\.ipynb cannot be read as a notebook"):
        labkit.mine("drop_in_all_reduce", otherwise=dist.all_reduce, folder=tmp_path)
    _write(tmp_path, answered=True)
    assert labkit.mine("drop_in_all_reduce", otherwise=dist.all_reduce, folder=tmp_path).__name__ == "ring_all_reduce"
