"""built() counts what a saved notebook shows as checked and passed, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import labkit
from labkit.lessons.built import OPEN, PASSED, WRITTEN
from labkit.lessons.source import load
from labkit.lessons.student import student_text

ROOT = Path(__file__).parents[2]


def test_a_page_tells_passed_from_written_and_from_open(tmp_path: Path) -> None:
    lesson = load(ROOT / "solutions" / "03_collectives.py")
    notebook = json.loads(student_text(lesson))
    sources = {str(cell.exercise): cell.source for cell in lesson.cells if cell.is_code_exercise}
    for cell in notebook["cells"]:
        slug = cell["metadata"].get("labkit", {}).get("exercise")
        is_check = "check" in cell["metadata"].get("tags", [])
        if slug in ("ring_cost", "all_to_all") and not is_check:
            cell["source"] = sources[slug]
        if is_check and ('"ring_cost"' in "".join(cell["source"]) or '"tree_all_reduce"' in "".join(cell["source"])):
            said = "Exercise ring_cost: passed, all 4 cases.\nExercise tree_all_reduce: passed."
            cell["outputs"] = [{"output_type": "execute_result", "data": {"text/plain": said}, "metadata": {}}]
    (tmp_path / "03_collectives.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    (tmp_path / "04_torn.ipynb").write_text("{", encoding="utf-8")

    page = labkit.built(tmp_path)
    states = {each.provides[0]: each.state for each in page.made}
    assert states["ring_seconds"] == PASSED
    assert states["all_to_all"] == WRITTEN
    assert states["tree_all_reduce"] == OPEN  # lent, or deleted: nothing of it stands in the notebook
    assert repr(page).startswith("You built 3 parts in 1 lesson, and their checks passed.\n03 ")
    assert "✓ <code>ring_seconds, tree_seconds, bus_bandwidth</code>" in page._repr_html_()


def test_without_notebooks_nothing_is_built(tmp_path: Path) -> None:
    assert repr(labkit.built(tmp_path)) == "The notebooks in this folder show no check that passed yet."
