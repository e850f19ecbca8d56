"""What goes wrong with memory that ranks exchange (labkit.auditing.exchanged)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mishap:
    """One thing that went wrong.

    Attributes:
        kind: "received over", "answered early", "update lost" or "state lost".
        rank: Where.
        step: In which training step.
        source: The program's line.
        operator: The operator concerned, "" for none.
        others: Who else is concerned, or how many steps show it.
    """

    kind: str
    rank: int
    step: int
    source: str
    operator: str
    others: tuple[Any, ...] = ()
