"""The class page fits windows of every width, whatever the number of exercises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grading.made_class import made_results
from labkit.grading.reports.class_page import class_page
from labkit.grading.reports.results import GradedSubmission
from tests.grading.test_class_page import lines_of

LIST = """() => {
  const [card, table] = [".list", "#marks"].map((each) => document.querySelector(each).getBoundingClientRect());
  return { beyond: table.right - card.right, bars: document.querySelector("#marks td .points i").offsetWidth,
    told: document.querySelector("#marks th.extra").innerText, wide: document.documentElement.scrollWidth };
}"""


def class_with(num_exercises: int) -> list[GradedSubmission]:
    """Return results in which each exercise of the made lesson comes again until there are so many."""
    return [
        replace(each, exercises=tuple(
            replace(each.exercises[at % 6], id=f"e{at}", number=f"1.{at + 1}") for at in range(num_exercises)
        ) if each.exercises else ())
        for each in made_results(12)
    ]  # fmt: skip


@pytest.mark.browser
@pytest.mark.parametrize("num_exercises", [9, 14])  # as lesson 04 has, and 13
def test_the_list_stays_in_its_card_and_speaks_of_bars_that_are_there(
    tmp_path: Path, browser: Any, num_exercises: int
) -> None:
    (file := tmp_path / "class.html").write_bytes(class_page(lines_of(class_with(num_exercises)), "Lesson"))
    page = browser.new_page()
    for width in (1440, 1100, 940, 700):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(file.as_uri())
        seen = page.evaluate(LIST)
        assert seen["beyond"] < 0 and seen["wide"] <= width, width
        if width == 1440:
            assert ("lighter" in seen["told"]) == (seen["bars"] > 0) == (num_exercises < 11)
    page.close()
