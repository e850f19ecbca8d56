"""What a learner does works where Python has no fork, no memfd and no Linux-only call, and there is no bubblewrap."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import labkit
from labkit.errors import EnvironmentProblem
from labkit.launch.local import default_start_method

ELSEWHERE = Path(__file__).parents[1] / "elsewhere"
"""Its sitecustomize.py takes away what only Linux has."""

LEARNER = """
import torch, torch.distributed as dist
import labkit

def total():
    value = torch.full((4,), float(dist.get_rank()))
    dist.all_reduce(value)
    return value[0].item()

def fails():
    if dist.get_rank() == 1:
        raise ValueError("nan")
    dist.barrier()

def hangs():
    if dist.get_rank() == 1:
        dist.recv(torch.ones(1), src=0)

def chunk_bounds(numel, world_size):
    return [(numel * r // world_size, numel * (r + 1) // world_size) for r in range(world_size)]

if __name__ == "__main__":
    run = labkit.run(total, on=labkit.local(2))
    assert run.results == [1.0, 1.0], run.results
    assert run.timeline is not None and run.timeline.num_ranks == 2
    assert labkit.run(total, on=labkit.virtual(4)).results == [6.0] * 4
    for program in (fails, hangs):
        try:
            labkit.run(program, on=labkit.local(2))
        except labkit.errors.LabkitError as error:
            print(str(error).splitlines()[0])
    print(labkit.check("chunk_bounds", chunk_bounds))
"""


def test_the_start_method_asks_for_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork", raising=False)
    assert default_start_method() == "spawn"


@pytest.mark.long
def test_a_learner_needs_no_linux(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LEARNER)
    environment = {**os.environ, "PYTHONPATH": str(ELSEWHERE), "PATH": str(Path(sys.executable).parent)}
    for command in (["program.py"], ["-c", "from labkit.cli import main; main()", "doctor"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if command == ["program.py"]:
            first, second, *rest = done.stdout.splitlines()
            assert first == "rank 1 of 2 failed first: ValueError: nan"
            assert second.startswith("Deadlock: ")
            assert "Exercise chunk_bounds" in rest[0]
        else:
            assert "Ranks are spawned: this Python on Linux has no fork that is safe" in done.stdout
            assert "bubblewrap" in done.stdout and "Labs can run" in done.stdout


def test_a_cluster_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with pytest.raises(EnvironmentProblem, match="needs Linux, here and on the hosts"):
        labkit.run(abs, on=labkit.cluster("tcp://127.0.0.1:1"))
