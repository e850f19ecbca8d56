"""What the methods of a virtual process group share: posting a message, joining a collective, recording both."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.simulator.algorithms import choose
from labkit.simulator.clock import Waiting
from labkit.simulator.messages import ANY_SOURCE, Posted
from labkit.simulator.payload import in_words, listed, on_cpu
from labkit.simulator.record import Row
from labkit.simulator.rounds import Compute, Members, Part, Round
from labkit.simulator.state import communication_row, the_rank
from labkit.simulator.work import VirtualWork, VirtualWorks
from labkit.torch_port.operators import uncounted
from labkit.torch_port.peers import check_peer

Tensors = Sequence[torch.Tensor]

_ProcessGroup: Any = dist.ProcessGroup  # its typed signatures differ from version to version


class GroupCalls(_ProcessGroup):  # type: ignore[misc]
    """The process group of one virtual rank, without its collectives."""

    def __init__(self, members: Members, group_rank: int) -> None:
        """Make the group of a rank; any of its threads may call.

        Args:
            members: Its ranks.
            group_rank: The rank's number among them.
        """
        super().__init__(group_rank, len(members.ranks))
        self._members, self._group_rank = members, group_rank
        self._number = 0
        self._coalescing: list[VirtualWork] | None = None

    def getBackendName(self) -> str:  # noqa: N802
        """Return "virtual"."""
        return "virtual"

    @property
    def group_name(self) -> str:
        """The name torch registered this group under."""
        return self._members.name

    @property
    def pg_name(self) -> str:
        """The same, as older code asks for it."""
        return self._members.name

    def _get_backend(self, device: torch.device) -> SimpleNamespace:
        """Return what torch 2.15 asks a group's backend for: whether it joins messages, or can be split."""
        return SimpleNamespace(supports_coalescing=False, supports_splitting=False)

    # ---- point to point

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> VirtualWork:
        """Post a send to a rank of the group."""
        peer = self._members.ranks[check_peer("send to", dst, len(self._members.ranks))]
        return self._message("isend", tensors, peer, tag, sends=True)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> VirtualWork:
        """Post a receive from a rank of the group."""
        peer = self._members.ranks[check_peer("recv from", src, len(self._members.ranks))]
        return self._message("irecv", tensors, peer, tag, sends=False)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> VirtualWork:
        """Post a receive from whichever rank sends."""
        return self._message("irecv", tensors, ANY_SOURCE, tag, sends=False)

    def _message(self, kind: str, tensors: Tensors, peer: int, tag: int, *, sends: bool) -> VirtualWork:
        rank, members = the_rank(), self._members
        tensor = on_cpu(listed(tensors))[0]
        if tensor.requires_grad:
            with uncounted():
                tensor = tensor.detach()
        memory = rank.record.memory
        if memory is not None:
            memory.communicated([tensor], collective=False)
        source, entry = rank.simulation.sources.find(sys._getframe(2))
        row = self._row(entry or kind, tensor.nbytes, source, blocking=bool(entry))
        row.peer, row.tag = peer, tag
        posted = Posted(rank, peer, tensor, row, members.ranks, sends=sends)
        rank.simulation.exchange.post(posted, members.key, tag)
        return self._posted(
            VirtualWork(posted.event, posted, row, [tensor], posted.finish, posted.peer_in_group)
        )  # fmt: skip

    # ---- coalescing, which changes nothing here but the handle

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalescing = []

    def _end_coalescing(self, device: torch.device) -> VirtualWorks:
        works, self._coalescing = self._coalescing or [], None
        return VirtualWorks(works)

    # ---- what all collectives share

    def _collective(
        self,
        kind: str,
        signature: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        compute: Compute,
        cost: str,
        num_bytes: int,
        opts: Any,
        root: int = 0,
        result: list[torch.Tensor] | None = None,
        *,
        sizes: list[int] | None = None,
        traffic: Any = None,
        blocking: bool | None = None,
    ) -> VirtualWork:
        rank, members = the_rank(), self._members
        on_cpu(inputs)
        on_cpu(outputs)
        if rank.record.memory is not None:
            rank.record.memory.communicated([*inputs, *outputs], collective=True)
        source, _ = rank.simulation.sources.find(sys._getframe(1))
        is_blocking = not getattr(opts, "asyncOp", True) if blocking is None else blocking
        row = self._row(kind, num_bytes, source, blocking=is_blocking)
        row.number = number = self._number
        self._number += 1
        part = Part(rank, row, f"{kind} {signature}".strip(), inputs, outputs, sizes or [])
        network = rank.simulation.network
        algorithm = network.cluster.algorithm
        round_: Round = rank.simulation.rounds.join(
            members, number, self._group_rank, part, compute,
            traffic or (lambda parts: choose(cost, members.ranks, num_bytes, network, root, algorithm)),
        )  # fmt: skip

        def text() -> str:
            return f"{kind} (collective {number + 1} of {members.label})"

        def finish() -> None:
            if not round_.has_values:
                return
            with uncounted():
                for output, value in zip(outputs, round_.result_of(self._group_rank), strict=True):
                    output.detach().copy_(value.view(output.shape))
            part.inputs, part.outputs = [], []  # other ranks may still hold the round; this rank's tensors are free

        waiting = Waiting(kind, round_.missing, text, source)
        tensors = outputs if result is None else result
        return self._posted(VirtualWork(round_.event, waiting, row, tensors, finish))

    def _root(self, call: str, opts: Any) -> int:
        return check_peer(call, int(opts.rootRank), self.size())

    def _row(self, kind: str, num_bytes: int, source: str, *, blocking: bool) -> Row:
        size = len(self._members.ranks)
        return communication_row(
            the_rank(), kind, num_bytes, self._members.name, size, source, blocking=blocking
        )  # fmt: skip

    def _posted(self, work: VirtualWork) -> VirtualWork:
        if self._coalescing is not None:
            self._coalescing.append(work)
        return work

    def _check_pieces(self, kind: str, name: str, pieces: list[torch.Tensor], mine: torch.Tensor) -> None:
        if len(pieces) != self.size():
            raise RuntimeError(f"{kind} got a {name} of {len(pieces)} tensors on {self.size()} ranks; give one each.")
        for place, piece in enumerate(pieces):
            if piece.numel() != mine.numel() or piece.dtype != mine.dtype:
                raise RuntimeError(
                    f"{kind}: tensor {place} of the {name} has {in_words([piece])}, this rank's own "
                    f"{in_words([mine])}; all ranks must bring the same number of elements and the same dtype."
                )
