"""What comes of the plans of all ranks: who sent what to whom in which step, what every chunk then holds, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.plans.all_reduce_plan import Fault
from labkit.words import ranks_in_words


@dataclass(frozen=True)
class Content:
    """What a chunk of a rank holds.

    Attributes:
        counts: For each rank, how often its contribution is in the sum.
        foreign: Whether numbers of another chunk are in it.
    """

    counts: tuple[int, ...]
    foreign: bool = False

    @property
    def mask(self) -> int:
        """Return a number in which bit r is set where rank r's contribution is in it."""
        return sum(1 << rank for rank, count in enumerate(self.counts) if count)

    @property
    def wrong(self) -> bool:
        """Return whether it holds another chunk's numbers, or a contribution twice."""
        return self.foreign or max(self.counts) > 1

    @property
    def complete(self) -> bool:
        """Return whether it holds every contribution once, and nothing else."""
        return not self.foreign and set(self.counts) == {1}

    def plus(self, other: Content) -> Content:
        """Return the sum of both."""
        together = tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True))
        return Content(together, self.foreign or other.foreign)


@dataclass(frozen=True)
class Transfer:
    """One message.

    Attributes:
        src: The rank that sends.
        chunk: What it sends.
        dst: The rank it sends to.
        into: The chunk that rank receives it into; -1 where it does not receive it.
        wrong: Whether that is not the same chunk, or nobody receives it.
        reduced: Whether it is added to what was there.
    """

    src: int
    chunk: int
    dst: int
    into: int
    wrong: bool = False
    reduced: bool = False


@dataclass(frozen=True)
class Write:
    """What a chunk of a rank holds after a step that changed it."""

    rank: int
    chunk: int
    content: Content


@dataclass(frozen=True)
class Step:
    """One step of all ranks; a message counts to the step in which it is received.

    Attributes:
        number: As the plans number it.
        transfers: By source and destination.
        writes: By rank and chunk.
    """

    number: int
    transfers: tuple[Transfer, ...]
    writes: tuple[Write, ...]


@dataclass(frozen=True)
class Timed:
    """A message and when it is under way, in seconds; step is its place among the steps."""

    transfer: Transfer
    step: int
    start: float
    end: float


@dataclass(frozen=True)
class Outcome:
    """What came of the plans.

    Attributes:
        num_ranks: Ranks.
        num_chunks: Chunks of each rank.
        steps: In order.
        faults: In the order they were found: those of records, rank by rank, come before those of the execution.
    """

    num_ranks: int
    num_chunks: int
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def messages(self) -> tuple[Transfer, ...]:
        """Return every message, step by step."""
        return tuple(transfer for step in self.steps for transfer in step.transfers)

    def contents(self, num_steps: int | None = None) -> list[list[Content]]:
        """Return [rank][chunk] -> what it holds after so many steps; None is all."""
        held = at_first(self.num_ranks, self.num_chunks)
        for step in self.steps[:num_steps]:
            for write in step.writes:
                held[write.rank][write.chunk] = write.content
        return held

    def complete_chunks(self, step: int | None = None) -> list[list[int]]:
        """Return for each rank the chunks that hold every contribution once, after a step; None is the last."""
        held = self.contents(None if step is None else step + 1)
        return [[chunk for chunk, content in enumerate(chunks) if content.complete] for chunks in held]

    def num_complete(self) -> int:
        """Return how many chunks, over all ranks, are complete at the end."""
        return sum(map(len, self.complete_chunks()))

    def place_of(self, fault: Fault) -> int:
        """Return the place of a fault's step among the steps, the last one for what is wrong at the end."""
        numbers = [step.number for step in self.steps]
        return numbers.index(fault.step) if fault.step in numbers else len(numbers) - 1

    def timed(self, num_bytes: float, latency_s: float, bandwidth_Bps: float) -> list[Timed]:  # noqa: N803  B/s
        """Return when each message is under way: a step begins when both ranks have ended the one before.

        Args:
            num_bytes: Of all chunks of a rank.
            latency_s: Latency of a message, in seconds.
            bandwidth_Bps: Rate of a link, bytes per second.
        """
        lasts = latency_s + num_bytes / self.num_chunks / bandwidth_Bps
        ready, found = [0.0] * self.num_ranks, []
        for place, step in enumerate(self.steps):
            ends = list(ready)
            for transfer in step.transfers:
                start = max(ready[transfer.src], ready[transfer.dst])
                found.append(Timed(transfer, place, start, start + lasts))
                for rank in (transfer.src, transfer.dst):
                    ends[rank] = max(ends[rank], start + lasts)
            ready = ends
        return found

    def seconds(self, num_bytes: float, latency_s: float, bandwidth_Bps: float) -> float:  # noqa: N803  B/s
        """Return when the last message has arrived (see timed)."""
        return max((each.end for each in self.timed(num_bytes, latency_s, bandwidth_Bps)), default=0.0)


def at_first(num_ranks: int, num_chunks: int) -> list[list[Content]]:
    """Return [rank][chunk] -> that rank's own contribution."""
    return [
        [Content(tuple(int(source == rank) for source in range(num_ranks)))] * num_chunks for rank in range(num_ranks)
    ]


def missing(held: Sequence[Sequence[Content]]) -> list[Fault]:
    """Return a fault for each rank that at the end lacks contributions, of its first such chunk."""
    faults = []
    for rank, chunks in enumerate(held):
        poor = [chunk for chunk, content in enumerate(chunks) if not content.wrong and not content.complete]
        if poor:
            absent = [source for source, count in enumerate(chunks[poor[0]].counts) if not count]
            more = f", and {len(poor) - 1} more of its chunks lack some" if len(poor) > 1 else ""
            what = f"the contribution{'s' * (len(absent) > 1)} of {ranks_in_words(absent)}"
            faults.append(Fault("missing", f"At the end c{poor[0]} on rank {rank} lacks {what}{more}.", rank))
    return faults
