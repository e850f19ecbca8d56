"""Letters on slides are as large as what they stand in lets them be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labkit.lessons.reveal import _LAID_OUT, HEIGHT
from tests.browser.test_decks import ALIVE, deck

SIZES = "(all) => all.map((each) => [each.textContent, parseFloat(getComputedStyle(each).fontSize)])"


def go_to(page: Any, words: str) -> None:
    """Go to the slide whose markup has these words."""
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    slides = "[...document.querySelectorAll('.slides > section')]"
    page.evaluate(f"Reveal.slide({slides}.findIndex((each) => each.innerHTML.includes('{words}')), 0, 99)")
    page.wait_for_function(ALIVE)


WORK = """() => [...document.querySelectorAll("section.present .hall [data-op]")].map((bar) => {
  const [words, box] = [bar.nextElementSibling, bar.getBoundingClientRect()], letters = words.getBoundingClientRect();
  const around = Math.min(letters.left - box.left, box.right - letters.right) / Reveal.getScale();
  const size = (parseFloat(getComputedStyle(words).fontSize) * words.getScreenCTM().a) / Reveal.getScale();
  return {op: bar.dataset.op, words: words.textContent, size, around, high: box.height / Reveal.getScale()};
})"""


def whole_schedules(page: Any, microbatches: int) -> None:
    """Hold that two schedules of four stages are drawn whole, every forward and backward with its number in it."""
    work = page.evaluate(WORK)
    names = {"F": "{}", "B": "B{}"}
    works = [(kind, k) for kind in "FB" for k in range(microbatches)]
    both = [(f"{stage}:{kind}{k}", names[kind].format(k)) for stage in range(4) for kind, k in works]
    assert sorted((each["op"], each["words"]) for each in work) == sorted(2 * both)
    assert len({each["size"] for each in work}) == 1  # in both the same
    for each in work:
        assert each["size"] >= 26 and each["around"] >= 0.5 and each["high"] >= 36, each  # 54 pixels of a large page


@pytest.mark.in_turn
def test_two_schedules_of_one_case_are_drawn_whole_and_say_what_holding_less_costs(
    browser: Any, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(deck("08_pipeline", tmp_path))
    for words, title, heads, held, axis in (
        (
            "GPipe in groups of 4: 42",
            "1F1B: 33 turns instead of 42 in the same memory",
            ["1F1B: 33 turns", "GPipe in groups of 4: 42 turns"],
            ["4", "3", "2", "1", "4", "4", "4", "4"],
            ["turns", "0", "10", "20", "33", "42"],
        ),
        (
            "GPipe: 8",
            "Holding 4 microbatches instead of 8 costs no time",
            ["GPipe: 8.27 s", "1F1B: 8.27 s"],
            ["8", "8", "8", "8", "4", "3", "2", "1"],
            ["time", "0", "2 s", "4 s", "6 s", "8.27 s"],
        ),
    ):
        go_to(page, words)
        whole_schedules(page, 8)
        assert page.locator("section.present h3").inner_text() == title
        said = [each for each, _ in page.locator("section.present .hall > text").evaluate_all(SIZES)]
        assert [each for each in said if ":" in each] == heads
        assert said[:6] == ["0", "forward", "B0", "backward", "", "idle"]  # the key
        assert said.count("stage 0") == said.count("stage 3") == 2
        assert [each.removeprefix("holds ") for each in said if each.startswith("holds ")] == held
        assert said[-len(axis) :] == axis  # where each ends, and round numbers before
        ticks = page.locator("section.present .hall > text").last.bounding_box()
        assert ticks["x"] + ticks["width"] < 1100  # not where the slide has its number
    page.close()


@pytest.mark.in_turn
def test_a_call_of_one_line_is_as_large_as_the_text_below_it(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(deck("02_ring_all_reduce", tmp_path))
    go_to(page, "ring_sum(tensor, group)")
    assert page.locator("section.present li > code").evaluate_all(SIZES) == [["ring_sum(tensor, group)", 52]]
    page.close()


@pytest.mark.in_turn
def test_on_paper_a_table_of_all_steps_has_no_line_of_one_step(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(f"{deck('02_ring_all_reduce', tmp_path)}?print-pdf")
    page.wait_for_function(_LAID_OUT, arg=HEIGHT)
    said = page.locator(".live:has(.hall-grid) [data-part=say]")
    assert said.count() == 1 and said.inner_text().startswith("Step 3: ") and not said.is_visible()
    page.close()
