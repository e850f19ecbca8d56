"""A chain of matrices on several ranks: what each way to cut them needs in memory, and how long a training step takes.

Times are those of a model: an operator takes as long as its arithmetic, its memory traffic or its launch, whichever is
longest; a ring's step costs a latency and its bytes. tests/plans holds the model against runs on virtual ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.errors import ConfigError

COLUMNS, ROWS, WHOLE = SPLITS = ("columns", "rows", "whole")
ELEMENT_BYTES = 4
STATE_COPIES = 4
"""Weight, gradient and Adam's two moments."""


@dataclass(frozen=True)
class Matrix:
    """One matrix of a chain: activations of `inputs` numbers a token become `outputs` numbers."""

    name: str
    inputs: int
    outputs: int


@dataclass(frozen=True)
class Machine:
    """What the ranks are.

    Attributes:
        num_ranks: How many share the matrices.
        num_tokens: How many tokens a batch has.
        memory_bytes: What weights, gradients and optimizer state may take on one rank.
        latency_s: The least time for a step of a ring, however few bytes it moves.
        bytes_per_second: Rate of the link from one rank to the next.
        flops: Floating-point operations a second that a rank reaches.
        memory_bytes_per_second: What a rank reads or writes a second.
        launch_s: The least time an operator takes.
    """

    num_ranks: int
    num_tokens: int
    memory_bytes: float
    latency_s: float
    bytes_per_second: float
    flops: float
    memory_bytes_per_second: float
    launch_s: float


def memory_bytes(matrices: Sequence[Matrix], splits: Sequence[str], machine: Machine) -> float:
    """Return the bytes of weights, gradients and Adam's moments on one rank: a matrix that is cut counts 1/N.

    Raises:
        ConfigError: If there is not one split for each matrix.
    """
    _refuse_no_plan(matrices, splits)
    return sum(
        STATE_COPIES * ELEMENT_BYTES * matrix.inputs * matrix.outputs / (1 if split == WHOLE else machine.num_ranks)
        for matrix, split in zip(matrices, splits, strict=True)
    )


def step_seconds(matrices: Sequence[Matrix], splits: Sequence[str], machine: Machine) -> float:
    """Return how long forward and backward take: three products for each matrix, and the exchanges, one by one.

    What is exchanged, of a whole activation of num_tokens rows:
    * after rows: an all-reduce in forward;
    * columns that read a whole activation: an all-reduce of its gradient in backward;
    * columns that read a part: an all-gather in forward, a reduce-scatter in backward;
    * whole that reads a part: an all-gather in forward, nothing in backward (each rank keeps its part of the gradient);
    * rows that read a part: nothing; rows that read a whole activation: an all-gather of its gradient in backward;
    * a part at the end: an all-gather.

    Args:
        matrices: The chain, first to last; it reads a whole activation and must leave one.
        splits: "columns", "rows" or "whole" for each.
        machine: What runs it.

    Raises:
        ConfigError: If there is not one split for each matrix.
    """
    _refuse_no_plan(matrices, splits)
    seconds, is_part = 0.0, False
    for matrix, split in zip(matrices, splits, strict=True):
        gathers, reduces = exchanges(split, is_part)
        seconds += 3 * product_seconds(matrix, split, machine)
        seconds += gathers * ring_seconds(matrix.inputs, machine)
        seconds += 2 * reduces * ring_seconds(matrix.outputs if split == ROWS else matrix.inputs, machine)
        is_part = split == COLUMNS
    return seconds + (ring_seconds(matrices[-1].outputs, machine) if is_part else 0.0)


def exchanges(split: str, is_part: bool) -> tuple[int, int]:
    """Return how many all-gathers or reduce-scatters of its input a matrix costs, and how many all-reduces.

    Args:
        split: How the matrix is cut.
        is_part: Whether each rank has only a part of the activation that it reads.
    """
    if split == ROWS:
        return (0 if is_part else 1), 1
    if split == COLUMNS:
        return (2, 0) if is_part else (0, 1)
    return (1 if is_part else 0), 0


def product_seconds(matrix: Matrix, split: str, machine: Machine) -> float:
    """Return how long one of a matrix's three products takes on a rank."""
    part = 1 if split == WHOLE else machine.num_ranks
    inputs = matrix.inputs / (part if split == ROWS else 1)
    outputs = matrix.outputs / (part if split == COLUMNS else 1)
    flops = 2 * machine.num_tokens * inputs * outputs
    moved = ELEMENT_BYTES * (inputs * outputs + machine.num_tokens * (inputs + outputs))
    return max(flops / machine.flops, moved / machine.memory_bytes_per_second, machine.launch_s)


def ring_seconds(width: int, machine: Machine) -> float:
    """Return how long an all-gather or a reduce-scatter of an activation of this width takes; an all-reduce is two."""
    piece = ELEMENT_BYTES * machine.num_tokens * width / machine.num_ranks
    return (machine.num_ranks - 1) * (machine.latency_s + piece / machine.bytes_per_second)


def _refuse_no_plan(matrices: Sequence[Matrix], splits: Sequence[str]) -> None:
    if len(splits) != len(matrices) or any(split not in SPLITS for split in splits):
        raise ConfigError(
            f"{list(splits)!r:.80} is not a plan for {len(matrices)} matrices; give 'columns', 'rows' or 'whole' for "
            "each."
        )
