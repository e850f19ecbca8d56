"""Cells filled from a pack are marked, earn what the instructor chose, and are told on the class page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grading.conftest import SANDBOX
from grading.small_lesson import POINTS, RIGHT, notebook, write_submission
from labkit.cli import app
from labkit.errors import ConfigError
from labkit.grading.course import Course
from labkit.grading.from_packs import from_packs, read_packs
from labkit.grading.grade import grade
from labkit.grading.score import ExerciseResult
from labkit.lessons.catching_up import MARK, Pack, read_pack, write_pack, write_packs
from labkit.lessons.manifest import Exercise
from labkit.lessons.presentation import Part, Workshop

ROOT = Path(__file__).parents[2]


def pack_file(path: Path, answers: dict[str, str], earns: int) -> Path:
    path.write_text(json.dumps({"labkit_pack": 1, "lesson": "90_small", "earns": earns, "answers": answers}))
    return path


def result_of(source: str, packs: list[Pack], state: str = "passed") -> ExerciseResult:
    exercise = Exercise("total", "Total", ("total",), 10, 1, 1, 1)
    pristine = notebook()
    [result] = from_packs([ExerciseResult(exercise, state)], {"total": source}, pristine, packs)  # type: ignore[arg-type]
    return result


@pytest.mark.in_turn
def test_a_pack_ends_at_the_exercise_named_by_slug_or_number(tmp_path: Path) -> None:
    whole = write_pack("02", tmp_path / "a", ROOT)
    by_slug = write_pack("02", tmp_path / "b", ROOT, through="run_plan", earns=40)
    assert list(by_slug.answers) == list(whole.answers)[: list(whole.answers).index("run_plan") + 1]
    assert read_pack(tmp_path / "b") == by_slug and by_slug.earns == 40
    done = CliRunner().invoke(app, ["pack", "02", "--through", "2.2", "--out", str(tmp_path / "c")])
    assert done.exit_code == 0 and list(read_pack(tmp_path / "c").answers) == list(whole.answers)[:2], done.output
    none = CliRunner().invoke(app, ["pack", "02", "--through", "2.99", "--out", str(tmp_path / "d")])
    assert none.exit_code == 2 and "has no exercise '2.99'; there are: 2.1 " in none.stderr


def test_a_plan_gets_a_pack_of_each_lesson_through_its_last_exercise(tmp_path: Path) -> None:
    parts = (Part("02", 20, ("chunk_bounds",)), Part("04", 20, ("average_gradients",)), Part("02", 9, ("run_plan",)))
    packs = dict(write_packs(Workshop("w", "W", parts), tmp_path, ROOT, earns=50))
    assert sorted(path.name for path in packs) == ["lesson_02.pack", "lesson_04.pack"]
    assert list(packs[tmp_path / "lesson_02.pack"].answers)[-1] == "run_plan"
    assert list(packs[tmp_path / "lesson_04.pack"].answers) == ["average_gradients"]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("source", "earned", "pack"),
    [
        (MARK + RIGHT["total"], 3.0, "answer"),
        (MARK + RIGHT["total"].replace("peer", "other"), 3.0, "answer"),  # renaming makes it nobody's own
        (RIGHT["total"], 3.0, "answer"),  # word by word, names and all
        (RIGHT["total"] + "0\n", 3.0, "answer"),
        (RIGHT["double"] + RIGHT["total"], 3.0, "answer"),
        (RIGHT["total"].replace("peer", "other").replace("part", "piece"), 10.0, ""),  # short: found by many
        (MARK + RIGHT["shift"], 10.0, ""),  # the line stayed, the code is theirs
    ],
)
def test_a_cell_earns_what_the_pack_says_while_it_is_the_packs(source: str, earned: float, pack: str) -> None:
    found = result_of(source, [Pack("90_small", {"total": RIGHT["total"]}, 30)])
    assert (found.score, found.pack) == (earned, pack)


def test_a_long_answer_of_a_pack_counts_as_the_packs_without_its_line() -> None:
    long = RIGHT["total"] + "".join(f"    x[{n}] = max(x[{n}], x.sum() * {n})\n" for n in range(20))
    assert result_of(long, [Pack("90_small", {"total": long}, 0)]).score == 0


def test_the_line_of_a_pack_that_was_not_named_is_told() -> None:
    assert result_of(MARK + RIGHT["total"], []).pack == "unnamed"


def test_what_fails_earns_nothing_from_a_pack_either() -> None:
    assert result_of(MARK + RIGHT["total"], [Pack("90_small", {"total": RIGHT["total"]}, 30)], "failed").score == 0


def test_two_packs_that_disagree_are_refused(tmp_path: Path) -> None:
    paths = [pack_file(tmp_path / str(earns), {"total": "x"}, earns) for earns in (0, 50)]
    with pytest.raises(ConfigError, match=r"one pack lets total earn 0 %, another 50 %"):
        read_packs(paths, "90_small")
    assert read_packs(paths, "02_ring_all_reduce") == ()


@pytest.mark.in_turn
def test_a_class_is_graded_with_its_packs_and_again_when_they_change(course: Course, tmp_path: Path) -> None:
    marked = {"double": MARK + RIGHT["double"], "shift": RIGHT["shift"]}
    write_submission(tmp_path / "in" / "ada.ipynb", marked)
    write_submission(tmp_path / "in" / "grace.ipynb", {"double": RIGHT["double"]})
    pack = pack_file(tmp_path / "small.pack", {"double": RIGHT["double"]}, 50)
    options = {"course": course.root, "points_only": True, "sandbox": SANDBOX, "key": tmp_path / "key"}
    report = grade([tmp_path / "in"], "90", tmp_path / "out", packs=[pack], **options)  # type: ignore[arg-type]
    scores = {each.name: each.score for each in report}
    assert scores == {"ada": POINTS["double"] / 2 + POINTS["shift"], "grace": POINTS["double"]}
    said = (tmp_path / "out" / "ada" / "feedback.html").read_text()
    assert "the answer of the pack that was handed out; it earns 1 of 2 points" in said
    page = (tmp_path / "out" / "class.html").read_text()
    assert "Who used a pack" in page and page.index("Who used a pack") < page.index(">ada", page.index("Who used"))
    again = grade([tmp_path / "in"], "90", tmp_path / "out", **options)  # type: ignore[arg-type]
    assert {each.name: each.score for each in again}["ada"] == POINTS["double"] + POINTS["shift"]
    assert "no --pack named it" in (tmp_path / "out" / "class.html").read_text()
