"""Fewer bits: casts to 16 bits and whole numbers of a scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.judged import judged
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.fewer_bits.driver import drive
from labkit.exercises.gradient_compression.findings import Finding, judging, mistakes, part_bytes, raising, wrong_value
from labkit.exercises.gradient_compression.packets import (
    COMMON,
    LEFT_BEHIND,
    Compressed,
    call,
    drawn,
    first_finding,
    packets_case,
    too_large,
)

_HALF_STEP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_LARGEST = {"bfloat16": 3.3895e38, "float16": 65504.0}


def bits_case(name: str, seed: int, shapes: Sequence[Sequence[int]], scale: float, largest: float = 0.0) -> Case:
    """Return a case: gradients of these shapes, every other one in float64, in both 16-bit types and in 8 bits.

    Args:
        name: What is special about it.
        seed: Draws the numbers.
        shapes: Of the gradients; an empty list of entries is a gradient of zeros.
        scale: How large entries are.
        largest: If given, one entry of each gradient, and minus it another.
    """
    calls: list[Value] = []
    for place, shape in enumerate(shapes):
        gradient = drawn(seed + place, *shape, scale=scale, dtype=torch.float64 if place % 2 else torch.float32)
        if largest:
            gradient.view(-1)[:2] = torch.tensor([largest, -largest])
        calls += [call("Cast", gradient, dtype=kind) for kind in ("bfloat16", "float16")] + [call("Int8", gradient)]
    packets = [[torch.zeros(3, 5, dtype=torch.int8), torch.zeros(1)], [drawn(seed, 7, dtype=torch.float64)]]
    return packets_case(name, calls, packets)


def expected(case: Case) -> list[Values]:
    """Return the bytes of the packets; of gradients, the judge says how far they may be off (the oracle)."""
    return [
        {"bytes": [part_bytes(cast(Value, packet)) for packet in cast(list[list[Tensor]], case.inputs[0]["packets"])]}
    ]


def _look(one: Compressed, result: dict[str, Any]) -> Finding | None:
    return (_cast if one.name == "Cast" else _int8)(one, result)


def _cast(one: Compressed, result: dict[str, Any]) -> Finding | None:
    kind, gradient = str(one.options["dtype"]), one.gradient
    back = cast(Tensor, result["back"])
    held = gradient.double().clamp(-_LARGEST[kind], _LARGEST[kind])
    # the smallest steps of float16 are those of its denormal numbers
    allowed = held.abs() * _HALF_STEP[kind] * 1.01 + (2.0**-25 if kind == "float16" else 1e-38)
    if bool(((back.double() - held).abs() > allowed).any()):
        return wrong_value("a wrong entry", f"Cast({kind})", back, held)
    if torch.equal(back, gradient) and part_bytes(result["parts"]) > 2 * gradient.numel():
        return Finding("nothing is cast", f"Cast({kind}) sends {result['parts'][0].dtype}: 16 bits are asked for.")
    return too_large(one, result, 2 * gradient.numel(), "too many bytes")


def _int8(one: Compressed, result: dict[str, Any]) -> Finding | None:
    gradient, back = one.gradient.double(), cast(Tensor, result["back"]).double()
    largest = float(gradient.abs().max())
    half = largest / 127 / 2 * 1.001
    off = (back - gradient).abs()
    if bool((off > half).any()) and largest:
        top = int(gradient.abs().argmax())
        if bool((back.flatten()[top] * gradient.flatten()[top] < 0).item()):
            name = "one step too far"
        elif _codes_alone(back, largest):
            name = "scale forgotten"
        elif bool((off <= 2 * half).all()) and bool((back.abs() <= gradient.abs() + half * 0.01).all()):
            name = "cut off instead of rounded"
        elif int(cast(Tensor, result["parts"][0]).abs().max()) < 120:
            name = "the scale of a small gradient is too large"
        else:
            name = "a wrong entry"
        return wrong_value(name, "What Int8 unpacked", result["back"], one.gradient)
    return too_large(one, result, gradient.numel() + 4, "too many bytes")


def _codes_alone(back: Tensor, largest: float) -> bool:
    """Return whether codes came back as they are, or as shares of the largest."""
    most = float(back.abs().max())
    return (bool((back == back.round()).all()) and most > 1.5 * largest) or (most <= 1.5 and largest > 3)


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong."""
    for packet, came in zip(
        cast(list[list[Tensor]], case.inputs[0]["packets"]), cast(list[Value], got[0].get("bytes") or []), strict=False
    ):
        right = part_bytes(cast(Value, packet))
        if came == right:
            continue
        entries, first = sum(part.numel() for part in packet), part_bytes(cast(Value, packet[:1]))
        name = (
            "entries instead of bytes" if came == entries else "the first part only" if came == first else "wrong bytes"
        )
        if came == 4000:
            name = "bytes of the gradient"
        kinds = ", ".join(f"{tuple(part.shape)} of {part.dtype}" for part in packet)
        return Finding(
            name, f"wire_bytes of a packet with parts {kinds} gave {came}, expected {right}.", str(right), str(came)
        )
    return first_finding(case, got, _look)


EXERCISE = judged(
    id="fewer_bits",
    functions=("wire_bytes", "Cast", "Int8"),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    judge=judging(find),
    visible=(
        bits_case("a vector and a matrix", 611, [(9,), (4, 5)], 1.0),
        bits_case("large and small entries", 612, [(33,)], 40.0, largest=3000.0),
        bits_case("beyond float16's range", 613, [(6,)], 1.0, largest=1e6),
        bits_case("tiny entries", 615, [(12,)], 1e-7),
        bits_case("a gradient of zeros", 614, [(5,)], 0.0),
    ),
    distributed=False,
    hints=(
        "What is the largest number that float16 has, and what becomes of twice that? What is zero divided by zero?",
        "Cast: clamp to plus and minus torch.finfo(dtype).max, then .to(dtype). Int8: scale = largest magnitude / "
        "127 as "
        "float32, at least something tiny; codes = (gradient / scale).round() as int8; back: codes in "
        "packet.dtype times "
        "scale.",
        "gradient.clamp(-largest, largest).to(self.dtype); and scale = (gradient.abs().max() / 127).clamp(min=1e-30)"
        ".reshape(1); codes = (gradient / scale).round().to(torch.int8).",
    ),
    mistakes=(
        raising("no packet", COMMON["no_packet"], "has no attribute 'parts'"),
        LEFT_BEHIND,
        *mistakes(
            find,
            **COMMON,
            entries_instead_of_bytes="wire_bytes counts entries: an int8 has one byte, a float32 four: "
            "part.element_size().",
            the_first_part_only="wire_bytes counts the first part only; all parts travel.",
            bytes_of_the_gradient="wire_bytes counts the gradient, from packet.shape; what travels are the parts.",
            infinite="float16 ends at 65504: clamp the gradient to torch.finfo(dtype).max before the cast.",
            zero_over_zero="A gradient of zeros has the scale 0, and 0 / 0 is not a number: keep the scale above 0.",
            nothing_is_cast="The packet has the gradient's own dtype: cast it to self.dtype in compress.",
            scale_forgotten="What comes back are the codes, or shares of the largest: multiply by the scale, "
            "which travels "
            "as the second part.",
            cut_off_instead_of_rounded=".to(torch.int8) cuts off what is behind the point: .round() first. "
            "Cutting off makes "
            "every entry too small, always in the same direction.",
            one_step_too_far="The largest entry came back with the other sign: 128 does not fit into int8 and "
            "becomes -128. "
            "The scale is the largest magnitude over 127.",
            the_scale_of_a_small_gradient_is_too_large="A gradient of 0.0000001 uses few of the 127 whole numbers: "
            "what you add to the scale, or hold it at, to keep it above 0 is larger than the scale itself.",
            too_many_bytes="The packet is larger than it must be: look at the dtype of each part.",
        ),
    ),
)
