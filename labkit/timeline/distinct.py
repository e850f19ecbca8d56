"""Which distinct words a column of text holds: a kind or a name occurs many times over, and each is looked at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_FEW = 24
_ONE = np.uint64(1)


def hashed(column: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return 64 bits for each entry of a column of text or numbers, equal where entries are equal.

    Of a million distinct entries two have the same once in 40 million times.
    """
    whole = np.ascontiguousarray(column)
    size = 8 if whole.dtype.itemsize % 8 == 0 else 4 if whole.dtype.itemsize % 4 == 0 else 1
    words = whole.view(f"u{size}").reshape(len(column), whole.dtype.itemsize // size)
    # One pass: a sum of products with odd numbers, modulo 2**64.
    factors = np.random.default_rng(size).integers(0, 2**63, words.shape[1], dtype=np.uint64) * np.uint64(2) + _ONE
    key: npt.NDArray[np.uint64] = words.astype(np.uint64, copy=False) @ factors
    return key ^ (key >> np.uint64(32))


def coded(column: npt.NDArray[Any]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the distinct words of a column of text and, for each entry, which of them it is."""
    key = hashed(column)
    code = np.zeros(len(column), dtype=np.int32)
    first = [0] if len(column) else []
    rest = np.flatnonzero(key != key[0]) if len(column) else np.empty(0, np.int64)
    left = key[rest]
    # Few words are sorted out one after another, which is faster than sorting; of many, the rest is sorted.
    while len(rest) and len(first) < _FEW:
        code[rest] = len(first)
        first.append(int(rest[0]))
        other = left != left[0]
        rest, left = rest[other], left[other]
    if len(rest):
        _, at, codes = np.unique(left, return_index=True, return_inverse=True)
        code[rest] = len(first) + codes
        first += rest[at].tolist()
    return [str(column[row]) for row in first], code


def distinct_rows(
    columns: Sequence[npt.NDArray[Any]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each distinct row of the columns occurs first, and for every row which distinct one it is.

    They are numbered as they occur. Rows are told apart by a hash, as in :func:`hashed`.
    """
    key = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:  # mixed after each: two columns with the same word must not cancel out
        key = (key ^ hashed(column)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(32)
    _, first, codes = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order].astype(np.int64), place[codes].astype(np.int64)
