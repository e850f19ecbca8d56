"""Which failures are injected into a run, how it is restarted, and the state that its attempts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from labkit.failures.records import Failure
from labkit.failures.settings import Disk, Restarts
from labkit.simulator.disk import VirtualDisk
from labkit.simulator.program_end import End
from labkit.simulator.record import Row
from labkit.simulator.work_done import WorkDone


@dataclass(frozen=True)
class FailurePlan:
    """Which failures are injected into a run, and how it is restarted.

    Attributes:
        failures: What breaks.
        restarts: How ranks are started again.
        disk: What they write to; None for this host's own files, which nothing happens to.
        watch: Told of every event: rank, "step", "call" or "file", the operation, the path.
        first: How often the program was started before.
        told: Given what attempts have in common, once they begin; they then note what ranks end with, too.
    """

    failures: tuple[Failure, ...] = ()
    restarts: Restarts = field(default_factory=lambda: Restarts(0))
    disk: Disk | None = None
    watch: Callable[[int, str, str, str], None] | None = None
    first: int = 0
    told: Callable[[Kept], None] | None = None


@dataclass
class Kept:
    """The state that the attempts of a run share.

    Attributes:
        rows: What each rank did so far.
        works: How much each computed.
        texts: What each printed in attempts before.
        attempts: Number, begin, end and what ended each.
        came: Failures at a time that have come.
        num_steps: Optimizer steps that each rank began.
        ends: What ranks ended with in the last, where that is noted (labkit.simulator.program_end).
        disks: Those they write to.
    """

    rows: list[list[Row]]
    works: list[WorkDone]
    texts: list[str]
    attempts: list[tuple[int, int, int, str]] = field(default_factory=list)
    came: list[Failure] = field(default_factory=list)
    num_steps: list[int] = field(default_factory=list)
    ends: dict[int, End] = field(default_factory=dict)
    disks: list[VirtualDisk] = field(default_factory=list)

    @classmethod
    def of(cls, world_size: int) -> Kept:
        """Return what so many ranks begin with."""
        ranks = range(world_size)
        return cls([[] for _ in ranks], [WorkDone() for _ in ranks], ["" for _ in ranks], num_steps=[0 for _ in ranks])
