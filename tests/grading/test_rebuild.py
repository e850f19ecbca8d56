"""Only exercise cells and literal predictions go from a submission into the pristine notebook."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest

from grading.small_lesson import RIGHT, STUBS, code_cell, notebook
from labkit.grading.limits import Limits
from labkit.grading.notebook.rebuild import Rebuilt, rebuild
from labkit.grading.submission import Submission, read_cells, read_submission
from labkit.lessons.statements import Code


def rebuilt_from(content: Mapping[str, Any], tmp_path: Path) -> Rebuilt:
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(content))
    read = read_submission(Submission("x", path))
    assert not read.problem
    return rebuild(read.cells, notebook())


def sources(rebuilt: Rebuilt) -> dict[str, str]:
    return {cell.id: cell.source for cell in rebuilt.notebook.cells}


def test_answers_go_into_the_pristine_notebook(tmp_path: Path) -> None:
    rebuilt = rebuilt_from(notebook(RIGHT), tmp_path)
    nbformat.validate(rebuilt.notebook)
    assert sources(rebuilt)["exercise-shift"] == RIGHT["shift"]
    assert rebuilt.notes == () and rebuilt.unchanged == ()
    assert [cell["name"] for cell in rebuilt.cells] == ["cell given-1-imports", "double", "shift", "total"]


def test_a_notebook_as_handed_out_has_no_answers(tmp_path: Path) -> None:
    assert rebuilt_from(notebook(), tmp_path).unchanged == ("double", "shift", "total")


def test_edited_checks_and_given_cells_do_not_matter_and_are_named(tmp_path: Path) -> None:
    content = notebook(RIGHT)
    content["cells"][1]["source"] = "import forged\n"
    content["cells"][4]["source"] = "print('passed')"
    rebuilt = rebuilt_from(content, tmp_path)
    assert sources(rebuilt)["given-1-imports"] == notebook()["cells"][1]["source"]
    assert sources(rebuilt)["check-double"] == 'print("checking double")'
    assert [note.split(" was changed")[0] for note in rebuilt.notes] == [
        "The given cell given-1-imports",
        "The check cell check-double",
    ]


def test_metadata_and_outputs_do_not_matter(tmp_path: Path) -> None:
    content = notebook(RIGHT)
    content["metadata"] = {"labkit": {"exercises": [{"id": "double", "points": 10**9}]}, "kernelspec": {"name": "evil"}}
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell["metadata"] |= {"points": 1000, "papermill": {"status": "completed"}}
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "all passed"}]
    rebuilt = rebuilt_from(content, tmp_path)
    assert rebuilt.notebook.metadata == nbformat.from_dict(notebook()).metadata
    assert all(not cell.get("outputs") for cell in rebuilt.notebook.cells)
    assert all("points" not in cell.metadata for cell in rebuilt.notebook.cells)


def test_cells_without_ids_are_found_by_their_metadata(tmp_path: Path) -> None:
    content = notebook(RIGHT)
    for cell in content["cells"]:
        del cell["id"]
    assert sources(rebuilt_from(content, tmp_path))["exercise-total"] == RIGHT["total"]


def test_missing_and_double_cells_are_told(tmp_path: Path) -> None:
    content = notebook(RIGHT)
    del content["cells"][3]
    content["cells"].append(code_cell("copy", "def total(x): pass", ["exercise"], labkit={"exercise": "total"}))
    rebuilt = rebuilt_from(content, tmp_path)
    assert rebuilt.unchanged == ("double",)
    assert sources(rebuilt)["exercise-total"] == RIGHT["total"]
    assert rebuilt.notes == (
        "Exercise 90.1: its cell was not found, so it counts as not done.",
        "Exercise 90.3 has more than one cell; cell 7 was taken, not cell 9 of the file.",
    )


def test_a_cell_that_no_answer_needs_is_left_out_and_told(tmp_path: Path) -> None:
    content = notebook(RIGHT)
    content["cells"].insert(2, code_cell("mine", "def helper():\n    return 2\n", []))
    rebuilt = rebuilt_from(content, tmp_path)
    assert "mine" not in sources(rebuilt)
    assert rebuilt.notes == (
        "Cell 3 of your file (it begins 'def helper():') was left out: it is not one of the notebook's exercise cells, "
        "and no answer needs it.",
    )


@pytest.mark.parametrize(
    ("source", "value"),
    [("guess_a = 7", 7), ("guess_a = -1e3  # sure", -1000.0), ('guess_a = "x"', "x"), ("guess_a = None", None)],
)
def test_a_predicted_literal_is_taken(source: str, value: object, tmp_path: Path) -> None:
    content = notebook()
    content["cells"][2]["source"] = source
    rebuilt = rebuilt_from(content, tmp_path)
    assert {name: each.value for name, each in rebuilt.predictions.items()} == {"guess_a": value}
    assert sources(rebuilt)["predict-guess-a"] == f"guess_a = {value!r}"


@pytest.mark.parametrize(
    "source",
    [
        "guess_a = __import__('os').system('true')",
        "guess_a = [1] * 10**9",
        "guess_a = 1e999",
        "other = 3",
        "guess_a = (",
        "guess_a = " + "-" * 3000 + "1",
        "guess_a = " + "(" * 900 + "1" + ")" * 900,
        "guess_a: int = 3",
    ],
)
def test_anything_else_in_a_prediction_is_not_run(source: str, tmp_path: Path) -> None:
    content = notebook()
    content["cells"][2]["source"] = source
    rebuilt = rebuilt_from(content, tmp_path)
    assert rebuilt.predictions == {}
    assert sources(rebuilt)["predict-guess-a"] == "guess_a = 0.5"
    assert "is not a plain value" in rebuilt.notes[0]


CALL = 'labkit.predict("double_ms", 0.5, unit="ms")'


@pytest.mark.parametrize(
    ("source", "taken"),
    [
        ('labkit.predict("double_ms", 7, unit="ms")', 'labkit.predict("double_ms", 7, unit="ms")'),
        ('labkit.predict("double_ms", -2.5)  # no unit', 'labkit.predict("double_ms", -2.5, unit="ms")'),
        ('labkit.predict("double_ms", "a lot", unit="hours")', """labkit.predict("double_ms", 'a lot', unit="ms")"""),
        ('labkit.predict("double_ms", [1] * 10**9, unit="ms")', None),
        ('labkit.predict("double_ms", __import__("os").getpid())', None),
        ('labkit.predict("shift", 7, unit="ms")', None),
        ("guess = 7", None),
    ],
)
def test_the_literal_of_a_predict_call_is_taken_and_nothing_else_of_it(
    source: str, taken: str | None, tmp_path: Path
) -> None:
    pristine, submitted = notebook(), notebook()
    pristine["cells"][2]["source"], submitted["cells"][2]["source"] = CALL, source
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(submitted))
    rebuilt = rebuild(read_submission(Submission("x", path)).cells, pristine)
    assert sources(rebuilt)["predict-guess-a"] == (taken or CALL)
    assert list(rebuilt.predictions) == (["double_ms"] if taken else [])
    assert taken or "The prediction double_ms is not a plain value" in rebuilt.notes[0]


def test_a_cell_longer_than_the_limit_counts_as_not_done(tmp_path: Path) -> None:
    rebuilt = rebuilt_from(notebook({"double": "x = 1\n" * 100_000}), tmp_path)
    assert rebuilt.unchanged == ("double", "shift", "total") and "the limit is 256 KB" in rebuilt.notes[0]
    assert sources(rebuilt)["exercise-double"] == STUBS["double"]


def bare(answers: Mapping[str, str]) -> dict[str, Any]:
    """A notebook whose tool dropped ids and metadata."""
    content = notebook(answers)
    for cell in content["cells"]:
        cell["metadata"] = {}
        del cell["id"]
    return content | {"metadata": {}, "nbformat_minor": 4}


def test_answers_without_ids_and_marks_are_found_by_what_they_define(tmp_path: Path) -> None:
    rebuilt = rebuilt_from(bare(RIGHT), tmp_path)
    assert rebuilt.sources() == RIGHT and rebuilt.unchanged == () and rebuilt.lost == {}
    assert [note.split(" was taken")[0] for note in rebuilt.notes] == [
        f"Exercise 90.{number}: cell {position} of your file" for number, position in ((1, 4), (2, 6), (3, 8))
    ]
    content = bare(RIGHT)
    mended = RIGHT["double"].replace("x + x", "2 * x")
    for again in (mended, "def double(x):\n    return 0\n\ndouble?\n", STUBS["double"]):
        content["cells"].append({"cell_type": "code", "metadata": {}, "source": again, "outputs": []})
    # the last that is none of what was handed out: what a kernel would have
    assert rebuilt_from(content, tmp_path).sources()["double"].startswith("def double(x):\n    return 0")


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize(("kind", "held"), [("markdown", "Markdown"), ("raw", "raw text")])
def test_answers_in_cells_of_another_kind_are_named_with_their_place(
    tmp_path: Path, kind: str, held: str, marks: bool
) -> None:
    content = notebook(RIGHT) if marks else bare(RIGHT)
    for cell in content["cells"]:
        if cell["source"] in RIGHT.values():
            cell["cell_type"] = kind
            del cell["outputs"], cell["execution_count"]
    rebuilt = rebuilt_from(content, tmp_path)
    assert rebuilt.unchanged == ("double", "shift", "total")
    assert rebuilt.lost == {
        name: f"cell {position} of the file holds it as {held}; make it a code cell and hand in again"
        for name, position in (("double", 4), ("shift", 6), ("total", 8))
    }
    assert all(f"{where}, so it counts as not done" in " ".join(rebuilt.notes) for where in rebuilt.lost.values())


def test_a_cell_that_is_nowhere_is_named_as_lost(tmp_path: Path) -> None:
    content = notebook(RIGHT)
    del content["cells"][3]
    assert rebuilt_from(content, tmp_path).lost == {"double": "its cell was not found"}


@pytest.mark.parametrize("line", ["!pip install -q einops", "%pip install einops", "files = !ls", "  !ls"])
def test_a_line_for_the_shell_is_told_and_costs_nothing(tmp_path: Path, line: str) -> None:
    answer = f"{line}\n{RIGHT['double']}"
    rebuilt = rebuilt_from(notebook(RIGHT | {"double": answer}), tmp_path)
    assert rebuilt.sources()["double"] == answer  # what hidden cases are drawn from
    assert sources(rebuilt)["exercise-double"] == f"# {answer}"
    (note,) = rebuilt.notes
    assert note.startswith(f"Exercise 90.1: `{line.strip()}` did nothing: ") and "no shell" in note
    text = 'WORDS = """\n!pip install\n"""\n' + RIGHT["double"]  # Python: a text, and no shell
    assert rebuilt_from(notebook(RIGHT | {"double": text}), tmp_path).notes == ()


@pytest.mark.in_turn
def test_a_file_of_millions_of_statements_is_read_in_bounds_and_its_marked_cells_count() -> None:
    content = notebook(RIGHT)
    long = [code_cell(f"long-{number}", "a=1\n" * 5_000, []) for number in range(12)]
    content["cells"] = [*long, *content["cells"]]
    code = Code(read_cells(json.dumps(content).encode(), Limits()).cells, Limits().cell_source_bytes)
    assert len(list(code.all())) == 10_000
    large = [code_cell(f"large-{number}", f"a = '{'x' * 100_000}'", []) for number in range(12)]
    content["cells"] = [*large, *content["cells"]]
    rebuilt = rebuild(read_cells(json.dumps(content).encode(), Limits()).cells, notebook())
    assert rebuilt.unchanged == () and rebuilt.lost == {}
