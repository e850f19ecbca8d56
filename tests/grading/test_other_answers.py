"""What is handed in besides functions: sentences go to a reader, literals are held against a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labkit.grading.notebook.rebuild import Rebuilt, rebuild
from labkit.grading.submission import Submission, read_submission
from labkit.lessons.source import load
from labkit.lessons.student import student_notebook

SOURCE = Path(__file__).parents[1] / "lessons" / "fixtures" / "05_kinds.py"
WRITE = "write-mean-in-words"


@pytest.fixture
def handed_out() -> dict[str, Any]:
    return json.loads(json.dumps(student_notebook(load(SOURCE))))


def rebuilt_with(handed_out: dict[str, Any], tmp_path: Path, **sources: str) -> Rebuilt:
    """Return the rebuilt submission in which cells, by their id with underscores, hold other text."""
    content = json.loads(json.dumps(handed_out))
    for cell in content["cells"]:
        cell["source"] = sources.get(cell["id"].replace("-", "_"), cell["source"])
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(content), encoding="utf-8")
    return rebuild(read_submission(Submission("x", path)).cells, handed_out)


def test_sentences_are_taken_as_text(handed_out: dict[str, Any], tmp_path: Path) -> None:
    rebuilt = rebuilt_with(handed_out, tmp_path, write_mean_in_words="The mean is **too small**.")
    assert rebuilt.written == {"mean_in_words": "The mean is **too small**."}
    assert "mean_in_words" not in rebuilt.unchanged and rebuilt.notes == ()
    assert not any("too small" in source for _, source in rebuilt.answers())


@pytest.mark.parametrize("text", ["", "  \n", "*Write two to five sentences here, in place of this line.*\n"])
def test_a_placeholder_is_no_answer(handed_out: dict[str, Any], tmp_path: Path, text: str) -> None:
    rebuilt = rebuilt_with(handed_out, tmp_path, write_mean_in_words=text)
    assert rebuilt.written == {} and "mean_in_words" in rebuilt.unchanged


def test_sentences_are_found_by_metadata_where_the_id_is_lost(handed_out: dict[str, Any], tmp_path: Path) -> None:
    content = json.loads(json.dumps(handed_out))
    (cell,) = [cell for cell in content["cells"] if cell["id"] == WRITE]
    cell |= {"id": "something-else", "source": "Every rank's divisor is right, its sum is not."}
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(content), encoding="utf-8")
    rebuilt = rebuild(read_submission(Submission("x", path)).cells, handed_out)
    assert rebuilt.written == {"mean_in_words": "Every rank's divisor is right, its sum is not."}


def test_the_model_answer_and_the_rubric_stay_with_instructors(handed_out: dict[str, Any]) -> None:
    lesson = load(SOURCE)
    assert lesson.rubrics == {"mean_in_words": {"says the mean is too small": 2, "names a test with unequal values": 1}}
    text = json.dumps(handed_out)
    assert "too small" not in text and "unequal" not in text
    assert lesson.manifest.exercise("mean_in_words").points == 3
