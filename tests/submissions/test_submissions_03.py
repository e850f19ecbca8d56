"""The submissions in 03/ are what make_03.py writes today."""

from __future__ import annotations

from make_03 import ANSWERS, LOST, SUBMISSIONS, everything


def test_what_is_committed_to_lesson_03_is_what_the_generator_writes() -> None:
    wanted = everything()
    there = {path.name: path.read_bytes() for path in SUBMISSIONS.iterdir() if path.is_file()}
    drifted = sorted(name for name in wanted | there if wanted.get(name) != there.get(name))
    assert not drifted, f"{', '.join(drifted)} drifted; run: .venv/bin/python tests/submissions/make_03.py"


def test_each_answer_to_lesson_03_has_a_score() -> None:
    assert {path.stem for path in ANSWERS.glob("*.py")} == set(LOST)
