"""Times of a GPU without one: events that come when told, on a clock that drifts."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from stand_in_gpu import DEVICE, StandInGpu, Work

from labkit.launch import recording
from labkit.launch.recording import device_times, read_log
from labkit.launch.recording.call import Call
from labkit.launch.recording.device_times import DeviceTimes
from labkit.launch.recording.event_log import EventLog
from labkit.launch.recording.layout import DEVICE_TIME, DONE
from labkit.launch.recording.recorder import Recorder
from labkit.launch.watchdog import Watchdog
from labkit.timeline.span import Lane


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(device_times, "ANCHOR_SECONDS", 0.1)
    monkeypatch.setattr(device_times, "CLOSE_SECONDS", 0.2)
    made = Recorder(EventLog(tmp_path / "log", 0, 1000), 0)
    made.device_times = DeviceTimes(made.log, StandInGpu())
    yield made
    made.device_times.close()


def posted(recorder: Recorder, kept: Any = None, kind: str = "all_reduce") -> tuple[Call, Work]:
    """Post a call as RecordedGroup does."""
    assert recorder.device_times is not None
    word, work = recorder.log.intern(kind), Work()
    start = recorder.device_times.started(DEVICE)
    call = Call(recorder, -1, word, 400, -1, 0, recorder.log.intern("g|0,1"), 0, True, False, flags=DEVICE_TIME)
    call.device, call.device_start, call.start_ns = DEVICE, start, time.monotonic_ns()
    call.record = recorder.log.begin(
        call.start_ns, int(Lane.COMMUNICATION), word, word, num_bytes=400, group=call.group, flags=call.flags
    )
    recorder.device_times.finished(call, work, kept)
    return call, work


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "the poller has not done it"
        time.sleep(0.005)


def test_a_run_that_fails_keeps_the_calls_it_had(recorder: Recorder, tmp_path: Path) -> None:
    for _ in range(10):
        posted(recorder)[1].complete()
    until(lambda: (read_log(tmp_path / "log").records["state"] == DONE).sum() == 10)
    assert not read_log(tmp_path / "log").closed, "nobody closed the record: it was written while the run went on"


def test_times_lie_within_the_error_exported_though_the_devices_clock_drifts(
    recorder: Recorder, tmp_path: Path
) -> None:
    truth = []
    for _ in range(30):
        call, work = posted(recorder)
        time.sleep(0.02)
        truth.append((call.device_start.host_ns, work.complete()))
    recorder.close()
    log = read_log(tmp_path / "log")
    assert log.clock_error_ns > 0
    assert log.closed
    off = [
        max(abs(int(row["start"]) - start), abs(int(row["end"]) - end))
        for row, (start, end) in zip(log.records, truth, strict=True)
    ]
    # 0.6 s at 1 % are 6 ms, where nobody corrects them.
    assert max(off) <= log.clock_error_ns + 100, "100 ns for rounding"


def test_an_open_call_of_the_device_is_a_wait_and_a_busy_host_does_not_hide_it(
    recorder: Recorder, tmp_path: Path
) -> None:
    _, work = posted(recorder)
    until(lambda: read_log(tmp_path / "log").waiting is not None)
    wait = read_log(tmp_path / "log").waiting
    assert wait is not None
    assert (wait.operation, wait.on_device, wait.group_ranks) == ("all_reduce", True, (0, 1))
    watchdog, logs = Watchdog(2.0), {0: read_log(tmp_path / "log")}
    assert not watchdog.deadlocked({0: 1.0}, logs, now=100.0)
    assert watchdog.deadlocked({0: 9.0}, logs, now=150.0), "the host turned in .item() for all that time"
    work.complete()
    until(lambda: read_log(tmp_path / "log").waiting is None)


def test_a_call_that_the_device_has_not_reached_is_no_wait(recorder: Recorder, tmp_path: Path) -> None:
    assert recorder.device_times is not None
    call, _ = posted(recorder)
    call.device_start.host_ns = time.monotonic_ns() + 10**10  # work queued before it takes ten seconds
    recorder.device_times.look()
    assert read_log(tmp_path / "log").waiting is None


@pytest.mark.in_turn
def test_a_temporary_lives_until_the_device_is_done_with_it_and_no_longer(recorder: Recorder) -> None:
    tensor = torch.ones(10)
    alive = weakref.ref(tensor)
    _, work = posted(recorder, kept=[tensor])
    del tensor
    gc.collect()
    assert alive() is not None
    work.complete()
    until(lambda: alive() is None)


def test_a_region_around_work_of_the_device_has_the_devices_times(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_times, "region_device", lambda: DEVICE)
    with recorder.span("forward", "forward"):
        pass
    with recorder.span("read", "host"):
        pass
    until(lambda: bool(read_log(tmp_path / "log").records["flags"][0] & DEVICE_TIME))
    assert not read_log(tmp_path / "log").records["flags"][1] & DEVICE_TIME, "what the host does has the host's time"


def test_what_is_done_before_the_measured_window_is_not_recorded(tmp_path: Path) -> None:
    recording.install(tmp_path / "own", 0)
    try:
        with recording.unrecorded(), recording.span("communicator", "compute"):
            pass
        with recording.span("lesson", "compute"):
            pass
    finally:
        recording.close()
    log = read_log(tmp_path / "own")
    assert [log.name(int(each)) for each in log.records["name"]] == ["lesson"]
