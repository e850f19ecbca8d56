"""Fewer bits: casts to 16 bits and whole numbers of a scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import wrong_value
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import normal
from labkit.checks.finding import Finding
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression import packets
from labkit.exercises.gradient_compression.fewer_bits.driver import drive
from labkit.exercises.gradient_compression.packets import Compressed, part_bytes, too_large, too_small

_HALF_STEP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_LARGEST = {"bfloat16": 3.3895e38, "float16": 65504.0}


def bits_case(
    name: str,
    seed: int,
    shapes: Sequence[Sequence[int]],
    scale: float,
    largest: float = 0.0,
    *,
    gaps: bool = False,
    double: int = 1,
) -> Case:
    """Return a case: gradients of these shapes, every other one in float64, in both 16-bit types and in 8 bits.

    Args:
        name: What is special about it.
        seed: Draws the numbers.
        shapes: Of the gradients; an empty list of entries is a gradient of zeros.
        scale: How large entries are.
        largest: If given, one entry of each gradient, and minus it another.
        gaps: Whether gradients are not contiguous.
        double: Every second gradient is in float64, from this one on.
    """
    calls: list[Value] = []
    for place, shape in enumerate(shapes):
        gradient = normal(
            seed + place, *shape, scale=scale, dtype=(torch.float32, torch.float64)[(place + 1 + double) % 2]
        )
        if largest:
            gradient.view(-1)[:2] = torch.tensor([largest, -largest])
        calls += [packets.call("Cast", gradient, dtype=kind, gaps=gaps) for kind in ("bfloat16", "float16")]
        calls.append(packets.call("Int8", gradient, gaps=gaps))
    weighed = [[torch.zeros(3, 5, dtype=torch.int8), torch.zeros(1)], [normal(seed, 7, dtype=torch.float64)]]
    return packets.packets_case(name, calls, weighed)


def expected(case: Case) -> list[Values]:
    """Return the bytes of the packets; of gradients, `find` says how far they may be off (the oracle)."""
    return [{"bytes": [part_bytes(parts) for parts in listed(case.inputs[0], "packets")]}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: the bytes of packets, then gradients."""
    for parts, came in zip(listed(case.inputs[0], "packets"), listed(got[0], "bytes"), strict=True):
        yield from _wrong_bytes(parts, came)
    yield from packets.findings(case, got, lambda one: (_cast if one.name == "Cast" else _int8)(one))


def _wrong_bytes(parts: Sequence[Tensor], came: Value) -> Iterator[Finding]:
    right = part_bytes(parts)
    if came == right:
        return
    ways = {
        "entries instead of bytes": sum(part.numel() for part in parts),
        "the first part only": part_bytes(parts[:1]),
        "bytes of the gradient": 4000,
    }
    name = next((name for name, wrong in ways.items() if came == wrong), "wrong bytes")
    if came in [1000 * size for size in (1, 4, 8)]:
        name = "bytes of the gradient"
    if len(parts) > 1 and came in [size * ways["entries instead of bytes"] for size in (4, 8)]:
        name = _ONE_SIZE
    kinds = ", ".join(f"{tuple(part.shape)} of {part.dtype}" for part in parts)
    message = f"wire_bytes of a packet with parts {kinds} gave {came}, expected {right}."
    yield Finding(name, message, f"{right}", f"{came}")


def _cast(one: Compressed) -> Iterator[Finding]:
    kind, gradient, back = str(one.options["dtype"]), one.gradient, one.unpacked
    held = gradient.double().clamp(-_LARGEST[kind], _LARGEST[kind])
    # the smallest steps of float16 are those of its denormal numbers
    allowed = held.abs() * _HALF_STEP[kind] * 1.01 + (2.0**-25 if kind == "float16" else 1e-38)
    if one.parts[0].dtype in _SIXTEEN and one.parts[0].dtype != _SIXTEEN[kind == "float16"]:
        sent = f"{one.parts[0].dtype}"
        yield Finding(_OTHER_TYPE, f"Cast({kind}) sends {sent}.", f"torch.{kind}", sent)
    if bool(((back.double() - held).abs() > allowed).any()):
        yield wrong_value(_of_cast(one, held, allowed), f"What Cast({kind}) unpacked", back, held)
    if torch.equal(back, gradient) and part_bytes(one.parts) > 2 * gradient.numel():
        yield Finding("nothing is cast", f"Cast({kind}) sends {one.parts[0].dtype}; it should send 16 bits an entry.")
    yield from too_large(one, 2 * gradient.numel(), "too many bytes")
    yield from too_small(one, 2 * gradient.numel())


_SIXTEEN = (torch.bfloat16, torch.float16)


def _of_cast(one: Compressed, held: Tensor, allowed: Tensor) -> str:
    """Return which mistake leads to what a cast came back as, or ""."""
    off = (one.unpacked.double() - held).abs() > allowed
    beyond, largest = one.gradient.double() != held, float(held.abs().max())
    scaled = one.gradient.double() * (largest / float(one.gradient.abs().max()))
    if bool(beyond.any()) and bool(((one.unpacked.double() - scaled).abs() <= 2 * allowed).all()):
        return _SCALED
    if bool(off.any()) and not bool((off & ~beyond).any()):
        return _BEYOND
    return _CUT if _ends_too_early(one.unpacked, held, allowed) else ""


def _int8(one: Compressed) -> Iterator[Finding]:
    largest = float(one.gradient.abs().max())
    half = largest / 127 / 2 * 1.001
    off = (one.unpacked.double() - one.gradient.double()).abs()
    if bool((off > half).any()) and largest:
        yield wrong_value(_named(one, largest, off, half), "What Int8 unpacked", one.unpacked, one.gradient)
    floats = sum(part.numel() for part in one.parts if part.is_floating_point())
    yield from too_large(one, one.gradient.numel() + 4, "too many bytes" if floats == 1 else _SCALES)
    yield from too_small(one, one.gradient.numel())


_SMALL = 1e-3
"""Below it a gradient is a small one, for which what keeps a scale above 0 may be too large."""


def _named(one: Compressed, largest: float, off: Tensor, half: float) -> str:
    gradient, back = one.gradient.double(), one.unpacked.double()
    top, entry = int(gradient.abs().argmax()), float(gradient.max())
    scales = [part for part in one.parts if part.is_floating_point() and part.numel() == 1]
    if entry < largest and any(math.isclose(float(each) * 127, entry, rel_tol=1e-4) for each in scales):
        return "the largest entry, not the largest magnitude"
    others = gradient.abs() < 0.99 * largest  # at 128 codes a magnitude, one step is less than a hundredth
    if bool(back.flatten()[top] * gradient.flatten()[top] < 0) and bool((off <= 2 * half)[others].all()):
        return "one step too far"
    if any(float(each) * 127 < 0.999 * largest and _reaches(back, float(each) * 127) for each in scales):
        return "another scale"
    if _ends_too_early(back, gradient, torch.full_like(gradient, half)):
        return _CUT
    if _codes_alone(back, largest):
        return "scale forgotten"
    if bool((off <= 2 * half).all()) and bool((back.abs() <= gradient.abs() + half * 0.01).all()):
        return "cut off instead of rounded"
    above = bool((back >= gradient - half * 0.01).all())
    if bool((off <= 2 * half).all()) and (above or bool((back <= gradient + half * 0.01).all())):
        return "rounded to one side"
    if scales and largest < _SMALL and float(scales[0]) > 1.01 * largest / 127:
        return "the scale of a small gradient is too large"
    if scales and not math.isclose(float(scales[0]), largest / 127, rel_tol=1e-4):
        return "another scale"
    if scales and bool((off <= 2 * half).all()):
        return _NEIGHBOUR
    return "codes of another scale" if scales else ""


_CUT = "clamped too early"
_ONE_SIZE = "all numbers of one size"
_OTHER_TYPE, _BEYOND, _SCALED, _SCALES, _NEIGHBOUR = (
    "the other 16-bit type", "what is beyond the range is lost", "scaled down to fit", "several scales",
    "not the nearest code",
)  # fmt: skip


def _ends_too_early(back: Tensor, right: Tensor, allowed: Tensor) -> bool:
    """Return whether the wrong entries lie beyond what is the largest or the smallest of all that came back."""
    mine = back.double()
    off = (mine - right.double()).abs() > allowed
    beyond = ((mine == mine.max()) & (right > mine)) | ((mine == mine.min()) & (right < mine))
    return not bool(off.all()) and bool(beyond[off].all())


def _reaches(back: Tensor, most: float) -> bool:
    """Return whether this is the largest magnitude that came back."""
    return math.isclose(float(back.abs().max()), most, rel_tol=1e-3)


def _codes_alone(back: Tensor, largest: float) -> bool:
    """Return whether codes came back as they are, or as shares of the largest."""
    most = float(back.abs().max())
    return (bool((back == back.round()).all()) and most > 1.5 * largest) or (most <= 1.5 and largest > 3)


EXERCISE = declared(
    id="fewer_bits",
    functions=("wire_bytes", "Cast", "Int8"),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    looks=(find,),
    mistakes=(
        packets.NO_PACKET,
        packets.GAPS,
        packets.LEFT,
        packets.CHANGED,
        packets.NOTHING_BACK,
        packets.OTHER_DTYPE,
        packets.OTHER_SHAPE,
        Mistake("entries instead of bytes",
                "wire_bytes counts entries: an int8 has one byte, a float32 four: part.element_size()."),
        Mistake(_ONE_SIZE,
                "Every number that travels was counted with the bytes of one of the gradient's. Each part has its own "
                "dtype: part.element_size()."),
        Mistake("wrong bytes", "wire_bytes returns a whole number: the bytes of all parts of the packet, added up."),
        Mistake("the first part only", "wire_bytes counts the first part only; all parts travel."),
        Mistake("bytes of the gradient",
                "wire_bytes counts the gradient, from packet.shape; what travels are the parts."),
        Mistake("infinite",
                "float16 ends at 65504 and at -65504: clamp the gradient on both sides, to torch.finfo(dtype).max and "
                "minus that, before the cast."),
        Mistake("zero over zero",
                "A gradient of zeros has the scale 0, and 0 / 0 is not a number: keep the scale above 0."),
        Mistake("nothing is cast", "The packet has the gradient's own dtype: cast it to self.dtype in compress."),
        Mistake("scale forgotten",
                "You return the codes, or fractions of the largest value: multiply by the scale, which travels as "
                "the second part."),
        Mistake("cut off instead of rounded",
                ".to(torch.int8) truncates: .round() first. Truncation makes every magnitude too small, always in "
                "the same direction."),
        Mistake("rounded to one side",
                "No entry came back above its own value, or none below it: floor() or ceil() where .round() belongs, "
                "which takes the nearest whole number."),
        Mistake("one step too far",
                "The largest entry came back with the other sign: 128 does not fit into int8 and becomes -128. The "
                "scale is the largest magnitude over 127."),
        Mistake(_CUT,
                "Entries beyond one number all came back as that number, and the others are right: clamp ends too "
                "early. Codes go from -127 to 127, a cast from minus to plus the largest number of its dtype."),
        Mistake(_OTHER_TYPE, "Cast sends the type that it was made with: .to(self.dtype)."),
        Mistake(_BEYOND,
                "Only entries beyond the range are wrong: they come back as the largest number of the type, with their "
                "sign. Clamp them before the cast."),
        Mistake(_SCALED,
                "All entries were scaled down so that the largest fits. A cast has no scale: only entries beyond the "
                "range change, to the largest number of the type."),
        Mistake(_SCALES,
                "More floats travel than one: Int8 sends a code for each entry and one float32 scale for the whole "
                "gradient. No scale for each row, and no smallest value."),
        Mistake(_NEIGHBOUR,
                "Some entries came back a whole scale off: 1/254 of the largest magnitude is half a scale, so take the "
                "nearest code. Rounding at random takes the other neighbour, too."),
        Mistake("the largest entry, not the largest magnitude",
                "The scale comes from the largest entry, and a negative one may be larger in magnitude: abs() first."),
        Mistake("the scale of a small gradient is too large",
                "A gradient of 0.0000001 uses few of the 127 levels: what you add to the scale, or clamp it to, to "
                "keep it above 0 is larger than the scale itself."),
        Mistake("another scale", "The scale that travels is not the largest magnitude over 127."),
        Mistake("codes of another scale",
                "The scale that travels is right. But codes are the gradient divided by it and rounded, and what comes "
                "back is codes times scale: yours do not fit together."),
        Mistake("too many bytes", "The packet is larger than it must be: look at the dtype of each part."),
    ),
    structure=packets.packets_structure,
    visible=(
        bits_case("a vector and a matrix", 611, [(9,), (4, 5)], 1.0),
        bits_case("large and small entries", 612, [(33,)], 40.0, largest=3000.0),
        bits_case("beyond float16's range", 613, [(6,)], 1.0, largest=1e6),
        bits_case("tiny entries", 615, [(12,)], 1e-7),
        bits_case("a gradient of zeros", 614, [(5,)], 0.0),
        bits_case("not contiguous", 616, [(3, 4)], 1.0, gaps=True),
    ),
    distributed=False,
    hints=(
        "What is the largest number in float16, and what happens to twice that? What is zero divided by zero?",
        "Cast: clamp to plus and minus torch.finfo(dtype).max, then .to(dtype). Int8: scale = largest magnitude / "
        "127 as "
        "float32, at least something tiny; codes = (gradient / scale).round() as int8; back: codes in "
        "packet.dtype times "
        "scale.",
        "gradient.clamp(-largest, largest).to(self.dtype); and scale = (gradient.abs().max() / 127).clamp(min=1e-30)"
        ".reshape(1); codes = (gradient / scale).round().to(torch.int8).",
    ),
)  # fmt: skip
