"""Read out of a wrong sum which ranks' contributions are in it, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, product
from typing import TypeAlias

import torch
from torch import Tensor

from labkit.words import ranks_in_words, times

Shares: TypeAlias = tuple[int, ...] | None
"""How often each rank's contribution is in one element: (1, 0, 2), -1 where it was subtracted; None where no small
numbers explain it."""

_MOST, _MOST_SUBTRACTED = 9, 5


@cache
def _combinations(count: int, least: int = 0) -> Tensor:
    table = torch.tensor(list(product(range(least, 3), repeat=count)), dtype=torch.float64)
    return table[torch.argsort((table - 1).abs().sum(1), stable=True)]  # nearest to "each once" first


def shares_of(got: Tensor, inputs: Sequence[Tensor]) -> list[Shares]:
    """Return for each element of `got` how often each input is in it (0, 1 or 2 times, or subtracted).

    Args:
        got: A sum of some of the inputs, flat, as it came.
        inputs: What each rank contributed, flat, same length. More than 9 are not tried.
    """
    if len(inputs) > _MOST or not len(got):
        return [None] * len(got)
    found = _of_table(got, inputs, _combinations(len(inputs)))
    if found.count(None) == len(found) and len(inputs) <= _MOST_SUBTRACTED:
        return _of_table(got, inputs, _combinations(len(inputs), -1))
    return found


def _of_table(got: Tensor, inputs: Sequence[Tensor], table: Tensor) -> list[Shares]:
    stack = torch.stack([tensor.double() for tensor in inputs])
    sums = table @ stack
    close = (sums - got.double()).abs() <= 1e-6 * (stack.abs().sum(0) + 1e-30)
    found = close.any(0)
    first = close.to(torch.uint8).argmax(0)
    return [
        tuple(int(share) for share in table[row].tolist()) if hit else None
        for row, hit in zip(first.tolist(), found.tolist(), strict=True)
    ]


def runs(shares: Sequence[Shares]) -> Iterator[tuple[int, int, Shares]]:
    """Yield (start, end, shares) of each stretch of elements with equal shares."""
    start = 0
    for share, members in groupby(shares):
        end = start + len(list(members))
        yield start, end, share
        start = end


def in_words(share: Shares, ranks: Sequence[int]) -> str:
    """Return a share as a sentence's end: "rank 1 is missing", "rank 0 is in it twice"; "" where it is complete.

    Args:
        share: How often each contribution is in it.
        ranks: Which rank each place of `share` stands for.
    """
    if share is None:
        return "no sum of the ranks' contributions gives that number"
    missing = [rank for rank, count in zip(ranks, share, strict=True) if count == 0]
    more = {rank: count for rank, count in zip(ranks, share, strict=True) if count > 1}
    parts = []
    if len(missing) == len(ranks) - 1:
        (only,) = (rank for rank in ranks if rank not in missing)
        parts.append(f"only rank {only}'s contribution is in it" + (", " + times(more.pop(only)) if more else ""))
    elif missing:
        parts.append(f"{ranks_in_words(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    parts += [f"rank {rank} is in it {times(count)}" for rank, count in more.items()]
    subtracted = [rank for rank, count in zip(ranks, share, strict=True) if count < 0]
    if subtracted:
        parts.append(f"{ranks_in_words(subtracted)} {'is' if len(subtracted) == 1 else 'are'} subtracted")
    return ", ".join(parts)
