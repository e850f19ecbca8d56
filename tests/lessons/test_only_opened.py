"""What JupyterLab writes by opening is put into a lesson that is read, and taken out of one that is saved."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from ipykernel.ipkernel import IPythonKernel

from labkit.lessons.only_opened import LessonsManager, without_the_machines_own

LESSON = {"labkit": {}, "language_info": {"name": "python"}}


def opened(folder: Path, metadata: dict[str, Any], content: bool = True) -> dict[str, Any]:
    """Return what JupyterLab gets of a notebook with this metadata."""
    nbformat.write(nbformat.v4.new_notebook(metadata=metadata), folder / "a.ipynb")
    with ThreadPoolExecutor(1) as thread:  # a browser's tests leave a loop running in this one
        return thread.submit(
            lambda: asyncio.run(LessonsManager(root_dir=str(folder)).get("a.ipynb", content=content))
        ).result()


def test_a_lesson_comes_with_the_kernels_words_and_is_saved_without(tmp_path: Path) -> None:
    model = opened(tmp_path, LESSON)
    assert model["content"]["metadata"]["language_info"] == IPythonKernel.language_info
    without_the_machines_own(model)
    assert model["content"]["metadata"] == LESSON


def test_another_notebook_is_left_alone(tmp_path: Path) -> None:
    metadata = {"language_info": {"name": "python"}}
    model = opened(tmp_path, metadata)
    without_the_machines_own(model)
    assert model["content"]["metadata"] == metadata
    assert opened(tmp_path, LESSON, content=False)["content"] is None
