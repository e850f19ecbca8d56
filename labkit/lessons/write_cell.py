"""A ``write`` cell: Markdown, a few sentences of the learner's own that a person reads.

In the source its text is the model answer; a learner gets a placeholder to write over. The rubric stands in the cell's
header, and stays with instructors: its lines may say what is right.
"""

from __future__ import annotations

from labkit.lessons.cuts import Cut

PLACEHOLDER = "*Write two to five sentences here, in place of this line.*"


def model_answer(exercise: str, source: str) -> Cut:
    """Return a model answer as what is cut out of the learner's notebook."""
    return Cut(exercise, tuple(source.split("\n")), 0)


def is_unwritten(source: str) -> bool:
    """Return whether a learner has written nothing: an empty cell, or the placeholder."""
    return source.strip() in ("", PLACEHOLDER)
