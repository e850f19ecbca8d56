"""Reports: what each says, what it never holds, and that it is whole."""

from __future__ import annotations

import errno
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from labkit.errors import EnvironmentProblem
from labkit.grading.guesses import Guess
from labkit.grading.plain_text import plain_text
from labkit.grading.reports.feedback import feedback_html, student_page
from labkit.grading.reports.student_report import as_json, details, junit_xml, result_json, write_whole
from labkit.grading.score import CaseResult, ExerciseResult, StudentResult, steady, submission_secret
from labkit.lessons.manifest import Exercise

ATTACK = "</pre><script>alert(1)</script>\x1b[31mred\x1b[0m\x00\x08\u202e ]]> <![CDATA[ &amp; \ud800 \ufffe"


def exercise(number: str, points: int = 5, bonus: bool = False) -> Exercise:
    return Exercise(number, f"Task {number}", ("f",), points, 1, 1, 1, bonus)


def result(text: str = "Rank 0 has a wrong result.\nline two") -> StudentResult:
    tried = (CaseResult("2 ranks", True), CaseResult("3 ranks, " + text, False, text, "Look at " + text, "exception"))
    return StudentResult(
        name="ann",
        problem="",
        exercises=(
            ExerciseResult(exercise("naive_all_reduce"), "passed", (CaseResult("2 ranks", True),), 1),
            ExerciseResult(exercise("count_bytes", 8), "failed", tried, 3),
            ExerciseResult(exercise("halving_doubling", 4, bonus=True), "passed", (CaseResult("2 ranks", True),), 1),
            ExerciseResult(exercise("all_to_all"), "not_done"),
        ),
        notes=("note " + text,),
        notebook_summary="Every cell ran.",
        cell_notes=(("check-2-2", "ValueError: " + text),),
        predictions=(Guess("guess", text), Guess("sum_over_mean", 0.5, "ms", 0.25, 2.0)),
        submission_hash="a",
        course_hash="b",
        seconds=1.23456,
    )


def test_bonus_points_come_on_top_of_full_marks() -> None:
    assert (result().score, result().max_score) == (9.0, 18.0)


def test_result_json_has_gradescopes_fields_and_no_others() -> None:
    told = result_json(result(), "02_x")
    assert set(told) <= {
        "score", "execution_time", "output", "output_format", "stdout_visibility", "visibility", "extra_data", "tests",
    }  # fmt: skip
    for test in told["tests"]:
        assert set(test) <= {
            "score", "max_score", "status", "name", "number", "output", "output_format", "tags", "visibility",
            "extra_data",
        }  # fmt: skip
        assert test["status"] in ("passed", "failed") and test["visibility"] == "visible"
    assert [test["score"] for test in told["tests"]] == [5.0, 0.0, 4.0, 0.0]
    assert sum(test["score"] for test in told["tests"]) == told["score"]
    assert sum(test["max_score"] for test in told["tests"]) == told["extra_data"]["max_score"]
    assert "Tried: 3 ranks" in told["tests"][1]["output"] and "1 of 3 hidden cases passed" in told["tests"][1]["output"]
    assert json.loads(as_json(told)) == json.loads(json.dumps(told))


def test_junit_xml_is_well_formed_whatever_a_student_made_and_carries_points() -> None:
    root = ElementTree.fromstring(junit_xml(result(ATTACK), "02_x"))
    cases = root.findall("./testsuite/testcase")
    assert [case.find("./properties/property[@name='points']").get("value") for case in cases] == ["5", "0", "4", "0"]  # type: ignore[union-attr]
    assert root.get("tests") == "4" and root.get("failures") == "1" and root.get("skipped") == "1"
    failure = cases[1].find("failure")
    assert failure is not None and "<script>alert(1)</script>red" in (failure.text or "")


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action")]


def test_feedback_escapes_all_a_student_made_and_loads_nothing() -> None:
    page = feedback_html(result(ATTACK), "Lesson").decode()
    elements = Elements()
    elements.feed(page)
    assert "script" not in elements.tags and "img" not in elements.tags
    assert elements.links == [f"#{each.exercise.id}" for each in result().exercises]
    assert "&lt;script&gt;alert(1)" in page
    assert not any(character in page for character in "\x00\x08\x1b\u202e\ufffe")


def test_feedback_says_for_each_exercise_what_was_tried_what_came_back_and_the_hint() -> None:
    page = feedback_html(result(), "Lesson").decode()
    assert "2 of 4 exercises work, 1 does not yet." in page and "1 is not started." in page
    for words in ("3 ranks, Rank 0", "<pre>line two</pre>", "Where to look.", "1 more not tried", "(bonus)"):
        assert words in page


def test_what_does_not_work_yet_stands_before_what_works() -> None:
    page = feedback_html(result(), "Lesson").decode()
    states = re.findall(r'<section class="card (\w+)" id=', page)
    assert states == sorted(states, key=["failed", "to_read", "not_done", "passed"].index) and len(set(states)) > 2
    numbers = re.findall(r'<li class="\w+"><a href="#([^"]+)"', page)
    assert numbers == [each.exercise.id for each in result().exercises]  # the way to each is in the lesson's order


def test_texts_are_cut_and_say_so() -> None:
    assert plain_text("x" * 9000, 100) == "x" * 100 + "\n[cut: 8900 more characters]"
    assert len(feedback_html(result("y" * 10**6), "Lesson")) < 100_000


def test_the_same_answers_get_the_same_seed() -> None:
    answers = [("exercise-2-1", "x = 1")]
    assert submission_secret(answers, b"0") == submission_secret(list(answers), b"0")
    assert (
        len(
            {
                submission_secret(answers, b"0"),
                submission_secret(answers, b"1"),
                submission_secret([("a", "x=1")], b"0"),
            }
        )
        == 3
    )


def test_addresses_do_not_make_two_runs_differ() -> None:
    assert steady("<object at 0x7f0e8d4d14e0>, 0xff") == "<object at 0x…>, 0xff"


def test_a_full_disk_leaves_the_old_file_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_whole(path, b"old")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentProblem, match=r"the disk is full: .*run the same command again"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        write_whole(tmp_path / "file" / "result.json", b"x")


def test_points_add_up_in_words_what_failed_says_why_it_earns_nothing_and_what_works_has_a_heading() -> None:
    text = re.sub(r"<[^>]+>", "", feedback_html(result(), "Lesson").decode())
    assert "9 of 13 points" not in text and "5 of 18 points, and 4 of bonus" in text  # 5 and 4, of 5 + 8 + 5
    assert "0 of 8 points: all or nothing, every hidden case must pass" in text
    assert text.count("all or nothing") == 1  # what works has its points
    assert text.index("Task count_bytes") < text.index("\nWhat works\n") < text.index("Task naive_all_reduce")
    bar = re.findall(r'<span(?: class="bonus")? style="width:([\d.]+)%">', feedback_html(result(), "Lesson").decode())
    assert bar == ["27.8", "22.2"]  # 5 and 4 of 18
    cut = student_page(details(result()), "Lesson", "ann", 4.5, 18).decode()  # a mark of which half is off
    assert "of bonus" not in cut


def test_the_line_that_made_the_call_is_told_and_marked_and_one_that_is_not_there_is_not() -> None:
    found = details(result("no"))
    failed = next(each for each in found["exercises"] if each["state"] == "failed")
    failed["source"] = "def f(x):\n    dist.send(x < 1)\n    return x"
    for line, told in ((2, True), (0, False), (4, False), (99, False)):
        failed["line"] = line
        page = student_page(found, "Lesson", "ann", 9, 18).decode()
        assert ("<dd>line 2: <code>dist.send(x &lt; 1)</code></dd>" in page) == told
        assert ("\n<mark>    dist.send(x &lt; 1)</mark>\n    return x</pre>" in page) == told
        assert "Called in" in page or not told
    chips = re.findall(r'title="([^"]*)"><b aria-hidden="true">.</b> ([^<]*)<', page.partition("</nav>")[0])
    assert [label for title, label in chips if title == "Task count_bytes"] == ["count_bytes Task count_bytes"]
    assert (
        "Task naive_all_reduce",
        "naive_all_reduce",
    ) in chips  # what works has its number, and its title on hovering
