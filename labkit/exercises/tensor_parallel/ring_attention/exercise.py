"""A ring of tokens: keys and values go round, softmax is kept as sums; tokens are shared out so that work is even."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import draws, values
from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.compare import near
from labkit.checks.declared import Mistake, declared, failed_in, flag_result, tensor_result
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.structure import NOT_A_NUMBER
from labkit.checks.traffic import SENT, all_stand_in_send, library_calls, lost_messages, unread_messages
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import given
from labkit.exercises.tensor_parallel.ring_attention.driver import drive
from labkit.exercises.tensor_parallel.ring_attention.par import PAR


def places_case(name: str, world_size: int, num_tokens: int) -> Case:
    """Return a case of balanced_places."""
    return Case(name, world_size, tuple({"num_tokens": num_tokens, "rank": rank} for rank in range(world_size)))


def attention_case(name: str, seed: int, world_size: int, each: int, order: str, scale: float = 1.0) -> Case:
    """Return a case of ring_attention.

    Args:
        name: What is special about it.
        seed: Of the numbers.
        world_size: How many ranks.
        each: Tokens of a rank.
        order: "in order", "backwards" (the first tokens on the last rank) or "mixed".
        scale: How large queries are.
    """
    tokens = torch.arange(world_size * each)
    if order == "mixed":
        tokens = torch.randperm(len(tokens), generator=draws.generator(part_of(seed, "order")))
    pieces = [piece.sort().values for piece in tokens.chunk(world_size)]
    inputs: list[Values] = []
    for rank, places in enumerate(pieces[::-1] if order == "backwards" else pieces):
        q, k, v = (normal(part_of(seed, "rank", rank, what), 2, 2, each, 4, dtype=torch.float64) for what in "qkv")
        inputs.append({"q": q * scale, "k": k, "v": v, "places": places})
    return Case(name, world_size, tuple(inputs))


def expected(case: Case) -> list[Values]:
    """Return each rank's queries' attention, computed whole."""
    if _asks_for_places(case):
        return [{}] * case.world_size
    return [{"out": _causal(case, rank), "kept": True} for rank in range(case.world_size)]


def structure(case: Case) -> list[object]:
    """Return what results look like."""
    if not _asks_for_places(case):
        return list(expected(case))
    each = values.integer(case.inputs[0], "num_tokens") // case.world_size
    return [{"places": torch.zeros(each, dtype=torch.int64)}] * case.world_size


def _asks_for_places(case: Case) -> bool:
    return "num_tokens" in case.inputs[0]


def _all(case: Case, key: str, dim: int) -> Tensor:
    return torch.cat([given(case, rank, key) for rank in range(case.world_size)], dim)


def _places(case: Case, rank: int) -> Tensor:
    """Return where a rank's queries are, as a column."""
    return given(case, rank, "places")[:, None]


def _attention(case: Case, rank: int, mask: Tensor | None, scale: float | None = None) -> Tensor:
    """Return the attention of a rank's queries over all keys that the mask lets them see."""
    q, k, v = given(case, rank, "q"), _all(case, "k", 2), _all(case, "v", 2)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def _causal(case: Case, rank: int, scale: float | None = None) -> Tensor:
    return _attention(case, rank, _all(case, "places", 0) <= _places(case, rank), scale)


def _of_its_own(case: Case, rank: int) -> Tensor:
    q, k, v = (given(case, rank, key) for key in "qkv")
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _by_index(case: Case, rank: int) -> Tensor:
    """Return what comes of a mask over the numbers that tokens have in the order of ranks."""
    count = len(_places(case, rank))
    here = count * rank + torch.arange(count)
    return _attention(case, rank, torch.arange(count * case.world_size) <= here[:, None])


def _by_index_of_piece(case: Case, rank: int, skipping: bool) -> Tensor:
    """Return what comes of a mask over the numbers in a piece, of all pieces or of those that are not all later."""
    count = len(_places(case, rank))
    mask = torch.tril(torch.ones(count, count, dtype=torch.bool)).repeat(1, case.world_size)
    return _attention(case, rank, mask & _of_ranks(case, _not_later(case, rank)) if skipping else mask)


def _of_ranks(case: Case, ranks: Sequence[int]) -> Tensor:
    """Return which keys are on these ranks."""
    return torch.tensor([rank in ranks for rank in range(case.world_size) for _ in _places(case, rank)])


def _not_later(case: Case, rank: int) -> list[int]:
    """Return the ranks that have a key which one of this rank's queries sees."""
    last = given(case, rank, "places")[-1]
    return [each for each in range(case.world_size) if given(case, each, "places")[0] <= last]


def _earlier_ranks(case: Case, rank: int, masked: bool) -> Tensor:
    """Return what comes where lots of later ranks are skipped, and those of earlier ones masked or seen whole."""
    mask = _all(case, "places", 0) <= _places(case, rank)
    if not masked:
        mask = mask | ~_of_ranks(case, [rank])
    return _attention(case, rank, mask & _of_ranks(case, range(rank + 1)))


def _places_guessed(case: Case, rank: int, balanced: bool, own: bool) -> Tensor:
    """Return what comes where others' places, or its own, too, are those of balanced pieces or of tokens in order."""
    size, count = case.world_size, len(_places(case, rank))
    if balanced:
        pieces = torch.arange(size * count).tensor_split(2 * size)
        guessed = [torch.cat([pieces[each], pieces[-1 - each]]) for each in range(size)]
    else:
        guessed = list(torch.arange(size * count).chunk(size))
    if not own:
        guessed[rank] = given(case, rank, "places")
    return _attention(case, rank, torch.cat(guessed) <= _places(case, rank))


def _masked_at_home(case: Case, rank: int) -> Tensor:
    """Return what comes of a mask over a rank's own keys, and none over others'."""
    count = len(_places(case, rank))
    mask = _all(case, "places", 0) <= _places(case, rank)
    others = torch.arange(mask.shape[1]) // count != rank
    return _attention(case, rank, mask | others)


def _lot_by_lot(case: Case, rank: int, rescaled: tuple[str, ...], divided: bool = True) -> Tensor:
    """Return what comes of lots one after another, with the largest score so far, where only these sums are rescaled.

    Args:
        case: What is asked.
        rank: Whose queries.
        rescaled: Which are, of "total" (of exponentials) and "mixed" (of weighted values).
        divided: Whether the weighted values are divided by the total.
    """
    q = given(case, rank, "q")
    largest = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total, mixed = torch.zeros_like(largest), torch.zeros_like(q)
    for step in range(case.world_size):
        of = (rank - step) % case.world_size
        scores = q @ given(case, of, "k").transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(given(case, of, "places") > _places(case, rank), float("-inf"))
        grown = torch.maximum(largest, scores.amax(-1, keepdim=True))
        weights, old = (scores - grown).exp(), (largest - grown).exp()
        total = (total * old if "total" in rescaled else total) + weights.sum(-1, keepdim=True)
        mixed = (mixed * old if "mixed" in rescaled else mixed) + weights @ given(case, of, "v")
        largest = grown
    return mixed / total if divided else mixed


def _over_lots(case: Case, rank: int, steps: list[int]) -> Tensor:
    """Return the attention over these lots alone, each `step` ranks before; one may come several times."""
    of = [(rank - step) % case.world_size for step in steps]
    k, v, where = (
        torch.cat([given(case, each, key) for each in of], dim) for key, dim in (("k", 2), ("v", 2), ("places", 0))
    )
    return functional.scaled_dot_product_attention(given(case, rank, "q"), k, v, attn_mask=where <= _places(case, rank))


def _softmax_of_lots(case: Case, rank: int, divided: bool) -> Tensor:
    """Return the sum, or the mean, of what each lot gives by itself, 0 where a query sees none of it."""
    each = [_over_lots(case, rank, [step]).nan_to_num() for step in range(case.world_size)]
    return torch.stack(each).sum(0) / (case.world_size if divided else 1)


def _mean_of_lots_seen(case: Case, rank: int) -> Tensor:
    """Return the mean of what those lots give by themselves that are not all later."""
    return _softmax_of_lots(case, rank, divided=False) / len(_not_later(case, rank))


def _passing_ends(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a rank waits for one that has come to its end."""
    return isinstance(got, Failure) and got.kind in HANGS and "has finished" in f"{got.message}\n{got.detail}"


def _wrong_places(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with who holds which token."""
    if not _asks_for_places(case):
        return
    places = [values.tensor(came, "places") for came in got]
    count = values.integer(case.inputs[0], "num_tokens")
    size = count // (2 * case.world_size)
    if places[0].tolist() == [*range(size)] * 2:
        yield Finding(_LAST, f"Rank 0 holds its first piece twice: {places[0].tolist()}.", rank=0)
    for rank, mine in enumerate(places):
        if not torch.equal(mine, mine.sort().values):
            yield Finding(_SHARED, f"Rank {rank} holds {mine.tolist()}, which is not ascending.", rank=rank)
    for rank, mine in enumerate(places):
        if len(mine) and not 0 <= int(mine.min()) <= int(mine.max()) < count:
            yield Finding(_LAST, f"Rank {rank} holds {mine.tolist()}; tokens are 0 to {count - 1}.", rank=rank)
    if not torch.equal(torch.cat(places).sort().values, torch.arange(count)):
        held = ", ".join(str(each.tolist()) for each in places)
        yield Finding(_SHARED, f"The ranks hold {held}; together they must hold each of {count} tokens once.")
    pairs = [int((mine + 1).sum()) for mine in places]
    if len(set(pairs)) > 1:
        yield Finding(_UNEVEN, f"Pairs of a query and a key, by rank: {pairs}.")


def _sees_not_itself(case: Case, rank: int, out: Tensor) -> bool:
    """Return whether the first token's query got no number, and all others what comes of earlier keys alone."""
    others = given(case, rank, "places") > 0
    earlier = _attention(case, rank, _all(case, "places", 0) < _places(case, rank))
    alike = near(out[..., others, :], earlier[..., others, :])
    return alike and not bool(others.all()) and not bool(out[..., ~others, :].isfinite().any())


def _not_numbers(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, came in enumerate(got):
        if "out" in came and not values.tensor(came, "out").isfinite().all():
            q, k = given(case, rank, "q"), _all(case, "k", 2)
            largest = float((q @ k.transpose(-1, -2)).max()) / q.shape[-1] ** 0.5
            if _sees_not_itself(case, rank, values.tensor(came, "out")):
                yield Finding(_ITSELF, "The query of the first token contains NaN or inf: it sees no key.", rank=rank)
            mistake, among = (
                (_OVERFLOW, f"; its largest score is {largest:.0f}") if largest > 700 else (NOT_A_NUMBER, "")
            )
            yield Finding(mistake, f"Rank {rank}'s result contains NaN or inf{among}.", rank=rank)


def _sent_too_often(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that more went round than keys, values and places, N - 1 times."""
    if _asks_for_places(case):
        return
    times, of_lot = case.world_size - 1, 2 * given(case, 0, "k").nbytes
    for rank in range(case.world_size):
        sent = wire.bytes_sent(rank)
        if sent > _ROOM * times * of_lot:
            text = f"Rank {rank} sent {sent} bytes; its keys and values have {of_lot}, and N - 1 is {times}."
            yield Finding(_TOO_OFTEN, text, rank=rank)


def _beside_the_ring(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that keys and values went to another rank than the next."""
    for rank in range(case.world_size):
        others = set(wire.peers(rank)) - {(rank + 1) % case.world_size}
        if others:
            yield Finding(_NEIGHBOUR, f"Rank {rank} sent to rank {min(others)}.", rank=rank)


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: the last token's rank reads the keys and values of every other."""
    if _asks_for_places(case):
        return {}
    last = [int(values.tensor(each, "places")[-1]) for each in case.inputs]
    others = (case.world_size - 1) * values.tensor(case.inputs[0], "k").numel()
    return {last.index(max(last)): Bytes(0, 2 * MOST_PACKED * others)}


_ROOM = 1.25
"""So much of what keys and values are may be sent: places go with them, in one message or another."""
_UNEVEN, _SHARED, _NEIGHBOUR, _OVERFLOW, _TOO_OFTEN, _CHANGED, _LAST = (
    "uneven work", "tokens twice or never", "not to the next rank", "exponentials overflow", "sent too often",
    "what was given is changed", "the last piece is 2N - 1",
)  # fmt: skip
_ITSELF = "a query does not see itself"

EXERCISE = declared(
    id="ring_attention",
    functions=("balanced_places", "ring_attention"),
    driver=drive,
    oracle=expected,
    structure=structure,
    least=least,
    looks=(
        _wrong_places,
        lambda case, got, wire: library_calls(wire),
        lambda case, got, wire: lost_messages(wire),
        lambda case, got, wire: unread_messages(wire),
        _not_numbers,
        flag_result("kept", "{ranks}: on rank {rank} q, k, v or places hold other numbers after the call.", _CHANGED),
        tensor_result("out", "attention"),
        _beside_the_ring,
        _sent_too_often,
    ),
    mistakes=(
        *SENT,
        Mistake(_LAST, "Pieces are counted from 0 to 2N - 1: the last one, number 2N - 1, is piece 0's partner.",
                seen=failed_in("balanced_places", "IndexError"), certain=True),
        Mistake(_UNEVEN, "Ranks have different numbers of pairs. Pair a piece of the beginning with one of the end."),
        Mistake(_SHARED, "Each token belongs to one rank, ascending on each, equally many on all."),
        Mistake("its own keys only", "Only keys of this rank were seen: pass k, v and places on, N - 1 times.",
                {"out": _of_its_own}),
        Mistake("a lot is missing",
                "The last lot was not seen. N - 1 lots come from others, and its own is the first of N.",
                {"out": lambda case, rank: _over_lots(case, rank, [*range(case.world_size - 1)])}),
        Mistake("the same lot again",
                "In every round the same keys came: pass on what came last, not your own again.",
                {"out": lambda case, rank: _over_lots(case, rank, [0] + [1] * (case.world_size - 1))}),
        Mistake("a softmax of each lot",
                "Each lot's softmax was taken by itself, and these were put together. Softmax is over all keys: add up "
                "exponentials and weighted values, and divide once at the end.",
                {"out": (partial(_softmax_of_lots, divided=True), partial(_softmax_of_lots, divided=False),
                         _mean_of_lots_seen)}),
        Mistake(_ITSELF, "A query sees its own key: hide only keys whose place is later, not those at the same place."),
        Mistake("not causal",
                "Queries see later keys. Where a key's place is later than the query's, the score is -inf.",
                {"out": (lambda case, rank: _attention(case, rank, None), _masked_at_home)}),
        Mistake("causal the other way", "You hide earlier keys. Hide those whose place is later than the query's.",
                {"out": lambda case, rank: _attention(
                    case, rank, _all(case, "places", 0) >= _places(case, rank))}),
        Mistake("causal by index",
                "The mask compares positions in the pieces. Compare places: they travel with k and v.",
                {"out": (_by_index, partial(_by_index_of_piece, skipping=False),
                         partial(_by_index_of_piece, skipping=True))}),
        Mistake("later ranks skipped",
                "Lots of ranks after this one were left out. A rank's number says nothing of its tokens' places: a "
                "later rank can have earlier tokens. Compare the places that came.",
                {"out": (partial(_earlier_ranks, masked=True), partial(_earlier_ranks, masked=False))}),
        Mistake("places guessed",
                "Others' places are taken to be those of balanced_places, or of tokens in order. They may be any: send "
                "places round with k and v.",
                {"out": tuple(partial(_places_guessed, balanced=balanced, own=own)
                              for balanced in (True, False) for own in (True, False))}),
        Mistake("scores not scaled", "Scores are divided by the root of a head's width K.",
                {"out": (lambda case, rank: _causal(case, rank, 1.0),
                         lambda case, rank: _causal(case, rank, 1 / given(case, rank, "q").shape[-1]),
                         lambda case, rank: _causal(case, rank, given(case, rank, "q").shape[-2] ** -0.5),
                         lambda case, rank: _causal(case, rank, given(case, rank, "q")[0, :, 0].numel() ** -0.5))}),
        Mistake("sums not rescaled",
                "When the largest score grows, what was summed before must be multiplied by exp(old - new): the sum "
                "of exponentials and the weighted values.",
                {"out": tuple(partial(_lot_by_lot, rescaled=those) for those in ((), ("total",), ("mixed",)))}),
        Mistake("not divided",
                "The weighted values are not divided by the sum of exponentials: do it once, after the last lot.",
                {"out": partial(_lot_by_lot, rescaled=("total", "mixed"), divided=False)}),
        Mistake(_CHANGED,
                "After the call a tensor that was given holds other numbers. Receive into tensors of your own."),
        Mistake(_OVERFLOW,
                "exp() of a large score is inf. Subtract the largest score so far from every one, and rescale the sums "
                "when it grows."),
        Mistake(_TOO_OFTEN,
                "Only k, v and places go round, N - 1 times: then everybody has seen all of them."),
        Mistake(_NEIGHBOUR, "A rank sends to rank + 1 only (modulo N)."),
        Mistake("everybody sends first",
                "Every rank waits in send() for its neighbour's recv(). Post both, with dist.batch_isend_irecv or "
                "isend.", seen=all_stand_in_send),
        Mistake("a rank stops passing on",
                "A rank has come to its end while the others still wait for what it should pass on. A lot in which it "
                "sees no key goes on to the next rank all the same: skip the computing, not the exchange.",
                seen=_passing_ends, general=True),
        Mistake(NOT_A_NUMBER,
                "-inf minus -inf is nan: of some lot a query sees no key. Subtract the largest score of *all* lots so "
                "far, and begin with this rank's own lot, where every query sees itself: mask later places only."),
    ),
    visible=(
        places_case("places of 12 tokens on 3 ranks", 3, 12),
        attention_case("3 ranks, tokens in order", 1251, 3, 4, "in order"),
        attention_case("3 ranks, mixed tokens", 1252, 3, 4, "mixed"),
        attention_case("2 ranks, the first tokens on the last rank", 1253, 2, 5, "backwards"),
        attention_case("2 ranks, scores of more than a thousand", 1254, 2, 4, "mixed", scale=1000.0),
    ),
    par=PAR,
    hints=(
        "Softmax over keys that come in two lots: if you know the largest score, the sum of exponentials and the "
        "weighted sum of values of each lot, how do you put them together?",
        "In each of N steps: scores with the keys at hand, masked where a key's place is later; the new largest; both "
        "sums times exp(old - new) plus the new ones. Then pass k, v and places on. Pieces r and 2N - 1 - r balance.",
        "grown = torch.maximum(largest, scores.amax(-1, keepdim=True)); weights = (scores - grown).exp(); old = "
        "(largest - grown).exp(); total = total * old + weights.sum(-1, keepdim=True); "
        "mixed = mixed * old + weights @ values.",
    ),
)  # fmt: skip
