"""What the operations of a virtual port share: posting a message, joining a collective, recording both."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch

from labkit.simulator.algorithms import choose
from labkit.simulator.carriers import GLOO, NCCL, carrier
from labkit.simulator.clock import Event, Waiting
from labkit.simulator.flips import flip_bit
from labkit.simulator.fold import refuse_message
from labkit.simulator.lent_buffers import give_back, lend
from labkit.simulator.messages import ANY_SOURCE, Posted
from labkit.simulator.on_streams import communication, is_on_device, issue
from labkit.simulator.payload import check_layout, check_payload, layouts
from labkit.simulator.rounds import Compute, Group, Part, Round
from labkit.simulator.shared_groups import refuse
from labkit.simulator.stand_ins import forget
from labkit.simulator.state import VirtualRank, communication_row, the_rank
from labkit.simulator.stream_work import StreamWork, settle
from labkit.simulator.virtual_work import VirtualWork
from labkit.torch_port.operators import function_modes, uncounted
from labkit.torch_port.port import Call, Port

_STRIDED, _TENSORS = torch.strided, (torch.Tensor, torch.nn.Parameter)


class PortCalls(Port):
    """One virtual rank's end of a group, without its collectives."""

    def __init__(self, group: Group, group_rank: int) -> None:
        """Make the end of a rank; any of its threads may call.

        Args:
            group: The group.
            group_rank: The rank's number in it.
        """
        self._group, self._group_rank = group, group_rank
        self._num_ranks = len(group.ranks)
        self._rank = group.ranks[group_rank]
        self._number = 0
        self._backends: Mapping[str, str] = {}
        self._limit: timedelta | None = None

    def stands_for(self, backends: Mapping[str, str], limit: timedelta | None) -> None:
        """Do from now on what these backends do: kind of device -> the one that the program named for it.

        Args:
            backends: The backends.
            limit: How long a rank waits in a call on the host, None for ever.
        """
        self._backends, self._limit = backends, limit

    def backend_is(self, name: str) -> bool:
        """Return whether the program named this backend, and no other."""
        return set(self._backends.values()) == {name}

    def moves_cuda_by(self, name: str) -> bool:
        """Return whether tensors of CUDA devices go over this backend."""
        return self._backends.get("cuda", NCCL) == name

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> VirtualWork:
        """Post a send to a rank of the group."""
        return self._message("isend", tensor, self._group.ranks[peer], tag, sends=True)

    def receive(self, tensor: torch.Tensor, peer: int | None, tag: int) -> VirtualWork:
        """Post a receive from a rank of the group, None for whichever rank sends."""
        source = ANY_SOURCE if peer is None else self._group.ranks[peer]
        return self._message("irecv", tensor, source, tag, sends=False)

    def _owner(self, kind: str) -> VirtualRank:
        """Return the rank that calls; raises RuntimeError if this is another rank's end."""
        rank = the_rank()
        if rank.rank != self._rank:
            refuse(rank, self._group, self._rank, kind, self)
        return rank

    def _message(self, kind: str, tensor: torch.Tensor, peer: int, tag: int, *, sends: bool) -> VirtualWork:
        rank, group = the_rank(), self._group
        if rank.rank != self._rank:
            refuse(rank, group, self._rank, kind, self)
        plain = _is_plain(tensor)
        if rank.simulation.trial is not None:
            rank.simulation.trial.call(rank, kind, [tensor] if sends else [])
        refuse_message(rank, peer, kind)
        accelerator = rank.process.accelerator
        if accelerator is not None or not plain:
            check_payload(kind, [tensor])
        key, by = group.key, ""
        if accelerator is not None or self._backends:
            by = carrier(accelerator, self._backends, kind, [tensor], is_message=True)
            if by == NCCL:
                if peer == ANY_SOURCE:
                    raise RuntimeError("Backend nccl does not support recvAnysource: name the rank that sends.")
                tag = 0  # NCCL has none: messages between two ranks come in the order they were sent
            key = f"{key} over {by}"
        if not plain:
            check_layout(kind, by, [tensor], [], is_message=True)
        if rank.process.owed:
            settle(rank, [tensor])
        if tensor.requires_grad:
            with uncounted():
                tensor = tensor.detach()
        memory = rank.record.memory
        if memory is not None:
            memory.communicated([tensor], collective=False)
        source, entry = rank.simulation.sources.find(sys._getframe(2).f_back)
        row = communication_row(
            rank, entry or kind, tensor.nbytes, group.name, self._num_ranks, source, blocking=bool(entry), peer=peer,
            tag=tag,
        )  # fmt: skip
        posted = Posted(rank, peer, tensor, row, group.ranks, sends=sends, plain=plain)
        observer = rank.simulation.observer
        if observer is not None:
            observer.message(rank, posted)
        exchange = rank.simulation.exchange
        if rank.process.device is None or not is_on_device(rank, [tensor], by):
            exchange.post(posted, key, tag)
            message = VirtualWork(posted, posted, row, [tensor], posted.finish, posted.peer_in_group)
            return message if self._limit is None else message.limited(self._limit, lambda text: None)
        # A send and a receive of two ranks do not wait for each other, as those of one batch_isend_irecv do not.
        stream = (group.key, peer, sends)
        name = f"{'to' if sends else 'from'} rank {peer}"
        posted.communication = communication(rank, stream, name, row, lambda: exchange.reached(posted), posted)
        posted.late, posted.met = True, Event()
        exchange.post(posted, key, tag)
        issue(rank, posted.communication)
        known = None if sends else posted.met  # the buffer of a send was read
        return StreamWork(
            posted, posted, row, [tensor], posted.finish, posted.peer_in_group, communication=posted.communication,
            known=known, buffers=[tensor],
        )  # fmt: skip

    def _admit(
        self,
        rank: VirtualRank,
        kind: str,
        tensors: list[torch.Tensor],
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        op: str,
        *,
        sparse: bool,
    ) -> tuple[str, str]:
        """Refuse what the backend refuses; return it, and what of these tensors must be alike on all ranks."""
        accelerator = rank.process.accelerator
        plain = accelerator is None and not function_modes() and all(map(_is_plain, tensors))
        if not (plain or sparse):
            check_payload(kind, tensors)
        if accelerator is not None and accelerator.target:
            for tensor in tensors:
                accelerator.put(tensor)
        by = "" if sparse else carrier(accelerator, self._backends, kind, tensors, op=op)
        alike = f" over {by}" if by and accelerator is not None and not self.backend_is(by) else ""
        if not (plain or sparse):
            check_layout(kind, by, inputs, outputs)
            if kind in ("all_reduce", "broadcast", "reduce"):
                alike += layouts(inputs)
        if rank.process.owed:
            settle(rank, tensors)
        if rank.record.memory is not None:
            rank.record.memory.communicated(tensors, collective=True)
        return by, alike

    def _collective(
        self,
        call: Call,
        signature: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        compute: Compute,
        cost: str,
        num_bytes: int,
        root: int = 0,
        result: list[torch.Tensor] | None = None,
        *,
        sizes: list[int] | None = None,
        traffic: Any = None,
        sparse: bool = False,
        op: str = "",
    ) -> VirtualWork:
        group, kind = self._group, call.kind
        rank = self._owner(kind)
        tensors = inputs if inputs is outputs else [*inputs, *outputs]
        flips = [] if rank.simulation.trial is None else rank.simulation.trial.call(rank, kind, inputs)
        by, how = self._admit(rank, kind, tensors, inputs, outputs, op, sparse=sparse)
        signature += how
        source, _ = rank.simulation.sources.find(sys._getframe(2))
        row = communication_row(
            rank, kind, num_bytes, group.name, self._num_ranks, source, blocking=call.blocking
        )  # fmt: skip
        row.number = number = self._number
        self._number += 1
        part = Part(rank, row, f"{kind} {signature}".strip(), inputs, outputs, sizes or [])
        observer = rank.simulation.observer
        if observer is not None:
            observer.collective(rank, group, part, op)
        network, rounds = rank.simulation.network, rank.simulation.rounds

        def text() -> str:
            return f"{kind} (collective {number + 1} of {group.label})"

        def reached() -> None:
            rounds.reached(round_, self._group_rank)

        about = {"num_bytes": num_bytes, "group": group.key, "members": group.ranks, "number": number}
        waiting = Waiting(kind, lambda: round_.missing(), text, source, about)
        if is_on_device(rank, tensors, by):
            part.communication = communication(rank, group.key, group.label, row, reached, waiting)
        algorithm = network.cluster.algorithm
        round_: Round = rounds.join(
            group, number, self._group_rank, part, compute,
            traffic or (lambda parts: choose(cost, group.ranks, num_bytes, network, root, algorithm)),
        )  # fmt: skip

        # The audit (labkit.auditing.flights) keeps a list of its own; on a stream of a device wait() is not the end.
        watched = not row.blocking and observer is None and part.communication is None
        lent = lend(rank, part) if watched else []

        def finish() -> None:
            give_back(rank, lent)
            if round_.failure:
                raise RuntimeError(round_.failure)
            if observer is not None:
                observer.completed(rank, part)
            _put(round_, self._group_rank, outputs, sparse=sparse)
            for flip in flips:
                flip_bit(flip, outputs)
            part.inputs, part.outputs = [], []  # other ranks may still hold the round; this rank's tensors are free

        given = outputs if result is None else result
        if part.communication is None:
            work = VirtualWork(round_.event, waiting, row, given, finish, known=round_.joined)
            return (
                work
                if self._limit is None
                else work.limited(self._limit, lambda text: rounds.give_up(round_, text, part))
            )
        issue(rank, part.communication)
        return StreamWork(
            round_.event, waiting, row, given, finish, communication=part.communication, known=round_.joined,
            buffers=tensors, holds_host=by == GLOO or not tensors,
        )  # fmt: skip


def _put(round_: Round, group_rank: int, outputs: list[torch.Tensor], *, sparse: bool) -> None:
    """Write what a rank gets of a round into its tensors."""
    if not round_.has_values:
        for output in outputs:
            if not output.is_meta:
                forget(output)
        return
    with uncounted():
        for output, value in zip(outputs, round_.result_of(group_rank), strict=True):
            if sparse:
                with torch.no_grad():
                    output.copy_(value)
            else:
                output.data.copy_(value.view(output.shape))  # as gloo and NCCL write: autograd learns nothing


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one that any call moves: dense and strided, where ranks compute."""
    return (
        type(tensor) in _TENSORS and tensor.layout is _STRIDED and tensor.is_contiguous()
        and (tensor.is_meta or tensor.is_cpu)
    )  # fmt: skip
