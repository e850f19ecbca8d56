"""Of labkit, a rank of a hidden case can read what running takes, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from grading.conftest import SANDBOX, Probe
from labkit.checks import wire_format
from labkit.grading.sandbox.view import PACKAGE, runtime
from tests.checks.lesson_cells import NUMBERS, lesson
from tests.submissions.making import HERE as SUBMISSIONS

needs_sandbox = pytest.mark.skipif(SANDBOX == "none", reason="needs a sandbox: bubblewrap (labkit doctor says why not)")
SEEN = frozenset(runtime())
NEEDED_BY_NO_ANSWER = {"labkit.hybrid_gpt"}
"""What only a lesson's own run imports; this one holds a schedule, which is lesson 09's answer."""
IMPORTS = "def double(x):\n    from {module} import {name}\n    return 2 * x\n"
LISTS = """
import os
def program(rank):
    return [os.path.join(folder, name) for folder, _, names in os.walk({package!r}) for name in names]
"""


@pytest.mark.in_turn
@needs_sandbox
def test_a_rank_reads_of_labkit_what_the_list_names_and_no_file_beside(probe: Probe) -> None:
    outcome = probe("program", {"program": LISTS.format(package=str(PACKAGE))}, case=1)
    assert outcome.failure is None, outcome.failure
    for result in outcome.results:
        seen = {Path(path) for path in cast(list[str], wire_format.decode(result)["y"])}
        assert PACKAGE / "worlds.py" in seen
        assert not {path for path in seen if not {path, *path.parents} & set(runtime())}


def test_the_list_names_no_room_of_judges_answers_or_pictures() -> None:
    names = ("__init__", "matrix_splits", "sharded_step", "offloaded_step", "compressed_steps", "policies", "staleness",
             "hybrid_step", "mesh_weights", "operator_graph", "planned_step")  # fmt: skip
    costs = {PACKAGE / "plans" / f"{name}.py" for name in names}
    named = {path.relative_to(PACKAGE).parts[0] for path in runtime() if path not in costs}
    assert not named & {"checks", "exercises", "plans", "widgets", "lessons", "grading", "board"}


@pytest.mark.in_turn
@pytest.mark.parametrize("number", NUMBERS)
def test_what_a_lessons_cells_import_of_labkit_is_there_where_points_are_earned(number: str) -> None:
    sources = [each.source for each in lesson(number).cells if each.role == "given" or each.is_code_exercise]
    sources += [path.read_text() for path in sorted((SUBMISSIONS / f"answers_{number}").glob("right_*.py"))]
    wanted = {module for source in sources for module in _imported(source)}
    files = {module: PACKAGE.parent / module.replace(".", "/") for module in wanted}
    seen = {
        module: {path.with_suffix(".py"), path / "__init__.py", path, *path.parents} for module, path in files.items()
    }
    assert not {module for module, paths in seen.items() if not paths & SEEN} - NEEDED_BY_NO_ANSWER


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("labkit."):
            yield node.module


@needs_sandbox
@pytest.mark.parametrize(
    ("module", "name"),
    [("labkit.widgets.ring_player", "ring_player"), ("labkit.checks.notebook", "check")],
)
def test_a_rank_of_a_hidden_case_cannot_import_what_is_not_on_the_list(probe: Probe, module: str, name: str) -> None:
    outcome = probe("double", {"double": IMPORTS.format(module=module, name=name)})
    assert outcome.failure is not None and "No module named" in str(outcome.failure["message"])
    assert str(outcome.failure["message"]).endswith("only the parts of labkit that run code are available.")
    assert not outcome.results
