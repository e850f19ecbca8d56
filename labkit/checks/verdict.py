"""What a judge says of one case, and the mistakes it knows by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.checks.case import Case, Got
    from labkit.checks.wire import Wire, WireProblem


PLAIN_ERROR = "a plain Python error"
"""Stands in a verdict for the name of a mistake where Python's own error says all there is to say."""


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one case.

    Attributes:
        passed: Whether the case is right in every respect.
        message: What is wrong, in a sentence or a few lines; "" when passed.
        hint: What was probably done, naming the mistake; "" when passed or not recognised.
        expected: What should have come, in words and numbers; may be "".
        got: What came, at the first place where they differ; may be "".
        mistake: The name of the recognised Mistake, or "".
        rank: The rank whose part of the run shows it best; None where it is no single one.
        call: Which of the rank's communication calls of the case it is about, as `Message.sent` and
            `CollectiveCall.sequence` count; None where it is about no single call.
        problem: What was seen on the wire and is repeated here, or None.
    """

    passed: bool
    message: str = ""
    hint: str = ""
    expected: str = ""
    got: str = ""
    mistake: str = ""
    rank: int | None = None
    call: int | None = None
    problem: WireProblem | None = None


@dataclass(frozen=True)
class Mistake:
    """A mistake learners really make, and how it shows.

    Attributes:
        name: A few words, unique within its exercise: "whole tensor at each step".
        hint: A sentence or two that name the mistake and point at the cure.
        seen: Whether what came back and what the wire saw bear the marks of this mistake.
        general: Whether many mistakes look like this one, so that the pattern over all cases says more.
        certain: Whether it is recognised for certain in a plain Python error too (an IndexError, a TypeError, ...).
            Other mistakes are not looked for there: such an error says itself what is wrong and on which line.
    """

    name: str
    hint: str
    seen: Callable[[Case, Got, Wire], bool]
    general: bool = False
    certain: bool = False
