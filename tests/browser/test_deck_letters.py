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


@pytest.mark.in_turn
def test_numbers_of_a_schedule_are_large_or_left_out_and_a_backward_has_its_letter(
    browser: Any, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(deck("08_pipeline", tmp_path))
    go_to(page, "room for 2")
    inside = page.locator("section.present .hall [data-op] + text").all_text_contents()
    assert not any(inside)  # 51 turns: no room for a B0 that is read
    words = page.locator("section.present .hall > text").evaluate_all(SIZES)
    assert [said for said, _ in words if said][:3] == ["forward", "backward", "idle"]
    assert {size for said, size in words if said} == {20}  # 36 on the slide
    go_to(page, "half the memory: yours")
    for kind, names in (("F", "01234567"), ("B", [f"B{number}" for number in range(8)])):
        said = page.locator(f"section.present .hall [data-op*=':{kind}'] + text").evaluate_all(SIZES)
        assert len(said) == 64 and {size for _, size in said} == {20}  # two schedules, four stages, eight each
        assert {words for words, _ in said} == set(names)
    page.close()


@pytest.mark.in_turn
def test_a_call_of_one_line_is_as_large_as_the_text_below_it(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(deck("02_ring_all_reduce", tmp_path))
    go_to(page, "ring_sum(tensor, group)")
    assert page.locator("section.present li > code").evaluate_all(SIZES) == [["ring_sum(tensor, group)", 52]]
    page.close()
