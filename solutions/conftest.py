"""Which cells of the executed solutions run with `make test`: some lessons, without what other tests say already.

tests/checks runs a lesson's checks on its own answers, too, and a measured output is compared with nothing. Such cells are
`long` unless a later cell needs a name they bind. `make test-all` executes every solution whole, and `make notebooks` does
nothing else.
"""

from __future__ import annotations

import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbval.plugin import IPyNbCell

WHOLE = ("00_start_here.ipynb",)
"""Solutions that run whole: here a check or a measured cell shows that it raises in a notebook."""
SAMPLE = (*WHOLE, "08_pipeline.ipynb")
"""The solutions of which cells take turns; between them real and virtual ranks, the find, the design and the question."""
_SAID_ELSEWHERE = {"check", "nbval-ignore-output"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a notebook unread of which every cell would be left out."""
    unread = collection_path.suffix == ".ipynb" and collection_path.name not in SAMPLE
    return True if unread and config.option.markexpr.startswith("not long") else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    notebooks: dict[str, list[IPyNbCell]] = {}
    for item in items:
        if isinstance(item, IPyNbCell) and item.path.name not in SAMPLE:
            item.add_marker("long")
            continue
        if isinstance(item, IPyNbCell) and not item.parent.get_closest_marker("in_turn"):
            item.parent.add_marker("in_turn")  # all cells at once
        if isinstance(item, IPyNbCell) and item.path.name not in WHOLE:
            notebooks.setdefault(item.path.name, []).append(item)
    for cells in notebooks.values():
        needed: set[str] = set()
        for cell in reversed(cells):
            table = symtable.symtable(cell.cell.source, cell.name, "exec")
            bound = {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}
            if _SAID_ELSEWHERE.isdisjoint(cell.cell.metadata.get("tags", ())) or needed & bound:
                needed = (needed - bound) | (set(_used(table)) - bound)
            else:
                cell.add_marker("long")


def _used(table: symtable.SymbolTable) -> Iterator[str]:
    """Return the names of the notebook that a piece of code reads, its functions included."""
    for each in table.get_symbols():
        if each.is_referenced() and (each.is_global() or table.get_type() == "module"):
            yield each.get_name()
    for child in table.get_children():
        yield from _used(child)
