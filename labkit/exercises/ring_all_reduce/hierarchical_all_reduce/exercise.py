"""All-reduce within and between nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce import sum_mistakes as mistakes
from labkit.exercises.ring_all_reduce.hierarchical_all_reduce.driver import drive
from labkit.exercises.ring_all_reduce.sums import (
    base_of,
    expected_bases,
    input_of,
    reduce_case,
    whole_numbers,
    wrong_values,
)
from labkit.exercises.ring_all_reduce.traffic import library_calls, lost_messages
from labkit.exercises.ring_all_reduce.world_sizes import sweep
from labkit.words import plural, ranks_in_words


def nodes_case(seed: int, world_size: int, ranks_per_node: int, shape: Sequence[int]) -> Case:
    """Return a case of hierarchical_all_reduce; where the nodes do not divide the world a ValueError is asked for."""
    what = " x ".join(map(str, shape))
    name = f"{plural(world_size // ranks_per_node, 'node')} of {ranks_per_node}, {what} elements"
    if world_size % ranks_per_node:
        name = f"{world_size} ranks in nodes of {ranks_per_node}: ValueError"
    return reduce_case(name, whole_numbers(seed, world_size, shape), extra={"args": [ranks_per_node], "catch": True})


def nodes_expected(case: Case) -> list[Values]:
    """Return the sums, or where the nodes do not divide the world the tensors as they were (the oracle)."""
    if _whole_nodes(case):
        return expected_bases(case)
    return [{"base": base_of(case, rank)} for rank in range(case.world_size)]


def _whole_nodes(case: Case) -> bool:
    return case.world_size % _per_node(case) == 0


def _per_node(case: Case) -> int:
    return cast(list[int], case.inputs[0]["args"])[0]


def most_bytes(case: Case) -> tuple[int, int]:
    """Return the bytes a rank may send to other nodes, and to ranks of its own."""
    local = _per_node(case)
    nodes, numel = case.world_size // local, input_of(case, 0).numel()
    piece = math.ceil(numel / local)
    return 2 * (nodes - 1) * math.ceil(piece / nodes) * 4, 2 * (local - 1) * piece * 4


def sent_bytes(case: Case, wire: Wire, rank: int) -> tuple[int, int]:
    """Return the bytes a rank sent to other nodes, and to ranks of its own."""
    local = _per_node(case)
    between = sum(m.bytes for m in wire.sent_by(rank) if m.dst // local != rank // local)
    return between, wire.bytes_sent(rank) - between


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether the sums are right and few bytes passed between the nodes."""
    assert isinstance(got, tuple)
    raised = [cast(str, values.get("raised")) or "" for values in got]
    if not _whole_nodes(case):
        quiet = [rank for rank, text in enumerate(raised) if not text.startswith("ValueError")]
        if not quiet:
            return Verdict(True)
        return Verdict(
            False,
            message=f"{_per_node(case)} ranks per node do not divide {case.world_size} ranks: ValueError was expected, "
            f"{ranks_in_words(quiet)} raised none.",
            expected="ValueError on every rank",
            got=f"none on {ranks_in_words(quiet)}",
            rank=quiet[0],
        )
    for rank, text in enumerate(raised):
        if text:
            return Verdict(False, message=f"Rank {rank} raised {text}, but the nodes divide the world.", rank=rank)
    return (
        library_calls(wire) or wrong_values(case, got) or _traffic(case, wire) or lost_messages(wire) or Verdict(True)
    )


def _traffic(case: Case, wire: Wire) -> Verdict | None:
    limits = most_bytes(case)
    for rank in range(case.world_size):
        for sent, limit, where in zip(
            sent_bytes(case, wire, rank), limits, ("to other nodes", "inside its node"), strict=True
        ):
            if sent > limit:
                return Verdict(
                    False,
                    message=f"The sums are right, but rank {rank} sends {sent} bytes {where}; {limit} are enough.",
                    expected=f"at most {limit} bytes {where}",
                    got=f"{sent} bytes",
                    rank=rank,
                )
    return None


def _leaders_only(case: Case, got: Got, wire: Wire) -> bool:
    if _per_node(case) == 1:
        return False
    if not isinstance(got, tuple):
        return False
    talkers = {rank for rank in range(case.world_size) if sent_bytes(case, wire, rank)[0]}
    nodes = case.world_size // _per_node(case)
    return nodes > 1 and len(talkers) <= nodes < case.world_size and bool(talkers)


def _flat_ring(case: Case, got: Got, wire: Wire) -> bool:
    right = all(wire.peers(rank) == ((rank + 1) % case.world_size,) for rank in range(case.world_size))
    return right and case.world_size > 2 and _per_node(case) > 1


def _whole_between(case: Case, got: Got, wire: Wire) -> bool:
    return any(sent_bytes(case, wire, rank)[0] > most_bytes(case)[0] for rank in range(case.world_size))


def _node_only(case: Case, got: Got, wire: Wire) -> bool:
    return (
        isinstance(got, tuple)
        and bool(wire.messages)
        and not any(sent_bytes(case, wire, rank)[0] for rank in range(case.world_size))
    )


_NODES = {2: 2, 3: 1, 4: 2, 6: 3, 8: 2, 9: 3, 12: 4, 16: 4}
"""World size: ranks per node, of the virtual worlds."""


def _steps(case: Case) -> int:
    """Return the steps of two rings inside a node (half of each) and one between nodes."""
    per_node = _per_node(case)
    return 2 * (per_node - 1) + 2 * (case.world_size // per_node - 1)


EXERCISE = judged(
    id="hierarchical_all_reduce",
    functions=("hierarchical_all_reduce",),
    driver=drive,
    oracle=nodes_expected,
    judge=judge,
    visible=(
        nodes_case(71, 4, 2, (8,)),
        nodes_case(72, 4, 2, (7,)),
        nodes_case(73, 6, 3, (20,)),
        nodes_case(74, 6, 2, (2, 5)),
        nodes_case(75, 4, 3, (6,)),
    ),
    hints=(
        "The links inside a node are fast, those between nodes slow. How small can the piece be that a rank must send "
        "to another node?",
        "Three phases: reduce-scatter inside the node, so that each rank owns 1/G of the node's sum; all-reduce of "
        "that piece among the ranks with the same place in every node; all-gather inside the node.",
        "inside ring: ranks node*G .. node*G+G-1; between ring: ranks local, local+G, local+2G, ...; run the first "
        "half of ring_plan(local, G), then ring_plan(node, M) on your own chunk, then the second half of "
        "ring_plan(local, G), with the peers renamed to real ranks.",
    ),
    sweep=sweep(
        lambda size: nodes_case(100 + size, size, _NODES[size], (2 * size + 1,)), _steps, slack=3, sizes=tuple(_NODES)
    ),
    mistakes=(
        mistakes.LIBRARY,
        Mistake(
            "no error",
            "Where ranks_per_node does not divide the world size every rank must raise ValueError before anything "
            "is sent.",
            lambda case, got, wire: not _whole_nodes(case),
            certain=True,
        ),
        Mistake(
            "peers not translated",
            "A rank was its own peer: a plan's peers count within the small ring. Translate them to real ranks, "
            "inside a node rank = node * G + place, between the nodes rank = place * G + local.",
            lambda case, got, wire: (
                any(m.src == m.dst for m in wire.messages) or (isinstance(got, Failure) and "itself" in got.message)
            ),
        ),
        mistakes.BLOCKING_SENDS,
        mistakes.NOT_IN_PLACE,
        mistakes.DIVIDED,
        Mistake(
            "the nodes never talk",
            "Every node added up its own ranks only: between the phases inside the node comes an all-reduce of each "
            "piece between the nodes.",
            _node_only,
        ),
        Mistake(
            "one ring over all ranks",
            "All ranks form one ring, so whole chunks of it cross between the nodes in every step.",
            _flat_ring,
        ),
        Mistake(
            "leaders only",
            "One rank of each node does all the talking to the others, with the whole tensor; share it: each rank "
            "takes its own piece.",
            _leaders_only,
        ),
        Mistake(
            "whole tensor between the nodes",
            "Each rank sends more than its share between the nodes: reduce-scatter inside first, then only the piece "
            "of 1/ranks_per_node travels.",
            _whole_between,
        ),
        mistakes.TWICE,
        mistakes.NO_GATHER,
        mistakes.TAIL,
        mistakes.BLOCKING_RECVS,
        mistakes.UNEVEN,
        mistakes.SOME_MISSING,
    ),
)
