"""A case: what each rank is given; and what may come back instead of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, Union

from labkit.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from labkit.checks.wire import WireProblem

Value: TypeAlias = Union["torch.Tensor", int, float, bool, str, Sequence["Value"], Mapping[str, "Value"], None]
"""What may cross the line between a rank and the one who judges it."""

Values: TypeAlias = Mapping[str, Value]

FailureKind = Literal["not_implemented", "exception", "deadlock", "timeout", "died", "bad_result"]


@dataclass(frozen=True, eq=False)
class Case:
    """One call of the learner's code on every rank of a world.

    Attributes:
        name: What is special here, in words a learner reads: "5 ranks, 7 elements".
        world_size: Number of ranks.
        inputs: For each rank, what its driver is given; a rank sees its own only.
        about: What the judge must know and the ranks must not be told (never sent to a rank).
    """

    name: str
    world_size: int
    inputs: tuple[Values, ...]
    about: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.world_size < 1 or len(self.inputs) != self.world_size:
            raise ConfigError(
                f"case {self.name!r} has {len(self.inputs)} inputs for {self.world_size} ranks; give one for each rank"
            )


@dataclass(frozen=True)
class Wait:
    """What a rank was waiting for when the run was ended: its operation ("send", "recv", ...) and the other rank."""

    rank: int
    operation: str
    peer: int | None = None


@dataclass(frozen=True)
class Failure:
    """What came instead of results.

    Attributes:
        kind: ``not_implemented`` (a stub was called), ``exception``, ``deadlock`` (every rank waits), ``timeout``,
            ``died`` (a signal, an exit status) or ``bad_result`` (something came back that is not a Value).
        rank: The rank to look at first, or None.
        message: One sentence in words.
        detail: The learner's own lines of the traceback, or one line per rank; may be empty.
        error: The exception's type name, or "".
        waits: For a deadlock or a timeout, what each rank was waiting for, as far as it is known.
        problem: What was seen on the wire and is repeated in the message, or None.
    """

    kind: FailureKind
    rank: int | None
    message: str
    detail: str = ""
    error: str = ""
    waits: tuple[Wait, ...] = ()
    problem: WireProblem | None = None


Got: TypeAlias = tuple[Values, ...] | Failure
"""What a case brought: the driver's result for each rank, or a failure."""
