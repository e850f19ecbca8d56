"""The mean of packets that cannot be added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.judged import judged
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.findings import (
    TOO_EARLY,
    Finding,
    hanging,
    judging,
    mistakes,
    near,
    normal,
    raising,
    unlike,
    wrong_value,
)
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
            values = normal(seed + rank, length, dtype=torch.float64)
            mine |= {"start": start, "values": values, "shape": list(shape)}
        inputs.append(mine)
    return Case(name, len(inputs), tuple(inputs), {"ranks": cast(Value, members)})


def windows(case: Case) -> dict[int, Tensor]:
    """Return what each member's packet stands for."""
    found = {}
    for rank in cast(list[int], case.about["ranks"]):
        inputs = case.inputs[rank]
        whole = torch.zeros(cast(list[int], inputs["shape"]), dtype=torch.float64)
        start, values = cast(int, inputs["start"]), cast(Tensor, inputs["values"])
        whole.view(-1)[start : start + len(values)] = values
        found[rank] = whole
    return found


def expected(case: Case) -> list[Values]:
    """Return what each rank must have (the oracle)."""
    parts = list(windows(case).values())
    mean = torch.stack(parts).mean(0)
    ranks = cast(list[int], case.about["ranks"])
    return [{"mean": mean} if rank in ranks else {"member": False} for rank in range(case.world_size)]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong, on the wire first: it says why the numbers are wrong."""
    own = windows(case)
    count, right = len(own), cast(Tensor, expected(case)[next(iter(own))]["mean"])
    kinds = {call.kind for call in wire.collectives}
    if kinds & {"all_reduce", "reduce", "reduce_scatter"}:
        if any(call.bytes >= right.numel() * right.element_size() for call in wire.collectives):
            return Finding("a whole gradient travels", f"The ranks called {join(sorted(kinds))} with a whole gradient.")
        return Finding("added entry by entry", f"The ranks called {join(sorted(kinds))}; packets cannot be added.")
    packet = 8 + 8 * len(cast(Tensor, case.inputs[next(iter(own))]["values"]))
    for rank in own:
        sent = sum(call.bytes for call in wire.collectives if call.rank == rank) + wire.bytes_sent(rank)
        if sent > count * packet:
            return Finding(
                "more than packets travels",
                f"Rank {rank} moved {sent} bytes; {count} packets of {packet} bytes are {count * packet}.",
                f"at most {count * packet} bytes",
                f"{sent} bytes",
                rank=rank,
            )
    for rank, mine in own.items():
        if got[rank].get("changed"):
            return Finding("packet changed", f"Rank {rank}'s packet was changed.", rank=rank)
        came = got[rank].get("mean")
        odd = unlike(came, right, f"Rank {rank}: the mean", rank=rank)
        if odd is not None:
            return odd
        if not near(came, right, 1e-9):
            begun = {call.kind for call in wire.collectives if call.rank == rank and call.waited is None} - {"barrier"}
            there = torch.stack([part != 0 for part in own.values()]).sum(0).clamp(min=1)
            named = {
                "sum instead of mean": right * count,
                "only my packet": mine,
                "only my packet ": mine / count,
                "divided twice": right / count,
                "divided by those that sent the entry": right * count / there,
                "other ranks' values in this rank's places": _in_places_of(case, rank, list(own)),
            } | {f"one buffer for all ranks{' ' * other}": part for other, part in own.items()}
            other = "unpacked too early" if begun else "a wrong mean"
            name = next((name for name, wrong in named.items() if near(came, wrong, 1e-9)), other).strip()
            return wrong_value(name, f"Rank {rank}: the mean", cast(Tensor, came), right, rank=rank)
    return None


def _in_places_of(case: Case, rank: int, members: Sequence[int]) -> Tensor:
    """Return the mean of all ranks' values, each put where this rank's window begins."""
    mine = case.inputs[rank]
    whole = torch.zeros(cast(list[int], mine["shape"]), dtype=torch.float64)
    start, values = (
        cast(int, mine["start"]),
        torch.stack([cast(Tensor, case.inputs[each]["values"]) for each in members]),
    )
    whole.view(-1)[start : start + values.shape[1]] = values.mean(0)
    return whole


EXERCISE = judged(
    id="mean_of_packets",
    functions=("mean_of_packets",),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    judge=judging(find),
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
    mistakes=(
        raising(
            "added entry by entry",
            "dist.all_reduce added places or scales of different ranks: packets cannot be added. Gather them.",
            "starts were added up",
        ),
        TOO_EARLY,
        raising(
            "parts of ranks, ranks of parts",
            "For each part you have a list of N tensors; a packet wants one tensor of each part. zip(*gathered) turns "
            "the one into the other.",
            "to unpack",
        ),
        hanging(
            "all ranks of the world",
            "Only the ranks of the group take part: hand group=group to dist.all_gather, and group to "
            "dist.get_world_size.",
            "invalid output tensor list",
            "Tensor list",
            "not part of group",
            "take part",
        ),
        *mistakes(
            find,
            added_entry_by_entry="An all_reduce adds the k-th value of one rank to the k-th of another, and they "
            "belong to "
            "other entries: gather the parts, unpack, and add gradients.",
            a_whole_gradient_travels="The sum is right, and it sends every zero: as many bytes as without compression. "
            "Gather the packets, and unpack them afterwards.",
            one_buffer_for_all_ranks="Every rank's packet is the same one: [tensor] * N is N times the same tensor. "
            "Make each anew: [torch.empty_like(part) for _ in range(N)].",
            unpacked_too_early=TOO_EARLY.hint,
            more_than_packets_travels="What travelled is larger than the packets: gather parts, and unpack afterwards.",
            sum_instead_of_mean="The sum came back: divide by the number of ranks.",
            only_my_packet="Only this rank's own packet is in it.",
            divided_twice="Divided by the number of ranks twice.",
            divided_by_those_that_sent_the_entry="Divide by the number of all ranks: who did not send an entry "
            "says 0, and "
            "keeps the rest in the residual.",
            **{
                "other_ranks'_values_in_this_rank's_places": "All ranks' values were put into this rank's own places: "
                "gather every part, the places too."
            },
            packet_changed="The packet was changed: work on copies.",
            shape_lost="decompress gives the gradient's shape; keep it.",
        ),
    ),
)
