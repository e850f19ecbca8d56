"""What PyTorch's caching allocator takes of a virtual device: blocks in segments, kept for the stream that asked.

Sizes are rounded up to 512 bytes. Up to 1 MiB, blocks lie in segments of 2 MiB; above, in segments of 20 MiB, and from
10 MiB on in segments of their own size, in whole 2 MiB. A freed block serves the next request of the same stream that
it is the smallest to fit, at once: what the stream does later is behind what it did before. Where another stream uses a
block as well (``record_stream``), it is free only when that stream has come to where the block was given back.
Segments go back to the device when it is full, or with ``empty_cache()``.

Source: https://github.com/pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp at v2.13: kMinBlockSize, kSmallSize,
kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge, get_free_block, should_split, try_merge_blocks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from labkit.simulator.stream_queue import StreamQueue
from labkit.simulator.streams import StreamEvent

MIB = 2**20
ROUND, SMALL, SMALL_SEGMENT, LARGE_SEGMENT, LEAST_LARGE, ROUND_LARGE = 512, MIB, 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB


class Block:
    """A part of a segment.

    Attributes:
        size: Its bytes.
        place: Number of its segment, and where it begins there.
        pool: The stream it serves, and whether it is small.
        before, after: Its neighbours in the segment.
        free: Whether it can be given to the next that asks.
        uses: Other streams that use it.
    """

    __slots__ = ("after", "before", "free", "place", "pool", "size", "uses")

    def __init__(self, size: int, place: tuple[int, int], pool: tuple[StreamQueue, bool]) -> None:
        self.size, self.place, self.pool = size, place, pool
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False
        self.uses: list[StreamQueue] = []


class Figure:
    """A number of bytes: what it is now, and the most it was.

    Attributes:
        now: Bytes now.
        most: The most since the program last asked to begin anew.
        peak: The most of the whole run.
    """

    __slots__ = ("most", "now", "peak")

    def __init__(self) -> None:
        self.now = self.most = self.peak = 0

    def add(self, num_bytes: int) -> None:
        """Count more, or less."""
        self.now += num_bytes
        self.most = max(self.most, self.now)
        self.peak = max(self.peak, self.now)


class CachingAllocator:
    """The allocator of one device.

    Attributes:
        allocated: Bytes of the blocks that tensors have.
        active: Those, and what was given back and another stream may still use.
        reserved: Bytes of the segments.
        pending: Blocks of which other streams may still use, with what must happen first.
    """

    def __init__(self, capacity: int, record_event: Callable[[StreamQueue], StreamEvent]) -> None:
        """Begin with no segment.

        Args:
            capacity: Bytes the device holds.
            record_event: Returns what happens when a stream has done what was issued to it so far.
        """
        self._capacity, self._record_event = capacity, record_event
        self.allocated, self.active, self.reserved = Figure(), Figure(), Figure()
        self.pending: list[tuple[Block, Sequence[StreamEvent]]] = []
        self._free: dict[tuple[StreamQueue, bool], list[tuple[int, tuple[int, int], Block]]] = {}
        self._segments = 0

    def take(self, num_bytes: int, stream: StreamQueue) -> Block | None:
        """Return a block for a tensor of a stream, None where there is no room for it."""
        size = max(-(-num_bytes // ROUND), 1) * ROUND
        pool = (stream, size <= SMALL)
        block = self._best(size, pool) or self._segment(size, pool)
        if block is None:
            return None
        rest = block.size - size
        if rest >= ROUND if pool[1] else rest > SMALL:
            self._split(block, size)
        block.free = False
        self.allocated.add(block.size)
        self.active.add(block.size)
        return block

    def give_back(self, block: Block) -> None:
        """Take a block back; it is free at once, or when the other streams that use it have come here."""
        self.allocated.add(-block.size)
        if block.uses:
            self.pending.append((block, [self._record_event(stream) for stream in block.uses]))
        else:
            self._release(block)

    def look(self, now_ns: int) -> None:
        """Free what other streams have done with by now."""
        waiting = []
        for block, until in self.pending:
            if all(event.ready_ns is not None and event.ready_ns <= now_ns for event in until):
                block.uses.clear()
                self._release(block)
            else:
                waiting.append((block, until))
        self.pending = waiting

    def empty_cache(self) -> None:
        """Give segments of which nothing is used back to the device."""
        for pool, blocks in self._free.items():
            whole = [one for one in blocks if one[2].before is None and one[2].after is None]
            self.reserved.add(-sum(size for size, _, _ in whole))
            self._free[pool] = [one for one in blocks if one not in whole]

    def begin_anew(self) -> None:
        """Forget the most there was."""
        for figure in (self.allocated, self.active, self.reserved):
            figure.most = figure.now

    def _best(self, size: int, pool: tuple[StreamQueue, bool]) -> Block | None:
        blocks = self._free.get(pool, [])
        place = bisect_left(blocks, (size, (-1, -1)), key=lambda one: one[:2])
        return blocks.pop(place)[2] if place < len(blocks) else None

    def _segment(self, size: int, pool: tuple[StreamQueue, bool]) -> Block | None:
        """Return a new segment as one block, made of room that the device has, or has once nothing lies idle."""
        segment = -(-size // ROUND_LARGE) * ROUND_LARGE
        if size <= SMALL:
            segment = SMALL_SEGMENT
        elif size < LEAST_LARGE:
            segment = LARGE_SEGMENT
        if self.reserved.now + segment > self._capacity:
            self.empty_cache()
            if self.reserved.now + segment > self._capacity:
                return None
        self.reserved.add(segment)
        self._segments += 1
        return Block(segment, (self._segments, 0), pool)

    def _split(self, block: Block, size: int) -> None:
        number, offset = block.place
        rest = Block(block.size - size, (number, offset + size), block.pool)
        rest.before, rest.after, block.after, block.size = block, block.after, rest, size
        if rest.after is not None:
            rest.after.before = rest
        self._put(rest)

    def _release(self, block: Block) -> None:
        self.active.add(-block.size)
        before, after = block.before, block.after
        if before is not None and before.free:
            self._remove(before)
            block.size, block.place = block.size + before.size, before.place
            block.before = before.before
            if block.before is not None:
                block.before.after = block
        if after is not None and after.free:
            self._remove(after)
            block.size += after.size
            block.after = after.after
            if block.after is not None:
                block.after.before = block
        self._put(block)

    def _put(self, block: Block) -> None:
        block.free = True
        insort(self._free.setdefault(block.pool, []), (block.size, block.place, block), key=lambda one: one[:2])

    def _remove(self, block: Block) -> None:
        blocks = self._free[block.pool]
        del blocks[bisect_left(blocks, (block.size, block.place), key=lambda one: one[:2])]
