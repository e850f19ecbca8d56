"""The names that notebooks use."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import labkit


def test_each_public_name_is_there_and_documented() -> None:
    for name in labkit.__all__:
        assert (getattr(labkit, name).__doc__ or "").strip(), f"labkit.{name} has no docstring"


def test_all_lists_every_name_that_can_be_had() -> None:
    assert sorted(labkit._HOME) == sorted(labkit.__all__) == dir(labkit)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(labkit.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (alias.asname, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == set(labkit._HOME.items())


def test_no_subpackage_bears_the_name_of_a_public_function() -> None:
    assert not {module.name for module in iter_modules(labkit.__path__)} & set(labkit.__all__)


def test_a_misspelt_name_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(AttributeError, match=r"labkit has no 'runn'; it has Run, .*run"):
        labkit.runn  # noqa: B018


def test_every_module_imports_cleanly() -> None:
    root = Path(labkit.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.name != "__main__.py":
            import_module(".".join(["labkit", *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__"))
