"""CONTRIBUTING's walk in a scratch course: a lesson, a new exercise, built, judged and graded as it was written."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import labkit.exercises
from grading.conftest import SANDBOX
from labkit.checks.case import Case
from labkit.checks.exercise import Exercise, Sweep, judge
from labkit.checks.hidden import hidden_cases
from labkit.checks.rooms import exercises, find, own_package
from labkit.checks.sweep import run_sweep
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.checks.wrong_answers import WrongAnswers
from labkit.cli import app
from labkit.errors import ConfigError, LessonError
from labkit.grading.grade import grade
from labkit.lessons.build import build
from labkit.lessons.new_exercise import new_exercise
from labkit.lessons.source import load
from labkit.slugs import LONGEST
from tests.checks.lesson_cells import run_cell

ROOT = Path(__file__).parents[2]
LESSON = """\
# %% [markdown]
# # Sums

# %% tags=["given"]
import labkit
"""
ANSWER = "def ring_plan(numbers):\n    return sum(numbers)\n"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course of one lesson with one new exercise, built."""
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "07_sums.py").write_text(LESSON)
    new_exercise("07", "Ring plan", tmp_path)
    build(tmp_path, execute=False)
    return tmp_path


def written(course: Path) -> Exercise:
    return exercises("sums", own_package(course / "exercises"))["ring_plan"]


def wrong_answers(course: Path) -> WrongAnswers:
    return answers_in(course / "exercises" / "sums" / "ring_plan" / "wrong.py")


def answers_in(path: Path) -> WrongAnswers:
    spec = importlib.util.spec_from_file_location("scratch.sums.ring_plan", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.WRONG
    assert isinstance(found, WrongAnswers)
    return found


def verdict(exercise: Exercise, case: Case, source: str) -> Verdict:
    names: dict[str, object] = {}
    exec(source, names)
    got = (exercise.driver({"ring_plan": names["ring_plan"]}, case.inputs[0]),)  # type: ignore[dict-item]
    return judge(exercise, case, got, Wire())


def test_the_lessons_own_answer_passes_visible_and_hidden_cases(course: Path) -> None:
    exercise = written(course)
    (cell,) = [cell for cell in load(course / "solutions" / "07_sums.py").cells if cell.role == "exercise"]
    hidden = hidden_cases(own_package(course / "exercises"), "sums", "ring_plan", 7)
    assert hidden
    for case in (*exercise.visible, *hidden):
        assert verdict(exercise, case, cell.source).passed, case.name


def test_the_stub_fails_with_its_own_message(course: Path) -> None:
    (cell,) = [cell for cell in load(course / "solutions" / "07_sums.py").cells if cell.role == "exercise"]
    with pytest.raises(NotImplementedError, match=r"Exercise 7\.1: Ring plan"):
        verdict(written(course), written(course).visible[0], cell.student_source)


def test_each_wrong_answer_is_told_its_mistake_with_a_hint(course: Path) -> None:
    exercise, answers = written(course), wrong_answers(course)
    assert len(answers) >= 3
    for answer in answers:
        found = verdict(exercise, exercise.visible[0], answer.source(ANSWER))
        assert (found.passed, found.mistake) == (False, answer.mistake)
        assert found.hint


def test_a_right_answer_in_another_style_passes(course: Path) -> None:
    exercise, variants = written(course), wrong_answers(course).variants
    assert variants
    assert all(verdict(exercise, exercise.visible[0], source).passed for source in variants.values())


@pytest.mark.in_turn
def test_a_right_submission_gets_the_points_and_a_wrong_one_is_told_its_mistake(course: Path) -> None:
    handed_in = course / "in"
    handed_in.mkdir()
    wrong = wrong_answers(course)[0]
    for name, answer in {"right": ANSWER, "wrong": wrong.source(ANSWER)}.items():
        notebook = json.loads((course / "notebooks" / "07_sums.ipynb").read_text())
        (cell,) = [cell for cell in notebook["cells"] if "exercise" in cell["metadata"].get("tags", ())]
        cell["source"] = answer
        (handed_in / f"{name}.ipynb").write_text(json.dumps(notebook))
    out = course / "out"
    report = grade([handed_in], "07", out, jobs=1, course=course, sandbox=SANDBOX, points_only=True)
    assert {entry.name: entry.score for entry in report} == {"right": 4, "wrong": 0}
    assert "That is the mean. Do not divide." in (out / "wrong" / "feedback.html").read_text()


@pytest.mark.in_turn
def test_an_exercise_on_ranks_is_judged_by_what_they_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "labkit" / "exercises"
    own.mkdir(parents=True)
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "07_sums.py").write_text(LESSON)
    room = new_exercise("07", "Passed on", tmp_path, on_ranks=True)[0].parent
    monkeypatch.setattr(labkit.exercises, "__path__", [*labkit.exercises.__path__, str(own)])
    answer = next(cell for cell in load(tmp_path / "solutions" / "07_sums.py").cells if cell.role == "exercise").source
    answers = answers_in(room / "wrong.py")
    assert len(answers) >= 3 and answers.variants

    exercise = find("passed_on")
    cases = (*exercise.visible, *hidden_cases("labkit.exercises", "sums", "passed_on", 7))
    on_virtual_ranks = replace(exercise, sweep=Sweep(cases, ""))

    def told(source: str) -> Verdict:
        names: dict[str, Any] = {"torch": torch, "dist": torch.distributed, "__name__": "__main__"}
        run_cell(source, names)
        return run_sweep(on_virtual_ranks, {"passed_on": names["passed_on"]}).verdict

    assert all(told(source).passed for source in (answer, *answers.variants.values()))
    for each in answers:
        verdict = told(each.source(answer))
        assert (verdict.passed, verdict.mistake) == (False, each.mistake), f"{each.name}: {verdict}"
        assert verdict.hint
    assert all(set(exercise.least(case)) == set(range(case.world_size)) for case in cases)


@pytest.mark.in_turn
@pytest.mark.parametrize("on_ranks", [False, True])
def test_what_it_writes_is_as_ruff_would_have_it(tmp_path: Path, on_ranks: bool) -> None:
    """Whatever the title's length: a lesson's own checkout is linted, the exercise as well."""
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "07_sums.py").write_text(LESSON)
    (tmp_path / "labkit" / "exercises").mkdir(parents=True)
    for title in ("Ring", "a" * LONGEST):
        files = [str(path) for path in new_exercise("07", title, tmp_path, on_ranks=on_ranks)[:-1]]
        for command in (["check", "--select", "E,F,W"], ["format", "--check"]):
            ruff = [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "pyproject.toml"), *files]
            done = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr


def test_each_file_says_what_to_change(course: Path) -> None:
    files = new_exercise("sums", "Another", course)
    assert [path.relative_to(course).as_posix() for path in files] == [
        "exercises/sums/another/exercise.py",
        "exercises/sums/another/driver.py",
        "exercises/sums/another/hidden.py",
        "exercises/sums/another/wrong.py",
        "solutions/07_sums.py",
    ]
    assert all("# Change" in path.read_text() for path in files)


def test_in_labkits_own_checkout_the_files_go_into_labkit(course: Path) -> None:
    (course / "labkit" / "exercises").mkdir(parents=True)
    room = new_exercise("7", "Another", course)[0].parent
    assert room == course / "labkit" / "exercises" / "sums" / "another"
    assert "from labkit.exercises.sums.another.driver import drive" in (room / "exercise.py").read_text()


@pytest.mark.in_turn
@pytest.mark.parametrize("title", ["2 rings", "", "!", "x" * 60, 'The "ring"', "Ring\nplan"])
def test_a_title_that_makes_no_slug_is_refused(course: Path, title: str) -> None:
    with pytest.raises(ConfigError, match="cannot become a slug"):
        new_exercise("07", title, course)


@pytest.mark.parametrize("title", ["Ring plan", "ring PLAN", "Sums"])
def test_a_slug_that_the_course_has_is_refused_and_nothing_is_written(course: Path, title: str) -> None:
    before = (course / "solutions" / "07_sums.py").read_text()
    with pytest.raises(ConfigError, match="which the course already has"):
        new_exercise("07", title, course)
    assert (course / "solutions" / "07_sums.py").read_text() == before


def test_a_file_that_is_there_is_never_written_over(course: Path) -> None:
    there = course / "exercises" / "sums" / "another" / "hidden.py"
    there.parent.mkdir()
    there.write_text("mine")
    with pytest.raises(ConfigError, match=r"exercises/sums/another/hidden\.py already exists"):
        new_exercise("07", "Another", course)
    assert there.read_text() == "mine"
    assert not (course / "exercises" / "sums" / "another" / "exercise.py").exists()


@pytest.mark.parametrize(
    ("end", "first"),
    [
        ("# %% [markdown]\n# ## Bonus: More\n\n# %% [markdown]\n# ### Sources\n#\n# * A book\n", "# ## Bonus"),
        ("# %% [markdown]\n# ### Sources\n#\n# * A book\n", "# ### Sources"),
        ("# %% [markdown]\n# What stays.\n#\n# ### Sources\n#\n# * A book\n", "# ### Sources"),
    ],
)
def test_its_cells_come_before_the_bonus_and_the_sources(course: Path, end: str, first: str) -> None:
    source = course / "solutions" / "07_sums.py"
    source.write_text(source.read_text() + "\n" + end)
    new_exercise("07", "Another", course)
    text = source.read_text()
    assert text.index('exercise="another"') < text.index(f"# %% [markdown]\n{first}")
    assert [cell.source for cell in load(source).cells][-1].endswith("* A book")
    build(course, execute=False)


def test_a_lesson_that_is_not_there_is_refused_with_those_that_are(course: Path) -> None:
    with pytest.raises(LessonError, match="there are: 07_sums"):
        new_exercise("08", "Another", course)


def test_the_command_says_what_it_wrote(course: Path) -> None:
    result = CliRunner().invoke(app, ["new-exercise", "07", "Another", "--course", str(course)])
    assert result.exit_code == 0, result.output
    assert "another/driver.py" in result.output.replace("\n", "")
