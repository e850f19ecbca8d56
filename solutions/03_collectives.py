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
# # 03 Collectives at scale
#
# Your ring is right. Unless the network itself can add, in no algorithm does the busiest rank send fewer bytes. Real
# jobs have gradients in bfloat16, non-contiguous tensors, sub-groups, tiny tensors on many ranks, and machines with a
# slow card between them. **Which algorithm is fastest, and how would you know before you rent the machines?**
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** lesson 02. No GPU.
#
# **Stuck?** `labkit.hint("any_tensor")` gives up to three hints. `labkit.lend("any_tensor")` puts a working version
# into the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 03 Collectives at scale
#
# The fastest algorithm depends on the links
#
# <!-- notes: Lesson 02 ended with a ring that nothing beats by bytes on equal links. Today: awkward tensors, tiny tensors, unequal links. -->

# %% tags=["given"]
import math
import time
from collections import namedtuple
from collections.abc import Callable, Sequence
from itertools import permutations

import torch
import torch.distributed as dist

import labkit

MB = 10**6


# %% [markdown]
# ## 1 The two halves of a ring
#
# Here is the ring in loops instead of plans. Each half takes a list of **global ranks**, in any order.


# %% tags=["given"]
def exchange(outgoing: torch.Tensor, to: int, incoming: torch.Tensor, source: int) -> None:
    """Send one tensor and receive another, in one batch; empty ones are left out."""
    messages = [(dist.isend, outgoing, to), (dist.irecv, incoming, source)]
    batch = [dist.P2POp(*message) for message in messages if message[1].numel()]
    for work in dist.batch_isend_irecv(batch) if batch else ():
        work.wait()


def reduce_scatter(
    chunks: Sequence[torch.Tensor], ranks: Sequence[int], combine: Callable[..., torch.Tensor] = torch.add
) -> None:
    """Go round these ranks once; afterwards chunks[i] is complete on ranks[i], and other chunks hold partial sums."""
    place, size = ranks.index(dist.get_rank()), len(ranks)
    for step in range(size - 1):
        chunk = chunks[(place - step - 2) % size]
        landing = torch.empty_like(chunk)
        exchange(chunks[(place - step - 1) % size], ranks[(place + 1) % size], landing, ranks[(place - 1) % size])
        combine(chunk, landing, out=chunk)


def all_gather(chunks: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
    """Go round these ranks once more: chunks[i] of ranks[i] comes to all of them."""
    place, size = ranks.index(dist.get_rank()), len(ranks)
    for step in range(size - 1):
        outgoing, chunk = chunks[(place - step) % size], chunks[(place - step - 1) % size]
        exchange(outgoing, ranks[(place + 1) % size], chunk, ranks[(place - 1) % size])


def ring_sum(tensor: torch.Tensor) -> None:
    """Replace a contiguous tensor, on every rank, with the sum of all ranks' tensors."""
    ranks = list(range(dist.get_world_size()))
    chunks = tensor.view(-1).tensor_split(len(ranks))
    reduce_scatter(chunks, ranks)
    all_gather(chunks, ranks)


# %% [markdown]
# ## 2 A drop-in for `dist.all_reduce`
#
# `ring_sum` is right for tidy tensors. A drop-in takes any tensor, and other operations than the sum (pass another
# `combine`).
#
# **Layout.** A transposed tensor is a view whose elements do not lie next to each other. `view(-1)` refuses it, and
# `reshape(-1)` copies it. `tensor.contiguous()` returns the tensor itself if it is contiguous, and otherwise a
# **copy**. If you reduce the copy, the caller's tensor does not change.
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
# After 256, the next number that bfloat16 can hold is 258. 257 lies half way, and a tie goes to the number whose last
# bit is 0: 256 + 1 is 256. A ring also adds one value after another, and rounds on **every hop**. So send partial sums
# as float32, and round a chunk to 16 bits when its sum is complete. That costs twice the bytes in the reduce-scatter;
# the all-gather still sends 16 bits. PyTorch's `fully_shard` calls this `reduce_dtype`.

# %% [markdown] tags=["slide-only"]
# ## Round once, not on every hop
#
# A sum can travel in bfloat16, or in float32 and be rounded at the end.
#
# **To the room:** add a thousand ones in bfloat16. What is the sum?
#
# <!-- notes: Partial sums in bfloat16: the error grows with N. In float32: one rounding. 256: the next number bfloat16 can write is 258. The price of float32 is twice the bytes in the reduce-scatter. -->

# %% [markdown]
# ### Exercise [[any_tensor]]
#
# *26 points, about 15 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="any_tensor" points=26 difficulty=3 importance=5 minutes=15 title="A ring for any tensor" provides=["all_reduce_over"]
def all_reduce_over(tensor: torch.Tensor, ranks: Sequence[int], op: dist.ReduceOp = dist.ReduceOp.SUM) -> None:
    """Combine the tensors of these ranks by a ring; afterwards tensor holds the result on each of them.

    Args:
        tensor: Any shape, contiguous or not; float32, float64, bfloat16, float16 or integers; changed in place.
            For bfloat16 and float16, compute in float32 whatever the op, and round once at the end. Then the error
            hardly grows with the number of ranks.
        ranks: Global ranks, the same list on each of them. Only these ranks call.
        op: dist.ReduceOp.SUM, AVG, MAX, MIN or PRODUCT. AVG divides the sum by the length of ranks. For 16-bit types it
            divides before rounding; for integers it rounds towards zero.
    """
    # BEGIN SOLUTION any_tensor
    combine = {
        dist.ReduceOp.SUM: torch.add,
        dist.ReduceOp.AVG: torch.add,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.PRODUCT: torch.mul,
    }[op]
    place, size = ranks.index(dist.get_rank()), len(ranks)
    source = tensor.detach()
    flat = source.contiguous().view(-1)  # the tensor itself if it is contiguous, else a copy
    partial = flat.float() if flat.dtype in (torch.bfloat16, torch.float16) else flat
    wide, narrow = partial.tensor_split(size), flat.tensor_split(size)
    reduce_scatter(wide, ranks, combine)
    if op == dist.ReduceOp.AVG:
        wide[place].div_(size, rounding_mode=None if partial.is_floating_point() else "trunc")
    narrow[place].copy_(wide[place])  # the only rounding to 16 bits
    all_gather(narrow, ranks)
    if not source.is_contiguous():
        source.copy_(flat.view(source.shape))
    # END SOLUTION


# %% tags=["check"]
labkit.check("any_tensor", all_reduce_over)

# %% [markdown] tags=["slide-only"]
# ## A group counts its own ranks
#
# | global rank | 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | rank in `dist.new_group([1, 3])` | -1 | 0 | -1 | 1 |
#
# **To the room:** all four ranks call `all_reduce` with this group. What does rank 2 do?
#
# <!-- notes: It returns at once: no message, no change, no handle. With async_op=True the others get a handle; the result is in the tensor after its wait(). -->

# %% [markdown]
# **Sub-groups.** For `group = dist.new_group([1, 3])`, `dist.get_process_group_ranks(group)` returns the global ranks,
# `[1, 3]`. Inside, ranks are counted from 0: on rank 3, `dist.get_rank(group)` returns 1. Outside the group it returns
# -1.
#
# **`async_op=True`.** The caller gets an object, and promises not to touch the tensor before `wait()`. Your `wait()`
# may do all the work.
#
# ### Exercise [[drop_in_all_reduce]]
#
# *20 points, about 13 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="drop_in_all_reduce" points=20 difficulty=3 importance=5 minutes=13 title="A drop-in for dist.all_reduce" provides=["ring_all_reduce"] needs=["any_tensor"]
def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    """Do what dist.all_reduce does, with a ring: same arguments, same result in tensor on every rank of group.

    Args:
        tensor, op: What all_reduce_over takes.
        group: Who takes part. A rank outside it leaves its tensor alone and returns None, whatever async_op says.
        async_op: If True, return an object whose wait(), called once, finishes the work and returns True; if False,
            finish it now and return None. All ranks call wait() on their handles in the same order.
    """
    # BEGIN SOLUTION drop_in_all_reduce
    if dist.get_rank(group) < 0:  # not a member of group
        return None
    members = dist.get_process_group_ranks(group)

    class Pending:
        def wait(self):
            all_reduce_over(tensor, members, op)
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
# ## 3 What it costs
#
# A message of *m* bytes takes
#
# $$ t = \alpha + \frac{m}{\beta} $$
#
# where **α** is the latency, paid for every message, and **β** the bandwidth in bytes per second.
#
# In a ring, each step waits for the one before. A **binomial tree** works in rounds, with the whole tensor in every
# message. In each round, the remaining ranks form pairs; a rank left over waits. One of each pair sends to the other
# and drops out. When one rank has the sum, it sends it back down the same tree.
#
# **algbw** is the tensor's bytes divided by the time. You cannot compare it with a data sheet, because each link
# carries more than the tensor: 7/4 of it in a ring of eight. **busbw** is comparable: whatever the algorithm, take the
# bytes that each link would carry in a *ring*, and divide them by the measured time.
#
# ### Exercise [[ring_cost]]
#
# *10 points, about 5 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="ring_cost" points=10 difficulty=2 importance=4 minutes=5 title="What it costs" provides=["ring_seconds", "tree_seconds", "bus_bandwidth"]
def ring_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:
    """Return how long the ring needs for a tensor of num_bytes, on world_size ranks (2 or more), by α and β."""
    # BEGIN SOLUTION ring_cost
    return 2 * (world_size - 1) * (latency_s + num_bytes / (world_size * bandwidth_Bps))
    # END SOLUTION


def tree_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:
    """Return how long the binomial tree needs, up and down, by α and β; world_size need not be a power of two."""
    # BEGIN SOLUTION ring_cost
    return 2 * math.ceil(math.log2(world_size)) * (latency_s + num_bytes / bandwidth_Bps)
    # END SOLUTION


def bus_bandwidth(num_bytes: float, seconds: float, world_size: int) -> float:
    """Return the busbw of an all-reduce of num_bytes in this time: bytes per second on each link if it were a ring."""
    # BEGIN SOLUTION ring_cost
    return 2 * (world_size - 1) / world_size * num_bytes / seconds
    # END SOLUTION


# %% tags=["check"]
labkit.check("ring_cost", ring_seconds, tree_seconds, bus_bandwidth)

# %% [markdown]
# Take 64 GPUs, a latency of 10 µs and 50 GB/s for each. **Up to how many MB is the tree faster than the ring?**

# %% tags=["predict"]
labkit.predict("tree_wins_below", 0.01, unit="MB")

# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt

ON_64 = (64, 10e-6, 50e9)  # ranks, latency, bandwidth
border = next(
    mb for mb in (n / 10 for n in range(1, 10**4)) if tree_seconds(MB * mb, *ON_64) > ring_seconds(MB * mb, *ON_64)
)
sizes = [2.0**power for power in range(8, 33)]
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for name, cost, line in (("ring", ring_seconds, "-"), ("tree", tree_seconds, "--")):
    axes.loglog(sizes, [1e3 * cost(size, *ON_64) for size in sizes], line, label=name)
axes.set(xlabel="tensor on each rank (bytes)", ylabel="predicted time (ms)")
axes.legend(title=f"64 ranks: the tree wins below {border:.1f} MB")
plt.close()  # shown once, with your guess
labkit.reveal("tree_wins_below", border, figure)

# %% [markdown]
# You may have read "trees below 1 MB". That is a rule for one cluster: the **crossover** depends on the links.

# %% [markdown] tags=["slide-only"]
# ## α for steps, β for bytes
#
# | | steps | bytes a rank sends |
# |---|---|---|
# | ring | 2(N-1) | 2(N-1)/N · B |
# | binomial tree | 2 ⌈log₂ N⌉ | up to ⌈log₂ N⌉ · B |
# | halving and doubling | 2 log₂ N | 2(N-1)/N · B |
#
# <!-- notes: Halving and doubling wants a power of two and partners that are far apart. NCCL's Tree is two trees, in pieces: about 2 log N steps and 2B. -->

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 4 Within and between machines
#
# Inside a machine, an H100 sends 450 GB/s over NVLink. Between machines, a 400 Gb/s card carries 50 GB/s, and often
# several GPUs share one. Count what crosses the slow link:

# %% tags=["figure"]
labkit.figure("nodes", num_nodes=2, gpus_per_node=4)

# %% [markdown]
# (In the ring, 7/4 of a tensor crosses between the machines in each direction; in the tree, one tensor. The figure adds
# up both directions.)
#
# Eight H100s, in two machines of four, run `ring_sum` on 16 MB: first with a network card for each GPU, then with **one
# card for all four** of a machine. A card carries both directions at once. By what factor does the time grow? (1.0
# means not at all.)

# %% tags=["predict"]
labkit.predict("one_card_slowdown", 2.0, unit="times")


# %%
def stopwatch(all_reduce, num_bytes):
    tensor = torch.empty(num_bytes // 4, device="meta")  # a size without numbers: time is all we want
    dist.barrier()
    start = time.perf_counter()  # virtual time, inside a virtual rank
    all_reduce(tensor)
    return time.perf_counter() - start


own_card, one_card = (
    labkit.run(stopwatch, ring_sum, 16 * MB, on=labkit.virtual(8, gpus_per_node=4, nics_per_node=cards))
    for cards in (4, 1)
)
labkit.reveal("one_card_slowdown", max(one_card.results) / max(own_card.results), one_card.timeline)

# %% [markdown]
# The time does not grow. Of four cards, the ring used one to send and one to receive; one card can do both. But 7/4 of
# the tensor crosses in each direction, while NVLink is mostly idle. **Design a better all-reduce.**
#
# ### Exercise [[unequal_links]]
#
# *44 points, about 40 minutes; difficulty 4 of 5, importance 4 of 5*
#
# You get a cluster of H100s: NVLink inside each node, **one 400 Gb/s card a node** between them, and some links slower
# than the rest. A message has a latency of 7.2 µs inside a node and of 9.3 µs between nodes. Each GPU has one NVLink
# port, which carries 371 GB/s of payload, and each node one card, which carries 48 GB/s. A port, like a card, sends one
# message at a time and receives one at a time; further messages queue, first come, first served. A message starts when
# both ranks have begun the step of its `Send` and of its `Recv`. Its latency comes after its bytes and keeps no port
# busy.
#
# Return one plan for each rank, made of lesson 02's records. The tensor has 64 MB. You may cut it into up to 64 equal
# chunks, numbered from 0 without gaps, and send any chunk to anybody.
#
# A rank starts all messages of a step together. It starts its next step as soon as its own sends have left and its own
# receives have arrived; there is no barrier. Messages are matched by order: the n-th `Recv` of rank b from rank a takes
# the n-th `Send` of a to b.
#
# Your score is the time until the last rank is done; additions cost nothing. The check tries several clusters, and each
# earns its own points. Half are for beating the ring in rank order (`naive`). The other half are for being as fast as
# BlueConnect (Cho and others, 2019) in our version, whose rings avoid slow links.


# %% tags=["given"]
Send, Recv = namedtuple("Send", "step chunk peer"), namedtuple("Recv", "step chunk peer")
Reduce = namedtuple("Reduce", "step chunk")  # without it, what a Recv brings replaces the chunk


# %% tags=["design"] exercise="unequal_links" points=44 difficulty=4 importance=4 minutes=40 weights=[1, 1, 1, 1, 1, 1, 1, 1] title="Unequal links" provides=["all_reduce_plans"]
def all_reduce_plans(
    num_ranks: int, ranks_per_node: int, slow_links: dict[tuple[int, int], float]
) -> list[list[Send | Recv | Reduce]]:
    """Return a plan for each rank, so that in the end every chunk on every rank holds all contributions, once.

    Args:
        num_ranks: In all; a multiple of ranks_per_node.
        ranks_per_node: Ranks 0 to ranks_per_node - 1 are in the first node, and so on; 2 or more.
        slow_links: (source rank, destination rank) -> a factor f. The bytes of a message from source to destination
            take f times as long, and the port or card at both ends is busy for all of that time. Pairs that are not
            listed have f = 1.

    As in lesson 02: within one step, a rank receives no chunk twice, and does not both send and receive the same chunk.
    So a message carries what its chunk held before the step.
    """
    # BEGIN SOLUTION unequal_links
    firsts = range(0, num_ranks, ranks_per_node)
    orders = [_fastest_round(range(first, first + ranks_per_node), slow_links) for first in firsts]
    slices = 64 // num_ranks
    plans = [[] for _ in range(num_ranks)]
    for node, order in enumerate(orders):
        for place, rank in enumerate(order):
            found = []
            for part in range(slices):  # two steps after the slice before it: one is inside while one is on the card
                steps = _steps_of_slice(orders, node, place, part * num_ranks)
                found += [(2 * part + at, part, record) for at, step in enumerate(steps) for record in step]
            found.sort(key=lambda each: each[:2])
            plans[rank] = [record._replace(step=at) for at, _, record in found]
    return plans


def _fastest_round(ranks, slow_links):
    """Return the order in which a ring passes these ranks over the fastest links."""
    first, *others = ranks

    def slowest(order):
        return max(slow_links.get((order[i - 1], order[i]), 1.0) for i in range(len(order)))

    return min(((first, *rest) for rest in permutations(others)), key=slowest)


def _steps_of_slice(orders, node, place, start):
    """Yield a rank's steps: reduce-scatter inside its node, all-reduce of its piece between nodes, all-gather inside."""
    nodes, size = len(orders), len(orders[0])
    right, left = orders[node][(place + 1) % size], orders[node][place - 1]

    def piece(number):
        return range(start + number % size * nodes, start + number % size * nodes + nodes)

    for step in range(size - 1):
        arriving = piece(place - step - 2)
        yield [
            *(Send(0, chunk, right) for chunk in piece(place - step - 1)),
            *(Recv(0, chunk, left) for chunk in arriving),
            *(Reduce(0, chunk) for chunk in arriving),
        ]
    mine, above, below = piece(place), orders[(node + 1) % nodes][place], orders[node - 1][place]
    for step in range(2 * (nodes - 1)):
        arriving = mine[(node - step - 2) % nodes]
        messages = [Send(0, mine[(node - step - 1) % nodes], above), Recv(0, arriving, below)]
        yield [*messages, Reduce(0, arriving)] if step < nodes - 1 else messages
    for step in range(size - 1):
        yield [
            *(Send(0, chunk, right) for chunk in piece(place - step)),
            *(Recv(0, chunk, left) for chunk in piece(place - step - 1)),
        ]
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("unequal_links", all_reduce_plans)

# %% [markdown]
# With as many chunks as ranks, you can watch your plans: `labkit.ring_player(all_reduce_plans(8, 4, {}))`.
#
# How fast could it be? Each of two nodes needs the other's sum. So 64 MB must leave each node through its card. At 48
# GB/s that takes at least 1,333 µs.

# %% [markdown] tags=["slide-only"]
# ## The card sets the floor: 1,333 µs
#
# * Each machine needs 64 MB from the other.
# * Its card carries 48 GB/s of payload.
# * The best plan that we found takes 1,429 µs.
#
# **To the room:** which of your messages cross the card, and what is NVLink doing then?
#
# <!-- notes: Show the class board. Two levels (inside, between, inside) keep the card busy with one tensor; the order of the ring inside matters where a link is slow. And slices: while one is on the card, the next is inside. -->

# %% [markdown]
# ## 5 What to remember
#
# * Ring for many bytes, tree for few. **α and β** tell you where the crossover is.
# * **busbw** is what you compare with the data sheet.
# * Round once. Divide once. Copy back what you copied.
# * Send over a slow link only what must cross it; keep the fast links busy meanwhile.
#
# **The next question.** Backward computes gradients one after another, the last layer's first. Send each one as soon as
# it is ready, and you pay the latency hundreds of times. Send all at the end, and you pay it once, but GPUs idle. What
# would you do? See `04_ddp`.

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * ring for many bytes, **tree for few**
# * fast links first; the slow one carries the tensor **once**
#
# Next: gradients come one after another. Send each at once, or all at the end?

# %% [markdown]
# ## Bonus: Where the crossover lies
#
# **[[ten_times_the_latency]].** Take section 3's 64 GPUs over Ethernet: the same bandwidth, ten times the latency. What
# does that do to the crossover? Choose `"a tenth"`, `"the same"` or `"ten times"`.

# %% tags=["why"] exercise="ten_times_the_latency" title="Ten times the latency" bonus=true
labkit.answer("ten_times_the_latency", "ten times")

# %% [markdown]
# With L = ⌈log₂ N⌉, both formulas are equal at αβ (N-1-L) / (L-(N-1)/N) bytes. This crossover grows with α and β. It
# also grows with N while L stays the same, and from 4 on drops just above each power of two, where L jumps.

# %% [markdown]
# ## Bonus: A tree
#
# The binomial tree of eight ranks, on the way up:
#
# ```
#   round 0    1 → 0    3 → 2    5 → 4    7 → 6
#   round 1    2 → 0             6 → 4
#   round 2    4 → 0
# ```
#
# Then the total goes down the same arrows reversed, last round first. N need not be a power of two: a rank that finds
# no partner waits for the next round.
#
# In a sub-group, use `dist.send(tensor, group_dst=3, group=group)`, and `group_src=` in `dist.recv`: these are ranks
# within the group. Plain `dst=` and `src=` are global ranks, whatever group you pass.
#
# ### Exercise [[tree_all_reduce]]
#
# *24 points, about 13 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="tree_all_reduce" points=24 difficulty=3 importance=4 minutes=13 title="A tree" provides=["tree_all_reduce"] bonus=true
def tree_all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Replace tensor with the sum over group: up a binomial tree to the group's rank 0, then down the same tree.

    Args:
        tensor: Contiguous, any dtype, changed in place.
        group: Who takes part; None means all ranks. Its size N may be any number. There are ceil(log2 N) rounds on the
            way up, and the same number on the way down. Only members call.
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
# The formula is one model. The virtual cluster is another, and it runs *your* tree: 64 GPUs, each in its own machine
# with one 400 Gb/s port.

# %% seconds=12
alpha, beta = 9.3e-6, 48e9  # of such a port, by the catalogue in labkit.hardware
for name, size in (("4 KiB", 2**12), ("64 MiB", 2**26)):
    for all_reduce, cost in ((ring_sum, ring_seconds), (tree_all_reduce, tree_seconds)):
        run = labkit.run(stopwatch, all_reduce, size, on=labkit.virtual(64, link="ib_ndr"))
        formula, cluster = 1e6 * cost(size, 64, alpha, beta), 1e6 * max(run.results)
        print(f"{name:6}  {all_reduce.__name__:15}  formula {formula:6.0f} µs  cluster {cluster:6.0f} µs")

# %% [markdown]
# The formula leaves out the additions: for the ring, 252 µs at both sizes. Each addition is a kernel. The cluster
# counts its launch, 4 µs, or its work, whichever takes longer. For a ring's chunk the launch takes longer. Its 63
# additions come one after the other, and 63 · 4 = 252. The tree has only 6. At 4 KiB they take 24 µs; at 64 MiB, where
# each adds the whole tensor, they take 414 µs.

# %% [markdown] tags=["slide-only"]
# ## A tree: few steps, many bytes
#
# ```
#   1 → 0    3 → 2    5 → 4    7 → 6
#   2 → 0             6 → 4
#   4 → 0
# ```
#
# <!-- notes: Every round halves the ranks that still have something to say. Then the same arrows reversed. -->

# %% [markdown]
# ## Bonus: All to all
#
# One more pattern: every rank has a *different* piece for every other rank. Think of a matrix of pieces, ranks by
# ranks, and transpose it. Mixture-of-experts models need it in every MoE layer, to move each token to its expert's GPU.
# The number of tokens varies, so **sizes differ, and may be 0**.
#
# ### Exercise [[all_to_all]]
#
# *14 points, about 9 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="all_to_all" points=14 difficulty=3 importance=4 minutes=9 title="All to all" provides=["all_to_all"] bonus=true
def all_to_all(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Send inputs[i] to rank i of group, and receive rank i's piece for this rank in outputs[i].

    Args:
        outputs: One contiguous 1-D tensor for each rank, any dtype; outputs[i] has as many elements as rank i sends
            here. Changed in place.
        inputs: One contiguous 1-D tensor for each rank; sizes may differ and may be 0. inputs[own rank] is copied, not
            sent.
        group: Who takes part; None means all ranks. Rank i is a rank within group. Only members call.
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


# %% [markdown]
# If every rank adds up what it received, you have a reduce-scatter again, in one step. Lesson 10 needs that: 8-bit
# gradients cannot be added on the way. But all ranks can send their versions of a chunk to one rank, which decodes and
# adds them.

# %% [markdown] tags=["slide-only"]
# ## All to all transposes
#
# | | before | after |
# |---|---|---|
# | rank 0 | 00 01 02 | 00 10 20 |
# | rank 1 | 10 11 12 | 01 11 21 |
# | rank 2 | 20 21 22 | 02 12 22 |
#
# <!-- notes: Experts: each token to the GPU where its expert lives, in every layer, sizes different each time. -->

# %% [markdown]
# ## Bonus: What NCCL does beyond this
#
# **Two trees.** NCCL's tree is two trees at once, each rank a leaf in one of them, and the tensor moves in small
# pieces. Ignore what the cutting costs. Then an all-reduce takes about 2 log₂ N latencies plus the time to send the
# tensor twice (Sanders, Speck and Träff, 2009). On the same 64 GPUs, **up to what size is it faster than the ring?**

# %% tags=["predict"]
labkit.predict("two_trees_win_below", 6.0, unit="MB")

# %%
two_trees = [(2 * 6 * 10e-6 + 2 * size / 50e9, ring_seconds(size, *ON_64), size) for size in range(0, 10**10, MB)]
labkit.reveal("two_trees_win_below", max(size for trees, ring, size in two_trees if trees < ring) / MB)

# %% [markdown]
# In one tree, the whole tensor crosses twelve links one after another. With two trees and small pieces all links work
# at once, so the time is that of the bytes that one rank sends: 2 tensors. In the ring it sends 2 · 63/64 = 1.97. Only
# for a huge tensor does this small saving earn back the ring's 126 - 12 = 114 extra latencies.
#
# * **One kernel** runs all steps, and adds while it receives. It takes some of the GPU's processors and memory
#   bandwidth from your computation.
# * **Channels.** Several rings at once, by different routes, each with a share of the tensor, so that every card is
#   used.
# * **Protocols.** *LL* puts a 4-byte flag beside every 4 bytes: half the bandwidth, little latency. *LL128* uses 8 of
#   every 128 bytes for flags. *Simple* sends large blocks: full bandwidth, more latency.
# * **NVLink SHARP.** The switch adds. With eight GPUs each GPU's link then carries 9/8 of the tensor (lesson 00), not
#   7/4. busbw can then exceed what the link carries.
# * **Choice.** For every call NCCL estimates the time of each algorithm and protocol, from tables of latencies and
#   bandwidths. `NCCL_ALGO` and `NCCL_PROTO` force it; `NCCL_DEBUG=INFO` prints the rings and trees that it built.
#
# Your CPU runs used **gloo**, over TCP. Nobody has timed this code on several machines with GPUs.

# %% [markdown] tags=["slide-only"]
# ## NVLink carries nine times what InfiniBand does
#
# | link | between | each way |
# |---|---|---|
# | NVLink 4 (H100) | GPUs of a machine | 450 GB/s a GPU |
# | NVLink 5 (B200) | GPUs of a rack | 900 GB/s a GPU |
# | PCIe 5.0 x16 | GPU and network card | about 63 GB/s |
# | InfiniBand NDR | machines | 50 GB/s a port |
# | 100 Gb/s Ethernet | machines | 12.5 GB/s a port |
#
# <!-- notes: RDMA: the card reads memory by itself. GPUDirect RDMA: it reads the GPU's memory. On Ethernet it is called RoCE. -->

# %% [markdown]
# ## Bonus: Halving and doubling
#
# Can you have few steps *and* few bytes? If N is a power of two, yes: log₂ N rounds for the reduce-scatter, log₂ N for
# the all-gather, and no more bytes than in a ring. In each round every rank works with one partner. (`^` makes pairs:
# `5 ^ 4` is 1 and `1 ^ 4` is 5.) After the first round, one partner is responsible for the lower half of the tensor,
# the other for the upper half. So what does each send?
#
# ### Exercise [[halving_doubling]]
#
# *8 points, about 20 minutes; difficulty 4 of 5, importance 2 of 5*


# %% tags=["exercise"] exercise="halving_doubling" points=8 difficulty=4 importance=2 minutes=20 title="Halving and doubling" provides=["halving_doubling_all_reduce"] bonus=true
def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    """Replace tensor with the sum over all ranks: recursive halving reduce-scatter, recursive doubling all-gather.

    Args:
        tensor: Contiguous, any dtype and length: odd, less than the world size, or 0; changed in place. Both partners
            cut an odd range at the same place; an empty half is not sent. You choose whether the
            nearest or the farthest partner comes first.
    Raises:
        ValueError: If the world size is not a power of two.
    """
    # BEGIN SOLUTION halving_doubling
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if world_size & (world_size - 1):
        raise ValueError(f"{world_size} ranks are not a power of two; use the ring.")
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
        exchange(theirs, partner, incoming, partner)
        mine += incoming
        splits.append((partner, theirs, mine))
        distance //= 2
    for partner, theirs, kept in reversed(splits):
        exchange(kept, partner, theirs, partner)
    # END SOLUTION


# %% tags=["check"]
labkit.check("halving_doubling", halving_doubling_all_reduce)

# %% [markdown]
# By the formula it is best everywhere. Is it? Put the 64 GPUs in 8 machines with one card each:

# %%
EIGHT_NODES = labkit.virtual(64, gpus_per_node=8, nics_per_node=1)
for all_reduce in (ring_sum, halving_doubling_all_reduce):
    run = labkit.run(stopwatch, all_reduce, 2**26, on=EIGHT_NODES)
    print(f"64 MiB  {all_reduce.__name__:28} {1e3 * max(run.results):6.1f} ms")

# %% [markdown]
# The formula does not know which ranks share a node. With the first partner you exchange half of the tensor. If that
# partner is in another node, the halves of eight GPUs queue for each card. If the first three partners are in your own
# node, each GPU is down to an eighth of the tensor before it sends anything through the card. A ring in rank order is
# safe: one chunk at a time crosses a card.
#
# ## Bonus: Two levels, for real
#
# Your design was a plan. Now write the textbook's two levels as a function that runs. Build it from section 1's
# `reduce_scatter` and `all_gather`, which accept any list of ranks. Between nodes, each rank all-reduces only its own
# piece. So the ranks of a node together all-reduce the tensor once, not once per rank.
#
# ### Exercise [[hierarchical_all_reduce]]
#
# *8 points, about 10 minutes; difficulty 3 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="hierarchical_all_reduce" points=8 difficulty=3 importance=3 minutes=10 title="Within and between nodes" provides=["hierarchical_all_reduce"] bonus=true
def hierarchical_all_reduce(tensor: torch.Tensor, ranks_per_node: int) -> None:
    """Replace tensor with the sum over all ranks; between nodes each rank sends its own piece only.

    Args:
        tensor: Contiguous, any length, changed in place.
        ranks_per_node: G; ranks 0..G-1 are node 0, G..2G-1 node 1 and so on.
    Raises:
        ValueError: If ranks_per_node does not divide the world size.
    """
    # BEGIN SOLUTION hierarchical_all_reduce
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if world_size % ranks_per_node:
        raise ValueError(f"{ranks_per_node} ranks per node do not divide {world_size} ranks.")
    node, local = divmod(rank, ranks_per_node)
    inside = range(node * ranks_per_node, (node + 1) * ranks_per_node)
    between = range(local, world_size, ranks_per_node)

    pieces = tensor.view(-1).tensor_split(ranks_per_node)
    reduce_scatter(pieces, inside)
    chunks = pieces[local].tensor_split(len(between))
    reduce_scatter(chunks, between)
    all_gather(chunks, between)
    all_gather(pieces, inside)
    # END SOLUTION


# %% tags=["check"]
labkit.check("hierarchical_all_reduce", hierarchical_all_reduce)


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
# With four cards the flat ring uses only two in each machine, one out and one in, so with one card it is just as fast.
# Two levels use all four. With one card they still win, because less crosses: one tensor each way instead of 7/4.
#
# ## Bonus: Predict, measure, explain
#
# Now your own machine. The next cell times your drop-in and the library on 2 and on 4 real processes. busbw is the rate
# on each link, so for a large tensor it should not depend on N. **By what factor does your drop-in's busbw change from
# 2 ranks to 4, here?** (1.0 means not at all.)

# %% tags=["predict"]
labkit.predict("busbw_2_to_4", 1.0, unit="times")


# %% tags=["nbval-ignore-output"]
def message_device() -> torch.device:
    """Return where a tensor must be to be sent: this rank's GPU with NCCL, the CPU with gloo."""
    return labkit.device() if "nccl" in dist.get_backend() else torch.device("cpu")


def sweep(collectives, sizes, repeats=5):
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


SIZES = [2**16, 2**22, 2**24]
COLLECTIVES = {"yours": ring_all_reduce, "library": dist.all_reduce}
measured = {}
for ranks in (2, 4):
    results = labkit.run(sweep, COLLECTIVES, SIZES, on=labkit.local(ranks)).results
    measured[ranks] = {key: max(seconds[key] for seconds in results) for key in results[0]}  # the slowest rank counts

rows = ["ranks        size  whose        ms  busbw GB/s"]
for ranks, seconds in measured.items():
    for (name, size), each in seconds.items():
        gbps = 1e-9 * bus_bandwidth(size, each, ranks)
        rows.append(f"{ranks:5}{size // 1024:8} KiB  {name:8}{each * 1e3:7.2f}{gbps:12.3g}")
busbw = {ranks: bus_bandwidth(SIZES[-1], measured[ranks]["yours", SIZES[-1]], ranks) for ranks in (2, 4)}
labkit.reveal("busbw_2_to_4", busbw[4] / busbw[2], rows)

# %% [markdown]
# We fit α and β to two points on 4 ranks, the smallest and the largest size. Then we predict the middle size.

# %% tags=["nbval-ignore-output"]
ours = {size: measured[4]["yours", size] for size in SIZES}
small, middle, large = SIZES
beta = 2 * 3 / 4 * (large - small) / (ours[large] - ours[small])  # the extra bytes over the extra time
alpha = ours[small] / (2 * 3) - small / (4 * beta)  # what is left of one step
print(f"alpha {alpha * 1e6:.0f} µs, bandwidth {beta / 1e9:.2f} GB/s")
print(
    f"{middle // 2**20} MiB: predicted {ring_seconds(middle, 4, alpha, beta) * 1e3:.1f} ms, measured {ours[middle] * 1e3:.1f} ms"
)

# %% [markdown]
# How to explain the numbers:
#
# * **Without GPUs there is no link.** "Sending" then means copying memory from one process to another, and a core must
#   do it. If there are more ranks than cores, they share cores, and busbw falls. If each rank had its own link, busbw
#   would hardly change.
# * **α is large.** A message waits until its receiver is scheduled on a core. Between GPUs, latency is only
#   microseconds.
# * **The prediction may be off.** A straight line knows nothing of caches, nor of other programs that use the cores. A
#   model tells you what follows from its assumptions; only the measurement tells you what happened.
#
# ### Sources
#
# * R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH",
#   *International Journal of High Performance Computing Applications* 19 (2005): recursive halving and doubling, the
#   cost model.
# * P. Sanders, J. Speck and J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
#   *Parallel Computing* 35 (2009): double binary trees.
# * M. Cho, U. Finkler, M. Serrano, D. Kung and H. Hunter, "BlueConnect: Decomposing all-reduce for deep learning on
#   heterogeneous network hierarchy", *IBM Journal of Research and Development* 63 (2019): all-reduce in levels.
# * nccl-tests, `doc/PERFORMANCE.md`: algbw and busbw. NCCL user guide: environment variables.
# * Bandwidths: NVIDIA data sheets for H100 and B200 (NVLink, both directions together: 900 and 1,800 GB/s); PCI-SIG for
#   PCIe 5.0; InfiniBand Trade Association for NDR.
