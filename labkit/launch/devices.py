"""Which backend and which devices a number of ranks gets on this host."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.errors import ConfigError
from labkit.launch.gpus import Gpus

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


def place(world_size: int, device: str, here: Gpus) -> Placement:
    """Return where world_size ranks live on a host with these GPUs.

    NCCL where every rank has a GPU of its own; gloo on CUDA tensors where ranks must share; gloo on the CPU otherwise.

    Raises:
        ConfigError: If CUDA is asked for and no GPU can be used, or the device is none of "auto", "cpu", "cuda".
    """
    num_gpus = len(here.usable)
    if device not in DEVICES:
        raise ConfigError(f"device={device!r} is not known; use one of {', '.join(map(repr, DEVICES))}.")
    if device == "cuda" and num_gpus == 0:
        found = f"{_gpus(here.counted)} counted, none usable ({here.problem})" if here.problem else "torch sees 0 GPUs"
        raise ConfigError(
            f'device="cuda" was asked for {world_size} ranks, but on this host: {found}; '
            'use device="cpu", or device="auto" to take GPUs where there are any.'
        )
    if device == "cpu" or num_gpus == 0:
        note = (
            f"{_gpus(here.counted)} counted, none usable: {here.problem}. Ranks run on the CPU." if here.problem else ""
        )
        return Placement("gloo", ("cpu",) * world_size, note)
    devices = tuple(f"cuda:{rank % num_gpus}" for rank in range(world_size))
    left = (
        f"{here.counted - num_gpus} of {_gpus(here.counted)} cannot be used ({here.problem}). " if here.problem else ""
    )
    if world_size <= num_gpus and here.nccl:
        return Placement("cpu:gloo,cuda:nccl", devices, left.strip())
    if world_size <= num_gpus:
        return Placement("gloo", devices, left + _gloo_words("this torch has no NCCL"))
    share = f"{world_size} ranks share {_gpus(num_gpus)}, and NCCL wants one for each rank"
    return Placement("gloo", devices, left + _gloo_words(share))


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def _gloo_words(reason: str) -> str:
    return (
        f"{reason}: the backend is gloo. Collectives take CUDA tensors (through host memory); "
        "send and recv need CPU tensors here."
    )
