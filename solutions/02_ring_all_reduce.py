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

# %% [markdown] tags=["slide"]
# # 02 Ring all-reduce
#
# Many devices, each with its own gradient. Every one of them needs the sum. You will build the algorithm that most
# training jobs use for it, and find out what it costs.

# %% [markdown]
# **What you will be able to do**
#
# * say why gradients are summed across devices, and when to divide;
# * write an all-reduce from `send` and `recv`, first the obvious one, then the ring;
# * make it good enough to stand in for `dist.all_reduce`: any length, layout, type and group;
# * predict its time from two numbers and on eight H100s that you need not own, measure it, explain the difference;
# * say when a tree is faster, and what NCCL does that you did not.
#
# **Time:** 85 to 100 minutes, and 25 more for the two bonus exercises.
#
# **What you must know:** PyTorch tensors, and what a gradient is for. No GPU is needed. Nothing about distributed
# training is assumed.
#
# **How it goes.** You *predict* a number and write it down, *build* the thing, *check* it, *measure* it, and then the
# text explains what you saw. A wrong guess is not a mistake; it marks what you are about to learn.
#
# * `labkit.predict("root_megabytes", None, unit="MB")` writes your guess down: put your number in place of `None`.
# * `labkit.check("chunk_bounds", chunk_bounds)` runs your function on several cases. Those that communicate run on real
#   processes, and once they pass, on 2 to 16 virtual ranks, where every step is counted.
# * `labkit.hint("chunk_bounds")` gives you a hint. Ask up to three times: a nudge, the idea, almost the line.
#
# **Points.** Each exercise has points, and you get all of them or none. They rest on other cases than those that
# `labkit.check` shows you: other lengths, other numbers of ranks, other groups. So write what the docstring asks for,
# not what the visible cases need.

# %% tags=["given"]
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

import torch
import torch.distributed as dist

import labkit

# %% [markdown]
# ## 1 Why gradients must be summed
#
# A **rank** is one process with its own memory and, in real training, its own GPU. The ranks are numbered from 0. How
# many there are is the **world size**, N in formulas. All of them run the same function. They differ only in what
# `dist.get_rank()` returns.
#
# `labkit.run` starts the processes for you, here three of them, and collects what each one returns. The first run of a
# session takes some seconds, for it loads PyTorch; those after it are quick.


# %% tags=["nbval-ignore-output"]
def hello():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"I am rank {rank} of {world_size}")


labkit.run(hello, on=labkit.local(3))

# %% [markdown]
# The order of the lines is not fixed. These are three processes, and nobody told them to take turns.
#
# (To use GPUs you change nothing but that last argument. `on=labkit.local(8)` on a host with eight GPUs gives each
# rank its own GPU and sends the messages with NCCL. Without GPUs they go through gloo, on the CPU.)

# %% [markdown] tags=["slide"]
# ### Three devices, one sum
#
# | | gradient |
# |---|---|
# | device 0 | 2, 4, 6 |
# | device 1 | 1, 2, 3 |
# | device 2 | 4, 8, 12 |
# | **every device needs** | **7, 14, 21** |
#
# The operation that turns the first three rows into the last one, *on every device*, is called **all-reduce**.

# %%
GRADIENTS = torch.tensor([[2.0, 4.0, 6.0], [1.0, 2.0, 3.0], [4.0, 8.0, 12.0]])


def three_devices():
    gradient = GRADIENTS[dist.get_rank()].clone()
    dist.all_reduce(gradient)  # in place: gradient now holds the sum
    return gradient.tolist()


labkit.run(three_devices, on=labkit.local(3)).results

# %% [markdown]
# Three rows, all equal. `dist.all_reduce` did that. In this lesson you build what is inside it.
#
# Why does anybody want this sum? In **data-parallel** training every rank holds a copy of the model and sees its own
# part of the batch:
#
# 1. forward and backward on its own part give its own gradient;
# 2. all-reduce makes all gradients equal;
# 3. every rank takes the same optimizer step, so the copies stay equal.
#
# Without step 2 you would train N different models. But is the *sum* the right thing? Look at one step of linear
# regression. The loss is the mean over the batch, as almost always. Twelve samples on one device, or four on each of
# three: **if you only sum the three gradients, how many times too large is the result?** Put your guess in the next
# cell, in place of `None`, and run it.

# %% tags=["predict"]
labkit.predict("sum_over_mean", 1.0, unit="times")

# %%
torch.manual_seed(0)
weight = torch.zeros(3, dtype=torch.float64, requires_grad=True)
x, y = torch.randn(12, 3, dtype=torch.float64), torch.randn(12, dtype=torch.float64)


def gradient_of(x, y):
    loss = ((x @ weight - y) ** 2).mean()
    return torch.autograd.grad(loss, weight)[0]


whole_batch = gradient_of(x, y)
summed = sum(gradient_of(x[part], y[part]) for part in torch.arange(12).chunk(3))
labkit.reveal("sum_over_mean", (summed / whole_batch).mean())

# %% [markdown] tags=["slide"]
# ### Sum or mean?
#
# * The loss is a **mean** over the batch: sum the gradients, then divide by N.
# * The loss is a **sum** over the batch: only sum.
# * The parts differ in size: weight each gradient by its number of samples, then divide by the total.
#
# All three begin with the same operation, the sum. Dividing in the wrong place, or twice, raises no error. It
# silently changes your learning rate by a factor of N.

# %% [markdown]
# ## 2 The obvious way: through rank 0
#
# Two calls move data between two ranks, and both **block**:
#
# * `dist.send(tensor, dst=1)` returns when `tensor` may be changed again, which may be as late as when rank 1 has
#   taken it;
# * `dist.recv(tensor, src=0)` returns when the data has arrived in `tensor`.
#
# Every `send` needs its `recv` on the other side, with the same shape and type.
#
# With these two you can build an all-reduce. Everybody sends to rank 0. Rank 0 adds, and sends the total back.
#
# ### Exercise [[naive_all_reduce]]
#
# *8 points, about 5 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="naive_all_reduce" points=8 difficulty=2 importance=4 minutes=5 title="Reduce to rank 0, then send back" provides=["naive_all_reduce"]
def naive_all_reduce(tensor: torch.Tensor) -> None:
    """Replace tensor, on every rank, by the sum of all ranks' tensors. Everything passes through rank 0.

    Args:
        tensor: This rank's contribution, contiguous, same shape and dtype on every rank; changed in place.
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


# %% [markdown]
# Once it passes, look at it work: four ranks, 16 MB each. `labkit.run` records every send and every receive. (The first
# of the next two cells only says where a tensor must live to be sent.) **Before you run them:** which rank will be
# the busiest, and what will the others do meanwhile?


# %% tags=["given"]
def message_device() -> torch.device:
    """Return where tensors must live to be sent: this rank's GPU with NCCL, the CPU with gloo."""
    return labkit.device() if "nccl" in dist.get_backend() else torch.device("cpu")


# %% tags=["nbval-ignore-output"]
MB = 10**6


def all_reduce_once(all_reduce, num_bytes):
    tensor = torch.ones(num_bytes // 4, device=message_device())  # float32 has 4 bytes
    dist.barrier()  # everybody is here: start together
    all_reduce(tensor)
    return tensor[0].item()


naive_run = labkit.run(all_reduce_once, naive_all_reduce, 16 * MB, on=labkit.local(4))
naive_run.timeline

# %% [markdown]
# Time runs to the right, and each arrow is a message. The row *comm* shows a rank's sends, receives and collectives.
# A bar is solid while bytes move and hatched while the rank stands still: in a call, or in `wait()`, and nothing moves.
# The title says how much of their time the ranks were *blocked* like that. Every arrow begins or ends at rank 0. Ranks
# 2 and 3 are blocked long before they send, but not because sending takes so long: a blocking send waits until the
# other side takes the data, and rank 0 takes one after the other. There is one queue, and it is in front of rank 0.
# Add ranks, and it grows.
#
# ### The same on eight H100s
#
# You need not own eight GPUs to see that. `labkit.virtual(8)` is eight H100s, joined by NVLink, that are not there. The
# same function runs on them, unmodified, inside this one process. Its sums are real. Its clock is not: each operator
# and each message takes as long as a model of that hardware says. So you get the same picture on every machine, every
# time. (`labkit.hardware` lists what the model knows of each device and link, and from where.)

# %%
naive_h100 = labkit.run(all_reduce_once, naive_all_reduce, 16 * MB, on=labkit.virtual(8))
naive_h100.timeline

# %% [markdown]
# Now time runs in microseconds, and nothing else on the machine disturbs the picture. All seven sends begin at the same
# moment, on seven ports that each carry 450 GB/s. They end one after the other, like a staircase, because all of them
# go into **one port, rank 0's**. That is **contention**: links that are fast one by one, and a place that all must
# pass. On the way back the staircase runs the other way: rank 0 has one port out as well. Between two receives rank 0
# adds (the blue bars), and nobody sends meanwhile.
#
# How much passes rank 0's link? Say **8 ranks, and a gradient of 100 MB**. How many MB go in and out of rank 0
# together?

# %% tags=["predict"]
labkit.predict("root_megabytes", 100, unit="MB")

# %% [markdown]
# ### Exercise [[count_bytes]]
#
# *4 points, about 2 minutes; difficulty 1 of 5, importance 4 of 5*
#
# First rank 0 above: count the arrows that touch it. Then the algorithm you are about to build, the **ring**. The ranks
# stand in a circle, and the tensor is cut in N equal pieces. Each piece makes two trips round the circle. On the first
# it starts at one rank and collects a contribution from every other. On the second it starts complete, and brings the
# sum to every other rank. All pieces travel at the same time, so all ranks send equally much. How many times is each
# piece sent in all, and how much of that does one rank do?


# %% tags=["exercise"] exercise="count_bytes" points=4 difficulty=1 importance=4 minutes=2 title="Count the bytes" provides=["root_bytes", "ring_bytes"]
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
labkit.reveal("root_megabytes", root_bytes(100, 8))

# %%
print("ranks   through rank 0   each rank of a ring sends")
for world_size in (2, 4, 8, 64, 1024):
    print(f"{world_size:5} {root_bytes(100, world_size):13} MB {ring_bytes(100, world_size):24.1f} MB")

# %% [markdown] tags=["slide"]
# ### The bottleneck is one link
#
# | ranks | through rank 0's link | each rank of a ring sends |
# |---:|---:|---:|
# | 2 | 200 MB | 100 MB |
# | 8 | 1,400 MB | 175 MB |
# | 64 | 12,600 MB | 197 MB |
# | 1,024 | 204,600 MB | 200 MB |
#
# (a gradient of 100 MB)
#
# The left column grows with N. The right one never reaches twice the tensor, however many ranks there are. And
# nothing better is possible: over links between pairs of ranks, some rank must send at least 2(N-1)/N times the
# tensor (Patarasuk and Yuan, 2009).

# %% [markdown]
# ## 3 Cut it in chunks
#
# Rank 0 works while the others wait. So share the work: cut the tensor into N **chunks**, and let every rank be the
# "root" of one of them.
#
# The chunks must cover the tensor exactly, also when its length does not divide by N. The rule is the one that
# `torch.tensor_split` uses: sizes differ by at most one, and the longer ones come first. Ten elements in four chunks
# are 3, 3, 2, 2. Two elements in four chunks are 1, 1, 0, 0: **an empty chunk is fine**, and you will be glad of it
# later.
#
# ### Exercise [[chunk_bounds]]
#
# *6 points, about 4 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="chunk_bounds" points=6 difficulty=2 importance=5 minutes=4 title="Chunk bounds" provides=["chunk_bounds"]
def chunk_bounds(numel: int, num_chunks: int) -> list[tuple[int, int]]:
    """Return (start, end) of each chunk: sizes differ by at most one, the longer chunks come first.

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

# %%
for numel in (12, 10, 2):
    print(f"{numel:2} elements in 4 chunks:", chunk_bounds(numel, 4))


# %% [markdown]
# ## 4 The ring, as a plan
#
# Put the ranks in a circle. Each one sends only to its right neighbour, rank + 1, and receives only from its left
# neighbour, rank - 1. The last rank's right neighbour is rank 0.
#
# Now let every chunk travel round the circle and collect contributions. Here are the three devices again. A chunk is
# one number, and what arrives is **added**:

# %% [markdown] tags=["slide"]
# ### First half: reduce-scatter
#
# | | rank 0 | rank 1 | rank 2 | on the move |
# |---|---|---|---|---|
# | start | 2, 4, 6 | 1, 2, 3 | 4, 8, 12 | |
# | after step 0 | 2, 4, **18** | **3**, 2, 3 | 4, **10**, 12 | rank r sends chunk r |
# | after step 1 | 2, **14**, 18 | 3, 2, **21** | **7**, 10, 12 | rank r sends what it has just added up |
#
# After N-1 steps each rank holds **one finished chunk**: 14 on rank 0, 21 on rank 1, 7 on rank 2.

# %% [markdown] tags=["slide"]
# ### Second half: all-gather
#
# | | rank 0 | rank 1 | rank 2 | on the move |
# |---|---|---|---|---|
# | before | 2, **14**, 18 | 3, 2, **21** | **7**, 10, 12 | |
# | after step 2 | **7**, 14, 18 | 3, **14**, 21 | 7, 10, **21** | rank r sends its finished chunk |
# | after step 3 | 7, 14, **21** | **7**, 14, 21 | 7, **14**, 21 | rank r sends what has just arrived |
#
# The same ring and as many steps. But now what arrives **replaces** what was there.

# %% [markdown]
# Follow one chunk with your finger: chunk 0 starts on rank 0 as 2, becomes 3 on rank 1 and 7 on rank 2. There it is
# complete, and from there it is handed round.
#
# With 3 ranks, rank 0 ended the first half with chunk 1. **With 4 ranks, which chunk is complete on rank 3 after the
# first half?**

# %% tags=["predict"]
labkit.predict("chunk_of_rank_3", 3)

# %% [markdown]
# You could now write loops with `send` and `recv`. Do something better first: write down *what happens*, as plain
# data. A **plan** is a list of small records for one rank. You can print it, draw it and test it without starting a
# single process.


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


# %% [markdown]
# ### Exercise [[ring_plan]]
#
# *12 points, about 10 minutes; difficulty 3 of 5, importance 5 of 5*
#
# For each step: one `Send`, then one `Recv`, then, in the first half only, one `Reduce`. For rank 0 of 2 ranks the
# whole plan is
#
# ```python
# [Send(step=0, chunk=0, peer=1), Recv(step=0, chunk=1, peer=1), Reduce(step=0, chunk=1),
#  Send(step=1, chunk=1, peer=1), Recv(step=1, chunk=0, peer=1)]
# ```
#
# Two tips. What you receive in a step is what your left neighbour sends in it. And Python's `%` never gives a
# negative number here: `-1 % 4` is 3.


# %% tags=["exercise"] exercise="ring_plan" points=12 difficulty=3 importance=5 minutes=10 title="The ring as a plan" provides=["ring_plan"]
def ring_plan(rank: int, world_size: int) -> list[Send | Recv | Reduce]:
    """Return what one rank does in a ring all-reduce: in every step Send, then Recv, then (first half) Reduce.

    Steps 0..N-2 are the reduce-scatter, steps N-1..2N-3 the all-gather.

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

# %%
for record in ring_plan(rank=0, world_size=3):
    print(record)

# %% [markdown]
# Rank 0 of 3, word for word. Now all ranks of a world of 4 at a glance, only the chunk that each one **sends**:

# %%
print("step     0  1  2  3  4  5")
for rank in range(4):
    sent = [record.chunk for record in ring_plan(rank, 4) if isinstance(record, Send)]
    print(f"rank {rank}  ", "  ".join(str(chunk) for chunk in sent))


# %% [markdown]
# In each column every chunk appears once: all links are used, and no two ranks push the same chunk.
#
# A plan is data, so you can carry it out without starting a process. The next cell does, with the plans of all ranks.
# Press ▶, or take it step by step with the arrow keys. A rank is a spoke, a chunk has its own circle, and the number in
# a square says how many contributions are summed in that chunk. To the right, who sends which chunk in which step.
# Above it stands your guess: which chunk is complete on rank 3 after the first half.

# %% tags=["nbval-ignore-output"]
player = labkit.ring_player(ring_plan, num_ranks=4)
complete = player.numbers["complete_chunks"][2][3]  # after step 2, on rank 3: the chunks with 4 contributions
labkit.reveal("chunk_of_rank_3", complete[0] if complete else "none", player)

# %% [markdown]
# What to notice: in the first half each step makes one chunk a rank one richer: 2, 3, 4. After step 2 there is exactly
# one dark square on each spoke and on each circle. In the second half these dark squares are copied until all is dark.
# Then move the sliders. More ranks: the same pattern, more steps. One slow link: all links wait for it.
#
# Does your picture look different? Then your plan is wrong, in a way you can now see: a chunk that comes where another
# was expected is red.
#
# The halves have names of their own, because people use them alone: **reduce-scatter** (every rank ends with its own
# piece of the sum) and **all-gather** (every rank gets all pieces). All-reduce is one after the other.

# %% [markdown] tags=["slide"]
# ### A plan is data
#
# ```python
# Send(step=0, chunk=0, peer=1)
# Recv(step=0, chunk=2, peer=2)
# Reduce(step=0, chunk=2)
# ...
# ```
#
# * N-1 steps of reduce-scatter, N-1 steps of all-gather
# * one chunk of B/N bytes out, one in, in every step, on **every** rank: no link waits
# * print it, draw it, test it; then run it

# %% [markdown]
# ## 5 Run the plan
#
# In each step every rank sends to the right *and* receives from the left. If everybody first sends, with a call that
# blocks, nobody receives. All wait for ever. You will watch that happen in section 14.
#
# The calls that do not block are `dist.isend` and `dist.irecv`. They start a transfer and return an object with
# `wait()`. Is it enough to call one after the other? With gloo yes: threads of its own move the data, whatever order
# you started the transfers in. **With NCCL your ring may hang.** There, a transfer is a kernel on the GPU, and it
# occupies its queue (the CUDA stream) until the peer takes part. Every rank has its send at the head of the queue and
# its receive behind it. Nobody's receive ever runs.
#
# The way out is to hand over both at once. NCCL then starts them as one group, and inside a group calls do not wait
# for each other:
#
# ```python
# batch = [dist.P2POp(dist.isend, outgoing, group=group, group_peer=right),
#          dist.P2POp(dist.irecv, incoming, group=group, group_peer=left)]
# for work in dist.batch_isend_irecv(batch):
#     work.wait()
# ```
#
# Three rules:
#
# * **Do not touch a tensor in flight.** Until `wait()` returns, do not write to what you send, and do not read what
#   you receive.
# * **Receive into a buffer of its own, then add.** If you receive straight into the chunk, your own contribution is
#   gone.
# * **`group_peer` counts inside the group.** `peer=`, like `dst=` and `src=`, counts in the whole world. Inside a
#   sub-group the two differ.

# %% [markdown] tags=["slide"]
# ### Why one batch a step
#
# | | blocking `send`, then `recv` | `isend`, then `irecv` | `batch_isend_irecv` |
# |---|---|---|---|
# | gloo | hangs | works | works |
# | NCCL | hangs | may hang: the receive queues behind the send | works: one group, one launch |
#
# NCCL's user guide says so too: to the GPU a send or a receive is a blocking operation, and those that need each other
# belong in one group.

# %% [markdown]
# ### Exercise [[run_plan]]
#
# *14 points, about 10 minutes; difficulty 4 of 5, importance 5 of 5*
#
# Take *any* plan, not only a ring's. A step may hold several sends and receives. `combine` is what a `Reduce` does.
# Its default is `torch.add`, and you call it as `combine(chunk, incoming, out=chunk)`, which adds in place. Leave
# messages of empty chunks out: both sides know that there is nothing to say. If a step has no message left, skip its
# batch: `dist.batch_isend_irecv` does not take an empty list.
#
# The check sees which messages travel, not how you posted them: with gloo a batch and separate calls look alike. The
# batch is for NCCL.


# %% tags=["exercise"] exercise="run_plan" points=14 difficulty=4 importance=5 minutes=10 title="Run a plan" provides=["run_plan"]
def run_plan(
    plan: list[Send | Recv | Reduce],
    chunks: list[torch.Tensor],
    group: dist.ProcessGroup | None = None,
    combine: Callable[..., torch.Tensor] = torch.add,
) -> None:
    """Carry out this rank's plan, one dist.batch_isend_irecv for each step that has a message.

    Args:
        plan: Records in the order of their steps; a step may hold several sends and receives. Peers are ranks
            within group. What a Recv brings replaces its chunk, unless the step also has a Reduce of that chunk.
        chunks: 1-D contiguous tensors, changed in place; the records' chunk is an index into this list.
        group: Where the messages travel; None is the default group.
        combine: What Reduce does: combine(chunk, incoming, out=chunk). No message is sent for an empty chunk.
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
# You have the chunks, the plan and the executor. What remains is short. `tensor.view(-1)` flattens a contiguous
# tensor without copying it, and a slice of it, `flat[start:end]`, is a window on the same memory. Change the window
# and you change the tensor.
#
# ### Exercise [[ring_sum]]
#
# *16 points, about 4 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="ring_sum" points=16 difficulty=3 importance=5 minutes=4 title="The ring adds up" provides=["ring_sum"] needs=["chunk_bounds", "ring_plan", "run_plan"]
def ring_sum(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Replace tensor, on every rank of group, by the sum of all their tensors.

    Args:
        tensor: Contiguous, any number of dimensions and any length, shorter than the world or empty included;
            changed in place.
        group: Who takes part; None is everybody.
    """
    # BEGIN SOLUTION ring_sum
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.view(-1)
    chunks = [flat[start:end] for start, end in chunk_bounds(flat.numel(), world_size)]
    run_plan(ring_plan(rank, world_size), chunks, group)
    # END SOLUTION


# %% tags=["check"]
labkit.check("ring_sum", ring_sum)


# %%
def three_devices_ring():
    gradient = GRADIENTS[dist.get_rank()].to(message_device())
    ring_sum(gradient)
    return gradient.tolist()


labkit.run(three_devices_ring, on=labkit.local(3)).results

# %% [markdown]
# 7, 14, 21 on every rank, and no rank did more than the others. But does each message carry what the plan says? Run it
# once on numbers that tell whose they are and to which chunk they belong, and look into every message. This is no plan
# any more, but what your `ring_sum` really sent. If a wrong chunk is under way, it says: expected c2, got c1.

# %% tags=["nbval-ignore-output"]
labkit.ring_player(ring_sum, on=labkit.virtual(4))

# %% [markdown]
# Now the same 16 MB on 4 ranks as before.

# %% tags=["nbval-ignore-output"]
ring_run = labkit.run(all_reduce_once, ring_sum, 16 * MB, on=labkit.local(4))
ring_run.timeline

# %% [markdown]
# Six steps, and in each of them all four ranks send and receive at the same time. Arrows go to the right neighbour
# only; those that cross the picture run from rank 3 back to rank 0. Compare what each rank sent:

# %%
from labkit.timeline import metrics

for name, run in (("through rank 0", naive_run), ("ring", ring_run)):
    print(f"{name:14}  MB sent by each rank: {(metrics.bytes_sent(run.timeline) / MB).tolist()}")

# %% [markdown]
# Rank 0 went from 48 MB to 24 MB sent. More important, the others carry the same now. With a link of its own for every
# rank, that is what makes the ring fast. Your machine has no such links, but the eight H100s do. **Same 16 MB there: how
# many times faster is the ring than the way through rank 0?**

# %% tags=["predict"]
labkit.predict("ring_speedup", 2.0, unit="times")

# %%
ring_h100 = labkit.run(all_reduce_once, ring_sum, 16 * MB, on=labkit.virtual(8))
both = labkit.compare(naive_h100, ring_h100, names=("through rank 0", "ring"))
labkit.reveal("ring_speedup", naive_h100.timeline.makespan_ns / ring_h100.timeline.makespan_ns, both)

# %% [markdown]
# Both on one axis, the ring below. Fourteen steps, all ranks in step, no staircase: each port carries one chunk out and one chunk in. By bytes alone you
# would say 4 times: 7 × 16 MB go into rank 0, and 28 MB into each rank of the ring. It is a little less. The ring
# has fourteen steps, and each pays the latency; and seven of them add, a kernel that takes microseconds however short
# the chunk is.

# %% [markdown]
# ## 7 A drop-in for `dist.all_reduce`
#
# Your `ring_sum` is right for tidy tensors. Real gradients are not always tidy. Here is what stands between you and a
# function that can replace `dist.all_reduce`.
#
# **Layout.** A transposed tensor is a view whose elements do not lie next to each other. `view(-1)` refuses it:

# %%
column_major = torch.arange(6.0).view(2, 3).t()
print("contiguous?", column_major.is_contiguous())
try:
    column_major.view(-1)
except RuntimeError as error:
    print(error)
print("contiguous() copies:", column_major.contiguous().data_ptr() != column_major.data_ptr())

# %% [markdown]
# `tensor.contiguous()` returns the tensor itself if it is contiguous, and else a **copy**. Reduce the copy, and the
# caller's tensor has not changed. So copy the result back. (`reshape(-1)` is a trap: of `x[::2]` it returns a view
# with the gaps still in it, which cannot be sent.)
#
# **16-bit types.** bfloat16 keeps 8 significant bits. Add a thousand ones in bfloat16, one after the other. **What is
# the sum?**

# %% tags=["predict"]
labkit.predict("bfloat16_total", 1000.0)

# %%
total = torch.tensor(0.0, dtype=torch.bfloat16)
for _ in range(1000):
    total += torch.tensor(1.0, dtype=torch.bfloat16)
labkit.reveal("bfloat16_total", total)

# %% [markdown]
# At 256 the next number that bfloat16 can write is 258. So 256 + 1 rounds back to 256, for ever.
#
# A ring adds one after the other too, and the partial sum is rounded on **every hop**. The more ranks, the larger the
# error. The remedy is to let the partial sums travel as float32, and to round once at the end. The next cell adds
# gradients of N ranks both ways and compares with the exact sum.


# %% tags=["nbval-ignore-output"]
def relative_error(world_size, partial_dtype):
    generator = torch.Generator().manual_seed(1)
    gradients = (1 + torch.randn(world_size, 10_000, generator=generator)).bfloat16()
    partial = torch.zeros(10_000, dtype=partial_dtype)
    for gradient in gradients:
        partial += gradient.to(partial_dtype)
    exact = gradients.double().sum(dim=0)
    return ((partial.bfloat16().double() - exact).norm() / exact.norm()).item()


print("ranks   bfloat16 partial sums   float32 partial sums")
for world_size in (2, 8, 64, 512):
    in_16_bits, in_32_bits = (relative_error(world_size, dtype) for dtype in (torch.bfloat16, torch.float32))
    print(f"{world_size:5}{in_16_bits:22.2%}{in_32_bits:23.2%}")

# %% [markdown] tags=["slide"]
# ### bfloat16: round once, not on every hop
#
# * bfloat16 has 8 significant bits: 256 + 1 = 256
# * partial sums in bfloat16: one rounding for every hop, the error **grows with N**
# * partial sums in float32: one rounding at the end, the error **stays at about 0.2 %**
# * the price: twice the bytes in the reduce-scatter; the all-gather can stay at 16 bits
#
# Frameworks give you the choice, for example `reduce_dtype` in PyTorch's `fully_shard`.

# %% [markdown]
# **Average.** `AVG` is the sum divided by N; of integers, it is rounded towards zero. After the reduce-scatter every rank holds one finished chunk. Divide
# that one there, and each element is divided exactly once. (Divide the whole tensor at the end and it is right too,
# with N times the work. Do both and you have divided twice.)
#
# **Other operations.** `MAX`, `MIN` and `PRODUCT` are the same ring with another `combine`: `torch.maximum`,
# `torch.minimum`, `torch.mul`.
#
# **Sub-groups.** `dist.new_group([1, 3])` is a world inside the world. In it rank 3 has the *group rank* 1:
# `dist.get_rank(group)`. On a rank that is not a member this is -1, and such a rank should return at once.
#
# **Bitwise equal.** Each chunk is added up in another order, because each starts on another rank. Floating point
# cares about order, so your result may differ from `dist.all_reduce` in the last bit. But each chunk is finished on
# *one* rank and copied from there, so all ranks get the same bits. That matters: copies of a model that differ in the
# last bit drift apart.
#
# **`async_op=True`.** The caller gets an object back and promises not to touch the tensor before `wait()`. What
# happens in between is up to you. Doing all of it in `wait()` is allowed. It just hides nothing behind other work.
# gloo has threads for that, NCCL a CUDA stream of its own. What that is worth is a matter for the next lesson.

# %% [markdown]
# ### Exercise [[drop_in_all_reduce]]
#
# *16 points, about 12 minutes; difficulty 5 of 5, importance 5 of 5*
#
# One idea makes this short: **a plan can be cut in two**. The records with `step < N-1` are the reduce-scatter. Run
# them on one list of chunks (float32, say). Then run the rest on another (the tensor's own type).


# %% tags=["exercise"] exercise="drop_in_all_reduce" points=16 difficulty=5 importance=5 minutes=12 title="A drop-in for dist.all_reduce" provides=["ring_all_reduce"] needs=["chunk_bounds", "ring_plan", "run_plan"]
def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    """Do what dist.all_reduce does, with a ring: same arguments, same result in tensor on every rank of group.

    Args:
        tensor: Any shape, contiguous or not; float32, float64, bfloat16, float16 or integers; changed in place.
            For bfloat16 and float16 the partial sums are float32, so that the error does not grow with the world.
        op: dist.ReduceOp.SUM, AVG, MAX, MIN or PRODUCT. AVG of integers is rounded towards zero.
        group: Who takes part; a rank outside it returns None at once, with async_op too, and leaves its tensor alone.
        async_op: If True, return an object whose wait() finishes the work and returns True; else finish it now and
            return None.
    """
    # BEGIN SOLUTION drop_in_all_reduce
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
        flat = source.contiguous().view(-1)  # the tensor itself if it is contiguous, else a copy
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


# %% tags=["check"]
labkit.check("drop_in_all_reduce", ring_all_reduce)


# %% [markdown]
# Now swap it in. Here is one data-parallel training step, whole. The all-reduce is an argument. Each rank takes its
# own rows of the same batch. The result is compared with a single process that sees the whole batch.


# %%
def backward_on_part(all_reduce):
    torch.manual_seed(0)  # the same model and the same batch on every rank
    device = message_device()
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1)).double().to(device)
    x, y = torch.randn(12, 5).double().to(device), torch.randn(12, 1).double().to(device)
    rows = torch.arange(12).chunk(dist.get_world_size())[dist.get_rank()] if all_reduce else slice(None)
    torch.nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
    for parameter in model.parameters():
        if all_reduce:
            all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= dist.get_world_size()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).cpu()


def compare_steps():
    mine, library, alone = (backward_on_part(f) for f in (ring_all_reduce, dist.all_reduce, None))
    return torch.allclose(mine, library, rtol=1e-12), torch.allclose(mine, alone, rtol=1e-12)


for rank, (as_library, as_alone) in enumerate(labkit.run(compare_steps, on=labkit.local(4)).results):
    print(f"rank {rank}: equal to dist.all_reduce: {as_library}, equal to one process with the whole batch: {as_alone}")

# %% [markdown]
# What was compared: all gradients of one step, summed by your ring and divided by N, with those that `dist.all_reduce`
# gives and with those of one process that saw the whole batch. They agree to 12 digits, so the optimizer takes the same
# step.

# %% [markdown]
# ## 8 What it costs
#
# Two numbers describe a link well enough to plan with. A message of *m* bytes takes
#
# $$ t = \alpha + \frac{m}{\beta} $$
#
# where **α** is the latency in seconds, paid for every message, and **β** the bandwidth in bytes a second. A ring
# all-reduce of B bytes is 2(N-1) such messages, one after the other, of B/N bytes each. A **tree** (you build it
# next) is 2 ⌈log₂ N⌉ messages, each of the whole B bytes. (In papers β is often the inverse, seconds a byte.)
#
# Before you write it down: going **from 8 to 16 ranks** with a huge tensor, so that α does not matter, the ring's
# time is multiplied by what?

# %% tags=["predict"]
labkit.predict("ring_time_8_to_16", 2.0, unit="times")

# %% [markdown]
# ### Exercise [[ring_cost]]
#
# *8 points, about 4 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="ring_cost" points=8 difficulty=2 importance=4 minutes=4 title="What it costs" provides=["ring_seconds", "tree_seconds", "bus_bandwidth"]
def ring_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:
    """Return the time of a ring all-reduce: 2(N-1) steps, each one latency plus one chunk of B/N bytes."""
    # BEGIN SOLUTION ring_cost
    return 2 * (world_size - 1) * (latency_s + num_bytes / (world_size * bandwidth_Bps))
    # END SOLUTION


def tree_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:
    """Return the time of a tree all-reduce: ceil(log2 N) rounds up and as many down, each with the whole tensor."""
    # BEGIN SOLUTION ring_cost
    return 2 * math.ceil(math.log2(world_size)) * (latency_s + num_bytes / bandwidth_Bps)
    # END SOLUTION


def bus_bandwidth(num_bytes: float, seconds: float, world_size: int) -> float:
    """Return busbw in bytes per second: algbw = B/seconds, times 2(N-1)/N."""
    # BEGIN SOLUTION ring_cost
    return 2 * (world_size - 1) / world_size * num_bytes / seconds
    # END SOLUTION


# %% tags=["check"]
labkit.check("ring_cost", ring_seconds, tree_seconds, bus_bandwidth)

# %%
labkit.reveal("ring_time_8_to_16", ring_seconds(1e9, 16, 0, 50e9) / ring_seconds(1e9, 8, 0, 50e9))

# %% [markdown] tags=["slide"]
# ### algbw and busbw
#
# $$ t_{ring} = 2(N-1)\left(\alpha + \frac{B}{N\beta}\right) $$
#
# * **algbw** = B / t: what you feel. It falls as N grows, on the same hardware.
# * **busbw** = algbw × 2(N-1)/N: what each link carried. Compare *this* with the data sheet.
#
# | N | 2 | 4 | 8 | 64 |
# |---|---|---|---|---|
# | 2(N-1)/N | 1.00 | 1.50 | 1.75 | 1.97 |
#
# The names are those of nccl-tests (its PERFORMANCE.md derives the factor). The factor holds for any algorithm made
# of sends and receives.

# %% [markdown]
# ## 9 A tree, and when it wins
#
# The ring wins on bytes. It loses on steps: 2(N-1) latencies. For a small tensor on many ranks that is all you pay.
#
# A **binomial tree** needs only ⌈log₂ N⌉ rounds up and as many down. With 6 ranks:
#
# | round, distance | who sends to whom, on the way up |
# |---|---|
# | 0, distance 1 | 1 → 0, 3 → 2, 5 → 4 |
# | 1, distance 2 | 2 → 0 (rank 4 would receive from 6, which does not exist) |
# | 2, distance 4 | 4 → 0 |
#
# In the round with distance d, rank r + d sends to rank r whenever r is a multiple of 2d. Then the total goes down by
# the same arrows, reversed, and in reverse order: the longest distance first.
#
# Sub-groups again: these numbers are ranks *inside the group*. `dist.send` and `dist.recv` have arguments for that,
# `dist.send(tensor, group_dst=3, group=group)` and `dist.recv(tensor, group_src=3, group=group)`. With plain `dst=` and
# `src=` you name ranks of the whole world, whatever group you pass.
#
# ### Exercise [[tree_all_reduce]]
#
# *8 points, about 8 minutes; difficulty 4 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="tree_all_reduce" points=8 difficulty=4 importance=4 minutes=8 title="A tree" provides=["tree_all_reduce"]
def tree_all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Replace tensor by the sum over group: up a binomial tree to rank 0, then down the same tree.

    Args:
        tensor: Contiguous, changed in place.
        group: Who takes part, any number of ranks N; 2 ceil(log2 N) rounds. None is everybody.
    """
    # BEGIN SOLUTION tree_all_reduce
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


# %% tags=["check"]
labkit.check("tree_all_reduce", tree_all_reduce)

# %% [markdown]
# ### Exercise [[halving_doubling]]
#
# *8 points, about 10 minutes; difficulty 4 of 5, importance 2 of 5*
#
# Can one have few rounds *and* few bytes? If N is a power of two, yes. In the first round rank r talks to rank r XOR
# N/2. (XOR, `^` in Python, flips one bit of the number here: `5 ^ 4` is 1 and `1 ^ 4` is 5, so it makes pairs.) The
# two cut their range in half. The one with the smaller number keeps the lower half, the other the upper. Each sends the
# half it gives up, and adds what arrives to the half it keeps. Then the same with XOR N/4 on the half that is left, and
# so on down to XOR 1. Of an odd range one half is longer, say the upper; both partners must cut at the same place. A
# half may be empty: then nothing is sent. That is a reduce-scatter in log₂ N rounds. Walk the same way back, and it
# is an all-gather: 2 log₂ N rounds, and 2(N-1)/N of the bytes, as in the ring (Thakur, Rabenseifner and Gropp, 2005).


# %% tags=["exercise"] exercise="halving_doubling" points=8 difficulty=4 importance=2 minutes=10 title="Halving and doubling" provides=["halving_doubling_all_reduce"] bonus=true
def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    """Replace tensor by the sum over all ranks: recursive halving reduce-scatter, recursive doubling all-gather.

    Args:
        tensor: Contiguous, any length, odd, shorter than the world or empty included; changed in place.
    Raises:
        ValueError: If the world size is not a power of two.
    """
    # BEGIN SOLUTION halving_doubling
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


# %% tags=["check"]
labkit.check("halving_doubling", halving_doubling_all_reduce)

# %% [markdown]
# When does which one win? Take 64 GPUs, a latency of 10 µs and 50 GB/s a rank, which is one 400 Gb/s InfiniBand port.
# **Up to what size is the tree faster than the ring?** Write your guess in MB.

# %% tags=["predict"]
labkit.predict("tree_wins_below", 0.01, unit="MB")

# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt

ALPHA, BANDWIDTH, RANKS = 10e-6, 50e9, 64
sizes = [2.0**power for power in range(8, 33)]
rounds = math.ceil(math.log2(RANKS))
halving_seconds = [2 * rounds * ALPHA + ring_bytes(size, RANKS) / BANDWIDTH for size in sizes]

figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.loglog(sizes, [ring_seconds(size, RANKS, ALPHA, BANDWIDTH) * 1e3 for size in sizes], color="#0072B2", label="ring")
axes.loglog(
    sizes, [tree_seconds(size, RANKS, ALPHA, BANDWIDTH) * 1e3 for size in sizes], "--", color="#D55E00", label="tree"
)
axes.loglog(sizes, [seconds * 1e3 for seconds in halving_seconds], ":", color="#009E73", label="halving and doubling")
crossover = ALPHA * BANDWIDTH * (RANKS - 1 - rounds) / (rounds - (RANKS - 1) / RANKS)
axes.axvline(crossover, color="gray", linewidth=0.8, label=f"ring = tree at {crossover / 1e6:.1f} MB")
ring_ms, tree_ms = (1e3 * cost(crossover, RANKS, ALPHA, BANDWIDTH) for cost in (ring_seconds, tree_seconds))
there = f"at {crossover / 1e6:.2f} MB the ring takes {ring_ms:.2f} ms and the tree {tree_ms:.2f} ms"
axes.set(xlabel="tensor on each rank (bytes)", ylabel="predicted time (ms)")
axes.set_title(f"{RANKS} ranks, 10 µs, 50 GB/s: {there}", fontsize=9)
axes.legend()
plt.close()  # shown once, with your guess
labkit.reveal("tree_wins_below", crossover / 1e6, figure)

# %% [markdown]
# The crossing is where both formulas are equal. Solve for B, with L = ⌈log₂ N⌉:
#
# $$ B = \alpha\beta\,\frac{N-1-L}{L-(N-1)/N} $$
#
# It grows with α, with β and with N. So a rule such as "trees below 1 MB" is a rule for one cluster. Libraries
# compute it anew for each.
#
# The green line is best everywhere. Why is it not all one uses? It wants a power of two, and its partners are far
# apart: rank 0 talks to rank 32, through many switches that others use at the same moment. The formula has no word
# for that. A ring talks to neighbours only.
#
# ### Ask the cluster
#
# A formula is one model, the virtual cluster is another, and it runs *your* functions. Sixteen GPUs, each in a host of
# its own with one 400 Gb/s port: α and β are those of the catalogue. `time.perf_counter()` inside a virtual rank is
# that rank's virtual clock, so one stopwatch serves all worlds.


# %%
def stopwatch(all_reduce, num_bytes):
    tensor = torch.ones(num_bytes // 4, device=message_device())
    dist.barrier()
    start = time.perf_counter()
    all_reduce(tensor)
    return time.perf_counter() - start


def on_ports(all_reduce, num_bytes, ranks):
    """Return the virtual microseconds of an all-reduce on hosts with one InfiniBand port each."""
    return 1e6 * max(labkit.run(stopwatch, all_reduce, num_bytes, on=labkit.virtual(ranks, link="ib_ndr")).results)


port = labkit.virtual(16, link="ib_ndr").cluster.nic
port_alpha, port_beta = port.latency_ns / 1e9, port.payload_bytes_per_second
print(f"alpha {port_alpha * 1e6:.1f} µs, beta {port_beta / 1e9:.0f} GB/s")
print("   KiB    ring: formula   cluster     tree: formula   cluster   (µs, 16 ranks)")
found = {}
for size in (2**12, 2**18, 2**20, 2**22):
    formula = [1e6 * cost(size, 16, port_alpha, port_beta) for cost in (ring_seconds, tree_seconds)]
    found[size] = on_ports(ring_sum, size, 16), on_ports(tree_all_reduce, size, 16)
    print(f"{size // 1024:6}{formula[0]:17.0f}{found[size][0]:10.0f}{formula[1]:18.0f}{found[size][1]:10.0f}")

# %% [markdown]
# Both columns of the cluster lie above the formula, by the same amount from the first line to the second. Take it apart:

# %%
rings_more, trees_more = (
    seen - 1e6 * cost(2**12, 16, port_alpha, port_beta)
    for seen, cost in zip(found[2**12], (ring_seconds, tree_seconds), strict=True)
)
print(f"ring: {rings_more:.0f} µs more, and it adds 15 times: {rings_more / 15:.1f} µs each")
print(f"tree: {trees_more:.0f} µs more, and its root adds 4 times: {trees_more / 4:.1f} µs each")
small, large = 2**20, 2**22
lead = {size: found[size][0] - found[size][1] for size in (small, large)}  # how much the tree is ahead, in µs
crossing = small + (large - small) * lead[small] / (lead[small] - lead[large])
predicted = port_alpha * port_beta * (15 - 4) / (4 - 15 / 16)
print(f"ring = tree at {predicted / 1e6:.2f} MB by the formula, at {crossing / 1e6:.2f} MB on the cluster")

# %% [markdown]
# There it is: the formula counts messages and forgets that somebody must add. Starting a kernel on a GPU takes about
# four microseconds, however little it has to do, and the ring starts eleven more of them. So the tree stays ahead a
# little longer than the formula says. Whoever fits α to measurements, as you will in section 10, gets that into it.
#
# Now more ranks. **From 16 to 256, with 1 MiB: how many times longer does the tree take?**

# %% tags=["predict"]
labkit.predict("tree_time_16_to_256", 16.0, unit="times")

# %%
rows = ["ranks    ring: formula   cluster     tree: formula   cluster   (µs, 1 MiB)"]
trees = {}
for ranks in (16, 32, 64, 256):
    formula = [1e6 * cost(2**20, ranks, port_alpha, port_beta) for cost in (ring_seconds, tree_seconds)]
    ring = f"{on_ports(ring_sum, 2**20, ranks):10.0f}" if ranks <= 64 else "          "
    trees[ranks] = on_ports(tree_all_reduce, 2**20, ranks)
    rows.append(f"{ranks:5}{formula[0]:17.0f}{ring}{formula[1]:18.0f}{trees[ranks]:10.0f}")
labkit.reveal("tree_time_16_to_256", trees[256] / trees[16], rows)

# %% [markdown]
# Sixteen times the ranks, and the tree takes eight rounds in place of four. The ring takes 510 steps in place of 30. (A
# ring of 256 sends 130,560 messages. Your machine can simulate it, but not while you wait; the formula will do.) At 1
# MiB nobody would use a plain ring there. At 1 GiB nobody would use this tree.

# %% [markdown] tags=["slide"]
# ### Ring, tree, halving and doubling
#
# | | messages in a row | bytes a rank sends | good for |
# |---|---|---|---|
# | through rank 0 | 2(N-1) | 2(N-1) B in and out, at the root | nothing |
# | ring | 2(N-1) | 2(N-1)/N · B | large tensors, any N |
# | binomial tree | 2 ⌈log₂ N⌉ | up to ⌈log₂ N⌉ · B | small tensors, any N |
# | halving and doubling | 2 log₂ N | 2(N-1)/N · B | powers of two, good networks |
# | two trees, in pieces | about 2 log₂ N + pieces | about 2B | large N, most sizes |
#
# The last row is what NCCL calls Tree: two binary trees, each rank a leaf in one of them, tensor cut in pieces that
# follow each other (Sanders, Speck and Träff, 2009).

# %% [markdown]
# ## 10 Predict, measure, explain
#
# Now your own machine. The next cell times your ring and gloo's (or NCCL's) `all_reduce` on 2 and on 4 ranks. It
# takes some seconds.
#
# First a guess. busbw says what each link carries, so it should not depend on N. **By what factor does your ring's
# busbw change from 2 ranks to 4, here?** (1.0 means not at all.)

# %% tags=["predict"]
labkit.predict("busbw_2_to_4", 1.0, unit="times")


# %% tags=["nbval-ignore-output"]
def sweep(collectives, sizes, repeats=7):
    """Return {(name, size): seconds of the fastest repeat}."""
    seconds = {}
    for size in sizes:
        tensor = torch.ones(size // 4, device=message_device())
        for name, collective in collectives.items():
            times = []
            for _ in range(repeats + 1):
                dist.barrier()
                start = time.perf_counter()
                collective(tensor.fill_(1))
                if tensor.is_cuda:
                    torch.cuda.synchronize()  # a GPU's work goes on after the call returns
                times.append(time.perf_counter() - start)
            seconds[name, size] = min(times[1:])  # the least disturbed; the first one opens connections
    return seconds


SIZES = [2**16, 2**20, 2**22, 2**24]
COLLECTIVES = {"yours": ring_all_reduce, "library": dist.all_reduce}
measured = {}
for ranks in (2, 4):
    results = labkit.run(sweep, COLLECTIVES, SIZES, on=labkit.local(ranks)).results
    measured[ranks] = {key: max(seconds[key] for seconds in results) for key in results[0]}  # the slowest rank counts

rows = ["ranks        size  whose        ms  algbw GB/s  busbw GB/s"]
for ranks, seconds in measured.items():
    for (name, size), each in seconds.items():
        gbps = 1e-9 * size / each, 1e-9 * bus_bandwidth(size, each, ranks)
        rows.append(f"{ranks:5}{size // 1024:8} KiB  {name:8}{each * 1e3:7.2f}{gbps[0]:12.3g}{gbps[1]:12.3g}")
busbw = {ranks: bus_bandwidth(SIZES[-1], measured[ranks]["yours", SIZES[-1]], ranks) for ranks in (2, 4)}
labkit.reveal("busbw_2_to_4", busbw[4] / busbw[2], rows)

# %% [markdown]
# Now fit the model to what you measured. Two points on 4 ranks, the smallest and the largest size, give α and β. They
# then predict a third, 4 MiB, that the fit has not seen.

# %% tags=["nbval-ignore-output"]
ranks, ours = 4, {size: measured[4]["yours", size] for size in SIZES}
small, large, middle = SIZES[0], SIZES[-1], SIZES[2]
beta = ring_bytes(large - small, ranks) / (ours[large] - ours[small])  # the extra bytes over the extra time
alpha = ours[small] / (2 * (ranks - 1)) - small / (ranks * beta)  # what is left of one step
predicted_here = ring_seconds(middle, ranks, alpha, beta)
print(f"alpha {alpha * 1e6:.0f} µs, bandwidth {beta / 1e9:.2f} GB/s")
print(f"{middle // 2**20} MiB: predicted {predicted_here * 1e3:.1f} ms, measured {ours[middle] * 1e3:.1f} ms")

# %% [markdown]
# What to make of it, on a machine with two cores and little else to do (measure on a busy one and the numbers jump; run
# the cell again before you believe them):
#
# * **There is no link.** "Sending" here is copying memory from one process to another, and a core must do it. Four
#   ranks on two cores share the two cores, so expect busbw to fall from 2 ranks to 4. On a machine with a link
#   for each rank, and with GPUs that copy by themselves, it would hardly move.
# * **α is large.** A message waits until its receiver gets a turn on a core, and that can take a millisecond. Between
#   GPUs it takes a few microseconds.
# * **The prediction is off, but not wildly.** A straight line through two points knows nothing of caches (a chunk that
#   fits is cheaper to add than one that does not) and nothing of the other programs on your machine.
# * **Compare with the library, size by size.** At 16 MiB, time is spent on copying bytes, and Python is not the one who
#   copies. At 64 KiB you see what Python costs: some objects and some calls for each message.
#
# Try it: change `SIZES`, or on a host with more cores, or with GPUs, change the ranks.
#
# You now have three ways to predict the ring: the formula, the virtual cluster, and both can be told *your* α and β. The
# next cell builds a virtual machine out of them and runs your function on it, real processes beside it.

# %% tags=["nbval-ignore-output"]
from labkit.hardware import Link

host = Link("this_host", beta, max(1, round(alpha * 1e9)), "fitted above", "fitted above")
on_model = labkit.run(stopwatch, ring_all_reduce, middle, on=labkit.virtual(4, gpu="cpu", link=host, gpus_per_node=4))
print(f"{middle // 2**20} MiB on 4 ranks, in ms")
print(f"  formula          {predicted_here * 1e3:7.1f}")
print(f"  virtual cluster  {max(on_model.results) * 1e3:7.1f}")
print(f"  measured         {ours[middle] * 1e3:7.1f}   the fastest of 7")
once = labkit.run(stopwatch, ring_all_reduce, middle, on=labkit.local(4))
print(f"  measured once    {max(once.results) * 1e3:7.1f}   in fresh processes, connections still to open")
once.timeline

# %% [markdown]
# The formula and the virtual cluster agree, or nearly: they are the same two numbers. The cluster adds what its model of
# a processor says an addition costs, which is already in the α and β that you fitted. What neither knows is what you
# see in the picture: bars of the same step that begin at different times, because ranks wait for a *core*, not for a
# link. A virtual rank never waits for a core. And a first run pays for connections that later ones find open. A
# model tells you what the hardware allows; only the measurement tells you what happened.

# %% [markdown] tags=["slide"]
# ### Predict, measure, explain
#
# * two points give α and β; a third tests them
# * busbw should not depend on N. If it does, ranks share something: a core, a switch, a network card
# * time the slowest rank, after a barrier, several times; drop the first, it opens connections
# * on a GPU, synchronize before you read the clock

# %% [markdown]
# ## 11 All to all
#
# In one more pattern every rank has a *different* piece for every other. Rank i sends `inputs[j]` to rank j, which
# finds it in `outputs[i]`. Think of a matrix of pieces, ranks by ranks: it is transposed.
#
# Models with experts need it in every layer, to bring each token to the GPU where its expert lives. How many tokens
# go where is different each time, so **sizes differ, and may be 0**.
#
# ### Exercise [[all_to_all]]
#
# *8 points, about 6 minutes; difficulty 3 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="all_to_all" points=8 difficulty=3 importance=3 minutes=6 title="All to all" provides=["all_to_all"]
def all_to_all(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Send inputs[i] to rank i of group, and receive rank i's piece for this rank in outputs[i].

    Args:
        outputs: One tensor for each rank; outputs[i] has the size of what rank i sends here. Changed in place.
        inputs: One tensor for each rank; sizes may differ and may be 0. inputs[own rank] is copied.
        group: Who takes part; None is everybody.
    """
    # BEGIN SOLUTION all_to_all
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


# %% tags=["check"]
labkit.check("all_to_all", all_to_all)


# %%
def transpose():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = message_device()
    inputs = [torch.tensor([10 * rank + peer], device=device) for peer in range(world_size)]
    outputs = [torch.empty_like(piece) for piece in inputs]
    all_to_all(outputs, inputs)
    return [piece.item() for piece in inputs], [piece.item() for piece in outputs]


for rank, (before, after) in enumerate(labkit.run(transpose, on=labkit.local(3)).results):
    print(f"rank {rank}: {before} -> {after}")

# %% [markdown]
# Rows became columns. By the way, if every rank adds up what it received, you have a reduce-scatter again, in one
# step with N-1 messages. Same bytes as the ring, other partners.

# %% [markdown]
# ## 12 Within and between machines
#
# Eight GPUs in a machine talk at hundreds of GB/s. Between machines there are perhaps 50. One ring through all ranks
# goes at the speed of its slowest link. So use the fast links first:
#
# 1. **inside each machine**, reduce-scatter: each of its G ranks ends with B/G bytes, summed over the machine;
# 2. **between machines**, each rank all-reduces its piece with the ranks of the same position in the other machines;
# 3. **inside each machine**, all-gather.

# %% [markdown] tags=["slide"]
# ### Two levels
#
# M machines with G ranks each, a tensor of B bytes:
#
# | | leaves each machine | through | messages in a row |
# |---|---|---|---|
# | one ring through all ranks | 2(N-1)/N · B | one rank's network card | 2(N-1) |
# | **two levels** | 2(M-1)/M · B | **G cards, B/G each** | 2(M-1) + 2(G-1) |
#
# Almost the same bytes, but spread: with G = 8 and a network card for each rank, eight cards work at once.

# %% [markdown]
# ### One network card for four GPUs
#
# How much do the cards matter? Eight H100s again, now in two machines of four, and every GPU sends 4 MB to its partner in
# the other machine. First with a network card for each GPU, then with **one card for all four**. How many times longer
# does that take?

# %% tags=["predict"]
labkit.predict("one_card_slowdown", 2.0, unit="times")


# %%
def to_the_other_machine():
    rank, half = dist.get_rank(), dist.get_world_size() // 2
    outgoing = torch.ones(1 * MB, device=message_device())  # 4 MB
    incoming = torch.empty_like(outgoing)
    partner = (rank + half) % (2 * half)
    dist.barrier()
    start = time.perf_counter()
    batch = [dist.P2POp(dist.isend, outgoing, partner), dist.P2POp(dist.irecv, incoming, partner)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return time.perf_counter() - start


own_card = labkit.run(to_the_other_machine, on=labkit.virtual(8, gpus_per_node=4))
one_card = labkit.run(to_the_other_machine, on=labkit.virtual(8, gpus_per_node=4, nics_per_node=1))
labkit.reveal("one_card_slowdown", max(one_card.results) / max(own_card.results), one_card.timeline)

# %% [markdown]
# The staircase is back, one in each machine: four messages through one card, one after the other. Not quite four times
# as long, for they share the bandwidth of the card, not its latency. Nothing in your code says so; it is where the ranks
# happen to sit. So whoever places ranks on machines decides what your all-reduce costs.
#
# ### Exercise [[hierarchical_all_reduce]]
#
# *8 points, about 12 minutes; difficulty 5 of 5, importance 3 of 5*
#
# A *node* is one machine. Ranks 0 to G-1 are node 0, the next G are node 1, and so on. You have all the parts:
# `ring_plan` for each small ring and `run_plan` to run it.
#
# One thing does not fit. A plan for a ring of 2 says `peer=1`, but the ring's members may be ranks 3 and 7. A record
# is frozen, and `replace(record, peer=7)` makes a changed copy. Plans are data: translate them.


# %% tags=["exercise"] exercise="hierarchical_all_reduce" points=8 difficulty=5 importance=3 minutes=12 title="Within and between nodes" provides=["hierarchical_all_reduce"] needs=["chunk_bounds", "ring_plan", "run_plan"] bonus=true
def hierarchical_all_reduce(tensor: torch.Tensor, ranks_per_node: int) -> None:
    """Replace tensor by the sum over all ranks, with few bytes between nodes.

    Reduce-scatter within each node, all-reduce of each piece between the nodes, all-gather within each node.

    Args:
        tensor: Contiguous, any length, changed in place.
        ranks_per_node: G; ranks 0..G-1 are node 0, G..2G-1 node 1 and so on.
    Raises:
        ValueError: If ranks_per_node does not divide the world size.
    """
    # BEGIN SOLUTION hierarchical_all_reduce
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


# %% tags=["check"]
labkit.check("hierarchical_all_reduce", hierarchical_all_reduce)

# %% [markdown]
# Once it passes: 16 MB on two machines of four, one ring through all ranks against yours, with four cards and with one.


# %%
def in_two_levels(tensor):
    hierarchical_all_reduce(tensor, ranks_per_node=4)


print("network cards   one ring   two levels   (µs)")
for cards in (4, 1):
    machines = labkit.virtual(8, gpus_per_node=4, nics_per_node=cards)
    flat, levels = (
        1e6 * max(labkit.run(stopwatch, all_reduce, 16 * MB, on=machines).results)
        for all_reduce in (ring_sum, in_two_levels)
    )
    print(f"{cards:13}{flat:11.0f}{levels:13.0f}")

# %% [markdown]
# The flat ring crosses from machine to machine at one place only, so three of the four cards never help it, and it loses
# nothing when they are gone. Your two levels keep all four busy; with one card left they still win, for they send
# less through it.

# %% [markdown]
# ## 13 What NCCL does beyond this
#
# Your ring is the real thing. Between GPUs, NCCL adds what Python cannot:
#
# * **No CPU in the loop.** One kernel runs all 2(N-1) steps on the GPU. It waits for its neighbour by looking at a
#   flag in memory, and it adds while it receives.
# * **Channels.** Not one ring but several, each on its own share of the tensor, with its own block of GPU threads.
#   Each can take another route, so that all links are used.
# * **Pieces.** A chunk goes in small pieces, so that step s+1 starts before step s has ended. `run_plan` can do so
#   too: a plan is right for every slice of its chunks.
# * **Protocols.** *Simple* sends large blocks and then says so: full bandwidth, more latency. *LL* puts a 4-byte flag
#   beside every 4 bytes of data: at best half the bandwidth, little latency. *LL128* spends 8 bytes in 128, where the
#   link keeps 128 bytes together.
# * **Choice.** For every call it estimates the time of each algorithm and protocol, from size, ranks and links, and
#   takes the least. That is your exercise [[ring_cost]]. `NCCL_ALGO` and `NCCL_PROTO` force it; `NCCL_DEBUG=INFO` shows what it
#   found.
# * **Sums in the switch.** With NVLink SHARP (NVLS) the switch itself adds. Each GPU sends its data once and receives
#   the sum once, about half of a ring's bytes. busbw with the factor 2(N-1)/N can then exceed what the link can
#   carry.

# %% [markdown] tags=["slide"]
# ### The links
#
# | link | between | bandwidth, each way |
# |---|---|---|
# | NVLink 4 (H100) | GPUs of one machine, through NVSwitch | 450 GB/s a GPU |
# | NVLink 5 (B200) | GPUs of one machine or one rack | 900 GB/s a GPU |
# | PCIe 5.0 x16 | GPU and CPU, GPU and network card | about 63 GB/s |
# | InfiniBand NDR | machines | 400 Gb/s = 50 GB/s a port |
# | Ethernet, 100 Gb/s | machines | 12.5 GB/s a port |
#
# **RDMA**: the network card reads and writes memory by itself, no CPU, no copy. **GPUDirect RDMA**: it reads the
# GPU's memory. InfiniBand has RDMA built in; on Ethernet it is called RoCE.

# %% [markdown] tags=["slide"]
# ### NCCL, gloo, MPI
#
# | | memory | travels by | use it for |
# |---|---|---|---|
# | **NCCL** (RCCL on AMD) | GPU | NVLink, PCIe, InfiniBand, TCP | training on GPUs |
# | **gloo** | CPU; GPU collectives go through the CPU | TCP | CPUs, tests, control messages |
# | **MPI** | CPU, GPU in some builds | what the cluster has | clusters that live on it; PyTorch must be built for it |
#
# The function that you wrote calls `torch.distributed` only. It runs on all of them.

# %% [markdown]
# ## 14 Break it on purpose
#
# You will meet these failures in real life, usually at night. Meet them here first. The classic: **every rank sends,
# then receives.** Three ranks, one number each. What will happen?

# %% tags=["nbval-ignore-output"]
from labkit.errors import RankFailed, RunTimeout


def everybody_sends_first():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    outgoing, incoming = torch.tensor([float(rank)]), torch.empty(1)
    dist.send(outgoing, dst=(rank + 1) % world_size)
    dist.recv(incoming, src=(rank - 1) % world_size)


try:
    labkit.run(everybody_sends_first, on=labkit.local(3, device="cpu"))
except RunTimeout as error:
    print(error)

# %% [markdown]
# Read it line by line: every rank stands on the same `send`, and each waits for the next one in the circle. That is
# what a **deadlock** looks like. Under plain `torchrun` you would see nothing at all until the group's timeout, which
# is 30 minutes with gloo and 10 with NCCL. The cure you know: start the send and the receive together.
#
# The same function on three virtual ranks. There the deadlock needs no waiting and no guessing: when no rank can go on,
# that is known, and with it the circle.

# %% tags=["nbval-ignore-output"]
try:
    labkit.run(everybody_sends_first, on=labkit.virtual(3))
except RunTimeout as error:
    print(error)

# %% [markdown]
# The second classic is a wrong modulo. Somebody forgot that the last rank's right neighbour is rank 0.


# %% tags=["nbval-ignore-output"]
def neighbour_without_modulo():
    rank = dist.get_rank()
    outgoing, incoming = torch.ones(1), torch.empty(1)
    batch = [dist.P2POp(dist.isend, outgoing, rank + 1), dist.P2POp(dist.irecv, incoming, rank - 1)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()


try:
    labkit.run(neighbour_without_modulo, on=labkit.local(3, device="cpu"))
except RankFailed as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# Look for the number that cannot be: in a world of three there is no rank 3, and no rank -1. `labkit.run` holds every
# peer against the group before the library sees it. Gloo itself does not check such numbers. Under plain `torchrun`
# rank 2 waits for rank 3 for ever, rank 0 asks for a message from rank -1, which gloo takes to mean "from anybody", and
# now and then you read of a segmentation fault instead.
#
# In the third one only *one* rank makes a mistake. Ten samples for three ranks, four each; the last rank gets two.


# %% tags=["nbval-ignore-output"]
def one_rank_stumbles():
    rank = dist.get_rank()
    samples = list(range(10))[4 * rank : 4 * rank + 4]
    gradient = torch.tensor([float(samples[sample]) for sample in range(4)])
    ring_sum(gradient)


try:
    labkit.run(one_rank_stumbles, on=labkit.local(3, device="cpu"))
except RankFailed as error:
    print(error)

# %% [markdown]
# The error leads with the rank that failed and with its own line. The other two sat in the ring and would have waited
# for it; they were ended. In a real job they fail too, each with "connection closed by peer", and you must find the
# one that was **first**.
#
# The fourth gives no error at all: change a buffer while it is being sent, and sometimes the new value travels. On real
# processes you only find that by comparing every rank with the truth. A virtual rank watches the buffer. **What does rank
# 1 receive here, and who notices?**


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
print(early.results)
for problem in early.timeline.problems:
    print(problem.text)

# %% [markdown]
# No exception: the program ran. But the record says what it did, with both lines, and `labkit.check` reads that record.

# %% [markdown] tags=["slide"]
# ### Four ways to break it
#
# | mistake | what you see |
# |---|---|
# | all ranks send first, blocking | nothing, for ever: a deadlock |
# | wrong neighbour, wrong count | a wait for someone who never comes; or wrong sums |
# | one rank fails | that rank's error, under many from ranks that lost their peer |
# | a buffer changed in flight | wrong sums, sometimes |
#
# Compare every rank with the truth, on a world size that does not divide the length.

# %% [markdown]
# ## 15 The finished thing
#
# This is your ring against the library, as a function that also runs under plain `torchrun`, on as many machines as
# you like.


# %% tags=["export"]
def main() -> dict[str, float]:
    """Sum 16 MiB with ring_all_reduce and with dist.all_reduce; return their largest difference and their busbw."""
    num_bytes, world_size = 2**24, dist.get_world_size()
    mine = torch.full((num_bytes // 4,), dist.get_rank() + 0.5, device=message_device())
    library = mine.clone()
    seconds = {}
    for name, all_reduce, tensor in (("ring", ring_all_reduce, mine), ("library", dist.all_reduce, library)):
        all_reduce(torch.ones_like(tensor))  # opens connections
        dist.barrier()
        start = time.perf_counter()
        all_reduce(tensor)
        if tensor.is_cuda:
            torch.cuda.synchronize()
        seconds[name] = time.perf_counter() - start
    return {
        "max_difference": (mine - library).abs().max().item(),
        "ring_busbw_GBps": round(bus_bandwidth(num_bytes, seconds["ring"], world_size) / 1e9, 2),
        "library_busbw_GBps": round(bus_bandwidth(num_bytes, seconds["library"], world_size) / 1e9, 2),
    }


# %% tags=["nbval-ignore-output"]
labkit.run(main, on=labkit.local(4)).results[0]

# %% [markdown]
# From a shell, next to this notebook:
#
# ```
# labkit export 02_ring_all_reduce.ipynb --out ring.py
# torchrun --nproc-per-node 4 ring.py
# ```

# %% [markdown] tags=["slide"]
# ### What breaks at scale
#
# * **Latency.** 2(N-1)α with 10 µs: 1.3 ms on 64 ranks, 0.3 s on 16,384. That is why there are trees and two levels.
# * **The slowest.** A ring goes at the pace of its slowest rank and its slowest link. All others wait.
# * **The first to fail.** One lost rank stops all, and all of them notice by waiting.
# * **Small tensors.** A model has hundreds of parameters, many of them tiny. Each all-reduce pays the whole latency.

# %% [markdown]
# ## What to remember
#
# * Data parallelism needs the **sum** of all gradients on every rank. Where you divide is up to you: exactly once.
# * **Reduce-scatter + all-gather = all-reduce.** In a ring each rank sends 2(N-1)/N times the tensor, and nothing can
#   do with less on such links.
# * Ring for large, tree for small. **α and β** tell you where the border is.
# * **busbw** is what you compare with the data sheet.
# * Send and receive **in one batch**. Do not touch what is in flight.
#
# **The question for the next lesson.** Backward computes the gradients one after another, the last layer's first.
# Should you all-reduce each one as soon as it is there, hundreds of times the latency, but while backward still
# computes? Or all of them at the end, in one go, with the GPUs idle meanwhile? You have α and β. What would you do?
# Lesson 04, `04_ddp`, is the answer.

# %% [markdown]
# ### Sources
#
# * P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", *Journal of
#   Parallel and Distributed Computing* 69 (2009): the ring and its lower bound.
# * R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH",
#   *International Journal of High Performance Computing Applications* 19 (2005): recursive halving and doubling, the
#   cost model.
# * P. Sanders, J. Speck and J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
#   *Parallel Computing* 35 (2009): double binary trees.
# * nccl-tests, `doc/PERFORMANCE.md`: algbw and busbw.
# * NCCL user guide: point-to-point communication, environment variables. PyTorch documentation, `torch.distributed`:
#   `batch_isend_irecv`, `all_reduce`.
# * Bandwidths: NVIDIA data sheets for H100 and B200 (NVLink, both directions together: 900 and 1,800 GB/s); PCI-SIG
#   for PCIe 5.0; InfiniBand Trade Association for NDR.
