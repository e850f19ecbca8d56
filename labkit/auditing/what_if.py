"""What a finding would save: the run again with that one thing changed, and the time that it takes then."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from labkit.auditing.facts import Call
from labkit.auditing.finding import Change, Finding
from labkit.auditing.rank_watch import line
from labkit.simulator.cluster import Cluster
from labkit.simulator.rounds import Part
from labkit.simulator.state import VirtualRank
from labkit.simulator.what_if import FREE, JOINED, LATER
from labkit.units import format_percent, format_time


@dataclass
class Changed:
    """A run in which one thing is otherwise (labkit.simulator.what_if)."""

    change: Change
    _rows: set[int] = field(default_factory=set)
    _kept: list[Any] = field(default_factory=list)
    _begun: dict[int, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (-1, -1)))
    _until_ns: dict[int, int] = field(default_factory=dict)

    def called(self, rank: VirtualRank, call: Call) -> None:
        """Note a collective that a rank calls: it may be one of those that are otherwise."""
        change = self.change
        if change.kind not in (FREE, LATER, JOINED) or call.source not in change.sources or len(call.ranks) < 2:
            return
        if change.but_pass and call.passes == change.but_pass:
            return
        if change.kind == JOINED:
            moment = call.step, call.passes
            first, self._begun[call.rank] = self._begun[call.rank] != moment, moment
            if first:
                return  # the message that the others are joined to
            device = rank.simulation.cluster.device
            rank.spend(device.launch_ns + round(2 * call.bytes / device.memory_bytes_per_second * 1e9))  # a copy
        self._rows.add(id(call.row))
        self._kept.append(call.row)

    def placed(self, cluster: Cluster) -> Cluster:
        """Return the cluster with its ranks where they are to be."""
        return replace(cluster, places=self.change.places) if self.change.places else cluster

    def collective(self, parts: list[Part]) -> str:
        """Return how a collective is otherwise, "" where it is not."""
        return self.change.kind if all(id(part.row) in self._rows for part in parts) else ""

    def later(self, part: Part, ends_ns: int) -> None:
        """Note when a collective ends that the rank did not wait for."""
        self._until_ns[part.rank.rank] = max(ends_ns, self._until_ns.get(part.rank.rank, 0))

    def steps(self, rank: VirtualRank) -> None:
        """Let a rank that takes a step wait for what it has not waited for."""
        rank.clock.now_ns = max(rank.clock.now_ns, self._until_ns.pop(rank.rank, 0))

    def reads(self, frame: FrameType) -> bool:
        """Return whether the host does not wait for the value that it reads."""
        return self.change.kind == "reads" and line(frame) in self.change.sources

    def share(self, rank: VirtualRank, frame: FrameType) -> float:
        """Return which share of its time an operator takes."""
        change = self.change
        spread = change.kind == "spread" and rank.rank == change.rank and line(frame) in change.sources
        return 1 / change.among if spread else 1.0


def told(finding: Finding, whole_ns: int, changed_ns: int) -> Finding:
    """Return a finding that says what the run with its change took."""
    assert finding.change is not None
    saves = whole_ns - changed_ns
    evidence = finding.evidence | {"takes_ns_in_all": whole_ns, "takes_ns_changed": changed_ns, "saves_ns": saves}
    evidence.pop("saves_at_most_ns", None)
    what = f"Run again {finding.change.words}: {format_time(changed_ns)} in place of {format_time(whole_ns)}"
    less = f"{format_percent(saves / whole_ns)} less" if saves > 0 else "it saves nothing here"
    advice = finding.advice.partition(":")[0].rstrip(".")
    return replace(finding, advice=f"{advice}. {what}, {less}.", evidence=evidence)
