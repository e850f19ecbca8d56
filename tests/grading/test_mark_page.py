"""The page a student gets is the mark: made from the gradebook, with all that the mark rests on, for every attempt."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.errors import ConfigError
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.handing_back import write_pages
from labkit.grading.book.lateness import Lateness
from labkit.grading.book.roster_files import Entry
from labkit.grading.course import find_course
from labkit.grading.reports.class_page import Line, class_page
from labkit.grading.reports.results import GradedExercise, GradedSubmission, read_results
from labkit.grading.reports.student_report import as_json, details, result_json
from labkit.grading.score import CaseResult, ExerciseResult, StudentResult
from labkit.lessons.manifest import Exercise

LESSON = "02_ring_all_reduce"
DUE = datetime(2026, 12, 1, 18, tzinfo=UTC)
RING = Exercise("ring_sum", "The ring adds up", ("f",), 8, 1, 1, 1, number="2.6")
BYTES = Exercise("count_bytes", "Byte counts", ("g",), 4, 1, 1, 1, number="2.2")
CODE = "def ring_sum(x):\n    return x  # <b>mine</b>\n"


def leave_run(out: Path, student: str, ring_passes: bool, file: str) -> None:
    """Leave in a folder what `labkit grade` leaves of a submission."""
    fault = CaseResult("3 ranks", False, "Rank 0 has 1, not what it should.", "Count the steps.", picture="<svg></svg>")
    ring = ExerciseResult(RING, "passed" if ring_passes else "failed", () if ring_passes else (fault,), 5)
    result = StudentResult(
        student, "", (ring, ExerciseResult(BYTES, "passed", (), 5)),
        submission_hash=file * 64, course_hash="c" * 64, sources={"ring_sum": CODE, "count_bytes": "def g(): ...\n"},
    )  # fmt: skip
    folder = out / student
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_bytes(as_json(result_json(result, LESSON)))
    (folder / "details.json").write_bytes(as_json(details(result)))
    (folder / "feedback.html").write_text(f"<p>the page of {file}</p>")


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Gradebook]:
    opened = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    yield opened
    opened.close()


def record(book: Gradebook, out: Path, times: dict[str, datetime], reason: str = "") -> None:
    book.record(read_results(out), handed_in=times, reason=reason, folder=out)


def text_of(path: Path) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", path.read_text())))


def test_the_page_says_all_that_the_mark_rests_on(book: Gradebook, tmp_path: Path) -> None:
    book.set_deadline(LESSON, Lateness(DUE, percent_per_day=10))
    book.set_zone("Europe/Berlin")
    leave_run(tmp_path / "run", "ada", False, "a")
    record(book, tmp_path / "run", {"ada": DUE})
    leave_run(tmp_path / "run", "ada", True, "b")
    record(book, tmp_path / "run", {"ada": DUE + timedelta(hours=1)})
    book.adjust(LESSON, "ada", -1.5, "copied the figure from a page")
    book.comment(LESSON, "ada", "ring_sum", "Short, and easy to read.")
    book.comment(LESSON, "ada", "", "Come and see me.")
    write_pages(book, LESSON, tmp_path / "pages")
    said = text_of(tmp_path / "pages" / "ada.html")
    for words in (
        "9.3 of 12 points", "Attempt 2 of 2", "12 points; handed in 2026-12-01 20:00 CET; file bbbbbbbbbbbbbbbb",
        "1 h late: 10 % off, -1.2 points", "-1.5 by hand copied the figure from a page",
        "Your grader. Short, and easy to read.", "Your grader. Come and see me.", "attempt 1: 0",
        "4 points, handed in 2026-12-01 19:00 CET, file aaaaaaaaaaaaaaaa",
        'labkit-regrade 02_ring_all_reduce ring_sum "ada" bbbbbbbb:', "return x # <b>mine</b>",
    ):  # fmt: skip
        assert words in said, words
    page = (tmp_path / "pages" / "ada.html").read_text()
    title = find_course("02").manifest.title
    assert f'<p class="lesson">{title}</p>' in page and "02_ring" not in page.partition("</header>")[0]
    assert "<b>mine" not in page and "default-src 'none'" in page and "src=" not in page
    kept = sorted((tmp_path / "pages" / "attempts").iterdir())
    assert [path.name for path in kept] == ["ada-1.html", "ada-2.html"]
    assert [path.read_text() for path in kept] == ["<p>the page of a</p>", "<p>the page of b</p>"]


def test_what_failed_stands_beside_the_students_own_code_and_its_picture(book: Gradebook, tmp_path: Path) -> None:
    leave_run(tmp_path / "run", "ada", False, "a")
    record(book, tmp_path / "run", {})
    write_pages(book, LESSON, tmp_path / "pages")
    page = (tmp_path / "pages" / "ada.html").read_text()
    section = page[page.index('id="ring_sum"') : page.index('id="count_bytes"')]
    assert "Rank 0 has 1" in section and "Count the steps." in section and "<svg></svg>" in section
    assert "def ring_sum(x):" in section and "0 of 5 hidden cases pass" in section
    assert "at an unknown time" in page


def test_a_regraded_mark_says_why(book: Gradebook, tmp_path: Path) -> None:
    leave_run(tmp_path / "run", "ada", False, "a")
    record(book, tmp_path / "run", {})
    leave_run(tmp_path / "run", "ada", True, "a")
    record(book, tmp_path / "run", {}, reason="a hidden case was wrong")
    write_pages(book, LESSON, tmp_path / "pages")
    assert "2.6 The ring adds up: 0 to 8 points. a hidden case was wrong" in text_of(tmp_path / "pages" / "ada.html")


def test_a_mark_recorded_before_pages_were_kept_has_a_page(book: Gradebook, tmp_path: Path) -> None:
    leave_run(tmp_path / "run", "ada", True, "a")
    book.record(read_results(tmp_path / "run"))
    write_pages(book, LESSON, tmp_path / "pages")
    assert "12 of 12 points" in text_of(tmp_path / "pages" / "ada.html")


def test_who_handed_in_nothing_has_a_page_that_says_so(book: Gradebook, tmp_path: Path) -> None:
    book.import_roster([Entry("Ada", frozenset({"ada"})), Entry("Grace", frozenset({"grace"}))])
    leave_run(tmp_path / "run", "ada", True, "a")
    record(book, tmp_path / "run", {})
    book.adjust(LESSON, "Grace", 3, "an oral exam")
    write_pages(book, LESSON, tmp_path / "pages")
    assert "3 of 12 points" in text_of(tmp_path / "pages" / "Grace.html")
    assert "Handed in Nothing. +3 by hand an oral exam" in text_of(tmp_path / "pages" / "Grace.html")
    assert (tmp_path / "pages" / "attempts" / "Ada-1.html").read_text() == "<p>the page of a</p>"


CANVAS = "lovelaceada_LATE_12345_67890_02_ring_all_reduce-1"
MOODLE = "O_Neil Ada_4711_assignsubmission_file_"


def test_zips_name_pages_as_canvas_and_moodle_find_them(book: Gradebook, tmp_path: Path) -> None:
    for student in (CANVAS, MOODLE, "plain"):
        leave_run(tmp_path / "run", student, True, student[0].lower())
    record(book, tmp_path / "run", {})
    zips = {"Canvas": tmp_path / "canvas.zip", "Moodle": tmp_path / "moodle.zip"}
    written = write_pages(book, LESSON, tmp_path / "pages", zips=zips)
    [name] = zipfile.ZipFile(zips["Canvas"]).namelist()
    assert re.fullmatch(r"[a-z]+_LATE_12345_67890_.+\.html", name)
    [name] = zipfile.ZipFile(zips["Moodle"]).namelist()
    assert name.split("_", 4) == ["O Neil Ada", "4711", "assignsubmission", "file", f"{LESSON}.html"]
    assert zipfile.ZipFile(zips["Moodle"]).read(name) == (tmp_path / "pages" / f"{MOODLE}.html").read_bytes()
    assert set(written.left_out["Canvas"]) == {MOODLE, "plain"} and written.num_pages == 3
    first = zips["Canvas"].read_bytes()
    write_pages(book, LESSON, tmp_path / "pages", zips=zips)
    assert zips["Canvas"].read_bytes() == first


def test_moodles_zip_has_a_page_for_each_of_a_team_under_the_members_own_number(
    book: Gradebook, tmp_path: Path
) -> None:
    people = {"Ada": "moodle:1", "Grace": "moodle:2", "Emmy": "moodle:3"}
    book.import_roster([Entry(name, frozenset({each}), team="" if name == "Emmy" else "red")
                        for name, each in people.items()])  # fmt: skip
    leave_run(tmp_path / "run", "Ada_1_assignsubmission_file_", True, "a")
    record(book, tmp_path / "run", {})
    book.adjust(LESSON, "Emmy", 3, "an oral exam")
    zips = {"Canvas": None, "Moodle": tmp_path / "moodle.zip"}
    assert not any(write_pages(book, LESSON, tmp_path / "pages", zips=zips).left_out.values())
    told = {name.split("_")[0]: name.split("_")[1] for name in zipfile.ZipFile(tmp_path / "moodle.zip").namelist()}
    assert told == {"Ada": "1", "Grace": "2", "Emmy": "3"}


@pytest.mark.in_turn
def test_a_request_comes_from_the_page_and_its_answer_stands_there(book: Gradebook, tmp_path: Path) -> None:
    leave_run(tmp_path / "run", "ada", False, "a")
    record(book, tmp_path / "run", {})
    write_pages(book, LESSON, tmp_path / "pages")
    line = re.search(r'labkit-regrade \S+ ring_sum "ada" \w+: ', text_of(tmp_path / "pages" / "ada.html"))
    assert line is not None

    def labkit(*words: str) -> str:
        done = CliRunner().invoke(app, ["gradebook", *words, "--book", str(tmp_path / "book.db")])
        assert done.exit_code == 0, done.output
        return done.output

    assert "request 1: ada, ring_sum: It works at home." in labkit("request", f"Dear all,\n{line[0]}It works at home.")
    assert "1 open, 0 answered" in labkit("requests", "--lesson", "02")
    assert "ada, attempt 1, 2.6: Came back: Rank 0 has 1" in labkit("said", "not what it should", "--lesson", "02")
    assert "told 0 times" in labkit("said", "no such words", "--lesson", "02")
    labkit("answer", "1", "You are right, with 3 ranks it does.", "--points", "2")
    assert "0 open, 1 answered" in labkit("requests")
    labkit("pages", str(tmp_path / "pages"), "--lesson", "02")
    said = text_of(tmp_path / "pages" / "ada.html")
    assert "6 of 12 points" in said and "It works at home. Answer. You are right, with 3 ranks it does. (+2" in said
    assert "asked to look again at ring_sum" in labkit("history", "ada", "--lesson", "02")
    with pytest.raises(ConfigError, match="was not copied whole"):
        book.ask(line[0].replace("aaaaaaaa", "bbbbbbbb") + "because")
    with pytest.raises(ConfigError, match="gives no reason after the request"):
        book.ask(line[0])
    with pytest.raises(ConfigError, match="there is no request in this"):
        book.ask("please look again")
    with pytest.raises(ConfigError, match="no request 7"):
        book.answer(7, "no")


def test_what_a_roster_lacks_is_told_in_one_line_a_platform(book: Gradebook, tmp_path: Path) -> None:
    book.import_roster([Entry("Ada", frozenset({"ada"}))])
    for number, name in enumerate(["ghost", *(f"submission_{each}" for each in range(14))]):
        leave_run(tmp_path / "run", name, True, "0123456789abcdef"[number])
    command = ["gradebook", "record", str(tmp_path / "run"), "--book", str(tmp_path / "book.db")]
    done = CliRunner().invoke(app, command)
    ghost, gradescope = (line for line in done.output.splitlines() if "not in the roster" in line)
    assert done.exit_code == 1 and ghost == "labkit: ghost is not in the roster and not recorded"
    assert "submission_7 and 2 more are not in the roster" in gradescope and "Download Grades" in gradescope


@pytest.mark.in_turn
@pytest.mark.browser
def test_the_class_page_is_searched_filtered_and_sorted_at_three_hundred(browser: Any, tmp_path: Path) -> None:
    def result(points: float) -> GradedSubmission:
        state = "passed" if points else "failed"
        return GradedSubmission("x", LESSON, "s", "c", (GradedExercise("a", points, 12, state, "A", number="2.1"),))

    lines = [Line(f"student {n:03}", f"{n}.html", (n * 7) % 13, result((n * 7) % 13)) for n in range(300)]
    lines += [Line("<b>Zoe", "zoe.html", 13.5, result(13.5), "20 % off"), Line("Nora", "nora.html", 0, None)]
    path = tmp_path / "class.html"
    path.write_bytes(class_page(lines, LESSON))
    (tmp_path / "zoe.html").write_text("<section id=a>the page of Zoe</section>")
    assert "<b>Zoe" not in path.read_text()
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(path.as_uri())
    page.get_by_text("Click a row").wait_for()
    page.get_by_role("button", name="Points").click()
    page.get_by_role("button", name="Points").click()
    page.locator("th[aria-sort=descending]").wait_for()
    first = page.locator("tbody tr").first
    assert (
        first.locator("th a").inner_text() == "<b>Zoe" and first.locator(".chip").first.inner_text() == "late: 20 % off"
    )
    first.locator("td.square a").click()
    page.frame_locator("#panel iframe").get_by_text("the page of Zoe").wait_for()
    page.locator("#bars button").last.click()
    counted = 1 + sum(line.score >= 12 for line in lines[:300])  # in steps of 2 points up to 13.5
    page.get_by_text(f"{counted} of 302", exact=True).wait_for()
    page.get_by_role("searchbox").fill("zoe")
    page.get_by_text("1 of 302", exact=True).wait_for()
    assert page.locator("#marks tbody tr:visible").count() == 1
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 400 and not page.locator("#panel").is_visible()
    first.locator("th a").click()
    page.wait_for_url("**/zoe.html")
    assert not refused


def test_a_request_steers_no_terminal_and_fills_no_page(book: Gradebook, tmp_path: Path) -> None:
    leave_run(tmp_path / "run", "ada", False, "a")
    record(book, tmp_path / "run", {})
    asked = book.ask(f'labkit-regrade {LESSON} \x1b[31mring "ada" aaaaaaaa: Look \x1b]0;x\x07 again. {"x" * 100_000}')
    assert "\x1b" not in asked.exercise + asked.words and "\x07" not in asked.words
    assert asked.words.startswith("Look ") and len(asked.words) < 5000


@contextmanager
def ended(process: Popen[str]) -> Iterator[None]:
    """End a process whatever becomes of the test: one that is waited for would hold it for ever."""
    try:
        yield
    finally:
        process.terminate()


@pytest.mark.in_turn
@pytest.mark.browser
def test_whoever_grades_comments_and_answers_beside_the_list(browser: Any, book: Gradebook, tmp_path: Path) -> None:
    book.import_roster([Entry("Ada Lovelace", frozenset({"ada"})), Entry("Nora", frozenset({"nora"}))])
    leave_run(tmp_path / "run", "ada", False, "a")
    record(book, tmp_path / "run", {})
    book.ask(f'labkit-regrade {LESSON} ring_sum "Ada Lovelace" aaaaaaaa: It works at home.')
    command = [sys.executable, "-c", "from labkit.cli import main; main()", "gradebook", "page", "--lesson", "02"]
    with Popen([*command, "--book", str(tmp_path / "book.db")], stdout=PIPE, text=True) as process, ended(process):
        assert process.stdout is not None
        link = process.stdout.readline().removeprefix("Class: ").strip()
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(link)
        assert page.locator("h1").inner_text() == "2 students, 1 handed in nothing: 1 needs a look"
        page.get_by_role("link", name="Ada Lovelace").click()
        panel = page.frame_locator("#panel iframe")
        ring = panel.locator("#ring_sum")
        ring.get_by_placeholder("An answer").fill("With 3 ranks it does.")
        ring.get_by_label("Points").fill("2")
        ring.get_by_role("button", name="Answer").click()
        ring.get_by_text("With 3 ranks it does. (+2 points)").wait_for()
        ring.get_by_placeholder("A comment").fill("Short & easy.")
        ring.get_by_role("button", name="Comment").click()
        ring.get_by_text("Short & easy.").wait_for()
        assert book.comments(LESSON, "Ada Lovelace") == [("ring_sum", "Short & easy.")]
        ada = urlsplit(panel.locator("html").evaluate("() => location.href"))
        refused = []
        for path, headers in (
            (ada.path, {"Origin": "https://elsewhere.example"}),
            (ada.path.replace("/class/", "/class/x"), {}),
            (ada.path + "9", {}),
        ):
            asked = HTTPConnection(ada.netloc, timeout=60)
            asked.request("POST", path, "words=x", {"Content-Type": "application/x-www-form-urlencoded", **headers})
            refused.append(asked.getresponse().status)
            asked.close()
        assert refused == [403, 403, 400]
    assert [grade.score for grade in book.grades(LESSON)] == [6, 0]


def test_details_are_not_in_what_gradescope_shows(tmp_path: Path) -> None:
    leave_run(tmp_path, "ada", True, "a")
    assert "mine" not in (tmp_path / "ada" / "result.json").read_text()
    assert json.loads((tmp_path / "ada" / "details.json").read_text())["exercises"][0]["source"] == CODE
