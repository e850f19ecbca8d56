"""The crews of few_exchanges, and what others send with each until the goal is reached."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.failures.apart import Crew, Recipe
from labkit.failures.records import Kill


@dataclass(frozen=True)
class Known:
    """A crew, and the recipes that it is compared with.

    Attributes:
        crew: The crew.
        averages: Plain averages of weights, with rounds of the best length.
        diloco: DiLoCo's rate and momentum (Douillard and others, 2023), with rounds of a good length.
        best: The best that a search found.
    """

    crew: Crew
    averages: Recipe
    diloco: Recipe
    best: Recipe


def _kills(*moments: tuple[int, int]) -> tuple[Kill, ...]:
    return tuple(Kill(rank, step=step) for rank, step in moments)


CREWS = {
    "three workers": Known(
        Crew(3, _kills((1, 30), (0, 60), (2, 100), (1, 140), (0, 200), (2, 240)), 10, 0.3),
        Recipe(30), Recipe(20, 0.7, 0.9), Recipe(40, 1.0, 0.9),
    ),
    "four workers": Known(
        Crew(4, _kills((1, 30), (3, 50), (2, 85), (3, 90), (0, 130), (3, 135), (1, 170), (3, 200)), 12, 0.6),
        Recipe(25), Recipe(15, 0.7, 0.9), Recipe(20, 1.0, 0.9),
    ),
    "five workers": Known(
        Crew(5, _kills(*((each, 25 * (each + 1) + 130 * turn) for turn in range(2) for each in range(5))), 15, 0.8),
        Recipe(40), Recipe(25, 0.7, 0.9), Recipe(50, 1.0, 0.9),
    ),
}  # fmt: skip
"""By what a case is called."""
