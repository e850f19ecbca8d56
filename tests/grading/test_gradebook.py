"""The gradebook, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from labkit.cli import app
from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.handed_in import read_times
from labkit.grading.book.lateness import Lateness
from labkit.grading.book.sheets import canvas_csv, grades_csv, moodle_csv
from labkit.grading.book.standing import Grade
from labkit.grading.reports.class_report import class_csv
from labkit.grading.reports.results import GradedExercise, GradedSubmission, find_result, read_results
from labkit.grading.reports.student_report import result_json
from labkit.grading.score import CaseResult, ExerciseResult, StudentResult
from labkit.lessons.manifest import Exercise, Manifest
from tests.grading.postgresql_server import find_programs, server

LESSON = "02_ring_all_reduce"
DUE = datetime(2026, 12, 1, 18, tzinfo=UTC)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian, Ubuntu: apt install postgresql)")
    with server(programs) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'book.db'}"
    found: str = request.getfixturevalue("postgresql")
    engine = create_engine(found)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return found


@pytest.fixture
def book(url: str) -> Iterator[Gradebook]:
    opened = Gradebook(url)
    yield opened
    opened.close()


def handed_in(student: str, points: float, file: str = "a", bonus: float = 0.0) -> GradedSubmission:
    exercises = (
        GradedExercise("naive_all_reduce", points, 8, "passed" if points else "failed"),
        GradedExercise("count_bytes", 4, 4, "passed"),
        GradedExercise("halving_doubling", bonus, 0, "passed" if bonus else "not_done"),
    )
    return GradedSubmission(student, LESSON, file * 64, "c" * 64, exercises)


@pytest.mark.in_turn
def test_points_come_back_as_recorded_and_a_bonus_counts_beyond_full_marks(book: Gradebook) -> None:
    recorded = book.record([handed_in("ada", 8, bonus=8), handed_in("grace", 0)])
    assert (recorded.new_attempts, recorded.regraded, recorded.unchanged) == (2, (), 0)
    ada, grace = book.grades(LESSON)
    assert (ada.student, ada.score, ada.max_score, ada.points) == (
        "ada",
        20,
        12,
        {"naive_all_reduce": 8, "count_bytes": 4, "halving_doubling": 8},
    )
    assert (grace.score, grace.num_attempts) == (4, 1)


def test_recording_the_same_twice_adds_nothing(book: Gradebook) -> None:
    book.record([handed_in("ada", 8)])
    again = book.record([handed_in("ada", 8)])
    assert (again.new_attempts, again.regraded, again.unchanged) == (0, (), 1)
    assert len(book.history(LESSON, "ada")) == 1


def test_the_best_attempt_counts_or_the_latest_and_both_are_kept(book: Gradebook) -> None:
    book.record([handed_in("ada", 8, "a")], handed_in={"ada": DUE})
    book.record([handed_in("ada", 0, "b")], handed_in={"ada": DUE + timedelta(hours=1)})
    assert [(each.score, each.num_attempts) for each in book.grades(LESSON, "best")] == [(12, 2)]
    assert [(each.score, each.num_attempts) for each in book.grades(LESSON, "latest")] == [(4, 2)]
    with pytest.raises(ConfigError, match="use best or latest"):
        book.grades(LESSON, "first")


def test_each_day_begun_late_costs_its_share_and_an_extension_helps_one_student(book: Gradebook) -> None:
    book.set_deadline(LESSON, Lateness(DUE, timedelta(minutes=15), percent_per_day=10, percent_at_most=50))
    times = {"ada": DUE + timedelta(minutes=15), "grace": DUE + timedelta(hours=25), "linus": DUE + timedelta(days=30)}
    book.record([handed_in(name, 8) for name in times], handed_in=times)
    assert [(each.percent_lost, each.score) for each in book.grades(LESSON)] == [(0, 12), (20, 9.6), (50, 6)]
    book.set_deadline(LESSON, Lateness(DUE + timedelta(days=2)), student="grace")
    assert [each.percent_lost for each in book.grades(LESSON)] == [0, 0, 50]


def test_the_time_handed_in_is_kept_with_its_zone(book: Gradebook) -> None:
    moment = datetime.fromisoformat("2026-12-01T19:30+05:30")
    book.record([handed_in("ada", 8)], handed_in={"ada": moment})
    assert book.grades(LESSON)[0].handed_in_at == moment


def test_a_late_attempt_that_is_better_loses_to_an_earlier_one_only_after_the_penalty(book: Gradebook) -> None:
    book.set_deadline(LESSON, Lateness(DUE, percent_per_day=50))
    book.record([handed_in("ada", 8, "a")], handed_in={"ada": DUE})
    book.record([handed_in("ada", 8, "b", bonus=8)], handed_in={"ada": DUE + timedelta(hours=1)})
    assert book.grades(LESSON)[0].score == 12  # not 20 x 0.5


def test_marks_change_only_with_a_reason_only_where_asked_and_the_old_ones_stay(book: Gradebook) -> None:
    book.record([handed_in("ada", 0)])
    better = GradedSubmission("ada", LESSON, "a" * 64, "d" * 64, handed_in("ada", 8, bonus=8).exercises)
    with pytest.raises(
        ConfigError, match=r"2 marks differ.*ada, naive_all_reduce: 0 before, 8 now.*nothing was recorded"
    ):
        book.record([better])
    assert book.grades(LESSON)[0].score == 4
    changed = book.record([better], exercises=["naive_all_reduce"], reason="a hidden case was wrong")
    assert changed.regraded == (("ada", "naive_all_reduce", 0, 8),)
    assert book.grades(LESSON)[0].score == 12
    words = [words for _, words in book.history(LESSON, "ada")]
    assert any("4 points" in each for each in words)
    assert any(
        "naive_all_reduce regraded in attempt 1: 0 to 8 points (a hidden case was wrong)" in each for each in words
    )
    with pytest.raises(ConfigError, match=r"these results have no exercise 2.99; they have count_bytes, "):
        book.record([better], exercises=["2.99"], reason="x")


def test_an_adjustment_needs_a_reason_and_a_student(book: Gradebook) -> None:
    book.record([handed_in("ada", 8)])
    book.adjust(LESSON, "ada", -1.5, "typeset by hand")
    book.adjust(LESSON, "ada", 3, "found a mistake in the lesson")
    grade = book.grades(LESSON)[0]
    assert (grade.score, grade.adjusted) == (13.5, 1.5)
    with pytest.raises(ConfigError, match="needs a reason"):
        book.adjust(LESSON, "ada", 1, " ")
    with pytest.raises(ConfigError, match=r"there is no 'adda' in this gradebook; it has ada"):
        book.adjust(LESSON, "adda", 1, "x")


@pytest.mark.in_turn
def test_graders_that_record_at_once_record_each_file_once(url: str) -> None:
    Gradebook(url).close()
    failed: list[BaseException] = []

    def grader() -> None:
        own = Gradebook(url)
        try:
            own.record([handed_in(f"student {number}", 8) for number in range(20)])
        except BaseException as error:
            failed.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=grader) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
    opened = Gradebook(url)
    assert {(each.num_attempts, each.score) for each in opened.grades(LESSON)} == {(1, 12)}
    opened.close()


def test_what_fails_half_way_leaves_the_book_as_it_was(book: Gradebook) -> None:
    broken = GradedSubmission(
        "zoe", LESSON, "z" * 64, "c" * 64, (GradedExercise("naive_all_reduce", None, 8, "passed"),)
    )  # type: ignore[arg-type]
    with pytest.raises(EnvironmentProblem, match="nothing in it was changed"):
        book.record([handed_in("ada", 8), broken])
    with pytest.raises(ConfigError, match="nothing is recorded"):
        book.grades(LESSON)


def test_a_database_that_is_not_there_is_told_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        Gradebook("postgresql+psycopg://ada:sesame@127.0.0.1:1/book")
    assert "sesame" not in str(caught.value) and "Check that the server runs" in str(caught.value)
    with pytest.raises(EnvironmentProblem, match="does not answer"):
        Gradebook(f"sqlite:///{tmp_path / 'no folder' / 'book.db'}")
    with pytest.raises(ConfigError, match="write sqlite:///"):
        Gradebook("grades")


def test_a_book_of_a_newer_labkit_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'book.db'}"
    Gradebook(url).close()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO about VALUES (99)"))
    engine.dispose()
    with pytest.raises(ConfigError, match=r"newer labkit \(its layout is 99"):
        Gradebook(url)


# ---- sheets

GRADES = [
    Grade("lovelaceada_4711_99_02_ring.ipynb", 12, 12, {"naive_all_reduce": 8, "count_bytes": 4}, num_attempts=1),
    Grade("grace@example.org", 9.6, 12, {"naive_all_reduce": 8, "count_bytes": 4}, percent_lost=20.0, num_attempts=2),
]


def test_a_canvas_gradebook_comes_back_with_one_column_filled(tmp_path: Path) -> None:
    roster = tmp_path / "canvas.csv"
    roster.write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section,01 Data (7),02 Ring (8)\n"
        "    Points Possible,,,,,10,12\n"
        '"Lovelace, Ada",4711,s1,ada@example.org,A,9,\n'
        '"Hopper, Grace",711,s2,grace@example.org,A,,\n',
        encoding="utf-8-sig",
    )
    sheet = canvas_csv(roster, "02 Ring", GRADES)
    assert (sheet.num_filled, sheet.unmatched, sheet.capped) == (2, (), ())
    roster.write_text(roster.read_text(encoding="utf-8-sig").replace(",10,12", ",10,50"))
    assert canvas_csv(roster, "02 Ring", GRADES).capped[0].startswith("02 Ring (8) has 50 points in Canvas,")
    lines = sheet.data.decode().splitlines()
    assert lines[1].endswith(",10,12") and lines[2].endswith(",A,9,12") and lines[3].endswith(",A,,9.6")
    with pytest.raises(ConfigError, match=r"0 columns that begin with '03'.*01 Data \(7\), 02 Ring \(8\)"):
        canvas_csv(roster, "03", GRADES)


def test_a_moodle_worksheet_comes_back_with_its_grades_and_says_who_is_not_in_it(tmp_path: Path) -> None:
    worksheet = tmp_path / "moodle.csv"
    worksheet.write_text(
        "Identifier,Full name,Email address,Grade,Last modified (grade)\n"
        "Participant 4711,Ada Lovelace,ada@example.org,,-\n"
    )
    sheet = moodle_csv(worksheet, [replace(GRADES[0], student="Ada Lovelace_4711_assignsubmission_file_"), GRADES[1]])
    assert sheet.data.decode().splitlines()[1] == "Participant 4711,Ada Lovelace,ada@example.org,12,-"
    assert sheet.unmatched == ("grace@example.org",)


def test_a_row_is_found_by_whole_identifiers_and_one_doubtful_row_refuses_no_class(tmp_path: Path) -> None:
    roster = tmp_path / "canvas.csv"
    roster.write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section,02 Ring (8)\n"
        '"Lovelace, Ada",4711,s1,ada,A,\n"Hopper, Grace",2,s2,grace,A,\n"T., Linus",99,s3,linus,A,\n'
        '"Zuse, Konrad",5,s4,zuse,A,\n"Zuse, Konrad",6,s5,zuse,A,\n'
    )
    names = ["ada", "lovelaceada_4711_99_02_ring", "hw_2_final", "linus", "zuse", "ghost"]
    sheet = canvas_csv(roster, "02 Ring", [Grade(name, 7, 12, num_attempts=1) for name in names])
    filled = [line for line in sheet.data.decode().splitlines() if line.endswith(",7")]
    assert filled == ['"T., Linus",99,s3,linus,A,7'], "neither by the number of a file, nor by one in a name"
    assert sheet.unmatched == ("hw_2_final", "ghost")
    assert sheet.ambiguous[0] == "ada and lovelaceada_4711_99_02_ring fit the row of Lovelace, Ada"
    assert len(sheet.ambiguous) == 3 and all("zuse fits 2 rows" in words for words in sheet.ambiguous[1:])


def test_a_table_holds_no_formula(tmp_path: Path) -> None:
    first, row = grades_csv([Grade("=cmd()", 1, 12, {"naive_all_reduce": 1})]).decode().splitlines()
    assert first.startswith("Student,Score,Max Score") and row.startswith("'=cmd(),1,12")


@pytest.mark.parametrize("name", ["\uff1dcmd()", "Ada;=cmd()", "Ada\t@cmd()", "\t=cmd()", "Ada\n\uff0bcmd()"])
def test_no_spreadsheet_of_any_country_finds_a_formula_in_a_name(name: str) -> None:
    told = grades_csv([Grade(name, 1, 12, {"naive_all_reduce": 1})]).decode()
    assert re.search(r"(^|[;\t\r\n\"])[=+\-@\uff1d\uff0b]", told) is None, told


def test_the_table_of_a_run_holds_no_formula_either() -> None:
    exercise = Exercise("naive_all_reduce", "Task", ("f",), 8, 1, 1, 1)
    entry = GradedSubmission(
        "+1", LESSON, "", "", (GradedExercise("naive_all_reduce", 8, 8, "passed"),), problem="=cmd()\nno, more"
    )
    rows = class_csv([entry], Manifest(LESSON, "Ring", "", (exercise,))).decode().splitlines()
    assert rows[0] == "Student,Score,Max Score,naive_all_reduce,Problem"
    assert rows[1].startswith("'+1,8,8,8,") and rows[1].endswith("\"'=cmd()")


def test_a_result_comes_back_as_it_was_written_and_a_torn_one_is_named(tmp_path: Path) -> None:
    failed = ExerciseResult(
        Exercise("naive_all_reduce", "Chunk bounds", ("f",), 8, 1, 1, 1),
        "failed",
        (CaseResult("3 ranks", False, "Rank 0 is wrong.", "Look.", mistake="off by one"),),
        1,
    )
    bonus = ExerciseResult(Exercise("halving_doubling", "More", ("g",), 5, 1, 1, 1, True), "passed", (), 0)
    told = result_json(StudentResult("ada", "", (failed, bonus), submission_hash="a", course_hash="c"), LESSON)
    path = tmp_path / "ada" / "result.json"
    path.parent.mkdir()
    path.write_text(json.dumps(told))
    [found] = read_results(tmp_path)
    assert (found.name, found.lesson, found.score, found.max_score) == ("ada", LESSON, 5, 8)
    assert found.exercises[0].title == "Chunk bounds" and found.exercises[0].mistake == "off by one"
    assert "Came back: Rank 0 is wrong." in found.exercises[0].said
    path.write_text(json.dumps(told)[:300])
    assert find_result(path) is None
    with pytest.raises(ConfigError, match=r"result.json is not a result of labkit grade"):
        read_results(tmp_path)


def test_a_file_that_is_no_sheet_is_named(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="no column Student and no column ID"):
        canvas_csv(other, "02", GRADES)
    with pytest.raises(ConfigError, match="does not say when students handed in"):
        read_times(other)
    with pytest.raises(ConfigError, match=r"has no \*/result.json"):
        read_results(tmp_path)


# ---- the commands


@pytest.mark.in_turn
def test_a_class_from_results_to_sheet_on_the_command_line(tmp_path: Path) -> None:
    graded = StudentResult(
        "ada",
        "",
        tuple(
            ExerciseResult(Exercise(number, "Task", ("f",), points, 1, 1, 1), "passed")
            for number, points in (("naive_all_reduce", 8), ("count_bytes", 4))
        ),
        submission_hash="a" * 64,
        course_hash="c" * 64,
    )
    result = result_json(graded, LESSON)
    (tmp_path / "out" / "ada").mkdir(parents=True)
    (tmp_path / "out" / "ada" / "result.json").write_text(json.dumps(result))
    (tmp_path / "times.csv").write_text("Student,Handed in\nada,2026-12-03T12:00Z\n")
    book = f"sqlite:///{tmp_path / 'book.db'}"

    def labkit(*words: str) -> str:
        done = CliRunner().invoke(app, ["gradebook", *words, "--book", book])
        assert done.exit_code == 0, done.output
        return done.output

    assert "1 new attempts" in labkit("record", str(tmp_path / "out"), "--handed-in", str(tmp_path / "times.csv"))
    labkit("deadline", "2026-12-01T18:00Z", "--lesson", "02")
    labkit("adjust", "ada", "2", "--lesson", "02", "--reason", "spoke in class")
    assert "11.6 of 12  (1 attempt, handed in 2026-12-03 12:00 UTC, late, 20 % off, adj" in labkit(
        "show", "--lesson", "02"
    )
    assert "spoke in class" in labkit("history", "ada", "--lesson", "02")
    assert "1 of 1 grades" in labkit("export", str(tmp_path / "grades.csv"), "--lesson", "02")
    book = str(tmp_path / "book.db")  # a file's path names the same book
    assert "11.6 of 12" in labkit("show", "--lesson", "02")
    assert "ada,11.6,12,20,2,1,2026-12-03T12:00+00:00,8,4" in (tmp_path / "grades.csv").read_text()
