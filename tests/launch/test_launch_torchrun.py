"""The same function under plain torchrun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
