"""The same program gives the same results, timeline and memory: in fresh processes, under load, one after another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import labkit

pytestmark = pytest.mark.in_turn

PROGRAM = """
import gc, hashlib, sys
seed = int(sys.argv[1])
sys.setswitchinterval([5e-3, 1e-6, 0.5][seed % 3])       # how Python's threads take turns
junk = [[] for _ in range(seed * 7919)]                  # when Python would collect, and where objects lie
import torch, torch.distributed as dist, labkit
from torch import nn

def messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    value = torch.rand(50, 50)
    for step in range(5):
        value = torch.tanh(value @ value)
        got = torch.empty_like(value)
        ops = [dist.P2POp(dist.isend, value, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
        for one in dist.batch_isend_irecv(ops):
            one.wait()
        value = value + got
        dist.all_reduce(value)
        if rank:
            dist.send(value, 0)
        else:
            for _ in range(size - 1):
                dist.recv(got)                           # from whoever comes first
                value = value + got
    return value

def training():
    class Kept:
        pass
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(4)), nn.Dropout(0.3), nn.BatchNorm1d(32))
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005)
    stepper = torch.optim.Adam(wrapped.parameters())
    for step in range(3):
        stepper.zero_grad()
        kept = Kept()
        kept.itself, kept.loss = kept, wrapped(torch.randn(8 + dist.get_rank(), 32)).pow(2).mean()
        kept.loss.backward()
        stepper.step()
        tensors = {torch.randn(100 * number) for number in range(1, 6)}  # a set: ordered by where objects lie
        del tensors
    return [parameter.detach() for parameter in model.parameters()]

def swallow(digest, value):
    if isinstance(value, torch.Tensor):
        digest.update(value.numpy().tobytes())
    else:
        for one in value:
            swallow(digest, one)

def digest_of(fn):
    run = labkit.run(fn, on=labkit.virtual(8, gpus_per_node=4, jitter=0.2, seed=3, slow={5: 1.5}), echo=False)
    results, timeline, memory = (hashlib.sha256() for _ in range(3))
    swallow(results, run.results)
    for column in ("rank", "lane", "start_ns", "end_ns", "bytes", "peer", "flow"):
        timeline.update(getattr(run.timeline, column).tobytes())
    for table, columns in sorted(run.timeline.tables.items()):
        into = memory if table.startswith("memory") else timeline
        for name, values in sorted(columns.items()):
            text = values.dtype.kind == "U"
            into.update(name.encode() + ("|".join(values.tolist()).encode() if text else values.tobytes()))
    timeline.update("|".join(run.timeline.name.tolist()).encode())
    timeline.update("|".join(problem.text for problem in run.timeline.problems).encode())
    assert len(run.timeline.tables["memory"]["rank"]) > 100
    return [one.hexdigest() for one in (results, timeline, memory)]

def forward():
    model = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 8)).to("meta")
    with torch.no_grad():
        for _ in range(2):
            model(torch.empty(2, 6, 24, device="meta"))

if seed == 2:                                            # its first run holds what a later one holds
    for _ in range(2):
        memory = labkit.run(forward, on=labkit.virtual(1), echo=False).timeline.tables["memory"]
        print([memory[name].tolist() for name in sorted(memory)], flush=True)
for fn in (messages, training, messages, training):
    print(*digest_of(fn), flush=True)
"""


def _printed(folder: Path, load: str) -> list[list[str]]:
    """Return the lines of two fresh processes that run the program while another one carries a load."""
    script = folder / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    busy = subprocess.Popen([sys.executable, "-c", load])
    try:
        runs = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", str(script), str(seed)], stdout=subprocess.PIPE, text=True,
                cwd=Path(labkit.__file__).parents[1],
                env={"PYTHONHASHSEED": str(seed), "PATH": "", "PYTHONPATH": str(Path(labkit.__file__).parents[1])},
            )
            for seed in (1, 2)
        ]  # fmt: skip
        return [run.communicate(timeout=240)[0].splitlines() for run in runs]
    finally:
        busy.kill()
        busy.wait()


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    return _printed(tmp_path_factory.mktemp("fresh"), "pass")


def _agree(one: list[str], other: list[str]) -> None:
    assert [len(one), len(other)] == [4, 4]
    for lines in (one, other):  # the second run of a process is no other than its first
        assert lines[:2] == lines[2:]
        assert all(len(digest) == 64 for line in lines for digest in line.split())
    assert one == other


def test_fresh_processes_agree_bit_for_bit_on_results_timeline_and_memory(printed: list[list[str]]) -> None:
    _agree(printed[0], printed[1][2:])


@pytest.mark.long
def test_fresh_processes_agree_on_a_busy_machine(tmp_path: Path) -> None:
    one, other = _printed(tmp_path, "while True: pass")
    _agree(one, other[2:])


def test_the_first_run_of_a_process_holds_what_a_later_one_holds(printed: list[list[str]]) -> None:
    """What torch loads when an operator is first used must not keep that operator's tensors."""
    first, second = printed[1][:2]
    assert first == second and first.startswith("[[")
