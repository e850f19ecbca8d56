"""What a run that may fail has besides its ranks: a disk, and an agent that starts the ranks again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import ConfigError


@dataclass(frozen=True)
class Disk:
    """The disk that the ranks of a run write to, from a folder that they stand in when they begin.

    The figures are assumptions: a local NVMe drive writes some gigabytes a second, and a sync waits for its flash.

    Attributes:
        folder: Where its files really lie; None for a folder that the run makes and takes away.
        bytes_per_second: How fast a rank reads and writes.
        latency_s: What an operation takes besides.
        fsync_s: What a sync takes besides.
        per_node: Give each node a disk of its own, ``node0`` and so on in the folder; else one is everybody's.
    """

    folder: str | Path | None = None
    bytes_per_second: float = 2e9
    latency_s: float = 20e-6
    fsync_s: float = 1e-3
    per_node: bool = False

    def __post_init__(self) -> None:
        """Check that it can be.

        Raises:
            ConfigError: If the folder is not there, or a figure cannot be.
        """
        if self.folder is not None and not Path(self.folder).is_dir():
            raise ConfigError(f"Disk(folder={str(self.folder)!r}): there is no such folder; make it, or leave it out.")
        if not (self.bytes_per_second > 0 and self.latency_s >= 0 and self.fsync_s >= 0):
            raise ConfigError(
                f"{self!r} takes no time that could pass; use bytes_per_second above 0, the others from 0 on."
            )


@dataclass(frozen=True)
class Restarts:
    """How ranks are started again, as torchrun's agents do it: all of them, when one has failed.

    Attributes:
        most: How often; torchrun's ``--max-restarts``.
        monitor_s: How often an agent looks at its ranks; torchrun's ``--monitor-interval``, 0.1 s.
        stop_s: What it takes to end the ranks that are left.
        rendezvous_s: What it takes agents to agree on who is there; an assumption.
        start_s: What it takes to start the ranks' processes and import torch; an assumption.
        boot_s: Until a node that has lost its power is back; an assumption.
        spares: Nodes that stand by; each takes the place of one that lost its power. Without one the run waits, or:
        min_nodes: It goes on with fewer nodes, down to so many, and a node that is back joins at the next restart; the
            first of torchrun's ``--nnodes MIN:MAX``. Ranks are numbered anew. None waits.
    """

    most: int = 3
    monitor_s: float = 0.1
    stop_s: float = 0.0
    rendezvous_s: float = 1.0
    start_s: float = 5.0
    boot_s: float = 120.0
    spares: int = 0
    min_nodes: int | None = None

    def __post_init__(self) -> None:
        """Check that it can be.

        Raises:
            ConfigError: If a number cannot be.
        """
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 0:
            raise ConfigError(f"restarts={self.most!r} is no number of restarts; use 0 or more.")
        times = (self.stop_s, self.rendezvous_s, self.start_s, self.boot_s)
        for name, count in (("spares", self.spares), ("min_nodes", self.min_nodes)):
            if count is not None and (type(count) is not int or count < (name == "min_nodes")):
                raise ConfigError(f"{name}={count!r} is no number of nodes; use {int(name == 'min_nodes')} or more.")
        if not (self.monitor_s > 0 and all(time >= 0 and math.isfinite(time) for time in times)):
            raise ConfigError(f"{self!r} has a time that cannot pass; use monitor_s above 0 and the others from 0 on.")


def check_nodes(restarts: Restarts, disk: Disk | None, num_nodes: int, *, even: bool) -> None:
    """Check that a world's nodes can be replaced, or gone on without, as its restarts say.

    Args:
        restarts: They.
        disk: The world's.
        num_nodes: How many nodes it has.
        even: Whether all have as many ranks.

    Raises:
        ConfigError: If they cannot.
    """
    fewest = num_nodes if restarts.min_nodes is None else restarts.min_nodes
    if fewest > num_nodes or (fewest < num_nodes and not even):
        raise ConfigError(f"min_nodes={fewest} of {num_nodes} nodes: use no more, and nodes with as many ranks each.")
    if disk is not None and disk.per_node and (restarts.spares or restarts.min_nodes is not None):
        raise ConfigError(
            "With spares= or min_nodes= nodes change places; use a disk that all share, not per_node=True."
        )
