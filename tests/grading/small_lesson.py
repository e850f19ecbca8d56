"""A lesson of three exercises to grade in tests: its notebook, right and wrong answers, submissions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "fixtures" / "course"

STUBS = {
    "double": 'def double(x):\n    raise NotImplementedError("Exercise 90.1: twice x")\n',
    "shift": 'def shift(x):\n    raise NotImplementedError("Exercise 90.2: pass x on")\n',
    "total": 'def total(x):\n    raise NotImplementedError("Exercise 90.3: add up")\n',
}

RIGHT = {
    "double": "def double(x):\n    return x + x\n",
    "shift": (
        "def shift(x):\n"
        "    rank, n = dist.get_rank(), dist.get_world_size()\n"
        "    out = torch.empty_like(x)\n"
        "    ops = [dist.P2POp(dist.isend, x, (rank + 1) % n), dist.P2POp(dist.irecv, out, (rank - 1) % n)]\n"
        "    for work in dist.batch_isend_irecv(ops):\n"
        "        work.wait()\n"
        "    return out\n"
    ),
    "total": (
        "def total(x):\n"
        "    rank, n = dist.get_rank(), dist.get_world_size()\n"
        "    if rank:\n"
        "        dist.send(x, 0)\n"
        "        dist.recv(x, 0)\n"
        "        return\n"
        "    part = torch.empty_like(x)\n"
        "    for peer in range(1, n):\n"
        "        dist.recv(part, peer)\n"
        "        x += part\n"
        "    for peer in range(1, n):\n"
        "        dist.send(x, peer)\n"
    ),
}

POINTS = {"double": 2, "shift": 3, "total": 5}


def code_cell(cell_id: str, source: str, tags: list[str], **metadata: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": cell_id,
        "metadata": {"tags": tags, **metadata},
        "source": source,
        "execution_count": None,
        "outputs": [],
    }


def notebook(answers: Mapping[str, str] = STUBS) -> dict[str, Any]:
    """Return the lesson's notebook with these answers."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "id": "intro", "metadata": {}, "source": "# A small lesson"},
        code_cell("given-1-imports", "import torch\nimport torch.distributed as dist\n", ["given"]),
        code_cell("predict-guess-a", "guess_a = 0.5", ["predict"]),
    ]
    for number in POINTS:
        slug = number.replace(".", "-")
        source = answers.get(number, STUBS[number])
        cells.append(code_cell(f"exercise-{slug}", source, ["exercise"], labkit={"exercise": number}))
        cells.append(code_cell(f"check-{slug}", f'print("checking {number}")', ["check"], labkit={"exercise": number}))
    exercises = [
        {
            "id": number,
            "number": f"90.{position}",
            "title": title,
            "provides": [name],
            "needs": [],
            "points": POINTS[number],
            "difficulty": 1,
            "importance": 5,
            "minutes": 1,
            "bonus": False,
        }
        for position, (number, title, name) in enumerate(
            (("double", "Double", "double"), ("shift", "Shift", "shift"), ("total", "Total", "total")), 1
        )
    ]
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
            "labkit": {"lesson": "90_small", "title": "A small lesson", "source_sha256": "0", "exercises": exercises},
        },
        "cells": cells,
    }


def write_course(folder: Path) -> Path:
    """Write the small course into `folder` and return it."""
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "notebooks").mkdir()
    (folder / "notebooks" / "90_small.ipynb").write_text(json.dumps(notebook()))
    return folder


def write_submission(path: Path, answers: Mapping[str, str]) -> Path:
    """Write a submission with these answers (stubs elsewhere) and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook(answers)))
    return path
