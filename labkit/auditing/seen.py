"""What was seen of a run, rank by rank: what the rules look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.torch_port.loss_roots import LossRoot

Groups = tuple[tuple[int, ...], ...]
"""Ranks in groups that have something in common."""


@dataclass(frozen=True)
class Backward:
    """A backward pass that the program began.

    Attributes:
        source: Its line.
        made: The line that made its loss.
        root: How its loss was made, None where that is not known.
        given: Whether it was given gradients.
    """

    source: str
    made: str
    root: LossRoot | None
    given: bool


@dataclass(frozen=True)
class Call:
    """A collective as one rank called it.

    Attributes:
        rank: Who.
        step: In which training step.
        ranks: The group.
        kind: c10d's word.
        op: The reduction, "" for none.
        dtype: Of its first tensor, such as "float32".
        numel: Elements of all it gives.
        bytes: The same in bytes.
        source: The program's line.
        blocking: Whether the caller stays in it.
        holds: What it gives: "gradient of fc.weight", "parameter fc.weight", "" where that is not known.
        in_forward: Whether a module's forward calls it.
        in_backward: Whether a backward pass does.
        before_backward: Whether no backward pass was begun since the last step.
        in_graph: Whether autograd would have to differentiate it.
        number: How many collectives the rank had called before, over all groups.
        passes: How many backward passes the rank had begun since its last step.
        operators: How many operators it had run before.
        row: Its span on the timeline.
    """

    rank: int
    step: int
    ranks: tuple[int, ...]
    kind: str
    op: str
    dtype: str
    numel: int
    bytes: int
    source: str
    blocking: bool
    holds: str
    in_forward: bool
    in_backward: bool
    before_backward: bool
    in_graph: bool
    number: int
    passes: int
    operators: int
    row: Any = field(compare=False, repr=False)

    @property
    def ns(self) -> int:
        """How long it took, in virtual time; 0 where that is not known."""
        return max(0, int(self.row.end_ns - self.row.start_ns))


@dataclass(frozen=True)
class Epoch:
    """A loader that begins an epoch on one rank.

    Attributes:
        rank: Who.
        step: In which training step.
        loader: The loader's number on that rank.
        number: How many epochs it began before.
        sampler: The sampler's class.
        epoch: The epoch that the sampler was told, None where it knows none.
        shuffles: Whether the sampler shuffles.
        seed: The sampler's seed, None where it has none.
        replicas: Among how many ranks the sampler shares the samples, None where it does not.
        place: Which of them it takes this rank for.
        samples: Samples of the dataset.
        drawn: Samples that the sampler hands out.
        order: The order in which it does, where it has a seed of its own.
        source: The program's line.
        made: The line that made the loader.
        sampler_made: The line that made its sampler.
    """

    rank: int
    step: int
    loader: int
    number: int
    sampler: str
    epoch: int | None
    shuffles: bool
    seed: int | None
    replicas: int | None
    place: int | None
    samples: int
    drawn: int
    order: tuple[int, ...]
    source: str
    made: str
    sampler_made: str


@dataclass(frozen=True)
class Batch:
    """Samples that a loader handed out: their numbers, and a digest of each one's values."""

    rank: int
    step: int
    loader: int
    epoch: int
    indices: tuple[int, ...]
    rows: tuple[bytes, ...]
    source: str


@dataclass(frozen=True)
class Input:
    """What a model was called with: a digest of all tensors and their number of elements; inside a wrapper or not."""

    rank: int
    step: int
    digest: bytes
    numel: int
    source: str
    inside: bool


@dataclass(frozen=True)
class Mask:
    """A dropout: digests of what it was given and of what it left, and of its first elements which were no zeros."""

    rank: int
    step: int
    number: int
    given: bytes
    left: bytes
    before: bytes
    after: bytes
    numel: int
    source: str


@dataclass(frozen=True)
class Clip:
    """A call of clip_grad_norm_ and the norm it found; sharded where it was a DTensor's and so that of all ranks."""

    rank: int
    step: int
    norm: float
    most: float
    sharded: bool
    source: str


@dataclass(frozen=True)
class Number:
    """A norm that a program finds of gradients, or a factor that it scales them by.

    Attributes:
        kind: "norm" or "factor".
        rank: Who.
        step: In which training step.
        value: The number.
        order: How many such numbers the rank had before.
        calls: How many collectives it had called before.
        source: The program's line.
    """

    kind: str
    rank: int
    step: int
    value: float
    order: int
    calls: int
    source: str


@dataclass(frozen=True)
class SquareSum:
    """A number that ranks add up after backward(), and the sum of squares of each gradient that the rank has then."""

    rank: int
    step: int
    ranks: tuple[int, ...]
    value: float
    squares: dict[str, float]
    source: str


@dataclass(frozen=True)
class Read:
    """A value that a program reads from its device, for which the host waits."""

    rank: int
    step: int
    in_backward: bool
    source: str


@dataclass(frozen=True)
class Save:
    """A checkpoint that a rank writes.

    Attributes:
        rank: Who.
        step: After how many training steps.
        path: The file, "" where it is none.
        parts: What is in it (labkit.auditing.saves).
        local: Names of tensors in it that are the rank's own piece of a sharded one.
        digest: Of the tensors in it.
        optimizer_state: Whether an optimizer of the rank has state by then.
        schedulers: Whether the rank has a learning-rate scheduler.
        draws: Whether training steps draw random numbers that nobody seeds anew.
        source: The program's line.
    """

    rank: int
    step: int
    path: str
    parts: frozenset[str]
    local: tuple[str, ...]
    digest: bytes
    optimizer_state: bool
    schedulers: bool
    draws: bool
    source: str


@dataclass(frozen=True)
class Fit:
    """What a gradient is: so many times the sum of what the ranks of a group computed."""

    ranks: tuple[int, ...]
    ratio: float


@dataclass(frozen=True)
class Difference:
    """Where two ranks' values of a tensor part first: the element, what each has, how many differ, by how much."""

    ranks: tuple[int, int]
    index: tuple[int, ...]
    values: tuple[float, float]
    count: int
    numel: int
    largest: float


@dataclass
class Step:
    """A step of one optimizer, on all ranks that took it.

    Attributes:
        optimizer: The optimizer's number on its rank.
        number: How many steps it took before.
        step: The training step.
        sources: Rank -> the line of the step; what follows is by rank, too.
        backwards: The backward passes since the last step.
        scale: What the loss was multiplied with by a gradient scaler.
        held: Names of the optimizer's parameters.
        made: Name -> the line that made the parameter, or the optimizer for one that is no module's.
        optimizer_made: The line that made the optimizer.
        constant: Names of parameters whose elements are all equal as the step begins.
        norms: Names of parameters that are a normalisation's.
        parameters: Name of each parameter -> groups of ranks that hold the same bits as the step begins.
        differences: Name -> where they part, for those of more than one group.
        sharded: Names of parameters that are spread over ranks.
        fits: Name -> rank -> what its gradient is made of; None where that is not known.
        alike: Names whose gradients came out the same on all ranks before anything was averaged.
        passes: Name -> how many backward passes of a rank added to its gradient.
        without: Name -> ranks whose gradient is None.
        unknown: Names of what the optimizer holds that no module does, by rank.
        frozen: Name of each parameter of the optimizer that requires no gradient -> on which ranks.
        lost: Names of those among them that required one when the optimizer got them.
        called: Names of parameters whose modules were called.
        unsynced: Rank -> the line of the last forward pass, where that was inside no_sync().
    """

    optimizer: int
    number: int
    step: int
    sources: dict[int, str] = field(default_factory=dict)
    backwards: dict[int, Sequence[Backward]] = field(default_factory=dict)
    scale: dict[int, float] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    optimizer_made: str = ""
    constant: set[str] = field(default_factory=set)
    norms: set[str] = field(default_factory=set)
    parameters: dict[str, Groups] = field(default_factory=dict)
    differences: dict[str, Difference] = field(default_factory=dict)
    sharded: set[str] = field(default_factory=set)
    fits: dict[str, dict[int, Fit | None]] = field(default_factory=dict)
    alike: set[str] = field(default_factory=set)
    passes: dict[str, int] = field(default_factory=dict)
    without: dict[str, list[int]] = field(default_factory=dict)
    unknown: dict[int, list[str]] = field(default_factory=dict)
    frozen: dict[str, list[int]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    unsynced: dict[int, str] = field(default_factory=dict)


@dataclass
class Seen:
    """All that was seen of a run; lists are in the order in which things happened on each rank."""

    world_size: int
    steps: list[Step] = field(default_factory=list)
    ends: list[Step] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    loads: bool = False
    wrapped: dict[int, str] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    done: dict[int, int] = field(default_factory=dict)
    numbers: list[Number] = field(default_factory=list)
    squares: list[SquareSum] = field(default_factory=list)
    messages: set[tuple[int, int]] = field(default_factory=set)
    problems: list[Any] = field(default_factory=list)
    num_steps: dict[int, int] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)
