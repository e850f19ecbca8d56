"""Tensors as collectives take them: one or several, flat or in lists, whole or cut into rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def listed(tensors: Any) -> list[torch.Tensor]:
    """Return one tensor or several as a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def flat(rows: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """Return the tensors of lists of lists, as c10d hands them over, in one list."""
    return [tensor for row in rows for tensor in row]


def in_words(tensors: Sequence[torch.Tensor]) -> str:
    """Return what all tensors are, as "4 x float32"."""
    shown = [f"{tensor.numel()} x {str(tensor.dtype).removeprefix('torch.')}" for tensor in tensors]
    if len(set(shown)) == 1 and len(shown) > 1:
        return f"{len(shown)} tensors of {shown[0]}"
    return ", ".join(shown)


def check_pieces(kind: str, name: str, pieces: list[torch.Tensor], mine: torch.Tensor, size: int) -> None:
    """Raise RuntimeError unless there is one piece for each rank, each of this rank's own elements and dtype."""
    if len(pieces) != size:
        raise RuntimeError(f"{kind} got a {name} of {len(pieces)} tensors on {size} ranks; give one each.")
    for place, piece in enumerate(pieces):
        if piece.numel() != mine.numel() or piece.dtype != mine.dtype:
            raise RuntimeError(
                f"{kind}: tensor {place} of the {name} has {in_words([piece])}, this rank's own "
                f"{in_words([mine])}; all ranks must bring the same number of elements and the same dtype."
            )


def check_dtypes(kind: str, output: torch.Tensor, given: torch.Tensor) -> None:
    """Raise RuntimeError unless the output has the dtype of what is given, as gloo and NCCL ask."""
    if output.dtype != given.dtype:
        gives, takes = (str(each.dtype).removeprefix("torch.") for each in (given, output))
        raise RuntimeError(f"{kind} of {gives} gives {gives}, and the output has {takes}; give both the same dtype.")


def rows_of(tensor: torch.Tensor, sizes: Sequence[int] | None, world_size: int, name: str) -> list[torch.Tensor]:
    """Return the rows of a tensor that go to or come from each rank; raises RuntimeError where they do not add up."""
    if not sizes:
        if tensor.size(0) % world_size:
            raise RuntimeError(
                f"all_to_all_single: {tensor.size(0)} rows of the {name} do not divide among {world_size} ranks; "
                "give split sizes."
            )
        sizes = [tensor.size(0) // world_size] * world_size
    if sum(sizes) != tensor.size(0):
        raise RuntimeError(
            f"all_to_all_single: {name} split sizes add up to {sum(sizes)}, and the {name} has {tensor.size(0)} rows."
        )
    return list(torch.split(tensor.detach(), list(sizes)))
