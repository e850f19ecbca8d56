"""The board's page in a real Chromium: a poll of anything can be drawn, and no view takes another with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.board.test_server import Running, start, stop
from tests.sampling import one_in

pytestmark = pytest.mark.browser
GUESSES = [2.3, 1, 2, 4, 8, 10.5, "twice", 7, 3, True, 5, 6, "half", 9, 11, "twice", 12, 13.25, 100, -1, 1e308, -1e308]

SMALLEST = """() => Math.min(...[...document.querySelectorAll("p, h2, .lane *, nav select")]
  .filter((each) => each.checkVisibility() && each.textContent.trim() && !each.closest("svg"))
  .map((each) => parseFloat(getComputedStyle(each).fontSize)))"""
NAMES = "parseFloat(getComputedStyle(document.querySelector('#lobby .came')).fontSize)"
OUT_OF_LANES = """() => [...document.querySelectorAll(".lane")].flatMap((lane) => {
  const { top, bottom } = lane.getBoundingClientRect();
  const dots = [...lane.querySelectorAll("circle")].map((each) => each.getBoundingClientRect());
  return dots.filter((dot) => dot.top < top || dot.bottom > bottom).map((dot) => dot.bottom - bottom);
})"""


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = start(tmp_path_factory.mktemp("board"))
    yield running
    stop(running)


def post(board: Running, message: str, nickname: str, **fields: object) -> None:
    body = {"nickname": nickname, "key": f"key of {nickname}", **fields}
    status, said = board.call("POST", f"{board.link[board.link.index('/c/') :]}/{message}", json.dumps(body).encode())
    assert status == 204, said


def guessed(board: Running, guesses: list[object]) -> None:
    for number, value in enumerate(guesses):
        post(board, "guess", f"learner {number}", guess="ring_speedup", value=value, unit="times")


def asking(page: Any) -> list[str]:
    """Return who wants help, of each of whom the page says how long and since when."""
    times = page.locator("#help .wants > .time").all_inner_texts()
    assert all(re.fullmatch(r"waits \d+ (s|min), since \d\d:\d\d", each) for each in times), times
    return page.locator("#help .wants > b").all_inner_texts()


def opened(board: Running, browser: Any, wrong: list[str]) -> Any:
    page = browser.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.goto(board.link[: board.link.index("/c/")] + board.instructors)
    return page


@pytest.fixture(autouse=True)
def closed(browser: Any) -> Iterator[None]:
    """Close what a failed test leaves open: its page would go on asking a board that is gone, in other tests."""
    before = {id(each) for each in browser.contexts}
    yield
    for context in browser.contexts:
        if id(context) not in before:
            for page in context.pages:
                page.unroute_all(behavior="ignoreErrors")
            context.close()


@pytest.mark.in_turn
def test_guesses_stand_in_the_order_of_numbers_and_words_behind_them(board: Running, browser: Any) -> None:
    guessed(board, [2.3, 1, 2, "twice", 4, 8, 10, 1.0, True])
    wrong: list[str] = []
    page = opened(board, browser, wrong)
    expect(page.locator("#poll p")).to_have_text("9 guesses", timeout=60_000)  # of words there is no median
    assert (
        page.inner_text("#poll h2")
        == "Eight H100s, 16 MB each: how many times faster is the ring than going through rank 0?"
    )
    assert page.get_attribute("#poll svg", "aria-label") == "1: 2, 2: 1, 2.3: 1, 4: 1, 8: 1, 10: 1, true: 1, twice: 1"
    page.close()
    assert not wrong


@pytest.mark.in_turn
def test_more_than_twelve_mixed_guesses_leave_the_poll_and_who_wants_help(board: Running, browser: Any) -> None:
    guessed(board, GUESSES)
    post(board, "say", "learner 3", what="help")
    wrong: list[str] = []
    page = opened(board, browser, wrong)
    expect(page.locator("#help .wants")).to_have_count(1, timeout=60_000)
    assert asking(page) == ["learner 3"]
    said = page.get_attribute("#poll svg", "aria-label")
    assert said.endswith("twice: 2, true: 1, half: 1")
    assert sum(int(bar.rpartition(": ")[2]) for bar in said.split(", ")) == len(GUESSES) == 22
    assert page.locator("#poll rect").count() == 12 + 3
    page.close()
    assert not wrong


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "broken",
    one_in(
        3,
        [
            ("poll", {"guess": None, "values": [1]}, "poll"),
            ("rankings", {"count_bytes": 3}, "ranked"),
            ("mistakes", {"count_bytes": 3}, "lanes"),
            ("finished", 3, "names"),
            ("lessons", None, "nav"),
            ("helped", None, "help"),
        ],
        lambda each: each[0],
    ),
)
def test_what_cannot_be_drawn_is_named_and_everything_else_stands(
    board: Running, browser: Any, broken: tuple[str, object, str]
) -> None:
    field, value, where = broken
    guessed(board, GUESSES)  # whichever tests ran before, and with whom
    board.send("learner 9", "count_bytes", False)
    post(board, "say", "learner 3", what="help")
    wrong: list[str] = []
    page = opened(board, browser, wrong)
    page.route("**/standing", lambda route: route.fulfill(json={**route.fetch().json(), field: value}))
    page.evaluate("chosen = '02'; refresh.last = null; once()")
    expect(page.locator("#note")).to_contain_text("Not drawn", timeout=60_000)
    assert f"{where}: " in page.inner_text("#note")
    if where not in ("help", "nav"):
        assert asking(page) == ["learner 3"]
    if where not in ("nav", "names"):
        assert page.locator("#names tr").count() >= 9
    page.unroute("**/standing")
    page.close()
    assert not [each for each in wrong if not each.startswith(("TypeError", "Error"))]


@pytest.mark.in_turn
def test_waits_have_their_time_a_mistake_those_who_make_it_and_what_is_much_opens(board: Running, browser: Any) -> None:
    guessed(board, GUESSES)  # whichever tests ran before, and with whom
    wrong: list[str] = []
    page = opened(board, browser, wrong)
    told = {
        "helped": [
            [f"learner {at}", seconds, "chunk_bounds" if at else "", ""]
            for at, seconds in enumerate((3725, 240, 119, 60, 59, 0))
        ],
        "mistakes": {
            "count_bytes": [["a_a", ["ada", "bo", "cy"]], ["b_b", ["di", "eve"]], ["c_c", ["fay"]], ["d_d", ["gil"]]],
            "chunk_bounds": [["e", [*"abcdefgh", "learner 1"]], ["f", ["bo", "learner 2"]]],
        },
        "stuck": [["learner 8", 660, "count_bytes", "c_c"]],
    }
    for slug in ("count_bytes", "chunk_bounds"):
        board.send("learner 9", slug, False)
        board.send("learner 2", slug, True)
    page.route("**/standing", lambda route: route.fulfill(json={**route.fetch().json(), **told}))
    page.evaluate("chosen = '02'; refresh.last = null; once()")
    waits = page.locator("#help .wants > .time")
    told_so = [f"waits {each}, since " for each in ("62 min", "4 min", "1 min", "1 min", "59 s", "0 s")]
    expect(waits).to_contain_text(told_so, timeout=60_000)
    clock = "(seconds) => new Date(Date.now() - 1000 * seconds).toTimeString().slice(0, 5)"
    at = {page.evaluate(clock, seconds) for seconds in (3724, 3725, 3726, 3785)}  # a minute may end meanwhile
    assert waits.first.inner_text().removeprefix("waits 62 min, since ") in at
    assert page.inner_text("#stuck .stuck") == "learner 8 11 min 2.8 c c"
    lane = page.locator("[data-id=count_bytes] .wrong")
    kinds = ["3× a a ada, bo, cy", "2× b b di, eve"]  # whose mistake it is stands there at once
    assert lane.inner_text().split("\n") == [*kinds, "2 more mistakes"]
    assert lane.locator("b").all_inner_texts() == ["3× a a"]
    lane.get_by_text("2 more").click()
    expect(lane.get_by_text("1× d d")).to_be_visible()
    page.evaluate("draw()")  # what is open stays so when news comes
    assert lane.inner_text().split("\n") == [*kinds, "2 more mistakes", "1× c c fay", "1× d d gil"]
    other = page.locator("[data-id=chunk_bounds] .wrong .kind")
    # Those who want help come first, with the colour of their dots; of a crowd the others open.
    assert other.locator(".asks").all_inner_texts() == [f"learner {at}" for at in range(1, 6)]
    assert other.first.inner_text() == "9× e learner 1, a, b, c, d, e, f and 2 more"
    assert other.last.inner_text() == "no mistake that has a name learner 3, learner 4, learner 5"
    other.get_by_text("and 2 more").click()
    expect(other.get_by_text("h", exact=True)).to_be_visible()
    assert "●\u00a0wants\u00a0help" in page.inner_text(".heads")
    page.unroute("**/standing")
    page.close()
    assert not wrong


@pytest.fixture
def own_board(tmp_path: Path) -> Iterator[Running]:
    running = start(tmp_path)
    yield running
    stop(running)


@pytest.mark.in_turn
def test_a_room_is_seen_from_the_last_row(own_board: Running, browser: Any) -> None:
    """The lobby's link, everybody as a dot where they are, what came out once revealed: nothing below the fold."""
    board = own_board
    wrong: list[str] = []
    path = board.link[board.link.index("/c/") :]
    page = browser.new_page(viewport={"width": 1920, "height": 1080})
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(board.link)
    for number in range(200):
        body = {"nickname": f"learner {number}", "key": f"key of {number}"}
        assert board.call("POST", f"{path}/join", json.dumps(body).encode())[0] == 204
        if number == 5:
            expect(page.locator("#lobby .came span")).to_have_count(6, timeout=60_000)
            assert page.evaluate(NAMES) > 40  # as large as there is room, up to half of the link's size
    expect(page.locator("#lobby .came span")).to_have_count(200, timeout=60_000)
    assert page.evaluate(NAMES) < 30
    assert page.inner_text("#lobby code") == board.link
    assert page.evaluate("document.querySelector('#lobby .came').getBoundingClientRect().bottom <= innerHeight")
    assert page.evaluate("parseFloat(getComputedStyle(document.querySelector('#lobby code')).fontSize)") > 60

    def told(message: str, number: int, **fields: object) -> None:
        body = {"nickname": f"learner {number}", "key": f"key of {number}", **fields}
        assert board.call("POST", f"{path}/{message}", json.dumps(body).encode())[0] == 204

    for number in range(60):
        told("result", number, exercise="naive_all_reduce", passed=number >= 50)
        told("guess", number, guess="ring_speedup", value=1 + number % 4, unit="times")
    told("measured", 3, guess="ring_speedup", value=3.5)
    expect(page.locator("[data-id=naive_all_reduce] circle")).to_have_count(60, timeout=60_000)
    expect(page.locator("[data-id=chunk_bounds] circle.here")).to_have_count(10)
    expect(page.locator("[data-id=''] circle.new")).to_have_count(140)  # nobody who has joined is missing
    assert page.locator("[data-id=naive_all_reduce].held circle.here").count() == 50
    assert page.inner_text("#say") == "50 of 200 are on 2.1 Reduce to rank 0, then send back."
    assert page.locator("#lobby").is_hidden() and page.locator("#poll line.out").count() == 0
    assert board.call("POST", f"{board.instructors}/reveal", b'{"guess": "ring_speedup"}')[0] == 204
    expect(page.locator("#poll text.out")).to_have_text("it is 3.5 times", timeout=60_000)
    drawn = page.eval_on_selector_all("#poll svg > *", "(all) => all.map((each) => each.nodeName)")
    assert drawn == sorted(drawn, key=["rect", "line", "text"].index)  # words last: no line crosses a number
    bars = page.locator("#poll rect")
    line = float(page.get_attribute("#poll line.out", "x1"))
    assert float(bars.nth(2).get_attribute("x")) < line < float(bars.nth(3).get_attribute("x")) + 1
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert page.evaluate(SMALLEST) >= 20
    page.close()
    told("say", 70, what="help")  # has not begun
    told("say", 7, what="help")
    page = opened(board, browser, wrong)  # who wants help and the names take room from the lanes
    expect(page.locator("[data-id=naive_all_reduce] circle")).to_have_count(50, timeout=60_000)
    bar, track = (
        page.locator(f"[data-id=naive_all_reduce] rect.{each}").bounding_box() for each in ("passed", "track")
    )
    assert bar and track and abs(bar["width"] / track["width"] - 10 / 200) < 0.01  # who has passed, of all
    expect(page.locator("#help .wants > b")).to_have_text(["learner 70", "learner 7"])  # the longest wait first
    dots = page.locator("circle.asks").evaluate_all("(all) => all.map((each) => each.dataset.name)")
    assert sorted(dots) == ["learner 7", "learner 70"]
    assert page.evaluate(OUT_OF_LANES) == []
    page.locator("#help .wants").first.get_by_role("button", name="mark helped").click()
    expect(page.locator("#help .wants > b")).to_have_text(["learner 7"], timeout=60_000)
    page.close()
    assert not wrong


@pytest.mark.in_turn
def test_a_lane_on_the_wall_says_that_most_are_there_and_how_many_want_help_but_never_of_one_alone(
    own_board: Running, browser: Any
) -> None:
    board = own_board
    for number in range(4):
        board.send(f"learner {number}", "chunk_bounds", False)
    for number in range(5, 29):
        board.send(f"learner {number}", "naive_all_reduce", True)
    for number in range(5, 29):
        board.send(f"learner {number}", "chunk_bounds", number % 2 > 0)
    board.send("learner 4", "ring_sum", False)
    for number in (2, 4):
        post(board, "say", f"learner {number}", what="help")
    wrong: list[str] = []
    page = browser.new_page(viewport={"width": 1920, "height": 1080})
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(board.link)
    title = page.locator("[data-id=chunk_bounds] .title")
    marks = ["Chunk bounds", "1 wants help", "most are here"]
    expect(title.locator("span")).to_have_text(marks, timeout=60_000)
    # One alone at an exercise is not told by its number: it would tell whose it is.
    assert page.locator("[data-id=ring_sum] .title span:not(.words)").count() == 0
    assert page.locator("[data-id=ring_sum] .count.passed").inner_text() == "0"
    assert page.inner_text(".heads").split() == ["●", "on", "it", "●", "passed,", "of", "29"]
    # Rows compare by their length: one row for each crowd, and none beyond its half.
    for slug, on, passed in (("naive_all_reduce", 0, 24), ("chunk_bounds", 16, 12)):
        dots = page.locator(f"[data-id={slug}] circle").evaluate_all(ROWS)
        assert len(dots) == on + passed and len({down for _, down in dots}) == 1
        heres = page.locator(f"[data-id={slug}] circle.here").evaluate_all(ROWS)
        number = page.locator(f"[data-id={slug}] .count.passed").evaluate("(each) => each.offsetLeft")
        assert all(across < number - 30 for across, _ in heres)  # and a gap before the number of who has passed
    # A few lanes have room for a title above its people, many have it beside them.
    above = "(each) => each.getBoundingClientRect().bottom <= each.nextSibling.getBoundingClientRect().top + 1"
    assert title.evaluate(above)
    page.set_viewport_size({"width": 800, "height": 900})
    page.wait_for_function("innerWidth === 800")
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    page.close()
    assert not wrong


ROWS = """(all) => all.map((each) => [Math.round(each.cx.baseVal.value), Math.round(each.cy.baseVal.value)])"""


@pytest.mark.in_turn
def test_a_crowd_is_one_row_that_counts_where_that_has_room_and_who_asks_stands_first(
    own_board: Running, browser: Any
) -> None:
    board = own_board
    for number in range(13):
        board.send(f"learner {number}", "chunk_bounds", False)
    board.send("learner 13", "ring_plan", False)
    for number in (7, 13):
        post(board, "say", f"learner {number}", what="help")
    guessed(board, [1.5, 2, 3, 3.5, 4, 4, 7, 8])
    wrong: list[str] = []
    page = opened(board, browser, wrong)
    page.set_viewport_size({"width": 1920, "height": 1080})
    dots = page.locator("[data-id=chunk_bounds] circle.here")
    expect(dots).to_have_count(13, timeout=60_000)
    expect(dots.first).to_have_attribute("data-name", "learner 7")  # who wants help is not lost in the crowd
    assert len({down for _, down in dots.evaluate_all(ROWS)}) == 1
    fill = "(all) => [...new Set(all.map((each) => getComputedStyle(each).fill))]"
    assert len(page.locator("circle.here:not(.asks)").evaluate_all(fill)) == 1  # one state, one colour
    assert "want help" not in page.inner_text("#say")  # it stands below, with their names
    assert page.inner_text("#help h2") == "2 want help in the order they asked"
    ticks = page.locator("#poll text.tick").all()
    labels = [each.text_content() for each in ticks]
    # What was guessed has its number where there is room for it, and what is counted stands below.
    assert [each for each in labels if each != "1.5"] == ["2", "3", "3.5", "4", "5", "6", "7", "8"]
    assert page.locator("#poll .unit").text_content() == "times"
    assert page.locator("#poll rect.median").count() == 1 and page.text_content("#poll .middle") == "median"
    axis = [float(each.get_attribute("x")) for each in ticks if "." not in (each.text_content() or "")]
    steps = [after - before for before, after in pairwise(axis)]
    assert max(steps) - min(steps) < 1e-6  # a line of numbers: where nobody guesses is as wide as where all do
    page.close()
    assert not wrong


PLACES = """() => {
  const place = (each) => each.getBoundingClientRect();
  const of = (selector) => [...document.querySelectorAll(selector)].map(place);
  const [here, passed] = document.querySelectorAll(".heads .people > span");
  const inner = (each) => place(each).left + parseFloat(getComputedStyle(each).paddingLeft);
  const size = (each) => getComputedStyle(document.querySelector(each)).fontSize;
  const words = document.createRange();
  words.selectNodeContents(passed);
  return { room: of(".heads .wrong")[0].left - words.getBoundingClientRect().right,
    here: inner(here), passed: inner(passed), bottom: place(here).bottom,
    help: of("#help")[0].top, lanes: of("#lanes")[0].top,
    left: Math.min(...of(".lane circle.here").map((dot) => dot.left)),
    right: Math.min(...of(".lane rect.track").map((bar) => bar.left)),
    first: of(".lane")[0].top, sizes: [size(".count.on"), size(".count.passed")],
    ahead: of(".lane.ahead").map((lane) => lane.height), tall: of(".lane:not(.ahead)").map((lane) => lane.height),
    wide: document.documentElement.scrollWidth };
}"""


@pytest.mark.in_turn
def test_heads_stand_over_the_dots_and_a_phone_shows_who_wants_help_first(board: Running, browser: Any) -> None:
    for number in range(30):
        board.send(f"learner {number}", "count_bytes", number < 5)
    board.send("learner 7", "chunk_bounds", False)
    post(board, "say", "learner 3", what="help")
    wrong: list[str] = []
    page = opened(board, browser, wrong)
    page.evaluate("chosen = '02'; refresh.last = null; once()")
    expect(page.locator("[data-id=count_bytes] .count.passed")).to_have_text("5", timeout=60_000)
    page.emulate_media(reduced_motion="reduce")
    at = page.evaluate(PLACES)
    assert at["room"] > 0  # a head ends before the next one begins
    assert abs(at["here"] - at["left"]) < 12 and abs(at["passed"] - at["right"]) < 12
    assert at["sizes"][0] == at["sizes"][1] and at["bottom"] <= at["first"] + 1
    assert max(at["ahead"]) < min(at["tall"])  # where nobody is takes no room from where somebody is
    for width in (700, 400, 320):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function("(width) => innerWidth === width", arg=width)
        at = page.evaluate(PLACES)
        assert at["wide"] <= width and at["help"] < at["lanes"]
    page.close()
    assert not wrong
