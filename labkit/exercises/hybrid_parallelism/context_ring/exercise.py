"""Causal attention over a ring of ranks, one axis of a mesh: keys go round, and in backward their gradients too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Values
from labkit.checks.compare import near
from labkit.checks.declared import Mistake, Result, declared, tensor_result
from labkit.checks.failures import sizes_differ
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.structure import NOT_A_NUMBER, NOTHING
from labkit.checks.traffic import SENT, all_stand_in_send, library_calls, lost_messages, unread_messages
from labkit.checks.values import tensor
from labkit.checks.wire import Wire
from labkit.exercises.hybrid_parallelism.context_ring.driver import drive
from labkit.exercises.hybrid_parallelism.context_ring.par import PAR
from labkit.exercises.hybrid_parallelism.rings import Pair, attended, expected, of, pair, ring_case, scores, summed

Way = Callable[[Case, int], Tensor]


def _forward(**mistake: Any) -> dict[str, tuple[Way, ...]]:
    def way(case: Case, rank: int, key: str) -> Tensor:
        found: Tensor = getattr(attended(case, rank, **mistake), key)
        return found

    return {key: (partial(way, key=key),) for key in ("out", "logsumexp")}


def _backward(**mistake: Any) -> dict[str, tuple[Way, ...]]:
    return {key: (partial(summed, key=key, **mistake),) for key in Pair._fields}


def _mean_of_blocks(case: Case, rank: int, *, skips: bool = False) -> Tensor:
    """Return the mean, over the blocks of keys, of attention to each by itself; `skips`: over those with a key seen."""
    blocks = [(scores(case, rank, each), of(case, each, "v")) for each in group_of(case, rank)]
    of_blocks = [
        found.softmax(-1).nan_to_num(0.0) @ v for found, v in blocks if not skips or bool(found.isfinite().any())
    ]
    return torch.stack(of_blocks).mean(0)


def _not_rescaled(case: Case, rank: int, *, sums: bool = False, values: bool = False) -> Tensor:
    """Return the output where one of the two running sums, or both, keep what was added to them as it was."""
    ranks = group_of(case, rank)
    q = of(case, rank, "q")
    largest = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total, mixed = torch.zeros_like(largest), torch.zeros_like(q)
    for step in range(len(ranks)):
        other = ranks[(ranks.index(rank) - step) % len(ranks)]
        found = scores(case, rank, other)
        grown = torch.maximum(largest, found.amax(-1, keepdim=True))
        weights, old = (found - grown).exp(), (largest - grown).exp()
        total = total * (old if sums else 1.0) + weights.sum(-1, keepdim=True)
        mixed = mixed * (old if values else 1.0) + weights @ of(case, other, "v")
        largest = grown
    return mixed / total


def _of_itself(case: Case, rank: int, key: str) -> Tensor:
    found: Tensor = getattr(pair(case, rank, rank), key)
    return found


def _left_behind(case: Case, rank: int, key: str) -> Tensor:
    """Return what a rank's queries contribute to all keys that come by, in one sum."""
    return torch.stack([getattr(pair(case, rank, each), key) for each in group_of(case, rank)]).sum(0)


def _following(case: Case, rank: int) -> int:
    ranks = group_of(case, rank)
    return ranks[(ranks.index(rank) + 1) % len(ranks)]


def _of_the_next(case: Case, rank: int, key: str) -> Tensor:
    return summed(case, _following(case, rank), key)


def _without_the_largest(case: Case, rank: int) -> Tensor:
    """Return the logarithm of the sum of exponentials of scores less their largest one."""
    all_scores = torch.cat([scores(case, rank, each) for each in group_of(case, rank)], -1)
    return attended(case, rank).logsumexp - all_scores.amax(-1, keepdim=True)


def _not_numbers(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, came in enumerate(got):
        for key in ("out", "logsumexp"):
            if tensor(came, key).isnan().any():
                yield Finding(NOT_A_NUMBER, f"Rank {rank}'s {key} contains NaN.", rank=rank)


def _beside_the_ring(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that something went to another rank than the next of the group."""
    for rank in range(case.world_size):
        following = _following(case, rank)
        if others := set(wire.peers(rank)) - {following}:
            text = f"Rank {rank} is in the group {group_of(case, rank)} and sent to rank {min(others)}."
            yield Finding(_NEIGHBOUR, text, f"rank {following}", f"rank {min(others)}", rank)


def _too_many_passes(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that a rank sent more than keys and values 2N - 1 times, and their gradients N times."""
    for rank in range(case.world_size):
        count, k, places = len(group_of(case, rank)), of(case, rank, "k"), of(case, rank, "places")
        block, where = 2 * k.numel() * k.element_size(), places.numel() * places.element_size()
        most, sent = (2 * count - 1) * (block + where) + count * block, wire.bytes_sent(rank)
        if sent > most:
            text = f"Rank {rank} sent {sent:,} bytes in forward and backward together; {most:,} are enough."
            yield Finding(_PASSES, text, f"at most {most:,} bytes", f"{sent:,} bytes", rank)


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: all keys to the last token's queries, the first token's key to all others and back."""
    found: dict[int, Bytes] = {}
    for rank in range(case.world_size):
        ranks, block = group_of(case, rank), 2 * MOST_PACKED * of(case, rank, "k").numel()
        places = {each: of(case, each, "places") for each in ranks}
        if rank == max(ranks, key=lambda each: int(places[each].max())):
            found[rank] = Bytes(0, (len(ranks) - 1) * block)
        elif rank == min(ranks, key=lambda each: int(places[each].min())):
            found[rank] = Bytes(block, block)
    return found


_NEIGHBOUR, _PASSES, _NO_RESCALE, _LOGARITHM = (
    "not to the next rank", "a pass too many", "sums not rescaled", "not the logarithm of the sum",
)  # fmt: skip

EXERCISE = declared(
    id="context_ring",
    functions=("ring_forward", "ring_backward"),
    driver=drive,
    oracle=expected,
    least=least,
    par=PAR,
    looks=(
        lambda case, got, wire: library_calls(wire),
        _beside_the_ring,
        lambda case, got, wire: lost_messages(wire),
        lambda case, got, wire: unread_messages(wire),
        _not_numbers,
        tensor_result("out", "the output"),
        Result("logsumexp", "{ranks}: the output is right, logsumexp on rank {rank} is not; entry {entry} is furthest "
               "off.", _LOGARITHM, near),
        *(tensor_result(key, f"forward is right, but the gradient of {key[-1]}") for key in Pair._fields),
        _too_many_passes,
    ),
    mistakes=(
        *SENT,
        Mistake("forward on its own keys",
                "Queries have met only the keys of their own rank. Pass k, v and places on, N - 1 times.",
                _forward(own=True), everywhere=True),
        Mistake("forward skips later ranks",
                "You skip the keys of all ranks after yours. A rank may hold any tokens of the text: skip a block only "
                "where all of its places are later than all of the queries'.", _forward(mask="ranks")),
        Mistake("forward causal in its own block",
                "You hide later keys of your own block alone. Keys of the others can be later, too: compare places in "
                "every block.", _forward(mask="own block")),
        Mistake("forward causal by index",
                "The mask compares positions in the pieces. Compare places: they travel with k and v.",
                {key: _forward(mask="index")[key] + _forward(mask="order")[key] for key in ("out", "logsumexp")}),
        Mistake("forward with keys in order",
                "Your mask takes the keys that come to lie in the order of ranks. Ranks hold any tokens of the text: "
                "their places travel with k and v.",
                {key: _forward(mask="keys in order")[key] + _forward(mask="shifted")[key]
                 for key in ("out", "logsumexp")}),
        Mistake("forward causal the other way",
                "You hide earlier keys. Hide those whose place is later than the query's.", _forward(mask="earlier")),
        Mistake("forward block by block",
                "You show or hide another rank's keys all together. Ranks hold any tokens of the text: compare each "
                "key's place with each query's.", _forward(mask="blocks")),
        Mistake("forward with a softmax for each block",
                "You averaged what each block gives by itself. Blocks count by their sums of exponentials, all less "
                "the same largest score.", {"out": (_mean_of_blocks, partial(_mean_of_blocks, skips=True))}),
        Mistake("forward not causal",
                "Queries see later keys. Where a key's place is later than the query's, the score is -inf.",
                _forward(mask="")),
        Mistake("forward scores not scaled", "Scores are divided by the root of a head's width K.",
                _forward(root=False)),
        Mistake(_NO_RESCALE,
                "When the largest score grows, what was summed before must be multiplied by exp(old - new): the sum "
                "of exponentials and the weighted values.",
                {"out": (_not_rescaled, partial(_not_rescaled, sums=True), partial(_not_rescaled, values=True))}),
        Mistake("the largest is missing",
                "You took the logarithm of the sum of exp(score - largest). Add the largest score again.",
                {"logsumexp": _without_the_largest}),
        Mistake("the sum itself", "This is the sum of exponentials. Return its logarithm: the sum can overflow.",
                {"logsumexp": lambda case, rank: attended(case, rank).logsumexp.exp()}),
        Mistake(_LOGARITHM,
                "logsumexp is the logarithm of the sum of exp(score) over all keys that a query sees, on all ranks: "
                "the largest score plus the logarithm of the rescaled sum."),
        Mistake("its own keys only",
                "Only this rank's keys and queries have met. Pass k, v, places and the gradients of k and v on, until "
                "they are home.", {key: partial(_of_itself, key=key) for key in Pair._fields}),
        Mistake("gradients left behind",
                "You added up what this rank's queries contribute to all keys that came by. Each block of keys needs "
                "its own sum, over all ranks: let it travel with them.",
                {key: partial(_left_behind, key=key) for key in ("of_k", "of_v")}),
        Mistake("one pass short",
                "These are the gradients of the next rank's k and v, complete: after N - 1 passes they are one rank "
                "away from home.", {key: partial(_of_the_next, key=key) for key in ("of_k", "of_v")}),
        Mistake("the row's term is missing",
                "A larger score makes all other weights of its row smaller. So a score's gradient is weight x (g . v - "
                "g . out), where g is the gradient of out.", _backward(row_term=False)),
        Mistake("the row's term over a block",
                "You summed weight x (g . v) over the keys of one block. The row's term is over all keys that "
                "the query sees: it is g . out, which forward already knows.", _backward(row_term="block")),
        Mistake("a softmax for each block",
                "You normalised the weights of each block of keys by itself. Weights are exp(score - logsumexp), and "
                "add up to 1 over all blocks.", _backward(by_block=True)),
        Mistake("the row's term without the output",
                "You took off the sum of g. The row's term is g . out: g times what the query got, summed.",
                _backward(row_term="gradient")),
        Mistake("gradients not scaled",
                "Scores are divided by the root of a head's width K, and so are the gradients of q and k.",
                _backward(scaled=False)),
        Mistake("gradients scaled twice",
                "The gradients of q and k are divided by the root of a head's width K once, and not once more.",
                _backward(twice=True)),
        Mistake("scores not scaled", "Scores are divided by the root of a head's width K, as in forward.",
                _backward(root=False)),
        Mistake("causal by index",
                "The mask compares positions in the pieces. Compare places: they travel with k and v.",
                _backward(mask="index")),
        Mistake("not causal",
                "Weights of later keys are not zero. Where a key's place is later than the query's, there is none.",
                _backward(mask="")),
        Mistake(_NEIGHBOUR,
                "Pass on along the group: group_peer=(place + 1) % size with group=group, or that rank's number in the "
                "world, dist.get_global_rank(group, ...). The mesh has other ranks, too."),
        Mistake(_PASSES,
                "In forward the last block need not go on: N - 1 passes show every rank all blocks. In backward N "
                "passes bring the gradients home."),
        Mistake("everybody sends first",
                "Every rank waits in send() for its neighbour's recv(). Post both, with dist.batch_isend_irecv or "
                "isend.", seen=all_stand_in_send),
        Mistake(NOT_A_NUMBER,
                "exp of a large score is inf, and inf / inf is nan. So is -inf minus -inf, where a query sees no key "
                "of a block. Subtract the largest of *all* so far, and begin with this rank's own block: every query "
                "sees its own key (hide what is later, not what is later or the same)."),
        Mistake("a rank leaves the ring",
                "Two ranks are not in the same step: one sends k and v where another waits for gradients, or for "
                "places. A block may be left out of the computing, but every rank passes on in every step, all in the "
                "same order.", says=HANGS, seen=lambda case, got, wire: isinstance(got, Failure) and sizes_differ(got)),
        Mistake(NOTHING, "Forward returns two tensors, out and logsumexp; backward three, of q, of k and of v."),
    ),
    visible=(
        ring_case("3 ranks, tokens in order", 1471, [[0, 1, 2]], 2, "in order"),
        ring_case("3 ranks, mixed tokens", 1472, [[0, 1, 2]], 3, "mixed"),
        ring_case("a mesh of 2 data by 2 context ranks, context first", 1473, [[0, 2], [1, 3]], 3, "backwards"),
        ring_case("2 ranks, large scores", 1474, [[0, 1]], 4, "mixed", large=True),
    ),
    hints=(
        "In forward a query meets all keys: how do you put two blocks together, each with its largest score, its sum "
        "of exponentials and its weighted values? In backward, who contributes to the gradient of one key, and where "
        "is that key when they do?",
        "Forward: k, v and places go round. In each of N steps take the new largest score, and both sums times exp(old "
        "- new) plus the new ones; logsumexp is largest + log(sum). Backward: the gradients of k and v so far go round "
        "with them. In each of N steps weights = exp(scores - logsumexp), zero for later keys; add to all three "
        "gradients, then pass on. After N passes everything is home.",
        "old = (largest - grown).exp(); total = total * old + weights.sum(-1, keepdim=True); mixed = mixed * old + "
        "weights @ values. Backward: row = (gradient * out).sum(-1, keepdim=True); slopes = weights * (gradient @ "
        "values.transpose(-1, -2) - row) / K ** 0.5; of_q += slopes @ keys; of_keys += slopes.transpose(-1, -2) @ q; "
        "of_values += weights.transpose(-1, -2) @ gradient.",
    ),
)  # fmt: skip
