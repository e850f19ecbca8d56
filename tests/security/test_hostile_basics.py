"""Hostile submissions among honest ones in one batch: no undeserved point, no harm to the neighbours, nothing left.

There is no sandbox yet, so this holds what the line between the student's processes and the grader's holds by itself.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from grading.small_lesson import HERE, RIGHT, code_cell, notebook, write_course, write_submission

from labkit.grading.grade import grade
from labkit.grading.limits import Limits

LIMITS = Limits(cell_seconds=3.0, notebook_seconds=20.0, case_seconds=3.0, retry_seconds=4.0, rank_flood_bytes=4 << 20)

Batch = tuple[Path, dict[str, float], list[psutil.Process]]
HONEST = {"honest-1": 10.0, "honest-2": 2.0}

ATTACKS = {
    "flood": (
        "import os\ndef double(x):\n    while True:\n        os.write(1, b'x' * 65536)\nwhile True: print('y' * 4096)\n"
    ),
    "sys-exit": "import sys\nsys.exit(0)\n",
    "os-exit": "import os\nos._exit(0)\n",
    "os-exit-inside": "import os\ndef double(x):\n    os._exit(0)\n",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef double(x):\n    return 0\n",
    "loop-ignoring-signals": (
        "import signal\n"
        "def double(x):\n"
        "    for n in set(range(1, 65)) - {9, 19, 32, 33}:\n"
        "        signal.signal(n, signal.SIG_IGN)\n"
        "    while True: pass\n"
    ),
    "sleeps-past-the-limit": "import time\ndef double(x):\n    time.sleep(3600)\n",
    "equal-to-everything": (
        "class Same:\n"
        "    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n"
        "    def __hash__(self): return 0\n"
        "def double(x):\n    return Same()\n"
    ),
    "number-equal-to-everything": (
        "class Same(int):\n"
        "    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n"
        "    __hash__ = int.__hash__\n"
        "def double(x):\n    return Same(5)\n"
    ),
    "patches-labkit": (
        "import labkit.checks.exercise as e, labkit.checks.verdict as v, labkit.grading.score as s\n"
        "e.judge = lambda *a: v.Verdict(True)\n"
        "s.ExerciseResult.score = property(lambda self: 100.0)\n"
        "def double(x):\n    return 0\n"
    ),
    "patches-torch": (
        "import torch, builtins\n"
        "torch.equal = torch.allclose = lambda *a, **k: True\n"
        "builtins.all = builtins.any = lambda *a: True\n"
        "def double(x):\n    return 0\n"
    ),
    "patches-the-driver": (
        "import gc, types\n"
        "for each in gc.get_objects():\n"
        "    if isinstance(each, types.FunctionType) and each.__name__ in ('encode', 'judge', 'call_double'):\n"
        "        each.__code__ = (lambda *a, **k: b'').__code__ if each.__closure__ is None else each.__code__\n"
        "def double(x):\n    return 0\n"
    ),
    "forged-result": (
        "import os, json, struct\n"
        "def double(x):\n"
        "    head = json.dumps({'passed': True, 'score': 100, 'failure': None}).encode()\n"
        "    for fd in range(3, 64):\n"
        "        try: os.write(fd, struct.pack('<IQ', len(head), 4) + head + b'LKV1')\n"
        "        except OSError: pass\n"
        "    os._exit(0)\n"
    ),
    "garbage-on-every-descriptor": (
        "import os\n"
        "def double(x):\n"
        "    for fd in range(1, 64):\n"
        "        try: os.write(fd, os.urandom(4096))\n"
        "        except OSError: pass\n"
        "    return 0\n"
    ),
    "announces-a-petabyte": (
        "import os, struct\n"
        "def double(x):\n"
        "    for fd in (3, 4):\n"
        "        os.write(fd, struct.pack('<IQ', 2, 1 << 50) + b'{}')\n"
        "    return 0\n"
    ),
    "fork-leftovers": (
        "import os, time\n"
        "def leave():\n"
        "    for _ in range(5):\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            if os.fork() == 0:\n"
        "                time.sleep(3600)\n"
        "            os._exit(0)\n"
        "leave()\n"
        "def double(x):\n    leave()\n    return 0\n"
    ),
    "kills-its-parent": (
        "import os\ndef double(x):\n    os.kill(os.getppid(), 9)\n    import time\n    time.sleep(3600)\n"
    ),
    "memory-hog": "def double(x):\n    return [bytearray(1 << 30) for _ in range(64)]\n",
    "html-in-errors": "def double(x):\n    raise ValueError('</pre><script>alert(1)</script>')\n",
    "deep-recursion-in-C": "def double(x):\n    exec('(' * 5000 + ')' * 5000)\n",
}


def forged_notebook() -> dict[str, Any]:
    """Return a notebook with edited checks, forged metadata and outputs, and no answers."""
    content = notebook({"90.1": "def double(x):\n    return 0\n"})
    content["metadata"]["labkit"]["exercises"] = []
    content["metadata"]["score"] = 1000
    for cell in content["cells"]:
        if cell["id"].startswith("check-"):
            cell["source"] = "import labkit\nlabkit.check = lambda *a: print('passed')"
            cell["metadata"] = {"tags": ["check", "exercise"], "labkit": {"exercise": "90.1"}, "points": 10**6}
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "passed"}]
    content["cells"].insert(1, code_cell("given-1-imports", "import torch\nraise SystemExit(0)", ["given"]))
    return content


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    root = tmp_path_factory.mktemp("hostile")
    course = write_course(root / "course")
    handed_in = root / "in"
    for name, source in ATTACKS.items():
        write_submission(handed_in / f"{name}.ipynb", {"90.1": source})
    (handed_in / "forged-notebook.ipynb").write_text(json.dumps(forged_notebook()))
    (handed_in / "reads-the-answers").mkdir()
    (handed_in / "reads-the-answers" / "90_small.ipynb").symlink_to(HERE / "solutions" / "hidden" / "lesson_90.py")
    write_submission(handed_in / "honest-1.ipynb", RIGHT)
    write_submission(handed_in / "honest-2.ipynb", {"90.1": RIGHT["90.1"]})
    mark = root / "tmp"
    mark.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(mark))  # every process of this batch has it in its environment or stands in it
        patch.setattr(tempfile, "tempdir", None)
        report = grade([handed_in], "90", root / "out", jobs=2, course=course, limits=LIMITS)
    left = [process for process in psutil.process_iter() if _is_of(process, str(mark))]
    yield root / "out", {entry.name: entry.score for entry in report}, left


def _is_of(process: psutil.Process, mark: str) -> bool:
    """Whether a process was started for this batch, by the grader or by a submission."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        seen = [process.cwd(), *process.cmdline(), *process.environ().values()]
    except psutil.Error:
        return False
    return any(mark in text for text in seen)


def test_no_attack_earns_a_point(batch: Batch) -> None:
    assert {name: score for name, score in batch[1].items() if score and name not in HONEST} == {}
    assert len(batch[1]) == len(ATTACKS) + 2 + len(HONEST)


def test_honest_neighbours_get_exactly_their_scores(batch: Batch) -> None:
    assert {name: batch[1][name] for name in HONEST} == HONEST


def test_no_process_is_left_running(batch: Batch) -> None:
    assert batch[2] == []


@pytest.mark.parametrize("name", [*ATTACKS, "forged-notebook", "reads-the-answers"])
def test_each_attack_gets_a_report_in_words(name: str, batch: Batch) -> None:
    out = batch[0]
    page = (out / name / "feedback.html").read_text()
    assert "<script>" not in page
    result = json.loads((out / name / "result.json").read_text())
    assert result["score"] == 0.0
    assert result["extra_data"]["problem"] == "" or name == "reads-the-answers", result["extra_data"]["problem"]
    assert (out / name).stat().st_size < 1 << 20
