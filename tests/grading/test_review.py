"""What people grade: answers side by side without names, points by key press, kept with who and when."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from labkit.errors import ConfigError
from labkit.grading.book.file_names import key as key_of
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.roster_files import Entry
from labkit.grading.reports.results import GradedExercise, GradedSubmission, read_results
from labkit.grading.review.questions import questions, side_by_side
from labkit.grading.review.readings import Reading, Readings
from labkit.grading.review.server import Review
from labkit.lessons.source import load
from tests.grading.written_answers import SOURCE, served, write_answers

WROTE = {
    "ada": "The mean is too small, because each rank divides by the world size twice.",
    "bo": "No idea.",
    "cy": "The mean is too small because each rank divides by the world size twice, I think.",
    "di": "no  idea",
    "eve": "<b>It is</b> wrong\n<script>document.title = 'eve was here'</script>",
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A graded and recorded class, in a course that holds the lesson's source."""
    return write_answers(tmp_path, WROTE)


def points(out: Path) -> dict[str, float]:
    with closing(Gradebook(f"sqlite:///{out.parent / 'book.db'}")) as book:
        return {grade.student: grade.score for grade in book.grades(load(SOURCE).name)}


@pytest.fixture
def review(out: Path) -> Iterator[Review]:
    with closing(Readings(f"sqlite:///{out.parent / 'book.db'}")) as readings:
        yield Review(questions(read_results(out), load(SOURCE), b"key"), readings, "kim")


def answers(review: Review) -> list[dict[str, Any]]:
    return list(review.state()["questions"][0]["answers"])


def test_answers_have_no_names_and_those_that_are_alike_stand_together(review: Review) -> None:
    told = review.state()
    assert told["questions"][0]["rubric"] == [
        ("says the mean is too small", 2),
        ("names a test with unequal values", 1),
    ]
    assert not any(f'"{name}' in json.dumps(told) for name in WROTE)
    texts = [each["text"] for each in answers(review)]
    assert abs(texts.index(WROTE["ada"]) - texts.index(WROTE["cy"])) == 1
    assert [each["count"] for each in answers(review) if each["text"] == "No idea."] == [2]  # bo's and di's, read once


def test_three_hundred_answers_are_put_side_by_side_at_once() -> None:
    texts = [f"group {n % 30} says {n % 30} {n % 30} and student {n} agrees" for n in range(300)]
    ordered = side_by_side(texts)
    assert sorted(ordered) == sorted(texts)
    groups = [text.split()[1] for text in ordered]
    assert sum(one != other for one, other in pairwise(groups)) == 29


def test_points_go_to_everybody_who_wrote_it_are_undone_and_come_back(out: Path, review: Review) -> None:
    by_text = {each["text"]: each["id"] for each in answers(review)}
    review.give(by_text[WROTE["ada"]], [1, 0])
    review.give(by_text["No idea."], [])
    review.give(by_text[WROTE["cy"]], [0])
    assert points(out) == {"ada": 3, "bo": 0, "cy": 2, "di": 0, "eve": 0}
    assert review.undo() == by_text[WROTE["cy"]]
    assert points(out)["cy"] == 0
    with closing(Readings(f"sqlite:///{out.parent / 'book.db'}")) as readings:
        again = Review(questions(read_results(out), load(SOURCE), b"another key"), readings, "lee")
        found = {each["text"]: each["given"] for each in answers(again)}
    assert found[WROTE["ada"]] == {"items": (0, 1), "who": "kim", "comment": ""}
    assert found["No idea."] == {"items": (), "who": "kim", "comment": ""} and found[WROTE["cy"]] is None
    with closing(Gradebook(f"sqlite:///{out.parent / 'book.db'}")) as book:
        told = book.history(load(SOURCE).name, "ada")
        assert any("read by kim: [1] says the mean is too small; [2]" in words for _, words in told)
        assert book.record(read_results(out)).regraded == (), "recording the run again takes no points"
    assert points(out)["ada"] == 3


def test_an_answer_is_read_again_when_somebody_wrote_it_later(out: Path, tmp_path: Path) -> None:
    asked = questions(read_results(out), load(SOURCE), b"key")
    with closing(Readings(f"sqlite:///{tmp_path / 'book.db'}")) as readings:
        both = next(each for each in asked[0].answers if len(each.whose) == 2)
        readings.give(asked[0], replace(both, whose=both.whose[:1]), Reading((0,), "kim"))
        assert readings.of(asked[0]) == {}  # the other one has no points yet
        readings.give(asked[0], both, Reading((0,), "kim"))
        assert readings.of(asked[0]) == {both.id: Reading((0,), "kim")}


def test_a_comment_and_an_item_added_while_reading_are_kept_with_the_points(out: Path, review: Review) -> None:
    by_text = {each["text"]: each["id"] for each in answers(review)}
    review.add_item(0, "says how to notice it", 1)
    review.add_item(0, "is longer than asked", -1)
    review.give(by_text[WROTE["cy"]], [0, 2], "Right.\nNow [4] try it.")
    review.give(by_text[WROTE["ada"]], [0, 1, 2])
    review.give(by_text["No idea."], [3])
    assert points(out) == {"ada": 3, "bo": 0, "cy": 3, "di": 0, "eve": 0}, "at least nothing, at most full marks"
    with closing(Readings(f"sqlite:///{out.parent / 'book.db'}")) as readings:
        again = Review(questions(read_results(out), load(SOURCE), b"another key"), readings, "lee")
        assert list(dict(again.state()["questions"][0]["rubric"]).items())[2:] == [
            ("says how to notice it", 1),
            ("is longer than asked", -1),
        ]
        found = {each["text"]: each["given"] for each in answers(again)}
    assert found[WROTE["cy"]] == {"items": (0, 2), "who": "kim", "comment": "Right.\nNow [4] try it."}
    for question, words, worth in (
        (1, "x", 1),
        ("0", "x", 1),
        (0, " ", 1),
        (0, "x\ny", 1),
        (0, "x" * 201, 1),
        (0, "x", 4),
        (0, "x", "1"),
        (0, "is longer than asked", 1),
    ):
        with pytest.raises(ConfigError):
            review.add_item(question, words, worth)


def test_whose_files_the_roster_knows_are_read_all_the_same(tmp_path: Path) -> None:
    file = "lovelaceada_LATE_12345_67890_05_kinds"
    with closing(Gradebook(f"sqlite:///{tmp_path / 'book.db'}")) as book:
        book.import_roster([Entry("Ada Lovelace", frozenset({key_of("Canvas", "12345")}))])
    out = write_answers(tmp_path, {file: WROTE["ada"]})
    with closing(Readings(f"sqlite:///{tmp_path / 'book.db'}")) as readings:
        review = Review(questions(read_results(out), load(SOURCE), b"key"), readings, "kim")
        review.give(answers(review)[0]["id"], [0])
    assert points(out) == {"Ada Lovelace": 2}


def test_what_is_no_answer_or_no_item_is_refused(review: Review) -> None:
    known = answers(review)[0]["id"]
    for answer, items in (
        ("x", []),
        (3, []),
        (known, [2]),
        (known, [-1]),
        (known, [True]),
        (known, "0"),
        (known, None),
    ):
        with pytest.raises(ConfigError):
            review.give(answer, items)
    assert review.undo() == ""


def test_a_run_that_is_not_recorded_is_told_what_to_do_first(tmp_path: Path) -> None:
    written = GradedExercise("mean_in_words", 0, 3, "to_read", written="x")
    result = GradedSubmission("ada", load(SOURCE).name, "a", "c", (written,))
    asked = questions([result], load(SOURCE), b"key")
    with (
        closing(Readings(f"sqlite:///{tmp_path / 'book.db'}")) as readings,
        pytest.raises(ConfigError, match="first run labkit gradebook record OUT"),
    ):
        Review(asked, readings, "kim")


@pytest.fixture
def link(out: Path) -> Iterator[str]:
    """The page of a real `labkit review`."""
    with served(out) as link:
        yield link


@pytest.mark.in_turn
def test_strangers_and_nonsense_are_refused(link: str) -> None:
    own = urlsplit(link)

    def call(path: str, body: bytes | None = None, host: str = own.netloc) -> int:
        connection = http.client.HTTPConnection(own.netloc, timeout=60)
        try:
            connection.request("GET" if body is None else "POST", path, body, {"Host": host})
            return connection.getresponse().status
        finally:
            connection.close()

    assert call(own.path) == call(f"{own.path}/state") == 200
    assert call("/r/another-token") == call("/r/another-token/state") == 403
    assert call(own.path, host="evil.example:80") == 403
    for body in (b"", b"[]", b"{}", b"[" * 3000, b'{"answer": [], "items": {}}', b"\xff"):
        assert call(f"{own.path}/give", body) == 400, body


@pytest.mark.in_turn
def test_a_class_is_read_by_key_press_in_a_browser(browser: Any, out: Path, link: str) -> None:
    page = browser.new_page()
    page.goto(link)
    page.get_by_text("0 of 4 answers read, by kim.").wait_for()
    page.get_by_text("5 students wrote these 4.").wait_for()  # what was written twice is one answer
    assert page.locator("#asked code").inner_text() == "all_reduce" and "`" not in page.locator("#asked").inner_text()
    assert page.locator("#model").inner_text().endswith("counts its rank. A test in which every rank gives another "
                                                        "value would notice it.")  # fmt: skip
    card = page.locator('article[aria-current="true"]')
    rubric = [" ".join(each.split()) for each in page.locator("#rubric li").all_inner_texts()]
    assert rubric == ["1 says the mean is too small 2 points", "2 names a test with unequal values 1 point"]
    unread = page.locator('article:not(.read, [aria-current="true"]) .points')
    assert unread.count() == 3 and all(each.startswith("not read") for each in unread.all_inner_texts())
    given = {}
    for count in range(1, 5):
        text = card.locator("p").first.inner_text()
        keys = ["1", "2"] if "too small, because" in text else ["1"] if "too small" in text else []
        for key in keys:
            page.keyboard.press(key)
            card.locator(f'button[aria-pressed="true"]:has-text("{key} ")').first.wait_for()
        given[text] = len(keys)
        worth = (0, 2, 3)[len(keys)]
        assert card.locator(".give").inner_text() == f"Give {worth} of 3 points Enter"
        page.keyboard.press("Enter")
        page.get_by_text(f"{count} of 4 answers read, by kim.").wait_for()
    assert sorted(given.values()) == [0, 0, 1, 2]
    page.get_by_text("All saved.").wait_for()  # the page counts what is read before the gradebook has it
    assert points(out) == {"ada": 3, "bo": 0, "cy": 2, "di": 0, "eve": 0}
    page.get_by_text("No idea.").click()  # another one is read
    partly = page.locator('article.read:not([aria-current="true"])', has_text="I think")
    marked = [" ".join(each.split()) for each in partly.locator(".items button").all_inner_texts()]
    assert [each.rsplit(" ", 4)[1:] for each in marked] == [["2", "of", "2", "points"], ["0", "of", "1", "point"]]
    assert partly.locator(".points strong").inner_text() == "2 of 3 points"
    page.keyboard.press("u")
    page.get_by_text("3 of 4 answers read, by kim.").wait_for()
    page.reload()
    page.get_by_text("3 of 4 answers read, by kim.").wait_for()
    assert not page.locator("#words").is_visible()  # a rare act has no room of its own
    page.keyboard.press("n")
    page.keyboard.type("is short")
    page.keyboard.press("Enter")
    card.get_by_role("button", name="3 is short 1 point").wait_for()
    page.keyboard.press("c")
    page.keyboard.type("Say 1 more.")
    held: list[Any] = []
    page.route("**/give", lambda route: held.append(route))
    page.keyboard.press("Control+Enter")
    page.get_by_text("4 of 4 answers read, by kim.").wait_for()  # the next is there before this one is saved
    page.keyboard.press("u")
    while not held:
        page.wait_for_timeout(10)
    held[0].continue_()
    page.get_by_text("3 of 4 answers read, by kim.").wait_for()
    page.unroute("**/give")
    assert page.title() == "Review", "what a student wrote is text, not a program"
    assert page.locator("main b").count() == 0
    page.keyboard.press("Enter")
    page.get_by_text("4 of 4 answers read, by kim.").wait_for()
    page.screenshot(path=str(out.parent / "review.png"))


@pytest.mark.long  # of three runs beside others one failed: what a browser does with requests held while it closes
def test_a_page_is_not_left_without_a_word_before_all_is_saved(browser: Any, out: Path, link: str) -> None:
    page = browser.new_context().new_page()  # closing a page of its own context would close that
    page.goto(link)
    page.get_by_text("0 of 4 answers read, by kim.").wait_for()
    held: list[Any] = []
    page.route("**/give", lambda route: held.append(route))
    for key in ("1", "Enter", "1", "Enter"):
        page.keyboard.press(key)
    page.get_by_text("2 of 4 answers read, by kim.").wait_for()
    page.get_by_text("Saving 2 …").wait_for()
    assert set(points(out).values()) == {0}
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    page.close(run_before_unload=True)
    while not asked or not held:
        page.wait_for_timeout(10)
    assert asked == ["beforeunload"]
    page.unroute("**/give")  # what is held goes on
    page.get_by_text("All saved.").wait_for()
    assert sorted(points(out).values())[-2:] == [2, 2]
    with page.expect_event("close"):
        page.close(run_before_unload=True)
    assert asked == ["beforeunload"], "nobody is asked when all is saved"
    page.context.close()


@pytest.mark.long
def test_three_hundred_answers_are_read_by_key_press_and_go_on_after_a_pause(browser: Any, tmp_path: Path) -> None:
    wrote = {f"s{n:03}": f"Student {n} of group {n % 30} says: the mean is {n % 30} too small." for n in range(300)}
    out = write_answers(tmp_path, wrote)
    right = {}
    for first, last in ((0, 150), (150, 300)):
        with served(out) as link:
            page = browser.new_page()
            page.goto(link)
            page.get_by_text(f"{first} of 300 answers read, by kim.").wait_for()
            card = page.locator('article[aria-current="true"]')
            for count in range(first + 1, last + 1):
                number = int(card.locator("p").first.inner_text().split()[1])
                right[f"s{number:03}"] = 2.0 if number % 2 else 3.0
                for key in "1" if number % 2 else "12":
                    page.keyboard.press(key)
                page.keyboard.press("Enter")
                page.get_by_text(f"{count} of 300 answers read, by kim.").wait_for()
            page.get_by_text("All saved.").wait_for()
            page.close()
    assert len(right) == 300 and points(out) == right
