"""What communication hooks send of real gradients, and how much of the mean they lose: counted, parameter by parameter.

Each hook is applied as torch's DDP does in its first compressed step: without error feedback, and PowerSGD from a
random matrix. Sources: torch.distributed.algorithms.ddp_comm_hooks (fp16_compress_hook, powerSGD_hook); Vogels,
Karimireddy and Jaggi 2019, "PowerSGD"; Stich, Cordonnier and Jaggi 2018, "Sparsified SGD with memory".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labkit.errors import ConfigError

Array: TypeAlias = npt.NDArray[np.float32]
_RANK, _LEAST_COMPRESSION = 4, 2
_SEED = 0


@dataclass(frozen=True)
class Lost:
    """What a hook makes of each parameter's gradient.

    Attributes:
        num_bytes: Sent by a rank.
        errors: Norm of (what arrives - the mean of the ranks) over the norm of that mean; 0 where the mean is 0.
    """

    num_bytes: tuple[float, ...]
    errors: tuple[float, ...]


def as_ranks(gradients: Sequence[Any]) -> list[list[Array]]:
    """Return gradients as arrays, rank by rank; a list of tensors is one rank's.

    Args:
        gradients: One tensor or array for each parameter, or such a list for each rank.

    Raises:
        ConfigError: If there is none, if ranks differ in their shapes, or if one is None or not finite.
    """
    ranks = [gradients] if gradients and (gradients[0] is None or hasattr(gradients[0], "shape")) else list(gradients)
    if missing := [at for rank in ranks for at, each in enumerate(rank) if not hasattr(each, "shape")]:
        raise ConfigError(f"Parameter {missing[0]} has no gradient: leave out parameters that backward did not reach.")
    found = [[_array(each) for each in rank] for rank in ranks]
    shapes = [[each.shape for each in rank] for rank in found]
    if not shapes or not shapes[0] or shapes.count(shapes[0]) < len(shapes):
        raise ConfigError(
            f"Gradients of {list(map(len, shapes))} parameters were given; each rank needs the same ones."
        )
    if unsteady := [at for rank in found for at, each in enumerate(rank) if not np.isfinite(each).all()]:
        raise ConfigError(f"The gradient of parameter {unsteady[0]} is not finite: there is no error to count.")
    return found


def total_error(errors: Sequence[float], norms: Sequence[float]) -> float:
    """Return the error of all parameters' gradients together, relative to the norm of all."""
    whole = math.hypot(*norms)
    return math.hypot(*(error * norm for error, norm in zip(errors, norms, strict=True))) / whole if whole else 0.0


def _array(gradient: Any) -> Array:
    """Return a tensor, of any device and type, or an array as float32."""
    tensor = gradient.detach().float().cpu() if hasattr(gradient, "detach") else gradient
    return np.asarray(tensor, np.float32)


def norms(ranks: Sequence[Sequence[Array]]) -> tuple[float, ...]:
    """Return the norm of each parameter's mean gradient."""
    return tuple(float(np.linalg.norm(_mean(each))) for each in zip(*ranks, strict=True))


def hook_errors(ranks: Sequence[Sequence[Array]]) -> dict[str, Lost]:
    """Return what each hook sends and loses, by the names of ``buckets.HOOKS`` but "none", which loses nothing.

    Args:
        ranks: For each rank its gradients, float32, of any shapes.
    """
    draw = np.random.default_rng(_SEED)
    results: dict[str, list[tuple[float, float]]] = {}
    for parameter in zip(*ranks, strict=True):
        mean = _mean(parameter)
        size = float(np.linalg.norm(mean))
        half = _mean([each.astype(np.float16) / len(parameter) for each in parameter]) * len(parameter)
        low, low_bytes = _low_rank(mean, draw)
        largest, kept = _largest(parameter)
        sent = {
            "fp16": (half, 2.0 * mean.size),
            f"PowerSGD, rank {_RANK}": (low, low_bytes),
            "top 1 %": (largest, kept),
        }
        for name, (arrives, num_bytes) in sent.items():
            error = float(np.linalg.norm(arrives - mean)) / size if size else 0.0
            results.setdefault(name, []).append((num_bytes, error))
    return {name: Lost(*map(tuple, zip(*pairs, strict=True))) for name, pairs in results.items()}


def _mean(parts: Sequence[npt.NDArray[Any]]) -> Array:
    total = parts[0].copy()
    for part in parts[1:]:
        total = total + part  # in the type of what is sent, as an all_reduce adds
    return np.asarray(total, np.float32) / np.float32(len(parts))


def _low_rank(mean: Array, draw: np.random.Generator) -> tuple[Array, float]:
    """Return P Q^T of the mean and the bytes of P and Q; as it is where that would save less than half."""
    matrix = mean.reshape(len(mean), -1) if mean.ndim else mean.reshape(1, 1)
    rank = min(*matrix.shape, _RANK)
    if sum(matrix.shape) * rank * _LEAST_COMPRESSION >= matrix.size:
        return mean, 4.0 * mean.size
    start = draw.standard_normal((matrix.shape[1], rank), np.float32)
    basis, _ = np.linalg.qr(matrix @ start)
    return (basis @ (basis.T @ matrix)).reshape(mean.shape), 4.0 * rank * sum(matrix.shape)


def _largest(parts: Sequence[Array]) -> tuple[Array, float]:
    """Return the mean of what each rank keeps, a hundredth, and the bytes of numbers and places."""
    keep = max(1, math.ceil(parts[0].size / 100))
    kept = []
    for part in parts:
        only = np.zeros(part.size, np.float32)
        chosen = np.argpartition(np.abs(part).ravel(), -keep)[-keep:]
        only[chosen] = part.ravel()[chosen]
        kept.append(only.reshape(part.shape))
    return _mean(kept), 8.0 * keep
