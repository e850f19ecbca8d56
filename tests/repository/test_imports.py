"""The picture of who imports whom, held against the syntax trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import labkit
from labkit.checks.kept_back import is_kept_back

PACKAGE = Path(__file__).parents[2] / "labkit"

# Each line imports only from lines above it.
LAYERS = (
    "errors",
    "interpreter",
    "links",
    "units",
    "slugs",
    "words",
    "frames",
    "cells",
    "known_classes",
    "progress",
    "timeline",
    "deadlock",
    "plans",
    "kernels",
    "product_rates",
    "hardware",
    "planner",
    "failures",
    "torch_port",
    "simulator",
    "launch",
    "scripts",
    "record",
    "worlds",
    "virtual_world",
    "crashes",
    "cluster_world",
    "auditing",
    "models",
    "wrong_runs",
    "hybrid_gpt",
    "planned_jobs",
    "torchs_hybrid",
    "planned_steps",
    "servers",
    "calibration",
    "widgets",
    "board",
    "checks",
    "exercises",
    "lessons",
    "gpu_report",
    "grading",
    "doctor",
    "class_machines",
    "commands",
    "cli",
)

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py")


@cache
def _statements(path: Path) -> tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]:
    """Return each import, and whether it stands inside a function; the tree itself is not kept."""
    found: list[tuple[ast.Import | ast.ImportFrom, bool]] = []
    left: list[tuple[ast.AST, bool]] = [(child, False) for child in ast.parse(path.read_text()).body]
    while left:
        node, inside = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append((node, inside))
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            left += [(child, inside) for child in ast.iter_child_nodes(node)]
    return tuple(found)


def _layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (dotted name, line) of each import, inside functions and for type checkers, too."""
    for node, _ in _statements(path):
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "labkit":
            yield from ((f"labkit.{name.name}", node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno


def _own_imports(path: Path) -> Iterator[tuple[str, int]]:
    for name, line in _imports(path):
        if name.startswith("labkit."):
            yield name.split(".")[1], line


def test_every_module_belongs_to_a_layer() -> None:
    assert {_layer(path) for path in MODULES} <= set(LAYERS)


def test_a_module_imports_only_from_layers_above_its_own() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}, line {line} imports labkit.{layer}"
        for path in MODULES
        for layer, line in _own_imports(path)
        if layer in LAYERS and LAYERS.index(layer) > LAYERS.index(_layer(path))
    ]
    assert not wrong


def test_simulator_and_launch_never_import_each_other() -> None:
    for path in MODULES:
        other = {"simulator": "launch", "launch": "simulator"}.get(_layer(path))
        assert other not in {layer for layer, _ in _own_imports(path)}, path


def test_widgets_read_timelines_and_plans_and_nothing_else() -> None:
    allowed = {"errors", "units", "words", "timeline", "plans", "widgets"}
    for path in (path for path in MODULES if _layer(path) == "widgets"):
        assert {layer for layer, _ in _own_imports(path)} <= allowed, path


def test_right_plans_are_for_pictures_and_hidden_cases_alone() -> None:
    for path in MODULES:
        names = {name for name, _ in _imports(path)}
        uses = any(name.startswith("labkit.plans.reference") for name in names)
        may = _layer(path) == "widgets" or "reference" in path.parts or is_kept_back(path.name)
        assert not uses or may, path


def test_what_draws_timelines_is_there() -> None:
    for place in labkit.DRAWS.values():
        module, _, function = place.rpartition(".")
        assert callable(getattr(import_module(module), function)), place


# What is imported inside functions only, and why; whatever else a function needs stands at the top of its module.
LATE = {
    "torch": "takes two seconds and starts threads: neither a help text nor a zygote waits for it",
    "numpy": "takes a tenth of a second, and comes with torch",
    "psutil": "reads the machine: where it cannot, the rest works",
    "IPython": "is there in a notebook, and takes half a second elsewhere",
    "ipykernel": "is a kernel's alone",
    "ipywidgets": "is a live page's alone",
    "matplotlib": "takes a second, and only pictures need it",
    "nbformat": "and the next three: a second for who only reads a result",
    "nbclient": "see nbformat",
    "jupyter_client": "see nbformat",
    "jupytext": "see nbformat",
    "distributed": "need not be installed",
    "playwright": "need not be installed",
    "latex2mathml": "and the next three: of the extra `docs`",
    "markdown_it": "see latex2mathml",
    "mdit_py_plugins": "see latex2mathml",
    "pygments": "see latex2mathml",
    "labkit.worlds": "a par or a doctor's finding is data until it is measured",
    "labkit.virtual_world": "loads torch",
    "labkit.hardware": "comes with labkit.virtual_world in a driver that a rank reads without either",
    "labkit.timeline": "loads numpy: a par is data until it is measured",
    "labkit.widgets": "loads matplotlib or ipywidgets",
    "labkit.torch_port": "loads torch",
    "labkit.crashes": "loads torch",
    "labkit.planned_steps": "loads torch",
    "labkit.launch": "loads torch, or is loaded in a child process only",
    "labkit.lessons": "lending loads checks and a reader of sources; only a cell that needs something waits for it",
    "labkit.grading": "loads SQLAlchemy, Dask, nbclient or the sandbox, which only some commands need",
}


def test_what_is_imported_inside_a_function_has_its_reason() -> None:
    unknown = []
    for path in MODULES:
        for node in (node for node, inside in _statements(path) if inside):
            name = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
            parts = name.split(".")[: 2 if name.startswith("labkit") else 1]
            if ".".join(parts) not in LATE:
                unknown.append(f"{path.relative_to(PACKAGE)}, line {node.lineno}: {name}")
    assert not unknown


def test_nothing_is_imported_relatively() -> None:
    for path in MODULES:
        assert not [node for node, _ in _statements(path) if isinstance(node, ast.ImportFrom) and node.level], path


def test_importing_them_loads_no_torch_and_starts_no_process() -> None:
    """Each in its turn, in one process: what one of them did would still be there."""
    program = """
import importlib, sys, threading, psutil
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert "torch" not in sys.modules, f"{name} imports torch"
    assert threading.active_count() == 1, (name, threading.enumerate())
    children = psutil.Process().children(recursive=True)
    assert not children, (name, children)
"""
    lessons = ["labkit.lessons.build", "labkit.lessons.export"]
    named = ["labkit", "labkit.cli", "labkit.doctor", *lessons, "labkit.grading.grade"]
    subprocess.run([sys.executable, "-W", "error", "-c", program, *named], check=True, timeout=300)


def test_no_lesson_code_imports_torch() -> None:
    for path in (path for path in MODULES if _layer(path) == "lessons"):
        names = {name.split(".")[0] for name, _ in _imports(path)}
        assert "torch" not in names, path
