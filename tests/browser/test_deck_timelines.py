"""Timelines on slides: few ranks and large, two runs on one axis, and steps that all ranks do at once as one block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labkit.lessons.reveal import HEIGHT, WIDTH
from tests.browser.test_decks import ALIVE, TITLE, deck

pytestmark = [pytest.mark.browser]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where decks lie; one that was written is written no second time."""
    return tmp_path_factory.mktemp("decks")


@pytest.fixture
def opened(browser: Any) -> Any:
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    yield page
    page.close()


@pytest.mark.in_turn
def test_of_many_ranks_a_slide_shows_few_large_among_them_the_one_that_is_unlike(opened: Any, folder: Path) -> None:
    opened.goto(deck("01_data_parallel", folder))
    opened.wait_for_function("window.Reveal && Reveal.isReady()")
    title = "Eight A100s, as slow as one"
    of = f"[...document.querySelectorAll('.slides h3')].find((each) => each.textContent === '{title}')"
    opened.evaluate(f"Reveal.slide([...document.querySelectorAll('.slides > section')].indexOf({of}.parentElement))")
    opened.wait_for_function(ALIVE)
    words = opened.locator("section.present .hall-timeline text").all_text_contents()
    ranks = [each for each in words if each.startswith("rank ")]
    assert ranks == ["rank 0", "rank 3", "rank 6", "rank 7"]  # 6 serves all
    assert words.count("⋮") == 2 and not any("more" in each for each in words)  # 1 and 2, 4 and 5


@pytest.mark.in_turn
def test_a_question_comes_alone_and_two_runs_show_two_ranks_each_as_large_as_the_last_row_needs(
    opened: Any, folder: Path
) -> None:
    opened.goto(deck("02_ring_all_reduce", folder))
    opened.wait_for_function("window.Reveal && Reveal.isReady()")
    of = "[...document.querySelectorAll('.slides > section')].findIndex((each) => each.matches('.asking'))"
    opened.evaluate(f"Reveal.slide({of})")
    slide = opened.locator("section.present")
    asked = slide.inner_text().splitlines()[-1]
    assert asked == "With 16 MB each, how many times longer do eight ranks take than four?"
    opened.keyboard.press("PageDown")
    opened.wait_for_function(ALIVE)
    shown = slide.locator(".asked").inner_text().split("\n\n")
    assert shown == ["Eight ranks: bytes queue at rank\N{NO-BREAK SPACE}0", "2.3 times as long"]
    live = slide.locator(".live")
    words = live.locator(".hall-timeline text").all_text_contents()
    assert [each for each in words if each.startswith("rank ")] == ["rank 0", "rank 3", "rank 0", "rank 7"]
    assert {"353 µs", "797 µs"} <= set(words) and words.count("⋮") == 2 and "collective" not in words
    key = live.locator(".hall-timeline text[y='34.0']").all_text_contents()
    assert key == ["start", "add", "send", "receive", "waits"]  # every colour, also those that bars name
    assert slide.locator(".kicker").evaluate("(each) => parseFloat(getComputedStyle(each).fontSize)") == TITLE
    sizes = dict(
        live.locator(".hall-timeline text").evaluate_all(
            "(all) => all.map((each) => [each.textContent, parseFloat(getComputedStyle(each).fontSize)])"
        )
    )
    assert min(sizes["353 µs"], sizes["797 µs"]) >= 40 and min(sizes.values()) >= SMALLEST


def at_answer(page: Any, question: str) -> None:
    """Go to the slide that answers a question."""
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    slides = "[...document.querySelectorAll('.slides > section')]"
    asks = f"(each) => each.matches('.asking') && each.textContent.includes('{question}')"
    page.evaluate(f"Reveal.slide({slides}.findIndex({asks}) + 1)")
    page.wait_for_function(ALIVE)


SMALLEST = 36  # pixels of a timeline's words where two runs are compared: seven tenths of a text's
BARS = "section.present .hall-timeline rect"
BOXES = "(all) => all.map((each) => each.getBoundingClientRect().toJSON())"


def of_colour(page: Any, name: str) -> str:
    """Return the selector of a drawing's bars of a category, "send" or "receive", and of its entry in the key."""
    state = "document.querySelector('section.present .labkit-timeline').labkit.state"
    category = f"{state}.runs[0].categories.findIndex(([name]) => name === '{name}')"
    return f"{BARS}[fill='{page.evaluate(f'{state}.theme.colours[{category}]')}']"


def sizes_of(page: Any) -> list[float]:
    """Return the sizes of the letters of this slide's drawing."""
    sizes = "(all) => all.map((each) => parseFloat(each.getAttribute('font-size')))"
    return list(page.locator("section.present .hall-timeline text").evaluate_all(sizes))


@pytest.mark.in_turn
def test_a_ring_stands_below_the_other_run_as_one_rank_with_its_steps(opened: Any, folder: Path) -> None:
    opened.goto(deck("02_ring_all_reduce", folder))
    at_answer(opened, "how many times faster is the ring than going through rank 0?")
    words = opened.locator("section.present .hall-timeline text").all_text_contents()
    assert [each for each in words if each.startswith("rank ")] == ["rank 0", "rank 7", "rank 0"]
    assert {"0", "200 µs", "400 µs", "600 µs"} <= set(words)  # an axis for both
    assert {"14 steps: each rank sends and receives 2 MB at once", "225 µs"} <= set(words)
    assert {"step 0", "16.6 µs", "48 times as wide"} <= set(words)  # 48 times 16.6 are the axis's 797
    assert min(sizes_of(opened)) >= SMALLEST
    under = opened.locator("section.present .hall-timeline text:text-is('ring')").bounding_box()["y"]
    starts = opened.locator(f"{BARS}[fill='#9aa5b1']").evaluate_all(BOXES)
    (start,) = [box for box in starts if box["top"] > under]
    sends, receives = (
        [box for box in opened.locator(of_colour(opened, name)).evaluate_all(BOXES) if box["top"] > under]
        for name in ("send", "receive")
    )
    assert len(sends) == len(receives) == 14 + 1
    (*sends, sent), (*receives, received) = sends, receives  # the last is step 0, enlarged
    shares = [each["width"] / sent["width"] for each in (sends[0], receives[0], received)]
    assert shares[0] < 0.1 and shares[2] == pytest.approx(shares[1] / shares[0], rel=0.2)  # pixels of gaps
    axis = opened.locator("section.present .hall-timeline text:text-is('0')").bounding_box()
    assert axis["y"] + axis["height"] < under + 10 < sent["top"]  # it ends above the runs' last, and what is enlarged
    zero, at = (
        box["x"] + box["width"] / 2
        for box in (
            opened.locator(f"section.present .hall-timeline text:text-is('{tick}')").bounding_box()
            for tick in ("0", "200 µs")
        )
    )
    assert start["left"] == pytest.approx(zero, abs=2)
    assert start["right"] == pytest.approx(sends[0]["left"], abs=3)
    assert (receives[-1]["right"] - zero) / (at - zero) * 200 == pytest.approx(225, abs=3)  # two pixels are kept free


@pytest.mark.in_turn
def test_a_run_to_be_found_out_stands_step_by_step_below_the_one_it_is_slower_than(opened: Any, folder: Path) -> None:
    opened.goto(deck("02_ring_all_reduce", folder))
    opened.wait_for_function("window.Reveal && Reveal.isReady()")
    slides = "[...document.querySelectorAll('.slides > section')]"
    opened.evaluate(f"Reveal.slide({slides}.findIndex((each) => /A colleague's ring: /.test(each.innerHTML)))")
    opened.wait_for_function(ALIVE)
    words = opened.locator("section.present .hall-timeline text").all_text_contents()
    assert [each for each in words if "ring" in each] == ["ring", "a colleague's ring"]
    heads = [each for each in words if "steps" in each]  # what each step of the second sends is for the room to find
    assert heads == ["14 steps: each rank sends and receives 2 MB at once", "7 steps"]
    assert opened.locator("section.present > h3").inner_text() == "A colleague's ring: 2.2 times as long"  # 488 / 225
    ranks = [each for each in words if each.startswith("rank ")]
    assert ranks == ["rank 0", "rank 0", "rank 1", "rank 2", "rank 3"]  # links are counted
    assert "ranks 4 to 7: alike" in words
    assert {"225 µs", "488 µs", "100 µs", "400 µs"} <= set(words)  # as long as where it won
    assert min(sizes_of(opened)) >= SMALLEST
    starts = opened.locator(f"{BARS}[fill='#9aa5b1']").evaluate_all(BOXES)[:2]
    assert starts[0]["left"] == starts[1]["left"] and starts[0]["width"] == pytest.approx(starts[1]["width"])
    sends, receives = (opened.locator(of_colour(opened, name)).evaluate_all(BOXES)[:-1] for name in ("send", "receive"))
    assert len(sends) == len(receives) == 14 + 4 * 7
    for send, receive in zip(sends, receives, strict=True):  # one above the other, from one moment on
        assert send["left"] == pytest.approx(receive["left"], abs=0.1) and send["bottom"] <= receive["top"]
        assert receive["width"] > send["width"]  # by the latency
    assert sends[14]["left"] == pytest.approx(sends[0]["left"], abs=0.1) and sends[14]["width"] > 7 * sends[0]["width"]


@pytest.mark.in_turn
def test_a_pipelines_timeline_has_the_words_of_its_schedules(opened: Any, folder: Path) -> None:
    opened.goto(deck("08_pipeline", folder))
    opened.wait_for_function("window.Reveal && Reveal.isReady()")
    of = "[...document.querySelectorAll('.slides > section')].findIndex((each) => each.querySelector('canvas'))"
    opened.evaluate(f"Reveal.slide({of})")
    opened.wait_for_function(ALIVE)
    assert "Stages stand idle 75" in opened.locator("section.present h3").inner_text()
    words = opened.locator("section.present .hall-timeline text").all_text_contents()
    counts = {name: words.count(name) for name in ("0", "B0", "idle", "waits", "forward", "backward")}
    # One batch has no number, what a colour means its key says alone, and 0 begins the axis.
    assert counts == {"0": 1, "B0": 0, "idle": 1, "waits": 0, "forward": 1, "backward": 1}
    assert [each for each in words if each.startswith(("stage", "rank"))] == [f"stage {stage}" for stage in range(4)]
    assert [each for each in words if each.endswith(" s")] == ["5 s", "10 s", "15 s", "23.7 s"]
    # A send of two pixels would be a line beside a backward; and no arrow that the key does not tell.
    assert not opened.locator(of_colour(opened, "send")).count()
    assert not opened.locator("section.present .hall-timeline path[d$=Z]").count()
