"""What a run ends with: what came of it, or the error that its caller gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labkit.errors import RankFailed, RunTimeout
from labkit.simulator.endings import AttemptError, DeadlockError, RankError, StandstillError, TimeIsUpError
from labkit.simulator.standstill import WHAT_IS_VIRTUAL
from labkit.simulator.state import Simulation
from labkit.simulator.tracebacks import describe
from labkit.timeline import Timeline


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        results: What the function returned, one value per rank.
        timeline: What every rank did in virtual time.
        output: What each rank printed.
        elapsed_ns: Virtual time at which the last rank ended.
        switches: How often another rank took over.
    """

    results: list[Any]
    timeline: Timeline
    output: list[str]
    elapsed_ns: int
    switches: int


def raise_what_ended(simulation: Simulation, ends_ns: Sequence[int], about: dict[str, Any]) -> None:
    """Raise what ended a run before its time; return where nothing did.

    Args:
        simulation: The run.
        ends_ns: When each rank ended.
        about: Output and timeline, which the error takes along.
    """
    failure, size = simulation.scheduler.failure, len(simulation.ranks)
    if isinstance(failure, DeadlockError):
        raise RunTimeout(failure.text, reports=failure.reports, **about)
    if isinstance(failure, AttemptError):
        text = failure.text + _tried(simulation)
        if failure.rank is None:
            raise RunTimeout(text, reports=failure.reports, **about)
        raise RankFailed(text, rank=failure.rank, reports={failure.rank: failure.text}, **about)
    if isinstance(failure, RankError):
        headline, text = describe(failure.error)
        message = f"rank {failure.rank} of {size} failed first: {headline}\n\n{text}{_tried(simulation)}"
        raise RankFailed(message, rank=failure.rank, reports={failure.rank: text}, **about) from failure.error
    if isinstance(failure, TimeIsUpError):
        running = simulation.scheduler.running
        raise RunTimeout(
            f"The time limit passed while rank {running} of {size} was running, at "
            f"{ends_ns[running] / 1e9:.6f} s of virtual time; give labkit.run a longer timeout, or look for a loop "
            "that never ends.",
            **about,
        )
    if isinstance(failure, StandstillError):
        raise RunTimeout(f"The run is stuck: {failure.where}. {WHAT_IS_VIRTUAL}", **about)
    if failure is not None:
        raise failure


def _tried(simulation: Simulation) -> str:
    """Return how often ranks were started, where they may be started again."""
    trial = simulation.trial
    most = 0 if trial is None else trial.plan.restarts.most
    if not most:
        return ""
    before = "".join(f"\n  attempt {number + 1}: {cause}" for number, _, _, cause in trial.kept.attempts)
    return f"\n\nAll ranks were started again {trial.number} of {most} times:{before}"
