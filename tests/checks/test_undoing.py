"""Where nothing names a mistake, single slips are undone, and the line where that is enough is told."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import labkit
from labkit.checks import notebook
from labkit.checks.case import Failure
from labkit.checks.exercise import functions_for
from labkit.checks.outcome import CaseOutcome
from labkit.checks.rooms import find
from labkit.checks.undoing import told
from labkit.checks.undoing.changes import MOST, changes
from labkit.checks.verdict import PLAIN_ERROR, Verdict
from tests.checks.lesson_cells import answers, namespace, run_cell, slug_of
from tests.linux import forks

RIGHT = '''
def exposed_seconds(computing, takes):
    """Return how long buckets still travel after the last backward."""
    at, now, done = 0, 0.0, 0.0
    while at < len(takes):
        now += computing[at]
        done = max(now, done) + takes[at]
        at += 1
    return done - now
'''


SECONDS = told.SECONDS


@pytest.fixture(autouse=True)
def nothing_kept_and_time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "_told", {})
    monkeypatch.setattr(told, "SECONDS", 120.0)  # on a busy machine everything takes longer


def _said(source: str, names: dict[str, Any] | None = None, slug: str = "exposed_gradients", got: Any = ()) -> str:
    """Return what is said of an answer that fails the first case for a reason without a name."""
    exercise, names = find(slug), {"__name__": "__main__"} if names is None else names
    run_cell(source, names)
    outcome = CaseOutcome(exercise.visible[0], Verdict(False, "It differs."), got=got)
    return told.undone(exercise, outcome, functions_for(exercise, names))


def _found(*sentences: str) -> Any:
    def found(*_: object) -> Sequence[str]:
        return list(sentences)

    return found


SLIPS = {
    "comparison": ("a < b", "a <= b"),
    "operator": ("x = a * b", "x = a + b"),
    "augmented": ("x -= a", "x += a"),
    "plain assignment": ("x = a", "x += a"),
    "number": ("x = a[2]", "x = a[1]"),
    "index": ("x = a[b]", "x = a[b - 1]"),
    "bound": ("x = a[:b]", "x = a[:b + 1]"),
    "range": ("x = range(a)", "x = range(a + 1)"),
    "sides": ("x = a / b", "x = b / a"),
    "and": ("x = a and b", "x = a or b"),
    "not": ("x = 1 if not a else 2", "x = 1 if a else 2"),
    "condition": ("if a:\n        x = 1", "if not a:\n        x = 1"),
    "function": ("x = min(a, b)", "x = max(a, b)"),
    "keyword": ("x = f(src=a)", "x = f(dst=a)"),
    "arguments": ("x = f(a, b)", "x = f(b, a)"),
    "values": ("x, y = a, b", "x, y = b, a"),
    "flag": ("x = f(a, True)", "x = f(a, False)"),
    "sign": ("x = -a", "x = a"),
    "variable": ("x = a", "x = b"),
    "call": ("x = list(a)", "x = a"),
    "method": ("x = a", "x = a.clone()"),
    "part": ("x = a + b", "x = a"),
    "order": ("x = a\n    b = x", "b = x\n    x = a"),
    "too much": ("for x in a:\n        b += x\n        break", "for x in a:\n        b += x"),
    "outside": ("for x in a:\n        b += x\n    b /= 2", "for x in a:\n        b += x\n        b /= 2"),
    "inside": ("for x in a:\n        b += x\n        b /= 2", "for x in a:\n        b += x\n    b /= 2"),
}


@pytest.mark.parametrize(("slip", "right"), SLIPS.values(), ids=SLIPS)
def test_a_slip_is_among_what_is_undone(slip: str, right: str) -> None:
    function = "def answer(a, b, f, x=0, y=0):\n    {}\n    return x, y, b\n"
    tree = ast.parse(function.format(slip)).body
    wanted, before, found = ast.unparse(ast.parse(function.format(right))), ast.unparse(tree[0]), []
    for each in changes(tree):
        with each.made():
            found.append(ast.unparse(tree[0]))
    assert wanted in found
    assert ast.unparse(tree[0]) == before


def test_a_value_that_is_not_returned_is_returned() -> None:
    tree = ast.parse("def answer(a):\n    x = a + 1\n    return\n").body
    found = []
    for each in changes(tree):
        with each.made():
            found.append(ast.unparse(tree[0]))
    assert "def answer(a):\n    x = a + 1\n    return x" in found


def test_types_texts_and_errors_are_left_alone_and_there_is_a_limit() -> None:
    tree = ast.parse(
        "@f(1)\ndef answer(a: list[1]) -> t[2]:\n    'text 3'\n    if a:\n        raise ValueError(4)\n"
        "    return f'{a + 5}'\n"
    ).body
    lines = {each.line for each in changes(tree)}
    assert lines == {4, 6}
    assert not [each for each in changes(tree) if each.line == 6 and "operator" in each.says]
    many = "\n".join(f"    x = a + {number} * b - c" for number in range(12))
    assert len(changes(ast.parse(f"def answer(a, b, c):\n{many}\n").body)) == MOST


@forks
@pytest.mark.in_turn
def test_the_line_and_the_kind_are_told_and_not_the_answer() -> None:
    said = _said(RIGHT.replace("max(now, done) + takes", "max(now, done) - takes"))
    assert said == (
        "One change is enough: all 4 cases pass with another operator in line 7, `done = max(now, done) - takes[at]`."
    )
    assert "max(now, done) + takes" not in said


@forks
@pytest.mark.in_turn
def test_two_lines_are_told_where_either_is_enough_and_they_are_the_same_every_time() -> None:
    source = RIGHT.replace("return done - now", "late = 1.0\n    return done - now + late * 1.0")
    said = _said(source)
    assert said == (
        "One change is enough: all 4 cases pass with another operator in line 10, `return done - now + late * 1.0`. "
        "They also pass with another number in line 9, `late = 1.0`."
    )
    told._told.clear()
    assert _said(source) == said


@forks
@pytest.mark.in_turn
def test_a_change_that_never_ends_is_given_up() -> None:
    """`at += 1` with another operator never ends, and comes before the number that is wrong."""
    said = _said(RIGHT.replace("return done - now", "return (done - now) * 3"))
    assert "with another operator in line 9" not in said
    assert "with another number in line 9, `return (done - now) * 3`" in said


@forks
@pytest.mark.in_turn
def test_an_answer_that_never_ends_is_changed_without_waiting_for_it() -> None:
    source = RIGHT.replace("    at, now", "    while takes is not None:\n        pass\n    at, now")
    said = _said(source, got=Failure("timeout", 0, "It did not finish."))
    assert (
        said == "One change is enough: all 4 cases pass with another comparison in line 4, `while takes is not None:`."
    )


@forks
@pytest.mark.in_turn
def test_of_an_answer_that_passes_on_virtual_ranks_nothing_is_told() -> None:
    """What fails on a slow machine or on processes alone is no slip: every change that does no harm would be enough."""
    assert _said(RIGHT) == _said(RIGHT, got=Failure("timeout", 0, "It did not finish.")) == ""


@forks
@pytest.mark.in_turn
def test_nothing_of_the_notebook_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__", "seen": []}
    source = RIGHT.replace("return done - now", "seen.append(1)\n    open('mine', 'w').close()\n    return now - done")
    said = _said(source, names)
    assert "line 11, `return now - done`" in said
    assert names["seen"] == [] and not Path("mine").exists()
    assert names["exposed_seconds"]([1.0], [1.0]) == -1.0


@forks
@pytest.mark.in_turn
def test_a_slip_on_ranks_is_looked_for_on_virtual_ones() -> None:
    source = answers(slug_of("02"))["naive_all_reduce"]
    line = 1 + source.splitlines().index("            tensor += incoming")
    said = _said(source.replace("tensor += incoming", "tensor -= incoming"), namespace(), slug="naive_all_reduce")
    assert said.startswith("Tried on virtual ranks, one change is enough: the first ")
    assert said.endswith(f"cases pass with another assignment in line {line}, `tensor -= incoming`.")


@forks
@pytest.mark.in_turn
def test_a_buffer_that_is_read_before_its_message_came_is_told_in_place_of_a_change() -> None:
    """On processes such an answer has other numbers each time, and no mistake gives them."""
    source = answers(slug_of("02"))["naive_all_reduce"]
    source = source.replace("dist.recv(incoming, src=peer)", "work = dist.irecv(incoming, src=peer)")
    early = source.replace("tensor += incoming", "tensor += incoming\n            work.wait()")
    line = 1 + early.splitlines().index("            tensor += incoming")
    said = _said(early, namespace(), slug="naive_all_reduce")
    assert said.startswith("Seen on virtual ranks: Rank 0 read the buffer of its irecv")
    assert f"line {line}, before wait() returned. Wait first: " in said
    waits = source.replace("tensor += incoming", "work.wait()\n            tensor -= incoming")
    assert "with another assignment" in _said(waits, namespace(), slug="naive_all_reduce")


def _finds_and_breaks(exercise_id: str, functions: object, texts: object, failed: int, ends: bool, file: str) -> None:
    Path(file).write_text('"with a change"\n', encoding="utf-8")
    raise RuntimeError(exercise_id)


@forks
@pytest.mark.in_turn
def test_what_was_found_before_the_process_ended_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "try_changes", _finds_and_breaks)
    assert _said(RIGHT) == "One change is enough: all 4 cases pass with a change."


def test_the_time_it_takes_is_what_texts_say() -> None:
    root = Path(__file__).parents[2]
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        assert f"for at most {SECONDS:.0f} s" in " ".join((root / name).read_text(encoding="utf-8").split())


@forks
def test_what_has_a_name_or_a_line_or_is_a_design_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "_found", _found("with a change"))
    exercise, names = find("exposed_gradients"), {"__name__": "__main__"}
    run_cell(RIGHT, names)
    functions: Mapping[str, Any] = functions_for(exercise, names)

    def said(verdict: Verdict, **about: Any) -> str:
        return told.undone(exercise, CaseOutcome(exercise.visible[0], verdict, **about), functions)

    assert said(Verdict(False, "It differs.")) == "One change is enough: all 4 cases pass with a change."
    assert said(Verdict(False, "It differs.", hint="A name.", mistake="named")) == ""
    exercise = replace(exercise, general=frozenset({"many look like this"}))
    assert said(Verdict(False, "It differs.", hint="Either or.", mistake="many look like this")) != ""
    assert said(Verdict(False, "It raised.", mistake=PLAIN_ERROR), got=_error("line 3, in f:  1 / 0")) == ""
    assert said(Verdict(False, "It raised.", mistake=PLAIN_ERROR), got=_error("None of your lines")) != ""
    design = find("choose_plan")
    assert told.undone(design, CaseOutcome(design.visible[0], Verdict(False, "Too slow.")), functions) == ""


def _error(detail: str) -> Failure:
    return Failure("exception", 0, "It raised.", detail, "ZeroDivisionError")


@forks
def test_the_same_failure_is_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "_found", _found("with a change"))
    wrong = RIGHT.replace("return done", "return 0 * done")
    exercise, names = find("exposed_gradients"), {"__name__": "__main__"}
    run_cell(wrong, names)
    outcome = CaseOutcome(exercise.visible[0], Verdict(False, "It differs."), got=())
    first = told.undone(exercise, outcome, functions_for(exercise, names))
    monkeypatch.setattr(told, "_found", _found())
    assert told.undone(exercise, outcome, functions_for(exercise, names)) == first != ""


@forks
@pytest.mark.in_turn
def test_a_text_that_is_not_the_function_s_any_more_is_not_changed() -> None:
    exercise, names = find("exposed_gradients"), {"__name__": "__main__"}
    run_cell(RIGHT.replace("return done - now", "return done - now + 1.0"), names)
    functions: Mapping[str, Any] = functions_for(exercise, names)
    file = functions["exposed_seconds"].__code__.co_filename
    text = RIGHT.replace("return done - now", "return done - now + 2.0")
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    outcome = CaseOutcome(exercise.visible[0], Verdict(False, "It differs."), got=())
    assert told.undone(exercise, outcome, functions) == ""


def test_a_check_shows_it_under_what_has_no_name_and_asks_only_when_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def undone(*about: object) -> str:
        asked.append(about)
        return "One change is enough."

    monkeypatch.setattr(notebook, "undone", undone)
    names: dict[str, Any] = {"__name__": "__main__"}
    run_cell(RIGHT, names)

    def shown(verdict: Verdict) -> notebook.CheckResult:
        outcomes = [CaseOutcome(case, verdict, got=()) for case in find("exposed_gradients").visible]
        monkeypatch.setattr(notebook, "run_visible", lambda *about, **more: outcomes)
        return labkit.check("exposed_gradients", names["exposed_seconds"])

    result = shown(Verdict(False, "It differs."))
    assert not result.passed and not asked
    assert "        hint: One change is enough." in repr(result)
    asked.clear()
    assert "hint" not in repr(shown(Verdict(True)))
    assert not asked


def test_only_a_check_in_a_notebook_does_it() -> None:
    """Graders run hidden cases 300 times over, and tell nothing of them."""
    package = Path(labkit.__file__).parent
    asking = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.parent.name != "undoing" and "labkit.checks.undoing" in path.read_text(encoding="utf-8")
    ]
    assert asking == ["checks/notebook.py"]
