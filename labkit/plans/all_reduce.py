"""Execute the plans of all ranks on sets of contributions instead of numbers, and say in words where they go wrong."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from labkit.words import join, ranks_in_words, times

Record: TypeAlias = Mapping[str, Any]
Content: TypeAlias = Counter[int]
"""What a chunk holds: for each rank, how many times its contribution is in the sum."""


@dataclass(frozen=True)
class PlanOutcome:
    """What became of the plans.

    Attributes:
        problem: The first thing that went wrong, in a sentence, or "".
        kind: "", "form", "unmatched", "deadlock", "chunk_mismatch", "twice", "race" or "missing".
        contents: contents[rank][chunk] when execution stopped.
        where: (rank, step) of the problem, or None.
    """

    problem: str
    kind: str
    contents: tuple[tuple[Content, ...], ...]
    where: tuple[int, int] | None = None


@dataclass
class _Batch:
    step: int
    sends: list[tuple[int, int]] = field(default_factory=list)  # (chunk, peer)
    recvs: list[tuple[int, int]] = field(default_factory=list)
    reduces: list[int] = field(default_factory=list)


class _PlanError(Exception):
    def __init__(self, kind: str, text: str, where: tuple[int, int] | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.where = where


def interpret(plans: Sequence[Sequence[Record]], num_chunks: int) -> PlanOutcome:
    """Return what all ranks' plans do together, one batch of messages per step, starting from each rank's own data.

    Args:
        plans: For each rank its records: {"kind": "Send" | "Recv", "step", "chunk", "peer"} or {"kind": "Reduce", ...}.
        num_chunks: Chunks of each rank.
    """
    world_size = len(plans)
    contents = [[Counter({rank: 1}) for _ in range(num_chunks)] for rank in range(world_size)]
    try:
        batches = [_batches(rank, plan, world_size, num_chunks) for rank, plan in enumerate(plans)]
        _execute(batches, contents)
        _require_complete(contents)
    except _PlanError as error:
        return PlanOutcome(str(error), error.kind, _frozen(contents), error.where)
    return PlanOutcome("", "", _frozen(contents))


def _frozen(contents: list[list[Content]]) -> tuple[tuple[Content, ...], ...]:
    return tuple(tuple(Counter(chunk) for chunk in chunks) for chunks in contents)


def _batches(rank: int, plan: Sequence[Record], world_size: int, num_chunks: int) -> list[_Batch]:
    batches: list[_Batch] = []
    for position, record in enumerate(plan):
        kind, step, chunk = record.get("kind"), record.get("step"), record.get("chunk")
        place = f"record {position} of rank {rank}'s plan"
        if kind not in ("Send", "Recv", "Reduce"):
            raise _PlanError("form", f"{place} is a {kind}; a plan holds Send, Recv and Reduce records.")
        if not isinstance(step, int) or not isinstance(chunk, int):
            raise _PlanError("form", f"{place} has step {step} and chunk {chunk}; both must be whole numbers.")
        if not 0 <= chunk < num_chunks:
            raise _PlanError(
                "form",
                f"{place}, a {kind} of step {step}, names chunk {chunk}; there are chunks 0 to {num_chunks - 1}. Take "
                f"the number modulo {num_chunks}.",
                (rank, step),
            )
        if not batches or batches[-1].step != step:
            if batches and step < batches[-1].step:
                raise _PlanError("form", f"{place} goes back from step {batches[-1].step} to step {step}.")
            batches.append(_Batch(step))
        batch = batches[-1]
        if kind == "Reduce":
            batch.reduces.append(chunk)
            continue
        peer = record.get("peer")
        if not isinstance(peer, int) or not 0 <= peer < world_size or peer == rank:
            raise _PlanError(
                "form",
                f"{place}, a {kind} of step {step}, names peer {peer}; rank {rank} of {world_size} can talk to "
                f"{ranks_in_words(r for r in range(world_size) if r != rank)}.",
                (rank, step),
            )
        (batch.sends if kind == "Send" else batch.recvs).append((chunk, peer))
    for batch in batches:
        _check_batch(rank, batch)
    return batches


def _check_batch(rank: int, batch: _Batch) -> None:
    received = [chunk for chunk, _ in batch.recvs]
    for chunk in batch.reduces:
        if chunk not in received:
            raise _PlanError(
                "form",
                f"In step {batch.step} rank {rank} reduces chunk {chunk} but receives "
                f"{join(f'chunk {c}' for c in received) if received else 'nothing'} in that step; there is nothing "
                f"to add.",
                (rank, batch.step),
            )
    for chunk, peer in batch.sends:
        if chunk in received:
            raise _PlanError(
                "race",
                f"In step {batch.step} rank {rank} sends chunk {chunk} to rank {peer} and receives into the same "
                "chunk; which of the two comes first is not said.",
                (rank, batch.step),
            )


def _execute(batches: list[list[_Batch]], contents: list[list[Content]]) -> None:
    world_size = len(batches)
    at = [0] * world_size
    posted = [False] * world_size
    # Messages on their way: (chunk, step, content) of each pair of ranks, in the order they were sent.
    mail: dict[tuple[int, int], deque[tuple[int, int, Content]]] = {}
    unread = [0] * world_size
    arrived: list[list[Content | None]] = [[] for _ in range(world_size)]
    progress = True
    while progress:
        progress = False
        for rank in range(world_size):
            if at[rank] >= len(batches[rank]):
                continue
            batch = batches[rank][at[rank]]
            if not posted[rank]:
                for chunk, peer in batch.sends:
                    mail.setdefault((rank, peer), deque()).append((chunk, batch.step, Counter(contents[rank][chunk])))
                    unread[rank] += 1
                arrived[rank] = [None] * len(batch.recvs)
                posted[rank] = progress = True
            for index, (chunk, peer) in enumerate(batch.recvs):
                box = mail.get((peer, rank))
                earlier = any(arrived[rank][other] is None and batch.recvs[other][1] == peer for other in range(index))
                if arrived[rank][index] is None and box and not earlier:
                    sent_chunk, sent_step, content = box.popleft()
                    if sent_chunk != chunk:
                        raise _PlanError(
                            "chunk_mismatch",
                            f"Rank {peer} sends chunk {sent_chunk} to rank {rank} (its step {sent_step}), but rank "
                            f"{rank} receives that message into chunk {chunk} (its step {batch.step}).",
                            (rank, batch.step),
                        )
                    arrived[rank][index] = content
                    unread[peer] -= 1
                    progress = True
            if None not in arrived[rank] and unread[rank] == 0:
                _finish(rank, batch, arrived[rank], contents[rank])
                at[rank] += 1
                posted[rank] = False
                progress = True
    waiting = [rank for rank in range(world_size) if at[rank] < len(batches[rank])]
    if waiting:
        _report_waiting(waiting, [batches[rank][at[rank]] for rank in waiting], arrived, mail, at, batches)


def _finish(rank: int, batch: _Batch, arrived: Sequence[Content | None], chunks: list[Content]) -> None:
    for (chunk, peer), content in zip(batch.recvs, arrived, strict=True):
        assert content is not None
        if chunk not in batch.reduces:
            chunks[chunk] = Counter(content)
            continue
        chunks[chunk] += content
        twice = {source: count for source, count in chunks[chunk].items() if count > 1}
        if twice:
            source, count = min(twice.items())
            raise _PlanError(
                "twice",
                f"After step {batch.step} rank {rank} holds chunk {chunk} with the contribution of rank {source} "
                f"{times(count)}: what came from rank {peer} was added to a chunk that had it already.",
                (rank, batch.step),
            )


def _report_waiting(
    waiting: list[int],
    standing: list[_Batch],
    arrived: list[list[Content | None]],
    mail: dict[tuple[int, int], deque[tuple[int, int, Content]]],
    at: list[int],
    batches: list[list[_Batch]],
) -> None:
    lines = []
    alone = False
    for rank, batch in zip(waiting, standing, strict=True):
        for (chunk, peer), content in zip(batch.recvs, arrived[rank], strict=True):
            if content is None:
                ended = at[peer] >= len(batches[peer])
                alone |= ended
                lines.append(
                    f"rank {rank} waits in step {batch.step} for chunk {chunk} from rank {peer}"
                    + (", whose plan has ended" if ended else "")
                )
        for chunk, peer in batch.sends:
            if any(item[1] == batch.step and item[0] == chunk for item in mail.get((rank, peer), ())):
                ended = at[peer] >= len(batches[peer])
                alone |= ended
                lines.append(
                    f"rank {rank} sends chunk {chunk} in step {batch.step} to rank {peer}, "
                    + ("whose plan has ended" if ended else "who does not receive it")
                )
    head = "A message has no partner" if alone else "Nobody can go on"
    more = f" (and {len(lines) - 4} more)" if len(lines) > 4 else ""
    where = (waiting[0], standing[0].step)
    raise _PlanError("unmatched" if alone else "deadlock", f"{head}: {'; '.join(lines[:4])}{more}.", where)


def _require_complete(contents: list[list[Content]]) -> None:
    world_size = len(contents)
    for rank, chunks in enumerate(contents):
        for chunk, content in enumerate(chunks):
            missing = [source for source in range(world_size) if content[source] == 0]
            if missing:
                raise _PlanError(
                    "missing",
                    f"At the end rank {rank} holds chunk {chunk} with the contributions of {ranks_in_words(content)} "
                    f"only; {ranks_in_words(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
                    (rank, -1),
                )
