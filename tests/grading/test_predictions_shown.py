"""What a student guessed stands in the feedback beside what the lesson's own run found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grading.small_lesson import code_cell, notebook
from labkit.checks.predictions import predict, reveal
from labkit.grading.course import Course
from labkit.grading.guesses import Guess, guesses, revealed
from labkit.grading.notebook.rebuild import rebuild
from labkit.grading.reports.guess_picture import guess_picture
from labkit.grading.submission import Submission, read_submission


def course_with(folder: Path, pristine: dict[str, Any], outputs: list[Any]) -> Course:
    for name in ("notebooks", "solutions"):
        (folder / name).mkdir()
    handed_out = folder / "notebooks" / "90_small.ipynb"
    handed_out.write_text(json.dumps(pristine))
    executed = notebook()
    executed["cells"].append(code_cell("code-1", 'labkit.reveal("double_ms", found)', []) | {"outputs": outputs})
    (folder / "solutions" / "90_small.ipynb").write_text(json.dumps(executed))
    return Course(folder, "90", handed_out, folder / "hidden.py", None)


def in_words(folder: Path, guess: str, outputs: list[Any]) -> dict[str, str]:
    pristine, submitted = notebook(), notebook()
    pristine["cells"][2]["source"] = 'labkit.predict("double_ms", None, unit="ms")'
    submitted["cells"][2]["source"] = guess
    path = folder / "x.ipynb"
    path.write_text(json.dumps(submitted))
    course = course_with(folder, pristine, outputs)
    rebuilt = rebuild(read_submission(Submission("x", path)).cells, pristine)
    return {each.name: str(each) for each in guesses(rebuilt, course.revealed, {})}


def test_a_guess_stands_beside_what_the_solution_revealed(tmp_path: Path) -> None:
    predict("double_ms", 1.0, unit="ms")
    data, metadata = reveal("double_ms", 4.25)._repr_mimebundle_()
    shown = {
        "output_type": "execute_result",
        "data": {"text/plain": data["text/plain"]},
        "metadata": metadata,
        "execution_count": 1,
    }
    plain = {"output_type": "stream", "name": "stdout", "text": "4.25"}
    found = in_words(tmp_path, 'labkit.predict("double_ms", 7, unit="ms")', [plain, shown])
    assert found == {"double_ms": "7 ms; the lesson found 4.25 ms: too high by a factor of 1.6"}


def test_without_an_executed_solution_the_guess_stands_alone(tmp_path: Path) -> None:
    assert in_words(tmp_path, 'labkit.predict("double_ms", 0.5)', []) == {"double_ms": "0.5 ms"}


def test_a_cell_left_as_it_was_handed_out_is_no_guess(tmp_path: Path) -> None:
    assert in_words(tmp_path, 'labkit.predict("double_ms", None, unit="ms")', []) == {"double_ms": "no guess"}


def test_what_the_students_own_run_measured_stands_beside_both() -> None:
    guess = Guess("double_ms", 2.0, "ms", 1.0, 1.1)
    assert str(guess) == "2 ms; the lesson found 1 ms: too high by a factor of 2; your notebook, run here, 1.1 ms"
    assert guess_picture(guess).count("<rect") == 3
    assert guess_picture(Guess("double_ms", 2.0)) == "" and guess_picture(Guess("double_ms", "NCCL", "", "gloo")) == ""


def test_what_a_notebook_says_it_measured_is_taken_only_if_it_is_plain() -> None:
    def cell(result: object, name: object = "double_ms") -> dict[str, Any]:
        return {"outputs": [{"metadata": {"labkit": {"prediction": name, "result": result, "unit": "x"}}}]}

    assert revealed([cell(0.5)]) == {"double_ms": 0.5}
    for odd in ([1], {"a": 1}, None, float("nan"), 10**400):
        assert revealed([cell(odd)]) == {}
    assert revealed([cell(1, 7), {"outputs": [{"metadata": {"labkit": 3}}, {"metadata": []}]}, {}]) == {}
    assert len(str(revealed([cell("x" * 10**6)])["double_ms"])) < 300
