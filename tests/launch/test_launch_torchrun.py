"""The same function under plain torchrun."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import labkit.timeline

PROGRAM = """
import torch, torch.distributed as dist, labkit

def work():
    with labkit.span("all"):
        tensor = torch.ones(4, device=labkit.device())
        dist.all_reduce(tensor)
    return tensor[0].item()

if __name__ == "__main__":
    dist.init_process_group(device_id=labkit.device() if labkit.device().type == "cuda" else None)
    print(f"rank {dist.get_rank()} has {work()}")
    dist.destroy_process_group()
"""


@pytest.mark.long
def test_device_and_span_work_under_plain_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):  # two processes share one pipe: line ends may come after both texts
        assert done.stdout.count(f"rank {rank} has 2.0") == 1, done.stdout


IN_RANKS = """
import json, torch, torch.distributed as dist, labkit

def mean(scale):
    x = torch.ones(3) * dist.get_rank() * scale
    with labkit.span("mean"):
        dist.all_reduce(x)
    print("here is", dist.get_rank())
    return x[0].item() / dist.get_world_size()

if __name__ == "__main__":
    run = labkit.run(mean, 4.0, on=labkit.cluster())
    kinds = None if run.timeline is None else sorted(set(run.timeline.kind.tolist()))
    print(json.dumps(["RUN", run.results, run.output, kinds, run.backend]) + "\\n", end="", flush=True)
"""

PLAIN = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(int(sys.argv[1])):
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""


def torchrun(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | environ
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


@pytest.mark.long
def test_inside_torchrun_rank_0_gets_the_run_and_the_others_their_own_result(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(IN_RANKS)
    done = torchrun(str(script))
    assert done.returncode == 0, done.stderr
    found = sorted(
        (json.loads(each) for each in re.findall(r"^\[\"RUN.*$", done.stdout, re.M)), key=lambda run: len(run[1])
    )
    assert found[0] == ["RUN", [2.0], ["here is 1\n"], None, "gloo/cpu"]
    assert found[1][1:3] == [[2.0, 2.0], ["here is 0\n", "here is 1\n"]]
    assert {"all_reduce", "span"} <= set(found[1][3])


@pytest.mark.in_turn
def test_a_plain_script_under_torchrun_writes_the_timeline_of_all_ranks(tmp_path: Path) -> None:
    script, record = tmp_path / "train.py", tmp_path / "run.npz"
    script.write_text(PLAIN)
    done = torchrun("-m", "labkit.record", str(script), "3", LABKIT_RECORD=str(record))
    assert done.returncode == 0, done.stderr
    timeline = labkit.timeline.load(record)
    assert timeline.num_ranks == 2
    assert [each.rank for each in timeline.collectives() if each.kind == "all_reduce"] == [0] * 3 + [1] * 3
    assert timeline.tables["clock"]["err_ns"].tolist() == [0, 0], "one host has one clock"
