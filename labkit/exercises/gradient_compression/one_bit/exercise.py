"""One bit an entry and one magnitude for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Values
from labkit.checks.judged import judged
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.findings import Finding, judging, mistakes, near, raising, wrong_value
from labkit.exercises.gradient_compression.one_bit.driver import drive
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


def signs_case(name: str, seed: int, shapes: Sequence[Sequence[int]], zeros: int = 0, shift: float = 0.5) -> Case:
    """Return a case: gradients of these shapes, `zeros` of their entries 0, all of them shifted by so much.

    Gradients of more than one dimension are in float64.
    """
    gradients = [
        drawn(seed + place, *shape, dtype=torch.float32 if len(shape) == 1 else torch.float64) + shift
        for place, shape in enumerate(shapes)
    ]
    for gradient in gradients:
        gradient.view(-1)[:zeros] = 0.0
    return packets_case(name, [call("Sign", gradient) for gradient in gradients])


def back_of(gradient: Tensor) -> Tensor:
    """Return what one bit and the mean magnitude leave of a gradient."""
    return gradient.abs().mean() * torch.where(gradient < 0, -1.0, 1.0).to(gradient.dtype)


def expected(case: Case) -> list[Values]:
    """Return what must come back (the oracle)."""
    calls = cast(list[dict[str, Any]], case.inputs[0]["calls"])
    return [{"came": [[{"back": back_of(each["gradient"])}] for each in calls]}]


def _look(one: Compressed, result: dict[str, Any]) -> Finding | None:
    gradient, back = one.gradient, cast(Tensor, result["back"])
    right = back_of(gradient)
    if not near(back, right, 1e-5):
        zero = gradient == 0
        magnitudes = gradient.abs()
        named = {
            "the signs the wrong way round": -right,
            "zeros count as negative": torch.where(zero, -right, right),
            "zeros stay zero": torch.where(zero, torch.zeros_like(right), right),
            "magnitude forgotten": right / magnitudes.mean(),
            "mean of the entries": right * gradient.mean() / magnitudes.mean(),
            "mean of the entries ": right * gradient.mean().abs() / magnitudes.mean(),
            "the largest magnitude": right * magnitudes.max() / magnitudes.mean(),
            "signs lost": right.abs(),
        }
        name = next((name for name, wrong in named.items() if near(back, wrong, 1e-5)), "a wrong entry").strip()
        return wrong_value(name, "What Sign unpacked", back, right)
    entries = gradient.numel()
    large = too_large(one, result, -(-entries // 8) + 4, "too many bytes")
    if large is not None and any(part.numel() >= entries > 8 for part in result["parts"]):
        return Finding("a byte for each sign", large.message, large.expected, large.got)
    return large


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong."""
    return first_finding(case, got, _look)


EXERCISE = judged(
    id="one_bit",
    functions=("Sign",),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    judge=judging(find),
    visible=(
        signs_case("16 entries", 621, [(16,)]),
        signs_case("a matrix, 21 entries: three bytes of signs", 622, [(3, 7)]),
        signs_case("with zeros", 623, [(13,)], zeros=3),
    ),
    distributed=False,
    hints=(
        "Which entries need a bit that is set? And what one number tells how large the entries are?",
        "compress: pack_bits of gradient.flatten() < 0, and the mean of the magnitudes as a float32 tensor of one "
        "entry. "
        "decompress: unpack_bits with the number of entries, from packet.shape.numel(); a set bit is -1, else +1.",
        "negative = unpack_bits(bits, packet.shape.numel()).to(packet.dtype); ((1 - 2 * negative) * magnitude)"
        ".view(packet.shape)",
    ),
    mistakes=(
        LEFT_BEHIND,
        raising(
            "a mask that is not flat",
            "pack_bits wants one row of bits: gradient.flatten() < 0.",
            "is invalid for input of size",
        ),
        *mistakes(
            find,
            **COMMON,
            a_byte_for_each_sign="A bool or an int8 has a byte an entry, eight times too many: pack_bits puts eight "
            "into one.",
            the_signs_the_wrong_way_round="What was negative comes back positive: a set bit means below zero.",
            zeros_count_as_negative="Zero counts as positive: the bit is set where an entry is < 0, not <= 0.",
            zeros_stay_zero="torch.sign gives 0 for 0: that is a third kind, and one bit tells two apart. Zero counts "
            "as positive.",
            magnitude_forgotten="Only signs came back, plus and minus 1: multiply by the magnitude.",
            mean_of_the_entries="The magnitude is the mean of the entries, in which plus and minus cancel: take the "
            "mean of "
            "their magnitudes.",
            the_largest_magnitude="The magnitude is the largest one: it makes nearly every entry too large. Take "
            "the mean.",
            signs_lost="Every entry came back positive: the bits are not used.",
            too_many_bytes="The packet is larger than it must be: bits in bytes, and one float32.",
        ),
    ),
)
