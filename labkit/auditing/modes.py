"""What is noted between passes and steps: a model's mode, what averaging did to it, and copies that evaluate."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mode:
    """A backward pass: which modules of the model that was called before it were training, one after the other.

    Attributes:
        rank: Who.
        step: In which training step.
        training: For each module whether it was.
        source: The line that last called eval(), "" for none.
        called: The line that called the model.
    """

    rank: int
    step: int
    training: tuple[bool, ...]
    source: str
    called: str


@dataclass(frozen=True)
class Mean:
    """Parameters that ranks reduced in place, once whatever was done to them is done.

    Attributes:
        rank: Who.
        step: After how many training steps.
        ranks: The group.
        times: How many times as long the longest of them are as before, the median.
        source: The line that reduced the last of them.
    """

    rank: int
    step: int
    ranks: tuple[int, ...]
    times: float
    source: str


@dataclass(frozen=True)
class Divided:
    """Gradients that were divided between backward passes of a step: by how much each, and the first pass's line."""

    rank: int
    step: int
    by: dict[int, int]
    source: str


@dataclass(frozen=True)
class Used:
    """A model that is called to evaluate: digests of its buffers, those that a wrapper keeps alike left out.

    Of a copy of the model that is trained, digests of its parameters, and the line that made it.
    """

    rank: int
    step: int
    buffers: dict[str, bytes]
    source: str
    copied: dict[str, bytes] = field(default_factory=dict)
    made: str = ""
