"""What a design is worth: a score beside three pars. Beating the naive answer earns half, the reference all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from labkit.checks.case import Case, Values
from labkit.checks.wire import Wire
from labkit.errors import ConfigError

if TYPE_CHECKING:
    from labkit.checks.exercise import Exercise


@dataclass(frozen=True)
class Pars:
    """What others reach in a case; less is better.

    Attributes:
        naive: The answer anybody would try first; points are for less.
        paper: What the literature does: the reference, where a challenge names one.
        best: The best known, or what nobody can beat (`Challenge.best`).
    """

    naive: float
    paper: float
    best: float


@dataclass(frozen=True)
class Challenge:
    """How a design is scored.

    Attributes:
        unit: Of scores and pars, "ms".
        score: What a right answer reaches in a case. A design whose numbers differ by machine is scored over several
            seeds, each a case.
        pars: What others reach in that case.
        plan: Which of the driver's results is the answer as data: the class board gets it, and scores it again itself;
            "" where the answer is code.
        reference: Short name of the published design behind `Pars.paper`, "1F1B": half of the points are for beating
            the naive answer, half for reaching it (`for_half_and_all`). "" where beating the naive one earns all.
        best: What `Pars.best` is: "best known", which may fall, or a "lower bound" or the "optimum", which cannot.
    """

    unit: str
    score: Callable[[Case, tuple[Values, ...]], float]
    pars: Callable[[Case], Pars]
    plan: str = ""
    reference: str = ""
    best: str = "best known"

    def line(self, case: Case, got: tuple[Values, ...]) -> str:
        """Return a case's score beside its pars, in words, and what it earns where that is not all."""
        pars, score = self.pars(case), self.score(case, got)
        named = {"naive": pars.naive, self.reference or "the paper's": pars.paper, self.best: pars.best}
        beside = ", ".join(f"{name} {value:,.4g}" for name, value in named.items())
        said = f"{score:,.4g} {self.unit} ({beside})"
        if self.reference and not _reaches(score, pars.paper):
            return f"{said}: half of the points; reaching {self.reference} earns the other half"
        if score < pars.best and not _reaches(pars.best, score):
            return f"{said}: better than the best known! Send us the plan."
        return said

    def falls_short(self, case: Case, got: tuple[Values, ...]) -> str:
        """Return why a right answer earns nothing yet in this case, or ""."""
        score, pars = self.score(case, got), self.pars(case)
        if case.about.get(_BAR) and not _reaches(score, pars.paper):
            reference = f"{self.reference} takes {pars.paper:,.4g}"
            return (
                f"It works and takes {score:,.4g} {self.unit}; {reference}. This half of the points is for as little."
            )
        if score < pars.naive or _reaches(score, pars.best):
            return ""
        return (
            f"It works and takes {score:,.4g} {self.unit}; the naive answer takes {pars.naive:,.4g}. "
            "Points are for less."
        )


_BAR = "as good as the reference"


def for_half_and_all(cases: Sequence[Case]) -> list[Case]:
    """Return hidden cases twice: first for beating the naive answer, then for reaching the reference.

    The exercise's header weighs them alike: ``weights=[1, 1, 1, 1]`` for two cases.
    """
    return [*cases, *(replace(case, name=f"{case.name}; for all", about={**case.about, _BAR: True}) for case in cases)]


def _reaches(score: float, par: float) -> bool:
    return score <= par or math.isclose(score, par, rel_tol=1e-9)


def relative_score(exercise: Exercise, plans: object) -> float:
    """Return how a design that is data compares with the best known, 1.0 for as good, over the visible cases.

    Args:
        exercise: With a challenge whose answer is a plan.
        plans: The plan of each visible case, as it came.

    Raises:
        ConfigError: If a plan is missing, is no plan, or is wrong.
    """
    challenge = exercise.challenge
    if challenge is None or not challenge.plan:
        raise ConfigError(f"exercise {exercise.id} is not ranked: its answer is not a plan")
    if not isinstance(plans, list) or len(plans) != len(exercise.visible):
        raise ConfigError(f"exercise {exercise.id} needs one plan for each of its {len(exercise.visible)} cases")
    ratios = []
    for case, plan in zip(exercise.visible, plans, strict=True):
        got: tuple[Values, ...] = ({challenge.plan: plan},)
        verdict = exercise.judged(case, got, Wire())
        if not verdict.passed:
            raise ConfigError(f"{case.name}: {verdict.message}")
        ratios.append(challenge.score(case, got) / challenge.pars(case).best)
    return sum(ratios) / len(ratios)


def plans_of(exercise: Exercise, brought: Sequence[object]) -> list[object] | None:
    """Return the plan of each case as data, or None where the answer is code.

    Args:
        exercise: What was checked.
        brought: What each visible case brought: results by rank.
    """
    if exercise.challenge is None or not exercise.challenge.plan:
        return None
    return [results[0][exercise.challenge.plan] for results in brought if isinstance(results, tuple)]
