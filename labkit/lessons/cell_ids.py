"""Cell ids that stay: from an exercise's slug, a guess's name, or the content."""

from __future__ import annotations

import hashlib
from collections.abc import Collection


def cell_id(
    kind: str,
    source: str,
    role: str | None,
    *,
    exercise: str | None,
    predicted: str | None,
    num_given: int,
    taken: Collection[str],
) -> str:
    """Return a cell's id: 1 to 64 letters, digits and hyphens, the same whenever the source is the same.

    Args:
        kind: "markdown" or "code".
        source: The cell's text as the lesson's source has it, references to exercises unresolved: another number
            makes no other id.
        role: The tag that says what the cell is for, or None.
        exercise: The exercise that a cell belongs to, a ``check`` among them.
        predicted: The name a ``predict`` cell assigns, or the id it hands to ``labkit.predict``.
        num_given: Which ``given`` cell this is, from 1.
        taken: Ids of the cells above; equal plain cells are told apart by a number.
    """
    digest = hashlib.sha256(f"{kind}\n{source}".encode()).hexdigest()[:10]
    if exercise is not None and role != "check":
        return f"{role}-{exercise.replace('_', '-')}"
    if exercise is not None:
        stem = f"check-{exercise.replace('_', '-')}"
    elif predicted is not None:
        return f"predict-{predicted.replace('_', '-')}"[:64]
    elif role == "parameters":
        return "parameters"
    elif role == "given":
        stem = f"given-{num_given}-{digest}"
    elif role in ("solution", "slide-only", "figure"):
        stem = f"{role}-{digest}"
    else:
        stem = f"{'prose' if kind == 'markdown' else 'code'}-{digest}"
    identity, count = stem, 1
    while identity in taken:
        count += 1
        identity = f"{stem}-{count}"
    return identity
