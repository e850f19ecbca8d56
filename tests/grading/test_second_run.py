"""No mistake is paid twice, and nothing but one bit comes out of the run with reference answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grading.conftest import SANDBOX
from grading.small_lesson import POINTS, RIGHT, notebook, write_course, write_submission
from grading.test_turns import could_begin
from labkit.grading import student
from labkit.grading.course import find_course
from labkit.grading.grade import grade
from labkit.grading.limits import Limits
from labkit.grading.sandbox.cgroup import Cgroup
from labkit.grading.score import CaseResult, ExerciseResult, StudentResult
from labkit.grading.second_run import FirstRun, stands_on, to_replace, with_references
from labkit.grading.setting import Setting
from labkit.grading.student import Grader
from labkit.grading.submission import Submission
from labkit.grading.turns import CASES, KERNELS, SECOND_RUN
from labkit.grading.workers.local_class import LocalClass
from labkit.lessons.manifest import Manifest, from_metadata

pytestmark = pytest.mark.in_turn

WRONG = {"double": "def double(x):\n    return x + 1\n"}
ON_DOUBLE = RIGHT["shift"].replace("return out", "return double(out) / 2")
MARKED = RIGHT["double"].replace("return", "# reference-answer-42\n    return")
LEAKS = (
    "import inspect\n" + ON_DOUBLE.replace("    return double(out) / 2\n", "")
    + "    if 'reference' in inspect.getsource(double):\n"
    "        print(inspect.getsource(double))\n"
    "        raise RuntimeError(inspect.getsource(double))\n"
    "    return out + 1\n"
)  # fmt: skip


def _course(folder: Path) -> Path:
    course = write_course(folder)
    for path, answers in ((course / "notebooks", {}), (course / "solutions", RIGHT | {"double": MARKED})):
        content = notebook(answers) if answers else notebook()
        needs: dict[str, list[str]] = {"shift": ["double"], "total": ["shift"]}
        for each in content["metadata"]["labkit"]["exercises"]:
            each["needs"] = needs.get(each["id"], [])
        path.mkdir(exist_ok=True)
        (path / "90_small.ipynb").write_text(json.dumps(content))
    return course


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, float], str]]:
    """Points and feedback of each submission."""
    folder = tmp_path_factory.mktemp("second")
    course, handed_in, out = _course(folder / "course"), folder / "in", folder / "out"
    for name, answers in {
        "stands": RIGHT | WRONG | {"shift": ON_DOUBLE},
        "wrong": RIGHT | WRONG | {"shift": ON_DOUBLE.replace("/ 2", "/ 3")},
        "leaks": RIGHT | WRONG | {"shift": LEAKS},
        "zz-once": RIGHT,
    }.items():
        write_submission(handed_in / f"{name}.ipynb", answers)
    send, together = LocalClass._send, []

    def noted(self: LocalClass, busy: Any, submission: Submission, asked: dict[str, str]) -> None:
        send(self, busy, submission, asked)
        together.append(sorted(each.op for each in self._workers if each.submission is not None))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalClass, "_send", noted)
        report = grade([handed_in], "90", out, jobs=2, course=course, points_only=True, sandbox=SANDBOX, progress=False)
    assert ["begin"] * 2 in together and ["go on"] * 2 in together
    assert together.count(["finish"]) == 3 and max(len(set(ops)) for ops in together) == 1
    pages = {entry.name: "".join(path.read_text() for path in (out / entry.name).iterdir()) for entry in report}
    written = {entry.name: (out / entry.name / "result.json").stat().st_mtime_ns for entry in report}
    assert min(written, key=written.__getitem__) == "zz-once", "a second run came before the last first run"
    return {entry.name: (entry.points, pages[entry.name]) for entry in report}


def test_second_runs_come_when_the_whole_class_has_had_its_first(
    graded: dict[str, tuple[dict[str, float], str]],
) -> None:
    """The fixture compares when reports were written: who is graded last and runs once has the first."""
    assert graded["zz-once"][0] == POINTS


def test_what_stands_on_a_mistake_keeps_its_points(graded: dict[str, tuple[dict[str, float], str]]) -> None:
    points, page = graded["stands"]
    assert points == {"double": 0.0, "shift": POINTS["shift"], "total": POINTS["total"]}
    assert "It needs 90.1 Double. So that no mistake costs points twice" in page
    assert "With your own it still fails" in page


@pytest.mark.long
def test_what_stands_on_something_that_is_not_done_keeps_its_points(tmp_path: Path) -> None:
    answers = {slug: source for slug, source in RIGHT.items() if slug != "double"} | {"shift": ON_DOUBLE}
    path = write_submission(tmp_path / "stub.ipynb", answers)
    course, out = _course(tmp_path / "course"), tmp_path / "out"
    (entry,) = grade([path], "90", out, jobs=1, course=course, points_only=True, sandbox=SANDBOX, progress=False)
    assert entry.points == {"double": 0.0, "shift": POINTS["shift"], "total": POINTS["total"]}


def test_a_mistake_of_its_own_costs_its_points(graded: dict[str, tuple[dict[str, float], str]]) -> None:
    points, page = graded["wrong"]
    assert points == {"double": 0.0, "shift": 0.0, "total": POINTS["total"]}
    assert "costs points twice" not in page


def test_a_hint_names_a_mistake_of_its_own_and_none_that_was_made_elsewhere(
    graded: dict[str, tuple[dict[str, float], str]],
) -> None:
    hint = "Rank 0 gets what the last rank had."
    assert hint in graded["wrong"][1]
    assert hint not in graded["stands"][1]


def test_no_word_of_the_run_with_reference_answers_comes_out(graded: dict[str, tuple[dict[str, float], str]]) -> None:
    points, page = graded["leaks"]
    assert points["shift"] == 0.0
    assert "reference-answer-42" not in page


@pytest.mark.long
def test_without_the_second_run_both_lose_their_points(tmp_path: Path) -> None:
    course = _course(tmp_path / "course")
    path = write_submission(tmp_path / "ada.ipynb", RIGHT | WRONG | {"shift": ON_DOUBLE})
    options: dict[str, Any] = {"points_only": True, "second_run": False, "progress": False}
    (entry,) = grade([path], "90", tmp_path / "out", jobs=1, course=course, sandbox=SANDBOX, **options)
    assert entry.points == {"double": 0.0, "shift": 0.0, "total": POINTS["total"]}


def test_it_begins_when_no_kernel_and_no_other_case_is_alive(
    grader: Callable[[Setting], Grader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs at the same time can be signalled to, so of these there is one at a time: here others try to begin."""
    course = find_course("90", _course(tmp_path / "course"))
    path = write_submission(tmp_path / "in" / "stands.ipynb", RIGHT | WRONG | {"shift": ON_DOUBLE})
    (tmp_path / "run").mkdir()
    seen: list[tuple[str, list[str]]] = []

    def noted(name: str) -> None:
        before = getattr(Grader, name)

        def beside(self: Grader, *args: Any) -> Any:
            seen.append((name, [of for of in (KERNELS, CASES, SECOND_RUN) if could_begin(tmp_path / "run", of)]))
            return before(self, *args)

        monkeypatch.setattr(Grader, name, beside)

    def dropped(folders: Sequence[Path]) -> None:
        assert Path("/usr") in folders and any(Path(student.__file__).is_relative_to(each) for each in folders)
        seen.append(("what it read is forgotten", []))

    monkeypatch.setattr(student, "forget_reads", dropped)
    monkeypatch.setattr(Cgroup, "forget", lambda self: seen.append(("its control group forgets", [])))
    for name in ("_execute", "_probe", "_again", "_end_the_rest"):
        noted(name)
    alone = tmp_path / "run" / "alone"
    alone.touch()
    setting = Setting(course, tmp_path / "out", b"k" * 32, Limits(), alone, sandbox=SANDBOX)
    result = grader(setting).grade(Submission("stands", path), lambda words: None)
    assert seen == [
        ("_execute", [KERNELS]),
        ("_end_the_rest", [KERNELS]),  # its kernel and all that it started end before a case can begin
        ("_probe", [CASES]),
        ("_end_the_rest", [CASES]),
        *[("_again", [])] * 3,
        ("its control group forgets", []),
        ("what it read is forgotten", []),
        ("_end_the_rest", []),
    ]
    assert [each.state for each in result.exercises] == ["failed", "passed", "passed"]


@pytest.mark.long
def test_what_a_lost_worker_had_not_finished_is_graded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_out, killed = LocalClass._hand_out, list[Any]()

    def once_killed(self: LocalClass) -> None:
        if self._unfinished and not killed:
            killed.append(self._unfinished[0][0].worker.process)
            killed[0].kill()
        else:
            hand_out(self)

    monkeypatch.setattr(LocalClass, "_hand_out", once_killed)
    course, out = _course(tmp_path / "course"), tmp_path / "out"
    path = write_submission(tmp_path / "stands.ipynb", RIGHT | WRONG | {"shift": ON_DOUBLE})
    (entry,) = grade([path], "90", out, jobs=1, course=course, points_only=True, sandbox=SANDBOX, progress=False)
    assert killed and entry.points == {"double": 0.0, "shift": POINTS["shift"], "total": POINTS["total"]}


def _manifest() -> Manifest:
    content = notebook()["metadata"]
    for each, needs in zip(content["labkit"]["exercises"], ([], ["double"], ["shift"]), strict=True):
        each["needs"] = needs
    return from_metadata(content, "here")


def test_references_are_given_for_what_failed_and_is_needed_however_far_away() -> None:
    manifest, references = _manifest(), {"double": "d", "shift": "s"}
    assert stands_on(manifest, "total") == {"double", "shift"} and stands_on(manifest, "double") == set()
    failed = (CaseResult("a", False),)
    states = {"double": "failed", "shift": "passed", "total": "failed"}
    results = [ExerciseResult(each, states[each.id], failed) for each in manifest.exercises]  # type: ignore[arg-type]
    assert to_replace(manifest, results[2], results, references) == ("double",)
    assert to_replace(manifest, results[0], results, references) == ()
    assert to_replace(manifest, results[1], results, references) == ()
    stub = [ExerciseResult(manifest.exercise("double"), "not_done", ()), *results[1:]]
    assert to_replace(manifest, results[2], stub, references) == ("double",)
    assert to_replace(manifest, results[2], results, {}) == ()
    kinds = (("double", "needed"), ("double", "exercise"), ("shift", "exercise"))
    cells = [{"name": name, "kind": kind, "source": "mine"} for name, kind in kinds]
    assert [cell["source"] for cell in with_references(cells, references, ("double",))] == ["mine", "d", "mine"]


def test_no_time_of_the_second_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[StudentResult] = []
    monkeypatch.setattr(student, "write_reports", lambda result, course, out: told.append(result))
    slow = StudentResult("ada", "cannot be read", (), seconds=99.0)
    grader = SimpleNamespace(setting=SimpleNamespace(course=None, out=None))
    Grader._concluded(grader, FirstRun(slow, None, 1.5, 0.5), ())  # type: ignore[arg-type]
    assert [each.seconds for each in told] == [1.5]
