"""What is noted of a run, one record for each thing that happens on a rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labkit.torch_port.loss_roots import LossRoot


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
        turn: How many collectives of the same group the rank had called before: the others' of that turn meet it.
        api: The function of torch.distributed that the program calls.
        outer: The program's line around it, where an autograd.Function calls it; else the same as source.
        names: Parameters whose gradients it gives.
        forwards: How many times a model had been called to train before.
        aliased: Whether two of the tensors that it fills share memory.
        count: Of how many the number that it gives is the mean, where it is one and that is known.
        hooked: The line that had a hook called with the gradient that it gives, where a hook calls it.
        caller: The line that calls the function which calls it.
        ready: Gradients of which the backward pass had made its part before.
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
    turn: int = 0
    api: str = ""
    outer: str = ""
    names: tuple[str, ...] = ()
    forwards: int = 0
    aliased: bool = False
    count: float | None = None
    hooked: str = ""
    ready: int = 0
    caller: str = ""

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
        drops: Whether the loader or its sampler leaves out what does not fill a batch on all ranks.
        trains: Whether a gradient would be kept as it begins.
        reads: The line of a stream's __iter__ that hands out samples, "" for none.
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
    drops: bool = False
    trains: bool = True
    reads: str = ""


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
    rows: tuple[bytes, ...] = ()


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
    """A call of clip_grad_norm_ and the norm it found; sharded where it was a DTensor's and so that of all ranks.

    scale is what a gradient scaler had multiplied the gradients with by then.
    """

    rank: int
    step: int
    norm: float
    most: float
    sharded: bool
    source: str
    scale: float = 1.0


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
class Draw:
    """Random numbers that a rank draws.

    Attributes:
        rank: Who.
        step: In which training step.
        name: The function.
        number: How often the rank had drawn on this line before.
        result: A digest of what it drew.
        numel: How many numbers.
        whole: Whether they are whole numbers, as places in a list are.
        loading: Whether a loader makes a sample meanwhile.
        source: The program's line.
        own: Whether the program calls it, and not torch for it.
        passes: How many backward passes the rank had begun since its last step.
    """

    rank: int
    step: int
    name: str
    number: int
    result: bytes
    numel: int
    whole: bool
    loading: bool
    source: str
    own: bool
    passes: int = 0


@dataclass(frozen=True)
class Decision:
    """A number that a rank reads in the program's own code, as an `if` does.

    Attributes:
        rank: Who.
        step: In which training step.
        number: How often the rank had read on this line before.
        value: What it reads.
        of_infinities: Whether it says if something is infinite or no number.
        source: The program's line.
        shared: Whether it was made of what came from other ranks, where that is followed.
    """

    rank: int
    step: int
    number: int
    value: float
    of_infinities: bool
    source: str
    shared: bool = False


@dataclass(frozen=True)
class SchedulerStep:
    """A learning-rate scheduler that takes a step: which of the rank's, and by which measure, None for none.

    begun says whether a model had been called to train before.
    """

    rank: int
    step: int
    scheduler: int
    measure: float | None
    source: str
    begun: bool = True


@dataclass(frozen=True)
class Declared:
    """A rank's part that a program declares to be whole on all ranks of a mesh: how often on this line before."""

    rank: int
    step: int
    number: int
    ranks: tuple[int, ...]
    digest: bytes
    source: str


@dataclass(frozen=True)
class Gathering:
    """A group of parameters that torch gathers in one call: its elements, from how many modules, and the line."""

    rank: int
    numel: int
    modules: int
    source: str


@dataclass(frozen=True)
class Load:
    """State that a rank brings back: "parameter", "state", "rate", "random", or a "checkpoint" of several ranks."""

    rank: int
    what: str
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
