"""One lesson on two Dask workers of this machine: ranks, results, output, one timeline."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError, EnvironmentProblem, RankFailed
from labkit.launch.cluster.addresses import refuse_open_doors
from labkit.launch.cluster.clocks import FIRST
from labkit.launch.cluster.dask_hosts import Options
from labkit.launch.cluster.hosts import hosts_of
from labkit.launch.cluster.versions import HERE, refuse_differences
from labkit.launch.local import Order
from tests.linux import forks

pytestmark = forks


def reduced(scale: float) -> tuple[float, dict[str, str]]:
    tensor = torch.ones(1000) * (dist.get_rank() + 1) * scale
    with labkit.span("reduce"):
        dist.all_reduce(tensor)
    print("rank", dist.get_rank(), "is done")
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    return tensor[0].item(), {name: os.environ[name] for name in names}


@pytest.mark.in_turn
def test_two_workers_reduce_together_and_the_timeline_has_all_ranks(loopback: Any, capfd: Any) -> None:
    world = labkit.cluster(loopback, ranks_per_host=2)
    run = labkit.run(reduced, 2.0, on=world)
    assert [value for value, _ in run.results] == [20.0] * 4
    assert [each["RANK"] for _, each in run.results] == list("0123")
    assert [each["LOCAL_RANK"] for _, each in run.results] == list("0101")
    assert [each["GROUP_RANK"] for _, each in run.results] == list("0011")
    assert {(each["WORLD_SIZE"], each["LOCAL_WORLD_SIZE"]) for _, each in run.results} == {("4", "2")}
    assert run.output == [f"rank {rank} is done\n" for rank in range(4)]
    assert "[rank 3] rank 3 is done" in capfd.readouterr().out
    assert run.timeline is not None
    assert sorted(run.timeline.spans(kind="all_reduce").rank.tolist()) == [0, 1, 2, 3]
    clock = run.timeline.tables["clock"]
    assert clock["err_ns"][0] == 0 < clock["err_ns"][2]
    assert clock["host"].tolist() == [name for name in world.hosts for _ in range(2)]
    agents = [host.about["pid"] for host in hosts_of(loopback, Options()).hosts]
    left = [[child.children() for child in psutil.Process(agent).children()] for agent in agents]
    assert left == [[[]], [[]]], "an agent keeps its preloaded process, and that one no rank"


def test_a_run_is_watched_while_it_grows(loopback: Any, tmp_path: Path) -> None:
    def calls_until_seen() -> None:
        for _ in range(10):
            dist.all_reduce(torch.ones(3))
        while not (tmp_path / "seen").exists():
            time.sleep(0.01)

    seen: set[int] = set()

    def watch(new: Any) -> None:
        seen.update(new.rank.tolist())
        if seen == {0, 1}:
            (tmp_path / "seen").touch()

    order = Order(calls_until_seen, (), 240.0, None, 0, True, False, watch)
    loopback.wait_for_workers(2, timeout=240)  # one that was busy for long may need to join again
    assert labkit.cluster(loopback).launch(order).timeline is not None


@pytest.mark.long  # it loads torch again on both hosts
def test_a_world_that_was_closed_or_killed_starts_again_and_leaves_no_folder(loopback: Any) -> None:
    world = labkit.cluster(loopback)
    for ended in (world.close, lambda: _kill_agents(loopback)):
        before = [host.about for host in hosts_of(loopback, Options()).hosts]
        assert all(Path(each["folder"]).is_dir() for each in before)
        ended()
        psutil.wait_procs([psutil.Process(one["pid"]) for one in before if psutil.pid_exists(one["pid"])], timeout=30)
        assert not any(psutil.pid_exists(each["pid"]) for each in before)
        assert _until_gone([Path(each["folder"]) for each in before]), "what the agent could not, its task removes"
        world = labkit.cluster(loopback)
        assert labkit.run(dist.get_rank, on=world).results == [0, 1]


def _kill_agents(client: Any) -> None:
    for host in hosts_of(client, Options()).hosts:
        os.kill(host.about["pid"], signal.SIGKILL)


def _until_gone(folders: list[Path]) -> bool:
    until = time.monotonic() + 240
    while any(folder.exists() for folder in folders) and time.monotonic() < until:
        time.sleep(0.1)
    return not any(folder.exists() for folder in folders)


def test_agents_leave_the_dask_workers_free_for_other_tasks(loopback: Any) -> None:
    assert len(hosts_of(loopback, Options()).hosts) == 2
    assert loopback.submit(int, pure=False).result(timeout=60) == 0


def test_clocks_of_one_machine_are_found_equal_within_the_error_claimed(loopback: Any) -> None:
    hosts = hosts_of(loopback, Options()).hosts
    labkit.run(os.getpid, on=labkit.cluster(loopback))
    clock = hosts[1].clock
    assert hosts[0].clock == FIRST
    assert clock.after is not None
    for each in (clock.before, clock.after):  # both agents read the one clock of this machine
        assert abs(each.offset_ns) <= each.error_ns


@pytest.mark.in_turn
def test_a_failed_rank_is_named_with_its_host_and_the_next_run_works(loopback: Any) -> None:
    def third_divides_by_zero() -> None:
        if dist.get_rank() == 2:
            raise ZeroDivisionError("here")
        dist.barrier()

    world = labkit.cluster(loopback, ranks_per_host=2)
    with pytest.raises(RankFailed) as caught:
        labkit.run(third_divides_by_zero, on=world)
    assert str(caught.value).startswith(f"rank 2 of 4 (host {world.hosts[1]}) failed first: ZeroDivisionError: here")
    assert caught.value.rank == 2
    assert labkit.run(os.getpid, on=world).results[0] != os.getpid()


def test_what_is_no_cluster_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"neither a Dask scheduler's address nor a Dask client"):
        labkit.cluster("head")
    with pytest.raises(EnvironmentProblem, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9 "):
        labkit.cluster("tcp://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"ranks_per_host=0 is not possible"):
        labkit.cluster("tcp://127.0.0.1:9", ranks_per_host=0)


def test_hosts_without_tls_are_refused_unless_told_and_public_ones_too() -> None:
    refuse_open_doors("tcp://127.0.0.1:8786", ["127.0.0.1"], insecure=False, public=False)
    with pytest.raises(ConfigError, match="has no TLS, and its hosts are not this machine"):
        refuse_open_doors("tcp://10.0.0.1:8786", ["10.0.0.1", "10.0.0.2"], insecure=False, public=False)
    refuse_open_doors("tcp://10.0.0.1:8786", ["10.0.0.1"], insecure=True, public=False)
    refuse_open_doors("tls://10.0.0.1:8786", ["10.0.0.1"], insecure=False, public=False)
    with pytest.raises(ConfigError, match=r"8\.8\.8\.8 can be reached from the whole internet"):
        refuse_open_doors("tls://10.0.0.1:8786", ["8.8.8.8"], insecure=False, public=False)


def test_different_software_is_refused_and_the_message_has_every_version() -> None:
    same = {"Python": "3.11", "labkit": "0.1.0", "torch": "2.13.0+cu130", "NCCL": "2.29"}
    refuse_differences({"a": same, "b": same, HERE: same | {"torch": "2.13.0+cpu", "NCCL": ""}})
    with pytest.raises(ConfigError, match=r"torch: 2\.13\.0\+cu130 \(a\), 2\.12\.0\+cu130 \(b\), 2\.13\.0\+cu130"):
        refuse_differences({"a": same, "b": same | {"torch": "2.12.0+cu130"}, HERE: same})
    with pytest.raises(ConfigError, match=r"NCCL: 2\.29 \(a\), none \(b\)"):
        refuse_differences({"a": same, "b": same | {"NCCL": ""}})
