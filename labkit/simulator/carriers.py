"""What carries a call among real ranks, gloo or NCCL, and what that refuses: here it is refused, too.

A program that names a backend gets what that backend does. Where it names none, tensors of virtual CUDA devices go over
NCCL and those of the host over gloo, as torch chooses by itself; without CUDA devices, what both refuse is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from labkit.simulator.accelerator import Accelerator

NCCL, GLOO = "nccl", "gloo"
_BY_DEFAULT = {"cpu": GLOO, "cuda": NCCL}
_BITWISE = ("BAND", "BOR", "BXOR")
_COMMON = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64),
    *(torch.bool, torch.complex64, torch.complex128),
)
_DTYPES = {GLOO: frozenset(_COMMON), NCCL: frozenset((*_COMMON, torch.float8_e4m3fn, torch.float8_e5m2))}
"""What each reduces and gathers; complex tensors travel as pairs of real numbers. gloo's messages are bytes of any."""


def carrier(
    accelerator: Accelerator | None,
    backends: Mapping[str, str],
    kind: str,
    tensors: Sequence[torch.Tensor],
    *,
    op: str = "",
    is_message: bool = False,
) -> str:
    """Return the backend that would carry a call: "nccl", "gloo", or "" where it could be either.

    Args:
        accelerator: The rank's virtual CUDA device, None where it has none.
        backends: Kind of device -> backend, as the program named them; empty for none named.
        kind: What was called.
        tensors: What it was given.
        op: What it reduces with, "" where it reduces nothing.
        is_message: Whether it is a send or a receive.

    Raises:
        RuntimeError: If no backend would carry it, or its own would refuse it.
    """
    if accelerator is None:
        named = set(backends.values())
        name = named.pop() if len(named) == 1 else ""
    else:
        name = _by_place(accelerator, backends or _BY_DEFAULT, kind, tensors)
        if is_message and name == GLOO and any(map(accelerator.is_on, tensors)):
            raise RuntimeError(
                f"{kind} got a tensor of {accelerator.device}: the backend gloo sends and receives tensors of the host "
                "only. Move it with tensor.cpu(), or use the backend nccl."
            )
    _check_dtypes(name, kind, tensors, is_message)
    if op:
        _check_op(name, op, tensors)
    return name


def _by_place(accelerator: Accelerator, backends: Mapping[str, str], kind: str, tensors: Iterable[torch.Tensor]) -> str:
    places = {
        "cuda" if accelerator.is_on(tensor) else "cpu"
        for tensor in tensors
        if not tensor.is_meta or accelerator.is_on(tensor)
    }
    if len(places) > 1:
        raise RuntimeError(
            f"{kind} got tensors of {accelerator.device} and of the host; all tensors of a call must be on one device."
        )
    if not places:
        named = {backends[place] for place in ("cpu", "cuda") if place in backends}
        return named.pop() if len(named) == 1 else ""
    place = places.pop()
    if place in backends:
        return backends[place]
    what, where, move = (
        ("of the host", "CUDA devices", 'tensor.to("cuda")')
        if place == "cpu"
        else (f"of {accelerator.device}", "the host", "tensor.cpu()")
    )
    raise RuntimeError(
        f"No backend type associated with device type {place}: {kind} got a tensor {what}, and the backend of its "
        f"group, {', '.join(sorted(set(backends.values())))}, moves tensors of {where}. Move it first: {move}."
    )


def _check_dtypes(name: str, kind: str, tensors: Iterable[torch.Tensor], is_message: bool) -> None:
    if is_message and name != NCCL:
        return
    known = _DTYPES.get(name)
    if known is None and name:
        return
    for tensor in tensors:
        if tensor.dtype not in (known or _DTYPES[NCCL]):
            word = str(tensor.dtype).removeprefix("torch.")
            if name == NCCL:
                raise TypeError(f"Input tensor data type is not supported for NCCL process group: {word} ({kind})")
            takers = f"{name} does not take" if name else "neither gloo nor NCCL takes"
            raise RuntimeError(f"Invalid scalar type: {kind} got {word}, which {takers}.")


def _check_op(name: str, op: str, tensors: Iterable[torch.Tensor]) -> None:
    if name == NCCL and op in _BITWISE:
        raise ValueError(f"Cannot use ReduceOp.{op} with NCCL")
    whole = any(not (tensor.is_floating_point() or tensor.is_complex()) for tensor in tensors)
    if name == NCCL and op == "AVG" and any(tensor.dtype is torch.bool for tensor in tensors):
        raise TypeError("Cannot use ReduceOp.AVG with Boolean inputs")
    if name == GLOO and op == "AVG" and whole:
        raise RuntimeError("gloo has no mean of whole numbers: result type Float can't be cast to the output's type.")
