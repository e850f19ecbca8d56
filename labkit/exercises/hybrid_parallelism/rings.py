"""Attention over tokens that lie on the ranks of a group: what the judge of the ring knows, whole and pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import draws
from labkit.checks.case import Case, Values
from labkit.checks.draws import normal, part_of
from labkit.checks.groups import group_of
from labkit.checks.values import tensor

BATCH, HEADS, WIDTH = 2, 2, 4
"""Samples, heads and width of a head in every case."""


def ring_case(
    name: str, seed: int, groups: Sequence[Sequence[int]], each: int, order: str, *, large: bool = False
) -> Case:  # fmt: skip
    """Return a case of context_ring.

    Args:
        name: What is special about it.
        seed: Of the numbers.
        groups: Ranks along "context", group by group; each group has a text of its own.
        each: Tokens of a rank.
        order: "in order", "backwards" (the first tokens on a group's last rank) or "mixed".
        large: Whether all scores of the first sample are 1,200 larger, and those of the second as much smaller.
    """
    inputs: dict[int, Values] = {}
    for ranks in groups:
        tokens = torch.arange(len(ranks) * each)
        if order == "mixed":
            tokens = torch.randperm(len(tokens), generator=draws.generator(part_of(seed, "order", ranks[0])))
        pieces = [piece.sort().values for piece in tokens.chunk(len(ranks))]
        for rank, places in zip(ranks, pieces[::-1] if order == "backwards" else pieces, strict=True):
            drawn = {
                what: normal(part_of(seed, "rank", rank, what), BATCH, HEADS, each, WIDTH, dtype=torch.float64)
                for what in ("gradient", "q", "k", "v")
            }
            if large:
                drawn["q"][..., 0], drawn["k"][0, ..., 0], drawn["k"][1, ..., 0] = 60, 40, -40
            inputs[rank] = {"groups": [list(group) for group in groups], "places": places, **drawn}
    return Case(name, len(inputs), tuple(inputs[rank] for rank in sorted(inputs)))


def of(case: Case, rank: int, key: str) -> Tensor:
    """Return a tensor that a rank was given."""
    return tensor(case.inputs[rank], key)


def joined(case: Case, ranks: Sequence[int], key: str) -> Tensor:
    """Return what several ranks were given, joined along tokens."""
    return torch.cat([of(case, each, key) for each in ranks], 0 if key == "places" else 2)


def scores(case: Case, asks: int, holds: int) -> Tensor:
    """Return the scores of a rank's queries with another's keys, -inf where a key is later than the query."""
    found: Tensor = of(case, asks, "q") @ of(case, holds, "k").transpose(-1, -2) / WIDTH**0.5
    later = of(case, holds, "places") > of(case, asks, "places")[:, None]
    return found.masked_fill(later, float("-inf"))


class Attended(NamedTuple):
    """What forward gives a rank's queries."""

    out: Tensor
    logsumexp: Tensor


def attended(case: Case, rank: int, *, mask: str = "places", own: bool = False, root: bool = True) -> Attended:
    """Return a rank's output and logarithms, computed whole, or what comes of a mistake.

    Args:
        case: What was given.
        rank: Whose.
        mask: "places", "index" (within the pieces), "order" (of ranks), "keys in order" (other ranks' are
            taken to lie in the order of ranks), "shifted" (they are taken to lie as this rank's, further on), "ranks"
            (all of those after this one are hidden, too), "own block" (in no other one a key is hidden), "earlier"
            (those are hidden), "blocks" (of other ranks, seen whole or not at all) or "" for none.
        own: Whether keys of this rank alone are seen.
        root: Whether scores are divided by the root of a head's width.
    """
    ranks = [rank] if own else group_of(case, rank)
    q, each = of(case, rank, "q"), len(of(case, rank, "places"))
    here, there = of(case, rank, "places"), joined(case, ranks, "places")
    if mask == "index":
        here, there = torch.arange(each), torch.arange(each).repeat(len(ranks))
    elif mask == "order":
        here, there = each * ranks.index(rank) + torch.arange(each), torch.arange(each * len(ranks))
    scores = q @ joined(case, ranks, "k").transpose(-1, -2) / (WIDTH**0.5 if root else 1.0)
    hidden = (there > here[:, None]) & bool(mask)
    mine = torch.tensor([one == rank for one in ranks]).repeat_interleave(each)
    if mask == "keys in order":
        hidden = torch.where(mine, there, torch.arange(each * len(ranks))) > here[:, None]
    holds = torch.arange(len(ranks)).repeat_interleave(each)
    if mask == "shifted":
        hidden = here.repeat(len(ranks)) + each * (holds - ranks.index(rank)) > here[:, None]
    if mask == "ranks":
        hidden = hidden | (holds > ranks.index(rank))
    if mask == "own block":
        hidden = hidden & mine
    if mask == "earlier":
        hidden = there < here[:, None]
    if mask == "blocks":
        first = torch.stack([of(case, one, "places")[0] for one in ranks]).repeat_interleave(each)
        hidden = torch.where(mine, hidden, first > here[0])
    scores = scores.masked_fill(hidden, float("-inf"))
    return Attended(scores.softmax(-1) @ joined(case, ranks, "v"), scores.logsumexp(-1, keepdim=True))


def expected(case: Case) -> list[Values]:
    """Return what forward gives each rank, and the gradients of its q, k and v: autograd's, all tokens in one place."""
    found: dict[int, Values] = {}
    for rank in range(case.world_size):
        if rank in found:
            continue
        ranks = group_of(case, rank)
        places, gradient = (joined(case, ranks, key) for key in ("places", "gradient"))
        q, k, v = (joined(case, ranks, key).requires_grad_() for key in "qkv")
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=places <= places[:, None])
        whole = torch.autograd.grad(out, [q, k, v], gradient)
        pieces = zip(*(each.chunk(len(ranks), 2) for each in whole), strict=True)
        found |= {
            member: {**attended(case, member)._asdict(), **Pair(*each)._asdict()}
            for member, each in zip(ranks, pieces, strict=True)
        }
    return [found[rank] for rank in range(case.world_size)]


class Pair(NamedTuple):
    """What the queries of one rank and the keys of another contribute to each other's gradients."""

    of_q: Tensor
    of_k: Tensor
    of_v: Tensor


def pair(
    case: Case, asks: int, holds: int,
    *, mask: str = "places", row_term: bool | str = True, scaled: bool = True, by_block: bool = False,
    root: bool = True, twice: bool = False,
) -> Pair:  # fmt: skip
    """Return the contributions of a pair of ranks, or what comes of a mistake.

    Args:
        case: What was given.
        asks: The rank of the queries.
        holds: The rank of the keys.
        mask: "places", "index" (within the pieces) or "" for none.
        row_term: Whether g . out is taken off g . v in each query's row; "block" for the sum over one block alone,
            "gradient" for the sum of g.
        scaled: Whether gradients are divided by the root of a head's width.
        by_block: Whether each block of keys has a softmax of its own.
        root: Whether scores are divided by it.
        twice: Whether gradients are divided by it once more.
    """
    q, k, v, gradient = of(case, asks, "q"), of(case, holds, "k"), of(case, holds, "v"), of(case, asks, "gradient")
    forward = attended(case, asks)
    scores = q @ k.transpose(-1, -2) / (WIDTH**0.5 if root else 1.0)
    here, there = of(case, asks, "places"), of(case, holds, "places")
    if mask == "index":
        here, there = torch.arange(len(here)), torch.arange(len(there))
    scores = scores.masked_fill((there > here[:, None]) & bool(mask), float("-inf"))
    weights = scores.softmax(-1).nan_to_num(0.0) if by_block else (scores - forward.logsumexp).exp()
    taken_off = (gradient * forward.out).sum(-1, keepdim=True) if row_term else torch.zeros(())
    if row_term == "block":
        taken_off = (weights * (gradient @ v.transpose(-1, -2))).sum(-1, keepdim=True)
    if row_term == "gradient":
        taken_off = gradient.sum(-1, keepdim=True)
    slopes = weights * (gradient @ v.transpose(-1, -2) - taken_off) / (WIDTH**0.5 if scaled else 1.0)
    slopes = slopes / (WIDTH**0.5 if twice else 1.0)
    return Pair(slopes @ k, slopes.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ gradient)


def summed(case: Case, rank: int, key: str, **mistake: Any) -> Tensor:
    """Return a gradient of a rank, of contributions with a mistake in them."""
    others = group_of(case, rank)
    pairs = [pair(case, *((rank, each) if key == "of_q" else (each, rank)), **mistake) for each in others]
    found: list[Tensor] = [getattr(each, key) for each in pairs]
    return torch.stack(found).sum(0)
