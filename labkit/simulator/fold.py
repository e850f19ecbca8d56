"""Folding: of data-parallel replicas, which differ in values alone, two run and the others are taken to do the same.

With shapes only there are no values, so ranks that stand at the same place of two replicas do the same operations at
the same times. A run that is folded starts the ranks of the first two replicas and no others. Where a collective of
theirs has members that do not run, each is represented by the running rank at its place, of the second replica where
that is in the group: it brings the same part, at the same time. Collectives of which no member runs are copies of those
inside a running replica, and are left out. So what runs meets exactly the traffic of all replicas, unless that of
replicas that do not run would pass a network card that it uses itself; there a run ends with an error.

That the two agree is looked at: in collectives where they meet, and operation by operation at the end. The first
replica often does more, because of ``if rank == 0``; then the run says where the two part, and the others are taken to
do what the second does. What cannot be folded is refused where it happens: a message to a rank that does not run, and a
group that holds no running rank at the place of one of its members. Values that such ranks contribute to a collective
on the host are those of their representative, and the line is named.

The record is that of the ranks that run; the others are absent from it, and hold as much memory as who represents them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.errors import ConfigError
from labkit.simulator.record import RankRecord, Row, at, short
from labkit.timeline.span import Lane

if TYPE_CHECKING:
    from labkit.simulator.clock import Scheduler
    from labkit.simulator.cluster import Cluster
    from labkit.simulator.rounds import Group, Round
    from labkit.simulator.state import VirtualRank
    from labkit.timeline import Timeline

_RUN = 2
FOLDED = "folded: "
"""How begins what a run says of ranks that did not run."""


@dataclass(frozen=True)
class Fold:
    """Which ranks are replicas of each other.

    Attributes:
        world_size: Number of ranks.
        within: Ranks of a replica that follow each other, before the next replica begins.
        replicas: How many replicas there are; what is left of the world repeats that, as pipeline stages do.
    """

    world_size: int
    within: int
    replicas: int
    _members: dict[tuple[str, int], list[int]] = field(default_factory=dict, compare=False, repr=False)

    def replica(self, rank: int) -> int:
        """Return the replica a rank belongs to."""
        return rank // self.within % self.replicas

    def runs(self, rank: int) -> bool:
        """Return whether a rank runs itself."""
        return self.replica(rank) < _RUN

    def at(self, rank: int, replica: int) -> int:
        """Return the rank that stands at the same place of a replica."""
        return rank + (replica - self.replica(rank)) * self.within

    def stands_for(self, rank: int) -> int:
        """Return whom a rank is represented by: itself where it runs."""
        return rank if self.runs(rank) else self.at(rank, _RUN - 1)

    def weight(self, rank: int) -> int:
        """Return how many ranks a running rank counts for, itself among them."""
        return 1 if self.replica(rank) == 0 else self.replicas - 1

    @property
    def running(self) -> list[int]:
        """The ranks that run."""
        return [rank for rank in range(self.world_size) if self.runs(rank)]

    def places(self, group: Group, rank: int) -> list[int]:
        """Return the group ranks that a running rank has in a group: its own, and those it represents there.

        Raises:
            RuntimeError: If a member of the group has no running rank to represent it.
        """
        key = (group.key, rank)
        found = self._members.get(key)
        if found is None:
            inside = set(group.ranks)
            found = []
            for place, member in enumerate(group.ranks):
                by = next((one for one in self._in_order(member) if one in inside), None)
                if by is None:
                    raise RuntimeError(
                        f"{group.label} cannot be folded: rank {member} does not run, and neither rank "
                        f"{self.at(member, 0)} nor {self.at(member, 1)}, which stand at its place, are in the group. "
                        "Fold along the dimension in which the group lies, or not at all."
                    )
                if by == rank:
                    found.append(place)
            self._members[key] = found
        return found

    def _in_order(self, member: int) -> tuple[int, ...]:
        return (member,) if self.runs(member) else (self.at(member, 1), self.at(member, 0))

    def check(
        self, cluster: Cluster, ranks: Sequence[int], edges: Iterable[tuple[int, int]], *, all_cards: bool
    ) -> None:
        """Raise RuntimeError where traffic shares a network card with traffic of replicas that do not run.

        Args:
            cluster: The hardware.
            ranks: Who takes part.
            edges: (source, destination) of what is moved.
            all_cards: Whether it passes all cards of a node; a message passes that of its rank.
        """
        if len({self.replica(rank) for rank in ranks}) == self.replicas:
            return  # every replica is in it, so nothing like it is left out
        if not all_cards and cluster.nics_per_node >= cluster.gpus_per_node:
            return
        for src, dst in edges:
            if cluster.node(src) != cluster.node(dst):
                first = cluster.node(src) * cluster.gpus_per_node
                others = range(first, min(first + cluster.gpus_per_node, self.world_size))
                unseen = [rank for rank in others if not self.runs(rank) and rank not in ranks]
                if unseen:
                    raise RuntimeError(
                        f"Ranks {src} and {dst} talk between nodes, and rank {unseen[0]}, which the fold leaves out, "
                        "would do the same on the same network cards. Run without a fold."
                    )


def fold_of(world_size: int, asked: int | Sequence[int] | str | None) -> Fold | None:
    """Return what --fold asks for; None where it asks for nothing.

    Args:
        world_size: Number of ranks.
        asked: Ranks of a replica that follow each other, and how many replicas: 8, (8, 64) or "8x64"; with one number
            the replicas fill the world.

    Raises:
        ConfigError: If the world cannot be folded so.
    """
    if asked is None:
        return None
    try:
        numbers = [int(one) for one in (asked.split("x") if isinstance(asked, str) else np.atleast_1d(asked))]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise ConfigError(
            f"fold={asked!r} cannot be read; give the ranks of a replica, 8, or these and the replicas, 8x64."
        )
    within, replicas = numbers if len(numbers) == 2 else (numbers[0], world_size // numbers[0])
    if replicas < 1 or world_size % (within * replicas):
        raise ConfigError(
            f"fold={asked!r}: {replicas} replicas of {within} ranks do not divide {world_size} ranks; choose numbers "
            "that do."
        )
    return Fold(world_size, within, replicas)


def refuse_message(rank: VirtualRank, peer: int, kind: str) -> None:
    """Raise RuntimeError where a message goes to, or comes from, a rank that does not run."""
    fold = rank.simulation.fold
    if fold is not None and peer >= 0:
        if not fold.runs(peer):
            raise RuntimeError(
                f"{kind} of rank {rank.rank} and rank {peer} cannot be folded: rank {peer} does not run. Fold along a "
                "dimension in which ranks only meet in collectives, or not at all."
            )
        fold.check(rank.simulation.cluster, (rank.rank, peer), ((rank.rank, peer),), all_cards=False)


def note_values(round_: Round, rank: VirtualRank, kind: str, source: str) -> None:
    """Note that ranks which do not run brought values to a collective: those of who represents them."""
    fold = rank.simulation.fold
    members = round_.group.ranks
    if fold is None or kind in ("broadcast", "barrier") or all(map(fold.runs, members)) or not rank.process.accelerator:
        return
    if any(part.inputs for part in round_.parts.values()):
        rank.process.accelerator.note(
            f"{FOLDED}{short(source) or 'a library'} called {kind} with values; ranks that did not run gave those of "
            "the ranks that represent them."
        )


def differences(fold: Fold, records: Sequence[RankRecord]) -> dict[str, int]:
    """Return a text for each place where the first two replicas did not do the same, with the rank."""
    found: dict[str, int] = {}
    for rank in fold.running:
        other = fold.at(rank, 1)
        if rank == other or fold.replicas <= _RUN:
            continue
        for lane, what in ((Lane.COMPUTE, "operator"), (Lane.COMMUNICATION, "call")):
            mine, theirs = (_done(records[one], lane) for one in (rank, other))
            pairs = enumerate(zip_longest(mine, theirs))
            place, pair = next(((place, pair) for place, pair in pairs if _differ(*pair)), (-1, ()))
            if pair:
                said = " and ".join(f"{_said(row)} on rank {who}" for row, who in zip(pair, (rank, other), strict=True))
                found[
                    f"{FOLDED}ranks {rank} and {other} did not do the same: {what} {place + 1} is {said}. Ranks that "
                    f"did not run are taken to do as rank {other} does."
                ] = rank
    return found


def _done(record: RankRecord, lane: Lane) -> list[Row]:
    return [row for row in record.rows if row.lane == lane]


def _differ(one: Row | None, other: Row | None) -> bool:
    return one is None or other is None or (one.name, one.bytes) != (other.name, other.bytes)


def _said(row: Row | None) -> str:
    return "none" if row is None else f"{row.name} of {row.bytes} bytes{at(row.source)}"


def alone(fold: Fold | None, scheduler: Scheduler) -> list[int]:
    """Return the ranks that run; the scheduler waits for no others."""
    if fold is None:
        return list(range(len(scheduler.clocks)))
    for rank in range(fold.world_size):
        if not fold.runs(rank):
            scheduler.leave_out(rank)
    return fold.running


def drop_absent_ranks(fold: Fold, timeline: Timeline, results: list[bytes | None]) -> None:
    """Drop the ranks that did not run from the record, and give each the result of the rank that stands for it."""
    running = np.array(fold.running)
    for name in ("clock", "lifetime"):
        table = timeline.tables[name]
        timeline.tables[name] = {column: values[running] for column, values in table.items()}
    by = [fold.stands_for(rank) for rank in range(fold.world_size)]
    peaks: dict[str, Any] = timeline.tables["memory_peak"]
    timeline.tables["memory_peak"] = {name: (one if name == "rank" else one[by]) for name, one in peaks.items()}
    results[:] = [results[rank] for rank in by]
