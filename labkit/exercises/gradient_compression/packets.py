"""Cases of gradients that are compressed and unpacked again, and what is the same for every compressor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.exercises.gradient_compression.findings import Finding, normal, part_bytes, raising, unlike


@dataclass(frozen=True)
class Compressed:
    """One gradient and what became of it.

    Attributes:
        name: The compressor's class.
        options: It was made with.
        gradient: What it was given.
        came: Of each time it compressed this gradient: parts, back, changed; or problem.
    """

    name: str
    options: Mapping[str, Any]
    gradient: Tensor
    came: Sequence[dict[str, Any]]


def call(name: str, gradient: Tensor, *, times: int = 1, noise: int = 0, **options: Value) -> Value:
    """Return one entry of a case (see on_ranks.compress_tensors)."""
    return {"compressor": name, "gradient": gradient, "times": times, "noise": noise, "options": options}


def packets_case(name: str, calls: Sequence[Value], packets: Sequence[Sequence[Tensor]] = ()) -> Case:
    """Return a case of one rank: calls, and lists of parts whose bytes are asked for."""
    return Case(name, 1, ({"calls": list(calls), "packets": cast(Value, [list(packet) for packet in packets])},))


def drawn(seed: int, *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a gradient: normally distributed, times scale."""
    return normal(seed, *shape, dtype=dtype) * scale


def compressed(case: Case, got: tuple[Values, ...]) -> Iterator[Compressed]:
    """Yield every gradient of the case with what came."""
    came = cast(list[list[dict[str, Any]]], got[0].get("came") or [])
    for about, results in zip(cast(list[dict[str, Any]], case.inputs[0]["calls"]), came, strict=False):
        yield Compressed(about["compressor"], about["options"], about["gradient"], results)


Look = Callable[[Compressed, dict[str, Any]], Finding | None]


def first_finding(case: Case, got: tuple[Values, ...], look: Look) -> Finding | None:
    """Return the first thing that is wrong: no packet, a changed gradient, a lost shape, infinities; then `look`'s."""
    for one in compressed(case, got):
        for result in one.came:
            found = _plain(one, result) or look(one, result)
            if found is not None:
                return found
    return None


def _plain(one: Compressed, result: dict[str, Any]) -> Finding | None:
    if "problem" in result:
        return Finding("no packet", f"{one.name}: {result['problem']}.")
    if result["changed"]:
        return Finding("gradient changed", f"{one.name}.compress changed the gradient it was given.")
    odd = unlike(result["back"], one.gradient, f"What {one.name} unpacked")
    if odd is not None:
        return odd
    if not bool(result["back"].isfinite().all()):
        zero = not bool(one.gradient.any())
        return Finding(
            "zero over zero" if zero else "infinite",
            f"{one.name} made {'a gradient of zeros' if zero else 'finite numbers'} into numbers that are not finite.",
        )
    return None


def too_large(one: Compressed, result: dict[str, Any], most: int, mistake: str) -> Finding | None:
    """Return a finding if the packet has more bytes than it needs."""
    size = part_bytes(result["parts"])
    if size <= most:
        return None
    kinds = ", ".join(f"{tuple(part.shape)} of {part.dtype}" for part in result["parts"])
    return Finding(
        mistake,
        f"{one.name}'s packet for {one.gradient.numel()} entries has {size} bytes; {most} are enough. Its parts: "
        f"{kinds}.",
        f"at most {most} bytes",
        f"{size} bytes",
    )


COMMON = {
    "no_packet": "compress returns Packet(parts, gradient.shape, gradient.dtype), parts a tuple of tensors.",
    "gradient_changed": "compress changed the caller's gradient: an operation in place (a name that ends in _, or +=) "
    "works on the tensor itself. It may be DDP's own buffer.",
    "dtype_lost": "decompress must give the gradient's own dtype: packet.dtype.",
    "shape_lost": "decompress must give the gradient's own shape: .view(packet.shape).",
}
"""Mistakes that any compressor can have, as findings.mistakes takes them."""

LEFT_BEHIND = raising(
    "decompress uses what compress left behind",
    "decompress runs on another rank, which never compressed this gradient: it has the packet and what the compressor "
    "was made with, nothing else.",
    "has no attribute",
)
