"""What becomes of memory that a rank receives into, sends from and serves to others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from labkit.auditing.bits import digest, tensors_of, unseen
from labkit.auditing.mishap import Mishap
from labkit.simulator.messages import Posted
from labkit.simulator.operators import Operator, written_by
from labkit.simulator.state import VirtualRank, current_rank, memory_of

_NEEDS_ITS_ARGUMENTS = ("mm", "addmm", "bmm", "baddbmm", "mul", "convolution")
"""Operators whose backward pass reads what they were given."""
_ADDS = ("add_", "sub_", "addcmul_", "addcdiv_")
_OVERWRITES = ("copy_", "zero_", "fill_")
_OF_MANY = "_foreach_"
_SERVES = "rpc_serve"
_FOR = "() for "
"""Between function and caller in the name of a thread that handles a remote call."""


def caller_served() -> str:
    """Return the worker whose call this thread handles, "" in any other thread."""
    rank = current_rank()
    return "" if rank is None else rank.clock.label.partition(_FOR)[2]


class Exchanged:
    """That of one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.mishaps: list[Mishap] = []
        self.serves = False
        self._received: dict[int, str] = {}
        self._in_graph: dict[int, str] = {}
        self._over: list[Mishap] = []
        self._heard: set[int] = set()
        self._answers: dict[int, dict[int, bytes]] = defaultdict(dict)
        self._adds: set[int] = set()
        self._versions: dict[int, list[str]] = defaultdict(list)
        self._reads: dict[tuple[int, str], int] = {}
        self._looked_up: dict[str, dict[int, set[int]]] = {}

    # ---- messages

    def message(self, posted: Posted, step: int) -> None:
        """Note one end of a message."""
        storage = posted.storage
        if storage is None:
            return
        if posted.sends:
            self._answer(posted, step, storage)
            return
        self._heard.add(posted.peer)
        self._received[storage] = posted.row.source
        used = self._in_graph.pop(storage, "")
        if used:
            self._over.append(Mishap("received over", self.rank, step, posted.row.source, used))

    def backward(self) -> None:
        """Note that a backward pass begins: what it needs and was received over is lost."""
        self.mishaps += self._over
        self._over = []
        self._in_graph.clear()

    def _answer(self, posted: Posted, step: int, storage: int) -> None:
        answers = self._answers[storage]
        if posted.peer in answers or posted.peer not in self._heard:  # another round, or nobody's answer
            answers.clear()
            self._adds.discard(storage)
        self._heard.discard(posted.peer)
        with unseen():
            bits = digest(posted.tensor)
        other = next((peer for peer, before in answers.items() if before != bits), None)
        if other is not None and storage in self._adds:
            self.mishaps.append(Mishap("answered early", self.rank, step, posted.row.source, "", (other, posted.peer)))
        answers[posted.peer] = bits

    # ---- operators

    def operator(
        self, rank: VirtualRank, known: Operator, args: Any, kwargs: Any, step: int, *, in_backward: bool
    ) -> None:
        """Note what an operator reads and writes."""
        name = known.name.removeprefix(_OF_MANY)
        if self._answers and name in _ADDS:
            self._adds |= self._storages(args) & self._answers.keys()
        if self._received and name in _NEEDS_ITS_ARGUMENTS and not in_backward:
            given = tensors_of([args, kwargs])
            if any(one.requires_grad for one in given):
                self._in_graph |= dict.fromkeys(self._storages(given) & self._received.keys(), name)
        if rank.clock.label and not known.views:
            self._serves(rank, known, args, kwargs, step)

    def _serves(self, rank: VirtualRank, known: Operator, args: Any, kwargs: Any, step: int) -> None:
        """Note what is read and written for another rank, in a thread that serves it."""
        name, _, caller = rank.clock.label.partition(_FOR)
        if not caller:
            return
        self.serves = True
        written = self._storages(list(written_by(known.func, args, kwargs)))
        for storage in self._storages([args, kwargs]):
            versions, read = self._versions[storage], self._reads.get((storage, caller))
            if storage not in written:
                self._reads[storage, caller] = len(versions)
                continue
            since = [] if read is None else [writer for writer in versions[read:] if writer != caller]
            if known.name.removeprefix(_OF_MANY) in _OVERWRITES and since:
                rows = [row for row in rank.record.rows if row.kind == _SERVES and row.name == name]
                source = rows[-1].source if rows else ""
                self.mishaps.append(Mishap("update lost", self.rank, step, source, "", (caller, since[-1])))
            versions.append(caller)

    def _storages(self, values: Any) -> set[int]:
        found = (memory_of(one) for one in tensors_of(values))
        return {extent[0] for extent in found if extent is not None}

    # ---- keys

    def hashed(self, key: torch.Tensor, step: int, line: Callable[[], str]) -> None:
        """Note a tensor under which a program keeps something."""
        self._looked_up.setdefault(line(), {}).setdefault(step, set()).add(id(key))

    def never_found(self) -> list[Mishap]:
        """Return the lines that look up state by tensors of which none was a key in the step before."""
        found = []
        for source, by_step in self._looked_up.items():
            fresh = [step for before, step in pairwise(sorted(by_step)) if not by_step[before] & by_step[step]]
            if fresh:
                found.append(Mishap("state lost", self.rank, fresh[0], source, "", (len(fresh),)))
        return found
