"""Point-to-point messages: who meets whom, and when bytes arrive.

A send is a rendezvous, as with NCCL and gloo: bytes move once both ends are posted. Messages from one rank to another
with one tag in one group arrive in the order they were sent; a receive from any rank takes the one posted first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from ctypes import memmove, string_at
from typing import Any

import torch

from labkit.simulator.clock import Event
from labkit.simulator.record import Noted, Row, at
from labkit.simulator.stand_ins import forget, is_stand_in
from labkit.simulator.state import Simulation, VirtualRank, memory_of
from labkit.simulator.streams import Communication
from labkit.torch_port.operators import uncounted
from labkit.units import format_bytes
from labkit.words import tagged

ANY_SOURCE = -1


class Posted(Event):
    """One end of a message, which happens when it is complete.

    A rank that waits for it says so with it (labkit.simulator.clock.Waits), and while its buffer must be left alone it
    is among those in flight (labkit.simulator.state.InFlight).

    Attributes:
        rank: Who posted it.
        peer: Global rank at the other end, ANY_SOURCE for a receive from whoever sends.
        tensor: The buffer.
        row: Its span.
        sends: Which end it is.
        members: Global ranks of the group.
        order: Position among all posts of the run.
        raw: Whether its buffer is nothing but its bytes, one after the other, where ranks compute.
        payload: What arrived, for a receive of something that has values; its bytes where both ends are raw.
        storage: Address of the buffer's storage, None where it has no memory to watch.
        start: Address of its first byte.
        end: One past its last.
        problem_noted: Whether it was not left alone.
        communication: Its place on a stream of its device, None where the device is one with the program.
        late: Whether the device has still to come to it.
        given: What was in the buffer of a send from a stream when it was posted.
        met: Fired when the other end is there, at no time: from then on a receive knows what comes; None where nobody
            asks.
        other: The other end, once it is there.
        failure: Why it can never be complete, "" while it can.
    """

    __slots__ = (
        *("end", "failure", "given", "late", "members", "met", "order", "other", "payload", "peer", "problem_noted"),
        *("rank", "raw", "row", "sends", "start", "storage", "communication", "tensor"),
    )

    def __init__(
        self, rank: VirtualRank, peer: int, tensor: torch.Tensor, row: Row, members: tuple[int, ...],
        *, sends: bool, plain: bool,
    ) -> None:  # fmt: skip
        self.ready_ns = None
        self.waiters = []
        self.rank, self.peer, self.tensor, self.row, self.members, self.sends = rank, peer, tensor, row, members, sends
        self.order = 0
        self.failure = ""
        self.payload: torch.Tensor | bytes | None = None
        self.problem_noted = False
        self.communication: Communication | None = None
        self.late = False
        self.met: Event | None = None
        self.given: torch.Tensor | bytes | None = None
        self.other: Posted | None = None
        self.storage: int | None = None
        if plain:
            self.raw = row.bytes > 0 and not (tensor.is_meta or tensor.is_neg() or tensor.is_conj())
        else:
            self.raw = False
        if self.raw:
            self.storage, self.start = tensor.untyped_storage().data_ptr(), tensor.data_ptr()
            self.end = self.start + row.bytes
        elif (extent := memory_of(tensor)) is not None:
            self.storage, self.start, self.end = extent
        if self.storage is not None:
            flights = rank.in_flight.get(self.storage)
            if flights is None:
                rank.in_flight[self.storage] = [self]
            else:
                flights.append(self)

    @property
    def sending(self) -> bool:
        """Whether what is in the buffer is being sent."""
        return self.sends

    @property
    def receiving(self) -> bool:
        """Whether the buffer is being received into."""
        return not self.sends

    def call(self) -> str:
        """Return what a report calls the call the buffer was given to."""
        return f"{self.row.kind}{at(self.row.source)}"

    @property
    def operation(self) -> str:
        """c10d's word, "isend" or "recv"."""
        return self.row.kind

    @property
    def source(self) -> str:
        """The learner's file:line."""
        return self.row.source

    def peers(self) -> list[int]:
        """Return the global ranks that the other end can come from."""
        return [one for one in self.members if one != self.rank.rank] if self.peer == ANY_SOURCE else [self.peer]

    def text(self) -> str:
        """Return "recv from rank 1"."""
        if self.peer == ANY_SOURCE:
            return f"{self.row.kind} from any rank{tagged(self.row.tag)}"
        return f"{self.row.kind} {'to' if self.sends else 'from'} rank {self.peer}{tagged(self.row.tag)}"

    def facts(self) -> dict[str, Any]:
        """Return what a report of a deadlock says of it, as labkit.deadlock.Waiting has it."""
        row, group = self.row, self.row.group
        return {"peer": self.peer, "tag": row.tag, "num_bytes": row.bytes, "group": group, "members": self.members}

    def finish(self) -> None:
        """Let go of the buffer, and write into it what arrived; raises RuntimeError where nothing ever will."""
        if self.storage is not None:
            flights = self.rank.in_flight[self.storage]
            if len(flights) == 1:
                del self.rank.in_flight[self.storage]
            else:
                flights.remove(self)
        if self.failure:
            raise RuntimeError(self.failure)
        payload, self.payload = self.payload, None
        tensor = self.tensor
        if self.communication is not None:
            with uncounted():  # the device may come here later, and the program has its buffer back
                self.tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        if payload is None:
            if not tensor.is_meta and not self.sends:
                forget(tensor)
            return
        if type(payload) is bytes and self.raw and tensor.data_ptr() == self.start and tensor.nbytes == len(payload):
            memmove(self.start, payload, len(payload))
            return
        with uncounted():
            if isinstance(payload, bytes):  # the buffer's storage is another one by now
                payload = torch.frombuffer(bytearray(payload), dtype=tensor.dtype)
            tensor.data.copy_(payload.view(tensor.shape))  # as gloo and NCCL write: autograd does not learn of it

    def peer_in_group(self) -> int:
        """Return the group rank at the other end."""
        return self.members.index(self.peer)


class Channel:
    """The ends that wait for each other at one rank, with one tag in one group."""

    def __init__(self) -> None:
        self.sends: dict[int, deque[Posted]] = {}
        self.receives: deque[Posted] = deque()
        self.any_source = False

    def take_send(self, src: int, now_ns: int) -> Posted | None:
        """Take the next send from src; from any rank, the one posted first, and none that lies in the future."""
        if src != ANY_SOURCE:
            queue = self.sends.get(src)
            return queue.popleft() if queue else None
        queues = [queue for queue in self.sends.values() if queue and queue[0].row.start_ns <= now_ns]
        if not queues:
            return None
        return min(queues, key=lambda queue: (queue[0].row.start_ns, queue[0].rank.rank)).popleft()

    def take_receive(self, src: int) -> Posted | None:
        """Take the next receive that names src."""
        for place, receive in enumerate(self.receives):
            if receive.peer == src:
                del self.receives[place]
                return receive
        return None


class Exchange:
    """The ends of messages that have not met yet.

    Which receive takes which send does not depend on time as long as every receive names its source; both ends may then
    meet as soon as both are posted, and only their bytes wait for their time. On a channel where a rank has received
    from any source, meeting too waits for its time.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._channels: dict[tuple[str, int, int], Channel] = {}
        self._order = 0
        self._lost: dict[int, str] = {}

    def post(self, posted: Posted, group: str, tag: int) -> None:
        """Take one end of a message; it meets the other if that is there already.

        Raises:
            RuntimeError: If the ends do not fit.
        """
        self._order += 1
        if posted.communication is not None and posted.sends:
            posted.given = _taken(posted)  # the program may write the buffer once its stream waits for the send
        posted.order = self._order
        rank, peer, row, sends = posted.rank, posted.peer, posted.row, posted.sends
        if peer in self._lost and posted.communication is None:
            self._fail(posted, self._lost[peer], row.start_ns)
            return
        key = (group, peer if sends else rank.rank, tag)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel()
        if peer == ANY_SOURCE and not channel.any_source:
            channel.any_source = True
            for each in [send for queue in channel.sends.values() for send in queue]:  # these did not know of it
                self._meet_at(channel, max(each.row.start_ns, row.start_ns))
        if channel.any_source:
            self._keep(channel, posted, sends=sends)
            self._meet_at(channel, row.start_ns)
            return
        other = channel.take_receive(rank.rank) if sends else channel.take_send(peer, row.start_ns)
        if other is None:
            self._keep(channel, posted, sends=sends)
        else:
            self._meet(*((posted, other) if sends else (other, posted)))

    def lost(self, rank: int, now_ns: int, text: str) -> None:
        """Let messages from and to a rank whose process has ended fail, as gloo's do; on streams the others wait."""
        self._lost[rank] = text
        for channel in self._channels.values():
            ends = [*channel.receives, *(posted for queue in channel.sends.values() for posted in queue)]
            for posted in ends:
                if posted.peer == rank and posted.communication is None:
                    queue = channel.sends[posted.rank.rank] if posted.sends else channel.receives
                    queue.remove(posted)
                    self._fail(posted, text, now_ns)

    def _fail(self, posted: Posted, text: str, now_ns: int) -> None:
        posted.failure, posted.row.failed = text, True
        self._simulation.scheduler.fire(posted, max(now_ns, posted.row.start_ns))

    def unmatched(self) -> Iterator[Noted]:
        """Yield a problem for each end that never met another."""
        channels = self._channels.values()
        sends = [posted for channel in channels for queue in channel.sends.values() for posted in queue]
        receives = [posted for channel in channels for posted in channel.receives]
        for left, kind in ((sends, "unmatched_send"), (receives, "unmatched_recv")):
            for posted in sorted(left, key=lambda one: one.order):
                yield Noted(kind, posted.rank.rank, _unmatched_text(posted, kind), posted.row)

    def _keep(self, channel: Channel, posted: Posted, *, sends: bool) -> None:
        if sends:
            channel.sends.setdefault(posted.rank.rank, deque()).append(posted)
        else:
            channel.receives.append(posted)

    def _meet_at(self, channel: Channel, at_ns: int) -> None:
        self._simulation.scheduler.act(at_ns, lambda: self._meet_in_time(channel, at_ns))

    def _meet_in_time(self, channel: Channel, now_ns: int) -> None:
        for receive in list(channel.receives):
            send = channel.take_send(receive.peer, now_ns)
            if send is not None:
                channel.receives.remove(receive)
                self._meet(send, receive)

    def _meet(self, send: Posted, receive: Posted) -> None:
        _check_fit(send, receive)
        receive.peer = receive.row.peer = send.rank.rank
        send.row.flow = receive.row.flow = next(self._simulation.flows)
        if send.late or receive.late:
            send.other, receive.other = receive, send
        if receive.communication is not None:
            receive.payload = _taken(send) if send.communication is None else send.given
        for one in (send, receive):
            if one.met is not None:
                self._simulation.scheduler.fire(one.met, 0)
        if not (send.late or receive.late):
            self._settle(send, receive)

    def reached(self, posted: Posted) -> None:
        """Note that the device has come to this end of a message."""
        posted.late = False
        other = posted.other
        if other is not None and not other.late:
            self._settle(*((posted, other) if posted.sends else (other, posted)))

    def _settle(self, send: Posted, receive: Posted) -> None:
        send.other = receive.other = None  # nobody keeps the other's buffer
        now_ns = max(send.row.start_ns, receive.row.start_ns)
        self._simulation.scheduler.act(now_ns, lambda: self._transfer(send, receive, now_ns))

    def _transfer(self, send: Posted, receive: Posted, now_ns: int) -> None:
        simulation = self._simulation
        if simulation.network.is_cut(((send.rank.rank, receive.rank.rank),)):
            return  # its bytes never come
        way = simulation.network.transfer(send.rank.rank, receive.rank.rank, send.row.bytes, now_ns)
        send.row.end_ns, receive.row.end_ns = way.left_ns, way.there_ns
        send.row.moves, receive.row.moves = ((way.leaves_ns, way.left_ns),), ((way.comes_ns, way.there_ns),)
        if receive.communication is None:
            receive.payload = _taken(send) if send.communication is None else send.given
        for one in (send, receive):
            if one.communication is not None:
                one.rank.device.finish(one.communication, one.row.moves[0][0], one.row.end_ns)
        simulation.scheduler.fire(send, way.left_ns)
        simulation.scheduler.fire(receive, way.there_ns)


def _taken(send: Posted) -> torch.Tensor | bytes | None:
    """Return what is in the buffer of a send now, None where it has no values."""
    accelerator = send.rank.process.accelerator
    if accelerator is not None and accelerator.shapes and is_stand_in(send.tensor):
        return None
    if send.raw and send.tensor.data_ptr() == send.start:
        return string_at(send.start, send.end - send.start)
    if send.tensor.is_meta:
        return None
    with uncounted():
        return send.tensor.clone(memory_format=torch.contiguous_format)


def _check_fit(send: Posted, receive: Posted) -> None:
    if send.tensor.numel() == receive.tensor.numel() and send.tensor.dtype == receive.tensor.dtype:
        return
    raise RuntimeError(
        f"Rank {send.rank.rank} sent {_describe(send.tensor)} to rank {receive.rank.rank}{at(send.row.source)}, "
        f"which receives into {_describe(receive.tensor)}{at(receive.row.source)}. "
        "Both ends of a message need the same number of elements and the same dtype."
    )


def _describe(tensor: torch.Tensor) -> str:
    return f"{tensor.numel()} x {str(tensor.dtype).removeprefix('torch.')}"


def _unmatched_text(posted: Posted, kind: str) -> str:
    rank, peer, where = posted.rank.rank, posted.peer, at(posted.row.source)
    size, word = format_bytes(posted.row.bytes), posted.row.kind
    if kind == "unmatched_send":
        return f"Rank {rank} posted {word} of {size} to rank {peer}{where}, and rank {peer} has no receive for it."
    if peer == ANY_SOURCE:
        return f"Rank {rank} posted {word} of {size} from any rank{where}, and nothing came."
    return f"Rank {rank} posted {word} of {size} from rank {peer}{where}, and rank {peer} has no send for it."
