"""A host as it was measured: what follows from the measures, its file, and cores that ranks share."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from typer.testing import CliRunner

import labkit
from labkit.calibration import as_text, assemble, gather
from labkit.calibration import host as calibration
from labkit.calibration.collectives import beyond_messages_ns
from labkit.calibration.host import Measures, RankMeasure, Stopwatch
from labkit.calibration.points import disturbance, points
from labkit.cli import app
from labkit.errors import ConfigError
from labkit.hardware import Device, Hardware, Link, Measured, load
from labkit.launch.gpus import Gpu, Gpus
from labkit.simulator.network import Cores


def _rank(num_ranks: int = 2) -> RankMeasure:
    return RankMeasure(
        {
            "mm": [(2e6, 3e4, 1e-4), (2e6, 3e4, 3e-4), (2e9, 3e6, 4e-2)],
            "copy_": [(0, 2e6, 1e-3), (0, 2e3, 1e-5)],
        },
        2e-6,
        {8: 3e-4, 2**20: 1.3e-3},
        {8: 5e-4, 2**20: 2.5e-3},
        1e-4,
        num_ranks,
    )


def _host(cores: int | None = 2) -> Hardware:
    return assemble(Measures(cores, [_rank(), _rank()], [_rank(), _rank()], [_rank(4)] * 4))


def _device(**more: object) -> Device:
    return Device("mine", 10**9, 1e9, MappingProxyType({"float32": 1e9}), "pcie4", "made up", 0, **more)  # type: ignore[arg-type]


def test_what_was_measured_becomes_a_device_and_a_link() -> None:
    host = _host()
    assert host.device.cores == 2
    # One of four calls of an operator took three times as long, next to nothing of all of them.
    assert host.device.peak_flops["float32"] == pytest.approx(2e9 / 4e-2, rel=0.01)
    assert host.device.launch_ns == pytest.approx(2_000, rel=0.01)
    assert host.made_on.endswith("calls took 0% longer than undisturbed")
    assert (host.link.post_ns, host.link.latency_ns) == (100_000, 200_000)
    assert host.link.bytes_per_second == pytest.approx(2**20 / 1e-3)
    # Four ranks move 4 MiB together in the 2 ms that bytes add.
    assert host.link.host_bytes_per_second == pytest.approx(2**22 / 2e-3)
    assert "20 µs" not in as_text(host) and "100 µs to post" in as_text(host)


@pytest.mark.in_turn
def test_what_a_collective_takes_beyond_its_messages_is_measured_and_predicted() -> None:
    one = replace(_rank(), reduced={2**20: 5e-3, 2**16: 3e-3, 8: 2e-3})
    plain = assemble(Measures(2, [_rank()], [_rank()], [_rank()] * 2))
    host = assemble(Measures(2, [_rank()], [_rank()], [one] * 2))
    assert plain.link.collective_ns == 0
    took, without = (
        max(labkit.run(_reduce, on=labkit.virtual(2, gpu=each), echo=False).results) for each in (host, plain)
    )
    assert took - without == pytest.approx(host.link.collective_ns / 1e9, rel=1e-6)
    each_alone = [beyond_messages_ns(plain, [(2, size, seconds)]) for size, seconds in one.reduced.items()]
    assert host.link.collective_ns == pytest.approx(sum(each_alone) / 3, abs=1)
    assert host.link.collective_ns > 10**6
    assert beyond_messages_ns(plain, [(2, 2**20, 1e-6)]) == 0
    assert "more than its messages" in as_text(host) and "more than its messages" not in as_text(plain)


def _reduce() -> float:
    begin = time.perf_counter()
    dist.all_reduce(torch.ones(2**16))
    return time.perf_counter() - begin


def test_calls_with_as_much_work_become_one_point_with_the_lower_quartile_of_their_times() -> None:
    calls = [(0, 1000, 1.0), (0, 1010, 3.0), (0, 1005, 2.0), (0, 1005, 7.0), (0, 9000, 9.0)]
    assert points(calls) == (Measured(0, 1005, 2.0), Measured(0, 9000, 9.0))
    assert points(calls, 1.5) == (Measured(0, 1005, 3.0), Measured(0, 9000, 13.5))


def test_calls_add_up_to_what_they_took_whatever_else_ran_on_the_host() -> None:
    undisturbed = [(1e9, 1e6, 4.0)] * 3 + [(0.0, 1e6, 1.0)] * 4
    assert disturbance([undisturbed]) == 1.0
    disturbed = {"mm": [(1e9, 1e6, 4.0)] * 3 + [(1e9, 1e6, 8.0)], "add": [(0.0, 1e6, 1.0)] * 3 + [(0.0, 1e6, 5.0)]}
    longer = disturbance(disturbed.values())
    assert longer == pytest.approx(28 / 20)
    predicted = sum(len(calls) * points(calls, longer)[0].seconds for calls in disturbed.values())
    assert predicted == pytest.approx(sum(one[2] for calls in disturbed.values() for one in calls))
    assert disturbance([]) == 1.0


def test_an_operator_takes_what_it_took_with_as_much_work_and_never_less_than_its_overhead() -> None:
    device = _device(measured={"mm": (Measured(1e3, 1e2, 5e-6), Measured(1e9, 1e6, 2.0), Measured(4e9, 4e6, 8.0))})
    assert device.measured_seconds("mm", 1e9, 1e6) == pytest.approx(2.0, rel=0.1)
    assert 2.0 < (device.measured_seconds("mm", 2e9, 2e6) or 0) < 8.0
    assert device.measured_seconds("mm", 1.0, 10) == 5e-6
    assert device.measured_seconds("mm", 4e12, 4e9) == pytest.approx(8_000, rel=0.5)
    assert device.measured_seconds("conv", 1.0, 1.0) is None


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    host = _host()
    host.save(tmp_path / "host.json")
    assert load(tmp_path / "host.json") == host


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "cannot be read as hardware"),
        ('{"labkit_hardware": 99}', "is not a hardware file of format 1"),
        ('{"labkit_hardware": 1, "device": {}}', "does not describe hardware"),
    ],
)
def test_a_file_that_holds_no_hardware_is_refused_with_what_writes_one(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "host.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load(path)
    assert "labkit calibrate --out FILE" in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.json")


def test_a_core_runs_one_operator_at_a_time() -> None:
    cores = Cores(2)
    assert [cores.run(0, 10), cores.run(0, 10), cores.run(0, 10)] == [(0, 10), (0, 10), (10, 20)]
    assert cores.run(100, 5) == (100, 105)


def test_moving_bytes_is_spread_over_the_cores_that_are_free() -> None:
    cores = Cores(2)
    cores.run(0, 10)
    assert cores.share(0, 6) == 6  # the other core does it alone
    assert cores.share(0, 10) == 13  # 6 to 10 on one, then both
    assert Cores(4).share(5, 0) == 5


def _burn() -> float:
    begin = time.perf_counter()
    for _ in range(50):
        torch.ones(1000).add_(1.0)
    dist.barrier()
    return time.perf_counter() - begin


@pytest.mark.in_turn
@pytest.mark.parametrize(("num_ranks", "times"), [(1, 1), (2, 1), (4, 2), (6, 3)])
def test_ranks_beyond_the_cores_wait_for_one(num_ranks: int, times: int) -> None:
    link = Link("free", 1e15, 0, "made up", "made up")
    alone = Hardware(_device(cores=2), link, "made up")
    took = max(labkit.run(_burn, on=labkit.virtual(num_ranks, gpu=alone), echo=False).results)
    one = max(labkit.run(_burn, on=labkit.virtual(1, gpu=alone), echo=False).results)
    assert took == pytest.approx(times * one, rel=0.02)


def _overlap(num_bytes: int) -> float:
    begin = time.perf_counter()
    work = dist.all_reduce(torch.ones(num_bytes // 4), async_op=True)
    for _ in range(10):
        torch.ones(10**6).add_(1.0)
    assert work is not None
    work.wait()
    return time.perf_counter() - begin


@pytest.mark.in_turn
def test_bytes_that_cores_move_take_time_from_what_they_compute() -> None:
    free = Link("free", 1e15, 0, "made up", "made up")
    costly = Link("costly", 1e15, 0, "made up", "made up", host_bytes_per_second=1e9)
    device = _device(cores=2)
    alone, together = (
        max(
            labkit.run(_overlap, 10**7, on=labkit.virtual(2, gpu=Hardware(device, link, "made up")), echo=False).results
        )
        for link in (free, costly)
    )
    # Two ranks send 10 MB each: 20 ms of both cores, which the same cores cannot spend on additions.
    assert together - alone == pytest.approx(0.02, rel=0.15)


def _post() -> float:
    begin = time.perf_counter()
    work = dist.isend(torch.ones(1), 1) if dist.get_rank() == 0 else dist.irecv(torch.ones(1), 0)
    took = time.perf_counter() - begin
    assert work is not None
    work.wait()
    return took


def test_posting_a_message_costs_the_thread_that_posts() -> None:
    link = Link("slow to post", 1e9, 1_000, "made up", "made up", post_ns=70_000)
    results = labkit.run(_post, on=labkit.virtual(2, link=link), echo=False).results
    assert all(took == pytest.approx(70e-6, abs=10e-6) for took in results)


def test_the_stopwatch_sees_operators_forwards_and_backwards_with_their_work() -> None:
    layer, watch = torch.nn.Linear(64, 32), Stopwatch()
    with watch:
        layer(torch.ones(16, 64)).sum().backward()
    assert [call[0] for call in watch.calls["addmm"]] == [2 * 16 * 64 * 32]
    assert {"mm", "sum"} <= set(watch.calls)
    assert all(seconds > 0 for calls in watch.calls.values() for *_, seconds in calls)


def test_the_command_prints_what_was_measured_and_writes_what_virtual_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labkit.calibration.calibrate", lambda say: _host())
    out = tmp_path / "host.json"
    ended = CliRunner().invoke(app, ["calibrate", "--out", str(out)])
    assert ended.exit_code == 0, ended.output
    assert "µs to post" in ended.output and str(out) in ended.output
    assert repr(labkit.virtual(2, gpu=load(out))) == "VirtualWorld(2 x this_host, gloo_loopback)"


@pytest.mark.long
def test_this_host_is_measured_and_predicts_a_run(tmp_path: Path) -> None:
    host = assemble(gather())
    host.save(tmp_path / "host.json")
    assert host.device.peak_flops["float32"] > 1e9
    assert {"mm", "convolution", "convolution_backward", "gelu", "copy_"} <= set(host.device.measured)
    assert all(math.isfinite(one.seconds) for found in host.device.measured.values() for one in found)
    assert len(json.dumps(host.device.name)) > 2
    run = labkit.run(_burn, on=labkit.virtual(2, gpu=load(tmp_path / "host.json")), echo=False)
    assert 0 < max(run.results) < 1.0
    assert calibration.MESSAGES[0] == 8


def test_one_gpu_is_measured_as_a_gpu_and_its_link_taken_from_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def ran(fn: Any, on: Any, **_: Any) -> Any:
        asked.append((fn.__name__, repr(on)))
        return SimpleNamespace(results=[_rank(1)])

    here = Gpus((Gpu("GPU-0", "stand-in", 16 * 10**9),), 1, "2.29.7")
    monkeypatch.setattr(calibration, "gpus", lambda: here)
    monkeypatch.setattr(calibration, "run", ran)
    monkeypatch.setattr(calibration, "_memory_bytes", lambda cores: 16 * 10**9)
    monkeypatch.setattr(calibration, "_made_on", lambda cores: "a stand-in")
    host = calibration.calibrate()
    assert [name for name, _ in asked] == ["_measure_operators"] and "cuda" in asked[0][1]
    assert (host.device.name, host.device.cores) == ("these_gpus", None)
    assert host.link.name == "pcie4" and "with one GPU" in host.link.latency_source
    assert host.device.launch_ns == pytest.approx(2_000, rel=0.01)


def test_messages_on_gpus_are_timed_by_events_around_the_devices_work(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Event:
        def __init__(self) -> None:
            self.at = -1

        def record(self) -> None:
            self.at = len(done)
            done.append("event")

        def synchronize(self) -> None:
            done.append("synchronized")

        def elapsed_time(self, end: Event) -> float:
            return 3.0 * (end.at - self.at)

    monkeypatch.setattr(calibration, "_event", Event)
    seconds = calibration._device_seconds(lambda: done.append("call"))
    assert done == ["event", "call", "event", "synchronized"]
    assert seconds == pytest.approx(6e-3)
