"""Grading over a real Dask cluster: a scheduler and two workers, one of which is killed while it grades."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from grading.conftest import SANDBOX
from grading.small_lesson import RIGHT, write_submission
from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.course import Course
from labkit.grading.grade import grade

pytest.importorskip("distributed", reason="--dask needs the package distributed")

SHIFTED = {**RIGHT, "double": "def double(x):\n    return x + 1\n"}


class Cluster:
    """A scheduler and its workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.scheduler = self._start("dask_scheduler", "--port", "0", "--host", "127.0.0.1", "--no-dashboard")
        self.workers: list[subprocess.Popen[bytes]] = []

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--scheduler-file", str(self.file), *arguments]
        with open(self.folder / "words", "ab") as words:
            return subprocess.Popen(command, cwd=self.folder, stdout=words, stderr=words, start_new_session=True)

    def add_worker(self) -> None:
        words = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        self.workers.append(self._start("dask_worker", *words, "--local-directory", str(self.folder)))

    @property
    def address(self) -> str:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            try:
                return str(json.loads(self.file.read_text())["address"])
            except (OSError, ValueError):
                time.sleep(0.05)
        raise AssertionError((self.folder / "words").read_text())

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.terminate()
        for process in (*self.workers, self.scheduler):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    cluster.add_worker()
    yield cluster
    cluster.end()


def results(out: Path) -> dict[str, str]:
    found = {}
    for path in sorted(out.glob("*/*.*")):
        text = re.sub(r'"execution_time": [\d.]+', "", path.read_text())
        found[f"{path.parent.name}/{path.name}"] = text
    return found


@pytest.mark.long
def test_a_worker_killed_in_mid_grade_loses_nothing_and_every_report_is_written_once(
    course: Course, tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labkit.grading.workers.dask_class._ANSWER_SECONDS", 180)  # workers start on a loaded machine
    for index in range(5):
        write_submission(tmp_path / "in" / f"s{index}.ipynb", SHIFTED if index % 2 else RIGHT)
    (tmp_path / "in" / "torn.ipynb").write_text('{"cells": [')
    cluster.add_worker()
    out, killed = tmp_path / "out", threading.Event()

    def kill_one() -> None:
        while not list(out.glob("s*/result.json")):
            time.sleep(0.02)
        # Not simply the first: on a loaded machine it may come when the other has graded all.
        victim = next(each for each in cluster.workers if psutil.Process(each.pid).children(recursive=True))
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        killed.set()

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    report = grade([tmp_path / "in"], "90", out, course=course.root, sandbox=SANDBOX, dask=cluster.address)
    killer.join(60)
    assert killed.is_set()
    assert {each.name: each.score for each in report} == {"s0": 10, "s1": 8, "s2": 10, "s3": 8, "s4": 10, "torn": 0}
    written = {path: path.stat().st_mtime_ns for path in out.glob("*/result.json")}
    again = grade([tmp_path / "in"], "90", out, course=course.root, sandbox=SANDBOX, dask=cluster.address)
    assert not any(each.graded_now for each in again)
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/result.json")} == written

    here = tmp_path / "here"
    grade([tmp_path / "in"], "90", here, course=course.root, sandbox=SANDBOX)
    assert results(here) == results(out)


@pytest.mark.long
def test_without_a_scheduler_or_workers_grading_ends_in_words_keeps_what_is_written_and_goes_on_later(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labkit.grading.workers import dask_class

    monkeypatch.setattr(dask_class, "_ANSWER_SECONDS", 1)
    monkeypatch.setattr(dask_class, "_LOOK_SECONDS", 0.2)
    for index in range(3):
        write_submission(tmp_path / "in" / f"s{index}.ipynb", RIGHT)
    out = tmp_path / "out"

    def graded_by(cluster: Cluster) -> None:
        monkeypatch.setattr(dask_class, "_ANSWER_SECONDS", 20)
        grade([tmp_path / "in"], "90", out, course=course.root, sandbox=SANDBOX, points_only=True, dask=cluster.address)

    def killed_after_the_first(cluster: Cluster, victim: subprocess.Popen[bytes]) -> None:
        written, take = len(list(out.glob("*/result.json"))), dask_class.DaskClass._take

        def take_and_kill(self: Any, *words: Any) -> Any:
            taken = take(self, *words)
            assert len(list(out.glob("*/result.json"))) == written + 1
            victim.kill()
            victim.wait()
            monkeypatch.setattr(dask_class, "_ANSWER_SECONDS", 1)
            return taken

        with monkeypatch.context() as patch:
            patch.setattr(dask_class.DaskClass, "_take", take_and_kill)
            graded_by(cluster)

    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    cluster = Cluster(tmp_path / "one")
    try:
        with pytest.raises(
            EnvironmentProblem, match=r"at tcp://[\d.:]+ has no worker; start some with `dask worker tcp"
        ):
            grade([tmp_path / "in"], "90", out, course=course.root, dask=cluster.address)
        cluster.add_worker()
        with pytest.raises(
            EnvironmentProblem, match=r"has no worker any more; start some .* run the same command again"
        ):
            killed_after_the_first(cluster, cluster.workers[0])
        written = {path: path.stat().st_mtime_ns for path in out.glob("*/result.json")}
        assert len(written) == 1
        cluster.add_worker()
        with pytest.raises(
            EnvironmentProblem, match=r"went away during grading: 2 of 3 submissions .* it grades the rest"
        ):
            killed_after_the_first(cluster, cluster.scheduler)
    finally:
        cluster.end()
    assert len(list(out.glob("*/result.json"))) == 2
    cluster = Cluster(tmp_path / "two")
    try:
        cluster.add_worker()
        graded_by(cluster)
    finally:
        cluster.end()
    assert len(list(out.glob("*/result.json"))) == 3
    assert {path: path.stat().st_mtime_ns for path in written} == written


@pytest.mark.in_turn
@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_another_service_at_the_address_is_told(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    from labkit.grading.workers import dask_class

    monkeypatch.setattr(dask_class, "_ANSWER_SECONDS", 1)
    submission = write_submission(tmp_path / "a.ipynb", RIGHT)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(says)
                while connection.recv(1 << 16):
                    pass

        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(EnvironmentProblem, match=f"no Dask scheduler answers at {address} "):
            grade([submission], "90", tmp_path / "out", course=course.root, dask=address)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "nonsense",
            r"no Dask scheduler answers at nonsense \(ValueError: missing port .* write the address as tcp://HOST:8786",
        ),
        (
            "http://127.0.0.1:1",
            r"at http://127\.0\.0\.1:1 .*unknown address scheme.* write the address as tcp://HOST:8786",
        ),
    ],
)
def test_an_address_of_another_form_is_told_with_the_right_form(
    course: Course, tmp_path: Path, address: str, said: str
) -> None:
    submission = write_submission(tmp_path / "a.ipynb", RIGHT)
    with pytest.raises(EnvironmentProblem, match=said):
        grade([submission], "90", tmp_path / "out", course=course.root, dask=address)


@pytest.mark.in_turn
def test_what_is_wrong_with_a_cluster_is_told_in_words(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = write_submission(tmp_path / "a.ipynb", RIGHT)
    with pytest.raises(ConfigError, match="--jobs 2 is for this machine"):
        grade([submission], "90", tmp_path / "out", course=course.root, jobs=2, dask="tcp://127.0.0.1:1")
    from labkit.grading.workers import dask_class

    monkeypatch.setattr(dask_class, "_ANSWER_SECONDS", 1)
    with pytest.raises(EnvironmentProblem, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 .*dask scheduler"):
        grade([submission], "90", tmp_path / "out", course=course.root, dask="tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EnvironmentProblem, match="--dask needs the package distributed, which is not installed"):
        grade([submission], "90", tmp_path / "out", course=course.root, dask="tcp://127.0.0.1:1")
