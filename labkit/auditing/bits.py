"""Values as an audit compares them: bits, not numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import torch

from labkit.auditing.facts import Difference
from labkit.auditing.seen import Groups
from labkit.torch_port.operators import unanswered, uncounted
from labkit.torch_port.tensors import local_part

_FIRST = 4096


@contextmanager
def unseen() -> Iterator[None]:
    """Let the body compute beside the run: it takes no virtual time, no memory, and leaves no graph."""
    with uncounted(), unanswered(), torch.no_grad():
        yield


def kept(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a copy of a tensor's values on this rank, None where it has none (meta, sparse)."""
    local = local_part(tensor)
    if local is None or local.is_meta or local.layout is not torch.strided:
        return None
    return local.detach().clone(memory_format=torch.contiguous_format)


def digest(tensor: torch.Tensor) -> bytes:
    """Return a digest of a tensor's bits on this rank, b"" where it has none."""
    local = local_part(tensor)
    if local is None or local.is_meta or local.layout is not torch.strided or not local.numel():
        return b""
    return blake2b(_memory(local), digest_size=8).digest()


def nonzero(tensor: torch.Tensor) -> bytes:
    """Return of a tensor's first elements a byte each: whether it is no zero."""
    return bytes(_memory(tensor.detach().reshape(-1)[:_FIRST] != 0))


def rows(values: Any, count: int) -> tuple[bytes, ...]:
    """Return a digest of each sample in a batch of so many, () where they cannot be told apart.

    Args:
        values: The batch: a tensor, or tensors in lists, tuples and dicts.
        count: How many samples it holds.
    """
    found = [one for one in tensors_of(values) if one.dim() and one.shape[0] == count and not one.is_meta]
    if not found:
        return ()
    bits = [one.detach().contiguous().reshape(count, -1) for one in found]
    return tuple(
        blake2b(b"".join(bytes(_memory(one[place])) for one in bits), digest_size=8).digest() for place in range(count)
    )


def tensors_of(values: Any) -> list[torch.Tensor]:
    """Return the tensors in lists, tuples, dicts and what has attributes of the kind."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, list | tuple):
        return [one for value in values for one in tensors_of(value)]
    return []


def ranks_by_bits(tensors: dict[int, torch.Tensor]) -> Groups:
    """Return the ranks in groups that hold the same bits, the group of the lowest rank first."""
    groups: list[tuple[torch.Tensor, list[int]]] = []
    for rank in sorted(tensors):
        mine = tensors[rank]
        for first, ranks in groups:
            if same_bits(first, mine):
                ranks.append(rank)
                break
        else:
            groups.append((mine, [rank]))
    return tuple(tuple(ranks) for _, ranks in groups)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same bits, NaNs included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or bytes(_memory(one)) == bytes(_memory(other))


def difference(ranks: tuple[int, int], one: torch.Tensor, other: torch.Tensor) -> Difference:
    """Return where two ranks' values part first."""
    apart = (one != other).reshape(-1).nonzero().reshape(-1)
    flat = int(apart[0]) if len(apart) else 0
    place, index = flat, []
    for size in reversed(one.shape):
        index.append(place % size)
        place //= size
    gap = (one.to(torch.float64) - other.to(torch.float64)).abs()
    mine, theirs = one.reshape(-1)[flat].item(), other.reshape(-1)[flat].item()
    return Difference(ranks, tuple(reversed(index)), (mine, theirs), len(apart), one.numel(), float(gap.max()))


def _memory(tensor: torch.Tensor) -> Any:
    plain = tensor.detach().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().data if plain.numel() else b""
