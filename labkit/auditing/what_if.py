"""What a finding would save: the run again with that one thing changed, and the time that it takes then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch

from labkit.auditing.bits import tensors_of
from labkit.auditing.facts import Call
from labkit.auditing.finding import Change, Finding
from labkit.auditing.rank_watch import line
from labkit.simulator.cluster import Cluster
from labkit.simulator.record import Row
from labkit.simulator.rounds import Part
from labkit.simulator.state import VirtualRank, memory_of
from labkit.simulator.what_if import FREE, JOINED
from labkit.units import format_percent, format_time

_LATER, _TENSORS = "later", "tensors"
_SIZES = "int64"
_FILLS = ("copy_", "mul", "div")
"""Operators that put a gradient into a bucket."""


@dataclass
class Changed:
    """A run in which one thing is otherwise (labkit.simulator.what_if)."""

    change: Change
    _rows: set[int] = field(default_factory=set)
    _kept: list[Any] = field(default_factory=list)
    _begun: dict[int, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (-1, -1)))
    passes: dict[int, int] = field(default_factory=dict)
    _buckets: set[int] = field(default_factory=set)
    _put_off: dict[int, dict[int, Callable[[], object]]] = field(default_factory=lambda: defaultdict(dict))

    def called(self, rank: VirtualRank, call: Call, inputs: list[torch.Tensor]) -> None:
        """Note a collective that a rank calls: it may be one of those that are otherwise."""
        change = self.change
        if call.source not in change.sources or len(call.ranks) < 2:
            return
        if change.kind == _TENSORS and call.dtype != _SIZES:
            return  # the tensors themselves
        if change.but_pass:
            self._buckets |= _storages(inputs)
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
        kind = FREE if self.change.kind == _TENSORS else self.change.kind
        return kind if kind != _LATER and all(id(part.row) in self._rows for part in parts) else ""

    def puts_off(self, rank: VirtualRank, row: Row, wait: Callable[[], object]) -> bool:
        """Return whether a rank waits for a collective as late as its next step."""
        if self.change.kind != _LATER or id(row) not in self._rows:
            return False
        self._put_off[rank.rank][id(row)] = wait
        return True

    def steps(self, rank: VirtualRank) -> None:
        """Let a rank that takes a step wait for what it has not waited for."""
        for wait in self._put_off.pop(rank.rank, {}).values():
            wait()

    def reads(self, frame: FrameType) -> bool:
        """Return whether the host does not wait for the value that it reads."""
        return self.change.kind in ("reads", _TENSORS) and line(frame) in self.change.sources

    def share(self, rank: VirtualRank, frame: FrameType, name: str, values: Any) -> float:
        """Return which share of its time an operator takes."""
        change = self.change
        if change.kind == _TENSORS and line(frame) in change.sources:
            return 0.0  # it makes objects of tensors, or tensors of objects
        if self._buckets and name in _FILLS and self.passes.get(rank.rank) != change.but_pass:
            return 0.0 if _storages(values) & self._buckets else 1.0
        spread = change.kind == "spread" and rank.rank == change.rank and line(frame) in change.sources
        return 1 / change.among if spread else 1.0


def _storages(values: Any) -> set[int]:
    found = (memory_of(one) for one in tensors_of(values))
    return {extent[0] for extent in found if extent is not None}


def with_saving(finding: Finding, whole_ns: int, changed_ns: int) -> Finding:
    """Return a finding with the time that the changed run took, and what that saves."""
    assert finding.change is not None
    saves = whole_ns - changed_ns
    evidence = finding.evidence | {"takes_ns_in_all": whole_ns, "takes_ns_changed": changed_ns, "saves_ns": saves}
    evidence.pop("saves_at_most_ns", None)
    what = f"Run again {finding.change.words}: {format_time(changed_ns)} in place of {format_time(whole_ns)}"
    less = f"{format_percent(saves / whole_ns)} less" if saves > 0 else "it saves nothing here"
    advice = finding.advice.partition(":")[0].rstrip(".")
    return replace(finding, advice=f"{advice}. {what}, {less}.", evidence=evidence)
