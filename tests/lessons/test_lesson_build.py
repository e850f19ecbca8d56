"""Building: three files from one source, nothing done twice, nothing lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labkit.errors import LessonError
from labkit.lessons.build import build, check
from labkit.lessons.course import find_course
from labkit.lessons.executed import execute
from labkit.lessons.source import Lesson, load, parse

pytestmark = pytest.mark.in_turn

NAME = "03_mean_over_ranks"
MADE = (f"notebooks/{NAME}.ipynb", f"slides/{NAME}.md", f"solutions/{NAME}.ipynb")


def edit(course: Path, old: str, new: str) -> None:
    path = course / "solutions" / f"{NAME}.py"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def solution(course: Path) -> Any:
    return json.loads((course / MADE[2]).read_text(encoding="utf-8"))


def test_a_build_writes_all_three_and_check_finds_nothing(course: Path) -> None:
    assert all((course / name).is_file() for name in MADE)
    assert check(course) == []


def test_building_again_writes_nothing_and_runs_nothing(course: Path) -> None:
    before = {name: (course / name).stat().st_mtime_ns for name in MADE}
    report = build(course)
    assert report.lessons[0].written == ()
    assert report.lessons[0].execution == "kept"
    assert {name: (course / name).stat().st_mtime_ns for name in MADE} == before
    assert "nothing changed; solution kept" in str(report)


@pytest.mark.long
def test_always_runs_the_solution_again_with_the_same_untagged_outputs(course: Path) -> None:
    before = solution(course)
    assert build(course, always=True).lessons[0].execution == "executed"
    after = solution(course)
    steady = [
        (first["outputs"], second["outputs"])
        for first, second in zip(before["cells"], after["cells"], strict=True)
        if first["cell_type"] == "code" and "nbval-ignore-output" not in first["metadata"].get("tags", [])
    ]
    assert steady and all(first == second for first, second in steady)
    assert check(course) == []


def test_an_executed_solution_is_one_clean_run_without_timing_widgets_or_kernel_versions(course: Path) -> None:
    notebook = solution(course)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert set(notebook["metadata"]) == {"kernelspec", "labkit", "language_info"}
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    assert not any("execution" in cell["metadata"] for cell in code)
    assert any("3.0" not in str(cell["outputs"]) and "2.0" in str(cell["outputs"]) for cell in code)  # 1.5 + 0.5


def test_new_prose_keeps_the_outputs_and_runs_nothing(course: Path) -> None:
    before = [cell["outputs"] for cell in solution(course)["cells"] if cell["cell_type"] == "code"]
    edit(course, "Run each cell", "Run every single cell")
    report = build(course)
    assert report.lessons[0].execution == "kept"
    assert report.lessons[0].written == (MADE[0], MADE[2])
    assert [cell["outputs"] for cell in solution(course)["cells"] if cell["cell_type"] == "code"] == before
    assert check(course) == []


def test_new_code_runs_the_solution_and_gives_new_outputs(course: Path) -> None:
    edit(course, "shift = 0.5", "shift = 1.5")
    told: list[tuple[str, int, int]] = []
    assert build(course, told=lambda *step: told.append(step)).lessons[0].execution == "executed"
    total = sum(cell["cell_type"] == "code" for cell in solution(course)["cells"])
    assert told == [(NAME, done, total) for done in range(total)], "each cell is told before it runs"
    assert "3.0" in str([cell.get("outputs") for cell in solution(course)["cells"]])
    assert check(course) == []


def test_without_execution_the_notebook_and_slides_are_written_and_the_solution_is_not(unbuilt: Path) -> None:
    report = build(unbuilt, execute=False)
    assert report.lessons[0].written == MADE[:2]
    assert report.lessons[0].execution == "not executed"
    assert [drift.file for drift in check(unbuilt)] == [MADE[2]]


@pytest.mark.long
def test_a_solution_on_ranks_that_raises_is_named_by_source_line_cell_and_traceback(unbuilt: Path) -> None:
    edit(unbuilt, "assert mean([1.0, 2.0, 6.0]) == 3.0", "assert mean([1.0, 2.0, 6.0]) == 4.0, 'wrong mean'")
    with pytest.raises(
        LessonError, match=r"03_mean_over_ranks\.py:76: cell check-mean-and-spread raised AssertionError: wrong me"
    ):
        build(unbuilt)
    assert not (unbuilt / MADE[2]).exists()


def tiny(*cells: str) -> Lesson:
    """A lesson without torch: its kernel starts fast."""
    return parse(
        "# %% [markdown]\n# # Title\n" + "".join(f"\n# %%\n{cell}\n" for cell in cells), "solutions/03_tiny.py"
    )


def test_a_solution_that_raises_is_named_by_source_line_cell_and_traceback(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match=r"03_tiny\.py:7: cell code-\w+ raised AssertionError: wrong sum"):
        execute(tiny("1 + 1", "assert 1 + 1 == 3, 'wrong sum'"), tmp_path)


@pytest.mark.long
def test_a_solution_that_hangs_is_ended_and_named(tmp_path: Path) -> None:
    lesson = tiny("1 + 1", "while True:\n    pass")
    with pytest.raises(LessonError, match=r"03_tiny\.py:7: cell code-\w+ took more than 4 s; make it smaller"):
        execute(lesson, tmp_path, cell_timeout_s=4)


def test_a_solution_that_ends_its_kernel_is_named(tmp_path: Path) -> None:
    lesson = tiny("1 + 1", "import os\n\nos._exit(3)", "2 + 2")
    with pytest.raises(
        LessonError, match=r"03_tiny\.py:7: cell code-\w+ ended the kernel \(killed, or out of memory\)"
    ):
        execute(lesson, tmp_path)


def test_outputs_that_differ_from_run_to_run_are_refused_each_by_its_line(tmp_path: Path) -> None:
    lesson = tiny(
        "object()",
        "import datetime\n\nprint(datetime.datetime.now())",
        "import warnings\n\nwarnings.warn('odd', stacklevel=1)",
    )
    with pytest.raises(LessonError) as raised:
        execute(lesson, tmp_path)
    address, date, path = str(raised.value).split("\n")
    assert ":4: cell" in address and "a memory address (give the object a repr without one): '<object at 0x" in address
    assert ":7: cell" in date and "a date and time" in date
    assert ":12: cell" in path and "a path of this machine: '/tmp/ipykernel_" in path


def test_outputs_in_pieces_are_joined_and_widgets_leave_only_their_words(tmp_path: Path) -> None:
    lesson = tiny(
        "import sys\n\nfor word in ('one', 'two'):\n    print(word, flush=True)\n    sys.stdout.flush()",
        "import ipywidgets\n\nipywidgets.IntSlider(value=3)",
    )
    notebook = execute(lesson, tmp_path)
    words, slider = (cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    assert [output.text for output in words] == ["one\ntwo\n"]
    assert [dict(output.data) for output in slider] == [{"text/plain": "IntSlider(value=3)"}]
    assert "widgets" not in notebook.metadata


def test_a_kernelspec_of_this_user_does_not_change_which_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "data" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps({"argv": ["false"], "display_name": "Python 3", "language": "python"}), encoding="utf-8"
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    notebook = execute(tiny("6 * 7"), tmp_path)
    assert notebook.cells[1].outputs[0].data["text/plain"] == "42"


def test_a_lesson_is_chosen_by_number_name_or_path(course: Path) -> None:
    for asked in ("3", "03", NAME, f"solutions/{NAME}.py"):
        assert build(course, [asked]).lessons[0].lesson == NAME
    with pytest.raises(LessonError, match=r"No lesson is called '4'; there are: 03_mean_over_ranks"):
        build(course, ["4"])


def test_the_course_is_found_from_any_folder_in_it(course: Path) -> None:
    assert find_course(course / "notebooks") == course
    assert find_course(course / "solutions", sources=True) == course


def test_outside_a_course_the_message_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match=r"upwards holds notebooks/; say where with --course DIR"):
        find_course(tmp_path)
    with pytest.raises(LessonError, match="a student release has none"):
        build(tmp_path)


def test_a_student_release_has_notebooks_and_cannot_build(course: Path) -> None:
    (course / "solutions").rename(course / "elsewhere")
    assert find_course(course) == course
    with pytest.raises(LessonError, match="a student release has none"):
        check(course)


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match="There is no lesson source"):
        load(tmp_path / "05_gone.py")
