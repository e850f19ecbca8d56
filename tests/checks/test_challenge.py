"""A design is scored beside three pars; beating the naive answer passes; a plan is ranked by who scored it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import labkit
from labkit.checks import class_mistakes, notebook
from labkit.checks.case import Values
from labkit.checks.challenge import Pars, for_half_and_all, relative_score
from labkit.checks.exercise import Exercise, Functions
from labkit.checks.hidden import hidden_cases
from labkit.checks.rooms import exercises, lessons, own_package
from labkit.errors import ConfigError
from tests.checks.lesson_cells import lesson as read_lesson

COURSE = Path(__file__).parents[1] / "grading" / "fixtures" / "course"
Told = list[tuple[str, bool, object]]


@pytest.fixture
def place_jobs() -> Exercise:
    def drive(functions: Functions, inputs: Values) -> Values:  # by value: ranks do not see the fixture course
        return {"machines": functions["place_jobs"](inputs["minutes"], inputs["num_machines"])}

    return replace(exercises("small", own_package(COURSE / "exercises"))["place_jobs"], driver=drive)


@pytest.fixture
def told(place_jobs: Exercise, monkeypatch: pytest.MonkeyPatch) -> Told:
    """What the class board was told; the exercise is known by its name."""
    sent: Told = []

    def report(exercise_id: str, passed: bool, plans: object = None, mistake: str = "") -> str:
        sent.append((exercise_id, passed, plans))
        return ""

    monkeypatch.setattr(notebook, "report", report)
    monkeypatch.setattr(notebook, "find", lambda exercise_id: place_jobs)
    monkeypatch.setattr(class_mistakes, "folder_of", lambda exercise_id: COURSE / "exercises" / "small" / "place_jobs")
    monkeypatch.setattr(notebook, "_owner", lambda exercise, name: None)
    return sent


def answers(rule: Callable[[int], int]) -> Callable[[list[int], int], list[int]]:
    def place_jobs(minutes: list[int], num_machines: int) -> list[int]:
        return [rule(job) for job in range(len(minutes))]

    return place_jobs


def test_a_design_that_beats_the_naive_one_passes_with_its_scores(told: Told) -> None:
    found = labkit.challenge("place_jobs", answers(lambda job: job % 2))
    assert found.passed
    assert "pass  three jobs: 9 min (naive 12, the paper's 9, best known 6)" in repr(found)
    assert told == [("place_jobs", True, [[0, 1, 0], [0, 1, 0, 1, 0]])]


def test_a_design_that_is_as_slow_as_the_naive_one_does_not_pass(told: Told) -> None:
    found = labkit.challenge("place_jobs", answers(lambda job: 0))
    assert not found.passed
    assert "It works and takes 12 min; the naive answer takes 12. Points are for less." in repr(found)
    assert told == [("place_jobs", False, None)]


def test_a_named_reference_earns_the_other_half(place_jobs: Exercise) -> None:
    assert place_jobs.challenge is not None
    challenge = replace(place_jobs.challenge, reference="LPT", pars=lambda case: Pars(12, 8, 6))
    case, shorter = place_jobs.visible[0], ({"machines": [0, 0, 1]},)
    found = {name: ({"machines": plan},) for name, plan in (("naive", [0, 0, 0]), ("half", [0, 1, 0]))}
    (for_half, for_all) = for_half_and_all([case])
    assert challenge.falls_short(for_half, found["naive"]) and challenge.falls_short(for_all, found["naive"])
    assert not challenge.falls_short(for_half, found["half"])
    assert "takes 9 min; LPT takes 8. This half" in challenge.falls_short(for_all, found["half"])
    assert not challenge.falls_short(for_all, shorter)
    assert challenge.line(case, found["half"]) == (
        "9 min (naive 12, LPT 8, best known 6): half of the points; reaching LPT earns the other half"
    )


def test_a_new_record_is_told(place_jobs: Exercise) -> None:
    assert place_jobs.challenge is not None
    challenge = replace(place_jobs.challenge, pars=lambda case: Pars(12, 9, 7))
    said = challenge.line(place_jobs.visible[0], ({"machines": [0, 0, 1]},))
    assert said == "6 min (naive 12, the paper's 9, best known 7): better than the best known! Send us the plan."


@pytest.mark.in_turn
def test_a_challenge_with_a_reference_weighs_its_hidden_cases() -> None:
    for lesson in lessons():
        for each in exercises(lesson).values():
            if each.challenge is None or not each.challenge.reference:
                continue
            (header,) = [found for found in read_lesson(lesson).exercises if found.id == each.id]
            hidden = hidden_cases("labkit.exercises", lesson, each.id, 1)
            for_all = [weight for weight, case in zip(header.weights, hidden, strict=True) if "for all" in case.name]
            assert 2 * sum(for_all) == sum(header.weights), f"{each.id}: each bar earns half of the points"


def test_a_plan_that_is_wrong_is_no_matter_of_score(told: Told) -> None:
    found = labkit.challenge("place_jobs", answers(lambda job: job + 1))
    assert not found.passed and "Machines count from 0" in repr(found)


def test_plans_are_scored_against_the_best_known(place_jobs: Exercise) -> None:
    assert relative_score(place_jobs, [[0, 0, 1], [0, 1, 0, 1, 0]]) == pytest.approx((6 / 6 + 12 / 10) / 2)


@pytest.mark.parametrize(
    "plans",
    [
        None,
        [[0, 0, 1]],
        [[0, 0, 1], "best"],
        [[0, 0, 1], [0, 1, 0, 1]],
        [[0, 0, 1], [0, 1, 0, 1, 7]],
        [[0, 0, 1], [0, 1, 0, 1, None]],
        [[0, 0, 0], [0, 1, 0, 1, 0]],
    ],
)
def test_what_is_no_plan_or_no_better_has_no_rank(place_jobs: Exercise, plans: object) -> None:
    with pytest.raises(ConfigError):
        relative_score(place_jobs, plans)


def test_a_bound_is_not_called_the_best_known(place_jobs: Exercise) -> None:
    assert place_jobs.challenge is not None
    challenge = replace(place_jobs.challenge, best="lower bound")
    assert challenge.line(place_jobs.visible[0], ({"machines": [0, 1, 0]},)) == (
        "9 min (naive 12, the paper's 9, lower bound 6)"
    )
    bounds = {name for each_lesson in lessons() for name, each in exercises(each_lesson).items()
              if each.challenge and each.challenge.best != "best known"}  # fmt: skip
    assert bounds == {"fill_stages", "shortest_step", "recompute_plan", "split_plan"}
