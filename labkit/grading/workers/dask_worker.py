"""On a Dask worker: one submission comes as bytes, its reports go back as bytes.

Neither a shared file system nor the course's folder is needed there: labkit is, in the same version. The grading itself
happens in a worker process like those of ``--jobs``, which is kept for the next submission.
"""

from __future__ import annotations

import atexit
import select
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labkit.errors import EnvironmentProblem
from labkit.grading.own_folders import own_prefix, remove_left_behind
from labkit.grading.sandbox.bubblewrap import require
from labkit.grading.setting import Setting, setting_of
from labkit.grading.submission import Submission
from labkit.grading.turns import folder_of_this_machine
from labkit.grading.workers.local_class import Busy
from labkit.grading.workers.worker_process import WorkerProcess

_IDLE_SECONDS = 300.0


@dataclass
class _Run:
    """What one process of the cluster keeps of one class."""

    folder: Path
    setting: Setting
    idle: list[WorkerProcess] = field(default_factory=list)
    ending: threading.Timer | None = None


_runs: dict[str, _Run] = {}
_lock = threading.Lock()


def grade_one(
    run_id: str, opening: Mapping[str, Any], files: Mapping[str, bytes], fingerprint: str, name: str, data: bytes
) -> dict[str, Any]:
    """Return ``{"reports": {file name: bytes}}``, ``{"lost": why}`` or ``{"crashed": error, "traceback": text}``.

    Args:
        run_id: Names the class.
        opening: What a worker is told; its paths are relative to the course's folder.
        files: The course's files, by relative path.
        fingerprint: What the course's fingerprint must be here, too.
        name: The submission's name.
        data: Its notebook.

    Raises:
        EnvironmentProblem: If it cannot be graded here.
    """
    run = _run(run_id, opening, files, fingerprint)
    path = run.folder.resolve() / "in" / name / "submission.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    with _lock:
        worker = run.idle.pop() if run.idle else None
    if worker is None:
        worker = WorkerProcess()
        worker.open(run.setting.opening())
    answer: dict[str, Any] = {}
    try:
        answer = _ask(worker, name, path, run.setting.most_seconds)
    finally:
        shutil.rmtree(path.parent)
        if answer.get("op") in ("graded", "crashed"):
            with _lock:
                run.idle.append(worker)
        else:
            worker.end(at_once=True)
        _end_when_idle(run_id)
    if answer["op"] == "failed":
        raise EnvironmentProblem(f"while grading {name}: {answer['error']}")
    if answer["op"] == "crashed":
        return {"crashed": answer["error"], "traceback": answer["traceback"]}
    if answer["op"] == "lost":
        return {"lost": answer["why"]}
    reports = run.setting.out / name
    found = {each.name: each.read_bytes() for each in reports.iterdir()}
    shutil.rmtree(reports)
    return {"reports": found}


def forget(run_id: str) -> None:
    """End what is kept of a class."""
    with _lock:
        run = _runs.pop(run_id, None)
    if run is None:
        return
    if run.ending is not None:
        run.ending.cancel()
    for worker in run.idle:
        worker.end(at_once=False)
    shutil.rmtree(run.folder, ignore_errors=True)


def _run(run_id: str, opening: Mapping[str, Any], files: Mapping[str, bytes], fingerprint: str) -> _Run:
    with _lock:
        if run_id in _runs:
            return _runs[run_id]
        if opening["sandbox"] != "none":
            require()
        remove_left_behind()
        folder = Path(tempfile.mkdtemp(prefix=own_prefix("dask")))
        for relative, content in files.items():
            (folder / "course" / relative).parent.mkdir(parents=True, exist_ok=True)
            (folder / "course" / relative).write_bytes(content)
        setting = _here(setting_of(opening), folder)
        run = _Run(folder, setting)
        if setting.fingerprint() != fingerprint:
            shutil.rmtree(folder)
            raise EnvironmentProblem(
                "this Dask worker has a different version of labkit than the machine that hands out submissions; "
                "scores would not be comparable. Install the same on both."
            )
        _runs[run_id] = run
    atexit.register(forget, run_id)
    return run


def _here(setting: Setting, folder: Path) -> Setting:
    """Return the setting with its relative paths below `folder`."""
    root, course = folder / "course", setting.course
    here = replace(
        course,
        root=root,
        notebook=root / course.notebook,
        class_keys=root / course.class_keys,
        exercises=root / course.exercises if course.exercises else None,
    )
    alone = folder_of_this_machine() / "alone"  # what runs at the same time counts by machine, not by Dask worker
    alone.touch()
    return replace(setting, course=here, out=folder / "out", alone=alone)


def _ask(worker: WorkerProcess, name: str, path: Path, seconds: float) -> dict[str, Any]:
    """Return the worker's last word on a submission, or why there is none."""
    worker.channel.send({"op": "grade", "name": name, "path": str(path), "problem": ""})
    busy = Busy(worker, Submission(name, path), time.monotonic())
    while not busy.is_over(seconds):
        select.select([worker.channel], [worker.channel] if worker.channel.wants_to_write else [], [], 1.0)
        worker.channel.flush()
        for frame in worker.channel.receive():
            if frame.header["op"] != "stage":
                return frame.header
            busy.enter(str(frame.header["stage"]))
        if worker.channel.closed:
            return {"op": "lost", "why": "was ended"}
    return {"op": "lost", "why": "took too long"}


def _end_when_idle(run_id: str) -> None:
    """End what is kept when nothing more comes, as when whoever handed out submissions was killed."""
    with _lock:
        run = _runs.get(run_id)
        if run is None:
            return
        if run.ending is not None:
            run.ending.cancel()
        run.ending = threading.Timer(_IDLE_SECONDS, forget, [run_id])
        run.ending.daemon = True
        run.ending.start()
