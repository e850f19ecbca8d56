"""torchrun --nnodes 1:2 on hosts made of network namespaces: a node dies, training goes on, a node joins."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.namespaces import Hosts, words_why_not

pytestmark = pytest.mark.long

PROGRAM = """
import os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
optimizer = torch.optim.SGD([weight], lr=0.01, momentum=0.9)
data = torch.randn(8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
step = 0
if os.path.exists("saved.pt"):
    step, weight.data, state = torch.load("saved.pt", weights_only=True)
    optimizer.load_state_dict(state)
dist.barrier()  # all have read it
ended = torch.zeros(())
while not ended:
    loss = (data[rank::ranks] @ weight - 1).square().sum() / 8  # this rank's share of the batch
    optimizer.zero_grad()
    loss.backward()
    total = torch.cat([weight.grad, loss.detach()[None]])
    dist.all_reduce(total)
    weight.grad.copy_(total[:4])
    optimizer.step()
    step += 1
    print(f"step {step} of {ranks} nodes, loss {total[4]:.6f}", flush=True)
    if rank == 0:
        torch.save((step, weight.data, optimizer.state_dict()), "saving.pt")
        os.replace("saving.pt", "saved.pt")
        ended.fill_(os.path.exists("enough"))
        time.sleep(0.05)
    dist.broadcast(ended, 0)
dist.destroy_process_group()
"""


def _agent(hosts: Hosts, number: int, name: str) -> None:
    hosts.start(
        name, hosts.name(number), sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1",
        "--max-restarts=9", "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts.address(0)}:29400", "--rdzv-id=lesson",
        f"--rdzv-conf=is_host={int(number == 0)},last_call_timeout=3,join_timeout=120",
        f"--local-addr={hosts.address(number)}", "program.py",
        GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )  # fmt: skip


def test_a_node_leaves_and_one_joins_and_the_loss_goes_on(tmp_path: Path) -> None:
    if why_not := words_why_not():
        pytest.skip(why_not)
    (tmp_path / "program.py").write_text(PROGRAM)
    with Hosts(2, tmp_path) as hosts:
        _agent(hosts, 0, "first")
        hosts.wait_for("first", "of 1 nodes")
        _agent(hosts, 1, "second")
        hosts.wait_for("first", "of 2 nodes")
        hosts.signal(hosts.processes_on(1), signal.SIGKILL)
        last = _steps(hosts.said("first"))[-1][0]
        hosts.wait_for("first", f"step {last + 20} of 1 nodes")
        _agent(hosts, 1, "third")
        hosts.wait_for("third", "of 2 nodes")
        (tmp_path / "enough").touch()
        assert hosts.processes["first"].wait(120) == 0 == hosts.processes["third"].wait(120), hosts.said("first")
        steps = _steps(hosts.said("first"))
    assert [ranks for n, (_, ranks, _) in enumerate(steps) if n == 0 or steps[n - 1][1] != ranks] == [1, 2, 1, 2]
    losses: dict[int, float] = {}
    for step, _, loss in steps:
        assert losses.setdefault(step, loss) == pytest.approx(loss, abs=2e-6), "a step done again has the same loss"
    assert sorted(losses) == list(range(1, max(losses) + 1))
    assert len(steps) - len(losses) <= 3, "each change costs the step in which it came"


def _steps(said: str) -> list[tuple[int, int, float]]:
    found = re.findall(r"step (\d+) of (\d) nodes, loss (\d+\.\d+)", said)
    return [(int(step), int(ranks), float(loss)) for step, ranks, loss in found]
