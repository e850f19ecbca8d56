"""Execute the plans of all ranks on sets of contributions instead of numbers, and say in words where they go wrong.

Each rank goes through its steps on its own. A step posts all of its messages together and is over when they have
arrived; the messages from one rank to another arrive in the order they were sent, whatever their steps. A mistake does
not end the execution: what has no partner is left out, so that a picture can show what comes of it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from labkit.plans.all_reduce_facts import Content, Outcome, Step, Transfer, Write, at_first, missing
from labkit.plans.all_reduce_plan import Fault, Record, Recv, Reduce, Send, read_plan


def execute(plans: Sequence[object], num_chunks: int = 0) -> Outcome:
    """Return what the plans of ranks 0, 1, ... do together; every rank starts with its own numbers in every chunk.

    Args:
        plans: One plan for each rank, as read_plan takes it; entries that are no record, or name a chunk or a peer that
            is not there, are faults and left out.
        num_chunks: Chunks of each rank; 0: as many as ranks.
    """
    num_ranks = len(plans)
    chunks = num_chunks or num_ranks
    faults: list[Fault] = []
    batches: list[list[_Batch]] = []
    for rank, plan in enumerate(plans):
        records, wrong = read_plan(plan, rank)
        mine, in_order = _batches(rank, records, num_ranks, chunks)
        batches.append(mine)
        faults += [*wrong, *in_order]
    execution = _Execution(batches, at_first(num_ranks, chunks), faults)
    execution.run()
    return Outcome(num_ranks, chunks, execution.steps(), (*faults, *missing(execution.held)))


@dataclass
class _Batch:
    """What a rank does in a step."""

    step: int
    sends: list[Send] = field(default_factory=list)
    recvs: list[Recv] = field(default_factory=list)
    reduces: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Message:
    """A message on its way, with what its chunk held when it was sent."""

    send: Send
    content: Content


def _batches(rank: int, records: Sequence[Record], num_ranks: int, num_chunks: int) -> tuple[list[_Batch], list[Fault]]:
    """Return a rank's steps in order, and what is wrong with its plan alone."""
    faults: list[Fault] = []
    batches: dict[int, _Batch] = {}
    before: int | None = None
    for record in records:
        if before is not None and record.step < before:
            text = f"Rank {rank}'s plan goes back from step {before} to step {record.step}; number the steps on."
            faults.append(Fault("backwards", text, rank, record.step))
        before = record.step
        batch = batches.setdefault(record.step, _Batch(record.step))
        if wrong := _outside(rank, record, num_ranks, num_chunks):
            faults.append(wrong)
        elif isinstance(record, Send):
            batch.sends.append(record)
        elif isinstance(record, Recv):
            batch.recvs.append(record)
        else:
            batch.reduces.append(record.chunk)
    ordered = [batches[step] for step in sorted(batches)]
    for batch in ordered:
        faults += _of_one_step(rank, batch)
    return ordered, faults


def _outside(rank: int, record: Record, num_ranks: int, num_chunks: int) -> Fault | None:
    """Return a fault if there is no such chunk or peer."""
    numbers = [("chunk", record.chunk, num_chunks)]
    numbers += [] if isinstance(record, Reduce) else [("peer", record.peer, num_ranks)]
    kind = type(record).__name__
    for word, number, limit in numbers:
        what = f"Step {record.step}: rank {rank} has a {kind} with {word} {number}"
        if not 0 <= number < limit:
            says = f"{what}; there are {word}s 0 to {limit - 1}. Take the number modulo {limit}."
            return Fault("outside", says, rank, record.step)
        if word == "peer" and number == rank:
            return Fault("itself", f"{what}, which is itself.", rank, record.step)
    return None


def _of_one_step(rank: int, batch: _Batch) -> list[Fault]:
    """Return what cannot be in one step of one rank."""
    received = {recv.chunk for recv in batch.recvs}
    found: list[Fault] = []
    for chunk in batch.reduces:
        if chunk not in received:
            text = f"Step {batch.step}: rank {rank} reduces c{chunk}, but nothing arrived for it."
            found.append(Fault("nothing_to_reduce", text, rank, batch.step))
    for send in batch.sends:
        if send.chunk in received:
            what = f"rank {rank} sends c{send.chunk} to rank {send.peer} and receives into it"
            text = f"Step {batch.step}: {what}; the plan does not say which comes first."
            found.append(Fault("race", text, rank, batch.step))
    return found


class _Execution:
    """Where every rank stands, and what is on its way.

    Attributes:
        held: [rank][chunk] -> what it holds now.
    """

    def __init__(self, batches: list[list[_Batch]], held: list[list[Content]], faults: list[Fault]) -> None:
        self.held = held
        self._batches = batches
        self._faults = faults
        self._at = [0] * len(batches)
        self._posted = [False] * len(batches)
        self._arrived: list[list[_Message | None]] = [[] for _ in batches]
        self._mail: dict[tuple[int, int], deque[_Message]] = defaultdict(deque)
        self._transfers: dict[int, list[Transfer]] = {batch.step: [] for mine in batches for batch in mine}
        self._writes: dict[int, dict[tuple[int, int], Content]] = {step: {} for step in self._transfers}

    def run(self) -> None:
        """Go on until every plan has ended; where nobody can, leave out what the earliest step waits for."""
        while waiting := [rank for rank, mine in enumerate(self._batches) if self._at[rank] < len(mine)]:
            moved = [self._goes_on(rank) for rank in waiting]
            if not any(moved):
                self._leave_out(waiting)

    def steps(self) -> tuple[Step, ...]:
        """Return what happened, step by step."""
        return tuple(
            Step(
                number,
                tuple(sorted(self._transfers[number], key=lambda transfer: (transfer.src, transfer.dst))),
                tuple(Write(rank, chunk, content) for (rank, chunk), content in sorted(self._writes[number].items(),
                                                                                      key=lambda item: item[0])),
            )
            for number in sorted(self._transfers)
        )  # fmt: skip

    def _now(self, rank: int) -> _Batch:
        return self._batches[rank][self._at[rank]]

    def _goes_on(self, rank: int) -> bool:
        """Return whether the rank could do anything: post its step, take a message, or end its step."""
        batch, moved = self._now(rank), False
        if not self._posted[rank]:
            for send in batch.sends:
                self._mail[rank, send.peer].append(_Message(send, self.held[rank][send.chunk]))
            self._arrived[rank] = [None] * len(batch.recvs)
            self._posted[rank] = moved = True
        for index, recv in enumerate(batch.recvs):
            box = self._mail[recv.peer, rank]
            earlier = any(
                self._arrived[rank][other] is None and batch.recvs[other].peer == recv.peer for other in range(index)
            )
            if self._arrived[rank][index] is None and box and not earlier:
                self._arrived[rank][index] = self._taken(rank, recv, box.popleft())
                moved = True
        if None not in self._arrived[rank] and not any(self._unread(rank)):
            self._end_step(rank)
            moved = True
        return moved

    def _taken(self, rank: int, recv: Recv, message: _Message) -> _Message:
        """Return a message as it arrives in the chunk that it is received into."""
        send, differs = message.send, message.send.chunk != recv.chunk
        if differs:
            later = "" if send.step == recv.step else f", which it sends in step {send.step}"
            what = f"rank {rank} expected c{recv.chunk} from rank {recv.peer}, got c{send.chunk}{later}"
            self._faults.append(Fault("chunk_mismatch", f"Step {recv.step}: {what}.", rank, recv.step))
        reduced = recv.chunk in self._now(rank).reduces
        self._transfers[recv.step].append(Transfer(recv.peer, send.chunk, rank, recv.chunk, differs, reduced))
        return _Message(send, replace(message.content, foreign=True)) if differs else message

    def _unread(self, rank: int) -> list[Send]:
        """Return what the rank sent in the step it is in and nobody has received yet."""
        step, peers = self._now(rank).step, {send.peer for send in self._now(rank).sends}
        return [
            message.send
            for peer in sorted(peers)
            for message in self._mail[rank, peer]
            if message.send.step == step
        ]  # fmt: skip

    def _end_step(self, rank: int) -> None:
        batch, chunks = self._now(rank), self.held[rank]
        for recv, message in zip(batch.recvs, self._arrived[rank], strict=True):
            if message is None:
                continue
            new, old = message.content, chunks[recv.chunk]
            if recv.chunk in batch.reduces:
                together = old.plus(new)
                if together.wrong and not (old.wrong or new.wrong):
                    source = next(source for source, count in enumerate(together.counts) if count > 1)
                    what = f"rank {rank} adds rank {source}'s contribution to c{recv.chunk} a second time"
                    self._faults.append(Fault("twice", f"Step {batch.step}: {what}.", rank, batch.step))
                new = together
            chunks[recv.chunk] = self._writes[batch.step][rank, recv.chunk] = new
        self._at[rank] += 1
        self._posted[rank] = False

    def _leave_out(self, waiting: Sequence[int]) -> None:
        """End the earliest step that any rank stands in, without the messages that it waits for; say which they are.

        All earlier steps are over and all sends of this one are posted, so these have no partner in this step.
        """
        earliest = min(self._now(rank).step for rank in waiting)
        stuck = [rank for rank in waiting if self._now(rank).step == earliest]
        faults = [self._waits(rank, recv) for rank in stuck for recv in self._pending(rank)]
        faults += [self._is_unread(rank, send) for rank in stuck for send in self._unread(rank)]
        self._faults += faults
        for rank in stuck:
            for send in self._unread(rank):
                self._transfers[earliest].append(Transfer(rank, send.chunk, send.peer, -1, wrong=True))
                box = self._mail[rank, send.peer]
                self._mail[rank, send.peer] = deque(message for message in box if message.send is not send)
        for rank in stuck:
            self._end_step(rank)

    def _pending(self, rank: int) -> list[Recv]:
        arrived = zip(self._now(rank).recvs, self._arrived[rank], strict=True)
        return [recv for recv, message in arrived if message is None]

    def _waits(self, rank: int, recv: Recv) -> Fault:
        what = f"Step {recv.step}: rank {rank} waits for c{recv.chunk} from rank {recv.peer}, which sends"
        sends, recvs = self._still(recv.peer, rank)
        if sends and len(sends) >= len(recvs):
            return Fault("deadlock", f"{what} it in step {sends[0].step} only.", rank, recv.step)
        return Fault("unmatched", f"{what} it nothing.", rank, recv.step)

    def _is_unread(self, rank: int, send: Send) -> Fault:
        what = f"Step {send.step}: rank {rank} sends c{send.chunk} to rank {send.peer}, which"
        sends, recvs = self._still(rank, send.peer)
        if recvs and len(recvs) >= len(sends):
            return Fault("deadlock", f"{what} receives it in step {recvs[0].step} only.", rank, send.step)
        return Fault("unmatched", f"{what} does not receive it.", rank, send.step)

    def _still(self, src: int, dst: int) -> tuple[list[Send], list[Recv]]:
        """Return what is still to be sent and received from one rank to another."""
        later = [self._batches[rank][self._at[rank] + self._posted[rank] :] for rank in (src, dst)]
        sends = [message.send for message in self._mail[src, dst]]
        sends += [send for batch in later[0] for send in batch.sends if send.peer == dst]
        recvs = self._pending(dst) if self._posted[dst] else []
        recvs = [recv for recv in recvs if recv.peer == src]
        return sends, recvs + [recv for batch in later[1] for recv in batch.recvs if recv.peer == src]
