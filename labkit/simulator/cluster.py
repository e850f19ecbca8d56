"""What a virtual cluster is made of, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from labkit.errors import ConfigError
from labkit.hardware import Device, Hardware, Link, find_device, find_link
from labkit.units import parse_bytes

Algorithm = Literal["auto", "ring", "tree", "direct", "nvls"]
ALGORITHMS = ("auto", "ring", "tree", "direct", "nvls")
MOST_RANKS = 4096


@dataclass(frozen=True)
class Cluster:
    """N accelerators in nodes of equal size; made by :func:`describe`.

    Attributes:
        world_size: Number of ranks, one per accelerator.
        device: What each is.
        link: What connects those of one node.
        gpus_per_node: Accelerators in a node; the last node may have fewer.
        nic: What connects nodes.
        nics_per_node: Network cards of a node, shared equally by its accelerators.
        slow: Rank -> factor by which everything it computes takes longer.
        slow_links: (source, destination) -> factor by which bytes take longer from one to the other.
        jitter: Each operator and message takes up to this share longer, drawn from the seed.
        seed: Seed of the jitter.
        algorithm: How collectives are costed; "auto" takes what NCCL would.
        join_operators: Whether operators that follow each other without a gap are one span.
        stream: Whether a device computes beside the host that issues its kernels; None is where it is a CUDA device.
        places: For each rank which accelerator it has, counted through the nodes; () is the rank's own number.
    """

    world_size: int
    device: Device
    link: Link
    gpus_per_node: int
    nic: Link
    nics_per_node: int
    slow: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    slow_links: Mapping[tuple[int, int], float] = field(default_factory=lambda: MappingProxyType({}))
    jitter: float = 0.0
    seed: int = 0
    algorithm: Algorithm = "auto"
    join_operators: bool = False
    stream: bool | None = None
    places: tuple[int, ...] = ()

    def computes_beside(self, *, cuda: bool) -> bool:
        """Return whether devices compute beside their hosts: unless told otherwise, where they are CUDA devices."""
        return (cuda and self.device.cores is None) if self.stream is None else self.stream

    def node(self, rank: int) -> int:
        """Return the node a rank is in."""
        return self._place(rank) // self.gpus_per_node

    def local_rank(self, rank: int) -> int:
        """Return the rank's number in its node."""
        return self._place(rank) % self.gpus_per_node

    def _place(self, rank: int) -> int:
        return self.places[rank] if self.places else rank

    def nic_of(self, rank: int) -> int:
        """Return which of its node's cards a rank uses for messages."""
        return self.local_rank(rank) * self.nics_per_node // self.gpus_per_node

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes."""
        return math.ceil(self.world_size / self.gpus_per_node)


def describe(
    world_size: int,
    *,
    gpu: str | Device | Hardware = "h100",
    link: str | Link | None = None,
    gpus_per_node: int | None = None,
    nic: str | Link = "ib_ndr",
    nics_per_node: int | None = None,
    slow: Mapping[int, float] | None = None,
    slow_links: Mapping[tuple[int, int], float] | None = None,
    jitter: float = 0.0,
    seed: int = 0,
    algorithm: Algorithm = "auto",
    memory: int | str | None = None,
    join_operators: bool = False,
    stream: bool | None = None,
) -> Cluster:
    """Return the cluster described, in the words of `labkit.virtual`, which explains them.

    Raises:
        ConfigError: If a number or a name cannot be.
    """
    _whole("world_size", world_size, MOST_RANKS)
    if isinstance(gpu, Hardware):
        link = gpu.link if link is None else link
        gpus_per_node = world_size if gpus_per_node is None else gpus_per_node
        gpu = gpu.device
    device = find_device(gpu)
    if memory is not None:
        device = replace(device, memory_bytes=_capacity(memory))
    inside = find_link(device.native_link if link is None else link)
    outside = find_link(nic)
    per_node = gpus_per_node if gpus_per_node is not None else _usual_node(inside)
    _whole("gpus_per_node", per_node, MOST_RANKS)
    cards = nics_per_node if nics_per_node is not None else per_node
    _whole("nics_per_node", cards, MOST_RANKS)
    if stream and device.cores is not None:
        raise ConfigError(
            f"stream=True needs devices that compute while their hosts go on; operators on {device.name} run on the "
            "thread that issues them. Leave it out, or choose an accelerator."
        )
    if algorithm not in ALGORITHMS:
        raise ConfigError(f"algorithm={algorithm!r} is not known; use one of {', '.join(map(repr, ALGORITHMS))}.")
    if not (jitter >= 0 and math.isfinite(jitter)):
        raise ConfigError(
            f"jitter={jitter} is not a fraction; 0 is none, and 0.1 makes everything take up to 10 % longer."
        )
    for rank, factor in (slow or {}).items():
        _rank("slow", rank, world_size)
        _factor(f"slow={{{rank}: {factor}}}", factor)
    for way, factor in (slow_links or {}).items():
        if not (isinstance(way, tuple) and len(way) == 2):
            raise ConfigError(f"slow_links has the key {way!r}; write a pair of ranks, {{(0, 1): 4.0}}.")
        for rank in way:
            _rank("slow_links", rank, world_size)
        _factor(f"slow_links={{{way}: {factor}}}", factor)
    if inside.name.startswith(("ib_", "ethernet")) and gpus_per_node is None:
        outside = inside  # the link named is the network: one accelerator in each host
    return Cluster(
        world_size, device, inside, per_node, outside, cards, MappingProxyType(dict(slow or {})),
        MappingProxyType(dict(slow_links or {})), float(jitter), seed, algorithm, join_operators, stream,
    )  # fmt: skip


def _usual_node(link: Link) -> int:
    return 1 if link.name.startswith(("ib_", "ethernet")) else 8


def _capacity(memory: object) -> int:
    size = parse_bytes(memory) if isinstance(memory, str) else memory
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError(f'memory={memory!r} is not a size; write a number of bytes, or "16 GB".')
    return size


def _whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"{name}={value!r} is not possible; use a whole number from 1 to {most}.")


def _rank(name: str, rank: object, world_size: int) -> None:
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world_size:
        raise ConfigError(f"{name} names rank {rank!r}; the ranks are 0 to {world_size - 1}.")


def _factor(text: str, factor: float) -> None:
    if not (factor >= 1 and math.isfinite(factor)):
        raise ConfigError(f"{text} is below 1; use a factor of 1 or more.")
