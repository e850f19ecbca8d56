"""All-reduce within and between nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from labkit.checks import values
from labkit.checks.case import Case, Failure, Values
from labkit.checks.declared import declared
from labkit.checks.finding import Finding
from labkit.checks.structure import and_more
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.collectives.asked_error import NEEDLESS, NO_ERROR, sums_unless, wrong_errors
from labkit.exercises.collectives.hierarchical_all_reduce.driver import drive
from labkit.exercises.collectives.hierarchical_all_reduce.phases import (
    Levels,
    between_first,
    inside_too_early,
    left_by,
    no_gather_between,
    no_gather_inside,
    piece_of_the_node,
)
from labkit.exercises.sums_over_ranks.sum_mistakes import common, reworded, sum_mistake
from labkit.exercises.sums_over_ranks.sum_outcome import SumOutcome, sum_outcome, wrong_sums
from labkit.exercises.sums_over_ranks.sums import input_of, is_second_use, least_traffic, reduce_case, whole_numbers
from labkit.exercises.sums_over_ranks.traffic import itemsize_of
from labkit.exercises.sums_over_ranks.world_sizes import sweep
from labkit.words import plural

_PEERS, _NODE_ONLY, _FLAT, _LEADERS, _WHOLE = (
    "peers not translated", "the nodes never talk", "one ring over all ranks", "leaders only",
    "whole tensor between the nodes",
)  # fmt: skip
_DEALT, _INSIDE_TWICE = "ranks dealt out in turn", "too much inside the node"


def nodes_case(
    seed: int, world_size: int, ranks_per_node: int, shape: Sequence[int], dtype: torch.dtype = torch.float32
) -> Case:
    """Return a case of hierarchical_all_reduce; where the nodes do not divide the world a ValueError is asked for."""
    kind = "" if dtype == torch.float32 else f", {str(dtype).removeprefix('torch.')}"
    name = f"{plural(world_size // ranks_per_node, 'node')} of {ranks_per_node}, {' x '.join(map(str, shape))} elements"
    if world_size % ranks_per_node:
        name = f"{world_size} ranks in nodes of {ranks_per_node}: ValueError"
    tensors = whole_numbers(seed, world_size, shape, dtype)
    return reduce_case(name + kind, tensors, extra={"args": [ranks_per_node], "catch": True})


def _per_node(case: Case) -> int:
    return values.integers(case.inputs[0], "args")[0]


def _asks_for_error(case: Case) -> bool:
    return case.world_size % _per_node(case) != 0


def _most_bytes(case: Case) -> tuple[int, int]:
    """Return the bytes a rank may send to other nodes, and to ranks of its own."""
    local, item = _per_node(case), itemsize_of(case)
    nodes, piece = case.world_size // local, math.ceil(input_of(case, 0).numel() / local)
    return 2 * (nodes - 1) * math.ceil(piece / nodes) * item, 2 * (local - 1) * piece * item


def _sent_bytes(case: Case, wire: Wire, rank: int) -> tuple[int, int]:
    """Return the bytes a rank sent to other nodes, and to ranks of its own."""
    local = _per_node(case)
    between = sum(m.bytes for m in wire.sent_by(rank) if m.dst // local != rank // local)
    return between, wire.bytes_sent(rank) - between


def _is_flat(case: Case, wire: Wire) -> bool:
    size = case.world_size
    return _per_node(case) > 1 and size > 2 and all(wire.peers(rank) == ((rank + 1) % size,) for rank in range(size))


def _leaders_talk(case: Case, wire: Wire) -> bool:
    talkers = sum(bool(_sent_bytes(case, wire, rank)[0]) for rank in range(case.world_size))
    nodes = case.world_size // _per_node(case)
    return _per_node(case) > 1 and nodes > 1 and 0 < talkers <= nodes


def _deals_ranks_out(case: Case, wire: Wire) -> bool:
    """Return whether ranks 0, n, 2n, ... of n nodes were taken for one node, and neighbours for different ones."""
    local = _per_node(case)
    nodes, (across, within) = case.world_size // local, _most_bytes(case)
    if local < 2 or nodes < 2 or across == within:
        return False
    sent = [[sum(m.bytes for m in wire.sent_by(rank) if (m.dst % nodes == rank % nodes) is same)
             for same in (True, False)] for rank in range(case.world_size)]  # fmt: skip
    return all(0 < mine <= within and 0 < others <= across for mine, others in sent) and any(
        mine > across for mine, _ in sent
    )


def _left(phases: Callable[[Levels], None]) -> Callable[[SumOutcome], bool]:
    """Return a test: the ranks hold what these phases leave."""

    def seen(came: SumOutcome) -> bool:
        if _asks_for_error(came.case):
            return False
        left = left_by(phases, came.inputs, _per_node(came.case))
        return bool(left) and all(map(torch.equal, came.views, left)) and not came.unchanged

    return seen


def _way(case: Case, wire: Wire) -> str:
    """Return the mistake that the messages between the nodes show, or ""."""
    sent = [_sent_bytes(case, wire, rank)[0] for rank in range(case.world_size)]
    if wire.messages and not any(sent):
        return _NODE_ONLY
    if _is_flat(case, wire):
        return _FLAT
    if _deals_ranks_out(case, wire):
        return _DEALT
    if _leaders_talk(case, wire):
        return _LEADERS
    return _WHOLE if max(sent) > _most_bytes(case)[0] else ""


def _shows(mistake: str) -> Callable[[SumOutcome], bool]:
    return lambda came: _way(came.case, came.wire) == mistake


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with the sums, or that more bytes than needed passed between the nodes."""
    asked = _asks_for_error(case)
    divides = f"{_per_node(case)} ranks per node do not divide {case.world_size} ranks"
    yield from wrong_errors(got, asked, divides if asked else "the nodes divide the world")
    if asked:
        return
    yield from library_calls(wire)
    yield from wrong_sums(sum_outcome(case, got, wire))
    if not is_second_use(case):
        yield from _traffic(case, wire)
    yield from lost_messages(wire)


def _traffic(case: Case, wire: Wire) -> Iterator[Finding]:
    for rank in range(case.world_size):
        both = zip(_sent_bytes(case, wire, rank), _most_bytes(case), ("to other nodes", "inside its node"), strict=True)
        for sent, limit, where in both:
            if sent > limit:
                text = f"The sums are right, but rank {rank} sends {sent} bytes {where}; {limit} are enough."
                mistake = _way(case, wire) or (_INSIDE_TWICE if where == "inside its node" else "")
                yield Finding(mistake, text, f"at most {limit} bytes {where}", f"{sent} bytes", rank)


def _took_places_for_ranks(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether a rank talks to itself, or all that wait are in the first node, whose places are its ranks."""
    if any(m.src == m.dst for m in wire.messages) or "itself" in failure.message:
        return True
    return bool(failure.waits) and all(wait.rank < _per_node(case) for wait in failure.waits)


_NODES = {2: 2, 3: 1, 4: 2, 6: 3, 8: 2, 9: 3, 12: 4, 16: 4}
"""World size: ranks per node, of the virtual worlds."""


def _steps(case: Case) -> int:
    """Return the steps of two rings inside a node (half of each) and one between nodes."""
    per_node = _per_node(case)
    return 2 * (per_node - 1) + 2 * (case.world_size // per_node - 1)


EXERCISE = declared(
    id="hierarchical_all_reduce",
    functions=("hierarchical_all_reduce",),
    driver=drive,
    oracle=lambda case: sums_unless(case, _asks_for_error(case)),
    structure=and_more(lambda case: sums_unless(case, _asks_for_error(case)), returned=str, raised=str),
    looks=(find,),
    least=lambda case: {} if _asks_for_error(case) else least_traffic(case),
    visible=(
        nodes_case(71, 4, 2, (8,)),
        nodes_case(72, 4, 2, (7,)),
        nodes_case(73, 6, 3, (20,)),
        nodes_case(74, 6, 2, (2, 5)),
        nodes_case(75, 4, 3, (6,)),
        nodes_case(76, 4, 2, (8,), torch.float64),
    ),
    hints=(
        "The links inside a node are fast, those between nodes slow. How small can the piece be that a rank must send "
        "to another node?",
        "Three phases: reduce-scatter inside the node, so that each rank owns 1/G of the node's sum; all-reduce of "
        "that piece among the ranks with the same place in every node; all-gather inside the node.",
        "node, local = divmod(rank, G); inside = range(node * G, node * G + G); between = range(local, world_size, G). "
        "Cut the tensor in G pieces and reduce_scatter them inside; cut pieces[local] in as many chunks as there are "
        "nodes, reduce_scatter and all_gather these between; then all_gather the pieces inside.",
    ),
    sweep=sweep(
        lambda size: nodes_case(100 + size, size, _NODES[size], (2 * size + 1,)), _steps, slack=3, sizes=tuple(_NODES)
    ),
    mistakes=(
        *common("calls the library"),
        sum_mistake(NO_ERROR,
                    "Where ranks_per_node does not divide the world size every rank must raise ValueError before "
                    "anything is sent.", failed=lambda case, failure, wire: _asks_for_error(case), certain=True),
        sum_mistake(_PEERS,
                    "The rings go through real ranks, not through places in a small ring: inside a node these are "
                    "node * G to node * G + G - 1, between the nodes local, local + G, local + 2G, ...",
                    failed=_took_places_for_ranks),
        *common("nobody sent anything", "not in place", "mean instead of sum"),
        sum_mistake(_NODE_ONLY,
                    "Every node added up only its own ranks. Between the two phases inside the node, all-reduce each "
                    "piece between the nodes.", came=_shows(_NODE_ONLY)),
        sum_mistake(_FLAT, "All ranks form one ring, so whole chunks of it cross between the nodes in every step.",
                    came=_shows(_FLAT), failed=lambda case, failure, wire: _is_flat(case, wire)),
        sum_mistake(_LEADERS,
                    "One rank of each node does all the talking to the others, with the whole tensor; share it: each "
                    "rank takes its own piece.", came=_shows(_LEADERS)),
        sum_mistake(_WHOLE,
                    "Each rank sends more than its share between the nodes: reduce-scatter inside the node first, so "
                    "that only a piece of 1/ranks_per_node has to travel.", came=_shows(_WHOLE),
                    failed=lambda case, failure, wire: _way(case, wire) == _WHOLE),
        sum_mistake(_DEALT,
                    "Ranks were taken for a node as if they were dealt out in turn, and so the large pieces cross "
                    "between nodes. Ranks 0 to G - 1 are node 0: node, local = divmod(rank, ranks_per_node).",
                    came=_shows(_DEALT)),
        sum_mistake(_INSIDE_TWICE,
                    "More travels inside the node than one reduce-scatter, which comes first, and one all-gather, "
                    "which comes last: between the two a rank needs nothing but its own piece."),
        sum_mistake("no all-gather inside the node",
                    "Each rank has its own piece of the total, and nobody hands it round inside the node: that is the "
                    "last phase, an all_gather.", came=_left(no_gather_inside)),
        sum_mistake("no all-gather between the nodes",
                    "Between the nodes only the reduce-scatter ran, so each rank has one chunk of its piece complete. "
                    "The piece wants an all_gather between the nodes too, before it is handed round inside.",
                    came=_left(no_gather_between)),
        sum_mistake("handed round before it is complete",
                    "The all-gather inside the node came before the all-gather between the nodes: the pieces that were "
                    "handed round had other nodes' part in one chunk only.", came=_left(inside_too_early)),
        sum_mistake("between the nodes first",
                    "The nodes exchanged pieces before their ranks had been added up inside. First reduce-scatter "
                    "inside, so that a rank's piece is its node's sum; then between.", came=_left(between_first)),
        sum_mistake("another piece than its own",
                    "Between the nodes a rank took the piece with its node's number. After the reduce-scatter inside, "
                    "the piece that is complete on a rank has the rank's place in its node: pieces[local].",
                    came=_left(piece_of_the_node)),
        *common("fewer chunks than ranks", "a contribution added twice", "needs sizes that divide"),
        reworded("contributions missing",
                 "Some contributions never arrived: look at the phase in which the ranks that are named should have "
                 "been added."),
        NEEDLESS,
    ),
)  # fmt: skip
