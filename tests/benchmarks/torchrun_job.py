"""The job as torchrun starts it: python -m tests.benchmarks.torchrun_job FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed as dist

from tests.benchmarks.launchers import _write, all_reduce_once

if __name__ == "__main__":
    dist.init_process_group("gloo")
    _write(Path(sys.argv[1]), all_reduce_once())
    dist.destroy_process_group()
