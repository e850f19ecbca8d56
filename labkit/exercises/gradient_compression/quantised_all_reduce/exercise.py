"""A mean over ranks of which only int8 codes and their scales travel: a quantised reduce-scatter and an all-gather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import wrong_value
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import WRONG_DTYPE, WRONG_SHAPE
from labkit.checks.values import flag, integers, tensor
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression import packets
from labkit.exercises.gradient_compression.quantised_all_reduce.driver import drive

WHOLE_WORLD, UNEVEN = "all ranks of the world", "pieces that do not divide"
ONE_SCALE = "one scale for all pieces"


def quantised_case(
    name: str,
    seed: int,
    world_size: int,
    shape: Sequence[int],
    *,
    scales: Sequence[float] = (1.0,),
    group: Sequence[int] | None = None,
    double: bool = False,
    gaps: bool = False,
    outlier: bool = False,
) -> Case:
    """Return a case.

    Args:
        name: What is special about it.
        seed: Draws the tensors.
        world_size: Ranks of the world.
        shape: Of each rank's tensor.
        scales: How large entries are, rank by rank in turn.
        group: Global ranks that take part; None is everybody.
        double: Whether tensors are float64.
        gaps: Whether they are not contiguous.
        outlier: Whether the first entry is a hundred times as large: then a piece without it has a small scale.
    """
    members = list(range(world_size)) if group is None else list(group)
    inputs: list[Values] = []
    for rank in range(world_size):
        dtype = torch.float64 if double else torch.float32
        drawn = normal(part_of(seed, "rank", rank), *shape, scale=scales[rank % len(scales)], dtype=dtype)
        drawn.view(-1)[0] *= 100 if outlier else 1
        mine: dict[str, Value] = {"tensor": drawn, "layout": "not contiguous" if gaps else "contiguous"}
        inputs.append(mine if group is None else {**mine, "group": [*members]})
    return Case(name, world_size, tuple(inputs), {"ranks": [*members], "outlier": outlier})


def _tensors(case: Case) -> dict[int, Tensor]:
    return {rank: tensor(case.inputs[rank], "tensor") for rank in integers(case.about, "ranks")}


def _mean(case: Case) -> Tensor:
    return torch.stack([each.double() for each in _tensors(case).values()]).mean(0)


def expected(case: Case) -> list[Values]:
    """Return what each rank should have about (the oracle); `find` says how far it may be off."""
    own = _tensors(case)
    return [
        {"mean": _mean(case).to(own[rank].dtype), "changed": False} if rank in own else {"member": False}
        for rank in range(case.world_size)
    ]


def allowed(case: Case, *, first: int = 0) -> float:
    """Return how far an entry may be off: half a scale of every rank, and half a scale of the mean.

    Args:
        case: Its tensors have these entries.
        first: The first of the entries that scales are made for.
    """
    largest = [float(each.flatten()[first:].abs().max()) for each in _tensors(case).values()]
    of_ranks = sum(largest) / len(largest) / 254
    return 1.01 * (of_ranks + (float(_mean(case).flatten()[first:].abs().max()) + of_ranks) / 254)


def _too_coarse(case: Case, mean: Tensor) -> bool:
    """Return whether the outlier makes entries coarse that are not in its piece, be pieces stretches or every N-th."""
    count, wrong = len(_tensors(case)), (mean.double() - _mean(case)).abs().flatten() > allowed(case, first=1)
    places = torch.arange(len(wrong))
    beside = (places >= -(-len(wrong) // count), places % count > 0)
    return flag(case.about, "outlier") and all(bool(wrong[each].any()) for each in beside)


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: a byte for each entry."""
    own = _tensors(case)
    return both_ways(own, next(iter(own.values())).numel(), 1)


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: what travelled, then the values, then whether all ranks have the same bits."""
    own, right, off = _tensors(case), _mean(case), allowed(case)
    for rank in own:
        yield from _wrong_on_the_wire(case, wire, rank)
    for rank in own:
        if got[rank]["changed"]:
            yield Finding("tensor changed", f"Rank {rank}'s tensor was changed.", rank=rank)
        mean = tensor(got[rank], "mean")
        if bool(((mean.double() - right).abs() > off).any()):
            what = f"Rank {rank}: the mean, which may be off by {off:.3g},"
            yield wrong_value(_named(case, rank, mean, right, off), what, mean, right.to(mean.dtype), rank=rank)
        elif _too_coarse(case, mean):
            fine = allowed(case, first=1)
            text = f"Rank {rank}: entry 0 is the largest by far. Outside its piece, entries of the mean may be off by "
            yield Finding(ONE_SCALE, f"{text}{fine:.3g}, and some are off by more.", rank=rank)
    first = next(iter(own))
    for rank in own:
        if not torch.equal(tensor(got[rank], "mean"), tensor(got[first], "mean")):
            message = f"Ranks {first} and {rank} have different bits."
            yield Finding("ranks differ", message, rank=rank)


def _wrong_on_the_wire(case: Case, wire: Wire, rank: int) -> Iterator[Finding]:
    count, entries = len(_tensors(case)), _mean(case).numel()
    calls = [call for call in wire.collectives if call.rank == rank]
    sent = sum(call.bytes for call in calls) + wire.bytes_sent(rank)
    most = 2 * (entries + count) + 16 * count
    if sent > most:
        gathered = max((call.bytes for call in calls if call.kind.startswith("all_gather")), default=0)
        floats = any(call.kind.startswith(("all_reduce", "reduce")) for call in calls) or sent >= 6 * entries
        floats = floats or (any("to_all" in call.kind for call in calls) and gathered > 2 * entries)
        everything = entries + 9 * count < gathered <= 1.3 * count * (entries + 8)
        others = "floats travel" if floats else "more than codes travel"
        message = f"Rank {rank} moved {sent} bytes for {entries} entries; {most} are enough for codes and scales."
        name = "everybody gathers everything" if everything and not floats else others
        yield Finding(name, message, f"at most {most} bytes", f"{sent} bytes", rank=rank)


def _named(case: Case, rank: int, mean: Tensor, right: Tensor, off: float) -> str:
    own, count = _tensors(case), len(_tensors(case))

    def like(other: Tensor, times: float = 1.0) -> bool:
        return not bool(((mean.double() - other).abs() > times * off).any())

    if like(right * count, count):
        return "sum instead of mean"
    if like(right / count):
        return "divided twice"
    if like(right * count / case.world_size):
        return "divided by the whole world"
    if like(own[rank].double()):
        return "only this rank's tensor"
    if any(like(each, 1.5) for each in _with_one_scale(case)):
        return "codes without their scales"
    wrong = (mean.double() - right).abs() > off
    return (
        "some pieces only" if not all(piece.any() for piece in wrong.flatten().tensor_split(count)) else "a wrong mean"
    )


def _with_one_scale(case: Case) -> Iterator[Tensor]:
    """Yield the mean as it comes out where codes are unpacked with the scales of one rank, or of the wrong piece."""
    own = [each.double() for each in _tensors(case).values()]
    count, entries, shape = len(own), own[0].numel(), own[0].shape
    padded = [torch.cat([each.flatten(), each.new_zeros(-entries % count)]).view(count, -1) for each in own]
    scales = [each.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127 for each in padded]
    of_ranks = torch.stack([(each / scale).round() for each, scale in zip(padded, scales, strict=True)])
    own_scales = torch.stack([(of_ranks[:, piece] * scales[piece]).mean(0) for piece in range(count)])
    yield own_scales.flatten()[:entries].view(shape)
    codes = of_ranks.mean(0)
    for scale in [*scales, torch.stack(scales).mean(0)]:
        yield (codes * scale).flatten()[:entries].view(shape)


def _does_not_divide(got: Got, *words: str) -> bool:
    return isinstance(got, Failure) and any(each in got.message for each in words)


def _uneven(case: Case, got: Got, wire: Wire) -> bool:
    ranks = integers(case.about, "ranks")
    if tensor(case.inputs[ranks[0]], "tensor").numel() % len(ranks) == 0:
        return False
    return _does_not_divide(got, "is invalid for input of size", "do not divide", "does not divide")


def _among_all(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether pieces for the group were to be shared out among all ranks."""
    outside = len(integers(case.about, "ranks")) < case.world_size
    return outside and _does_not_divide(got, f"do not divide among {case.world_size} ranks", "does not divide equally")


EXERCISE = declared(
    id="quantised_all_reduce",
    functions=("quantised_all_reduce",),
    given=("Packet", "Int8"),
    driver=drive,
    oracle=expected,
    looks=(find,),
    least=least_traffic,
    mistakes=(
        Mistake(WHOLE_WORLD,
                "Only the ranks of the group take part: hand group=group to each collective, and group to "
                "dist.get_world_size.",
                says=(*HANGS, "not part of group", "take part", "is not in the group"), seen=_among_all, certain=True),
        Mistake(UNEVEN,
                "The entries do not divide evenly among the ranks: pad with zeros, and cut them off at the end.",
                seen=_uneven, certain=True),
        packets.GAPS,
        Mistake("everybody gathers everything",
                "Every rank gathers all codes: N times the bytes. Give each rank one piece to add up: all_to_all "
                "sends it there, all_gather brings the sums back."),
        Mistake("floats travel", "What travels is not int8: compress before each of the two exchanges."),
        Mistake("more than codes travel",
                "More travels than codes and scales: there is one scale per piece, and each piece goes once to the "
                "rank that adds it up."),
        Mistake("sum instead of mean", "The sum came back: divide by dist.get_world_size(group)."),
        Mistake("divided twice", "Divided by the number of ranks twice."),
        Mistake("divided by the whole world",
                "Divided by the ranks of the whole world: dist.get_world_size(group) counts those that take part."),
        Mistake("only this rank's tensor", "This rank's own tensor came back."),
        Mistake("some pieces only",
                "Some pieces are right: each rank has the piece it added up, and must gather the others'."),
        Mistake("codes without their scales",
                "Codes of different ranks mean different numbers: unpack each with its own scale and add those. The "
                "scales travel, too."),
        Mistake(ONE_SCALE,
                "One large entry made all pieces coarse. Compress each piece by itself: then its scale follows from "
                "the largest entry of that piece alone."),
        Mistake("ranks differ",
                "Every rank must end with the same bits, or the models drift apart: unpack your own piece from its "
                "codes too, as the others do."),
        Mistake(WRONG_SHAPE, "Cut off what was added to fill up, and give the mean the shape of the tensor."),
        Mistake(WRONG_DTYPE, "The mean has the tensor's dtype: hand it to Packet, which Int8 unpacks to."),
        Mistake("tensor changed", "The input tensor was changed. Return a new one."),
    ),
    visible=(
        quantised_case("3 ranks, a matrix", 691, 3, (12, 20)),
        quantised_case(
            "4 ranks of different sizes of entries, 230 entries", 692, 4, (230,), scales=(1.0, 30.0, 0.1), outlier=True
        ),
        quantised_case("4 ranks, of which 0, 2 and 3 take part", 693, 4, (120,), group=(0, 2, 3)),
        quantised_case("2 ranks, float64, not contiguous", 694, 2, (10, 20), double=True, gaps=True),
    ),
    hints=(
        "A reduce-scatter adds floats on its way. Which collective of lesson 03 brings each rank its piece of every "
        "tensor without adding?",
        "Pad to a multiple of N, cut N pieces, compress each. all_to_all_single for codes, and for scales. Unpack, "
        "add, divide. Compress the mean of your piece, all_gather its codes and scale, unpack all, join, cut off.",
        "dist.all_to_all_single(theirs, codes, group=group) with codes of shape (N, entries of a piece); row r of "
        "theirs is rank r's version of your piece.",
    ),
)  # fmt: skip
