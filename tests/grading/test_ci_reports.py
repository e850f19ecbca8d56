"""Grading in CI: what GitHub is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from grading.small_lesson import write_submission
from labkit.grading.reports.class_report import ClassReport
from labkit.grading.reports.github import failure_commands, job_summary
from labkit.grading.reports.results import GradedExercise, GradedSubmission


def result(name: str, *states: str, said: str = "Tried: 2 ranks\nCame back: no", problem: str = "") -> GradedSubmission:
    exercises = (
        GradedExercise(f"task_{at}", 4.0 if state == "passed" else 0.0, 4.0, state, f"Task {at}", said, "", f"1.{at}")
        for at, state in enumerate(states, 1)
    )
    return GradedSubmission(name, "01_x", "s", "c", tuple(exercises), problem)


def report(*results: GradedSubmission, **paths: Path) -> ClassReport:
    return ClassReport(results, (), 1.0, Path("out"), paths)


def test_an_annotation_stands_at_the_cell_and_cannot_become_another_command(tmp_path: Path) -> None:
    path = write_submission(tmp_path / "work" / "a,b:c.ipynb", {})
    path.write_text('{\n "cells": [\n  {\n   "id": "exercise-task-2",\n   "source": []\n  }\n ]\n}\n')
    hostile = "Came back: 50%\n::set-env name=X::y\r\n::error::z"
    [line] = failure_commands(report(result("a", "passed", "failed", said=hostile), a=path), tmp_path / "work")
    assert line.startswith("::error file=a%2Cb%3Ac.ipynb,line=4,title=1.2 Task 2::Came back: 50%25%0A::set-env")
    assert "\n" not in line and "\r" not in line


def test_github_shows_ten_annotations_so_the_tenth_says_how_many_more_there_are(tmp_path: Path) -> None:
    many = failure_commands(report(result("a", *["failed"] * 14)), tmp_path)
    assert len(many) == 10 and "5 more exercises fail" in many[-1]
    assert len(failure_commands(report(result("a", *["failed"] * 10)), tmp_path)) == 10


@pytest.mark.in_turn
def test_the_summary_holds_every_exercise_and_no_markup_of_a_students(tmp_path: Path) -> None:
    said = "Came back: </pre><img src=x> | ![x](y) ``` <script>\n\n![after a blank line](y)\n\n# and a heading"
    text = job_summary(report(result("a", "passed", "failed", "not_done", said=said)))
    assert "4 of 12 points" in text and "| ✅ works | 1.1 Task 1 | 4 of 4 |" in text and "⬜ not started" in text
    assert "<img" not in text and "<script" not in text and "&lt;/pre&gt;" in text
    assert not re.search("<img|<h1|<a ", MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(text))
    odd = job_summary(report(result("x|y [z](w)\n# h", "passed"), result("b", problem="No <file> | here.")))
    assert "2 submissions" in odd and "x&#124;y &#91;z&#93;(w) &#35; h" in odd and "&lt;file&gt; &#124; here." in odd
    assert len(job_summary(report(*(result(f"s{n}", "failed") for n in range(40_000)))).encode()) < 1 << 20
