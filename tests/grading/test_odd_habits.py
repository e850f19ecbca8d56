"""Odd habits of honest learners cost nothing: each is run in ranks as hidden cases run it, or said plainly why not."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from grading.honest_habits import places
from grading.more_habits import NEWS
from grading.odd_habits import HABITS, SAVED, Habit
from grading.small_lesson import RIGHT, notebook
from grading.test_honest_habits import rebuilt_from
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.hidden_cases.probe import CaseRun
from labkit.grading.limits import Limits
from labkit.grading.notebook.rebuild import rebuild
from labkit.grading.preloaded.template import Template
from labkit.grading.submission import find_submissions, read_submission

EXERCISES = ("double", "shift")


@pytest.mark.in_turn
@pytest.mark.parametrize("exercise", EXERCISES)
@pytest.mark.parametrize("name", HABITS)
def test_a_habit_costs_nothing(name: str, exercise: str, template: Template, oracle: Oracle, tmp_path: Path) -> None:
    costs_nothing(HABITS[name], name, exercise, (template, oracle), tmp_path)


@pytest.mark.in_turn
@pytest.mark.parametrize(("name", "exercise"), list(zip(NEWS, cycle(EXERCISES), strict=False)))
def test_a_further_habit_costs_nothing(
    name: str, exercise: str, template: Template, oracle: Oracle, tmp_path: Path
) -> None:
    costs_nothing(NEWS[name], name, exercise, (template, oracle), tmp_path)


def costs_nothing(habit: Habit, name: str, exercise: str, grading: tuple[Template, Oracle], tmp_path: Path) -> None:
    template, oracle = grading
    content = notebook(RIGHT)
    habit(content, places(content)[exercise])
    rebuilt = rebuilt_from(content, tmp_path)
    assert rebuilt.unchanged == () and (rebuilt.lost == {} or name == "a package that is not there")
    case = oracle.cases(exercise, 7)[0]
    cells = rebuilt.cells_until(exercise)
    outcome = CaseRun(template, exercise, cells, case, 1, tmp_path / "case", 60.0, Limits()).run()
    verdict = oracle.judge(exercise, case, outcome.results, outcome.failure, outcome.wire)
    assert verdict.passed, (verdict.message, cells)


@pytest.mark.parametrize("name", SAVED)
def test_a_file_is_read_however_it_was_saved(name: str, tmp_path: Path) -> None:
    file, written = SAVED[name]
    (tmp_path / file.format("ada")).write_bytes(written(notebook(RIGHT)))
    [found], _ = find_submissions([tmp_path], "90_small")
    read = read_submission(found)
    assert not read.problem, read.problem
    assert rebuild(read.cells, notebook()).unchanged == ()
