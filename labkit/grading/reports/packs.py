"""Whether an answer that was handed out stands in what somebody hands in: by how much of it, not whether it is equal.

A line deleted, a statement added or the answers moved into one cell leave most of it standing. A short answer is found
by many who never saw it, so names count: beyond what was handed out as the task, few write the same words in the same
order by chance.
"""

from __future__ import annotations

from collections.abc import Iterable

from labkit.grading.reports.similarity import shingles

_SAME_WORDS, _MOST_WORDS = 50, 0.8
_SAME_SHAPE, _MOST_SHAPE = 200, 0.95
"""Runs of seven tokens that no two people write alike by themselves, and how many of an answer's: with the same names,
and whatever the names."""


def is_in(answer: str, sources: Iterable[str], task: str) -> bool:
    """Return whether most of an answer stands in one of these cells, and too much for chance.

    Args:
        answer: What was handed out.
        sources: All exercise cells of a submission; it counts wherever it stands.
        task: The answer's cell as it was handed out.
    """
    handed_in = list(sources)
    for names, least, most in ((True, _SAME_WORDS, _MOST_WORDS), (False, _SAME_SHAPE, _MOST_SHAPE)):
        wanted = shingles(answer, names=names) - shingles(task, names=names)
        if len(wanted) >= least and any(
            len(wanted & shingles(source, names=names)) >= most * len(wanted) for source in handed_in
        ):
            return True
    return False
