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
def test_backwards_of_two_narrow_turns_have_large_numbers_and_their_key_has_one(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(deck("08_pipeline", tmp_path))
    go_to(page, "room for 2")
    said = page.locator("section.present .hall [data-op*=':B'] + text").evaluate_all(SIZES)
    assert len(said) == 64 and {size for _, size in said} == {20}  # two schedules, four stages, eight each
    assert {words for words, _ in said} == set("01234567")  # a B before them would make them small
    key = page.locator("section.present .hall > text").all_text_contents()[:4]
    assert key == ["0", "forward", "0", "backward"]
    page.close()


@pytest.mark.in_turn
def test_a_call_of_one_line_is_as_large_as_the_text_below_it(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(deck("02_ring_all_reduce", tmp_path))
    go_to(page, "ring_sum(tensor, group)")
    assert page.locator("section.present li > code").evaluate_all(SIZES) == [["ring_sum(tensor, group)", 52]]
    page.close()
