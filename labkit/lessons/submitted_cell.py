"""A cell of a notebook that was handed in, or that lies in a learner's folder, as plain text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubmittedCell:
    """One cell of a submission, as plain text."""

    position: int
    id: str
    kind: str
    exercise: str
    tags: tuple[str, ...]
    source: str
