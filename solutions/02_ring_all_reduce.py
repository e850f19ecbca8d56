# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 02 Ring all-reduce

# %% tags=["given"]
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

import torch
import torch.distributed as dist

import labkit


# %% tags=["given"]
@dataclass(frozen=True)
class Send:
    """In this step, send this chunk to this peer."""

    step: int
    chunk: int
    peer: int


@dataclass(frozen=True)
class Recv:
    """In this step, receive this chunk from this peer."""

    step: int
    chunk: int
    peer: int


@dataclass(frozen=True)
class Reduce:
    """Add what this step's Recv brought to this chunk. Without a Reduce, what arrives replaces the chunk."""

    step: int
    chunk: int


# %% tags=["exercise"] exercise="2.1" points=8 difficulty=2 importance=4 minutes=6 title="Reduce to rank 0, then send back" provides=["naive_all_reduce"] bonus=false
def naive_all_reduce(tensor: torch.Tensor) -> None:
    """Replace tensor, on every rank, by the sum of all ranks' tensors. Everything passes through rank 0.

    Args:
        tensor: This rank's contribution, contiguous, same shape and dtype on every rank; changed in place.
    """
    # BEGIN SOLUTION 2.1: rank 0 receives from everybody, adds, and sends the total back
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        incoming = torch.empty_like(tensor)
        for peer in range(1, world_size):
            dist.recv(incoming, src=peer)
            tensor += incoming
        for peer in range(1, world_size):
            dist.send(tensor, dst=peer)
    else:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
    # END SOLUTION


# %% tags=["exercise"] exercise="2.2" points=4 difficulty=1 importance=4 minutes=3 title="Count the bytes" provides=["root_bytes", "ring_bytes"] bonus=false
def root_bytes(num_bytes: int, world_size: int) -> int:
    """Return the bytes that pass rank 0's link in naive_all_reduce, sent plus received.

    Args:
        num_bytes: Size of the tensor on one rank.
        world_size: Number of ranks N.
    """
    # BEGIN SOLUTION 2.2: one whole tensor in and one out for every other rank
    return 2 * (world_size - 1) * num_bytes
    # END SOLUTION


def ring_bytes(num_bytes: int, world_size: int) -> float:
    """Return the bytes that one rank sends in a ring all-reduce.

    Args:
        num_bytes: Size of the tensor on one rank.
        world_size: Number of ranks N; each chunk is 1/N of the tensor.
    """
    # BEGIN SOLUTION 2.2: two passes of N-1 steps, one chunk a step
    return 2 * (world_size - 1) / world_size * num_bytes
    # END SOLUTION


# %% tags=["exercise"] exercise="2.3" points=6 difficulty=2 importance=5 minutes=6 title="Chunk bounds" provides=["chunk_bounds"] bonus=false
def chunk_bounds(numel: int, num_chunks: int) -> list[tuple[int, int]]:
    """Return (start, end) of each chunk: sizes differ by at most one, the longer chunks come first.

    Args:
        numel: Number of elements to cut up, 0 or more.
        num_chunks: Number of chunks, 1 or more. With num_chunks > numel the last chunks are empty (start == end).
    """
    # BEGIN SOLUTION 2.3: the first (numel mod num_chunks) chunks get one element more
    size, remainder = divmod(numel, num_chunks)
    bounds = []
    start = 0
    for chunk in range(num_chunks):
        end = start + size + (1 if chunk < remainder else 0)
        bounds.append((start, end))
        start = end
    return bounds
    # END SOLUTION


# %% tags=["exercise"] exercise="2.4" points=12 difficulty=3 importance=5 minutes=10 title="The ring as a plan" provides=["ring_plan"] bonus=false
def ring_plan(rank: int, world_size: int) -> list[Send | Recv | Reduce]:
    """Return what one rank does in a ring all-reduce: in every step Send, then Recv, then (first half) Reduce.

    Steps 0..N-2 are the reduce-scatter, steps N-1..2N-3 the all-gather.

    Args:
        rank: Whose plan this is, 0 <= rank < world_size.
        world_size: Number of ranks N, which is also the number of chunks. With N = 1 the plan is empty.
    """
    # BEGIN SOLUTION 2.4: N-1 steps that reduce, then N-1 steps that pass finished chunks on
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    plan: list[Send | Recv | Reduce] = []
    for step in range(world_size - 1):
        arriving = (rank - step - 1) % world_size
        plan.append(Send(step, chunk=(rank - step) % world_size, peer=right))
        plan.append(Recv(step, chunk=arriving, peer=left))
        plan.append(Reduce(step, chunk=arriving))
    for turn in range(world_size - 1):
        step = world_size - 1 + turn
        plan.append(Send(step, chunk=(rank + 1 - turn) % world_size, peer=right))
        plan.append(Recv(step, chunk=(rank - turn) % world_size, peer=left))
    return plan
    # END SOLUTION


# %% tags=["exercise"] exercise="2.5" points=14 difficulty=4 importance=5 minutes=12 title="Run a plan" provides=["run_plan"] bonus=false
def run_plan(
    plan: list[Send | Recv | Reduce],
    chunks: list[torch.Tensor],
    group: dist.ProcessGroup | None = None,
    combine: Callable[..., torch.Tensor] = torch.add,
) -> None:
    """Carry out this rank's plan, one dist.batch_isend_irecv for each step.

    Args:
        plan: Records in the order of their steps; a step may hold several sends and receives. Peers are ranks
            within group. What a Recv brings replaces its chunk, unless the step also has a Reduce of that chunk.
        chunks: 1-D contiguous tensors, changed in place; the records' chunk is an index into this list.
        group: Where the messages travel; None is the default group.
        combine: What Reduce does: combine(chunk, incoming, out=chunk).
    """
    # BEGIN SOLUTION 2.5: post a whole step at once, wait for all of it, then reduce what arrived
    longest = max(chunks, key=torch.Tensor.numel)
    slice_numel = 4 * 2**20  # a plan is right for every slice of its chunks; slices keep the landing zone small
    if longest.numel() > slice_numel:
        for start in range(0, longest.numel(), slice_numel):
            run_plan(plan, [chunk[start : start + slice_numel] for chunk in chunks], group, combine)
        return
    landing_zone = torch.empty_like(longest)
    for _, records in groupby(plan, key=lambda record: record.step):
        step = [record for record in records if chunks[record.chunk].numel() > 0]
        reduced = {record.chunk for record in step if isinstance(record, Reduce)}
        batch, arriving = [], []
        for record in step:
            chunk = chunks[record.chunk]
            if isinstance(record, Send):
                batch.append(dist.P2POp(dist.isend, chunk, group=group, group_peer=record.peer))
            elif isinstance(record, Recv):
                incoming = chunk
                if record.chunk in reduced:
                    incoming = torch.empty_like(chunk) if arriving else landing_zone[: chunk.numel()]
                    arriving.append((chunk, incoming))
                batch.append(dist.P2POp(dist.irecv, incoming, group=group, group_peer=record.peer))
        for work in dist.batch_isend_irecv(batch) if batch else []:
            work.wait()
        for chunk, incoming in arriving:
            combine(chunk, incoming, out=chunk)
    # END SOLUTION


# %% tags=["exercise"] exercise="2.6" points=16 difficulty=3 importance=5 minutes=8 title="The ring adds up" provides=["ring_sum"] bonus=false
def ring_sum(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Replace tensor, on every rank of group, by the sum of all their tensors.

    Args:
        tensor: Contiguous, any number of dimensions and any length, shorter than the world or empty included;
            changed in place.
        group: Who takes part; None is everybody.
    """
    # BEGIN SOLUTION 2.6: flatten without copying, cut into chunks, run this rank's plan
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[start:end] for start, end in chunk_bounds(flat.numel(), world_size)]
    run_plan(ring_plan(rank, world_size), chunks, group)
    # END SOLUTION


# %% tags=["exercise"] exercise="2.7" points=16 difficulty=5 importance=5 minutes=15 title="A drop-in for dist.all_reduce" provides=["ring_all_reduce"] bonus=false
def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    """Do what dist.all_reduce does, with a ring: same arguments, same result in tensor on every rank of group.

    Args:
        tensor: Any shape, contiguous or not; float32, float64, bfloat16, float16 or integers; changed in place.
            For bfloat16 and float16 the partial sums are float32, so that the error does not grow with the world.
        op: dist.ReduceOp.SUM, AVG, MAX, MIN or PRODUCT.
        group: Who takes part; a rank outside it returns at once.
        async_op: If True, return an object whose wait() finishes the work; else finish it now and return None.
    """
    # BEGIN SOLUTION 2.7: reduce-scatter (in float32 if the tensor has 16 bits), then all-gather in its own type
    combine = {
        dist.ReduceOp.SUM: torch.add,
        dist.ReduceOp.AVG: torch.add,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.PRODUCT: torch.mul,
    }[op]
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:  # not a member of group
        return None

    def all_reduce():
        source = tensor.detach()
        flat = source.reshape(-1)  # the tensor itself if it is contiguous, else a copy
        partial = flat.float() if flat.dtype in (torch.bfloat16, torch.float16) else flat
        bounds = chunk_bounds(flat.numel(), world_size)
        plan = ring_plan(rank, world_size)
        reduce_scatter = [record for record in plan if record.step < world_size - 1]
        all_gather = [record for record in plan if record.step >= world_size - 1]

        run_plan(reduce_scatter, [partial[start:end] for start, end in bounds], group, combine)
        start, end = bounds[(rank + 1) % world_size]  # the chunk that is now complete on this rank
        if op == dist.ReduceOp.AVG:
            partial[start:end].div_(world_size, rounding_mode=None if partial.is_floating_point() else "trunc")
        if partial is not flat:
            flat[start:end] = partial[start:end]  # the only rounding to 16 bits
        run_plan(all_gather, [flat[start:end] for start, end in bounds], group)
        if not source.is_contiguous():
            source.copy_(flat.view(source.shape))

    class Pending:
        done = False

        def wait(self):
            if not self.done:
                all_reduce()
                self.done = True
            return True

    pending = Pending()
    if async_op:
        return pending
    pending.wait()
    return None
    # END SOLUTION


# %% tags=["exercise"] exercise="2.8" points=8 difficulty=2 importance=4 minutes=6 title="What it costs" provides=["ring_seconds", "tree_seconds", "bus_bandwidth"] bonus=false
def ring_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:
    """Return the time of a ring all-reduce: 2(N-1) steps, each one latency plus one chunk of B/N bytes."""
    # BEGIN SOLUTION 2.8: steps times the cost of one step
    return 2 * (world_size - 1) * (latency_s + num_bytes / (world_size * bandwidth_Bps))
    # END SOLUTION


def tree_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:
    """Return the time of a tree all-reduce: ceil(log2 N) rounds up and as many down, each with the whole tensor."""
    # BEGIN SOLUTION 2.8: rounds times the cost of one round
    return 2 * math.ceil(math.log2(world_size)) * (latency_s + num_bytes / bandwidth_Bps)
    # END SOLUTION


def bus_bandwidth(num_bytes: float, seconds: float, world_size: int) -> float:
    """Return busbw in bytes per second: algbw = B/seconds, times 2(N-1)/N."""
    # BEGIN SOLUTION 2.8: correct algbw by the traffic that an all-reduce cannot avoid
    return 2 * (world_size - 1) / world_size * num_bytes / seconds
    # END SOLUTION


# %% tags=["exercise"] exercise="2.9" points=8 difficulty=4 importance=4 minutes=10 title="A tree" provides=["tree_all_reduce"] bonus=false
def tree_all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Replace tensor by the sum over group: up a binomial tree to rank 0, then down the same tree.

    Args:
        tensor: Contiguous, changed in place.
        group: Who takes part, any number of ranks N; 2 ceil(log2 N) rounds. None is everybody.
    """
    # BEGIN SOLUTION 2.9: in the round with distance d, rank r + d sends to rank r where r is a multiple of 2d
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    distances = []
    while 2 ** len(distances) < world_size:
        distances.append(2 ** len(distances))

    incoming = torch.empty_like(tensor)
    for distance in distances:  # up: 1, 2, 4, ...
        if rank % (2 * distance) == distance:
            dist.send(tensor, group_dst=rank - distance, group=group)
        elif rank % (2 * distance) == 0 and rank + distance < world_size:
            dist.recv(incoming, group_src=rank + distance, group=group)
            tensor += incoming
    for distance in reversed(distances):  # down: ..., 4, 2, 1
        if rank % (2 * distance) == distance:
            dist.recv(tensor, group_src=rank - distance, group=group)
        elif rank % (2 * distance) == 0 and rank + distance < world_size:
            dist.send(tensor, group_dst=rank + distance, group=group)
    # END SOLUTION


# %% tags=["exercise"] exercise="2.10" points=8 difficulty=4 importance=2 minutes=12 title="Halving and doubling" provides=["halving_doubling_all_reduce"] bonus=true
def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    """Replace tensor by the sum over all ranks: recursive halving reduce-scatter, recursive doubling all-gather.

    Args:
        tensor: Contiguous, any length, changed in place.
    Raises:
        ValueError: If the world size is not a power of two.
    """
    # BEGIN SOLUTION 2.10: swap halves with rank XOR distance, keep one half, halve again; then the same way back
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size & (world_size - 1):
        raise ValueError(f"{world_size} ranks are not a power of two; use the ring.")

    def exchange(partner, outgoing, incoming):
        batch = []
        if outgoing.numel():
            batch.append(dist.P2POp(dist.isend, outgoing, partner))
        if incoming.numel():
            batch.append(dist.P2POp(dist.irecv, incoming, partner))
        for work in dist.batch_isend_irecv(batch) if batch else []:
            work.wait()

    mine = tensor.view(-1)
    landing_zone = torch.empty_like(mine)
    splits = []  # (partner, the part it keeps, the part I keep), in the order they were made
    distance = world_size // 2
    while distance:
        partner = rank ^ distance
        middle = mine.numel() // 2
        low, high = mine[:middle], mine[middle:]
        theirs, mine = (low, high) if rank & distance else (high, low)
        incoming = landing_zone[: mine.numel()]
        exchange(partner, theirs, incoming)
        mine += incoming
        splits.append((partner, theirs, mine))
        distance //= 2
    for partner, theirs, kept in reversed(splits):
        exchange(partner, kept, theirs)
    # END SOLUTION


# %% tags=["exercise"] exercise="2.11" points=8 difficulty=3 importance=3 minutes=8 title="All to all" provides=["all_to_all"] bonus=false
def all_to_all(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Send inputs[i] to rank i of group, and receive rank i's piece for this rank in outputs[i].

    Args:
        outputs: One tensor for each rank; outputs[i] has the size of what rank i sends here. Changed in place.
        inputs: One tensor for each rank; sizes may differ and may be 0. inputs[own rank] is copied.
        group: Who takes part; None is everybody.
    """
    # BEGIN SOLUTION 2.11: copy the own piece, post all sends and receives in one batch, wait
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    outputs[rank].copy_(inputs[rank])
    batch = []
    for shift in range(1, world_size):
        to, source = (rank + shift) % world_size, (rank - shift) % world_size
        if inputs[to].numel():
            batch.append(dist.P2POp(dist.isend, inputs[to], group=group, group_peer=to))
        if outputs[source].numel():
            batch.append(dist.P2POp(dist.irecv, outputs[source], group=group, group_peer=source))
    for work in dist.batch_isend_irecv(batch) if batch else []:
        work.wait()
    # END SOLUTION


# %% tags=["exercise"] exercise="2.12" points=8 difficulty=5 importance=3 minutes=12 title="Within and between nodes" provides=["hierarchical_all_reduce"] bonus=true
def hierarchical_all_reduce(tensor: torch.Tensor, ranks_per_node: int) -> None:
    """Replace tensor by the sum over all ranks, with few bytes between nodes.

    Reduce-scatter within each node, all-reduce of each piece between the nodes, all-gather within each node.

    Args:
        tensor: Contiguous, any length, changed in place.
        ranks_per_node: G; ranks 0..G-1 are node 0, G..2G-1 node 1 and so on.
    Raises:
        ValueError: If ranks_per_node does not divide the world size.
    """
    # BEGIN SOLUTION 2.12: three plans; peers are positions in a small ring, so give them their real rank
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size % ranks_per_node:
        raise ValueError(f"{ranks_per_node} ranks per node do not divide {world_size} ranks.")
    node, local = divmod(rank, ranks_per_node)
    num_nodes = world_size // ranks_per_node

    def at(ranks, plan):
        return [record if isinstance(record, Reduce) else replace(record, peer=ranks[record.peer]) for record in plan]

    flat = tensor.view(-1)
    chunks = [flat[start:end] for start, end in chunk_bounds(flat.numel(), ranks_per_node)]
    inside = at(range(node * ranks_per_node, (node + 1) * ranks_per_node), ring_plan(local, ranks_per_node))
    between = at(range(local, world_size, ranks_per_node), ring_plan(node, num_nodes))

    run_plan([record for record in inside if record.step < ranks_per_node - 1], chunks)
    mine = chunks[(local + 1) % ranks_per_node]
    run_plan(between, [mine[start:end] for start, end in chunk_bounds(mine.numel(), num_nodes)])
    run_plan([record for record in inside if record.step >= ranks_per_node - 1], chunks)
    # END SOLUTION
