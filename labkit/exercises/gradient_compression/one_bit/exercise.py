"""One bit an entry and one magnitude for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.blame import by_signs
from labkit.checks.case import Case, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.draws import normal
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.values import records, tensor
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression import packets
from labkit.exercises.gradient_compression.one_bit.driver import drive
from labkit.exercises.gradient_compression.packets import LEFT_BEHIND, Compressed, too_large, too_small


def signs_case(name: str, seed: int, shapes: Sequence[Sequence[int]], zeros: int = 0, shift: float = 0.5) -> Case:
    """Return a case: gradients of these shapes, `zeros` of their entries 0, all of them shifted by so much.

    Gradients of more than one dimension are in float64.
    """
    gradients = [
        normal(seed + place, *shape, dtype=torch.float32 if len(shape) == 1 else torch.float64) + shift
        for place, shape in enumerate(shapes)
    ]
    for gradient in gradients:
        gradient.view(-1)[:zeros] = 0.0
    return packets.packets_case(name, [packets.call("Sign", gradient) for gradient in gradients])


def back_of(gradient: Tensor) -> Tensor:
    """Return what one bit and the mean magnitude leave of a gradient."""
    return gradient.abs().mean() * torch.where(gradient < 0, -1.0, 1.0).to(gradient.dtype)


def expected(case: Case) -> list[Values]:
    """Return what must come back (the oracle)."""
    return [{"calls": [[{"unpacked": back_of(tensor(each, "gradient"))}] for each in records(case.inputs[0], "calls")]}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: what came back, then how large the packet is."""
    return packets.findings(case, got, _look)


def _look(one: Compressed) -> Iterator[Finding]:
    right = back_of(one.gradient)
    if not _near(one.unpacked, right):
        yield wrong_value(_named(one, right), "What Sign unpacked", one.unpacked, right)
    entries = one.gradient.numel()
    a_byte_each = any(part.numel() >= entries > 8 for part in one.parts)
    yield from too_large(one, -(-entries // 8) + 4, "a byte for each sign" if a_byte_each else "too many bytes")
    yield from too_small(one, -(-entries // 8))


def _named(one: Compressed, right: Tensor) -> str:
    gradient, magnitudes = one.gradient, one.gradient.abs()
    zero, mean = gradient == 0, magnitudes.mean()
    ways = [
        ("the signs the wrong way round", lambda: -right),
        ("zeros count as negative", lambda: torch.where(zero, -right, right)),
        ("zeros stay zero", lambda: torch.where(zero, 0.0, right)),
        ("magnitude forgotten", lambda: right / mean),
        ("mean of the entries", lambda: right * gradient.mean() / mean),
        ("mean of the entries", lambda: right * gradient.mean().abs() / mean),
        ("the largest magnitude", lambda: right * magnitudes.max() / mean),
        ("signs lost", lambda: right.abs()),
    ]
    return as_if(one.unpacked, ways, _near) or "a wrong entry"


def _near(came: Tensor, wanted: Tensor) -> bool:
    return near(came, wanted, relative=1e-5)


MISTAKES = {
    **packets.MISTAKES,
    "a mask that is not flat": "pack_bits wants one row of bits: gradient.flatten() < 0.",
    "a byte for each sign": "A bool or an int8 has a byte an entry, eight times too many: pack_bits puts eight into "
    "one.",
    "the signs the wrong way round": "What was negative comes back positive: a set bit means below zero.",
    "zeros count as negative": "Zero counts as positive: the bit is set where an entry is < 0, not <= 0.",
    "zeros stay zero": "torch.sign gives 0 for 0: that is a third kind, and one bit tells two apart. Zero counts as "
    "positive.",
    "magnitude forgotten": "Only signs came back, plus and minus 1: multiply by the magnitude.",
    "mean of the entries": "The magnitude is the mean of the entries, in which plus and minus cancel: take the mean "
    "of their magnitudes.",
    "the largest magnitude": "The magnitude is the largest one: it makes nearly every entry too large. Take the mean.",
    "signs lost": "Every entry came back positive: the bits are not used.",
    "too many bytes": "The packet is larger than it must be: bits in bytes, and one float32.",
}

SIGNS = {
    LEFT_BEHIND: ("has no attribute",),
    "a mask that is not flat": ("is invalid for input of size",),
}

EXERCISE = Exercise(
    id="one_bit",
    functions=("Sign",),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    find=find,
    blame=by_signs(SIGNS),
    mistakes=MISTAKES,
    certain=frozenset(SIGNS),
    structure=packets.packets_structure,
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
)
