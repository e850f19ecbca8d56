"""What is found out of a timeline once, for its columns do not change."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

Found = TypeVar("Found")


def once(find: Callable[[Timeline], Found]) -> Callable[[Timeline], Found]:
    """Return the function, which keeps its answer with the timeline; nobody may write into that answer."""

    @wraps(find)
    def kept(timeline: Timeline) -> Found:
        answers = vars(timeline).setdefault("_answers", {})
        if find.__name__ not in answers:
            answers[find.__name__] = find(timeline)
        found: Found = answers[find.__name__]
        return found

    return kept
