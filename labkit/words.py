"""Numbers and ranks as a sentence says them."""

from __future__ import annotations

from collections.abc import Iterable

SIMPLE_FACTORS = {2.0: "twice", 0.5: "half of", 0.25: "a quarter of"}
"""What a number is of another, where a word says it: "twice what it should be"."""


def join(parts: Iterable[object]) -> str:
    """Return "a", "a and b" or "a, b and c"."""
    words = [str(part) for part in parts]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "nothing"


def some(names: Iterable[object], most: int = 12) -> str:
    """Return "a, b and c", or of more than `most` the first of them and "and 28 more"."""
    listed = list(names)
    more = len(listed) - most
    return join(listed) if more <= 0 else f"{', '.join(map(str, listed[:most]))} and {more} more"


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Return "rank 2", "ranks 0 and 3", "ranks 0, 1 and 3" or "no rank"."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "no rank"
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {join(numbers)}"


def are_wrong(ranks: Iterable[int], world_size: int) -> str:
    """Return "Rank 2 is wrong", "Ranks 0 and 3 are wrong" or "All ranks are wrong"."""
    ranks = set(ranks)
    if len(ranks) == world_size > 1:
        return "All ranks are wrong"
    words = ranks_in_words(ranks)
    return f"{words[0].upper()}{words[1:]} {'are' if words.startswith('ranks') else 'is'} wrong"


def tagged(tag: int) -> str:
    """Return " with tag 3", or "" for the tag that nobody has to name."""
    return f" with tag {tag}" if tag else ""


def times(count: int) -> str:
    """Return "once", "twice" or "3 times"."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def plural(count: int, noun: str) -> str:
    """Return "1 message", "3 messages" or "no messages"."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def number(value: object) -> str:
    """Return a number as a learner reads it: 7, 14.5, 1.2e+06."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.7g}"
    return str(value)


def span_of(start: int, end: int) -> str:
    """Return "element 3" or "elements 3 to 5" for start <= i < end."""
    return f"element {start}" if end - start == 1 else f"elements {start} to {end - 1}"


def plainly(error: Exception) -> str:
    """Return what an error says for a sentence: "no such file", "'title' is missing", or its own first line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return (str(error) or type(error).__name__).splitlines()[0]


def in_points(first: float, second: float) -> str:
    """Return how far apart two percentages are: "2.5 percentage points"."""
    apart = float(f"{abs(first - second):.2g}")
    return f"{apart:g} percentage point{'' if apart == 1 else 's'}"
