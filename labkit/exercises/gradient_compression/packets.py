"""Gradients compressed and unpacked again: cases, what results look like, what any compressor can do wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, failed_in
from labkit.checks.finding import Finding
from labkit.checks.structure import NOTHING, WRONG_DTYPE, WRONG_SHAPE, Each
from labkit.checks.values import integer, listed, record, records, tensor, tensors, text
from labkit.checks.wire import Wire


@dataclass(frozen=True)
class Compressed:
    """A gradient, and what became of it.

    Attributes:
        name: The compressor's class.
        options: It was made with.
        gradient: What it was given.
        call: Which call of the case this is; in one call the same compressor may be given the gradient several times.
        result: What the driver saw.
    """

    name: str
    options: Mapping[str, Value]
    gradient: Tensor
    call: int
    result: Values

    @property
    def parts(self) -> list[Tensor]:
        """The packet's parts."""
        return tensors(self.result, "parts")

    @property
    def unpacked(self) -> Tensor:
        """What another compressor of the same kind made of the packet."""
        return tensor(self.result, "unpacked")


def call(name: str, gradient: Tensor, *, times: int = 1, noise: int = 0, gaps: bool = False, **options: Value) -> Value:
    """Return one entry of a case (see `on_ranks.compress_tensors`)."""
    given: dict[str, Value] = {"compressor": name, "gradient": gradient, "times": times, "noise": noise}
    return {**given, "options": options, "layout": "not contiguous" if gaps else "contiguous"}


def packets_case(name: str, calls: Sequence[Value], packets: Sequence[Sequence[Tensor]] = ()) -> Case:
    """Return a case of one rank: calls, and lists of parts whose bytes are asked for."""
    return Case(name, 1, ({"calls": list(calls), "packets": [list(packet) for packet in packets]},))


def packets_structure(case: Case) -> list[Any]:
    """Return what results look like: what is unpacked is like its gradient, and packets are tensors."""
    calls = []
    for about in records(case.inputs[0], "calls"):
        like = {
            "parts": Each(Tensor, least=1),
            "unpacked": tensor(about, "gradient"),
            "changed": bool,
            "disturbed": bool,
        }
        calls.append([like] * integer(about, "times"))
    return [{"calls": calls, "bytes": [int] * len(listed(case.inputs[0], "packets"))}]


def compressed(case: Case, got: tuple[Values, ...]) -> Iterator[Compressed]:
    """Yield every gradient of the case with what became of it."""
    for number, (about, results) in enumerate(
        zip(records(case.inputs[0], "calls"), listed(got[0], "calls"), strict=True)
    ):
        for result in results:
            yield Compressed(
                text(about, "compressor"), record(about, "options"), tensor(about, "gradient"), number, result
            )


def findings(case: Case, got: tuple[Values, ...], look: Callable[[Compressed], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield what is wrong gradient by gradient: what any compressor can do wrong, then what `look` finds."""
    for one in compressed(case, got):
        if "problem" in one.result:
            yield Finding("no packet", f"{one.name}: {one.result['problem']}.")
        if one.result["changed"]:
            yield Finding("gradient changed", f"{one.name}.compress changed the gradient it was given.")
        if not bool(one.unpacked.isfinite().all()):
            zero = not bool(one.gradient.any())
            given = "a gradient of zeros" if zero else "finite numbers"
            at = tuple((~one.unpacked.isfinite()).nonzero()[0].tolist())
            such = f"{float(one.gradient[at]):g} came back as {float(one.unpacked[at]):g}"
            message = f"{one.name} turned {given} into numbers that are not finite: {such}."
            yield Finding("zero over zero" if zero else "infinite", message)
        yield from look(one)


def too_large(one: Compressed, most: int, mistake: str) -> Iterator[Finding]:
    """Yield a finding if the packet has more bytes than it needs."""
    size = part_bytes(one.parts)
    if size > most:
        kinds = ", ".join(f"{tuple(part.shape)} of {part.dtype}" for part in one.parts)
        yield Finding(
            mistake,
            f"{one.name}'s packet for {one.gradient.numel()} entries has {size} bytes; {most} are enough. Its parts: "
            f"{kinds}.",
            f"at most {most} bytes",
            f"{size} bytes",
        )


def too_small(one: Compressed, least: int) -> Iterator[Finding]:
    """Yield a finding if the packet has fewer bytes than what came of it needs: it came from somewhere else."""
    size = part_bytes(one.parts)
    if size < least and bool(one.gradient.any()):
        message = (
            f"{one.name}'s packet for {one.gradient.numel()} entries has {size} bytes; what was unpacked of it needs "
            f"{least}: the rank that unpacks has the packet's parts and nothing else."
        )
        yield Finding(LEFT_BEHIND, message, f"at least {least} bytes", f"{size} bytes")


def part_bytes(parts: Sequence[Tensor]) -> int:
    """Return the bytes of a packet's parts."""
    return sum(part.numel() * part.element_size() for part in parts)


def _asks_the_compressor(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether decompress looked for something that its own object lacks, and not one of torch's or a packet."""
    if not isinstance(got, Failure) or any(name in got.message for name in ("torch", "'Tensor'", "'Packet")):
        return False
    return failed_in("decompress", "AttributeError")(case, got, wire)


LEFT_BEHIND = "decompress uses what compress left behind"

NO_PACKET = Mistake("no packet",
                    "compress returns Packet(parts, gradient.shape, gradient.dtype), parts a tuple of tensors.",
                    says=("has no attribute 'parts'",), certain=True)  # fmt: skip
CHANGED = Mistake("gradient changed",
                  "compress changed the caller's gradient: an operation in place (a name that ends in _, or +=) works "
                  "on the tensor itself. It may be DDP's own buffer.")  # fmt: skip
NOTHING_BACK = Mistake(NOTHING, "decompress must return the gradient: print shows a value, return hands it back.")


def _of_other_dtype(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether entries of one float type were written among those of another."""
    if not isinstance(got, Failure) or _packed_as_other_dtype(case, got, wire):
        return False
    whole = any(f"{kind} for the source" in got.message for kind in _WHOLE)
    return not whole and "source and destination dtypes match" in got.message


def _packed_as_other_dtype(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether what came in a packet has fewer bits than the gradient whose entries it holds."""
    fewer = ("Double for the destination and Float", "for the destination and Half", "for the destination and BFloat16")
    return isinstance(got, Failure) and any(words in got.message for words in fewer)


_WHOLE = ("Int", "Long", "Short")
"""Whole numbers, in torch's words for dtypes that do not fit: places, where entries belong."""
OTHER_DTYPE = Mistake(WRONG_DTYPE, "decompress must return the gradient's dtype: packet.dtype.",
                      seen=_of_other_dtype, certain=True)  # fmt: skip
PACKED_AS_OTHER_DTYPE = Mistake(
    "values of another dtype",
    "The values in the packet were cast on their way into it: they are entries of the gradient, in the gradient's own "
    "dtype.",
    seen=_packed_as_other_dtype,
    certain=True,
)
OTHER_SHAPE = Mistake(WRONG_SHAPE, "decompress must return the gradient's shape: .view(packet.shape).")
GAPS = Mistake("taken for contiguous",
               "The gradient is not contiguous, and .view cannot make it flat: .flatten() and .reshape(-1) can.",
               says=("view size is not compatible",), certain=True)  # fmt: skip
LEFT = Mistake(LEFT_BEHIND,
               "decompress runs on another rank, which never compressed this gradient: it has the packet and what the "
               "compressor was made with, nothing else.", seen=_asks_the_compressor,
               certain=True)  # fmt: skip
"""Mistakes that any compressor can have; the last stands behind NO_PACKET, whose words it has."""
