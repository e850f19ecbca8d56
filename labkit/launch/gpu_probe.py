"""The GPUs of this host, each tried: as a program it prints what came of it as JSON.

A process of its own, because trying a GPU makes a CUDA context, which no process may have that forks ranks, and because
a driver that does not fit can end the process that asks it. It imports torch and nothing of labkit.
"""

from __future__ import annotations

import json
from typing import Any


def look() -> dict[str, Any]:
    """Return how many GPUs torch counts, the version of NCCL ("" for none), and of each GPU what trying it gave."""
    import torch
    import torch.distributed as dist

    counted = torch.cuda.device_count()
    nccl = ""
    if counted and dist.is_available() and dist.is_nccl_available():
        nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return {"counted": counted, "nccl": nccl, "gpus": [try_gpu(index) for index in range(counted)]}


def try_gpu(index: int) -> dict[str, Any]:
    """Return a GPU's UUID, model and bytes of memory after an addition on it came out right, else the problem."""
    import torch

    try:
        came = (torch.ones(2, device=f"cuda:{index}") + 1).tolist()
        if came != [2.0, 2.0]:
            return {"problem": f"1 + 1 came out as {came[0]}"}
        about = torch.cuda.get_device_properties(index)
        return {"uuid": f"GPU-{about.uuid}", "model": about.name, "memory": about.total_memory}
    except (RuntimeError, AssertionError, AttributeError) as error:  # torch's own errors are RuntimeErrors
        return {"problem": (str(error).strip() or type(error).__name__).splitlines()[0]}


if __name__ == "__main__":
    print(json.dumps(look()))
