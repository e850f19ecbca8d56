"""When files were handed in: as each system says it, or unknown; never the moment of grading."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from labkit.cli import app
from labkit.errors import ConfigError
from labkit.grading.book.changes import late_words
from labkit.grading.book.class_time import moment, shown
from labkit.grading.book.file_names import of_system
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.handed_in import assign, read_times
from labkit.grading.book.lateness import Lateness
from labkit.grading.reports.results import GradedExercise, GradedSubmission
from labkit.grading.reports.student_report import result_json
from labkit.grading.score import ExerciseResult, StudentResult
from labkit.lessons.manifest import Exercise

LESSON = "02_ring_all_reduce"
DUE = datetime(2026, 12, 1, 18, tzinfo=UTC)
GRADED_ON = DUE + timedelta(days=1, hours=1)
BERLIN = ZoneInfo("Europe/Berlin")

LATE = "lovelaceada_LATE_12345_67890_02_ring_all_reduce-1"
IN_TIME = "hoppergrace_12346_67891_02_ring_all_reduce"


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Gradebook]:
    opened = Gradebook(f"sqlite:///{tmp_path / 'book.db'}", now=lambda: GRADED_ON)
    opened.set_deadline(LESSON, Lateness(DUE, percent_per_day=10))
    yield opened
    opened.close()


def file_of(student: str, file: str = "a", points: float = 12) -> GradedSubmission:
    return GradedSubmission(student, LESSON, file * 64, "c" * 64, (GradedExercise("ring", points, 12, "passed"),))


# ---- unknown, and corrected


def test_a_time_that_nobody_says_is_unknown_and_costs_nothing(book: Gradebook) -> None:
    recorded = book.record([file_of("ada")])
    assert recorded.unknown == ("ada",)
    [grade] = book.grades(LESSON)
    assert (grade.score, grade.percent_lost, grade.handed_in_at) == (12, 0, None)
    assert any("handed in at an unknown time" in words for _, words in book.history(LESSON, "ada"))


def test_a_penalty_is_undone_by_the_right_time_with_a_reason(book: Gradebook) -> None:
    book.record([file_of("ada")], handed_in={"ada": GRADED_ON}, source="a wrong table")
    assert book.grades(LESSON)[0].percent_lost == 20
    with pytest.raises(ConfigError, match="needs a reason"):
        book.correct_time(LESSON, "ada", DUE, " ")
    assert book.correct_time(LESSON, "ada", DUE, "the server's log says so") == GRADED_ON
    assert (book.grades(LESSON)[0].score, book.grades(LESSON)[0].handed_in_at) == (12, DUE)
    words = [words for _, words in book.history(LESSON, "ada")]
    assert any("handed in 2026-12-02 19:00 UTC" in each for each in words)
    assert any("2026-12-01 18:00 UTC (by hand; the server's log says so)" in each for each in words)
    book.correct_time(LESSON, "ada", None, "the log was another's")
    assert book.grades(LESSON)[0].handed_in_at is None
    with pytest.raises(ConfigError, match="ada has 1 attempts at 02_ring_all_reduce, and no attempt 2"):
        book.correct_time(LESSON, "ada", DUE, "x", attempt=2)


def test_recording_again_with_times_sets_unknown_ones_and_asks_for_a_reason_for_others(book: Gradebook) -> None:
    book.record([file_of("ada"), file_of("grace")])
    assert book.record([file_of("ada"), file_of("grace")], handed_in={"ada": GRADED_ON}).times == 1
    assert [each.percent_lost for each in book.grades(LESSON)] == [20, 0]
    with pytest.raises(
        ConfigError, match=r"1 files have a different hand-in time.*ada, 2026-12-02 19:00 UTC before.*nothing was rec"
    ):
        book.record([file_of("ada")], handed_in={"ada": DUE})
    assert book.grades(LESSON)[0].percent_lost == 20
    assert book.record([file_of("ada")], handed_in={"ada": DUE}, reason="the table was wrong").times == 1
    assert book.grades(LESSON)[0].percent_lost == 0


def test_the_latest_attempt_is_the_last_recorded_where_a_time_is_unknown(book: Gradebook) -> None:
    book.record([file_of("ada", "a", 3)], handed_in={"ada": DUE})
    book.record([file_of("ada", "b", 5)])
    assert book.grades(LESSON, "latest")[0].score == 5
    book.correct_time(LESSON, "ada", DUE - timedelta(days=1), "found", attempt=2)
    assert book.grades(LESSON, "latest")[0].score == 3


def test_what_canvas_marks_late_is_said_and_costs_nothing_until_a_time_is_known(book: Gradebook) -> None:
    book.record([file_of(LATE), file_of(IN_TIME)])
    in_time, late = book.grades(LESSON)
    assert (late.marked_late, late.percent_lost, in_time.marked_late) == (True, 0, False)
    book.correct_time(LESSON, LATE, GRADED_ON, "Canvas's page")
    assert (book.grades(LESSON)[1].marked_late, book.grades(LESSON)[1].percent_lost) == (False, 20)


def test_a_book_of_the_first_layout_opens_and_its_times_of_recording_are_unknown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE about (version INTEGER PRIMARY KEY)",
            "INSERT INTO about VALUES (1)",
            "CREATE TABLE attempts (id INTEGER PRIMARY KEY, lesson VARCHAR(200), student VARCHAR(300), "
            "submission_sha256 VARCHAR(64), handed_in_at DATETIME NOT NULL, recorded_at DATETIME NOT NULL, "
            "UNIQUE (lesson, student, submission_sha256))",
            f"INSERT INTO attempts VALUES (1, '{LESSON}', 'ada', 'a', '2026-12-03 10:00:00', '2026-12-03 10:00:00')",
            f"INSERT INTO attempts VALUES (2, '{LESSON}', 'grace', 'b', '2026-12-01 10:00:00', '2026-12-03 10:00:00')",
        ):
            connection.execute(text(statement))
    engine.dispose()
    for _ in range(2):
        opened = Gradebook(url)
        ada, grace = opened.grades(LESSON)
        assert (ada.handed_in_at, grace.handed_in_at) == (None, datetime(2026, 12, 1, 10, tzinfo=UTC))
        opened.close()


# ---- what systems export


def times_in(path: Path, names: list[str], content: str, zone: ZoneInfo | None = BERLIN) -> dict[str, datetime]:
    path.write_text(content, encoding="utf-8-sig")
    return dict(assign(read_times(path, zone), names).times)


def test_moodles_worksheet_says_when_in_the_classs_zone(tmp_path: Path) -> None:
    header = (
        "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,"
        "Last modified (submission),Last modified (grade),Feedback comments\n"
    )
    rows = (
        'Participant 4711,Ada Lovelace,ada@example.org,Submitted for grading,,100.00,Yes,"Tuesday, 1 December 2026, '
        '5:20 PM",-,"two\nlines"\n'
        'Participant 711,Grace Hopper,grace@example.org,Submitted for grading,,100.00,Yes,"Thursday, December 3, 2026, '
        '9:00 AM",-,\n'
        "Participant 12,Linus T,linus@example.org,No submission,,100.00,Yes,-,-,\n"
    )
    names = ["Ada Lovelace_4711_assignsubmission_file_", "Grace Hopper_711_assignsubmission_file_02_ring_all_reduce"]
    found = times_in(tmp_path / "sheet.csv", names, header + rows)
    assert [shown(found[name], UTC) for name in names] == ["2026-12-01 16:20 UTC", "2026-12-03 08:00 UTC"]
    other = rows.replace("Tuesday, 1 December 2026, 5:20 PM", "2026 m. gruodžio 1 d., antradienis, 17:20")
    with pytest.raises(ConfigError, match=r"line 3: '2026 m. .*click your picture at the top right, choose Language"):
        times_in(tmp_path / "sheet.csv", names, header + other)
    with pytest.raises(ConfigError, match=r"line 3: .* has no time zone.*labkit gradebook zone Europe/Berlin"):
        times_in(tmp_path / "sheet.csv", names, header + rows, None)


def test_canvas_submissions_say_when_by_the_users_number(tmp_path: Path) -> None:
    path = tmp_path / "submissions.json"
    listed = [
        {"id": 1, "user_id": 12345, "attempt": 2, "late": True, "submitted_at": "2026-12-03T08:00:00Z"},
        {"id": 2, "user_id": 12346, "attempt": 1, "late": False, "submitted_at": "2026-12-01T16:20:00Z"},
        {"id": 3, "user_id": 99, "attempt": None, "late": False, "submitted_at": None, "workflow_state": "unsubmitted"},
        {"id": 4, "user_id": 67890, "attempt": 1, "late": False, "submitted_at": "2026-11-01T00:00:00Z"},
    ]
    path.write_text(json.dumps(listed))
    found = assign(read_times(path), [LATE, IN_TIME])
    assert {name: at.day for name, at in found.times.items()} == {LATE: 3, IN_TIME: 1}
    assert found.unmatched == ("user 67890",), "the number of a file is nobody's number"


def test_gradescopes_grades_say_when_by_submission_or_address(tmp_path: Path) -> None:
    found = times_in(
        tmp_path / "scores.csv",
        ["submission_115742079", "grace@example.org"],
        "First Name,Last Name,SID,Email,Sections,Total Score,Max Points,Status,Submission ID,Submission Time,"
        "Lateness (H:M:S),View Count,Submission Count\n"
        "Ada,Lovelace,17,ada@example.org,,95.0,100.0,Graded,115742079,2026-12-01 11:20:18 -0500,00:00:00,0,1\n"
        "Grace,Hopper,18,grace@example.org,,95.0,100.0,Graded,115742080,2026-12-03 03:00:00 -0500,38:00:00,0,1\n"
        "Linus,T,19,linus@example.org,,,100.0,Missing,,,,,\n",
    )
    assert [shown(at, UTC) for at in found.values()] == ["2026-12-01 16:20 UTC", "2026-12-03 08:00 UTC"]


def test_github_classrooms_grades_say_when_github_got_the_push(tmp_path: Path) -> None:
    found = times_in(
        tmp_path / "grades.csv",
        ["ring-ada-l", "hopper"],
        "assignment_name,assignment_url,starter_code_url,github_username,roster_identifier,student_repository_name,"
        "student_repository_url,submission_timestamp,points_awarded,points_available\n"
        "ring,u,u,ada-l,ada@example.org,ring-ada-l,u,2026-12-01 16:20:00 UTC,0,10\n"
        "ring,u,u,hopper,grace@example.org,ring-hopper,u,2026-12-03 08:00,0,10\n"
        "ring,u,u,linus,linus@example.org,ring-linus,u,,0,10\n",
    )
    assert [shown(at, UTC) for at in found.values()] == ["2026-12-01 16:20 UTC", "2026-12-03 08:00 UTC"]


def test_a_row_of_an_instructors_table_that_is_nobodys_stops_it_and_every_such_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("Student,Handed in\nada,2026-12-01T17:20\nlinsu,2026-12-01T17:20\ngracee,2026-12-01T17:20\n")
    with pytest.raises(ConfigError, match=r"nobody called linsu.*; nobody called gracee.*Nothing was recorded"):
        assign(read_times(path, BERLIN), ["ada", "linus", "grace"])
    path.write_text("Student,Handed in\nAda,2026-12-01T17:20\nada,2026-12-02T17:20\n")
    with pytest.raises(ConfigError, match="ada fits the rows of Ada and ada"):
        assign(read_times(path, BERLIN), ["ada"])
    path.write_text("Student,Handed in\nada,yesterday\n")
    with pytest.raises(ConfigError, match="line 2: 'yesterday' is not a time"):
        read_times(path, BERLIN)


def test_two_files_that_one_row_fits_get_no_time_and_are_named(tmp_path: Path) -> None:
    path = tmp_path / "submissions.json"
    path.write_text(json.dumps([{"user_id": 12345, "submitted_at": "2026-12-03T08:00:00Z"}]))
    other = LATE.replace("67890", "67892").replace("-1", "")
    found = assign(read_times(path), [LATE, other])
    assert not found.times and "fits" in found.ambiguous[0] and other in found.ambiguous[0]


@pytest.mark.parametrize(
    ("name", "system", "number", "late", "again"),
    [
        (LATE, "Canvas", "12345", True, 1),
        (IN_TIME, "Canvas", "12346", False, 0),
        ("o_neilsean_LATE_12_34_x", "Canvas", "12", True, 0),
        ("LATE_anon_aB3x9_55_x", "Canvas", "", True, 0),
        ("Ada Lovelace_1234_assignsubmission_file_", "Moodle", "1234", False, 0),
        ("Ada_Lovelace_1234_assignsubmission_file_02_ring", "Moodle", "1234", False, 0),
        ("submission_1234", "Gradescope", "1234", False, 0),
    ],
)
def test_names_of_systems_are_read(name: str, system: str, number: str, late: bool, again: int) -> None:
    found = of_system(name)
    assert found is not None
    assert (found.system, found.id, found.late, found.again) == (system, number, late, again)


@pytest.mark.parametrize(
    "name", ["ada", "ada_12", "02_ring_all_reduce", "team 12_3", "ada@example.org", "submission_x"]
)
def test_other_names_are_of_no_system(name: str) -> None:
    assert of_system(name) is None


# ---- the class's zone


def test_times_are_read_and_shown_in_the_classs_zone(tmp_path: Path) -> None:
    opened = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    assert opened.zone is UTC
    opened.set_zone("Europe/Berlin")
    assert shown(moment("2026-07-01T18:00", opened.zone), opened.zone) == "2026-07-01 18:00 CEST"
    assert moment("2026-12-01T18:00Z", opened.zone).hour == 18
    with pytest.raises(ConfigError, match="no time zone 'Europe/Berlim'"):
        opened.set_zone("Europe/Berlim")
    opened.close()


@pytest.mark.parametrize("text_", ["2026-10-25T02:30", "2026-03-29T02:30"])
def test_an_hour_that_the_clocks_show_twice_or_never_is_refused(text_: str) -> None:
    with pytest.raises(ConfigError, match="happens twice or not at all; write it with an offset"):
        moment(text_, BERLIN)


def test_a_date_without_a_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a time"):
        moment("2026-12-01", BERLIN)


def test_lateness_is_said_in_days_and_hours() -> None:
    assert late_words(timedelta(days=1, hours=3, minutes=5)) == "1 day 3 h late"
    assert late_words(timedelta(minutes=7, seconds=1)) == "8 min late"


# ---- the commands


@pytest.mark.in_turn
def test_lateness_is_previewed_then_recorded_then_corrected(tmp_path: Path) -> None:
    ring = ExerciseResult(Exercise("ring", "Ring", ("f",), 12, 1, 1, 1), "passed")
    for name in (LATE, IN_TIME):
        told = result_json(StudentResult(name, "", (ring,), submission_hash=name, course_hash="c"), LESSON)
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "result.json").write_text(json.dumps(told))
    (tmp_path / "canvas.json").write_text(
        json.dumps([{"user_id": 12345, "late": True, "submitted_at": "2026-12-03T08:00:00Z"}])
    )

    def labkit(*words: str) -> str:
        done = CliRunner().invoke(app, ["gradebook", *words, "--book", str(tmp_path / "book.db")])
        assert done.exit_code == 0, done.output
        return done.output

    assert labkit("zone", "Europe/Berlin").strip() == "Europe/Berlin"
    labkit("deadline", "2026-12-01T18:00", "--lesson", "02")
    record = ("record", str(tmp_path / "out"), "--handed-in", str(tmp_path / "canvas.json"))
    previewed = labkit(*record, "--preview")
    assert f"  {LATE}: 9.6 (handed in 2026-12-03 09:00 CET, 1 day 15 h late: 20 % off)" in previewed
    assert "A preview: nothing was recorded" in previewed and f"1 of 2 files were handed in ({IN_TIME})" in previewed
    with pytest.raises(AssertionError, match="nothing is recorded"):
        labkit("show", "--lesson", "02")
    assert "2 new attempts" in labkit(*record)
    assert f"{LATE}: 9.6 before, 10.8 now" in labkit("deadline", "2026-12-02T18:00", "--lesson", "02", "--preview")
    corrected = labkit("handed-in", LATE, "2026-12-01T17:59", "--lesson", "02", "--reason", "Canvas was down")
    assert f"{LATE}: 9.6 before, 12 now (nothing off for lateness)" in corrected
    assert "12 of 12  (1 attempt, handed in 2026-12-01 17:59 CET)" in labkit("show", "--lesson", "02")
    assert "Canvas was down" in labkit("history", LATE, "--lesson", "02")
