"""Lessons as notebooks with stable bytes: fixed kernelspec, ids from the source, no timestamps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import nbformat

from labkit.lessons.lesson import Cell
from labkit.lessons.manifest import Manifest

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def as_notebook(manifest: Manifest, cells: Iterable[Cell], *, answers: bool) -> Any:
    """Return a notebook of these cells, without outputs.

    Args:
        manifest: Goes into the notebook's metadata.
        cells: What it holds.
        answers: True keeps the answers, False cuts them.
    """
    return nbformat.from_dict(  # type: ignore[no-untyped-call]
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": KERNELSPEC,
                "language_info": {"name": "python"},
                "labkit": manifest.as_metadata(),
            },
            "cells": [_cell(cell, cell.source if answers else cell.student_source) for cell in cells],
        }
    )


def as_text(notebook: Any) -> str:
    """Return a notebook's file content, checked against the notebook format.

    Raises:
        nbformat.ValidationError: If it is not a valid notebook.
    """
    nbformat.validate(notebook)
    text: str = nbformat.writes(notebook, version=4)  # type: ignore[no-untyped-call]
    return text.rstrip("\n") + "\n"


def _cell(cell: Cell, source: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if cell.tags:
        metadata["tags"] = list(cell.tags)
    if cell.exercise is not None:
        metadata["labkit"] = {"exercise": cell.exercise}
    made = {"id": cell.id, "cell_type": cell.kind, "metadata": metadata, "source": source}
    return made if cell.kind == "markdown" else made | {"execution_count": None, "outputs": []}
