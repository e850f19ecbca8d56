"""What a rank runs of split_loader."""

from __future__ import annotations

from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.data_parallel.nested_values import describe


class _Dataset:
    """Sample i is (a row that begins with i, i)."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.size:
            raise IndexError(f"there is no sample {index} among {self.size}")
        return torch.tensor([float(index), 0.5]), torch.tensor(index)


def drive(functions: Functions, inputs: Values) -> Values:
    """Build two equal loaders, list what each yields in some epochs; more than it may is cut off (split_loader).

    Inputs: size, batch_size, speeds, epochs, shuffle and seed (each may be missing).
    """
    options = {name: inputs[name] for name in ("shuffle", "seed") if name in inputs}
    size, batch_size = cast(int, inputs["size"]), cast(int, inputs["batch_size"])
    found: list[Value] = []
    length: Value = None
    for _ in range(2):
        loader = functions["SplitLoader"](
            _Dataset(size), batch_size, list(cast(list[int], inputs["speeds"])), **options
        )
        length = describe(len(loader))
        epochs = cast(int, inputs["epochs"])
        found.append([[_batch(each) for each in islice(iter(loader), 2 * size + 4)] for _ in range(epochs)])
    return {"length": length, "epochs": found}


def _batch(pieces: Any) -> Value:
    """Return {device: [sample, ...]} of a batch, or words for anything else."""
    if not isinstance(pieces, dict):
        return f"a {type(pieces).__name__} instead of a dict"
    result: dict[str, Value] = {}
    for device, piece in pieces.items():
        if not (isinstance(piece, tuple | list) and len(piece) == 2 and all(isinstance(t, Tensor) for t in piece)):
            return f"for device {device} no pair of tensors"
        inputs, targets = piece
        if inputs.dim() != 2 or targets.dim() != 1 or not torch.equal(inputs[:, 0].long(), targets):
            shapes = f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
            return f"for device {device} inputs and targets that do not belong together (shapes {shapes})"
        result[str(device)] = targets.tolist()
    return result
