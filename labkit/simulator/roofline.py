"""What an operator costs: the longer of its arithmetic and its memory traffic, and never less than a launch.

Operators are seen where PyTorch dispatches them, so forward, backward and optimizer count alike. Floating-point
operations come from torch's own table (matrix products, convolutions, attention); every other operator is taken to be
limited by memory: the bytes of all tensors it reads and writes. Views are free.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from labkit.simulator.record import Row, short
from labkit.simulator.state import VirtualRank, memory_of
from labkit.simulator.torch_private import DispatchMode, flop_registry
from labkit.timeline.span import Lane

_FREE = ("empty", "detach", "alias", "lift_fresh", "set_", "_local_scalar_dense", "is_same_size", "resize_")


class Roofline(DispatchMode):  # type: ignore[misc]
    """Counts the time of one rank's operators while it is entered."""

    def __init__(self, rank: VirtualRank) -> None:
        """Count for this rank."""
        super().__init__()
        cluster = rank.simulation.cluster
        self._rank, self._device = rank, cluster.device
        self._slow = cluster.slow.get(rank.rank, 1.0)
        self._jitter = cluster.jitter
        self._registry = flop_registry()
        self._is_free: dict[Any, bool] = {}
        self._bytes_per_ns = self._device.memory_bytes_per_second * self._device.memory_share / 1e9

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what the operator returns, and let its time pass."""
        kwargs = kwargs or {}
        rank = self._rank
        if rank.in_flight:
            self._watch(func, args, kwargs)
        out = func(*args, **kwargs)
        free = self._is_free.get(func)
        if free is None:
            free = self._is_free[func] = _is_free(func)
        if not free:
            self._charge(func, args, kwargs, out)
        return out

    def _charge(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        rank, device = self._rank, self._device
        num_bytes = _bytes_of(args) + _bytes_of(out)
        if kwargs:
            num_bytes += _bytes_of(kwargs.values())
        duration = num_bytes / self._bytes_per_ns
        counted = self._registry.get(func._overloadpacket)
        if counted is not None:
            flops = counted(*args, **kwargs, out_val=out)
            first = next(_tensors(out), None)
            dtype = str(first.dtype).removeprefix("torch.") if first is not None else "float32"
            tf32 = torch.get_float32_matmul_precision() != "highest"
            peak = device.flops_per_second(dtype, tf32=tf32) * device.compute_share
            duration = max(duration, flops / peak * 1e9)
        duration = max(duration, device.launch_ns) * self._slow
        if self._jitter:
            duration *= 1.0 + self._jitter * rank.jitter.random()
        duration_ns = math.ceil(duration)
        name = str(func._overloadpacket.__name__)
        now_ns = rank.now_ns
        rank.record.add(Row(Lane.COMPUTE, now_ns, now_ns + duration_ns, name, "operator", num_bytes))
        rank.spend(duration_ns)

    def _watch(self, func: Any, args: Any, kwargs: Any) -> None:
        """Note an operator that writes a buffer being sent, or touches one being received."""
        rank = self._rank
        written = _written(func, args, kwargs)
        for tensor in _tensors((args, kwargs)):
            extent = None if func.is_view else memory_of(tensor)
            if extent is None:
                continue
            storage, start, end = extent
            for flight in rank.in_flight.get(storage, ()):
                if flight.problem_noted or end <= flight.start or flight.end <= start:
                    continue
                writes = any(tensor is one for one in written)
                if not flight.receiving and not writes:
                    continue
                flight.problem_noted = True
                source, _ = rank.simulation.sources.find(sys._getframe(1))
                line = short(source) or "a line that is not known"
                verb = "wrote into" if writes else "read"
                text = f"Rank {rank.rank} {verb} the buffer of its {flight.text} at {line}, before wait() returned."
                rank.problem("read_before_wait" if flight.receiving else "changed_in_flight", text)


def _is_free(func: Any) -> bool:
    name = func._overloadpacket.__name__
    return bool(func.is_view) or name.startswith(_FREE) or not func._schema.returns


def _bytes_of(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, int | float):
        return 0
    total = 0
    if isinstance(value, Iterable):
        for item in value:
            if isinstance(item, torch.Tensor):
                total += item.numel() * item.element_size()
            elif isinstance(item, tuple | list):
                total += _bytes_of(item)
    return total


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            found += _tensors(value)
    return found
