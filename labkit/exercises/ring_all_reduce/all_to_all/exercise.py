"""All to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import difference, listing
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce import sum_mistakes
from labkit.exercises.ring_all_reduce.all_to_all.driver import drive
from labkit.exercises.ring_all_reduce.sums import members_of
from labkit.exercises.ring_all_reduce.traffic import library_calls, lost_messages
from labkit.exercises.ring_all_reduce.world_sizes import SIZES, sweep
from labkit.words import ranks_in_words

FILL = -1.0


def exchange_case(
    name: str, sizes: Sequence[Sequence[int]], seed: int, *, world_size: int = 0, group: Sequence[int] = ()
) -> Case:
    """Return a case in which member i sends sizes[i][j] elements to member j.

    Args:
        name: What is special about it.
        sizes: Elements from each member to each member.
        seed: For the numbers.
        world_size: Ranks in all; 0: as many as rows.
        group: Global ranks of the members; empty: everybody.
    """
    generator = torch.Generator().manual_seed(seed)
    size = world_size or len(sizes)
    members = list(group) or list(range(size))
    inputs: list[Values] = []
    for rank in range(size):
        row = sizes[members.index(rank)] if rank in members else [1] * len(sizes)
        pieces = [torch.randint(1, 1000, (count,), generator=generator).float() for count in row]
        column = [sizes[i][members.index(rank)] for i in range(len(sizes))] if rank in members else []
        given: dict[str, Value] = {
            "pieces": cast(list[Value], pieces),
            "sizes": cast(list[Value], column),
            "fill": FILL,
        }
        if group:
            given["group"] = cast(list[Value], members)
        inputs.append(given)
    return Case(name, size, tuple(inputs))


def _pieces(case: Case, rank: int) -> list[Tensor]:
    return cast(list[Tensor], case.inputs[rank]["pieces"])


def exchanged(case: Case) -> list[Values]:
    """Return what each rank must hold: output i is member i's piece for it; inputs as they were (the oracle)."""
    members = members_of(case)
    results: list[Values] = []
    for rank in range(case.world_size):
        outputs = [_pieces(case, source)[members.index(rank)] for source in members] if rank in members else []
        results.append({"outputs": cast(list[Value], outputs), "inputs": cast(list[Value], _pieces(case, rank))})
    return results


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every piece arrived, inputs are as they were, and only what is needed was sent."""
    assert isinstance(got, tuple)
    called = library_calls(wire)
    if called:
        return called
    members = members_of(case)
    for rank in members:
        replaced = cast(list[int], got[rank].get("replaced") or [])
        if replaced:
            name = f"outputs[{replaced[0]}]"
            return Verdict(
                False,
                message=f"On rank {rank} the list holds another tensor as {name} now, and the tensor that the caller "
                f"handed in was not filled.",
                expected=f"rank {rank}: the caller's own tensor, with the piece in it",
                got=f"rank {rank}: another tensor in its place",
                rank=rank,
            )
    for what in ("outputs", "inputs"):
        for rank, should in enumerate(exchanged(case)):
            came, expected = cast(list[Value], got[rank].get(what)), cast(list[Tensor], should[what])
            if not isinstance(came, list) or len(came) != len(expected):
                return Verdict(
                    False, message=f"Rank {rank}'s {what} are no longer a list of {len(expected)} tensors.", rank=rank
                )
            for index, (piece, wanted) in enumerate(zip(came, expected, strict=True)):
                first = difference(piece, wanted)
                if first is not None:
                    name = f"rank {rank}'s {what}[{index}]"
                    text = f"{name} is {listing(piece) if isinstance(piece, Tensor) else first.got}, expected "
                    text += f"{listing(wanted)}"
                    text += f", rank {members[index]}'s piece for it." if what == "outputs" else ": inputs must stay."
                    return Verdict(
                        False,
                        message=text[0].upper() + text[1:],
                        expected=f"{name}: {listing(wanted)}",
                        got=f"{name}: {listing(piece) if isinstance(piece, Tensor) else first.got}",
                    )
    return _traffic(case, wire) or lost_messages(wire) or Verdict(True)


def _traffic(case: Case, wire: Wire) -> Verdict | None:
    members = members_of(case)
    for rank in members:
        for place, peer in enumerate(members):
            wanted = 0 if peer == rank else 4 * _pieces(case, rank)[place].numel()
            sent = sum(m.bytes for m in wire.sent_by(rank) if m.dst == peer)
            if sent > wanted:
                return Verdict(
                    False,
                    message=f"All pieces arrived, but rank {rank} sent {sent} bytes to rank {peer}; {wanted} are "
                    f"enough.",
                    expected=f"{wanted} bytes from rank {rank} to rank {peer}",
                    got=f"{sent} bytes",
                    rank=rank,
                    call=wire.first_send(rank, {peer}),
                )
        strangers = set(wire.peers(rank)) - set(members)
        if strangers:
            return Verdict(
                False,
                message=f"Rank {rank} sent to {ranks_in_words(strangers)}, outside the group.",
                rank=rank,
                call=wire.first_send(rank, strangers),
            )
    return None


def _outputs_as(pick: Callable[[Case, int, int], Tensor]) -> Callable[[Case, Got, Wire], bool]:
    """Return whether all outputs from other ranks are those of a known mix-up."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or len(members_of(case)) < 2:
            return False
        for place, rank in enumerate(members_of(case)):
            came = got[rank].get("outputs")
            if not isinstance(came, list) or len(came) != len(members_of(case)):
                return False
            for index, piece in enumerate(came):
                if index != place and not (isinstance(piece, Tensor) and torch.equal(piece, pick(case, place, index))):
                    return False
        return True

    return seen


def _as_own(case: Case, place: int, index: int) -> Tensor:
    return _pieces(case, members_of(case)[place])[index]


def _as_filled(case: Case, place: int, index: int) -> Tensor:
    size = cast(list[int], case.inputs[members_of(case)[place]]["sizes"])[index]
    return torch.full((size,), FILL)


def _as_for_themselves(case: Case, place: int, index: int) -> Tensor:
    return _pieces(case, members_of(case)[index])[index]


def _own_missing(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    wrong_own = wrong_other = 0
    for place, rank in enumerate(members_of(case)):
        came = got[rank].get("outputs")
        wanted = cast(list[Tensor], exchanged(case)[rank]["outputs"])
        if not isinstance(came, list) or len(came) != len(wanted):
            return False
        for index, piece in enumerate(came):
            if difference(piece, wanted[index]) is not None:
                wrong_own += index == place
                wrong_other += index != place
    return bool(wrong_own) and not wrong_other


def _uneven(case: Case, got: Got, wire: Wire) -> bool:
    sizes = {piece.numel() for rank in members_of(case) for piece in _pieces(case, rank)}
    said = got.message if isinstance(got, Failure) else ""
    return len(sizes) > 1 and ("size" in said or "shape" in said)


def _to_itself(case: Case, got: Got, wire: Wire) -> bool:
    said = got.message + got.detail if isinstance(got, Failure) else ""
    return any(m.src == m.dst for m in wire.messages) or "itself" in said or "same as the local" in said


def _too_much(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and any(
        wire.bytes_sent(rank)
        > sum(4 * p.numel() for i, p in enumerate(_pieces(case, rank)) if members_of(case)[i] != rank)
        for rank in members_of(case)
    )


def _exchange_on(size: int) -> Case:
    sizes = [[(3 * row + column) % 4 for column in range(size)] for row in range(size)]
    return exchange_case(f"{size} ranks, 0 to 3 elements each", sizes, 100 + size)


EXERCISE = judged(
    id="all_to_all",
    functions=("all_to_all",),
    driver=drive,
    oracle=exchanged,
    judge=judge,
    visible=(
        exchange_case("3 ranks, 2 elements each", [[2] * 3] * 3, 81),
        exchange_case("3 ranks, uneven sizes, some empty", [[1, 2, 3], [0, 4, 1], [2, 0, 2]], 82),
        exchange_case("4 ranks, one element each", [[1] * 4] * 4, 83),
        exchange_case(
            "5 ranks, of which 1, 3 and 4 take part",
            [[1, 2, 1], [2, 1, 3], [1, 1, 2]],
            84,
            world_size=5,
            group=(1, 3, 4),
        ),
    ),
    hints=(
        "Write the pieces as a table, one row a rank: what is sent. What is the table that comes out?",
        "outputs[i] on rank r is inputs[r] of rank i, so rank r sends inputs[i] to every i but itself and receives "
        "outputs[i] from every i but itself, all of it in one batch; its own piece is copied.",
        "outputs[rank].copy_(inputs[rank]); for every other i: dist.P2POp(dist.isend, inputs[i], group=group, "
        "group_peer=i) and dist.P2POp(dist.irecv, outputs[i], group=group, group_peer=i); batch_isend_irecv, wait.",
    ),
    sweep=sweep(_exchange_on, lambda case: case.world_size - 1, slack=3, sizes=SIZES[:8]),
    mistakes=(
        sum_mistakes.LIBRARY,
        Mistake(
            "sends to itself",
            "A rank cannot send to itself: copy the own piece, outputs[rank].copy_(inputs[rank]).",
            _to_itself,
        ),
        sum_mistakes.BLOCKING_SENDS,
        Mistake(
            "puts another tensor into the list",
            "The result belongs into the tensors that were handed in: outputs[i].copy_(...) or receive into "
            "outputs[i]; outputs[i] = tensor only puts another tensor into the list.",
            lambda case, got, wire: isinstance(got, tuple) and any(values.get("replaced") for values in got),
        ),
        Mistake(
            "own piece forgotten",
            "Only the own piece is missing: outputs[rank].copy_(inputs[rank]).",
            _own_missing,
        ),
        Mistake(
            "nothing arrives",
            "The outputs are as they were: receive into outputs[i] itself; outputs[i] = tensor only puts another "
            "tensor into the list.",
            _outputs_as(_as_filled),
        ),
        Mistake(
            "own inputs copied",
            "The outputs are the rank's own inputs: outputs[i] must come from rank i.",
            _outputs_as(_as_own),
        ),
        Mistake(
            "sends its own piece to everybody",
            "Every rank got inputs[i] of rank i, that is the sender's own piece: send inputs[peer] to peer.",
            _outputs_as(_as_for_themselves),
        ),
        sum_mistakes.GROUP_RANKS,
        Mistake(
            "sends too much",
            "More was sent than the pieces the others need: send each rank its piece only.",
            _too_much,
        ),
        Mistake(
            "sizes taken for equal",
            "The sizes differ, and some pieces are empty: what is received must have the size of what is sent; use "
            "outputs[i] as the buffer.",
            _uneven,
        ),
        sum_mistakes.BLOCKING_RECVS,
        Mistake(
            "wrong order",
            "Pieces arrived in the wrong places: outputs[i] is what rank i sent.",
            lambda case, got, wire: isinstance(got, tuple),
        ),
    ),
)
