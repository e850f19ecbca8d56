"""The submissions in 05/ are what make_05.py writes today, and each says what it must get."""

from __future__ import annotations

import json

import nbformat
from make_05 import ANSWERS, LOST, ROOT, SUBMISSIONS, everything

from labkit.lessons.source import load

CURE = "run: .venv/bin/python tests/submissions/make_05.py"


def test_what_is_committed_is_what_the_generator_writes() -> None:
    wanted = everything()
    there = {path.name: path.read_bytes() for path in SUBMISSIONS.iterdir() if path.is_file()}
    drifted = sorted(name for name in wanted | there if wanted.get(name) != there.get(name))
    assert not drifted, f"{', '.join(drifted)} drifted from the lesson; {CURE}"


def test_every_submission_has_a_score_and_every_score_a_submission() -> None:
    scores = json.loads((SUBMISSIONS / "scores.json").read_text(encoding="utf-8"))
    assert set(scores) == set(LOST) == {path.stem for path in SUBMISSIONS.glob("*.ipynb")}
    assert {path.stem for path in ANSWERS.glob("*.py")} == {
        name for name, lost in LOST.items() if lost is not None
    } | set()


def test_scores_add_up_to_the_points_of_the_lesson() -> None:
    scores = json.loads((SUBMISSIONS / "scores.json").read_text(encoding="utf-8"))
    points = {each.id: each.points for each in load(ROOT / "solutions" / "05_pipeline.py").exercises}
    assert scores["right_as_taught"] == {"score": sum(points.values()), "readable": True, "exercises": points}
    for entry in scores.values():
        assert entry["score"] == sum(entry["exercises"].values())


def test_what_can_be_read_is_a_valid_notebook() -> None:
    for name, lost in LOST.items():
        if lost is not None:
            notebook = nbformat.read(SUBMISSIONS / f"{name}.ipynb", as_version=4)
            nbformat.validate(notebook)
