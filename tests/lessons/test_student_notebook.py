"""The learner's notebook: answers cut where the markers stand, everything else as written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

from labkit.lessons import manifest
from labkit.lessons.cuts import gap
from labkit.lessons.source import parse
from labkit.lessons.student import student_notebook, student_text

PATH = "solutions/03_mean_over_ranks.py"


def cell(text: str, identity: str) -> str:
    return next(str(each.source) for each in student_notebook(parse(text, PATH)).cells if each.id == identity)


def module(source: str) -> ModuleType:
    made = ModuleType("cell")
    exec(source, made.__dict__)
    return made


def test_several_cuts_of_one_cell_keep_signatures_docstrings_and_what_stands_between(source_text: str) -> None:
    assert (
        cell(source_text, "exercise-mean-and-spread")
        == '''def mean(values: list[float]) -> float:
    """Return the mean of values, 0.0 for none."""
    if not values:
        raise NotImplementedError("Exercise 3.1: Mean and spread")
    total = 0.0
    for value in values:
        raise NotImplementedError("Exercise 3.1: Mean and spread")
    return total / len(values)


class Spread:
    """Largest minus smallest of what was added."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def add(self, value: float) -> None:
        """Keep one more value."""
        self.values.append(value)

    def result(self) -> float:
        """Return the largest minus the smallest."""
        raise NotImplementedError("Exercise 3.1: Mean and spread")'''
    )


def test_a_stub_fails_with_its_own_message(source_text: str) -> None:
    learner = module(cell(source_text, "exercise-mean-and-spread"))
    with pytest.raises(NotImplementedError, match=r"^Exercise 3\.1: Mean and spread$"):
        learner.mean([])
    with pytest.raises(NotImplementedError, match=r"^Exercise 3.1: Mean and spread$"):
        learner.mean([1.0])


def test_a_cut_at_the_left_margin_leaves_a_comment_and_the_rest_defined(source_text: str) -> None:
    source = cell(source_text, "exercise-mean-over-ranks")
    assert source.startswith("# Exercise 3.2: Mean over ranks\n\n\ndef mean_over_ranks")
    assert "_as_tensor_of_one_number" not in source
    assert callable(module(source).mean_over_ranks)


def test_a_gap_of_any_text_is_python() -> None:
    for text in ('say "no"', "a \\ b", "Größe → {n}", "it's"):
        with pytest.raises(NotImplementedError) as raised:
            exec(gap(f"Exercise 3.1: {text}"))
        assert str(raised.value) == f"Exercise 3.1: {text}"


def test_solution_and_slide_only_cells_are_left_out_and_nothing_else(source_text: str) -> None:
    lesson = parse(source_text, PATH)
    left_out = {each.id for each in lesson.cells} - {each.id for each in student_notebook(lesson).cells}
    assert left_out == {each.id for each in lesson.cells if each.role in ("solution", "slide-only")}
    assert len(left_out) == 3


def test_the_notebook_is_valid_has_no_outputs_and_a_fixed_kernel(source_text: str) -> None:
    notebook = nbformat.reads(student_text(parse(source_text, PATH)), as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec == {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    }
    assert all(
        each.outputs == [] and each.execution_count is None for each in notebook.cells if each.cell_type == "code"
    )


@pytest.mark.in_turn
def test_bytes_are_the_same_in_two_processes(source_text: str) -> None:
    program = (
        "import sys; from labkit.lessons.source import parse; from labkit.lessons.student import student_text; "
        f"sys.stdout.write(student_text(parse(sys.stdin.read(), {PATH!r})))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], input=source_text, capture_output=True, text=True, timeout=180, check=True
    )
    assert run.stdout == student_text(parse(source_text, PATH))


def test_the_manifest_comes_back_from_the_file(source_text: str, tmp_path: Path) -> None:
    lesson = parse(source_text, PATH)
    path = tmp_path / "learner.ipynb"
    path.write_text(student_text(lesson), encoding="utf-8")
    assert manifest.read(path) == lesson.manifest
    assert manifest.read(path).exercise("mean_over_ranks").points == 6


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda plain: plain.pop("metadata"), "has no labkit manifest"),
        (lambda plain: plain["metadata"]["labkit"].pop("title"), "'title' is None, not str"),
        (lambda plain: plain["metadata"]["labkit"]["exercises"][0].update(points=True), "'points' is True, not int"),
        (lambda plain: plain["metadata"]["labkit"]["exercises"][0].update(provides=[1]), "must hold only names"),
    ],
)
def test_a_damaged_manifest_is_refused(source_text: str, tmp_path: Path, break_it: object, message: str) -> None:
    plain = json.loads(student_text(parse(source_text, PATH)))
    assert callable(break_it)
    break_it(plain)
    path = tmp_path / "learner.ipynb"
    path.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(manifest.LessonError, match=message):
        manifest.read(path)


@pytest.mark.in_turn
def test_lessons_load_no_torch_in_their_own_process(course: Path) -> None:
    program = (
        "import sys; from pathlib import Path; import labkit.lessons.build as b, labkit.lessons.export; "
        "import labkit.lessons.parameters; found = b.check(Path(sys.argv[1])); b.build(Path(sys.argv[1])); "
        "assert not found, found; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, course], timeout=180, check=True)
