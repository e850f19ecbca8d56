"""The text of an exported script: how to start it, the learner's cells, and what joins the ranks."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence

SIGNATURE = "Made by `labkit export`"

_HEAD = '''\
"""{title}: {function}() on every rank. {signature}.

One machine, 4 ranks:

    torchrun --standalone --nproc-per-node=4 {file}

Several machines, the same line on each (HOST is one of them):

    torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 {file}

Slurm, 2 nodes with 8 GPUs each (sbatch or salloc gives the nodes; HOST is the first of them):

    HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 \\
        torchrun --nnodes=2 --nproc-per-node=8 \\
        --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$HOST:29500" {file}

Kubernetes, as the command of a PyTorchJob or TrainJob, whose operator sets PET_NNODES, PET_NPROC_PER_NODE,
PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT for torchrun:

    command: ["torchrun", "{file}"]

Ranks get NCCL and a GPU of their own where the machine has enough GPUs, gloo otherwise. LABKIT_DEVICE=cpu keeps
them on the CPU; LABKIT_SEED=7 draws other random numbers. LABKIT_RECORD=run.npz writes what all ranks of all machines
did and when, where labkit is installed; labkit.timeline.load("run.npz") in a notebook shows it.
"""
'''

_FOOT = '''\
# ---- what labkit.run does in a notebook ----


def _start() -> None:
    """Join the other ranks, run {function}(), print what it returned, and leave."""
    import contextlib
    import os
    import random
    import sys

    import numpy
    import torch
    import torch.distributed as dist

    if "RANK" not in os.environ:
        sys.exit("Start this with torchrun: torchrun --standalone --nproc-per-node=2 {file}")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    gpus = 0 if os.environ.get("LABKIT_DEVICE") == "cpu" else torch.cuda.device_count()
    if gpus:
        try:  # a GPU that is counted may still not work: its driver may be too old for this torch
            torch.zeros(1, device=f"cuda:{{local_rank % gpus}}")
        except RuntimeError as error:
            print(f"No GPU can be used, so ranks are on the CPU: {{error}}", flush=True)
            gpus = 0
    backend = "cpu:gloo,cuda:nccl" if ranks_here <= gpus and dist.is_nccl_available() else "gloo"
    device = f"cuda:{{local_rank % gpus}}" if gpus else "cpu"
    os.environ["LABKIT_DEVICE"] = device  # what labkit.device() returns
    if gpus:
        torch.cuda.set_device(device)
    if local_rank == 0 and 0 < gpus < ranks_here:
        words = "the backend is gloo; send and recv need CPU tensors"
        print(f"{{ranks_here}} ranks share {{gpus}} GPU(s): {{words}}.", flush=True)

    seed = int(os.environ.get("LABKIT_SEED", "0")) + rank
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)

    recorded = contextlib.nullcontext()
    if os.environ.get("LABKIT_RECORD"):
        from labkit.launch.cluster.in_ranks import recorded_to

        recorded = recorded_to(os.environ["LABKIT_RECORD"])
    with recorded:
{join}        try:
            result = {function}()
            print(f"[rank {{rank}} of {{world_size}}] {{result!r}}\\n", end="", flush=True)  # one write: whole lines
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


if __name__ == "__main__":
    _start()
'''


_JOIN = """\
        if "nccl" in backend:  # it connects here, not in the first call that is measured
            dist.init_process_group(backend, device_id=torch.device(device))
        else:
            dist.init_process_group(backend)
"""


def script(*, title: str, function: str, file: str, cells: Sequence[tuple[str, str]], joins_itself: bool) -> str:
    """Return a whole script.

    Args:
        title: The lesson's name.
        function: What every rank calls, without arguments.
        file: The script's own name, for the command lines in its head.
        cells: (id, source) of what it holds, in order; only definitions.
        joins_itself: True if the function calls ``init_process_group``, as the lesson on it does.
    """
    futures = sorted({name for _, source in cells for name in _future_names(source)})
    title, file = _inside_quotes(title), _inside_quotes(file)
    parts = [_HEAD.format(title=title, function=function, signature=SIGNATURE, file=file)]
    if futures:
        parts.append(f"from __future__ import {', '.join(futures)}\n")
    parts += [
        f"# ---- cell {_inside_quotes(identity)} ----\n\n{_without_futures(source)}\n" for identity, source in cells
    ]
    join = "" if joins_itself else _JOIN
    parts.append(_FOOT.format(function=function, file=file, join=join))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _inside_quotes(text: str) -> str:
    """Return a text as it stands between double quotes in Python: one line, which ends neither quotes nor comment."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)[1:-1]


def _future_names(source: str) -> list[str]:
    return [alias.name for node in _futures(source) for alias in node.names]


def _without_futures(source: str) -> str:
    """Return a cell without its ``from __future__`` lines, which a script holds once, at its head."""
    gone = {line for node in _futures(source) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return "\n".join(line for at, line in enumerate(source.split("\n"), 1) if at not in gone).strip("\n")


def _futures(source: str) -> list[ast.ImportFrom]:
    return [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
