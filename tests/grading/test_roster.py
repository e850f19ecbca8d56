"""One identity for each person: files, sheets and commands find it, whatever the systems call people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.errors import ConfigError
from labkit.grading.book.course_total import course_totals
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.lateness import Lateness
from labkit.grading.book.roster_files import read_roster
from labkit.grading.reports.results import GradedExercise, GradedSubmission
from labkit.grading.reports.student_report import result_json
from labkit.grading.score import ExerciseResult, StudentResult
from labkit.lessons.manifest import Exercise

LESSON = "02_ring_all_reduce"
DUE = datetime(2026, 12, 1, 18, tzinfo=UTC)
CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,02 Ring (77)\n    Points Possible,,,,,12\n"
    '"Lovelace, Ada",12345,s1,ada@example.org,Tuesday,\n"Hopper, Grace",12346,s2,grace@example.org,Tuesday,\n'
    '"T., Linus",12347,s3,linus@example.org,Friday,\n"Student, Test",9,,,Tuesday,\n'
)
MOODLE = (
    "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Last modified (submission)\n"
    "Participant 4711,Ada Lovelace,ADA@example.org,,,10.00,-\n"
    "Participant 4712,Grace Hopper,grace@example.org,,,10.00,-\n"
)
GRADESCOPE = (
    "First Name,Last Name,SID,Email,Role,Section\nAda,Lovelace,s1,ada@example.org,Student,A\nT,A,,t@x.org,TA,\n"
)
GITHUB = '"identifier","github_username","github_id","name"\n"grace@example.org","hopper","17","Grace Hopper"\n'


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Gradebook]:
    opened = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    yield opened
    opened.close()


def add(book: Gradebook, path: Path, content: str) -> list[str]:
    path.write_text(content, encoding="utf-8-sig")
    return list(book.import_roster(read_roster(path)).unclear)


def file_of(name: str, file: str = "a", points: float = 12) -> GradedSubmission:
    return GradedSubmission(name, LESSON, file * 64, "c" * 64, (GradedExercise("ring", points, 12, "passed"),))


def test_four_systems_files_make_one_identity_each(book: Gradebook, tmp_path: Path) -> None:
    for content in (CANVAS, MOODLE, GRADESCOPE, GITHUB):
        assert add(book, tmp_path / "roster.csv", content) == []
    people = book.people()
    assert sorted(people) == ["Ada Lovelace", "Grace Hopper", "Linus T."]
    assert people["Ada Lovelace"].keys == {"ada@example.org", "s1", "canvas:12345", "moodle:4711"}
    assert "hopper" in people["Grace Hopper"].keys and people["Linus T."].section == "Friday"


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "name",
    [
        "lovelaceada_LATE_12345_67890_02_ring_all_reduce-1", "Red-Ada Lovelace_9_assignsubmission_file_",
        "Ada Lovelace_4711_assignsubmission_file_", "Ada Lovelace",
        "ada@example.org", "s1", "Lovelace, Ada",
    ],
)  # fmt: skip
def test_every_name_a_system_gives_is_the_same_person(book: Gradebook, tmp_path: Path, name: str) -> None:
    for content in (CANVAS, MOODLE):
        add(book, tmp_path / "roster.csv", content)
    assert book.whose([name]).people == {name: "Ada Lovelace"}
    assert book.person(name) == "Ada Lovelace" or "_" in name


def test_a_resubmission_is_an_attempt_and_unknown_files_cost_nobody_else_anything(
    book: Gradebook, tmp_path: Path
) -> None:
    add(book, tmp_path / "roster.csv", CANVAS)
    first, second = "lovelaceada_12345_67890_02_ring", "lovelaceada_LATE_12345_67999_02_ring-1"
    recorded = book.record([file_of(second, "b", 9), file_of(first, "a", 12), file_of("ghost", "g")])
    assert (recorded.new_attempts, recorded.nobodys) == (2, ("ghost",))
    ada = next(grade for grade in book.grades(LESSON, "latest") if grade.student == "Ada Lovelace")
    assert (ada.num_attempts, ada.score, ada.attempt, ada.marked_late) == (2, 9, 2, True)
    assert [grade.num_attempts for grade in book.grades(LESSON)] == [2, 0, 0]


def test_two_people_of_one_name_are_told_apart_by_their_numbers(book: Gradebook, tmp_path: Path) -> None:
    twice = CANVAS.replace("T., Linus", "Lovelace, Ada")
    add(book, tmp_path / "roster.csv", twice)
    other = "Ada Lovelace (linus@example.org)"
    assert sorted(book.people()) == ["Ada Lovelace", other, "Grace Hopper"]
    found = book.whose(["x_12347_5_lab", "Ada Lovelace"])
    assert found.people == {"x_12347_5_lab": other}
    assert found.unclear == (f"Ada Lovelace fits Ada Lovelace and {other}",)
    assert add(book, tmp_path / "roster.csv", twice) == [] and len(book.people()) == 3


def test_a_team_shares_a_submission_and_extra_time_moves_the_deadline(book: Gradebook, tmp_path: Path) -> None:
    add(
        book, tmp_path / "r.csv",
        "Name,Email,Team,Extra time\nAda,ada@x.org,red,\nGrace,grace@x.org,red,2 d\nLinus,linus@x.org,,\n",
    )  # fmt: skip
    book.set_deadline(LESSON, Lateness(DUE, percent_per_day=10))
    book.record([file_of("ada@x.org")], handed_in={"ada@x.org": DUE + timedelta(days=1, hours=1)})
    found = {grade.student: (grade.score, grade.percent_lost) for grade in book.grades(LESSON)}
    assert found == {"Ada": (9.6, 20), "Grace": (12, 0), "Linus": (0, 0)}
    again = book.record([file_of("ada@x.org", "b")])
    assert (again.new_attempts, again.unknown, again.num_unknown) == (2, ("Ada", "Grace"), 1)
    with pytest.raises(ConfigError, match="line 2: 'soon' is not an extra time"):
        add(book, tmp_path / "r.csv", "Name,Extra time\nAda,soon\n")


def test_repositories_of_github_classroom_end_in_a_login_or_a_team(book: Gradebook, tmp_path: Path) -> None:
    add(book, tmp_path / "r.csv", GITHUB + '"ada@example.org","ada-love","18","Ada"\n"x@example.org","love","19","X"\n')
    add(book, tmp_path / "t.csv", "Name,GitHub,ID,Team\nKim,kimk,7,Red Ants\nLin,lin,8,Red Ants\n")
    found = book.whose(["02-ring-ada-love", "02-ring-hopper", "ring-red-ants", "ring-7", "02-ring-nobody"])
    assert found.people == {"02-ring-ada-love": "Ada", "02-ring-hopper": "Grace Hopper", "ring-red-ants": "Kim"}
    assert found.unknown == ("ring-7", "02-ring-nobody")  # a number is nobody's login
    assert book.shared_by(["ring-red-ants"]) == {"ring-red-ants": ["Kim", "Lin"]}


def test_gradescopes_grades_say_whose_a_submission_is_and_a_group_has_one(book: Gradebook, tmp_path: Path) -> None:
    add(book, tmp_path / "r.csv", GRADESCOPE + "Grace,Hopper,s2,grace@example.org,Student,A\n")
    head = "First Name,Last Name,SID,Email,Sections,Total Score,Status,Submission ID,Submission Time\n"
    rows = "Ada,Lovelace,s1,ada@example.org,A,,Graded,301,2026-12-01 16:20:00 +0100\n"
    add(book, tmp_path / "g.csv", head + rows + rows.replace("Ada,Lovelace,s1,ada", "Grace,Hopper,s2,grace"))
    assert sorted(book.people()) == ["Ada Lovelace", "Grace Hopper"]
    assert book.record([file_of("submission_301")]).new_attempts == 2
    assert [grade.score for grade in book.grades(LESSON)] == [12, 12]
    add(book, tmp_path / "g.csv", head + rows.replace("301", "302"))  # the next lab is Ada's alone
    assert book.shared_by(["submission_302"]) == {"submission_302": ["Ada Lovelace"]}


def test_adjusting_works_without_an_attempt_and_nobody_is_an_error(book: Gradebook, tmp_path: Path) -> None:
    add(book, tmp_path / "roster.csv", CANVAS)
    book.adjust(LESSON, "Linus T.", 7, "an oral exam")
    assert [(grade.student, grade.score) for grade in book.grades(LESSON) if grade.score] == [("Linus T.", 7)]
    book.adjust("ddp", "Linus T.", 50, "a paper")  # nobody handed in a file: it counts of the lesson's full marks
    paper = {"ddp": book.grades("ddp")}
    assert {each.student: each.percent for each in course_totals(paper, {"ddp": 1})}["Linus T."] == 50
    for wrong in (
        lambda: book.adjust(LESSON, "Linsu T.", 1, "x"),
        lambda: book.set_deadline(LESSON, Lateness(DUE), "Linsu T."),
    ):
        with pytest.raises(ConfigError, match=r"there is no 'Linsu T.' in this gradebook; it has Linus T."):
            wrong()


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "form",
    [
        CANVAS.splitlines()[0] + '\n{0},1,s1,x@x.org,,\n',
        'Identifier,Full name,Email address\nParticipant 1,{0},x@x.org\n',
        'Name,SID,Email,Role\n{0},s1,x@x.org,Student\n',
        '"identifier","github_username","github_id","name"\nx@x.org,x,17,{0}\n',
        'Name,Email\n{0},x@x.org\n',
    ],
    ids=["Canvas", "Moodle", "Gradescope", "GitHub", "a table"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Lovelace, Ada", "Ada Lovelace"),
        ("van Rossum,Guido M.", "Guido M. van Rossum"),
        ("John Smith, Jr.", "John Smith, Jr."),
        ("King, Jr., Martin", "King, Jr., Martin"),
        ("Ada Lovelace", "Ada Lovelace"),
        ("Lovelace,", "Lovelace,"),
    ],
)
def test_a_name_is_shown_first_name_first_whatever_the_file_writes(
    form: str, written: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "roster.csv"
    path.write_text(form.format(f'"{written}"'), encoding="utf-8")
    assert [each.name for each in read_roster(path)] == [name]


def test_a_file_that_is_no_roster_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match=r"is not a roster.*columns are a, b"):
        read_roster(tmp_path / "x.csv")


@pytest.mark.in_turn
def test_from_roster_to_sheets_on_the_command_line(tmp_path: Path) -> None:
    ring = ExerciseResult(Exercise("ring", "Ring", ("f",), 12, 1, 1, 1), "passed")
    late = "lovelaceada_LATE_12345_67890_02_ring_all_reduce-1"
    for name in (late, "ghost"):
        told = result_json(StudentResult(name, "", (ring,), submission_hash=name, course_hash="c"), LESSON)
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "result.json").write_text(json.dumps(told))
    (tmp_path / "canvas.csv").write_text(CANVAS)
    (tmp_path / "moodle.csv").write_text(MOODLE)
    times = [{"user_id": 12345, "submitted_at": "2026-12-03T08:00:00Z"}]
    (tmp_path / "times.json").write_text(json.dumps(times))

    def labkit(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, [*words, "--book", str(tmp_path / "book.db")])
        assert done.exit_code == code, done.output
        return done.output

    assert "3 new, 0 known before" in labkit("roster", "import", str(tmp_path / "canvas.csv"))
    assert "0 new, 2 known before" in labkit("roster", "import", str(tmp_path / "moodle.csv"))
    assert "3 people" in labkit("roster", "show")
    record = ("gradebook", "record", str(tmp_path / "out"), "--handed-in", str(tmp_path / "times.json"))
    assert "ghost is not in the roster" in labkit(*record, code=1)
    assert "Grace Hopper  grace@example.org" in labkit("gradebook", "missing", "--lesson", "02")
    labkit("gradebook", "adjust", "linus@example.org", "3", "--lesson", "02", "--reason", "an oral")
    out = str(tmp_path / "filled.csv")
    said = labkit(
        "gradebook", "export", out, "--lesson", "02", "--canvas", str(tmp_path / "canvas.csv"), "--column", "02"
    )
    assert "2 of 3 grades" in said
    assert '"Lovelace, Ada",12345,s1,ada@example.org,Tuesday,12' in (tmp_path / "filled.csv").read_text()
    assert '"Hopper, Grace",12346,s2,grace@example.org,Tuesday,\n' in (tmp_path / "filled.csv").read_text()
    said = labkit("gradebook", "export", out, "--lesson", "02", "--moodle", str(tmp_path / "moodle.csv"), code=1)
    assert "Ada Lovelace has 12, the sheet allows at most 10" in said and "Linus T. has a grade and no row" in said
