"""The two commands of docs/elsewhere.md, on two hosts: network namespaces joined by a cable."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import labkit.timeline
from labkit.timeline.messages import SENDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "elsewhere.md"
HOSTS = (f"labkit-{os.getpid()}-a", f"labkit-{os.getpid()}-b")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=300, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("making hosts of network namespaces takes root and the program ip")
    try:
        ip("netns", "add", HOSTS[0])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    try:
        ip("netns", "add", HOSTS[1])
        ip("link", "add", "eth0", "netns", HOSTS[0], "type", "veth", "peer", "name", "eth0", "netns", HOSTS[1])
        for number, host in enumerate(HOSTS, 1):
            ip("-n", host, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", host, "link", "set", "lo", "up")
        yield HOSTS
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], capture_output=True, timeout=300, check=False)


@pytest.mark.long
def test_the_exported_ring_runs_across_two_hosts(hosts: tuple[str, str], tmp_path: Path) -> None:
    export = [sys.executable, "-c", "from labkit.cli import main; main()", "export"]
    notebook = ROOT / "solutions" / "02_ring_all_reduce.ipynb"
    subprocess.run([*export, notebook, "--out", tmp_path / "ring.py"], check=True, timeout=300, capture_output=True)
    commands = re.findall(r"^torchrun --nnodes=2 .*$", PAGE.read_text(encoding="utf-8"), re.M)
    assert len(commands) == 2
    record = tmp_path / "run.npz"
    environ = os.environ | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "LABKIT_RECORD": str(record)}
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    ahead = ["unshare", "--time", "--monotonic", "3000"]
    has_clocks = shutil.which("unshare") and not subprocess.run([*ahead, "true"], capture_output=True).returncode
    clocks = ([], ahead if has_clocks else [])
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", host, *clock, *torchrun, *shlex.split(command)[1:]],
            cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for host, clock, command in zip(hosts, clocks, commands, strict=True)
    ]  # fmt: skip
    try:
        output = "".join(process.communicate(timeout=240)[0] for process in started)
    finally:
        for process in started:
            process.kill()
    found = re.findall(r"\[rank (\d) of 4\] (\{.*\})", output)
    assert sorted(rank for rank, _ in found) == ["0", "1", "2", "3"], output
    assert all(json.loads(result.replace("'", '"'))["max_difference"] == 0.0 for _, result in found)
    timeline = labkit.timeline.load(record)
    assert timeline.num_ranks == 4
    error_ns = timeline.tables["clock"]["err_ns"]
    assert error_ns[0] == error_ns[1] == 0 < error_ns[2]
    assert (timeline.flow >= 0).any()
    for flow in set(timeline.flow[timeline.flow >= 0].tolist()):
        rows = (timeline.flow == flow).nonzero()[0]
        send = rows[[kind in SENDS for kind in timeline.kind[rows].tolist()]]
        receive = [row for row in rows.tolist() if row not in send.tolist()]
        late = timeline.start_ns[send[0]] - timeline.end_ns[receive[0]]
        assert late <= 2 * error_ns.max(), "no message ends before it begins, whatever the hosts' clocks say"
