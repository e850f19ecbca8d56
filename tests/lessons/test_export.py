"""`labkit export`: a learner's notebook becomes a script that real torchrun starts."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import labkit
from labkit.errors import LessonError
from labkit.lessons.export import export
from labkit.lessons.script import script

pytestmark = pytest.mark.in_turn

NAME = "03_mean_over_ranks"
COURSE = Path(__file__).parents[2]


@pytest.fixture
def solved(course: Path) -> Path:
    """A learner's notebook with the answers filled in."""
    learner = course / "notebooks" / f"{NAME}.ipynb"
    answers = json.loads((course / "solutions" / f"{NAME}.ipynb").read_text(encoding="utf-8"))["cells"]
    by_id = {cell["id"]: cell["source"] for cell in answers}
    change(learner, lambda notebook: [cell.update(source=by_id[cell["id"]]) for cell in notebook["cells"]])
    return learner


def change(path: Path, by: Callable[[Any], object]) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    by(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def rewrite(path: Path, cell_id: str, *lines: str) -> None:
    def by(notebook: Any) -> None:
        (cell,) = [each for each in notebook["cells"] if each["id"].startswith(cell_id)]
        cell["source"] = "\n".join(lines)

    change(path, by)


def torchrun(path: Path, ranks: int, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | environ
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


@pytest.mark.long
def test_torchrun_gives_every_rank_the_answer_that_labkit_run_gives(solved: Path, tmp_path: Path) -> None:
    path = export(str(solved), out=tmp_path / "mean.py")
    torchrun_of_script = torchrun(path, 2, LABKIT_DEVICE="cpu", LABKIT_SEED="7")
    assert torchrun_of_script.returncode == 0, torchrun_of_script.stderr
    printed = sorted(line for line in torchrun_of_script.stdout.splitlines() if line.startswith("[rank"))

    definitions = path.read_text(encoding="utf-8").partition("if __name__")[0]
    notebook = {"__name__": "__main__"}  # what a notebook defines belongs to its kernel's main module
    exec(definitions, notebook)
    run = labkit.run(notebook["main"], on=labkit.local(2, device="cpu"), seed=7, echo=False)
    assert printed == [f"[rank {rank} of 2] {result!r}" for rank, result in enumerate(run.results)]
    assert all(re.fullmatch(r"mean 1\.5 drawn \d+ on cpu", result) for result in run.results)


@pytest.mark.long  # tests/launch runs the same script on two hosts
def test_lesson_02_as_solved_runs_under_torchrun(tmp_path: Path) -> None:
    path = export(str(COURSE / "solutions" / "02_ring_all_reduce.ipynb"), out=tmp_path / "ring.py")
    run = torchrun(path, 3, LABKIT_DEVICE="cpu")
    assert run.returncode == 0, run.stderr
    assert len(re.findall(r"^\[rank \d of 3\] \{'max_difference': ", run.stdout, re.MULTILINE)) == 3


@pytest.mark.long
def test_a_rank_that_raises_gives_its_own_traceback_and_a_failing_exit_code(solved: Path, tmp_path: Path) -> None:
    change(solved, _failing_main)
    run = torchrun(export(str(solved), out=tmp_path / "wrong.py"), 2, LABKIT_DEVICE="cpu")
    assert run.returncode != 0
    assert "ValueError: rank 1 is wrong" in run.stderr


def _failing_main(notebook: Any) -> None:
    (cell,) = [each for each in notebook["cells"] if "export" in each["metadata"].get("tags", [])]
    cell["source"] = "def main():\n    if dist.get_rank() == 1:\n        raise ValueError('rank 1 is wrong')\n"


def test_the_script_alone_says_how_to_start_it(solved: Path, tmp_path: Path) -> None:
    path = export(str(solved), out=tmp_path / "mean.py")
    environ = {name: value for name, value in os.environ.items() if name != "RANK"}
    run = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=180, env=environ, check=False)
    assert run.returncode == 1
    assert run.stderr == "Start this with torchrun: torchrun --standalone --nproc-per-node=2 mean.py\n"


def test_the_head_tells_torchrun_slurm_and_kubernetes(solved: Path) -> None:
    text = export(str(solved)).read_text(encoding="utf-8")
    assert f"torchrun --standalone --nproc-per-node=4 {NAME}.py" in text
    assert "srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 \\\n" in text
    assert f'command: ["torchrun", "{NAME}.py"]' in text


def test_a_lesson_is_found_by_number_from_inside_the_course(solved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(solved.parent)
    assert export("3").resolve() == solved.with_suffix(".py")
    with pytest.raises(LessonError, match="No lesson is called '7'; there are: 03_mean_over_ranks"):
        export("7")
    with pytest.raises(LessonError, match=r"There is no notebook other\.ipynb"):
        export("other.ipynb")


def test_an_open_exercise_that_the_function_needs_is_named(course: Path) -> None:
    with pytest.raises(LessonError) as raised:
        export(str(course / "notebooks" / f"{NAME}.ipynb"))
    assert str(raised.value) == (
        f"{NAME}.ipynb: main() needs exercises that are not written yet; finish these first:\n"
        "  mean_over_ranks: Exercise 3.2: Mean over ranks"
    )


def test_an_open_exercise_that_the_function_does_not_need_is_no_hindrance(solved: Path) -> None:
    def reopen(notebook: Any) -> None:
        (cell,) = [each for each in notebook["cells"] if each["id"] == "exercise-mean-and-spread"]
        cell["source"] = 'def mean(values):\n    raise NotImplementedError("Exercise 3.1: Mean and spread")\n'

    change(solved, reopen)
    assert export(str(solved)).exists()


def test_a_syntax_error_is_named_by_cell_and_line(solved: Path) -> None:
    rewrite(solved, "exercise-mean-over-ranks", "def mean_over_ranks(value):", "    return (value", "")
    with pytest.raises(
        LessonError, match=rf"{NAME}\.ipynb, cell exercise-mean-over-ranks, line 2: syntax error: '\(' was never c"
    ):
        export(str(solved))


def test_a_magic_is_named_as_what_works_in_a_notebook_only(solved: Path) -> None:
    rewrite(solved, "exercise-mean-over-ranks", "%time 3")
    with pytest.raises(
        LessonError, match=r"cell exercise-mean-over-ranks, line 1: .*`%time 3` works in a notebook only"
    ):
        export(str(solved))


def test_code_that_runs_at_import_is_refused_by_cell(solved: Path) -> None:
    rewrite(
        solved,
        "exercise-mean-over-ranks",
        "def mean_over_ranks(value):",
        "    return value",
        "print(mean_over_ranks(3))",
    )
    with pytest.raises(
        LessonError, match=r"cell exercise-mean-over-ranks, line 3: `print\(mean_over_ranks\(3\)\)` in a cell of d"
    ):
        export(str(solved))


def test_a_missing_function_is_named_with_the_nearest(solved: Path) -> None:
    with pytest.raises(LessonError, match=r"defines no function mian\(\) .* \(did you mean main\?\)"):
        export(str(solved), function="mian")
    with pytest.raises(LessonError, match=r"defines no function x\(\) .* \(name one with --function: main\)"):
        export(str(solved), function="x")


def test_a_function_with_arguments_is_refused_with_a_way_out(solved: Path) -> None:
    with pytest.raises(
        LessonError, match=r"mean_over_ranks\(\) takes value, but every rank calls it without arguments"
    ):
        export(str(solved), function="mean_over_ranks")


def test_a_notebook_without_tags_is_refused(solved: Path) -> None:
    change(solved, lambda notebook: [cell["metadata"].clear() for cell in notebook["cells"]])
    with pytest.raises(LessonError, match=r"no cell tagged given, exercise or export"):
        export(str(solved))


def test_a_file_that_is_no_notebook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "torn.ipynb"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(LessonError, match=r"torn\.ipynb is not a notebook"):
        export(str(path))


def test_only_an_earlier_export_is_overwritten(course: Path) -> None:
    source = course / "solutions" / f"{NAME}.py"
    before = source.read_bytes()
    with pytest.raises(LessonError, match="did not write it; choose another file with --out"):
        export(str(source.with_suffix(".ipynb")))
    assert source.read_bytes() == before
    out = course / "mine.py"
    export(str(source.with_suffix(".ipynb")), out=out)
    export(str(source.with_suffix(".ipynb")), out=out)


def test_future_imports_move_to_the_head_of_the_script() -> None:
    text = script(
        title="t",
        function="main",
        file="t.py",
        cells=[("a", "x = 1"), ("b", "from __future__ import annotations\n\n\ndef main() -> 'int':\n    return x")],
        joins_itself=False,
    )
    compile(text, "t.py", "exec")
    assert text.count("from __future__") == 1


def test_a_function_that_joins_the_group_itself_is_left_to_do_so() -> None:
    cells = [("a", "def main():\n    pass")]
    joined = script(title="t", function="main", file="t.py", cells=cells, joins_itself=True)
    assert "init_process_group" not in joined
    assert "init_process_group(backend)" in script(
        title="t", function="main", file="t.py", cells=cells, joins_itself=False
    )


@pytest.mark.parametrize(
    "odd", ["\nimport os", "\r\nimport os", '"""\nimport os\n"""', "ends\\", "{x}", "\u2028é", '"']
)
def test_nothing_of_a_notebook_but_its_cells_is_code_of_the_script(odd: str) -> None:
    plain = script(title="t", function="main", file="f.py", cells=[("c", "def main():\n    pass")], joins_itself=False)
    text = script(title=odd, function="main", file=odd, cells=[(odd, "def main():\n    pass")], joins_itself=False)
    head, *code = ast.parse(text).body
    assert isinstance(head, ast.Expr) and isinstance(head.value, ast.Constant)
    assert str(head.value.value).startswith(odd)
    shape = [type(node).__name__ for node in ast.walk(ast.Module(code, []))]
    assert shape == [type(node).__name__ for node in ast.walk(ast.Module(ast.parse(plain).body[1:], []))]
