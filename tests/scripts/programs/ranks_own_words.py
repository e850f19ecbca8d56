"""Says what it finds of itself: the smallest script that a launcher can get wrong."""

import argparse
import json
import os
import sys

import torch
import torch.distributed as dist


class Note:
    """Travels between ranks by its name."""


def main() -> None:
    """Print what this rank sees, as JSON."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=1)
    given = options.parse_args()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(dist.get_rank())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(given.steps):
        optimizer.zero_grad()
        model(torch.randn(2, 4).to(device)).square().sum().backward()
        optimizer.step()
    notes: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(notes, Note())
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID")
    found = {
        "main": sys.modules["__main__"].Note is Note,
        "argv": list(sys.argv),
        "beside": os.path.basename(sys.path[0]),
        "environment": [os.environ[name] for name in names],
        "notes": all(type(one) is Note for one in notes),
        "weight": float(model.module.weight.detach().sum()),
    }
    sys.argv.append(f"changed by rank {dist.get_rank()}")
    dist.barrier()
    found["still"] = sys.argv[-1]
    print(json.dumps(found))
    dist.destroy_process_group()
    sys.exit(0)


if __name__ == "__main__":
    main()
