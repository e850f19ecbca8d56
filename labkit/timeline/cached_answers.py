"""Answers computed from a timeline are cached on it: its columns never change."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

Found = TypeVar("Found")


def cached_with_timeline(find: Callable[[Timeline], Found]) -> Callable[[Timeline], Found]:
    """Return the function with its answer cached on the timeline; callers must not write into the answer."""

    @wraps(find)
    def cached(timeline: Timeline) -> Found:
        answers = vars(timeline).setdefault("_answers", {})
        if find.__name__ not in answers:
            answers[find.__name__] = find(timeline)
        found: Found = answers[find.__name__]
        return found

    return cached
