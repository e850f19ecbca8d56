"""The picture of who imports whom, held against the syntax trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "labkit"

# Each line imports only from lines above it.
LAYERS = (
    "errors",
    "units",
    "words",
    "cells",
    "known_classes",
    "timeline",
    "plans",
    "hardware",
    "simulator",
    "launch",
    "worlds",
    "virtual_world",
    "calibration",
    "widgets",
    "board",
    "checks",
    "lessons",
    "grading",
    "doctor",
    "cli",
)

# A value that draws itself asks for its picture when it is displayed, and not before.
DRAWS_ITSELF = {("timeline", "widgets")}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py")


def _layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _imports(body: list[ast.stmt], *, inside_function: bool = False) -> Iterator[tuple[str, int, bool]]:
    """Yield (dotted name, line, runs when the module is imported) of each import that ever runs."""
    for node in body:
        if _is_type_checking(node):
            yield from _imports(node.orelse, inside_function=inside_function)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Import):
            yield from ((name.name, node.lineno, not inside_function) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "labkit":
                yield from ((f"labkit.{name.name}", node.lineno, not inside_function) for name in node.names)
            else:
                yield (node.module or "", node.lineno, not inside_function)
        else:
            lazy = inside_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for block in ("body", "orelse", "finalbody"):
                yield from _imports(getattr(node, block, []), inside_function=lazy)
            for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
                yield from _imports(handler.body, inside_function=lazy)


def _own_imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    for name, line, eager in _imports(ast.parse(path.read_text()).body):
        if name.startswith("labkit."):
            yield name.split(".")[1], line, eager


def test_every_module_belongs_to_a_layer() -> None:
    assert {_layer(path) for path in MODULES} <= set(LAYERS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_layers_above_its_own(path: Path) -> None:
    own = LAYERS.index(_layer(path))
    wrong = [
        f"line {line} imports labkit.{layer}"
        for layer, line, eager in _own_imports(path)
        if layer in LAYERS and LAYERS.index(layer) > own and (eager or (_layer(path), layer) not in DRAWS_ITSELF)
    ]
    assert not wrong


def test_simulator_and_launch_never_import_each_other() -> None:
    for path in MODULES:
        other = {"simulator": "launch", "launch": "simulator"}.get(_layer(path))
        assert other not in {layer for layer, _, _ in _own_imports(path)}, path


def test_widgets_read_timelines_and_plans_and_nothing_else() -> None:
    allowed = {"errors", "units", "words", "timeline", "plans", "widgets"}
    for path in (path for path in MODULES if _layer(path) == "widgets"):
        assert {layer for layer, _, _ in _own_imports(path)} <= allowed, path


def test_nothing_is_imported_relatively() -> None:
    for path in MODULES:
        tree = ast.parse(path.read_text())
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level], path


@pytest.mark.parametrize(
    "module",
    ["labkit", "labkit.cli", "labkit.doctor", "labkit.lessons.build", "labkit.lessons.export", "labkit.grading.grade"],
)
def test_importing_it_loads_no_torch_and_starts_no_process(module: str) -> None:
    program = f"""
import sys, threading, psutil
import {module}
assert "torch" not in sys.modules, "torch was imported"
assert threading.active_count() == 1, threading.enumerate()
children = psutil.Process().children(recursive=True)
assert not children, children
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


def test_no_lesson_code_imports_torch() -> None:
    for path in (path for path in MODULES if _layer(path) == "lessons"):
        names = {name.split(".")[0] for name, _, _ in _imports(ast.parse(path.read_text()).body)}
        assert "torch" not in names, path
