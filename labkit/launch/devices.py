"""Which backend and which devices a number of ranks gets on this host."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.errors import ConfigError

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Placement:
    """Where the ranks of a run live.

    Attributes:
        backend: What ``init_process_group`` is given.
        devices: One torch device name per rank.
        note: What the learner should know about it, "" where nothing is unusual.
    """

    backend: str
    devices: tuple[str, ...]
    note: str = ""

    @property
    def label(self) -> str:
        """Return backend and kind of device in short, such as gloo/cpu."""
        backend = "nccl" if "nccl" in self.backend else self.backend
        return f"{backend}/{self.devices[0].partition(':')[0]}"


def place(world_size: int, device: str, num_gpus: int, has_nccl: bool) -> Placement:
    """Return where world_size ranks live on a host with num_gpus GPUs.

    NCCL where every rank has a GPU of its own; gloo on CUDA tensors where ranks must share; gloo on the CPU otherwise.

    Raises:
        ConfigError: If CUDA is asked for and there is no GPU, or the device is none of "auto", "cpu", "cuda".
    """
    if device not in DEVICES:
        raise ConfigError(f"device={device!r} is not known; use one of {', '.join(map(repr, DEVICES))}.")
    if device == "cuda" and num_gpus == 0:
        raise ConfigError(
            f'device="cuda" was asked for {world_size} ranks, but torch sees 0 GPUs on this host; '
            'use device="cpu", or device="auto" to take GPUs where there are any.'
        )
    if device == "cpu" or num_gpus == 0:
        return Placement("gloo", ("cpu",) * world_size)
    devices = tuple(f"cuda:{rank % num_gpus}" for rank in range(world_size))
    gpus = "1 GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
    if world_size <= num_gpus and has_nccl:
        return Placement("cpu:gloo,cuda:nccl", devices)
    if world_size <= num_gpus:
        return Placement("gloo", devices, _gloo_words("this torch has no NCCL"))
    return Placement("gloo", devices, _gloo_words(f"{world_size} ranks share {gpus}, and NCCL wants one for each rank"))


def _gloo_words(reason: str) -> str:
    return (
        f"{reason}: the backend is gloo. Collectives take CUDA tensors (through host memory); "
        "send and recv need CPU tensors here."
    )


def gpus_here() -> tuple[int, bool]:
    """Return the number of GPUs torch sees and whether it has NCCL; makes no CUDA context."""
    import torch
    import torch.distributed as dist

    return torch.cuda.device_count(), dist.is_nccl_available()
