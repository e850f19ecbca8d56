"""Letters on slides are as large as what they stand in lets them be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.test_decks import ALIVE, deck

SIZES = "(all) => all.map((each) => [each.textContent, parseFloat(getComputedStyle(each).fontSize)])"


def go_to(page: Any, words: str) -> None:
    """Go to the slide whose markup has these words."""
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    slides = "[...document.querySelectorAll('.slides > section')]"
    page.evaluate(f"Reveal.slide({slides}.findIndex((each) => each.innerHTML.includes('{words}')), 0, 99)")
    page.wait_for_function(ALIVE)


def numbers_of_work(page: Any, least: float) -> None:
    """Hold that every forward and backward of one schedule says its microbatch, in letters of this size at least."""
    for kind, names in (("F", "01234567"), ("B", [f"B{number}" for number in range(8)])):
        said = page.locator(f"section.present .hall [data-op*=':{kind}'] + text").evaluate_all(SIZES)
        assert len(said) == 32 and {words for words, _ in said} == set(names)  # four stages, eight each
        assert min(size for _, size in said) >= least


@pytest.mark.in_turn
def test_of_two_schedules_one_is_a_bar_in_words_the_other_whole_its_numbers_large_and_a_backward_has_its_letter(
    browser: Any, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(deck("08_pipeline", tmp_path))
    go_to(page, "room for 2")
    words = page.locator("section.present .hall > text").evaluate_all(SIZES)
    assert [said for said, _ in words if said][:5] == [
        "holds at most", "room for 4: 33 turns, idle 27 %", "a stage", "4", "forward"
    ]  # fmt: skip
    assert {"backward", "idle", "room for 2: 51 turns, idle 53 %"} <= {said for said, _ in words}
    assert [said for said, _ in words if said.startswith("stage ")] == [f"stage {stage}" for stage in range(4)]
    numbers_of_work(page, least=14)  # 25 on the slide, where a turn is a fiftieth of it
    go_to(page, "half the memory: yours")
    numbers_of_work(page, least=20)  # 36 on the slide
    page.close()


@pytest.mark.in_turn
def test_a_call_of_one_line_is_as_large_as_the_text_below_it(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(deck("02_ring_all_reduce", tmp_path))
    go_to(page, "ring_sum(tensor, group)")
    assert page.locator("section.present li > code").evaluate_all(SIZES) == [["ring_sum(tensor, group)", 52]]
    page.close()
