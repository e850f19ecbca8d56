"""The same contract where processes cannot be forked: every rank a plain subprocess."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from live_kernel import alive, noted, wait_until

import labkit
from labkit.errors import RankFailed, RunTimeout
from labkit.launch import spawn, supervisor

SPAWNED = {"start_method": "spawn"}


@pytest.mark.in_turn
def test_spawned_ranks_return_values_output_and_a_timeline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABKIT_START_METHOD", "spawn")

    class Local:
        def __init__(self, value: float) -> None:
            self.value = value

    def work(x: float) -> tuple[Local, str]:
        tensor = torch.tensor([x * (dist.get_rank() + 1)])
        dist.all_reduce(tensor)
        print("rank", dist.get_rank(), "prints")
        parent = psutil.Process(os.getppid()).cmdline()
        return Local(tensor.item()), " ".join(parent)

    run = labkit.run(work, 2.0, on=labkit.local(2))
    assert [result.value for result, _ in run.results] == [6.0, 6.0]
    assert all(isinstance(result, Local) for result, _ in run.results)
    assert not any("zygote" in parent for _, parent in run.results)
    assert run.output == ["rank 0 prints\n", "rank 1 prints\n"]
    assert "[rank 1] rank 1 prints" in capsys.readouterr().out
    assert run.timeline is not None
    assert {span.name for span in run.timeline.rows()} == {"all_reduce"}


@pytest.mark.long
def test_spawned_ranks_tell_a_deadlock_and_leave_nothing(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / str(os.getpid())).touch()
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
        (tmp_path / str(child.pid)).touch()
        dist.recv(torch.ones(1), src=1 - dist.get_rank())

    with pytest.raises(RunTimeout) as caught:
        labkit.run(work, on=labkit.local(2, **SPAWNED), stall=1)
    assert str(caught.value).startswith("Deadlock: ")
    assert "rank 0 waits in recv from rank 1 (4 B)\n" in caught.value.reports[0]
    assert "dist.recv(torch.ones(1)" in caught.value.reports[0]
    left = noted(tmp_path)
    wait_until(lambda: not alive(left))


@pytest.mark.long
def test_spawned_ranks_name_exception_exit_and_signal() -> None:
    def work(how: str) -> None:
        if dist.get_rank() == 1:
            if how == "raise":
                raise ValueError("on purpose")
            if how == "exit":
                os._exit(7)
            ctypes.string_at(0)
        dist.barrier()

    for how, words in (("raise", "ValueError: on purpose"), ("exit", "exit status 7"), ("crash", "SIGSEGV")):
        with pytest.raises(RankFailed, match=f"rank 1 of 2 failed first: .*{words}") as caught:
            labkit.run(work, how, on=labkit.local(2, **SPAWNED))
        assert caught.value.rank == 1
    assert "ctypes.string_at(0)" in caught.value.reports[1]


@pytest.mark.in_turn
def test_what_a_spawned_rank_printed_last_is_kept_however_late_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the ranks were ended and the run has looked once for what they left."""
    ended, looked = threading.Event(), threading.Event()
    copy, end, pump = spawn._copy_output, spawn.SpawnedRanks.end, supervisor.Supervisor._pump

    def copy_late(child: subprocess.Popen[bytes], target: socket.socket) -> None:
        looked.wait(180)
        copy(child, target)

    def end_and_note(self: spawn.SpawnedRanks) -> None:
        end(self)
        ended.set()

    def pump_and_note(self: supervisor.Supervisor, seconds: float) -> bool:
        found = pump(self, seconds)
        if ended.is_set():
            looked.set()
        return found

    monkeypatch.setattr(spawn, "_copy_output", copy_late)
    monkeypatch.setattr(spawn.SpawnedRanks, "end", end_and_note)
    monkeypatch.setattr(supervisor.Supervisor, "_pump", pump_and_note)
    assert labkit.run(lambda: print("last"), on=labkit.local(1, **SPAWNED), echo=False).output == ["last\n"]


@pytest.mark.long
def test_spawned_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, time, labkit
def work():
    pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
    time.sleep(1000)
if __name__ == "__main__":
    labkit.run(work, on=labkit.local(2, start_method="spawn"), timeout=None)
"""
    starter = subprocess.Popen([sys.executable, "-c", program])
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2, 180)
    ranks = noted(tmp_path)
    assert len(ranks) == 2
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    wait_until(lambda: not alive(ranks))


@pytest.mark.long
def test_without_room_for_logs_the_run_works_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.warns(UserWarning, match=r"This run has no timeline: no folder for it can be made in .*missing"):
        run = labkit.run(dist.get_rank, on=labkit.local(2, **SPAWNED))
    assert run.results == [0, 1] and run.timeline is None
