"""`labkit grade` end to end on a class of the small lesson: real workers, kernels and ranks."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest
import torch

from grading.conftest import SANDBOX
from grading.small_lesson import POINTS, RIGHT, write_submission
from labkit.checks.hidden import hidden_cases
from labkit.checks.rooms import exercises, own_package
from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.class_key import class_key, key_file
from labkit.grading.course import Course
from labkit.grading.grade import _first_to_read, grade
from labkit.grading.limits import Limits
from labkit.grading.notebook.rebuild import rebuild
from labkit.grading.own_folders import own_prefix
from labkit.grading.reports.class_report import ClassReport
from labkit.grading.reports.results import GradedExercise, GradedSubmission
from labkit.grading.sandbox import bubblewrap
from labkit.grading.score import submission_secret
from labkit.grading.submission import Submission, read_submission

pytestmark = pytest.mark.in_turn

LIMITS = Limits(cell_seconds=60.0, notebook_seconds=120.0, case_seconds=10.0, retry_seconds=20.0)

SQUARED = {"double": "def double(x):\n    return x * x\n"}
ALL_SEND = {
    **RIGHT,
    "shift": (
        "def shift(x):\n"
        "    rank, n = dist.get_rank(), dist.get_world_size()\n"
        "    dist.send(x, (rank + 1) % n)\n"
        "    out = torch.empty_like(x)\n"
        "    dist.recv(out, (rank - 1) % n)\n"
        "    return out\n"
    ),
}
LIBRARY = {**RIGHT, "total": "def total(x):\n    dist.all_reduce(x)\n"}

SCORES = {"alice": 10, "bob": 0, "carol": 7, "dora": 5, "empty": 0, "nothing": 0, "stub": 0, "torn": 0}


def write_class(folder: Path) -> Path:
    write_submission(folder / "alice.ipynb", RIGHT)
    write_submission(folder / "bob.ipynb", SQUARED)
    write_submission(folder / "carol" / "90_small.ipynb", ALL_SEND)
    write_submission(folder / "dora.ipynb", LIBRARY)
    write_submission(folder / "stub.ipynb", {})
    (folder / "empty.ipynb").write_bytes(b"")
    (folder / "torn.ipynb").write_bytes((folder / "alice.ipynb").read_bytes()[:700])
    (folder / "nothing").mkdir()
    return folder


@pytest.fixture(scope="module")
def graded(course: Course, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClassReport, Path, Path]]:
    root = tmp_path_factory.mktemp("class")
    handed_in = write_class(root / "in")
    report = grade([handed_in], "90", root / "out", jobs=2, course=course.root, sandbox=SANDBOX, limits=LIMITS)
    yield report, handed_in, root / "out"


def told(out: Path, name: str) -> dict[str, Any]:
    content = json.loads((out / name / "result.json").read_text())
    assert isinstance(content, dict)
    return content


def test_each_submission_gets_exactly_its_score(graded: tuple[ClassReport, Path, Path]) -> None:
    report, _, out = graded
    assert {entry.name: entry.score for entry in report} == SCORES
    assert all(entry.max_score == 10 for entry in report)
    assert {path.name for path in out.iterdir()} == {
        *SCORES,
        "gradebook.csv",
        "class.html",
        "copies.html",
        ".cases.json",
    }
    assert all(
        {path.name for path in (out / name).iterdir()} == {"result.json", "feedback.html", "junit.xml", "details.json"}
        for name in SCORES
    )


def test_the_gradebook_has_a_line_for_each_student_in_order(graded: tuple[ClassReport, Path, Path]) -> None:
    with open(graded[2] / "gradebook.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["Student"] for row in rows] == sorted(SCORES)
    assert {row["Student"]: float(row["Score"]) for row in rows} == SCORES
    assert rows[2] | {"Problem": ""} == rows[2]
    assert [rows[2][number] for number in ("double", "shift", "total")] == ["2", "0", "5"]


def test_feedback_names_the_fault_and_the_hint_and_never_what_was_expected(
    graded: tuple[ClassReport, Path, Path],
) -> None:
    out = graded[2]
    told = "All of them are in a send, and none has got as far as a receive."
    assert told in (out / "carol" / "feedback.html").read_text()
    bob = (out / "bob" / "feedback.html").read_text()
    assert "You multiplied the number by itself." in bob and "not started" in bob
    assert "all_reduce of the library was called" in (out / "dora" / "feedback.html").read_text()
    for path in out.rglob("*.*"):
        assert "SECRET" not in path.read_text(), path


def test_feedback_shows_where_ranks_stood_and_no_report_holds_a_number_that_was_expected(
    graded: tuple[ClassReport, Path, Path], course: Course
) -> None:
    _, handed_in, out = graded
    key = class_key(key_file(os.environ))
    carol = (out / "carol" / "feedback.html").read_text()
    assert carol.count('<svg class="calls"') == 1 and "waits for rank 1" in carol
    assert "<svg" not in (out / "bob" / "feedback.html").read_text().split("shift Shift")[0]
    assert course.exercises is not None
    package = own_package(course.exercises.parent)
    known = exercises(course.slug, package)
    num_looked_for = 0
    for name in ("bob", "dora"):
        cells = read_submission(Submission(name, handed_in / f"{name}.ipynb")).cells
        secret = submission_secret(rebuild(cells, course.pristine).answers(), key)
        for number in POINTS:
            for case in hidden_cases(package, course.slug, number, secret):
                for answer in known[number].oracle(case):
                    values = torch.as_tensor(answer["y"]).flatten().tolist()
                    shown = {f"{value:g}" for value in values} | {str(value) for value in values}
                    num_looked_for += len(shown)
                    for path in [*(out / name).iterdir(), out / "gradebook.csv", *out.glob("class.html")]:
                        words = set(re.findall(r"[\d.e+]+", path.read_text()))
                        assert not {each for each in shown if len(each) > 3} & words, (path, number, case.name)
    assert num_looked_for > 50


def test_what_cannot_be_read_is_told_to_its_student_and_the_rest_are_graded(
    graded: tuple[ClassReport, Path, Path],
) -> None:
    out = graded[2]
    assert "The file is empty." in told(out, "empty")["output"]
    assert "cut off or damaged" in (out / "torn" / "feedback.html").read_text()
    assert "There is no notebook in what was handed in." in told(out, "nothing")["output"]
    assert {test["extra_data"]["state"] for test in told(out, "torn")["tests"]} == {"not_graded"}


def test_junit_can_be_read_and_adds_up(graded: tuple[ClassReport, Path, Path]) -> None:
    for name, score in SCORES.items():
        root = ElementTree.parse(graded[2] / name / "junit.xml").getroot()
        points = [
            float(each.get("value", "")) for each in root.iterfind(".//testcase/properties/property[@name='points']")
        ]
        assert sum(points) == score


def test_a_second_run_keeps_what_is_done_and_grades_what_changed(
    graded: tuple[ClassReport, Path, Path], course: Course, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(graded[1], tmp_path / "in")
    shutil.copytree(graded[2], tmp_path / "out")
    (tmp_path / "out" / "dora" / "result.json").write_text('{"score": 99')  # torn by a power cut
    write_submission(tmp_path / "in" / "empty.ipynb", {"double": RIGHT["double"]})
    before = (tmp_path / "out" / "alice" / "result.json").stat().st_mtime_ns
    report = grade([tmp_path / "in"], "90", tmp_path / "out", course=course.root, sandbox=SANDBOX, limits=LIMITS)
    assert {entry.name for entry in report if entry.graded_now} == {"dora", "empty"}
    assert {entry.name: entry.score for entry in report} == SCORES | {"empty": 2}
    assert (tmp_path / "out" / "alice" / "result.json").stat().st_mtime_ns == before


@pytest.mark.long
def test_the_same_submission_gets_a_byte_identical_result_apart_from_times(
    graded: tuple[ClassReport, Path, Path], course: Course, tmp_path: Path
) -> None:
    names = ["alice.ipynb", "bob.ipynb", "carol", "dora.ipynb"]
    grade(
        [graded[1] / name for name in names],
        "90",
        tmp_path / "out",
        jobs=1,
        course=course.root,
        sandbox=SANDBOX,
        limits=LIMITS,
    )

    def without_times(path: Path) -> str:
        return re.sub(r'"execution_time": [\d.]+', "", path.read_text())

    for name in ("alice", "bob", "carol", "dora"):
        for file in ("result.json", "junit.xml", "feedback.html"):
            assert without_times(tmp_path / "out" / name / file) == without_times(graded[2] / name / file)


@pytest.mark.long
def test_the_grader_killed_in_the_middle_leaves_no_process_and_goes_on_where_it_stopped(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it left in the folder of temporary files is removed by the next run, and nothing else there."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("a", "b", "c"):
        write_submission(tmp_path / "in" / f"{name}.ipynb", RIGHT)
    code = (
        "import sys; from labkit.grading.grade import grade; "
        f"grade([sys.argv[1]], '90', sys.argv[2], jobs=1, course=sys.argv[3], sandbox={SANDBOX!r})"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "in"), str(tmp_path / "out"), str(course.root)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | {"LABKIT_TEST_MARK": str(tmp_path)})
    started: dict[int, psutil.Process] = {}
    while not (tmp_path / "out" / "a" / "result.json").exists():
        assert process.poll() is None
        try:
            started |= {child.pid: child for child in psutil.Process(process.pid).children(recursive=True)}
        except psutil.NoSuchProcess:
            continue
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(list(started.values()), timeout=300)
    assert alive == []
    left = {path.name for path in temporary.iterdir()}
    assert any(f"_{process.pid}_" in name for name in left)
    in_use = Path(tempfile.mkdtemp(prefix=own_prefix("class")))
    report = grade([tmp_path / "in"], "90", tmp_path / "out", course=course.root, sandbox=SANDBOX, limits=LIMITS)
    assert [entry.score for entry in report] == [10, 10, 10]
    assert not next(iter(report)).graded_now
    now = sum(entry.graded_now for entry in report)
    said = capsys.readouterr().err
    assert 1 <= now <= 2 and f"{now} of 3 submissions graded in " in said
    full = report.entries[0].max_score
    assert f"median 10 of {full:g} points; the class on one page: {tmp_path}/out/class.html" in said
    assert f"  fewest points: a, 10 of {full:g}; the page: {tmp_path}/out/a/feedback.html" in said
    assert f"; results in {tmp_path}/out/\n" in said
    assert list(temporary.glob("lk-*")) == [in_use]


def test_mistakes_on_the_command_line_are_told_before_anything_starts(course: Course, tmp_path: Path) -> None:
    submission = write_submission(tmp_path / "a.ipynb", RIGHT)
    with pytest.raises(ConfigError, match=r"lesson '77' cannot be graded from .*the lesson's notebook in notebooks/"):
        grade([submission], "77", tmp_path / "out", course=course.root)
    with pytest.raises(ConfigError, match="--jobs 0 leaves nobody to grade"):
        grade([submission], "90", tmp_path / "out", course=course.root, jobs=0)
    with pytest.raises(ConfigError, match="sandbox 'docker' is not known; use bubblewrap or none"):
        grade([submission], "90", tmp_path / "out", course=course.root, sandbox="docker")
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        grade([submission], "90", tmp_path / "file", course=course.root, sandbox=SANDBOX)


def test_without_a_sandbox_it_is_said_what_that_means(
    graded: tuple[ClassReport, Path, Path], course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    grade([graded[1]], "90", graded[2], course=course.root, sandbox="none")
    said = capsys.readouterr().err
    assert "There is no sandbox: a submission's code runs with your rights." in said
    assert "8 of 8 are graded already" in said


def test_where_no_sandbox_can_be_had_grading_refuses_and_says_what_to_do(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = write_submission(tmp_path / "a.ipynb", RIGHT)
    monkeypatch.setattr(bubblewrap, "problem", lambda: "there is no bwrap; Debian, Ubuntu: apt install bubblewrap")
    with pytest.raises(EnvironmentProblem, match="apt install bubblewrap\n--sandbox none grades without a sandbox"):
        grade([submission], "90", tmp_path / "out", course=course.root)
    assert not (tmp_path / "out").exists()


def test_a_run_ends_with_whose_work_needs_a_look_and_why(tmp_path: Path) -> None:
    def handed_in(name: str, state: str, points: float = 0, problem: str = "") -> GradedSubmission:
        exercise = GradedExercise("e", points, 4, state, "T")
        return GradedSubmission(name, "01_x", "s", "c", (exercise,), problem)

    def said(*entries: GradedSubmission) -> str:
        return _first_to_read(ClassReport(entries, (), 1.0, tmp_path))

    good, fair, lost = handed_in("ada", "passed", 4), handed_in("bo", "passed", 2), handed_in("cy", "failed")
    torn, written = handed_in("di", "not_graded", problem="cut off"), handed_in("eve", "to_read")
    assert said(good, fair) == f"fewest points: bo, 2 of 4; the page: {tmp_path}/bo/feedback.html"
    assert said(good, lost, written) == "1 needs a look: cy (nothing works yet)"
    named = ClassReport((good, lost), (), 1.0, tmp_path, people={"cy": "Yu, Cy"})
    assert _first_to_read(named) == "1 needs a look: Yu, Cy (nothing works yet)"
    assert said(good, torn, lost) == "2 need a look: di (not graded), cy (nothing works yet)"
    many = said(*(handed_in(f"s{number}", "failed") for number in range(9)))
    assert many.startswith("9 need a look: s0 (nothing") and many.endswith("s4 (nothing works yet) and 4 more")


@pytest.mark.in_turn
def test_what_was_not_tried_because_time_was_up_says_what_takes_it(course: Course, tmp_path: Path) -> None:
    write_submission(tmp_path / "in" / "alice.ipynb", RIGHT)
    short = replace(LIMITS, probe_seconds=1e-9)
    grade(
        [tmp_path / "in"], "90", tmp_path / "out", course=course.root, sandbox=SANDBOX, limits=short, points_only=True
    )
    page = (tmp_path / "out" / "alice" / "feedback.html").read_text()
    assert "Not tried: the 1e-09 s for all cases were used up." in page and "Each case runs your cells anew" in page
