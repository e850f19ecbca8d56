"""What a run left open, whatever its results are: messages and collectives that nobody answered, or waited for."""

from __future__ import annotations

from labkit.simulator.record import Noted, at
from labkit.simulator.state import Simulation


def left_open(simulation: Simulation) -> list[Noted]:
    """Return what the ranks of a run that is over left open."""
    found = list(simulation.exchange.unmatched())
    for round_ in simulation.rounds.unfinished():
        for part in round_.parts.values():
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
