"""What the ranks printed during a case: told apart from other cases, and cut to what a learner can read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from labkit.checks.rank_side import OUTPUT_MARK

_NOT_THEIRS = re.compile(r"^(\[Gloo\]|\[[WEIF]\d{3,4}[ :]|terminate called|  what\(\):)")
_MOST_LINES = 16
_LINES_OF_A_RANK = 6
_MOST_CHARACTERS = 160


def of_case(output: Sequence[str], number: int) -> tuple[str, ...]:
    """Return what each rank printed in case `number` of a run.

    Args:
        output: What each rank printed in the whole run.
        number: Which case.
    """
    return tuple(_part(text, number) for text in output)


def _part(text: str, number: int) -> str:
    for part in text.split(OUTPUT_MARK)[1:]:
        head, _, rest = part.partition("\n")
        if head.strip() == str(number):
            return rest
    return ""


def lines(printed: Sequence[str]) -> list[str]:
    """Return the lines to show, each with its rank where there are several; what is cut is counted."""
    found: list[str] = []
    cut = 0
    for rank, text in enumerate(printed):
        own = [line for line in text.splitlines() if line.strip() and not _NOT_THEIRS.match(line)]
        room = min(_LINES_OF_A_RANK, _MOST_LINES - len(found))
        whose = f"[rank {rank}] " if len(printed) > 1 else ""
        found += [f"{whose}{line[:_MOST_CHARACTERS]}" for line in own[:room]]
        cut += len(own[room:])
    return found + ([f"... and {cut} more line{'' if cut == 1 else 's'}"] if cut else [])
