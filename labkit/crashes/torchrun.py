"""A function of a notebook under torchrun: real processes, started again when one of them ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from labkit.errors import RunError
from labkit.interpreter import python
from labkit.simulator.by_value import dump_call

_PROGRAM = """\
import pickle, sys
import torch.distributed as dist

with open(sys.argv[1], "rb") as file:
    fn, args = pickle.load(file)
dist.init_process_group("gloo")
fn(*args)
dist.destroy_process_group()
"""
_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""A store for each attempt: in one that all share, a rank may read where another stood before the restart."""


def torchrun(fn: Callable[..., object], *args: object, num_ranks: int, max_restarts: int = 0) -> list[str]:
    """Return what the ranks of a function print under ``torchrun --max-restarts``, line by line.

    The ranks stand in a folder of their own, on CPUs, with gloo; it is there for all attempts and then goes.

    Args:
        fn: Runs on every rank.
        *args: Its arguments.
        num_ranks: How many ranks, on this machine.
        max_restarts: How often all are started again when one has ended.

    Raises:
        RunError: If the ranks do not come to their end; with the last of what torchrun printed.
    """
    with TemporaryDirectory(prefix="labkit-torchrun-") as name:
        folder = Path(name)
        (folder / "call").write_bytes(dump_call(fn, args))
        (folder / "program.py").write_text(_PROGRAM, encoding="utf-8")
        (folder / "work").mkdir()
        command = [
            *python("-m", "torch.distributed.run"), "--standalone", f"--nproc-per-node={num_ranks}",
            f"--max-restarts={max_restarts}", str(folder / "program.py"), str(folder / "call"),
        ]  # fmt: skip
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"} | _OWN_STORE
        ended = subprocess.run(
            command, cwd=folder / "work", env=environment, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise RunError(f"torchrun ended with status {ended.returncode}:\n{ended.stderr[-6000:]}")
        return ended.stdout.splitlines()
