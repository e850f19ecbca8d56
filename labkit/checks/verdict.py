"""What is said of one case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.checks.wire import WireProblem


PLAIN_ERROR = "a plain Python error"
"""Stands in a verdict for the name of a mistake where Python's own error says all there is to say."""


@dataclass(frozen=True)
class Verdict:
    """What is said of one case.

    Attributes:
        passed: Whether the case is right in every respect.
        message: What is wrong, in a sentence or a few lines; when passed "", or what a design scored.
        hint: What was probably done, naming the mistake; "" when passed or not recognised.
        expected: What should have come, in words and numbers; may be "".
        got: What came, at the first place where they differ; may be "".
        mistake: The name of the recognised mistake, or "".
        rank: The rank whose part of the run shows it best; None where it is no single one.
        call: Which of the rank's communication calls of the case it is about, as `Message.sent` and
            `CollectiveCall.sequence` count; None where it is about no single call.
        problem: What was seen on the wire and is repeated here, or None.
        most_bytes: How much a message may hold at most, where one holds more; else None.
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
    most_bytes: int | None = None
