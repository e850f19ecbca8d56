"""A course's total: weights, the lowest dropped, a cap."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.errors import ConfigError
from labkit.grading.book.course_total import course_totals, out_of_points, totals_csv
from labkit.grading.book.sheets import moodle_csv
from labkit.grading.book.standing import Grade

GRADES = {
    "01": [Grade("ada", 10, 10), Grade("grace", 5, 10)],
    "02": [Grade("ada", 24, 20), Grade("grace", 20, 20)],
    "03": [Grade("ada", 0, 40)],
}
WEIGHTS = {"01": 1.0, "02": 1.0, "03": 2.0}


def test_lessons_count_by_weight_and_a_cap_holds_bonus() -> None:
    ada, grace = course_totals(GRADES, WEIGHTS)
    assert (ada.percent, grace.percent) == (50, 37.5)
    assert ada.lessons == {"01": 100, "02": 100, "03": 0} and grace.lessons["03"] == 0
    assert course_totals(GRADES, WEIGHTS, cap=120)[0].percent == 55


def test_what_is_dropped_is_what_leaves_most_and_is_shown() -> None:
    ada, grace = course_totals(GRADES, WEIGHTS, drop_lowest=1)
    assert (ada.percent, ada.dropped) == (100, ("03",)) and (grace.percent, grace.dropped) == (75, ("03",))
    assert totals_csv([ada]).decode() == "Student,Total %,01,02,03\nada,100,100,100,(0)\n"


def test_weights_of_nothing_and_dropping_everything_are_refused() -> None:
    with pytest.raises(ConfigError, match="the weight of 02:0 is not above 0"):
        course_totals(GRADES, {"01": 1, "02": 0})
    with pytest.raises(ConfigError, match="3 of 3 lessons cannot be dropped"):
        course_totals(GRADES, WEIGHTS, drop_lowest=3)


def test_a_total_goes_into_a_sheet_out_of_its_points(tmp_path: Path) -> None:
    tried = {
        "01": [Grade("ada", 10, 10, num_attempts=1), Grade("linus", 0, 10)],
        "02": [Grade("ada", 10, 20, num_attempts=2), Grade("linus", 0, 20)],
    }
    grades = out_of_points(course_totals(tried, {"01": 1, "02": 1}), tried, 20)
    assert [(each.student, each.score) for each in grades] == [("ada", 15), ("linus", 0)]
    sheet = tmp_path / "moodle.csv"
    sheet.write_text("Identifier,Full name,Grade,Maximum Grade\nParticipant 1,ada,,20\nParticipant 2,linus,,20\n")
    filled = moodle_csv(sheet, grades)
    assert filled.data.decode().splitlines()[1:] == ["Participant 1,ada,15,20", "Participant 2,linus,,20"]
    with pytest.raises(ConfigError, match="a total cannot be out of 0 points"):
        out_of_points([], {}, 0)
