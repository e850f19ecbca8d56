"""A class of hostile and honest submissions, graded in one go, and what it left behind."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from grading.small_lesson import RIGHT, write_course, write_submission

from labkit.grading.grade import grade
from labkit.grading.limits import Limits
from security.attacks import Places, attacks
from security.broken_files import write_broken

LIMITS = Limits(
    cell_seconds=8.0,
    notebook_seconds=30.0,
    case_seconds=3.0,
    retry_seconds=4.0,
    rank_flood_bytes=4 << 20,
    rank_memory_bytes=2 << 30,
    kernel_memory_bytes=3 << 30,
    case_memory_bytes=3 << 30,
)
PATIENT = replace(LIMITS, cell_seconds=60.0, notebook_seconds=120.0, case_seconds=20.0, retry_seconds=30.0)
"""For attacks that do not try to last: on a loaded machine an honest case takes seconds."""
HONEST = {"honest-1": 10.0, "honest-2": 2.0, "zz-honest-3": 10.0}


@dataclass(frozen=True)
class Batch:
    """What came of it.

    Attributes:
        out: Where the reports are.
        scores: By name.
        hostile: Names of the hostile and broken ones.
        processes: Of this batch, that still run.
        mounts: New since the beginning.
        files: In the batch's folder for temporary files, and outside of it where something could have been written.
        calls: How often the host's service was called.
        seconds: How long it took.
        limits: What each was allowed to use.
    """

    out: Path
    scores: dict[str, float]
    hostile: tuple[str, ...]
    processes: list[str]
    mounts: set[str]
    files: list[str]
    calls: int
    seconds: float
    limits: Limits


def run_batch(
    root: Path,
    names: Collection[str],
    jobs: int = 2,
    sandbox: str = "bubblewrap",
    broken: bool = False,
    limits: Limits = LIMITS,
) -> Batch:
    """Grade the attacks `names` among honest submissions.

    Args:
        root: An empty folder.
        names: Which attacks.
        jobs: Submissions at a time.
        sandbox: "none" for attacks that do no harm to this machine.
        broken: Grade the broken files, too.
        limits: What each may use.
    """
    course = write_course(root / "course")
    temporary, outside = root / "tmp", root / "outside"
    temporary.mkdir()
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)
    with socket.socket() as service, pytest.MonkeyPatch.context() as patch:
        service.bind(("127.0.0.1", 0))
        service.listen()
        service.setblocking(False)
        places = Places(course, root / "in", root / "out", outside, service.getsockname()[1], os.getpid())
        every = attacks(places)
        chosen = {name: every[name] for name in names}
        for name, answers in chosen.items():
            write_submission(root / "in" / f"{name}.ipynb", answers)
        hidden = course / "exercises" / "small" / "double" / "hidden.py"
        (root / "in").mkdir(exist_ok=True)
        handed_in = write_broken(root / "in", hidden) if broken else []
        for name, answers in (("honest-1", RIGHT), ("honest-2", {"double": RIGHT["double"]}), ("zz-honest-3", RIGHT)):
            write_submission(root / "in" / f"{name}.ipynb", answers)
        patch.setenv("TMPDIR", str(temporary))  # every process of this batch has it in its environment
        patch.setenv("LABKIT_TEST_SECRET", "hunter2")
        patch.setattr(tempfile, "tempdir", None)
        mounts = _mounts()
        begin, begun = time.monotonic(), time.time()
        paths, about = [root / "in"], {"jobs": jobs, "course": course, "limits": limits, "sandbox": sandbox}
        report = grade(paths, "90", root / "out", progress=False, **about)  # type: ignore[arg-type]
        seconds = time.monotonic() - begin
        calls = 0
        try:
            while True:
                service.accept()[0].close()
                calls += 1
        except BlockingIOError:
            pass
    files = [str(path) for folder in (temporary, outside) for path in folder.rglob("*")]
    processes = _processes_of(str(root), begun)
    scores = {entry.name: entry.score for entry in report}
    hostile = (*chosen, *handed_in)
    return Batch(root / "out", scores, hostile, processes, _mounts() - mounts, files, calls, seconds, limits)


def _mounts() -> set[str]:
    """Return where something is mounted, but for the networks that another test may make meanwhile."""
    places = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return {place for place in places if not place.startswith("/run/netns")}


def _processes_of(mark: str, begun: float) -> list[str]:
    """Return the processes that were started for this batch, by the grader or by a submission.

    A grader that another test killed leaves processes that nobody is above, too. Those end by themselves, at once.
    """
    marked = [each for each in psutil.process_iter() if _is_marked(each, mark)]
    _, stayed = psutil.wait_procs([each for each in psutil.process_iter() if _is_orphan(each, begun)], timeout=300)
    return sorted(f"{each.pid} {' '.join(_words(each))[:200]}" for each in {*marked, *filter(_lives, stayed)})


def _is_marked(process: psutil.Process, mark: str) -> bool:
    if process.pid == os.getpid() or not _lives(process):
        return False
    return any(mark in text for text in _words(process))


def _is_orphan(process: psutil.Process, begun: float) -> bool:
    """Whether nobody is above a process of a grader or a submission; what it was started with may name no batch."""
    try:
        ours = any(word.startswith("labkit.grading.") for word in process.cmdline())
        stranger = any(uid >= 1_900_000_000 for uid in process.uids())
        return process.ppid() == 1 and (ours or stranger) and process.create_time() > begun - 1 and _lives(process)
    except psutil.Error:
        return False


def _words(process: psutil.Process) -> list[str]:
    """Return what a process was started with and where it is, as far as that can be read."""
    found: list[str] = []
    for ask in (process.cmdline, lambda: [process.cwd()], lambda: list(process.environ().values())):
        with suppress(psutil.Error):
            found += ask()
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
