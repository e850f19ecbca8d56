"""The virtual CUDA device of a rank: its number, which tensors are on it, and what it is asked and cannot do.

Tensors stay in the host's memory, for a tensor that pretends to be elsewhere ends a CPU build of torch. Which of them
are *meant* to be on the device is written on their storage; all that asks where a tensor is reads it there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from labkit.simulator.cluster import Cluster
from labkit.simulator.stand_ins import forget, is_stand_in
from labkit.simulator.storages import ON_DEVICE, holds, storages_of
from labkit.torch_port.operators import TO_COPY

_PINNED = "labkit_pinned"
UNUSED = (
    "No rank put a tensor on its CUDA device. What a host computes takes no virtual time; with cuda=False every tensor "
    "is on the accelerator."
)
HOST, META = torch.device("cpu"), torch.device("meta")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_MAY_MIX = (
    "copy_", TO_COPY, "set_", "index", "_index_put", "_unsafe_index", "_foreach", "_fused", "_amp", "lift",
    "_pin_memory", "is_same_size", "_has_compatible", "resize",
)  # fmt: skip
"""Operators that CUDA gives tensors of the host and of the device, by how their names begin."""


class Accelerator:
    """The device of one rank.

    Attributes:
        number: Its number among the devices that the rank sees; -1 where it does not see it.
        count: Devices that it sees: those of the node, or what CUDA_VISIBLE_DEVICES leaves of them.
        current: The device that "cuda" without a number means; 0 until the program sets it.
        used: Whether anything was put on it yet.
        asked: Whether the program did what starts CUDA in a process: from then on the environment counts no more.
        target: Where a call under way puts what it makes: True on the device, False on the host, None where its
            arguments are.
        shapes: Whether tensors on it have no values (labkit.simulator.stand_ins).
        makes_meta: Whether a call under way asks for tensors on meta.
        casts: Parameters that autocast has cast, where they have no values.
        loads_to: What a call of torch.load under way says of places.
        streams: Streams made so far; default_stream: the one there is without a choice (labkit.simulator.cuda_events).
    """

    def __init__(self, rank: int, number: int, count: int, notes: dict[str, int], *, shapes: bool = False) -> None:
        """Begin with an empty device.

        Args:
            rank: The rank it belongs to.
            number: Its number in the node.
            count: Devices of the node.
            notes: What is not modelled and was asked for -> the rank that asked first; shared by all ranks.
            shapes: Whether tensors on it have no values.
        """
        self.shapes, self.makes_meta, self.loads_to = shapes, False, None
        self.casts: dict[int, tuple[Any, Any]] = {}
        self.rank, self._number, self._count = rank, number, count
        self.current, self.used, self.asked = 0, False, False
        self.target: bool | None = None
        self._seen: list[int] | None = None
        self.streams = 0
        self.default_stream: Any = None
        self.ranges: list[Any] = []
        self._notes = notes

    @property
    def seen(self) -> list[int]:
        """The node's devices that the rank sees, in the order in which it numbers them."""
        if self._seen is not None:
            return self._seen
        named = os.environ.get(_VISIBLE)
        found = list(range(self._count)) if named is None else list(_numbers(named, self._count))
        if self.used or self.asked:
            self._seen = found
        return found

    @property
    def number(self) -> int:
        """Its number among the devices that the rank sees."""
        seen = self.seen
        return seen.index(self._number) if self._number in seen else -1

    @property
    def count(self) -> int:
        """How many devices the rank sees."""
        return len(self.seen)

    @property
    def device(self) -> torch.device:
        """The device, as the rank names it."""
        return torch.device("cuda", max(self.number, 0))

    def note(self, text: str) -> None:
        """Remember that the program asked for something that is not modelled."""
        self._notes.setdefault(text, self.rank)

    def is_on(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is on the device."""
        return any(holds(storage) for storage in storages_of(tensor))

    def reads_from(self, place: str) -> torch.device:
        """Return where a tensor goes that a file says was there: of the devices to the rank's own, which is told."""
        device = torch.device(place)
        if device.type != "cuda":
            return device
        if self.index(device) != self.number:
            self.note(
                "torch.load: a tensor saved on another rank's device was put on the rank's own; real ranks would put "
                "it on that device. Pass map_location."
            )
        return self.device

    def index(self, device: Any) -> int:
        """Return which device is meant; raises as CUDA does where there is none such."""
        if device is None:
            return self.current
        if not isinstance(device, int):
            named = torch.device(device)
            if named.type != "cuda":
                raise ValueError(f"Expected a cuda device, but got: {device}")
            device = self.current if named.index is None else named.index
        if device < 0:
            return self.current
        if device >= self.count:
            raise RuntimeError(
                f"CUDA error: invalid device ordinal: cuda:{device} was asked for, and rank {self.rank} sees "
                f"{self.count} virtual devices{_listed(self.count)}."
            )
        return int(device)

    def wants(self, device: Any) -> bool:
        """Return whether a device that a call names is the rank's own; False is the host.

        Raises:
            RuntimeError: If it is another rank's, or none.
        """
        if not isinstance(device, int) and torch.device(device).type != "cuda":
            return False
        index = self.index(device)
        if self.number < 0:
            raise RuntimeError(
                f"Rank {self.rank} put a tensor on cuda:{index}, which belongs to another rank: its own, device "
                f"{self._number} of the node, is not in CUDA_VISIBLE_DEVICES={os.environ.get(_VISIBLE)!r}. "
                "Several ranks on one virtual device are not modelled."
            )
        if index != self.number:
            raise RuntimeError(
                f"Rank {self.rank} put a tensor on cuda:{index}, which belongs to another rank; its own is "
                f'cuda:{self.number}. Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before '
                '"cuda" without a number. Several ranks on one virtual device are not modelled.'
            )
        return True

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, now on the device; one on meta has no place, unless no tensor there has values."""
        if tensor.is_meta and not self.shapes:
            return tensor
        for storage in storages_of(tensor):
            self.put_storage(storage)
        return tensor

    def put_storage(self, storage: Any) -> None:
        """Count a storage as on the device."""
        setattr(storage, ON_DEVICE, True)
        self.used = True

    @contextmanager
    def placing(self, on_device: bool) -> Iterator[None]:
        """Put what the body makes on the device, or on the host."""
        before, self.target = self.target, on_device
        try:
            yield
        finally:
            self.target = before

    @contextmanager
    def making_meta(self) -> Iterator[None]:
        """Let the body make the program's own tensors on meta."""
        before, self.makes_meta = self.makes_meta, True
        try:
            yield
        finally:
            self.makes_meta = before

    def runs(self, name: str, func: Any, args: Any, kwargs: Any, out: Any) -> tuple[bool, bool]:
        """Return whether an operator ran on the device, and whether it moved values between device and host.

        What it made is then where it belongs.

        Raises:
            RuntimeError: If its tensors are on both, as CUDA does.
        """
        on, off, meta, given = self.places(args, kwargs)
        target = self.target
        if target is None:
            if self.makes_meta or (meta and not on):
                return False, False  # the program's own tensors on meta
            # What has no arguments was made by C++, as DDP's buckets are, or from data.
            target = on or meta or not (given or name.startswith("lift") or not self.used)
        if on and off and not name.startswith(_MAY_MIX):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{self.device} and cpu! (when checking arguments of {name})"
            )
        if target and not func.is_view and not name.endswith("_"):  # those yield what is in place already
            for tensor in _tensors(out if isinstance(out, list | tuple) else (out,), {}):
                self.put(tensor)
        elif self.shapes and not func.is_view:
            for tensor in _tensors(out if isinstance(out, list | tuple) else (out,), {}):
                if tensor.is_meta:
                    forget(tensor)
        if self.shapes and name == TO_COPY and kwargs.get("device") == META and not args[0].is_meta:
            return False, False  # C++ brings numbers to where the parameters are, which are on the host with values
        moves = (name == TO_COPY and on != bool(target)) or (name == "copy_" and on and off)
        return bool(on or target), moves

    def places(self, args: Any, kwargs: Any) -> tuple[bool, bool, bool, bool]:
        """Return whether tensors are on the device, on the host, on meta, and whether there are any."""
        on = off = meta = given = False
        for tensor in _tensors(args, kwargs):
            given = True
            if self.is_on(tensor):
                on = True
            elif tensor.is_meta and not (self.shapes and is_stand_in(tensor)):
                meta = True
            elif tensor.dim():
                off = True  # numbers may come from the host
        return on, off, meta, given

    def copies(self, args: Any, kwargs: Any, out: Any) -> tuple[bool, bool]:
        """Return whether a copy between host and device goes to the device, and whether the host waits for it.

        It does not where that is asked for and the host's memory is pinned, which that of a new copy on the host is.
        """
        to_new = not (len(args) > 1 and isinstance(args[1], torch.Tensor))
        source = args[0] if to_new else args[1]
        into = self.is_on(out)
        at_once = bool(kwargs.get("non_blocking") or (not to_new and len(args) > 2 and args[2]))
        if at_once and to_new and not into:
            pin(out)
        return into, not (at_once and is_pinned(source if into else out))


def _numbers(named: str, count: int) -> Iterator[int]:
    """Yield the devices that CUDA_VISIBLE_DEVICES names, up to the first that is none."""
    for word in named.split(","):
        if not word.strip().isdecimal() or int(word) >= count:
            return
        yield int(word)


def _listed(count: int) -> str:
    return "" if count < 1 else ", cuda:0" if count == 1 else f", cuda:0 to cuda:{count - 1}"


def add_accelerators(ranks: Iterable[Any], cluster: Cluster, notes: dict[str, int], *, shapes: bool = False) -> None:
    """Give every rank of a cluster its device.

    Args:
        ranks: The ranks, before they run.
        cluster: The hardware.
        notes: Takes what is not modelled and was asked for, and the rank that asked first.
        shapes: Whether tensors on it have no values.
    """
    in_node = Counter(cluster.node(rank) for rank in range(cluster.world_size))
    for rank in ranks:
        count = in_node[cluster.node(rank.rank)]
        rank.process.accelerator = Accelerator(rank.rank, cluster.local_rank(rank.rank), count, notes, shapes=shapes)


def is_pinned(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is in pinned memory."""
    return any(_PINNED in vars(storage) for storage in storages_of(tensor))


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, now counted as pinned."""
    for storage in storages_of(tensor):
        setattr(storage, _PINNED, True)
    return tensor


def _tensors(args: Iterable[Any], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            for one in value:
                if isinstance(one, torch.Tensor):
                    yield one
