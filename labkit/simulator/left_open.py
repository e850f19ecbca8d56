"""What a run left open, whatever its results are: calls and groups that nobody answered, or waited for."""

from __future__ import annotations

from labkit.simulator.payload import listing
from labkit.simulator.record import Noted, at
from labkit.simulator.state import Simulation
from labkit.timeline.span import Problem


def left_open(simulation: Simulation) -> list[Noted]:
    """Return what the ranks of a run that is over left open."""
    found = list(simulation.exchange.unmatched())
    for round_ in simulation.rounds.unfinished():
        for place, part in round_.parts.items():
            if part.rank.rank != round_.group.ranks[place]:
                continue  # it stands for a rank that does not run
            missing = ", ".join(map(str, round_.missing()[:8]))
            text = (
                f"Rank {part.rank.rank} called {part.row.kind}{at(part.row.source)} as collective "
                f"{round_.number + 1} of {round_.group.label}, and rank {missing} never did."
            )
            found.append(Noted("unmatched_collective", part.rank.rank, text, part.row))
    for rank in simulation.ranks:
        for row in rank.record.rows:
            if row.flow >= 0 and not row.waited:
                end = "to" if row.kind == "isend" else "from"
                text = f"Rank {rank.rank} never waited for its {row.kind} {end} rank {row.peer}{at(row.source)}."
                found.append(Noted("not_waited", rank.rank, text, row))
    return found


def groups_of_some(simulation: Simulation) -> list[Problem]:
    """Return the groups that some of their ranks made and others never did; none where the run failed on its way.

    Here, as over NCCL, a group costs nothing until it is used; gloo's ranks connect while they make it.
    """
    found: list[Problem] = []
    if simulation.scheduler.failure is not None:
        return found
    for group, makers in simulation.makers.items():
        fold = simulation.fold
        missing = [rank for rank in group.ranks if rank not in makers and (fold is None or fold.runs(rank))]
        if missing:
            noun = "rank" if len(missing) == 1 else "ranks"
            text = (
                f"Rank {min(makers)} made {group.label}, and {noun} {listing(missing)} never did. Over gloo it would "
                "wait there for ever: call dist.new_group on every rank, in the same order."
            )
            found.append(Problem("unmatched_group", min(makers), text))
    return found
