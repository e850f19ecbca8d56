"""Exercises that ask for a ValueError where the number of ranks does not suit them."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.checks import values
from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake
from labkit.checks.finding import Finding
from labkit.exercises.sums_over_ranks.sums import base_of, expected_bases
from labkit.words import ranks_in_words

NO_ERROR = "no error"
NEEDLESS = Mistake(
    "an error where none is due",
    "This world is one that your function must serve. Is the condition of your ValueError right? If the error is not "
    "yours, its text says what went wrong.",
)


def sums_unless(case: Case, asked: bool) -> list[Values]:
    """Return the sums, or where the error is asked for the tensors as they were."""
    return [{"base": base_of(case, rank)} for rank in range(case.world_size)] if asked else expected_bases(case)


def wrong_errors(got: tuple[Values, ...], asked: bool, reason: str, needless: str = "") -> Iterator[Finding]:
    """Yield a finding if ranks raised no ValueError where one is asked for, or one where none is.

    Args:
        got: What came.
        asked: Whether it is asked for.
        reason: Why it is, or is not: "3 is no power of two".
        needless: The mistake that an error about sizes points to where none is asked for.
    """
    raised = {rank: values.text(came, "raised") for rank, came in enumerate(got)}
    quiet = [rank for rank, text in raised.items() if not text.startswith("ValueError")]
    if asked and quiet:
        text = f"{reason}: ValueError was expected, {ranks_in_words(quiet)} raised none."
        yield Finding(NO_ERROR, text, "ValueError on every rank", f"none on {ranks_in_words(quiet)}", quiet[0])
    for rank, text in raised.items():
        if text and not asked:
            of_sizes = any(word in text for word in ("size", "shape", "elements"))
            mistake = needless if of_sizes and needless else NEEDLESS.name
            yield Finding(mistake, f"Rank {rank} raised {text.rstrip('.')}, but {reason}.", rank=rank)
