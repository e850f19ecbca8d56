"""The mean of packets that cannot be added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.blame import HANGS, by_signs
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.draws import normal, part_of
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import WRONG_SHAPE
from labkit.checks.values import integer, integers, tensor
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression import gathered
from labkit.exercises.gradient_compression.gathered import TOO_EARLY
from labkit.exercises.gradient_compression.mean_of_packets.driver import drive
from labkit.words import join


def mean_case(
    name: str,
    seed: int,
    shape: Sequence[int],
    starts: Sequence[int],
    length: int,
    *,
    group: Sequence[int] | None = None,
    world_size: int | None = None,
) -> Case:
    """Return a case in which each rank has a window of `length` entries of a gradient.

    Args:
        name: What is special about it.
        seed: Draws the entries.
        shape: Of the gradient.
        starts: Where each rank's window begins in the flat gradient.
        length: Of every window.
        group: Global ranks that take part, in a world of `world_size`; None is everybody.
        world_size: Ranks of the world.
    """
    members = list(range(len(starts))) if group is None else list(group)
    inputs: list[Values] = []
    for rank in range(world_size or len(members)):
        mine: dict[str, Value] = {} if group is None else {"group": list(members)}
        if rank in members:
            start = starts[members.index(rank)]
            values = normal(part_of(seed, "rank", rank), length, dtype=torch.float64)
            mine |= {"start": start, "values": values, "shape": list(shape)}
        inputs.append(mine)
    return Case(name, len(inputs), tuple(inputs), {"ranks": [*members]})


def windows(case: Case) -> dict[int, Tensor]:
    """Return what each member's packet stands for."""
    return {rank: _placed(case, rank, tensor(case.inputs[rank], "values")) for rank in integers(case.about, "ranks")}


def _placed(case: Case, rank: int, values: Tensor) -> Tensor:
    """Return zeros of the gradient's shape with these values where this rank's window is."""
    whole = torch.zeros(integers(case.inputs[rank], "shape"), dtype=torch.float64)
    start = integer(case.inputs[rank], "start")
    whole.view(-1)[start : start + len(values)] = values
    return whole


def expected(case: Case) -> list[Values]:
    """Return what each rank must have (the oracle)."""
    ranks = integers(case.about, "ranks")
    member: Values = {"mean": _mean(windows(case)), "changed": False}
    return [member if rank in ranks else {"member": False} for rank in range(case.world_size)]


def _mean(own: dict[int, Tensor]) -> Tensor:
    return torch.stack([*own.values()]).mean(0)


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: the values of every packet."""
    ranks = integers(case.about, "ranks")
    return both_ways(ranks, len(tensor(case.inputs[ranks[0]], "values")))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong, on the wire first: it says why the numbers are wrong."""
    own = windows(case)
    right = _mean(own)
    yield from _wrong_on_the_wire(case, wire, right)
    for rank in own:
        if got[rank]["changed"]:
            yield Finding("packet changed", f"Rank {rank}'s packet was changed.", rank=rank)
        mean = tensor(got[rank], "mean")
        if not near(mean, right):
            begun = {call.kind for call in wire.collectives if call.rank == rank and call.waited is None} - {"barrier"}
            name = _named(case, own, rank, mean) or (TOO_EARLY if begun else "a wrong mean")
            yield wrong_value(name, f"Rank {rank}: the mean", mean, right, rank=rank)


def _wrong_on_the_wire(case: Case, wire: Wire, mean: Tensor) -> Iterator[Finding]:
    kinds = {call.kind for call in wire.collectives}
    if kinds & {"all_reduce", "reduce", "reduce_scatter"}:
        called = f"The ranks called {join(sorted(kinds))}"
        if any(call.bytes >= mean.numel() * mean.element_size() for call in wire.collectives):
            yield Finding("a whole gradient travels", f"{called} with a whole gradient.")
        yield Finding("added entry by entry", f"{called}; packets cannot be added.")
    ranks = integers(case.about, "ranks")
    packet = 8 + 8 * len(tensor(case.inputs[ranks[0]], "values"))
    most = len(ranks) * packet
    for rank in ranks:
        sent = sum(call.bytes for call in wire.collectives if call.rank == rank) + wire.bytes_sent(rank)
        if sent > most:
            message = f"Rank {rank} moved {sent} bytes; {len(ranks)} packets of {packet} bytes are {most}."
            yield Finding("more than packets travels", message, f"at most {most} bytes", f"{sent} bytes", rank=rank)


def _named(case: Case, own: dict[int, Tensor], rank: int, mean: Tensor) -> str:
    right, count = _mean(own), len(own)
    there = torch.stack([part != 0 for part in own.values()]).sum(0).clamp(min=1)
    values = torch.stack([tensor(case.inputs[each], "values") for each in own])
    return as_if(
        mean,
        [
            ("sum instead of mean", lambda: right * count),
            ("only my packet", lambda: own[rank]),
            ("only my packet", lambda: own[rank] / count),
            ("divided twice", lambda: right / count),
            ("divided by those that sent the entry", lambda: right * count / there),
            ("other ranks' values in this rank's places", lambda: _placed(case, rank, values.mean(0))),
            *[("one buffer for all ranks", lambda part=part: part) for part in own.values()],
        ],
        near,
    )


MISTAKES = {
    **gathered.MISTAKES,
    "parts of ranks, ranks of parts": "For each part you have a list of N tensors; a packet wants one tensor of each "
    "part. zip(*gathered) turns the one into the other.",
    "all ranks of the world": "Only the ranks of the group take part: hand group=group to dist.all_gather, and group "
    "to dist.get_world_size.",
    "added entry by entry": "An all_reduce adds the k-th value of one rank to the k-th of another, and they belong to "
    "other entries: gather the parts, places and scales too, unpack, and add gradients.",
    "a whole gradient travels": "The sum is right, and it sends every zero: as many bytes as without compression. "
    "Gather the packets, and unpack them afterwards.",
    "more than packets travels": "What travelled is larger than the packets: gather parts, and unpack afterwards.",
    "sum instead of mean": "The sum came back: divide by the number of ranks.",
    "only my packet": "Only this rank's own packet is in it.",
    "divided by those that sent the entry": "Divide by the number of all ranks: who did not send an entry says 0, "
    "and keeps the rest in the residual.",
    "other ranks' values in this rank's places": "All ranks' values were put into this rank's own places: gather "
    "every part, the places too.",
    "packet changed": "The packet was changed: work on copies.",
    WRONG_SHAPE: "decompress gives the gradient's shape; keep it.",
}

SIGNS = {
    "added entry by entry": ("starts were added up",),
    **gathered.SIGNS,
    "parts of ranks, ranks of parts": ("to unpack",),
    "all ranks of the world": (*HANGS, "invalid output tensor list", "Tensor list", "not part of group", "take part"),
}

EXERCISE = Exercise(
    id="mean_of_packets",
    functions=("mean_of_packets",),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    find=find,
    least=least_traffic,
    blame=by_signs(SIGNS),
    mistakes=MISTAKES,
    certain=frozenset(SIGNS),
    visible=(
        mean_case("3 ranks, a matrix, places that overlap", 652, (6, 9), (10, 12, 14), 5),
        mean_case("3 ranks, entries in different places", 651, (40,), (0, 13, 29), 4),
        mean_case("4 ranks, of which 1, 2 and 3 take part", 653, (30,), (2, 20, 9), 3, group=(1, 2, 3), world_size=4),
    ),
    hints=(
        "What must rank 0 have of rank 2 so that it can unpack rank 2's gradient? Which collective brings it there?",
        "For each part of the packet: a list of N empty tensors like it, and dist.all_gather. The r-th tensor of "
        "each list "
        "together make rank r's packet. Unpack each, add, divide by N.",
        "of_ranks = [torch.empty_like(part) for _ in range(n)]; dist.all_gather(of_ranks, part, group=group) for "
        "each part; "
        "then replace(packet, parts=parts) for parts in zip(*gathered).",
    ),
)
