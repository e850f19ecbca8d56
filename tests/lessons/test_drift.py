"""`labkit build --check` says which file, which cell, why, and the command that mends it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest

from labkit.lessons.build import build, check

NAME = "03_mean_over_ranks"
LEARNER, SLIDES, SOLUTION = f"notebooks/{NAME}.ipynb", f"slides/{NAME}.md", f"solutions/{NAME}.ipynb"
CURE = f"labkit build {NAME}"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def change(path: Path, by: Callable[[Any], object]) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    by(notebook)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def cell(notebook: Any, identity: str) -> Any:
    return next(each for each in notebook["cells"] if each["id"] == identity)


@pytest.mark.in_turn
def test_an_edited_source_shows_in_every_file_until_it_is_built(course: Path) -> None:
    edit(course / "solutions" / f"{NAME}.py", "total = 0.0", "total = float(0)")
    drifted = check(course)
    assert {each.file for each in drifted} == {LEARNER, SLIDES, SOLUTION}
    sentences = "\n".join(map(str, drifted))
    assert f"{SOLUTION}, cell exercise-mean-and-spread: line 8 is '    total = 0.0', but the source makes" in sentences
    assert f"{SOLUTION}: was made from another source (hash " in sentences
    assert {each.cure for each in drifted} == {CURE}
    build(course)
    assert check(course) == []


def test_edited_prose_is_shown_as_one_difference_though_its_id_changes(course: Path) -> None:
    edit(course / "solutions" / f"{NAME}.py", "Run each cell", "Run every cell")
    (cell_differs, hash_differs) = [each for each in check(course) if each.file == LEARNER]
    assert cell_differs.why == (
        "line 1 is 'Run each cell from top to bottom.', but the source makes 'Run every cell from top to bottom.'"
    )
    assert hash_differs.cell is None


@pytest.mark.long
def test_random_cell_ids_of_another_converter_are_found(course: Path) -> None:
    text = (course / "solutions" / f"{NAME}.py").read_text(encoding="utf-8")
    converted = jupytext.reads(text, fmt="py:percent")  # draws random ids
    converted.cells = [each for each in converted.cells if "slide-only" not in each.metadata.get("tags", [])]
    nbformat.write(converted, course / SOLUTION)
    found = [each for each in check(course) if each.file == SOLUTION]
    assert any(each.why == f"has the id {converted.cells[1].id} (from another program?)" for each in found)
    build(course)
    assert check(course) == []


def test_stale_outputs_under_an_edited_cell_are_found_and_run_again(course: Path) -> None:
    def edit_in_place(notebook: Any) -> None:
        cell(notebook, "parameters")["source"] = ["num_values = 4\n", "shift = 2.5"]

    change(course / SOLUTION, edit_in_place)
    edit(course / "solutions" / f"{NAME}.py", "shift = 0.5", "shift = 2.5")
    (found,) = [each for each in check(course) if each.file == SOLUTION]
    assert "was made from another source" in found.why


@pytest.mark.parametrize(
    ("by", "cell_id", "why"),
    [
        (
            lambda nb: cell(nb, "check-mean-and-spread").update(execution_count=None),
            "check-mean-and-spread",
            "was never executed",
        ),
        (
            lambda nb: cell(nb, "check-mean-and-spread").update(execution_count=17),
            "check-mean-and-spread",
            "has execution count 17, not 5: not one run from top to bottom",
        ),
        (
            lambda nb: cell(nb, "check-mean-and-spread").update(
                outputs=[{"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []}]
            ),
            "check-mean-and-spread",
            "ended in ValueError: no",
        ),
        (
            lambda nb: cell(nb, "check-mean-and-spread").update(
                outputs=[{"output_type": "stream", "name": "stdout", "text": ["<Odd at 0x7f11574ad160>\n"]}]
            ),
            "check-mean-and-spread",
            "its output holds a memory address (give the object a repr without one): '<Odd at 0x7f11574ad160>'",
        ),
        (
            lambda nb: cell(nb, "check-mean-and-spread")["metadata"].update(execution={"iopub.execute_input": "2026"}),
            "check-mean-and-spread",
            "carries the times of its execution",
        ),
        (lambda nb: nb["metadata"].update(widgets={}), None, "the notebook carries widget state"),
    ],
)
def test_what_is_no_clean_run_is_named(course: Path, by: Callable[[Any], object], cell_id: str, why: str) -> None:
    change(course / SOLUTION, by)
    assert (SOLUTION, cell_id, why) in [(each.file, each.cell, each.why) for each in check(course)]


@pytest.mark.long
def test_a_never_executed_notebook_is_found_and_run(course: Path) -> None:
    def forget(notebook: Any) -> None:
        for each in notebook["cells"]:
            if each["cell_type"] == "code":
                each.update(execution_count=None, outputs=[])

    change(course / SOLUTION, forget)
    drifted = check(course)
    assert len(drifted) == 11 and {each.why for each in drifted} == {"was never executed"}
    assert build(course).lessons[0].execution == "executed"
    assert check(course) == []


@pytest.mark.parametrize(
    ("by", "cell_id", "why"),
    [
        (
            lambda nb: cell(nb, "exercise-mean-and-spread").update(source=["def mean(values):\n", "    return 3"]),
            "exercise-mean-and-spread",
            "line 1 is 'def mean(values):', but the source makes 'def mean(values: list[float]) -> float:'",
        ),
        (
            lambda nb: cell(nb, "check-mean-and-spread").update(execution_count=1),
            "check-mean-and-spread",
            "carries outputs; a learner's notebook has none but pictures of figures",
        ),
        (
            lambda nb: cell(nb, "check-mean-and-spread")["metadata"].update(tags=[]),
            "check-mean-and-spread",
            "its tags or metadata differ",
        ),
        (lambda nb: nb["cells"].pop(), "code-", "is missing"),
        (
            lambda nb: nb["cells"].append(nb["cells"][0] | {"id": "mine"}),
            "mine",
            "is not in the source (an id from another program, or a cell added by hand)",
        ),
        (lambda nb: nb["cells"].insert(0, nb["cells"].pop()), "code-", "is not where the source has it"),
        (lambda nb: nb["metadata"].update(odd=1), None, "its metadata differs"),
        (lambda nb: nb["metadata"]["kernelspec"].update(name="other"), None, "its metadata differs"),
    ],
)
def test_a_changed_learner_notebook_is_named_by_cell(
    course: Path, by: Callable[[Any], object], cell_id: str | None, why: str
) -> None:
    change(course / LEARNER, by)
    (found,) = check(course)
    assert (found.file, found.why, found.cure) == (LEARNER, why, CURE)
    assert (found.cell or "").startswith(cell_id or "")


def test_other_bytes_for_the_same_notebook_are_found(course: Path) -> None:
    path = course / LEARNER
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")
    assert [each.why for each in check(course)] == ["the same notebook in other bytes (saved by another program?)"]


def test_missing_torn_and_stray_files_are_named(course: Path) -> None:
    (course / SLIDES).unlink()
    (course / LEARNER).write_text("{ torn", encoding="utf-8")
    (course / "notebooks" / "04_gone.ipynb").write_bytes((course / SOLUTION).read_bytes())
    found = {each.file: each for each in check(course)}
    assert found[SLIDES].why == "is missing"
    assert found[LEARNER].why.startswith(f"{NAME}.ipynb is not a notebook")
    assert found["notebooks/04_gone.ipynb"].why == "has no source in solutions/"
    assert found["notebooks/04_gone.ipynb"].cure == "remove it, or write solutions/04_gone.py"


def test_the_readmes_row_has_the_title_and_minutes_of_the_source(course: Path) -> None:
    title = json.loads((course / LEARNER).read_text(encoding="utf-8"))["metadata"]["labkit"]["title"]
    row = "| [{}](notebooks/" + NAME + ".ipynb) | a mean, by hand | {} |\n"
    (course / "README.md").write_text("# A course\n\n" + row.format("Old", "900; 1") + "The end.\n")
    (drifted,) = check(course)
    assert drifted.file == "README.md" and drifted.cure == CURE
    build(course, execute=False)
    assert check(course) == []
    _, _, made, end = (course / "README.md").read_text().splitlines()
    assert made.startswith(row.partition("{} |")[0].format(title)) and "900" not in made and end == "The end."


def test_an_exercise_without_a_check_is_named(course: Path) -> None:
    edit(course / "solutions" / f"{NAME}.py", '# %% tags=["check"] exercise="mean_over_ranks"', "# %%")
    assert f"solutions/{NAME}.py: exercise mean_over_ranks has no check cell" in "\n".join(map(str, check(course)))


@pytest.mark.in_turn
def test_the_command_prints_each_drift_and_exits_one(course: Path) -> None:
    command = [sys.executable, "-c", "from labkit.cli import main; main()", "build", "--check", "--course", str(course)]
    clean = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (clean.returncode, clean.stderr) == (0, "")
    (course / SLIDES).unlink()
    drifted = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (drifted.returncode, drifted.stderr) == (1, f"{SLIDES}: is missing. Mend it: {CURE}\n")
