"""Whether learning rates go the way they were set to, on all ranks alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import SchedulerStep
from labkit.auditing.finding import Finding
from labkit.auditing.origins import sets_rate
from labkit.auditing.roles import replicas
from labkit.auditing.seen import Seen, Step

OFTEN = rule(
    "scheduler-steps-often",
    "a learning-rate scheduler takes one step for each step of the optimizer",
    seen="how often each scheduler steps on one line between two steps of the optimizer",
    why="Warmup and decay are over as many times too early, and on another number of ranks the schedule is another.",
    todo="Call scheduler.step() once after optimizer.step(); count in optimizer steps when the schedule is made.",
    lesson="05",
    sources="huggingface/accelerate#3797",
)
APART = rule(
    "learning-rates-differ",
    "replicas step with one learning rate",
    seen="the learning rates on all replicas at every step, and what ReduceLROnPlateau is told",
    why="Replicas take steps of different lengths with the same gradient, and drift apart.",
    todo="Average the measure over the ranks before scheduler.step(measure).",
    lesson="04",
    sources="rmchurch/disruptcnn#3, karpathy/nanochat#857",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield schedulers that step too often, and learning rates that differ."""
    for found in (_often(seen), _apart(seen)):
        if found is not None:
            yield found


def _often(seen: Seen) -> Finding | None:
    by_place: dict[tuple[int, int, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for one in seen.scheduler_steps:
        by_place[one.rank, one.scheduler, one.source][one.step] += 1
    for (rank, _, source), counts in sorted(by_place.items()):
        steps = range(1, seen.num_steps.get(rank, 0))  # what comes before the first, and after the last, is no whole
        inner = {counts.get(step, 0) for step in steps}
        if len(inner) == 1 and len(steps) > 1 and min(inner) > 1:
            times = inner.pop()
            of_ranks = times == seen.world_size
            text = (
                f"The scheduler of rank {rank} takes {times} steps for each step of the optimizer"
                + (f", one for each of {seen.world_size} ranks" if of_ranks else "")
                + f": what was set to last {12 * times} steps is over after 12."
            )
            todo = "Step it once for each optimizer.step()."
            return Finding(OFTEN, "wrong", text, todo, rank, 1, source, "", {"times": times})
    return None


def _apart(seen: Seen) -> Finding | None:
    for step in sorted(seen.steps, key=lambda one: (one.step, one.optimizer)):
        for ranks in replicas(step):
            rates = {rank: step.rates[rank] for rank in ranks if step.rates.get(rank)}
            if len(set(rates.values())) < 2:
                continue
            first = min(rates)
            other = next(rank for rank in sorted(rates) if rates[rank] != rates[first])
            return _told(seen, step, first, other)
    return None


def _told(seen: Seen, step: Step, first: int, other: int) -> Finding:
    number = next(
        i for i, pair in enumerate(zip(step.rates[first], step.rates[other], strict=False)) if len({*pair}) > 1
    )
    one, two = step.rates[first][number], step.rates[other][number]
    told = [_last(seen, rank, step.step) for rank in (first, other)]
    measures = [each.measure for each in told if each is not None and each.measure is not None]
    why = (
        f": their schedulers were told {measures[0]:.6g} and {measures[1]:.6g}, each rank's own"
        if len(measures) == 2 and measures[0] != measures[1]
        else ""
    )
    text = f"Ranks {first} and {other} hold one model and take step {step.step} with rates {one:g} and {two:g}{why}."
    todo = "all_reduce the measure, then step the scheduler with the same number on all ranks."
    by_hand = sets_rate(step.optimizer_made or step.sources.get(other, ""))
    source = told[1].source if told[1] is not None else by_hand or step.optimizer_made or step.sources.get(other, "")
    evidence = {"rates": {str(rank): list(rates) for rank, rates in step.rates.items()}}
    return Finding(APART, "wrong", text, todo, other, step.step, source, "", evidence)


def _last(seen: Seen, rank: int, step: int) -> SchedulerStep | None:
    return next((one for one in reversed(seen.scheduler_steps) if one.rank == rank and one.step <= step), None)
