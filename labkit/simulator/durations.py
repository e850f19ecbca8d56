"""How long an operator takes on a device: by its size where that was measured, by peaks elsewhere."""

from __future__ import annotations

from typing import Any

from labkit.hardware import Device
from labkit.simulator.storages import tensors_in
from labkit.torch_port.operators import schema_of
from labkit.torch_port.process_tables import float32_matmul_precision

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addbmm", "linear", "_addmm_activation"})
_ATTENTION = "_scaled_dot_product_"
_CAUSAL = "is_causal"
_HALVES = ("bfloat16", "float16")


class Durations:
    """What operators take on a device, alone; and for one with streams, what products and attention reach there."""

    def __init__(self, device: Device, *, beside_host: bool) -> None:
        """Tell for this device, which computes beside its host or is one with it."""
        self._device, self._beside_host = device, beside_host
        self._bytes_per_ns = device.memory_bytes_per_second * device.memory_share / 1e9

    def nanoseconds(self, name: str, flops: float | None, num_bytes: int, out: Any) -> float:
        """Return how long an operator takes.

        Args:
            name: The operator's.
            flops: Its floating-point operations, None where they are not counted.
            num_bytes: What it reads and writes.
            out: What it yields.
        """
        device = self._device
        seconds = device.measured_seconds(name, flops or 0, num_bytes)
        duration = num_bytes / self._bytes_per_ns if seconds is None else seconds * 1e9
        if seconds is None and flops is not None:
            duration = max(duration, flops / self._reached(name, flops, out) * 1e9)
        if self._beside_host:
            return max(duration, device.kernel_ns)
        return device.launch_ns + duration if device.cores else max(duration, device.launch_ns)

    def done(self, func: Any, name: str, flops: int | None, args: Any, kwargs: Any) -> float | None:
        """Return the operations that a kernel does of those that are counted, which are those of all scores."""
        if flops is None or not self._beside_host or self._device.attention_share is None:
            return flops
        return flops * causal_share(func, args, kwargs) if name.startswith(_ATTENTION) else flops

    def peak(self, out: Any) -> float:
        """Return the operations a second that the device does at most on tensors like this."""
        return self._device.flops_per_second(_dtype(out), tf32=tf32())

    def _reached(self, name: str, flops: float, out: Any) -> float:
        device, peak = self._device, self.peak(out)
        if self._beside_host and flops and _dtype(out) in _HALVES:
            if device.products is not None and name in _PRODUCTS:
                sums = sum(one.numel() for one in tensors_in((out,)))
                return device.products.flops_per_second(sums, flops / 2 / max(sums, 1))
            if device.attention_share is not None and name.startswith(_ATTENTION):
                return peak * device.attention_share
        return peak * device.compute_share


def causal_share(func: Any, args: Any, kwargs: Any) -> float:
    """Return the share of scores that an attention operator computes: half of them under a causal mask."""
    names = [argument.name for argument in schema_of(func).arguments]
    if _CAUSAL not in names:
        return 1.0
    place = names.index(_CAUSAL)
    return 0.5 if kwargs.get(_CAUSAL, place < len(args) and args[place]) else 1.0


def tf32() -> bool:
    """Return whether float32 products may take tensor cores."""
    return float32_matmul_precision() != "highest"


def _dtype(out: Any) -> str:
    first = next(tensors_in((out,)), None)
    return str(first.dtype).removeprefix("torch.") if first is not None else "float32"
