"""What the plans of all ranks do together, step by step, with everything that is wrong in them and where.

A plan is what lesson 02 calls one: a list of Send(step, chunk, peer), Recv(step, chunk, peer) and Reduce(step, chunk).
Here a step is carried out by all ranks at once, and a mistake does not end it: a picture shows what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.errors import ConfigError

_KINDS = ("Send", "Recv", "Reduce")


@dataclass(frozen=True)
class Transfer:
    """One message of a step.

    Attributes:
        src: The rank that sends.
        chunk: What it sends.
        dst: The rank it sends to.
        into: The chunk that rank receives it into; -1 where it does not receive it.
        wrong: Whether that is not the same chunk, or nobody receives it.
    """

    src: int
    chunk: int
    dst: int
    into: int
    wrong: bool = False


@dataclass(frozen=True)
class Write:
    """What a chunk of a rank holds after a step that changed it.

    Attributes:
        rank: Whose chunk.
        chunk: Its number.
        mask: Bit r is set where rank r's contribution is in it.
        wrong: Whether it holds another chunk's numbers, or a contribution twice.
    """

    rank: int
    chunk: int
    mask: int
    wrong: bool = False


@dataclass(frozen=True)
class Step:
    """One step of all ranks."""

    transfers: tuple[Transfer, ...]
    writes: tuple[Write, ...]


@dataclass(frozen=True)
class Fault:
    """Something wrong: in which step (counted from 0), on which rank, and a sentence for the learner."""

    step: int
    rank: int
    text: str


@dataclass(frozen=True)
class Played:
    """What came of the plans.

    Attributes:
        num_ranks: Ranks.
        steps: In order.
        faults: In the order they appear.
        num_chunks: Chunks of each rank; 0: as many as ranks.
    """

    num_ranks: int
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...] = ()
    num_chunks: int = 0

    def state(self, num_steps: int | None = None) -> list[list[tuple[int, bool]]]:
        """Return [rank][chunk] -> (mask, wrong) after so many steps; None is all."""
        state = [[(1 << rank, False)] * (self.num_chunks or self.num_ranks) for rank in range(self.num_ranks)]
        for step in self.steps[:num_steps]:
            for write in step.writes:
                state[write.rank][write.chunk] = write.mask, write.wrong
        return state

    def complete_chunks(self, step: int | None = None) -> list[list[int]]:
        """Return for each rank the chunks that hold every contribution once, after a step; None is the last."""
        full = (1 << self.num_ranks) - 1, False
        state = self.state(None if step is None else step + 1)
        return [[chunk for chunk, content in enumerate(chunks) if content == full] for chunks in state]

    def num_complete(self) -> int:
        """Return how many chunks, over all ranks, are complete at the end."""
        return sum(map(len, self.complete_chunks()))


def records_of(plan: Any, rank: int) -> list[dict[str, Any]]:
    """Return a plan's records as data: kind, step, chunk and, of Send and Recv, peer.

    Raises:
        ConfigError: If it is no list of such records.
    """
    if isinstance(plan, str | Mapping) or not isinstance(plan, Sequence):
        raise ConfigError(
            f"The plan of rank {rank} is a {type(plan).__name__}; a plan is a list of Send, Recv and Reduce records."
        )
    found = []
    for position, record in enumerate(plan):
        data = dict(record) if isinstance(record, Mapping) else {"kind": type(record).__name__}
        kind = data["kind"]
        wanted = ("step", "chunk") if kind == "Reduce" else ("step", "chunk", "peer")
        if kind not in _KINDS:
            raise ConfigError(
                f"Record {position} of rank {rank}'s plan is a {kind}; a plan holds Send, Recv and Reduce records."
            )
        for word in wanted:
            value = data[word] if word in data else getattr(record, word, None)
            if not isinstance(value, int) or isinstance(value, bool):
                place = f"Record {position} of rank {rank}'s plan, a {kind}"
                raise ConfigError(f"{place}, has {word}={value!r}; it must be a whole number.")
            data[word] = value
        found.append(data)
    return found


def play(plans: Sequence[Any], num_chunks: int = 0) -> Played:
    """Return what the plans of ranks 0, 1, ... do together; every rank starts with its own numbers in every chunk.

    Args:
        plans: One plan for each rank.
        num_chunks: Chunks of each rank; 0: as many as ranks.

    Raises:
        ConfigError: If one is no list of Send, Recv and Reduce records.
    """
    num_ranks = len(plans)
    by_step: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for rank, plan in enumerate(plans):
        for record in records_of(plan, rank):
            by_step.setdefault(record["step"], []).append((rank, record))
    state = [[(1 << rank, False)] * (num_chunks or num_ranks) for rank in range(num_ranks)]
    steps: list[Step] = []
    faults: list[Fault] = []
    for place, number in enumerate(sorted(by_step)):
        step, found = _step(number, by_step[number], state)
        for write in step.writes:
            state[write.rank][write.chunk] = write.mask, write.wrong
        steps.append(step)
        faults += [Fault(place, rank, text) for rank, text in found]
    faults += missing(state, len(steps) - 1)
    return Played(num_ranks, tuple(steps), tuple(faults), num_chunks)


def _step(
    number: int, records: Sequence[tuple[int, dict[str, Any]]], state: Sequence[Sequence[tuple[int, bool]]]
) -> tuple[Step, list[tuple[int, str]]]:
    size = len(state)
    limits = {"chunk": len(state[0]), "peer": size}
    faults: list[tuple[int, str]] = []
    kept = []
    for rank, record in records:
        outside = next((word for word, limit in limits.items() if not 0 <= record.get(word, 0) < limit), None)
        if outside is None:
            kept.append((rank, record))
        else:
            limit = limits[outside]
            what = f"a {record['kind']} with {outside} {record[outside]}; there are {outside}s 0 to {limit - 1}"
            faults.append((rank, f"Step {number}: rank {rank} has {what}. Take the number modulo {limit}."))
    sends = [(rank, record["chunk"], record["peer"]) for rank, record in kept if record["kind"] == "Send"]
    reduced = {(rank, record["chunk"]) for rank, record in kept if record["kind"] == "Reduce"}
    transfers, writes, taken = [], [], set()
    for rank, record in kept:
        if record["kind"] != "Recv":
            continue
        chunk, peer = record["chunk"], record["peer"]
        mine = [at for at, (src, _, dst) in enumerate(sends) if (src, dst) == (peer, rank) and at not in taken]
        if not mine:
            faults.append(
                (rank, f"Step {number}: rank {rank} waits for c{chunk} from rank {peer}, which sends it nothing.")
            )
            continue
        taken.add(mine[0])
        sent = sends[mine[0]][1]
        if sent != chunk:
            faults.append((rank, f"Step {number}: rank {rank} expected c{chunk} from rank {peer}, got c{sent}."))
        transfers.append(Transfer(peer, sent, rank, chunk, sent != chunk))
        (mask, wrong), (held, was_wrong) = state[peer][sent], state[rank][chunk]
        wrong = wrong or sent != chunk
        if (rank, chunk) in reduced:
            if twice := [source for source in range(size) if mask & held & (1 << source)]:
                says = f"adds rank {twice[0]}'s contribution to c{chunk} a second time"
                faults += [] if wrong or was_wrong else [(rank, f"Step {number}: rank {rank} {says}.")]
                wrong = True
            mask, wrong = mask | held, wrong or was_wrong
        writes.append(Write(rank, chunk, mask, wrong))
    for at, (src, chunk, dst) in enumerate(sends):
        if at not in taken:
            transfers.append(Transfer(src, chunk, dst, -1, True))
            faults.append((src, f"Step {number}: rank {src} sends c{chunk} to rank {dst}, which does not receive it."))
    for rank, chunk in sorted(reduced - {(write.rank, write.chunk) for write in writes}):
        faults.append((rank, f"Step {number}: rank {rank} reduces c{chunk}, but nothing arrived for it."))
    transfers.sort(key=lambda transfer: (transfer.src, transfer.dst))
    writes.sort(key=lambda write: (write.rank, write.chunk))
    return Step(tuple(transfers), tuple(writes)), faults


def missing(state: Sequence[Sequence[tuple[int, bool]]], last: int) -> list[Fault]:
    """Return a fault for each rank that at the end lacks contributions, of its first such chunk."""
    size = len(state)
    faults = []
    for rank, chunks in enumerate(state):
        poor = [chunk for chunk, (mask, wrong) in enumerate(chunks) if not wrong and mask != (1 << size) - 1]
        if poor:
            absent = [str(source) for source in range(size) if not chunks[poor[0]][0] & (1 << source)]
            more = f" (and {len(poor) - 1} more of its chunks)" if len(poor) > 1 else ""
            ranks = f"rank{'s' * (len(absent) > 1)} {', '.join(absent)}"
            faults.append(Fault(last, rank, f"At the end c{poor[0]} on rank {rank} lacks {ranks}{more}."))
    return faults
