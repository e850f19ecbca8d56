"""Submissions that are broken or hostile as files, before any code of them runs."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

from grading.small_lesson import RIGHT, code_cell, notebook

NOTHING = {"double": "def double(x):\n    return 0\n"}


def _edited_checks() -> dict[str, Any]:
    """Return a notebook with edited checks, forged metadata and outputs, and no answers."""
    content = notebook(NOTHING)
    content["metadata"]["labkit"]["exercises"] = []
    content["metadata"]["score"] = 1000
    for cell in content["cells"]:
        if cell["id"].startswith("check-"):
            cell["source"] = "import labkit\nlabkit.check = lambda *a: print('passed')"
            cell["metadata"] = {"tags": ["check", "exercise"], "labkit": {"exercise": "double"}, "points": 10**6}
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "passed"}]
    content["cells"].insert(1, code_cell("given-1-imports", "import torch\nraise SystemExit(0)", ["given"]))
    return content


def _ids(change: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook with wrong answers whose exercise cells have these ids (None: no id at all)."""
    content = notebook(NOTHING)
    for cell in content["cells"]:
        if cell["id"] in change:
            new = change[cell["id"]]
            cell["metadata"] = {"tags": ["exercise"]}
            if new is None:
                del cell["id"]
            else:
                cell["id"] = new
    return content


def _zip(*members: tuple[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return data.getvalue()


def write_broken(folder: Path, secret: Path) -> list[str]:
    """Write the broken submissions into `folder` and return the names under which they are reported.

    Args:
        folder: The class's folder.
        secret: A file that must not be read.
    """
    right = json.dumps(notebook(RIGHT)).encode()
    files: dict[str, bytes] = {
        "truncated": right[: len(right) // 2],
        "not-json": b"\x00\xff\xfe not json at all",
        "deep-nested": b"[" * 100_000 + b"]" * 100_000,
        "deep-nested-cells": json.dumps({**notebook(NOTHING), "metadata": _deep(400)}).encode(),
        "edited-checks-and-metadata": json.dumps(_edited_checks()).encode(),
        "duplicate-cell-ids": json.dumps(_ids({"exercise-double": "exercise-shift", "exercise-total": "exercise-shift"})).encode(),
        "missing-cell-ids": json.dumps(_ids({f"exercise-90-{n}": None for n in (1, 2, 3)})).encode(),
        "null-bytes-in-ids-and-source": json.dumps(
            {**notebook({"double": "def double(x):\x00\n    return x * 2"}), "nbformat\x00": "\ud800"}
        ).encode(),
        "zip-bomb-for-a-notebook": _zip(("bomb", b"0" * (64 << 20))),
        "zip-slip-for-a-notebook": _zip(("../../../../tmp/slipped.ipynb", right)),
        "huge-numbers": b'{"cells": [' + b"9" * 100_000 + b', {"cell_type": 1e999}]}',
    }  # fmt: skip
    for name, data in files.items():
        (folder / f"{name}.ipynb").write_bytes(data)
    with open(folder / "five-hundred-megabytes.ipynb", "wb") as file:
        file.write(right)
        file.truncate(500 << 20)
    (folder / "link-to-the-answers.ipynb").symlink_to(secret)
    (folder / "folder-link").symlink_to(secret.parent, target_is_directory=True)
    forged = folder / "forged-reports"
    forged.mkdir()
    (forged / "90_small.ipynb").write_text(json.dumps(notebook(NOTHING)))
    told = {"score": 10.0, "tests": [], "extra_data": {"name": "forged-reports", "max_score": 10.0, "problem": ""}}
    for name in ("result.json", "gradebook.csv", "feedback.html"):
        (forged / name).write_text(json.dumps(told))
    strange = "..\u202e\U0001f600 <b>\n&'\"; rm -rf"
    (folder / f"{strange}.ipynb").write_text(json.dumps(notebook(NOTHING)))
    reserved = ("gradebook.csv", "class.html")
    for name in reserved:
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook(NOTHING)))
    undecodable = os.fsdecode(b"\x1b[31m\xff")
    (folder / f"{undecodable}.ipynb").write_text(json.dumps(notebook(NOTHING)))
    os.mkfifo(folder / "pipe.ipynb")
    (folder / "passed-over.zip").write_bytes(_zip(("../slip.ipynb", right)))
    from labkit.grading.submission import safe_name

    return [*files, "five-hundred-megabytes", "link-to-the-answers", "folder-link", "forged-reports", "pipe",
            *map(safe_name, (strange, undecodable, *reserved))]  # fmt: skip


def _deep(levels: int) -> Any:
    content: Any = {}
    for _ in range(levels):
        content = {"a": content}
    return content
