"""All to all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.checks import draws, values
from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.compare import difference, listing
from labkit.checks.declared import declared
from labkit.checks.failures import sizes_differ
from labkit.checks.finding import Finding
from labkit.checks.hanging import hangs
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.structure import Each
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.collectives.all_to_all.driver import drive
from labkit.exercises.sums_over_ranks.sum_mistakes import in_failures, sum_mistake
from labkit.exercises.sums_over_ranks.sums import members_of
from labkit.exercises.sums_over_ranks.traffic import GROUP_RANKS
from labkit.exercises.sums_over_ranks.world_sizes import SIZES, sweep
from labkit.words import ranks_in_words

FILL = -1.0
_ITSELF, _REPLACED, _OWN, _NOTHING, _OWN_INPUTS, _FOR_THEMSELVES, _TOO_MUCH, _UNEVEN, _ORDER = (
    "sends to itself", "puts another tensor into the list", "own piece forgotten", "nothing arrives",
    "own inputs copied", "sends its own piece to everybody", "sends too much", "sizes taken for equal", "wrong order",
)  # fmt: skip
_MISSING, _NOT_WAITED, _EMPTY, _EMPTY_BATCH = (
    "a piece never arrives", "not waited for", "an empty piece is sent", "empty batch",
)  # fmt: skip
_TYPE, _AWAITED, _BOTH_WAYS = "buffer of another type", "an empty piece is waited for", "left out both ways"


def exchange_case(
    name: str,
    sizes: Sequence[Sequence[int]],
    seed: int,
    *,
    world_size: int = 0,
    group: Sequence[int] = (),
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Return a case in which member i sends sizes[i][j] elements to member j.

    Args:
        name: What is special about it.
        sizes: Elements from each member to each member.
        seed: For the numbers.
        world_size: Ranks in all; 0: as many as rows.
        group: Global ranks of the members; empty: everybody.
        dtype: Of the pieces.
    """
    size = world_size or len(sizes)
    members = list(group) or list(range(size))
    inputs: list[Values] = []
    for rank in range(size):
        row = sizes[members.index(rank)] if rank in members else [1] * len(sizes)
        draw = draws.generator(seed, "rank", rank)
        pieces = [torch.randint(1, 1000, (count,), generator=draw).to(dtype) for count in row]
        column = [sizes[i][members.index(rank)] for i in range(len(sizes))] if rank in members else []
        given: dict[str, Value] = {"pieces": [*pieces], "sizes": [*column], "fill": FILL}
        inputs.append(given | ({"group": [*members]} if group else {}))
    return Case(name, size, tuple(inputs))


def _pieces(case: Case, rank: int) -> list[Tensor]:
    return values.tensors(case.inputs[rank], "pieces")


def exchanged(case: Case) -> list[Values]:
    """Return what each rank must hold: output i is member i's piece for it; inputs as they were (the oracle)."""
    members = members_of(case)
    results: list[Values] = []
    for rank in range(case.world_size):
        outputs = [_pieces(case, source)[members.index(rank)] for source in members] if rank in members else []
        results.append({"outputs": [*outputs], "inputs": [*_pieces(case, rank)]})
    return results


def structure(case: Case) -> list[Any]:
    """Return what results look like: the oracle's, and of members which outputs are other tensors now."""
    members = members_of(case)
    return [
        dict(right) | ({"replaced": Each(int)} if rank in members else {}) for rank, right in enumerate(exchanged(case))
    ]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: every piece for another member."""
    members, found = members_of(case), {}
    for place, rank in enumerate(members):
        out = sum(piece.numel() for there, piece in enumerate(_pieces(case, rank)) if there != place)
        into = sum(_pieces(case, other)[place].numel() for other in members if other != rank)
        found[rank] = Bytes(MOST_PACKED * out, MOST_PACKED * into)
    return found


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield which pieces did not arrive, which inputs changed, and what was sent beyond the need."""
    yield from library_calls(wire)
    for rank in members_of(case):
        for index in values.integers(got[rank], "replaced"):
            yield Finding(
                _REPLACED,
                f"On rank {rank} the list holds another tensor as outputs[{index}] now, and the tensor that the caller "
                "handed in was not filled.",
                f"rank {rank}: the caller's own tensor, with the piece in it",
                f"rank {rank}: another tensor in its place",
                rank,
            )
    yield from _wrong_pieces(case, got, wire)
    yield from _traffic(case, wire)
    yield from lost_messages(wire)


def _wrong_pieces(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    members = members_of(case)
    for what in ("outputs", "inputs"):
        for rank, should in enumerate(exchanged(case)):
            pairs = zip(values.tensors(got[rank], what), values.tensors(should, what), strict=True)
            for index, (piece, wanted) in enumerate(pairs):
                if difference(piece, wanted) is not None:
                    name, came = f"rank {rank}'s {what}[{index}]", listing(piece)
                    whose = f", rank {members[index]}'s piece for it." if what == "outputs" else ": inputs must stay."
                    text = f"R{name[1:]} is {came}, expected {listing(wanted)}{whose}"
                    yield Finding(_mix_up(case, got, wire), text, f"{name}: {listing(wanted)}", f"{name}: {came}")


_Pick = Callable[[Case, int, int], Tensor]
_MIX_UPS: dict[str, _Pick] = {
    _OWN: lambda case, rank, source: _piece(case, source, rank),
    _NOTHING: lambda case, rank, source: torch.full((len(_piece(case, source, rank)),), FILL),
    _OWN_INPUTS: lambda case, rank, source: _piece(case, rank, source),
    _FOR_THEMSELVES: lambda case, rank, source: _piece(case, source, source),
}
"""What an output from another rank holds where a mistake was made; all is right there if only the own piece is not."""


def _piece(case: Case, source: int, rank: int) -> Tensor:
    """Return what one member has for another."""
    return _pieces(case, source)[members_of(case).index(rank)]


def _mix_up(case: Case, got: tuple[Values, ...], wire: Wire) -> str:
    """Return the mistake that all outputs together show."""
    if wire.problems_of("not_waited"):
        return _NOT_WAITED
    members = members_of(case)
    ends = [(rank, source) for rank in members for source in members if rank != source]
    came = {(rank, source): piece for rank in members
            for source, piece in zip(members, values.tensors(got[rank], "outputs"), strict=True)}  # fmt: skip

    def others(pick: _Pick) -> Callable[[], dict[tuple[int, int], Tensor]]:
        return lambda: {(rank, source): pick(case, rank, source) for rank, source in ends}

    def same(now: dict[tuple[int, int], Tensor], other: dict[tuple[int, int], Tensor]) -> bool:
        return all(torch.equal(now[each], other[each]) for each in ends)

    ways = [(name, others(pick)) for name, pick in _MIX_UPS.items()]
    known = as_if(came, ways if ends else [], same)
    missing = any(bool((piece == FILL).any()) for piece in came.values())
    return known or (_MISSING if missing else _ORDER)


def _traffic(case: Case, wire: Wire) -> Iterator[Finding]:
    members = members_of(case)
    for rank in members:
        for place, peer in enumerate(members):
            piece = _pieces(case, rank)[place]
            wanted = 0 if peer == rank else piece.element_size() * piece.numel()
            sent = sum(m.bytes for m in wire.sent_by(rank) if m.dst == peer)
            if sent > wanted:
                yield Finding(
                    _ITSELF if peer == rank else _TOO_MUCH,
                    f"All pieces arrived, but rank {rank} sent {sent} bytes to rank {peer}; {wanted} are enough.",
                    f"{wanted} bytes from rank {rank} to rank {peer}",
                    f"{sent} bytes",
                    rank,
                    wire.first_send(rank, {peer}),
                )
        strangers = set(wire.peers(rank)) - set(members)
        if strangers:
            text = f"Rank {rank} sent to {ranks_in_words(strangers)}, outside the group."
            yield Finding(GROUP_RANKS, text, rank=rank, call=wire.first_send(rank, strangers))


def _sends_to_itself(case: Case, failure: Failure, wire: Wire) -> bool:
    said = failure.message + failure.detail
    return any(m.src == m.dst for m in wire.messages) or "itself" in said or "same as the local" in said


def _takes_sizes_for_equal(case: Case, failure: Failure, wire: Wire) -> bool:
    sizes = {piece.numel() for rank in members_of(case) for piece in _pieces(case, rank)}
    return len(sizes) > 1 and (sizes_differ(failure) or "size" in failure.message or "shape" in failure.message)


def _receives_another_type(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether pieces of one length, wider than float32, met buffers of another number of bytes."""
    pieces = [piece for rank in members_of(case) for piece in _pieces(case, rank)]
    return len({piece.numel() for piece in pieces}) == 1 and pieces[0].element_size() > 4 and sizes_differ(failure)


def _sends_nothing_to_somebody(case: Case, failure: Failure, wire: Wire) -> bool:
    return any(not message.bytes for message in wire.messages)


def _waits_for_an_empty_piece(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether a run hung with a rank that waits for a rank which has nothing for it."""
    members = members_of(case)
    return hangs(failure) and any(
        "recv" in wait.operation
        and wait.rank in members
        and wait.peer in members
        and not _piece(case, wait.peer, wait.rank).numel()
        for wait in failure.waits
    )


def _left_out_both_ways(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether a run hung with ranks that all send to one which has nothing for them."""
    members = members_of(case)
    waits = [wait for wait in failure.waits if wait.rank in members]
    return (
        hangs(failure)
        and bool(waits)
        and all(
            "send" in wait.operation and wait.peer in members and not _piece(case, wait.peer, wait.rank).numel()
            for wait in waits
        )
    )


def _posted_nothing(case: Case, failure: Failure, wire: Wire) -> bool:
    return failure.error == "IndexError" and "batch_isend_irecv" in failure.detail.rpartition("\n")[2]


def _exchange_on(size: int) -> Case:
    sizes = [[(3 * row + column) % 4 for column in range(size)] for row in range(size)]
    return exchange_case(f"{size} ranks, 0 to 3 elements each", sizes, 100 + size)


EXERCISE = declared(
    id="all_to_all",
    functions=("all_to_all",),
    driver=drive,
    oracle=exchanged,
    structure=structure,
    looks=(find,),
    least=least_traffic,
    visible=(
        exchange_case("3 ranks, 2 elements each", [[2] * 3] * 3, 81),
        exchange_case("3 ranks, uneven sizes, some empty", [[1, 2, 3], [0, 4, 1], [2, 0, 2]], 82),
        exchange_case("4 ranks, one element each, int64", [[1] * 4] * 4, 83, dtype=torch.int64),
        exchange_case("3 ranks, of which one has nothing for the others", [[2, 0, 1], [0, 3, 0], [1, 0, 2]], 85),
        exchange_case(
            "5 ranks, of which 1, 3 and 4 take part",
            [[1, 2, 1], [2, 1, 3], [1, 1, 2]],
            84,
            world_size=5,
            group=(1, 3, 4),
        ),
    ),
    hints=(
        "Write what is sent as a table, one row per rank. Which table comes out?",
        "outputs[i] on rank r is inputs[r] of rank i, so rank r sends inputs[i] to every i but itself and receives "
        "outputs[i] from every i but itself, all in one batch; it copies its own piece.",
        "outputs[rank].copy_(inputs[rank]); for every other i: dist.P2POp(dist.isend, inputs[i], group=group, "
        "group_peer=i) and dist.P2POp(dist.irecv, outputs[i], group=group, group_peer=i); batch_isend_irecv, wait.",
    ),
    sweep=sweep(_exchange_on, lambda case: case.world_size - 1, slack=3, sizes=SIZES[:8]),
    mistakes=(
        *in_failures("calls the library"),
        sum_mistake(_TYPE,
                    "These pieces are not float32, and torch.empty(n) is: what is received needs a buffer of the type "
                    "that is sent. Receive into outputs[i] itself.", failed=_receives_another_type),
        sum_mistake(_ITSELF, "A rank cannot send to itself: copy its own piece, outputs[rank].copy_(inputs[rank]).",
                    failed=_sends_to_itself),
        sum_mistake(_EMPTY_BATCH,
                    "dist.batch_isend_irecv does not take an empty list: a rank that has nothing to send or receive "
                    "leaves the call out.", failed=_posted_nothing, certain=True),
        sum_mistake(_EMPTY,
                    "A message of 0 bytes was sent, and nobody receives it: leave a piece out where its size is 0.",
                    failed=_sends_nothing_to_somebody),
        *in_failures("everybody sends first"),
        sum_mistake(_REPLACED,
                    "The result belongs in the tensors that were passed in: outputs[i].copy_(...) or receive into "
                    "outputs[i]; outputs[i] = tensor only puts another tensor into the list."),
        sum_mistake(_OWN, "Only the rank's own piece is wrong: outputs[rank].copy_(inputs[rank])."),
        sum_mistake(_NOTHING,
                    "The outputs are as they were: receive into outputs[i] itself; outputs[i] = tensor only puts "
                    "another tensor into the list."),
        sum_mistake(_OWN_INPUTS, "The outputs are the rank's own inputs: outputs[i] must come from rank i."),
        sum_mistake(_FOR_THEMSELVES,
                    "Every rank got inputs[i] of rank i, which is the sender's own piece: send inputs[peer] to peer."),
        *in_failures("group ranks taken for global ranks"),
        sum_mistake(_TOO_MUCH, "More was sent than the pieces the others need: send each rank its piece only."),
        sum_mistake(_UNEVEN,
                    "Sizes differ, and some pieces are empty: the receive buffer must have the size of what is sent, "
                    "so use outputs[i].", failed=_takes_sizes_for_equal),
        sum_mistake(_AWAITED,
                    "A rank waits for one that has nothing for it: whether to receive from rank i is said by the size "
                    "of outputs[i], not of inputs[i].", failed=_waits_for_an_empty_piece),
        sum_mistake(_BOTH_WAYS,
                    "A rank waits to send to one that has nothing for it: there the receive was left out together "
                    "with the send. The size of inputs[i] says whether to send to rank i, that of outputs[i] whether "
                    "to receive from it.", failed=_left_out_both_ways),
        *in_failures("everybody receives first"),
        sum_mistake(_NOT_WAITED,
                    "A piece was read before its message arrived: call wait() on all that batch_isend_irecv returns."),
        sum_mistake(_MISSING,
                    "A piece never arrived, and its output is as it was: every rank sends to every other and receives "
                    "from every other."),
        sum_mistake(_ORDER, "Pieces arrived in the wrong places: outputs[i] is what rank i sent."),
    ),
)  # fmt: skip
