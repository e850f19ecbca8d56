"""The schedule explorer as a reader meets it: scrubbed, edited, checked."""

from __future__ import annotations

from typing import Any

import pytest

from labkit.timeline import COMPUTE, Timeline
from labkit.widgets.schedule_explorer import schedule_explorer
from tests.browser.figure_pages import ILLEGAL, Open, drag, number, set_slider, take

pytestmark = [pytest.mark.browser]


@pytest.mark.in_turn
def test_the_schedule_explorer_counts_the_bubble_for_other_numbers_at_once(show: Open) -> None:
    page = show(schedule_explorer())
    shares = "each => each.map(words => +words.dataset.bubble)"
    assert page.eval_on_selector_all("[data-bubble]", shares) == pytest.approx([3 / 11, 3 / 11], abs=1e-6)
    assert page.inner_text("header b") == "Holding 4 microbatches instead of 8 costs no time"
    set_slider(page, "p", 3)  # the list of numbers of stages is 2, 3, 4, 8
    assert page.eval_on_selector_all("[data-bubble]", shares) == pytest.approx([7 / 15, 7 / 15], abs=1e-6)
    assert page.inner_text("header b") == "Same time, and both hold 8 microbatches"
    set_slider(page, "m", 4)
    assert page.eval_on_selector_all("[data-bubble]", shares) == pytest.approx([7 / 23, 7 / 23], abs=1e-6)
    peaks = page.eval_on_selector_all("[data-peak]", "each => each.map(words => words.dataset.peak)")
    assert peaks == [f"{stage}:16" for stage in range(8)] + [f"{stage}:{8 - stage}" for stage in range(8)]
    set_slider(page, "tm", 0.5)
    assert number(page, "GPipe: off the formula") != "0.0 %"


def _held(kind: str, held: int, first: int = 0) -> list[str]:
    """Return the orders of two stages and four microbatches: of a stage all forwards that fit, then the backwards."""
    groups = [range(begin, begin + held) for begin in range(first, 4, held)]
    return [f"{name}{number}" for group in groups for name in kind for number in group]


@pytest.mark.in_turn
def test_the_title_says_what_it_costs_to_hold_less_of_two_that_do_the_same_work(show: Open) -> None:
    all_at_once, in_pairs = ([_held("FB", held)] * 2 for held in (4, 2))
    page = show(schedule_explorer(whole=all_at_once, pairs=in_pairs, num_stages=2))
    assert [number(page, f"{name}: time") for name in ("whole", "pairs")] == ["15", "18"]
    assert page.inner_text("header b") == "Holding 2 microbatches instead of 4 costs 3 turns"
    other = show(schedule_explorer(whole=all_at_once, last=[_held("FB", 2, 2)] * 2, num_stages=2))
    said = "whole idles 20.0 %, holds 4 microbatches; last idles 33.3 %, holds 2 microbatches"
    assert other.inner_text("header b") == said  # of other work nothing is said to cost less
    soon = ["F0F1B0F2B1F3B2B3", "F0B0F1B1F2B2F3B3"]
    for given in ({"pairs": in_pairs, "soon": soon}, {"soon": soon, "pairs": in_pairs}):
        same = show(schedule_explorer(**given, num_stages=2))
        assert same.inner_text("header b") == "soon: 15 turns instead of 18 in the same memory"


TABLE = "(all) => all.map((row) => [...row.children].map((cell) => cell.innerText.replace(/\u2011/g, '-')))"
SEEN = """() => [...document.querySelectorAll(".lk *")].filter((each) => !each.children.length
  && !each.closest(".aside, [hidden], details") && each.textContent.includes("27.3 %")).length"""
PLACES = "(all) => all.map((row) => [...row.children].map((cell) => Math.round(cell.getBoundingClientRect().right)))"


BUBBLE, SIZES = "bubble (P−1)/(M+P−1) = 3/11 = 27.3 %", ", P = 4 stages, M = 8 microbatches"


@pytest.mark.parametrize("width", [1440, 400])
def test_schedules_numbers_stand_in_one_table_and_the_bubble_beside_its_formula(show: Open, width: int) -> None:
    page = show(schedule_explorer(), width=width)
    rows = [
        ["", "bubble", "microbatches held at most", "time"],
        ["GPipe", "27.3 %", "8", "33"],
        ["1F1B", "27.3 %", "4", "33"],
    ]  # and no column of nothing but 0 % or 100 %
    found = page.eval_on_selector_all(".compared tr", TABLE)
    assert found == (rows if width > 560 else [list(column) for column in zip(*rows, strict=True)])
    places = page.eval_on_selector_all(".compared tr", PLACES)
    assert all(place == places[0] for place in places) and places[0][-1] <= width
    told = "(all) => all.map((words) => words.textContent)"
    assert page.eval_on_selector_all("[data-bubble]", told) == [BUBBLE + (SIZES if width > 560 else "")] * 2
    assert page.evaluate(SEEN) == 4  # over each schedule, and in its row
    set_slider(page, "limit", 2)  # one more number, and its words
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    set_slider(page, "limit", 0)
    set_slider(page, "tm", 0.5)
    assert ", formula (P−1)/(M+P−1) = 3/11 = 27.3 %" in page.text_content("[data-bubble]")
    assert number(page, "GPipe: bubble") != "27.3 %" and number(page, "GPipe: off the formula") != "0.0 %"
    set_slider(page, "tm", 0)
    letters = page.eval_on_selector_all("[data-part=stage] text", "(all) => all.map((words) => words.textContent[0])")
    assert letters.count("F") == 65 and letters.count("B") == 65  # 2 schedules of 4 stages and 8; "F forward"


LEGEND = """(all) => all.slice(0, all.findIndex((words) => words.textContent === "GPipe"))
  .map((words) => words.textContent)"""


def test_the_legend_holds_what_is_drawn_and_nothing_else(show: Open) -> None:
    page = show(schedule_explorer())
    drawn = [
        "F forward, takes 1",
        "B backward, takes 2",
        "bubble: the stage is idle",
        "held: from F to the end of B; dot: peak",
    ]
    assert page.eval_on_selector_all("[data-part=stage] text", LEGEND) == drawn
    page.click("text=ZB-H1")
    set_slider(page, "limit", 2)
    drawn[2:2] = ["I backward of the input", "W backward of the weight"]
    assert page.eval_on_selector_all("[data-part=stage] text", LEGEND) == [*drawn, "memory limit"]


@pytest.mark.long
def test_scrubbing_a_schedule_and_following_a_microbatch_fade_the_rest(show: Open) -> None:
    page = show(schedule_explorer(num_stages=2, num_microbatches=2))
    clear = "each => each.filter(op => !op.closest('g[opacity]')).map(op => op.dataset.op)"
    assert len(page.eval_on_selector_all("[data-op]", clear)) == 16
    set_slider(page, "step", 1)
    assert page.eval_on_selector_all("[data-op]", clear) == ["0:F0", "0:F1", "1:F0"] * 2
    page.focus("[data-part=stage]")
    page.keyboard.press("End")
    set_slider(page, "follow", 1)
    assert page.eval_on_selector_all("[data-op]", clear) == ["0:F1", "0:B1", "1:F1", "1:B1"] * 2


@pytest.mark.in_turn
def test_an_illegal_order_is_red_with_the_dependency_it_breaks(show: Open) -> None:
    page = show(schedule_explorer(ILLEGAL, num_stages=2, num_microbatches=2))
    names = "each => each.map(cell => cell.dataset.stuck)"
    assert page.eval_on_selector_all("[data-stuck]", names) == ["0:B0", "0:B1", "1:B1", "1:F1", "1:B0"]
    assert page.eval_on_selector_all("[data-stuck].culprit", names) == ["1:B1"]
    assert page.locator("[data-stuck].after").count() == 4
    assert page.inner_text("[data-part=say]") == "Stage 1: B1 stands before F1."


def _order(page: Any, stage: int) -> list[str]:
    """Return a stage's operations in the order in which they stand, of the first schedule."""
    script = "each => each.sort((a, b) => a.dataset.pick.split(',')[2] - b.dataset.pick.split(',')[2])"
    cells = f'[data-pick^="0,{stage},"]'
    return list(page.eval_on_selector_all(cells, f"{script}.map(cell => cell.dataset.op.split(':')[1])"))


@pytest.mark.in_turn
def test_an_operation_dragged_to_another_place_is_checked_at_once(show: Open) -> None:
    page = show(schedule_explorer([["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]], num_stages=2))
    assert number(page, "schedule 0: bubble") == "33.3 %"
    assert page.locator("text=Undo edits").is_hidden()  # there is nothing to undo
    unit = page.locator('[data-op="1:B0"]').bounding_box()["width"] / 2
    drag(page, "1:B0", 2 * unit)  # behind F1
    assert _order(page, 1) == ["F0", "F1", "B0", "B1"]
    assert page.inner_text("[data-part=say]").startswith("schedule 0, edited, still runs: bubble 33.3 %")
    drag(page, "1:B0", -3 * unit)  # before F0
    assert page.inner_text("[data-part=say]") == "Stage 1: B0 stands before F0. Chosen: B0 of stage 1."
    page.click("text=Undo edits")
    assert page.locator("text=Undo edits").is_hidden()
    assert _order(page, 1) == ["F0", "B0", "F1", "B1"]
    assert not page.failed


@pytest.mark.long
def test_a_schedule_reflows_while_an_operation_is_dragged_and_before_it_is_let_go(show: Open) -> None:
    page = show(schedule_explorer([["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]], num_stages=2))
    unit = page.locator('[data-op="1:B0"]').bounding_box()["width"] / 2
    take(page, '[data-op="1:B0"]', 2 * unit)
    assert _order(page, 1) == ["F0", "F1", "B0", "B1"]
    assert page.inner_text("[data-part=say]").startswith("schedule 0, edited, still runs")
    page.mouse.up()
    assert _order(page, 1) == ["F0", "F1", "B0", "B1"]


@pytest.mark.long
def test_what_lies_under_the_pointer_is_told_beside_it(show: Open) -> None:
    page = show(schedule_explorer())
    page.hover('[data-op="1:F3"] >> nth=0')
    tip = page.locator("[data-part=tip]")
    assert tip.inner_text() == "stage 1, F3: 4 to 5"
    mark, told = page.locator('[data-op="1:F3"] >> nth=0').bounding_box(), tip.bounding_box()
    assert 0 < told["x"] - mark["x"] < 60 and 0 < told["y"] - mark["y"] < 60
    page.mouse.move(2, 2)
    assert tip.is_hidden()


@pytest.mark.long
def test_a_large_schedule_is_drawn_as_few_shapes_and_each_operation_is_found_and_dragged_all_the_same(
    show: Open,
) -> None:
    page = show(schedule_explorer(num_stages=16, num_microbatches=64))
    assert page.locator("[data-part=stage] *").count() < 1000
    row = page.locator('[data-row="1,15"]')  # 1F1B's last stage, which begins after 15 of 237
    row.scroll_into_view_if_needed()
    box = row.bounding_box()
    x, y = box["x"] + box["width"] * 15.5 / 237, box["y"] + 10
    page.mouse.move(x, y)
    assert _lit(page) == ["015:F0", "115:F0"]
    page.mouse.down()
    page.mouse.move(x + 10, y)
    page.mouse.move(x + box["width"] * 3 / 237, y)  # behind B0, which needs it
    page.mouse.up()
    said = page.inner_text("[data-part=say]")
    assert "Stage 15: B0 stands before F0. Chosen: F0 of stage 15" in said
    assert not page.failed


@pytest.mark.in_turn
def test_a_deadlock_made_with_the_keys_is_named(show: Open) -> None:
    page = show(schedule_explorer([["F0", "B0", "F1", "B1"], ["F0", "B0", "F1", "B1"]], num_stages=2))
    page.focus("[data-part=stage]")
    for key in [".", ".", ".", ".", ".", ".", ".", "<", "<"]:  # F1 of stage 1 goes before F0
        page.keyboard.press(key)
    assert _order(page, 1) == ["F1", "F0", "B0", "B1"]
    said = "Deadlock: stages 0 and 1 wait for each other. Chosen: F1 of stage 1."
    assert page.inner_text("[data-part=say]") == said
    page.keyboard.press("u")
    assert _order(page, 1) == ["F0", "B0", "F1", "B1"]


@pytest.mark.long
def test_memory_and_the_critical_path_are_drawn_when_asked_for(show: Open) -> None:
    page = show(schedule_explorer(num_stages=4, num_microbatches=8, memory_limit=4))
    assert page.eval_on_selector_all("[data-limit]", "each => each.length") == 8
    assert number(page, "GPipe: fits in memory") == "✗ stage 0, 1, 2, 3"
    assert number(page, "1F1B: fits in memory") == "✓"
    page.focus("[data-part=stage]")
    page.keyboard.press("c")
    marked = page.eval_on_selector_all("[data-critical]", "each => each.map(cell => cell.dataset.op)")
    assert {"0:F0", "3:B7", "0:B7"} <= set(marked)
    assert number(page, "GPipe: critical path").endswith("100.0 % compute")
    parts = set(page.eval_on_selector_all("[data-idle]", "each => each.map(cell => cell.dataset.idle.split(':')[1])"))
    assert {"warm-up", "drain"} <= parts


def _lit(page: Any) -> list[str]:
    return list(
        page.eval_on_selector_all("[data-lit]", "each => each.map(cell => cell.dataset.pick[0] + cell.dataset.op)")
    )


@pytest.mark.long
def test_the_operation_under_the_pointer_is_lit_in_every_schedule_with_its_microbatchs_way(show: Open) -> None:
    page = show(schedule_explorer())
    page.hover('[data-op="1:F3"] >> nth=0')
    assert _lit(page) == ["01:F3", "11:F3"]
    assert page.inner_text("[data-part=say]").endswith("F3 of stage 1: GPipe from 4 to 5, 1F1B from 10 to 11.")
    assert page.locator("[data-cursor]").count() == 1
    sent = page.eval_on_selector_all("[data-message]", "each => each.map(arrow => arrow.dataset.message).sort()")
    assert sent == sorted(2 * ["0:F3", "1:F3", "2:F3", "1:B3", "2:B3", "3:B3"])
    clear = "each => each.filter(op => !op.closest('g[opacity]')).map(op => op.dataset.op.split(':')[1])"
    assert sorted(page.eval_on_selector_all("[data-op]", clear)) == 8 * ["B3"] + 8 * ["F3"]
    page.mouse.move(2, 2)
    page.wait_for_selector("[data-message]", state="detached")
    assert _lit(page) == []
    assert not page.failed


@pytest.mark.long
def test_a_backward_is_lit_as_its_parts_and_a_microbatch_as_its_chunks_in_the_schedules_compared_with(
    show: Open,
) -> None:
    page = show(schedule_explorer())
    set_slider(page, "and", 2)  # ZB-H1
    assert number(page, "ZB-H1: time vs GPipe") == "81.8 %"
    assert number(page, "1F1B: time vs GPipe") == "100.0 %" and number(page, "1F1B: time") == "33"
    page.hover('[data-op="1:B3"] >> nth=0')
    assert sorted(_lit(page)) == ["01:B3", "11:B3", "21:I3", "21:W3"]
    set_slider(page, "and", 1)
    assert number(page, "interleaved 1F1B: bubble") == "15.8 %"
    assert sorted(_lit(page)) == ["01:B3", "11:B3", "21:B3", "21:B3.1"]
    page.mouse.move(1, 1)
    set_slider(page, "and", 3)  # ZB-V: the second chunk comes back, so the last stage hands it to itself
    assert number(page, "ZB-V: bubble") == "5.9 %" and number(page, "ZB-V: time") == "25.5"
    assert page.text_content('[data-bubble="0.058824"]') == "bubble (P−1)/(6M+P−1) = 3/51 = 5.9 %" + SIZES
    assert page.locator("circle[data-most]").count() == 12  # where each stage holds most
    set_slider(page, "follow", 0)
    ways = page.eval_on_selector_all("[data-message]", "(all) => all.map((each) => each.dataset.message)")
    assert {"3:F0.1", "2:F0.1", "1:F0.1"} <= set(ways) and "0:F0.1" not in ways


@pytest.mark.long
def test_keys_choose_an_operation_in_every_schedule_also_in_a_measured_one(show: Open) -> None:
    spans = [(0, 0, 100, "F0"), (0, 100, 200, "F1"), (0, 400, 500, "B0"), (1, 110, 210, "F0"), (1, 210, 400, "B0")]
    ranks, starts, ends, names = zip(*spans, strict=True)
    run = Timeline(ranks, [COMPUTE] * 5, starts, ends, names, ["span"] * 5)
    page = show(schedule_explorer(one=run, other=run))
    outlines = page.eval_on_selector_all("[data-model]", "each => each.map(outline => outline.dataset.model)")
    assert outlines == 2 * ["0:F0", "0:F1", "0:B0", "1:F0", "1:B0"]
    assert number(page, "one: measured / predicted") == "1.02"  # 500 ns over 100 + 100 + 190 and B0's median, 145: 490
    page.focus("[data-part=stage]")
    page.keyboard.press(".")
    page.keyboard.press(">")  # what was measured stays as it was
    assert _lit(page) == ["00:F0", "10:F0"]
    said = "Chosen: F0 of stage 0: one from 0 ns to 100 ns, other from 0 ns to 100 ns."
    assert page.inner_text("[data-part=say]").endswith(said)


@pytest.mark.long
def test_stages_that_wait_for_each_other_are_the_culprits_and_whoever_waits_for_them_is_grey(show: Open) -> None:
    page = show(schedule_explorer([["F0", "B0", "F1", "B1"], ["F1", "F0", "B0", "B1"]], num_stages=2))
    names = "each => each.map(cell => cell.dataset.stuck)"
    assert page.eval_on_selector_all("[data-stuck].culprit", names) == ["0:B0", "1:F1"]
    assert page.locator("[data-needs].culprit").count() == 2 and page.locator("[data-needs].after").count() == 0


@pytest.mark.long
def test_what_an_illegal_order_waits_for_has_a_red_arrow_and_what_follows_a_grey_one(show: Open) -> None:
    page = show(schedule_explorer(ILLEGAL, num_stages=2, num_microbatches=2))
    arrows = page.eval_on_selector_all("[data-needs]", "each => each.map(a => a.dataset.needs)")
    assert arrows == ["0:B0<1:B0", "1:B1<1:F1"]
    dashes = "a => [getComputedStyle(a).strokeDasharray, getComputedStyle(a).stroke]"
    follows, (dash, colour) = (page.eval_on_selector(f'[data-needs^="{stage}"]', dashes) for stage in (0, 1))
    assert dash == "none" and follows == ["2px, 3px", "rgb(138, 138, 138)"]
    assert (
        colour == page.eval_on_selector("[data-stuck].culprit", "cell => getComputedStyle(cell).stroke") != follows[1]
    )


@pytest.mark.long
def test_the_weights_part_of_a_backward_follows_its_slider(show: Open) -> None:
    page = show(schedule_explorer([["F0", "I0", "W0"], ["F0", "I0", "W0"]], num_stages=2))
    assert number(page, "schedule 0: time") == "5"  # F0 F0 I0 I0 W0, each takes 1
    set_slider(page, "tw", 0.25)
    assert number(page, "schedule 0: time") == "5.5"  # 1 + 1 + 1.5 + 1.5 + 0.5
