"""Process groups as ranks ask for them: whether they ask for the same ones, and which backend each stands for.

torch pairs groups by the order in which ranks make them. Where one rank makes another group at that place, real ranks
hang, or read each other's addresses from the store and mix the groups up; here the second one to come is refused.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from labkit.simulator.payload import listing
from labkit.simulator.port_calls import PortCalls
from labkit.simulator.record import at
from labkit.simulator.state import VirtualRank, current_rank, the_rank
from labkit.torch_port.adapter import PortGroup, port_of
from labkit.torch_port.asked_groups import Asked


@dataclass(frozen=True)
class _Made:
    rank: int
    said: str
    source: str


class AskedGroups:
    """What the ranks of one run asked for so far."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], tuple[object, _Made]] = {}
        self._times: Counter[int] = Counter()  # how often each rank has made the default group
        self._splits: Counter[tuple[int, int, str]] = Counter()

    def agree(self, asked: Asked) -> None:
        """Take note of a group that a rank is about to make.

        Raises:
            RuntimeError: If another rank made another group at this place.
        """
        rank = the_rank()
        if asked.is_default:
            self._times[rank.rank] += 1
        self._compare(rank, asked.name, (asked.ranks, sorted(asked.backends.items())), lambda: _said(asked))

    def made(self, group: Any, asked: Asked) -> None:
        """Let a group that a rank has just made do what the backend it stands for does."""
        port_of_rank(group).stands_for(dict(asked.backends), asked.limit)
        if asked.device is not None:
            group.bound_device_id = asked.device
        if the_rank().process.accelerator is not None:
            group.devices = [
                torch.device(kind) for kind in asked.backends or ("cpu", "cuda") if kind in ("cpu", "cuda")
            ]

    def is_nccl(self, group: Any) -> bool:
        """Return whether a rank with a virtual CUDA device calls, and the group is one of NCCL's alone."""
        rank = current_rank()
        if rank is None or rank.process.accelerator is None or not isinstance(group, PortGroup):
            return False
        return port_of_rank(group).backend_is("nccl")

    def may_split(self, parent: Any, split_ranks: Any) -> int:
        """Return how often a rank has split a group, this time included; 0 where real ranks could not.

        They can split one of NCCL's, after a device was bound to the default group.

        Raises:
            RuntimeError: If another rank split it otherwise.
        """
        rank = current_rank()
        default = None if rank is None else rank.world["default_pg"]
        if (
            rank is None
            or getattr(default, "bound_device_id", None) is None
            or not port_of_rank(parent).moves_cuda_by("nccl")
        ):
            return 0
        times = (rank.rank, self._times[rank.rank], parent.group_name)
        self._splits[times] += 1
        lists = [sorted(ranks) for ranks in split_ranks]
        name = f"split {self._splits[times]} of {parent.group_name}"
        self._compare(rank, name, lists, lambda: f"split_group(split_ranks={lists})")
        return self._splits[times]

    def _compare(self, rank: VirtualRank, name: str, what: object, said: Callable[[], str]) -> None:
        key = (self._times[rank.rank], name)
        known, first = self._made.get(key, (None, None))
        if first is not None and known == what:  # a mesh of thousands of ranks makes hundreds of groups on each
            return
        source, _ = rank.simulation.sources.find(sys._getframe(2))
        if first is None:
            self._made[key] = (what, _Made(rank.rank, said(), source))
            return
        raise RuntimeError(
            f"Rank {rank.rank} called {said()}{at(source)}, where rank {first.rank} called "
            f"{first.said}{at(first.source)}. Groups are paired by the order in which ranks make them, so real "
            "ranks hang here or mix the groups up. Make the same groups in the same order on every rank, members "
            "or not."
        )


def port_of_rank(group: PortGroup) -> PortCalls:
    """Return a virtual rank's end of a group."""
    port = port_of(group)
    assert isinstance(port, PortCalls)
    return port


def _said(asked: Asked) -> str:
    if asked.is_default:
        return f"init_process_group({asked.backend!r})"
    over = f" over {asked.backend}" if asked.backends else ""
    return f"new_group({_ranks(asked.ranks)}){over}"


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"[{listing(ranks)}]"


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Do what ``dist.monitored_barrier`` does, which NCCL lacks.

    Raises:
        ValueError: If the group's backend is NCCL.
    """
    chosen: Any = group if group is not None else dist.group.WORLD
    if chosen is dist.GroupMember.NON_GROUP_MEMBER:
        return  # as torch's own, which leaves who is no member alone
    if port_of_rank(chosen).backend_is("nccl"):
        raise ValueError("monitored_barrier is only implemented for GLOO backend.")
    chosen.monitored_barrier(timeout, wait_all_ranks)
