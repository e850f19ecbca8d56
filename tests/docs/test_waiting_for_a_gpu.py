"""The page names every test that waits for a GPU, and none that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKS = re.compile(r"\b(gpu1|gpu2|one_gpu|two_gpus)\b")


def waiting(path: Path) -> set[str]:
    """Return the tests of a file that are marked for GPUs, each by itself or by the file."""
    code = path.read_text(encoding="utf-8")
    if not MARKS.search(code):  # few wait, and parsing all takes seconds
        return set()
    tree = ast.parse(code)
    whole = any(isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0]) and
                MARKS.search(ast.unparse(node.value)) for node in tree.body)  # fmt: skip
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {
        test.name for test in tests if whole or any(MARKS.search(ast.unparse(each)) for each in test.decorator_list)
    }


def test_the_page_names_every_test_that_waits_for_a_gpu_and_no_other() -> None:
    page = (ROOT / "docs" / "elsewhere.md").read_text(encoding="utf-8")
    section = page.partition("### What waits for a GPU")[2].partition("\n## ")[0]
    named = re.findall(r"`(test_\w+)`", section)
    there = set().union(*map(waiting, (ROOT / "tests").rglob("test_*.py")))
    assert len(named) == len(set(named)) and set(named) == there
