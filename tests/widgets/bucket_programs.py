"""Training steps for the bucket explorer to read: by hand, and of torch's DDP."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional

import labkit


def step() -> None:
    """Send three gradients while backward goes on."""
    handles = []
    with labkit.span("forward"):
        weight = torch.ones(64, 64) @ torch.ones(64, 64)
    with labkit.span("backward"):
        for _ in range(3):
            weight = weight @ weight / weight.norm()
            handles.append(dist.all_reduce(torch.zeros(2**16), async_op=True))
    for handle in handles:
        handle.wait()


class Backwards(nn.Module):
    """Layers of different sizes, registered from the last one used to the first."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (40, 44, 50, 58, 68)
        layers = [nn.Linear(before, after, bias=False) for before, after in pairwise(sizes)]
        self.layers = nn.ModuleList(reversed(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, shape (batch, 68), of an input of shape (batch, 40)."""
        for layer in reversed(self.layers):
            x = layer(x)
        return x


def three_steps(told: dict[str, bool]) -> list[int]:
    """Take three steps of torch's DDP, a bucket for each layer; return the bytes of its gradients as registered."""
    model = Backwards()
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001, **told)  # type: ignore[arg-type]
    for _ in range(3):
        with labkit.span("forward"):
            loss = ddp(torch.randn(3, 40)).square().mean()
        with labkit.span("backward"):
            loss.backward()
        with labkit.span("optimizer"):
            model.zero_grad()
    return [parameter.numel() * 4 for parameter in model.parameters()]


def as_delivered() -> tuple[list[int], list[list[int]]]:
    """Return the bytes of 40 gradients, and the buckets that DDP makes of them by default."""
    widths = [256 + 37 * (layer * layer % 29) for layer in range(41)]
    model = nn.Sequential(*(nn.Linear(*pair, bias=False) for pair in pairwise(widths)))
    ddp = nn.parallel.DistributedDataParallel(model)
    for _ in range(3):
        ddp(torch.ones(2, widths[0])).mean().backward()
    told = str(ddp._get_ddp_logging_data()["rebuilt_per_bucket_param_indices"])
    plan = [[int(index) for index in bucket.split()] for bucket in told.split(", ")]
    return [parameter.numel() * 4 for parameter in model.parameters()], plan


def hooked(name: str) -> tuple[list[Tensor], list[Tensor]]:
    """Return this rank's gradients, and what torch's hook makes of those of all ranks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 10))
    torch.manual_seed(1 + dist.get_rank())
    x, y = torch.randn(32, 96), torch.randint(10, (32,))
    functional.cross_entropy(model(x), y).backward()
    own = [each.grad.clone() for each in model.parameters() if each.grad is not None]
    model.zero_grad()
    ddp = nn.parallel.DistributedDataParallel(model)
    if name == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    else:
        options = {"start_powerSGD_iter": 0, "use_error_feedback": False, "warm_start": False}
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, **options)  # type: ignore[arg-type]
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    with labkit.span("backward"):
        functional.cross_entropy(ddp(x), y).backward()
    return own, [each.grad.clone() for each in model.parameters() if each.grad is not None]
