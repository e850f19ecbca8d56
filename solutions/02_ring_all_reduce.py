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
#
# Eight GPUs each have a gradient. Each of them needs the sum, and none may become the bottleneck. How do you share that
# work fairly, and finish as fast as the links allow?
#
# You will start from `send` and `recv`, build the obvious answer, watch it queue, and then build the ring, one of
# NCCL's algorithms.
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** tensors, and lesson 00. No GPU.
#
# **Stuck?** `labkit.hint("naive_all_reduce")` gives up to three hints. `labkit.lend("naive_all_reduce")` puts a working
# version here: you forfeit its points, but every cell below will run.

# %% [markdown] tags=["slide-only"]
# # 02 Ring all-reduce
#
# Everybody needs the sum. Nobody may be in the way.
#
# <!-- notes: Eight devices, a gradient each, and all want the total. Lesson 01 showed what one device in the middle costs. Today the room builds the algorithm that made large-scale training practical. -->

# %% tags=["given"]
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.distributed as dist

import labkit

# %% [markdown]
# ## 1 What all-reduce does
#
# Three ranks, three numbers each. **All-reduce** turns these rows into their sum, *on every rank*:

# %%
GRADIENTS = torch.tensor([[2.0, 4.0, 6.0], [1.0, 2.0, 3.0], [4.0, 8.0, 12.0]])


def three_ranks():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    gradient = GRADIENTS[rank].clone()
    dist.all_reduce(gradient)  # in place
    return f"rank {rank} of {world_size}: {gradient.tolist()}"


labkit.run(three_ranks, on=labkit.local(3)).results

# %% [markdown]
# In data-parallel training, this keeps copies of a model equal: each rank computes a gradient on its part of the batch,
# all-reduce adds the gradients up, and every rank takes the same step.

# %% [markdown] tags=["slide-only"]
# ## All-reduce: the sum, on every rank
#
# | | before | | after all-reduce |
# |---|---|---|---|
# | rank 0 | 2, 4, 6 | → | **7, 14, 21** |
# | rank 1 | 1, 2, 3 | → | **7, 14, 21** |
# | rank 2 | 4, 8, 12 | → | **7, 14, 21** |
#
# Element by element: 2 + 1 + 4 = 7.
#
# <!-- notes: Data-parallel training needs exactly this, once a step: own part of the batch, own gradient, then the sum on every rank, then the same optimizer step everywhere. -->

# %% [markdown]
# ## 2 The obvious way
#
# Two calls move data between two ranks. Both **block**:
#
# * `dist.send(tensor, dst=1)` returns when you may change `tensor` again. The call may have to wait until rank 1 has
#   received it.
# * `dist.recv(tensor, src=0)` returns when the data has arrived in `tensor`.
#
# Every `send` needs its `recv` on the other side, with the same shape and dtype. That is enough for an all-reduce:
# everybody sends to rank 0, which adds, and sends the total back.
#
# ### Exercise [[naive_all_reduce]]
#
# *12 points, about 6 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="naive_all_reduce" points=12 difficulty=2 importance=4 minutes=6 title="Reduce to rank 0, then send back" provides=["naive_all_reduce"]
def naive_all_reduce(tensor: torch.Tensor) -> None:
    """Replace tensor, on every rank, with the sum of all ranks' tensors. Everything passes through rank 0.

    Args:
        tensor: This rank's contribution, contiguous, same shape and dtype on every rank, any dtype; changed in place.
    """
    # BEGIN SOLUTION naive_all_reduce
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


# %% tags=["check"]
labkit.check("naive_all_reduce", naive_all_reduce)


# %% [markdown] tags=["slide-only"]
# ## One port serves everybody
#
# Eight H100s, 16 MB each, and everything passes through rank 0.
#
# **To the room:** which rank works all the time, and what do the others do?
#
# <!-- notes: Then show the timeline. Seven ports of 450 GB/s stand in a queue for rank 0's. The time grows with N-1: four against eight ranks come next. -->

# %% [markdown]
# Now watch it: eight H100s with 16 MB each. `labkit.virtual(8)` runs your function unmodified, on eight simulated GPUs.
# The sums are real, and the clock is a model: each message and each operator takes as long as it would on that
# hardware.


# %% tags=["given"]
def message_device() -> torch.device:
    """Return where a tensor must be to be sent: this rank's GPU with NCCL, the CPU with gloo."""
    return labkit.device() if "nccl" in dist.get_backend() else torch.device("cpu")


# %%
MB = 10**6


def all_reduce_once(all_reduce, num_bytes):
    tensor = torch.ones(num_bytes // 4, device=message_device())  # a float32 has 4 bytes
    dist.barrier()  # start together
    all_reduce(tensor)
    return tensor[0].item()


through_root = labkit.run(all_reduce_once, naive_all_reduce, 16 * MB, on=labkit.virtual(8))
through_root.timeline

# %% [markdown]
# Each arrow is a message. A bar is solid while bytes move, and hatched while the rank is **blocked**: it is inside a
# call, but no data moves. Every arrow begins or ends at rank 0. The other seven ranks have a port of 450 GB/s each, but
# all their messages go into **one port, rank 0's**, so the messages queue. That is **contention**: every link is fast,
# and one of them carries everybody's traffic.
#
# **With 16 MB each, how many times longer do eight ranks take than four?**

# %% tags=["predict"]
labkit.predict("four_to_eight", 1.0, unit="times")

# %%
on_four = labkit.run(all_reduce_once, naive_all_reduce, 16 * MB, on=labkit.virtual(4))
fewer_and_more = labkit.compare(on_four, through_root, names=("four ranks", "eight ranks"))
labkit.reveal("four_to_eight", through_root.timeline.makespan_ns / on_four.timeline.makespan_ns, fewer_and_more)

# %% [markdown]
# With four ranks, rank 0 serves three others; with eight, seven. So the time grows with N-1. 64 ranks would take 63
# times as long as 2 ranks. Rank 0 talks to one rank at a time, so 62 of the 64 links would be idle.
#
# What would be fair? Count bytes. The sum depends on all B bytes of every rank, so every rank must send at least B
# bytes. Every rank needs the sum, so every rank must receive at least B bytes. If every rank moved only a fixed
# multiple of B, and all worked at the same time, **the time would not grow with N**. In the ring, each rank sends and
# receives less than 2B each; section 6 says why not B.

# %% [markdown]
# ## 3 Share the work
#
# Rank 0 works while the others wait. So cut the tensor into N **chunks**, and let each rank be the "root" of one of
# them.
#
# The chunks must cover the tensor exactly, also when its length does not divide by N. Ten elements in four chunks are
# 3, 3, 2, 2, as with `torch.tensor_split`. Two elements in four chunks are 1, 1, 0, 0: an empty chunk is fine.
#
# ### Exercise [[chunk_bounds]]
#
# *10 points, about 4 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="chunk_bounds" points=10 difficulty=2 importance=5 minutes=4 title="Chunk bounds" provides=["chunk_bounds"]
def chunk_bounds(numel: int, num_chunks: int) -> list[tuple[int, int]]:
    """Return (start, end) of each chunk: sizes differ by at most one, the longer chunks come first.

    The first chunk starts at 0, and each other one where the chunk before it ends.

    Args:
        numel: Number of elements to cut up, 0 or more.
        num_chunks: Number of chunks, 1 or more. With num_chunks > numel the last chunks are empty (start == end).
    """
    # BEGIN SOLUTION chunk_bounds
    size, remainder = divmod(numel, num_chunks)
    bounds = []
    start = 0
    for chunk in range(num_chunks):
        end = start + size + (1 if chunk < remainder else 0)
        bounds.append((start, end))
        start = end
    return bounds
    # END SOLUTION


# %% tags=["check"]
labkit.check("chunk_bounds", chunk_bounds)

# %% [markdown] tags=["slide-only"]
# ## Follow chunk A round the ring
#
# First **reduce-scatter** adds, then **all-gather** copies.
#
# **To the room:** after which step is chunk A complete, and where?
#
# <!-- with: first frame -->
# <!-- notes: Each rank sends one chunk to its right; what it receives it adds to its own. Have the room say where A goes, step by step, then show the next slide: all steps of the reduce-scatter. Play it for the all-gather. N-1 steps each way, and in every step every link carries one chunk of B/N bytes. -->

# %% [markdown]
# ## 4 The ring
#
# Put the ranks in a circle. Each sends only to its right neighbour, rank + 1, and receives only from its left
# neighbour, rank - 1; the last rank's right neighbour is rank 0. Now every link has one sender and one receiver, and no
# message has to queue.
#
# Here are the first three steps of a ring of four. Run the cell, press play, and **follow chunk A**: `A3` holds the
# contributions of three ranks. Chunks B, C and D move at the same time, each starting at a different rank.

# %% tags=["figure"]
labkit.figure("ring", num_ranks=4)

# %% [markdown]
# Each chunk makes two trips of N-1 hops. The first trip is called **reduce-scatter**: what arrives is *added* to what
# the rank has. After N-1 hops the chunk is complete, but only on one rank. The second is **all-gather**: what arrives
# *replaces* what the rank has.
#
# So after reduce-scatter every rank holds one piece of the sum, and after all-gather all pieces.
#
# Before you write loops, write down *what happens*, as plain data. A **plan** is a list of records for one rank. You
# can print it, draw it, and test it without starting a process.


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
    """Add to this chunk what this step's Recv brought. Without a Reduce, what arrives replaces the chunk."""

    step: int
    chunk: int


# %% [markdown] tags=["slide-only"]
# ## Write down what happens, then run it
#
# | rank 0 of four writes | in step 0 |
# |---|---|
# | `Send(step=0, chunk=0, peer=1)` | A → rank 1 |
# | `Recv(step=0, chunk=3, peer=3)` | D ← rank 3 |
# | `Reduce(step=0, chunk=3)` | added to D |
#
# Chunk 0 is A, 3 is D. A plan can be printed, drawn and tested before a process starts.
#
# <!-- notes: Describe, then run: schedules, buckets and gradings are plans too in this course. -->

# %% [markdown]
# ### Exercise [[ring_plan]]
#
# *24 points, about 15 minutes; difficulty 3 of 5, importance 5 of 5*
#
# With two ranks, rank 0's plan is
#
# ```python
# [Send(step=0, chunk=0, peer=1), Recv(step=0, chunk=1, peer=1), Reduce(step=0, chunk=1),
#  Send(step=1, chunk=1, peer=1), Recv(step=1, chunk=0, peer=1)]
# ```
#
# Which chunk a rank begins with is up to you, as long as the plans of all ranks fit together.


# %% tags=["exercise"] exercise="ring_plan" points=24 difficulty=3 importance=5 minutes=15 title="The ring as a plan" provides=["ring_plan"]
def ring_plan(rank: int, world_size: int) -> list[Send | Recv | Reduce]:
    """Return what one rank does in a ring all-reduce of N chunks.

    Steps 0 to N-2 are the reduce-scatter, steps N-1 to 2N-3 the all-gather. In each step a rank sends one chunk to its
    right neighbour and receives another from its left one; in the reduce-scatter it also reduces what it received. The
    records of a step stand together, in any order. When all ranks have carried out their plans, every chunk on every
    rank holds every rank's contribution, once.

    Args:
        rank: Whose plan this is, 0 <= rank < world_size.
        world_size: Number of ranks N, which is also the number of chunks. With N = 1 the plan is empty.
    """
    # BEGIN SOLUTION ring_plan
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


# %% tags=["check"]
labkit.check("ring_plan", ring_plan)

# %% [markdown]
# You can already watch *your* plan. Each stack is a rank, and each square in it is a chunk; the number says how many
# contributions the chunk holds. A chunk turns red if its receiver's plan does not expect it.

# %% tags=["nbval-ignore-output"]
labkit.ring_player(ring_plan, num_ranks=4)

# %% [markdown]
# Change the number of ranks: the same pattern, more steps. Then make one link slow. The whole ring goes at its pace,
# because everybody waits for what comes through it.

# %% [markdown] tags=["slide-only"]
# ## Send and receive in one batch
#
# | | `send`, then `recv` | `isend`, then `irecv` | one batch |
# |---|---|---|---|
# | gloo | hangs | works | works |
# | NCCL | hangs | **may hang** | works |
#
# One batch: `dist.batch_isend_irecv`
#
# <!-- notes: To the GPU a send is a kernel that waits for its partner. NCCL's user guide: operations that need each other belong in one group. Show the deadlock report. -->

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 5 Run the plan
#
# In each step every rank sends to the right *and* receives from the left. What if all ranks simply send first? Three
# ranks, one number each:

# %% tags=["nbval-ignore-output"]
from labkit.errors import RunTimeout


def everybody_sends_first():
    dist.send(torch.ones(1), dst=(dist.get_rank() + 1) % 3)
    dist.recv(torch.empty(1), src=(dist.get_rank() - 1) % 3)


try:
    labkit.run(everybody_sends_first, on=labkit.virtual(3))
except RunTimeout as error:
    print(error)

# %% [markdown]
# Everybody is stuck in `send`, and nobody receives: a **deadlock**. (On real processes a small message may get
# through.) The calls that do not block are `dist.isend` and `dist.irecv`; they return an object with `wait()`. On gloo
# it is enough to call one and then the other. On NCCL that may hang too: a transfer is a kernel on a CUDA stream. If
# both transfers are on one stream, a rank's receive starts only after its send has finished. But no send finishes
# before the neighbour's receive has started: all wait for ever. So hand both over **in one batch**, which NCCL starts
# as one group:
#
# ```python
# batch = [dist.P2POp(dist.isend, outgoing, group=group, group_peer=right),
#          dist.P2POp(dist.irecv, incoming, group=group, group_peer=left)]
# for work in dist.batch_isend_irecv(batch):
#     work.wait()
# ```
#
# Two rules. **Do not touch a tensor in flight:** until `wait()` returns, do not write to what you send, and do not read
# what you receive. And **`group_peer` is a rank within the group**, while `peer=`, `dst=` and `src=` are global ranks.
#
# ### Exercise [[run_plan]]
#
# *26 points, about 22 minutes; difficulty 4 of 5, importance 5 of 5*
#
# Your function must run *any* plan, not only a ring's: a step can have several sends and receives. All chunks of a step
# may be empty, and `dist.batch_isend_irecv` rejects an empty list.


# %% tags=["exercise"] exercise="run_plan" points=26 difficulty=4 importance=5 minutes=22 title="Run a plan" provides=["run_plan"]
def run_plan(
    plan: list[Send | Recv | Reduce],
    chunks: list[torch.Tensor],
    group: dist.ProcessGroup | None = None,
    combine: Callable[..., torch.Tensor] = torch.add,
) -> None:
    """Carry out this rank's plan; a step's messages travel together, and the next step waits for them.

    The plan may be any, not only a ring's.

    Args:
        plan: Records in the order of their steps; a step may hold several sends and receives. Peers are ranks within
            group. What a Recv brings replaces its chunk, unless the step also has a Reduce of that chunk. You may rely on
            this: in one step, no chunk is received twice or both sent and received, no peer gets two chunks, and each
            Reduce has a Recv of its chunk.
        chunks: 1-D contiguous tensors of any dtype, changed in place; the records' chunk is an index into this list. No
            message is sent for an empty chunk.
        group: The group of the messages; None is the default group.
        combine: The operation of a Reduce, called as combine(chunk, incoming, out=chunk).
    """
    # BEGIN SOLUTION run_plan
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


# %% tags=["check"]
labkit.check("run_plan", run_plan)

# %% [markdown]
# ## 6 The ring adds up
#
# `tensor.view(-1)` flattens a contiguous tensor without copying it, and a slice `flat[start:end]` is a view of the same
# memory.
#
# ### Exercise [[ring_sum]]
#
# *28 points, about 5 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="ring_sum" points=28 difficulty=2 importance=5 minutes=5 title="The ring adds up" provides=["ring_sum"] needs=["chunk_bounds", "ring_plan", "run_plan"]
def ring_sum(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Replace tensor, on every rank of group, with the sum of all their tensors, in a ring.

    You have chunk_bounds, ring_plan and run_plan.

    Args:
        tensor: Contiguous, any dtype and shape; it may be empty or have fewer elements than there are ranks. Changed in
            place.
        group: Who takes part; None means all ranks. Only its members call.
    """
    # BEGIN SOLUTION ring_sum
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[start:end] for start, end in chunk_bounds(flat.numel(), world_size)]
    run_plan(ring_plan(rank, world_size), chunks, group)
    # END SOLUTION


# %% tags=["check"]
labkit.check("ring_sum", ring_sum)

# %% [markdown]
# Three real processes, and the numbers of section 1:


# %%
def three_ranks_in_a_ring():
    gradient = GRADIENTS[dist.get_rank()].to(message_device())
    ring_sum(gradient)
    return gradient.tolist()


labkit.run(three_ranks_in_a_ring, on=labkit.local(3)).results

# %% [markdown]
# **Eight H100s, 16 MB each: how many times faster is the ring than going through rank 0?**

# %% tags=["predict"]
labkit.predict("ring_speedup", 2.0, unit="times")

# %%
in_a_ring = labkit.run(all_reduce_once, ring_sum, 16 * MB, on=labkit.virtual(8))
both = labkit.compare(through_root, in_a_ring, names=("through rank 0", "ring"))
labkit.reveal("ring_speedup", through_root.timeline.makespan_ns / in_a_ring.timeline.makespan_ns, both)

# %% [markdown]
# The ring, the run at the bottom, has no queue: in every step each port carries one chunk out and one chunk in. A chunk
# is B/N bytes, and a rank sends one in each of 2(N-1) steps:
#
# $$ \text{bytes sent by each rank} = \frac{2(N-1)}{N}\,B $$
#
# That is always less than 2B. No algorithm of point-to-point messages does better (Patarasuk and Yuan, 2009). Each
# element must be sent at least N-1 times to be added up, and N-1 times more to hand out its sum. So the ranks together
# send 2(N-1) B. The formula is an equal share.
#
# By bytes alone the ring would be 8 times faster here. Rank 0 receives 7 messages of 16 MB and then sends 7: 224 MB,
# one after another. In the ring each rank sends 28 MB, and receives as much at the same time. But every message also
# pays 7.2 µs of latency. Every addition takes 4 µs: launching its kernel takes longer than adding 2 MB. And of the
# link's 450 GB/s, headers leave 371 for the payload. **How many µs does the ring take, without the barrier?** Count
# steps.

# %% tags=["predict"]
labkit.predict("ring_us", 75.0, unit="µs")

# %%
alone = labkit.run(ring_sum, torch.empty(4 * MB, device="meta"), on=labkit.virtual(8))
labkit.reveal("ring_us", alone.timeline.makespan_ns / 1e3)

# %% [markdown]
# A step moves 2 MB in 5.4 µs and pays 7.2 µs of latency. The first 7 of the 14 steps also add. 14 · 12.6 + 7 · 4 = 204
# µs, and the bytes take only 76 of these. The ring's messages are eight times smaller, so latency weighs more: the ring
# is less than 8 times faster.
#
# **[[twice_the_ranks]].** Sixteen ranks, the same links, a tensor so large that only bytes count. How long does the
# ring take, compared with eight? Choose `"half as long"`, `"about as long"` or `"twice as long"`.

# %% tags=["why"] exercise="twice_the_ranks" title="Twice the ranks"
labkit.answer("twice_the_ranks", "about as long")

# %% [markdown] tags=["slide-only"]
# ## In a ring, every rank sends less than 2B
#
# To sum B = 100 MB, the busiest rank sends:
#
# | ranks | through rank 0 | in a ring |
# |---:|---:|---:|
# | 2 | 100 MB | 100 MB |
# | 8 | 700 MB | 175 MB |
# | 1,024 | 102,300 MB | 199.8 MB |
# | *N* | $(N-1)\,B$ | $2(N-1)\,B/N$ |
#
# <!-- notes: Rank 0 is the one that all bytes pass through. It receives as much as it sends, first the one and then the other. A rank of a ring receives as much, too, but at the same time. Patarasuk and Yuan 2009: over messages between pairs, nothing needs less. -->

# %% [markdown]
# ## 7 A ring that is right, and slow
#
# A colleague wrote a ring as well. It adds up correctly on any number of ranks. But on eight H100s with 16 MB it takes
# about twice the 225 µs of the ring above:

# %% [markdown] tags=["slide-only"]
# ## Right, and slow
#
# **To the room:** two rings sum 16 MB on eight ranks: why is one slower?
#
# <!-- beside: ring, a colleague's ring -->
# <!-- notes: The ring is that of before: 225 µs, its start included. The other, recorded in section 7, takes about twice as long. It never hangs, and the sums are right. Compare one step of each: how long is it, and what fills it? A receive takes as long as its send, and 7.2 µs of latency: so long the ring's ranks wait in each step, once their own bytes are out. What does every rank send in the first two steps? -->

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("slow_ring")

# %% [markdown]
# ### Exercise [[slow_ring]]
#
# Zoom into the first two steps and follow the arrows.
#
# `sent_mb`: how many MB does rank 3 send in the whole run? `links`: while bytes move, how many of the ring's eight
# links (each from a rank to the next) are busy at the same time? `cause`: `"a slow rank"`, `"a slow link"`, `"whole
# tensor in every step"` or `"taking turns"`?

# %% tags=["find"] exercise="slow_ring" points=0 minutes=6 title="Right, and slow"
labkit.answer("slow_ring", sent_mb=28, links=4, cause="taking turns")

# %% [markdown]
# No sum shows this mistake. So `labkit.check` also looks at the messages. Look at a timeline even when the numbers are
# right.

# %% [markdown]
# ## 8 What to remember
#
# * **Reduce-scatter + all-gather = all-reduce.** In a ring, each rank sends 2(N-1)/N times the tensor.
# * Send and receive **in one batch**. Do not touch what is in flight.
# * Each chunk is completed on *one* rank and copied from there, so all ranks get **the same bits**. Once copies of a
#   model differ in the last bit, training does not make them equal again.
# * A ring goes at the pace of its slowest rank and its slowest link.
#
# This function is exported with what it needs, and runs under plain `torchrun`:


# %% tags=["export"]
def main() -> dict[str, float]:
    """Sum 16 MiB with ring_sum and with dist.all_reduce; return their largest difference and their milliseconds."""
    mine = torch.full((2**22,), dist.get_rank() + 0.5, device=message_device())
    library, milliseconds = mine.clone(), {}
    for name, all_reduce, tensor in (("ring", ring_sum, mine), ("library", dist.all_reduce, library)):
        all_reduce(torch.ones_like(tensor))  # opens connections
        dist.barrier()
        start = time.perf_counter()
        all_reduce(tensor)
        if tensor.is_cuda:
            torch.cuda.synchronize()
        milliseconds[f"{name}_ms"] = round(1e3 * (time.perf_counter() - start), 1)
    return {"max_difference": (mine - library).abs().max().item(), **milliseconds}


# %% tags=["nbval-ignore-output"]
labkit.run(main, on=labkit.local(2)).results[0]

# %% [markdown]
# ```
# labkit export 02_ring_all_reduce.ipynb --out ring.py
# torchrun --nproc-per-node 4 ring.py
# ```
#
# **The next question.** With 64 ranks, a ring takes 126 steps. For a tiny tensor, the latency of these steps is nearly
# the whole cost. And if half of the ranks are in another machine, behind one slow network card, the ring goes at the
# pace of that card. What would you send, and to whom, if you knew the links?

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * reduce-scatter, then all-gather
# * 2(N-1)/N times the tensor leaves each rank
# * every rank sends and receives at once: **nothing queues at rank 0**
#
# Next: tiny tensors, and slow links between machines.

# %% [markdown]
# ## Bonus: Count the bytes
#
# ### Exercise [[count_bytes]]
#
# *8 points, about 3 minutes; difficulty 1 of 5, importance 3 of 5*
#
# Write both counts of section 6 as functions.


# %% tags=["exercise"] exercise="count_bytes" points=8 difficulty=1 importance=3 minutes=3 title="Count the bytes" provides=["root_bytes", "ring_bytes"] bonus=true
def root_bytes(num_bytes: int, world_size: int) -> int:
    """Return the bytes that pass rank 0's link in naive_all_reduce, sent plus received.

    Args:
        num_bytes: Size of the tensor on one rank.
        world_size: Number of ranks N.
    """
    # BEGIN SOLUTION count_bytes
    return 2 * (world_size - 1) * num_bytes
    # END SOLUTION


def ring_bytes(num_bytes: int, world_size: int) -> float:
    """Return the bytes that one rank sends in a ring all-reduce.

    Args:
        num_bytes: Size of the tensor on one rank.
        world_size: Number of ranks N.
    """
    # BEGIN SOLUTION count_bytes
    return 2 * (world_size - 1) / world_size * num_bytes
    # END SOLUTION


# %% tags=["check"]
labkit.check("count_bytes", root_bytes, ring_bytes)

# %%
print("ranks   rank 0 sends   each rank of a ring sends")  # and each receives as much
for world_size in (2, 4, 8, 64, 1024):
    print(f"{world_size:5} {root_bytes(100, world_size) // 2:11} MB {ring_bytes(100, world_size):24.1f} MB")

# %% [markdown]
# ## Bonus: What was really sent
#
# `ring_player` can also watch your function run. It calls your `ring_sum` once, on values that encode their rank and
# chunk, and checks every message. If the wrong chunk is sent, it says: expected C, got B.

# %% tags=["nbval-ignore-output", "no-slide"]
labkit.ring_player(ring_sum, on=labkit.virtual(4))

# %% [markdown]
# One last trap. If you change a buffer while it is being sent, *sometimes* the new value is sent. On real processes you
# find that only by comparing every rank's result with the right one. A virtual rank watches the buffer. What does rank
# 1 receive here, and who notices?


# %% tags=["nbval-ignore-output"]
def changes_it_too_early():
    value = torch.ones(4)
    if dist.get_rank() == 0:
        work = dist.isend(value, dst=1)
        value.zero_()
        work.wait()
    else:
        dist.recv(value, src=0)
    return value.tolist()


early = labkit.run(changes_it_too_early, on=labkit.virtual(2))
print(early.results, *(problem.text for problem in early.timeline.problems), sep="\n")

# %% [markdown]
# There is no exception. But the record of the run names the problem and both source lines, the `isend` and the write,
# and `labkit.check` reads that record.
#
# ### Sources
#
# * P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", *Journal of
#   Parallel and Distributed Computing* 69 (2009): the ring and its lower bound.
# * NCCL user guide, "Point-to-point communication": why sends and receives that need each other belong in one group.
#   PyTorch documentation, `torch.distributed`: `batch_isend_irecv`, `all_reduce`.
# * NVIDIA's data sheet of the H100: NVLink 4 carries 900 GB/s, both directions together.
