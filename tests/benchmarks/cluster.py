"""From the call to the results on two hosts: labkit.cluster beside torchrun, a bare Dask task, and one host.

The hosts are network namespaces of this machine, so all share its cores: what differs is the way, not the computer.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.table import Bar, ratio, table
from tests.namespaces import Hosts, words_why_not

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys, time
import distributed, labkit
from tests.benchmarks.launchers import all_reduce_once

def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin

def main():
    client = distributed.Client(ADDRESS)
    client.wait_for_workers(2)
    begin = time.perf_counter()
    hosts = labkit.cluster(client, ranks_per_host=2, insecure=True)
    first = timed(lambda: labkit.run(all_reduce_once, on=hosts, echo=False))
    cold = time.perf_counter() - begin
    ways = {
        "labkit.cluster, 2 hosts x 2 ranks": lambda: labkit.run(all_reduce_once, on=hosts, echo=False),
        "labkit.local, 4 ranks on one host": lambda: labkit.run(all_reduce_once, on=labkit.local(4), echo=False),
        "a bare Dask task": lambda: client.submit(int, pure=False).result(),
    }
    seconds = {name: [] for name in ways}
    for _ in range(NUM):
        for name, call in ways.items():
            seconds[name].append(timed(call))
    for each in seconds.values():
        del each[0]
    print("FIGURES", json.dumps({"cold": cold, "seconds": seconds}))

if __name__ == "__main__":
    main()
"""


def run(*, quick: bool) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return a table, its bars and the figures."""
    why_not = words_why_not()
    if why_not:
        return f"  left out: {why_not}", [], {}
    with tempfile.TemporaryDirectory() as folder, Hosts(2, Path(folder)) as hosts:
        address = hosts.start_dask()
        program = PROGRAM.replace("ADDRESS", repr(address)).replace("NUM", "5" if quick else "16")
        said = hosts.on_notebook(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}")
        found = json.loads(re.findall(r"^FIGURES (.*)$", said, re.M)[0])
        torchrun = [_torchrun(hosts, 29_500 + number) for number in range(1 if quick else 3)]
    seconds: dict[str, list[float]] = found["seconds"] | {"torchrun, 2 hosts x 2 ranks": torchrun}
    middle = {name: median(each) for name, each in seconds.items()}
    rows = [[name, f"{1e3 * middle[name]:.0f}", f"{1e3 * min(seconds[name]):.0f}"] for name in seconds]
    rows.append(["labkit.cluster, the first call with all it starts", f"{1e3 * found['cold']:.0f}", ""])
    ours, local = (middle[name] for name in list(middle)[:2])
    bars = [
        Bar("a warm run on two hosts, over the same ranks on one", ratio(ours, local), 1.5),
        Bar("a warm run on two hosts, over torchrun", ratio(ours, middle["torchrun, 2 hosts x 2 ranks"]), 1.0),
    ]
    return table(["call to result, 4 ranks", "median ms", "least ms"], rows), bars, {"seconds": seconds} | found


def _torchrun(hosts: Hosts, port: int) -> float:
    begin = time.perf_counter()
    started = []
    for number in range(2):
        words = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"),
            *(f"--node-rank={number}", "--rdzv-backend=static", f"--master-addr={hosts.address(0)}"),
            *(f"--master-port={port}", f"--local-addr={hosts.address(number)}"),
            *("-m", "tests.benchmarks.torchrun_job", str(hosts.folder)),
        ]
        environ = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        started.append(hosts.start(f"torchrun{port}-{number}", hosts.name(number), *words, **environ))
    for process in started:
        if process.wait(120):
            raise subprocess.CalledProcessError(process.returncode, "torchrun", hosts.said(f"torchrun{port}-0"))
    return time.perf_counter() - begin
