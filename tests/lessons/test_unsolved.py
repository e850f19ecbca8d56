"""An exercise nobody has solved ends no notebook: what needs it says so, all else runs; lent, everything runs."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from labkit.checks.notebook import check
from labkit.checks.rooms import exercises
from labkit.lessons.catching_up import write_pack
from labkit.lessons.lending import lend
from labkit.lessons.lesson import CODE_TASKS, Cell, Lesson
from labkit.lessons.source import load
from labkit.lessons.student import student_cells, student_notebook, student_text
from labkit.lessons.unsolved import Guard, Need
from tests.checks.lesson_cells import lesson, run_cell, slug_of

ROOT = Path(__file__).parents[2]
LESSONS = [path.stem[:2] for path in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))]
EXERCISES = [(number, each) for number in LESSONS for each in exercises(slug_of(number))]
FIXTURE = Path(__file__).parent / "fixtures" / "03_mean_over_ranks.py"
STUB = 'def ring_plan(n):\n    raise NotImplementedError("Exercise 2.3: Ring plan")\n'


def guard(*cells: str) -> Guard:
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        run_cell(cell, names)
    return Guard(names)


def needed(by: Guard, cell: str) -> list[Need]:
    return sorted(by.needs(ast.parse(cell)))


RING_PLAN = [Need("2.3", "ring_plan")]


@pytest.mark.parametrize(
    "cell",
    [
        "ring_plan(4)",
        "def use():\n    return ring_plan(4)\n\nuse()",
        "plans = {n: ring_plan(n) for n in (2, 3)}",
        "import labkit\nlabkit.run(ring_plan, 4, on=labkit.virtual(4))",
        "helper(4)",
        "list(map(lambda n: helper(n), (2, 3)))",
        "Runner().go()",
        "TABLE['ring'](4)",
        "rings = {'mine': partial(ring_plan)}\nplans = {name: each(4) for name, each in rings.items()}",
        "rings = [ring_plan]\nboth = rings\nboth[0](4)",
    ],
)
def test_a_cell_that_reaches_a_stub_needs_it(cell: str) -> None:
    helper = "def helper(n):\n    return [ring_plan(n)]\n\nclass Runner:\n    def go(self):\n        return helper(3)\n"
    assert needed(guard(STUB, helper, "TABLE = {'ring': helper}"), cell) == RING_PLAN


@pytest.mark.parametrize(
    "cell",
    [
        "1 + 1",
        "def use():\n    return ring_plan(4)",
        'labkit.check("ring_plan", ring_plan)',
        'labkit.hint("ring_plan")',
        "def ring_plan(n):\n    return n\n\nring_plan(4)",
        "other.ring_plan",
        "TABLE = {'ring': ring_plan, 'tree': [partial(ring_plan, 3)]}",
        "rings = [ring_plan]\nrings = [len]\nrings[0]('abcd')",
    ],
)
def test_a_cell_that_only_names_it_runs(cell: str) -> None:
    assert needed(guard(STUB, "other = 3"), cell) == []


def test_what_a_cell_would_have_made_waits_until_something_makes_it() -> None:
    by = guard(STUB)
    assert needed(by, "plan = ring_plan(4)") == RING_PLAN
    assert needed(by, "length = len(plan)") == RING_PLAN
    assert needed(by, "print(length)") == RING_PLAN
    assert needed(by, "plan = []\nprint(plan)") == []
    assert needed(by, "print(plan)") == []
    assert needed(by, "for name in (1, 2):\n    plan = ring_plan(name)") == RING_PLAN
    assert needed(by, "print([name for name in (1, 2)])\nfor name in (1, 2):\n    print(name)") == []
    by.namespace["ring_plan"] = len
    assert needed(by, "length = ring_plan('abcd')") == []
    assert needed(by, "print(length)") == []


def test_what_a_waiting_cell_defines_is_there() -> None:
    by = guard(STUB)
    tree = by.visit(
        ast.parse(
            "import math\nsize = len(ring_plan(4))\n\ndef use(n):\n    return n\n\ndef late(n=size):\n    return n"
        )
    )
    assert [type(each).__name__ for each in tree.body] == ["Import", "FunctionDef", "Expr"]
    assert needed(by, "use(3) + math.pi") == []
    assert needed(by, "late()") == RING_PLAN
    assert needed(by, "def again(n: late):\n    return n") == RING_PLAN


def test_methods_left_to_write_are_stubs_too() -> None:
    by = guard('class Plan:\n    def run(self):\n        raise NotImplementedError("Exercise 2.4: Run")\n')
    assert needed(by, "Plan()") == [Need("2.4", "Plan")]


def test_the_cell_prints_what_it_needs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_cell(ast.unparse(guard(STUB).visit(ast.parse("ring_plan(4)"))), {})
    assert capsys.readouterr().out == (
        'This cell needs ring_plan (Exercise 2.3): write it, ask for a hint: labkit.hint("ring_plan"), or take it on '
        'loan: labkit.lend("ring_plan").\nThen run this cell again. Everything that does not need it runs.\n'
    )


class TestWhereNothingIsLent:
    """A student release: no solutions, perhaps a pack."""

    @pytest.fixture(autouse=True)
    def release(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("labkit.lessons.lending.brought_course", lambda: tmp_path)
        (tmp_path / "02_ring_all_reduce.ipynb").write_text(student_text(lesson("02")), encoding="utf-8")
        return tmp_path

    def test_a_cell_says_to_ask_for_the_pack(self, capsys: pytest.CaptureFixture[str]) -> None:
        run_cell(ast.unparse(guard(STUB).visit(ast.parse("ring_plan(4)"))), {})
        assert "or ask for the class's pack." in capsys.readouterr().out

    def test_lending_says_so(self) -> None:
        assert "In a class, ask for the pack" in lend("ring_plan", {}).text

    def test_the_pack_lends(self, release: Path) -> None:
        write_pack("02", release / "02.pack.json", ROOT)
        names: dict[str, Any] = {"__name__": "__main__"}
        for cell in lesson("02").cells:
            if cell.role == "given" or cell.is_code_exercise:
                run_cell(cell.student_source, names)
        assert "is lent" in lend("ring_plan", names).text
        assert names["ring_plan"](0, 4)


def test_what_is_lent_earns_nothing() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    run_cell("import torch\nimport torch.distributed as dist\n", names)
    assert "It earns no points while it is lent" in lend("average", names).text
    assert check("average", names["average"]).problem.startswith("average is lent")


def test_what_an_answer_uses_of_another_answer_comes_along() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in lesson("09").cells:
        if cell.role in ("given", *CODE_TASKS):
            run_cell(cell.student_source, names)
    own = names["one_f_one_b"]
    assert "is lent" in lend("zero_bubble", names).text
    assert names["zero_bubble"](1, 4, 8), "it stands on another exercise's answer"
    assert names["one_f_one_b"] is own, "what was not asked for stays the learner's"


def test_after_a_restart_it_says_to_run_the_cells_above() -> None:
    assert "Run them first, then this one again" in lend("ring_plan", {"__name__": "__main__"}).text


def test_nothing_is_lent_for_a_misspelt_name() -> None:
    assert "nothing to lend for ring_plam" in lend("ring_plam", {}).text
    assert "in quotes" in lend(len, {}).text  # type: ignore[arg-type]


def definitions_of(cell: Cell, *, solved: bool, names: dict[str, Any]) -> None:
    """Run what defines and changes nothing else; what a statement would bind is then something."""
    source = cell.source if solved else cell.student_source
    if cell.role in ("given", *CODE_TASKS):
        run_cell(source, names)
        return
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            run_cell(ast.unparse(statement), names)
        else:
            bound = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
            names |= {each.id: object() for each in bound if isinstance(each.ctx, ast.Store)}


def waiting_cells(of: Lesson, unsolved: set[str], lent: bool = False) -> dict[str, set[str]]:
    """Return which cells of a notebook say that they need something, and what, by cell id."""
    by = guard()
    found: dict[str, set[str]] = {}
    provided = {name: each.id for each in of.exercises for name in each.provides}
    for cell in student_cells(of):
        if cell.kind != "code" or cell.source.startswith("%"):
            continue
        is_stub = cell.is_code_exercise and cell.exercise in unsolved
        tree = ast.parse(cell.student_source if is_stub else cell.source)
        if needs := by.needs(tree):
            found[cell.id] = {provided[need.name] for need in needs}
        definitions_of(cell, solved=not is_stub, names=by.namespace)
        for name in by.waiting:
            by.namespace.pop(name, None)
        if is_stub and lent:
            assert "is lent" in lend(str(cell.exercise), by.namespace).text
    return found


@pytest.mark.in_turn
@pytest.mark.parametrize(("number", "exercise"), EXERCISES[:: len(EXERCISES) // 8])
def test_only_what_needs_an_exercise_waits_for_it(number: str, exercise: str) -> None:
    only_dependent_cells_wait(number, exercise)


@pytest.mark.long
@pytest.mark.parametrize(("number", "exercise"), EXERCISES)
def test_only_what_needs_any_exercise_waits_for_it(number: str, exercise: str) -> None:
    only_dependent_cells_wait(number, exercise)


def only_dependent_cells_wait(number: str, exercise: str) -> None:
    of = lesson(number)
    waiting = waiting_cells(of, {exercise})
    assert all(each == {exercise} for each in waiting.values())
    roles = {cell.id: cell.role for cell in of.cells}
    assert not {roles[each] for each in waiting} & {"given", "check", "predict", *CODE_TASKS}
    assert waiting_cells(of, {exercise}, lent=True) == {}


@pytest.mark.in_turn
@pytest.mark.parametrize("number", LESSONS)
def test_a_notebook_as_handed_out_waits_for_no_cell_that_another_needs(number: str) -> None:
    of = lesson(number)
    together = waiting_cells(of, {each.id for each in of.exercises})
    assert waiting_cells(of, set()) == {}
    assert all(slugs for slugs in together.values())


def outputs(notebook: Any, folder: Path) -> list[Any]:
    """Return what the cells of a notebook put out, run in a kernel of this Python."""
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def with_loans(notebook: Any) -> Any:
    """Return the notebook with a loan below each exercise."""
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        if not set(CODE_TASKS).isdisjoint(cell.metadata.get("tags", ())):
            loan = f"import labkit\nlabkit.lend({cell.metadata.labkit.exercise!r})"
            cells.append(nbformat.v4.new_code_cell(loan))  # type: ignore[no-untyped-call]
    notebook.cells = cells
    return notebook


@pytest.mark.in_turn
def test_a_notebook_as_handed_out_runs_to_its_end(tmp_path: Path) -> None:
    found = outputs(student_notebook(load(FIXTURE)), tmp_path)
    assert not [each for each in found if each.output_type == "error"]
    assert sum("This cell needs mean (Exercise 3.1)" in str(each) for each in found) == 2


@pytest.mark.long
@pytest.mark.parametrize("number", LESSONS)
def test_a_lesson_as_handed_out_runs_to_its_end(number: str) -> None:
    found = outputs(student_notebook(lesson(number)), ROOT / "notebooks")
    assert [each.evalue for each in found if each.output_type == "error"] == []


@pytest.mark.long
@pytest.mark.parametrize("number", LESSONS)
def test_a_lesson_of_which_all_is_lent_runs_to_its_end(number: str) -> None:
    found = outputs(with_loans(student_notebook(lesson(number))), ROOT / "notebooks")
    assert [each.evalue for each in found if each.output_type == "error"] == []
    assert not any("This cell needs" in str(each) for each in found)
