"""A ring of tokens: keys and values go round, softmax is kept as sums; tokens are shared out so that work is even."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import draws, values
from labkit.checks.as_if import Way
from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.compare import near
from labkit.checks.draws import normal, part_of
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.structure import NOT_A_NUMBER
from labkit.checks.traffic import HINTS as SENT
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import wrong_tensors
from labkit.exercises.tensor_parallel.ring_attention.driver import drive

_UNEVEN, _SHARED, _ALONE, _NOT_CAUSAL, _NUMBERS, _NO_RESCALE, _SCALE, _NEIGHBOUR, _BLOCKED = (
    "uneven work", "tokens twice or never", "its own keys only", "not causal", "causal by index", "sums not rescaled",
    "scores not scaled", "not to the next rank", "everybody sends first",
)  # fmt: skip
MISTAKES = {
    **SENT,
    _UNEVEN: "Ranks have different numbers of pairs. Pair a piece of the beginning with one of the end.",
    _SHARED: "Each token belongs to one rank, ascending on each, equally many on all.",
    _ALONE: "Only keys of this rank were seen: pass k, v and places on, N - 1 times.",
    _NOT_CAUSAL: "Queries see later keys. Where a key's place is later than the query's, the score is -inf.",
    _NUMBERS: "The mask compares positions in the pieces. Compare places: they travel with k and v.",
    _NO_RESCALE: "When the largest score grows, what was summed before must be multiplied by exp(old - new): the sum "
    "of exponentials and the weighted values.",
    _SCALE: "Scores are divided by the root of a head's width K.",
    _NEIGHBOUR: "A rank sends to rank + 1 only (modulo N).",
    _BLOCKED: "Every rank waits in send() for its neighbour's recv(). Post both, with dist.batch_isend_irecv or isend.",
    NOT_A_NUMBER: "-inf minus -inf is nan: a query may see no key of a lot. Subtract the largest of *all* so far, "
    "and begin with this rank's own: every query sees itself.",
}


def places_case(name: str, world_size: int, num_tokens: int) -> Case:
    """Return a case of balanced_places."""
    return Case(name, world_size, ({"num_tokens": num_tokens},) * world_size)


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
        drawn: dict[str, Value] = {
            what: normal(part_of(seed, "rank", rank, what), 2, 2, each, 4, dtype=torch.float64)
            for what in ("q", "k", "v")
        }
        drawn["q"] = values.tensor(drawn, "q") * scale
        inputs.append({**drawn, "places": places})
    return Case(name, world_size, tuple(inputs))


def expected(case: Case) -> list[Values]:
    """Return each rank's queries' attention, computed whole."""
    if "num_tokens" in case.inputs[0]:
        return [{}] * case.world_size
    whole = {name: torch.cat([values.tensor(each, name) for each in case.inputs], 2) for name in ("k", "v")}
    where = torch.cat([values.tensor(each, "places") for each in case.inputs])
    return [
        {
            "out": _attention(
                values.tensor(each, "q"), whole["k"], whole["v"], where <= values.tensor(each, "places")[:, None]
            )
        }
        for each in case.inputs
    ]


def structure(case: Case) -> list[object]:
    """Return what results look like."""
    if "num_tokens" not in case.inputs[0]:
        return list(expected(case))
    each = values.integer(case.inputs[0], "num_tokens") // case.world_size
    return [{"places": torch.zeros(each, dtype=torch.int64)}] * case.world_size


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def _ways(case: Case, rank: int) -> Sequence[Way[Tensor]]:
    q, k, v = (values.tensor(case.inputs[rank], name) for name in ("q", "k", "v"))
    all_k, all_v = (torch.cat([values.tensor(each, name) for each in case.inputs], 2) for name in ("k", "v"))
    mine = values.tensor(case.inputs[rank], "places")
    where = torch.cat([values.tensor(each, "places") for each in case.inputs])
    index = torch.arange(len(where))
    here = len(mine) * rank + torch.arange(len(mine))
    triangle = torch.tril(torch.ones(len(mine), len(mine), dtype=torch.bool))
    return [
        (_ALONE, lambda: _attention(q, k, v, triangle)),
        (_NOT_CAUSAL, lambda: _attention(q, all_k, all_v, None)),
        (_NUMBERS, lambda: _attention(q, all_k, all_v, index <= here[:, None])),
        (_NUMBERS, lambda: _attention(q, all_k, all_v, triangle.repeat(1, case.world_size))),
        (_SCALE, lambda: _attention(q, all_k, all_v, where <= mine[:, None], 1.0)),
    ]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: who holds what, or attention and the way keys and values went."""
    if "num_tokens" in case.inputs[0]:
        yield from _wrong_places(case, [values.tensor(came, "places") for came in got])
        return
    yield from library_calls(wire)
    right = expected(case)
    for rank, (came, wanted) in enumerate(zip(got, right, strict=True)):
        if values.tensor(came, "out").isnan().any():
            yield Finding(NOT_A_NUMBER, f"Rank {rank}'s result holds what is not a number.", rank=rank)
        named = next((name for name, way in _ways(case, rank) if near(values.tensor(came, "out"), way())), "")
        if not near(values.tensor(came, "out"), values.tensor(wanted, "out")) and not named:
            yield from wrong_tensors(
                got, right, "out", "attention", lambda rank: [(_NO_RESCALE, lambda: values.tensor(got[rank], "out"))]
            )
    yield from wrong_tensors(got, right, "out", "attention", lambda rank: _ways(case, rank))
    for rank in range(case.world_size):
        others = set(wire.peers(rank)) - {(rank + 1) % case.world_size}
        if others:
            yield Finding(_NEIGHBOUR, f"Rank {rank} sent to rank {min(others)}.", rank=rank)
    yield from lost_messages(wire)


def _wrong_places(case: Case, places: list[Tensor]) -> Iterator[Finding]:
    count = values.integer(case.inputs[0], "num_tokens")
    for rank, mine in enumerate(places):
        if not torch.equal(mine, mine.sort().values):
            yield Finding(_SHARED, f"Rank {rank} holds {mine.tolist()}, which is not ascending.", rank=rank)
    if not torch.equal(torch.cat(places).sort().values, torch.arange(count)):
        held = ", ".join(str(each.tolist()) for each in places)
        yield Finding(_SHARED, f"The ranks hold {held}; together they must hold each of {count} tokens once.")
    pairs = [int((mine + 1).sum()) for mine in places]
    if len(set(pairs)) > 1:
        yield Finding(_UNEVEN, f"Pairs of a query and a key, by rank: {pairs}.")


def blame(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
    """Yield that all ranks stand in a send, where they do."""
    if failure.waits and all(wait.operation == "send" for wait in failure.waits):
        yield _BLOCKED


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: the last token's rank reads the keys and values of every other."""
    if "num_tokens" in case.inputs[0]:
        return {}
    last = [int(values.tensor(each, "places")[-1]) for each in case.inputs]
    others = (case.world_size - 1) * values.tensor(case.inputs[0], "k").numel()
    return {last.index(max(last)): Bytes(0, 2 * MOST_PACKED * others)}


EXERCISE = Exercise(
    id="ring_attention",
    functions=("balanced_places", "ring_attention"),
    driver=drive,
    oracle=expected,
    structure=structure,
    find=find,
    blame=blame,
    least=least,
    visible=(
        places_case("places of 12 tokens on 3 ranks", 3, 12),
        attention_case("3 ranks, tokens in order", 1251, 3, 4, "in order"),
        attention_case("3 ranks, mixed tokens", 1252, 3, 4, "mixed"),
        attention_case("2 ranks, the first tokens on the last rank", 1253, 2, 5, "backwards"),
        attention_case("2 ranks, large scores", 1254, 2, 4, "mixed", scale=30.0),
    ),
    hints=(
        "Softmax over keys that come in two lots: if you know the largest score, the sum of exponentials and the "
        "weighted sum of values of each lot, how do you put them together?",
        "In each of N steps: scores with the keys at hand, masked where a key's place is later; the new largest; both "
        "sums times exp(old - new) plus the new ones. Then pass k, v and places on. Pieces r and 2N - 1 - r balance.",
        "grown = torch.maximum(largest, scores.amax(-1, keepdim=True)); weights = (scores - grown).exp(); old = "
        "(largest - grown).exp(); total = total * old + weights.sum(-1, keepdim=True); "
        "mixed = mixed * old + weights @ values.",
    ),
    mistakes=MISTAKES,
)
