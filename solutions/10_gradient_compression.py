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
# # 10 Gradient compression
#
# Four machines train a small GPT over ordinary Ethernet, and mostly they wait for gradients. A blog post says: send
# one per cent of the entries and train a hundred times faster. Is that so?
#
# You will build compressors, the memory that makes them work, and a hook for DDP.
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** all-reduce (lesson 02) and DDP's buckets
# (lesson 04).
#
# **Stuck?** `labkit.hint("fewer_bits")` gives up to three hints. `labkit.lend("fewer_bits")` puts a working version
# here: you forfeit its points, but every cell below will run.

# %% [markdown] tags=["slide-only"]
# # 10 Gradient compression
#
# Send one per cent. Do you train a hundred times faster?
#
# <!-- notes: Ask the room for a bet: how much faster is the whole training run at 10 Gbit/s? Write the bets down. -->

# %% tags=["given"]
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

import labkit
from labkit import models

# %% [markdown]
# ## 1 What travels
#
# A **compressor** turns a gradient into a packet of smaller tensors, and a packet back into *about* the same gradient:
#
# ```python
# packet = compressor.compress(gradient)
# about_the_same = compressor.decompress(packet)
# ```
#
# Only the packet's `parts` travel. Every rank knows shape and dtype already.


# %% tags=["given"]
@dataclass(frozen=True)
class Packet:
    parts: tuple[Tensor, ...]  # the tensors that travel
    shape: torch.Size  # the gradient's
    dtype: torch.dtype  # the gradient's


# %% [markdown]
# **Fewer bits** is the most obvious idea. A cast gives you 16 bits, but float16 ends at 65504, and one infinite entry
# ruins the model. int8 has 256 codes, and you choose what they stand for: code c is c times a **scale**, one float32
# that travels with them.
#
# ### Exercise [[fewer_bits]]
#
# *14 points, about 10 minutes; difficulty 2 of 5, importance 4 of 5*
#
# Rules for every compressor in this lesson:
#
# * A gradient is finite, float32 or float64, of any shape. It may be all zero, tiny (1e-9), or not contiguous.
#   `compress` must not change it.
# * A packet has no more bytes than the docstring says, and each entry comes back as close to its value as
#   the docstring says.
# * `decompress` runs on *another* rank. That rank has the packet and a compressor made with the same arguments, but
#   nothing that `compress` stored in `self`.
# * Ignore `addable` until section 4.


# %% tags=["exercise"] exercise="fewer_bits" points=14 difficulty=2 importance=4 minutes=10 title="Fewer bits" provides=["wire_bytes", "Cast", "Int8"]
def wire_bytes(packet: Packet) -> int:
    """Return how many bytes travel when this packet is sent."""
    # BEGIN SOLUTION fewer_bits
    return sum(part.numel() * part.element_size() for part in packet.parts)
    # END SOLUTION


class Cast:
    """A compressor to 16 bits; an entry beyond the range comes back as the largest number of the type, with its sign.

    Args:
        dtype: torch.bfloat16 or torch.float16.
    """

    addable = True

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        self.dtype = dtype

    def compress(self, gradient: Tensor) -> Packet:
        """Return one part, the gradient in 16 bits."""
        # BEGIN SOLUTION fewer_bits
        largest = torch.finfo(self.dtype).max
        return Packet((gradient.clamp(-largest, largest).to(self.dtype),), gradient.shape, gradient.dtype)
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return the gradient in its own dtype and shape."""
        # BEGIN SOLUTION fewer_bits
        return packet.parts[0].to(packet.dtype).view(packet.shape)
        # END SOLUTION


class Int8:
    """A compressor to int8 and one float32: each entry comes back within 1/254 of the gradient's largest magnitude."""

    addable = False

    def compress(self, gradient: Tensor) -> Packet:
        """Return two parts: an int8 for each entry, and a float32 tensor of one entry."""
        # BEGIN SOLUTION fewer_bits
        scale = (gradient.abs().max() / 127).to(torch.float32).clamp(min=1e-30).reshape(1)
        codes = (gradient / scale).round().clamp(-127, 127).to(torch.int8)
        return Packet((codes, scale), gradient.shape, gradient.dtype)
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return the gradient in its own dtype and shape."""
        # BEGIN SOLUTION fewer_bits
        codes, scale = packet.parts
        return (codes.to(packet.dtype) * scale.to(packet.dtype)).view(packet.shape)
        # END SOLUTION


# %% tags=["check"]
labkit.check("fewer_bits", wire_bytes, Cast, Int8)

# %% [markdown] tags=["slide-only"]
# ## Fewer bits: a scale for all
#
# | gradient | 0.5 | -0.25 | 0.011 | -0.003 |
# |---|---|---|---|---|
# | int8 | 127 | -64 | 3 | -1 |
# | comes back as | 0.5 | -0.252 | 0.0118 | -0.0039 |
#
# **To the room:** which entry was hurt most?
#
# <!-- notes: The smallest came back 31 per cent too large: the scale belongs to the largest. -->

# %% [markdown]
# ## 2 Few entries
#
# **Top-k** sends the k entries of largest magnitude, with their signs, and their indices as int32: 8 bytes an entry.
# **Random-k** sends k entries drawn at random. If every rank draws with the *same* seed, all draw the same indices, so
# no index has to travel.
#
# ### Exercise [[few_entries]]
#
# *16 points, about 12 minutes; difficulty 3 of 5, importance 5 of 5*
#
# Both keep `num_kept(ratio, entries)` entries, and every other entry comes back as 0. A RandomK has one counter of its
# calls, from 0, whatever the shapes of the gradients. Call n draws with the seed `seed + n`, which is the packet's
# second part. Draw with a CPU generator of your own.


# %% tags=["given"]
def num_kept(ratio: float, num_entries: int) -> int:
    """Return how many entries a sparse compressor keeps: ratio * num_entries, rounded down, but at least one."""
    return max(1, int(ratio * num_entries))


# %% tags=["exercise"] exercise="few_entries" points=16 difficulty=3 importance=5 minutes=12 title="Few entries" provides=["TopK", "RandomK"]
class TopK:
    """A compressor that keeps the entries of largest magnitude.

    Args:
        ratio: Fraction of the entries to keep.
    """

    addable = False

    def __init__(self, ratio: float = 0.01) -> None:
        self.ratio = ratio

    def compress(self, gradient: Tensor) -> Packet:
        """Return two parts: the kept values, and their indices in the flat gradient as int32."""
        # BEGIN SOLUTION few_entries
        flat = gradient.flatten()
        places = flat.abs().topk(num_kept(self.ratio, flat.numel())).indices
        return Packet((flat[places], places.to(torch.int32)), gradient.shape, gradient.dtype)
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return the kept values at their indices, 0 elsewhere."""
        # BEGIN SOLUTION few_entries
        values, places = packet.parts
        flat = torch.zeros(packet.shape.numel(), dtype=packet.dtype, device=values.device)
        flat[places.long()] = values
        return flat.view(packet.shape)
        # END SOLUTION


class RandomK:
    """A compressor that keeps num_kept(ratio, numel) entries, drawn at random; values are sent unscaled.

    Which entries these are depends only on the seed and the number of the call, so ranks with the same seed keep the
    same ones. Do not touch torch's own generator.

    Args:
        ratio: Fraction of the entries to keep.
        seed: The same on all ranks.
    """

    addable = True

    def __init__(self, ratio: float = 0.01, seed: int = 0) -> None:
        self.ratio, self.seed, self.num_calls = ratio, seed, 0

    def compress(self, gradient: Tensor) -> Packet:
        """Return two parts, no indices: the kept values, and the seed of this call as an int64 tensor of one entry."""
        # BEGIN SOLUTION few_entries
        seed = torch.tensor([self.seed + self.num_calls])
        self.num_calls += 1
        flat = gradient.flatten()
        return Packet((flat[self.places(seed, flat.numel())], seed), gradient.shape, gradient.dtype)
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return the kept values at their indices, 0 elsewhere; the packet alone says where, on any rank."""
        # BEGIN SOLUTION few_entries
        values, seed = packet.parts
        flat = torch.zeros(packet.shape.numel(), dtype=packet.dtype, device=values.device)
        flat[self.places(seed, flat.numel())] = values
        return flat.view(packet.shape)

    def places(self, seed: Tensor, num_entries: int) -> Tensor:
        """Return the indices that this seed draws."""
        generator = torch.Generator().manual_seed(int(seed))
        return torch.randperm(num_entries, generator=generator)[: num_kept(self.ratio, num_entries)]
        # END SOLUTION


# %% tags=["check"]
labkit.check("few_entries", TopK, RandomK)

# %% [markdown]
# Here is the GPT's gradient after 20 steps. **If you keep the top 1 % of its entries, what fraction of the gradient's
# norm is lost?**

# %% tags=["predict"]
labkit.predict("lost_by_top_1", 0.5)

# %%
COMPRESSORS = {"bfloat16": Cast, "int8": Int8, "top 1 %": partial(TopK, 0.01), "random 1 %": partial(RandomK, 0.01)}
gpt, rows, lost = models.GPT(), ["               bytes   lost"], {}
models.train(gpt, models.Addition(), 20)
models.loss_of(gpt, *models.Addition().batch(20, 16)).backward()
gradient = torch.cat([each.grad.flatten() for each in gpt.parameters()])
for name, make in COMPRESSORS.items():
    packet = make().compress(gradient)
    lost[name] = float((gradient - make().decompress(packet)).norm() / gradient.norm())
    rows.append(f"{name:12} {wire_bytes(packet):7} {lost[name]:6.1%}")
labkit.reveal("lost_by_top_1", round(lost["top 1 %"], 2), rows)

# %% [markdown] tags=["slide-only"]
# ## Only some packets can be added
#
# | | what travels | bytes an entry | addable |
# |---|---|---:|---|
# | 16 bits | the entries, cast | 2 | yes |
# | int8 | codes and a scale | 1 | no |
# | top-k, ratio r | values and indices | 8 r | no |
# | random-k, ratio r | values and a seed | 4 r | yes |
#
# <!-- notes: Say bytes on the wire. An index costs as much as a value; a seed costs 8 bytes, whatever k is. -->

# %% [markdown]
# ## 3 What was not sent
#
# Does it hurt to leave entries out? Take a small example with three ranks, three weights and top-1. The loss of rank i
# is $(a_i \cdot x)^2 + \|x\|^2/4$, where $a_0 = (-3, 2, 2)$, and $a_1$ and $a_2$ are its rotations. The best x is 0.
# Start at (1, 1, 1), 1.7 away. **How far from 0 is x after 100 steps?**

# %% tags=["predict"]
labkit.predict("top_k_distance", 0.1)


# %%
def three_ranks(compressors, steps=100, lr=0.02):
    x, corners = torch.ones(3), torch.tensor([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]])
    for _ in range(steps):
        gradients = [2 * (corner @ x) * corner + x / 2 for corner in corners]
        sent = [each.decompress(each.compress(g)) for each, g in zip(compressors, gradients, strict=True)]
        x = x - lr * sum(sent) / 3
    return x.norm().item()


labkit.reveal("top_k_distance", round(three_ranks([TopK(1 / 3) for _ in range(3)]), 1))

# %% [markdown]
# x **runs away**. Rank 0's gradient at the start is (-5.5, 4.5, 4.5), and it sends -5.5. The other two have 4.5 at that
# index, but each sends its *own* -5.5. So every entry of the sum has the wrong sign.
#
# So forget nothing. What was not sent stays on its rank, in a **residual** e, and is added to the next gradient.
# This is **error feedback**. It keeps one promise, after any number of steps and with any compressor:
#
# *all gradients so far = everything that was sent + the residual.*

# %% tags=["figure", "nbval-ignore-output"]
labkit.figure("residual")

# %% [markdown]
# ### Exercise [[error_feedback]]
#
# *20 points, about 6 minutes; difficulty 2 of 5, importance 5 of 5*
#
# `ErrorFeedback` wraps any compressor, whatever its packets hold. Each key has its own residual, `residuals[key]`,
# because DDP has several buckets. Call `compressor.compress` only once: a second call of random-k draws different
# indices.


# %% tags=["exercise"] exercise="error_feedback" points=20 difficulty=2 importance=5 minutes=6 title="Error feedback" provides=["ErrorFeedback"]
class ErrorFeedback:
    """A compressor with a memory: what it did not send is added to the next gradient of the same key.

    Args:
        compressor: The compressor to wrap.

    Attributes:
        residuals: For each key, what has not been sent yet.
    """

    def __init__(self, compressor: Any) -> None:
        self.compressor = compressor
        self.residuals: dict[Any, Tensor] = {}

    def compress(self, gradient: Tensor, key: Any = 0) -> Packet:
        """Compress gradient + residuals[key]; return the packet and keep in residuals[key] what it leaves out.

        The residual is a tensor of the gradient's shape and dtype; a new key begins with none. The gradient is not
        changed, and compressor.compress is called once.
        """
        # BEGIN SOLUTION error_feedback
        corrected = gradient + self.residuals[key] if key in self.residuals else gradient.clone()
        packet = self.compressor.compress(corrected)
        self.residuals[key] = corrected - self.compressor.decompress(packet)
        return packet
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return what the compressor makes of the packet."""
        # BEGIN SOLUTION error_feedback
        return self.compressor.decompress(packet)
        # END SOLUTION


# %% tags=["check"]
labkit.check("error_feedback", ErrorFeedback)


# %%
{f"top {k} of 3": three_ranks([ErrorFeedback(TopK(k / 3)) for _ in range(3)]) for k in (1, 3)}

# %% [markdown] tags=["slide-only"]
# ## Forget nothing
#
# $$ \text{packet} = C(g + e) $$
#
# $$ e \leftarrow (g + e) - D(\text{packet}) $$
#
# **To the room:** top-1 on three ranks, every sign right, starts 1.7 from the best x. Where is it after 100 steps?
#
# <!-- notes: Without memory it runs away; with it, it arrives. It costs one more gradient of memory on every rank. -->

# %% [markdown]
# With the memory, top-1 ends nearly as close to 0 as whole gradients do (top 3 of 3). With top-k, what is sent and
# what stays share no entry, so their norms obey Pythagoras: $\|\text{sent}\|^2 + \|\text{new } e\|^2 = \|g + e\|^2$.
#
# Here is a run of four ranks with two buckets each, momentum SGD and top 10 % with a memory. In each step every rank
# logs for each bucket the norms of g, of what it compressed (g + e), of what it sent, and of the new e.

# %% [markdown] tags=["slide-only"]
# ## The loss climbs. Whose memory broke?
#
# * top-k: sent and residual share no entry
# * $\|\text{sent}\|^2 + \|e\|^2 = \|g + e\|^2$
#
# **To the room:** which line of the log is wrong?
#
# <!-- notes: Many steps pass before the loss shows it; the log shows it at once. Write norms down. -->

# %% tags=["figure", "nbval-ignore-output"]
import matplotlib.pyplot as plt

log = labkit.recorded("diverging_run").tables["norms"]
plt.figure(figsize=(7, 2.5)).add_subplot(xlabel="step", ylabel="loss")
plt.plot([log["loss"][log["step"] == step].mean() for step in range(max(log["step"]) + 1)])
plt.show()


# %%
def look(rank, bucket, first, last):
    print("step   gradient compressed       sent   residual")
    for step, its_rank, its_bucket, _, *lengths in zip(*log.values(), strict=True):
        if (its_rank, its_bucket) == (rank, bucket) and first <= step <= last:
            print(f"{step:4}", *(f"{each:10.2f}" for each in lengths))


look(rank=0, bucket=0, first=10, last=14)

# %% [markdown]
# ### Exercise [[diverging_run]]
#
# *15 points, about 9 minutes; difficulty 3 of 5, importance 5 of 5*
#
# One rank's memory of one bucket breaks before the loss shows it. Find `rank`, `bucket`, `since` (the first step with a
# wrong line), and `cause`: `"what was sent stays in the residual"`, `"signs are lost in what is sent"`, `"two buckets
# share one residual"` or `"the learning rate is too high"`.

# %% tags=["find"] exercise="diverging_run" points=15 difficulty=3 importance=5 minutes=9 title="The run that diverges"
labkit.answer(
    "diverging_run",
    rank=2,
    bucket=1,
    since=14,
    cause="what was sent stays in the residual",
)

# %% [markdown]
# The next program loses what it did not send. Its norms give no sign: they obey Pythagoras in every step. **Which
# line loses the residual?** Read it (`largest_entries_first??`) before you run `labkit.audit`:

# %%
from labkit.wrong_runs import largest_entries_first

# %% tags=["nbval-ignore-output"]
print(*labkit.audit(largest_entries_first, on=labkit.virtual(4)).findings, sep="\n\n")

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 4 A hook
#
# How do four packets become one mean? `all_reduce` would add top-k values that belong to different entries, and int8
# codes that have different scales. No exception is raised, but the gradient is wrong. Such packets must travel **to
# everybody**, by `all_gather`, and each rank unpacks them and adds the gradients. Packets of `Cast` and `RandomK` *can*
# be added: sum their first parts; the seed is the same on all ranks. Their `addable` is True.
#
# DDP lets you replace what happens to a full bucket. `ddp.register_comm_hook(state, hook)` takes a function
# `hook(state, bucket)` that returns a `Future[Tensor]`, the *mean* gradient in the buffer's shape and dtype.
#
# * `bucket.buffer()` is one flat tensor with the bucket's gradients, **not** divided by the world size;
# * `bucket.index()` is its number. After the first step DDP **rebuilds its buckets**, in the order in which gradients
#   became ready. A residual of the old bucket 0 may not fit the new one, so a residual's key is the number *and* the
#   size: `(bucket.index(), bucket.buffer().numel())`. (The key does not notice a new order of gradients in a bucket of
#   the same size.)
#
# DDP calls the hook in the middle of backward: if it waits, nothing overlaps. So start with `async_op=True`, and say
# what to do *afterwards*:
#
# ```python
# work = dist.all_reduce(tensor, async_op=True)
# return work.get_future().then(lambda _: finish(tensor))
# torch.futures.collect_all([future, other])      # a future of several
# ```
#
# On gloo, a `.then` function must start no collective: ranks may run these functions in different orders.


# %% tags=["given"]
@dataclass
class HookState:
    feedback: Any  # an ErrorFeedback, or an object with its methods and a `compressor`
    group: dist.ProcessGroup | None = None  # the ranks that take part; None is everybody
    sent_bytes: int = 0  # of all packets of this rank so far; the hook counts them


# %% [markdown]
# ### Exercise [[compression_hook]]
#
# *35 points, about 25 minutes; difficulty 4 of 5, importance 5 of 5*
#
# * Divide first: compress `buffer / N` through `state.feedback`, with the key above. N is the size of `state.group`.
#   Then *add* what the ranks send. (In float16 a sum overflows sooner than a mean.)
# * If `state.feedback.compressor.addable`, all-reduce the first part; otherwise all-gather every part. Send
#   nothing else.
# * Add each packet's `wire_bytes`, seeds included, to `state.sent_bytes`. Do not change the bucket's buffer.
# * All ranks must get the same gradient, to the bit, or their models drift apart. So add in rank order.
# * Nothing gets lost: after any number of steps, the sum of all gradients that DDP applied, plus the residuals of all
#   ranks, equals the sum of the true mean gradients. (16-bit sums still round.)
#
# `replace(packet, parts=...)` makes a packet with other parts.


# %% tags=["exercise"] exercise="compression_hook" points=35 difficulty=4 importance=5 minutes=25 title="A communication hook" provides=["compression_hook"] needs=["fewer_bits", "few_entries", "error_feedback"]
def compression_hook(state: HookState, bucket: dist.GradBucket) -> Future[Tensor]:
    """Start averaging one bucket over the ranks with compressed gradients; return without waiting.

    Args:
        state: The compressor with its memory, and the group.
        bucket: DDP's bucket, with index() and buffer(). Do not change the buffer.

    Returns:
        A future of the mean gradient, with the buffer's shape and dtype.
    """
    # BEGIN SOLUTION compression_hook
    feedback, num_ranks = state.feedback, dist.get_world_size(state.group)
    key = (bucket.index(), bucket.buffer().numel())
    packet = feedback.compress(bucket.buffer() / num_ranks, key)
    state.sent_bytes += wire_bytes(packet)
    if feedback.compressor.addable:
        work = dist.all_reduce(packet.parts[0], group=state.group, async_op=True)
        return work.get_future().then(lambda _: feedback.decompress(packet))

    works, gathered = [], []
    for part in packet.parts:
        of_ranks = [torch.empty_like(part) for _ in range(num_ranks)]
        works.append(dist.all_gather(of_ranks, part, group=state.group, async_op=True))
        gathered.append(of_ranks)

    def add_up(_: Future[list[Future[list[Tensor]]]]) -> Tensor:
        return sum(feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered, strict=True))

    return torch.futures.collect_all([work.get_future() for work in works]).then(add_up)
    # END SOLUTION


# %% tags=["check"]
labkit.check("compression_hook", compression_hook)

# %% [markdown] tags=["slide-only"]
# ## A hook starts, and does not wait
#
# ```python
# def hook(state, bucket):
#     packet = state.feedback.compress(bucket.buffer() / n, key)
#     work = dist.all_reduce(packet.parts[0], async_op=True)
#     return work.get_future().then(unpack)
#
# ddp.register_comm_hook(state, hook)
# ```
#
# <!-- notes: Addable packets by all-reduce, others by all-gather. Keys still work after DDP rebuilds its buckets. -->

# %% [markdown]
# ## 5 The GPT
#
# `models.train_as_ranks` lets one process play four ranks, each with its own compressor. **Each pair of compressor and
# optimizer has its own learning rate**: we tried the optimizer's usual rate and half of it; `RATES` holds the
# better factor.

# %% tags=["nbval-ignore-output"] seconds=60
torch.set_num_threads(1)  # the model is too small to profit from threads
EVERY, curves = {"no hook": partial(TopK, 1.0), **COMPRESSORS}, {}
RATES = {(name, "adamw"): 1.0 for name in ("no hook", "bfloat16", "int8")}
RATES |= {("top 1 %", "adamw"): 0.5, ("random 1 %", "adamw"): 0.5, ("no hook", "sgd"): 0.5, ("top 1 %", "sgd"): 1.0}
for (name, optimizer), rate in RATES.items():
    losses = models.train_as_ranks(lambda name=name: ErrorFeedback(EVERY[name]()), optimizer, 200, rate=rate)
    curves[name, optimizer] = losses
    print(f"{name:10} {optimizer:5} at {rate:3g} x its rate, mean loss of steps 191-200: {sum(losses[-10:]) / 10:.2f}")

# %% [markdown]
# Your runs used seed 0. On another machine, which rounds differently, three seeds ended at:
#
# | seed | 0 | 1 | 2 |
# |---|---|---|---|
# | AdamW | 0.15 | 0.08 | 0.21 |
# | AdamW, bfloat16 | 0.18 | 0.13 | 0.23 |
# | AdamW, int8 | 0.19 | 0.12 | 0.34 |
# | AdamW, top 1 % | 1.53 | 1.56 | 1.55 |
# | SGD | 0.40 | 0.29 | 0.60 |
# | SGD, top 1 % | 0.32 | 0.16 | 0.36 |
#
# Look at **several seeds**: AdamW's own loss varies by 0.13, and bfloat16 costs 0.05 at most. 16 and 8 bits ended
# higher on all three seeds, but three are few.
#
# AdamW with top 1 % hardly learns here. On average, an entry leaves a rank once in 100 steps, as one large number.
# AdamW's mean of gradients forgets it in about ten. **Deep gradient compression** (Lin and others, 2018; a bonus) puts
# momentum before top-k. Plain SGD adds up whatever comes, however late. With top 1 % it even ended lower, at twice the
# learning rate of SGD without a hook.
#
# Four virtual machines with an A100 each train this GPT under torch's DDP with your hook. **At 10 Gbit/s, by what
# factor is a step with top 1 % faster than one without a hook?**

# %% tags=["predict"]
labkit.predict("top_k_speedup", 10.0)


# %%
def under_ddp(make):
    state = HookState(ErrorFeedback(make())) if make else None
    seconds = models.seconds_under_ddp(state and (lambda ddp: ddp.register_comm_hook(state, compression_hook)))
    return seconds, state.sent_bytes // 3 if state else 4 * len(gradient)


GIGABITS, step_s, step_bytes, rows = (1, 10, 100), {}, {}, ["ms per step    1 Gbit/s   10 Gbit/s  100 Gbit/s"]
for name, make in {"no hook": None, **COMPRESSORS}.items():
    for gigabits in GIGABITS:
        four = labkit.virtual(4, gpu="a100", gpus_per_node=1, nic=f"ethernet_{gigabits}g")
        step_s[name, gigabits], step_bytes[name] = labkit.run(under_ddp, make, on=four).results[0]
    rows.append(f"{name:11}" + "".join(f"{1e3 * step_s[name, gigabits]:12.2f}" for gigabits in GIGABITS))
labkit.reveal("top_k_speedup", round(step_s["no hook", 10] / step_s["top 1 %", 10], 2), rows)

# %% [markdown]
# Not a hundred times, but 2.1. Let B be the bytes of all gradients. Three packets of 2 % of B cross each link. An
# all-reduce sends 2 x 3/4 of B, 25 times as much. Even a step that sends next to nothing (random 1 %) takes 0.81 ms,
# nearly all of it computing.
#
# **bfloat16** is faster than no hook on every link: it sends half of the bytes, still by all-reduce. int8 has half of
# bfloat16's bytes and is no faster. On four ranks, its all-gather sends 3 packets of B/4 over each link, and bfloat16's
# all-reduce 2 x 3/4 of B/2: both are 0.75 B.
#
# But how long does it take until the loss is down?

# %% tags=["nbval-ignore-output"]
print("until the loss is below 1            steps   MB sent    1 Gbit/s   10 Gbit/s  100 Gbit/s")
for (name, optimizer), losses in curves.items():
    steps = next((step for step in range(10, 201) if sum(losses[step - 10 : step]) < 10), 0)
    times = [f"{steps * step_s[name, each]:10.2f} s" for each in GIGABITS] if steps else ["not in 200 steps"]
    print(f"{name:12} {optimizer:22} {steps or '-':>6} {round(steps * step_bytes[name] / 1e6, 1) or '-':>9}", *times)

# %% [markdown]
# Measured in **bytes**, compression looks great. In **seconds**, a fast link leaves little to gain: DDP hides much
# behind backward, and compressing takes time.
#
# **[[gather_grows]].** An int8 packet is a quarter of a float32 one. On how many ranks does its `all_gather` send as
# much as the plain `all_reduce` of float32?

# %% tags=["why"] exercise="gather_grows" title="The all-gather grows"
labkit.answer("gather_grows", 8)

# %% [markdown] tags=["slide-only"]
# ## Loss against what?
#
# * against bytes: always great
# * against seconds: **on your link**
# * all-gather grows with N; what can be added does not
#
# **To the room:** at 10 Gbit/s, who wins?
#
# <!-- notes: Show the notebook's last table: every row has the better of two rates. With AdamW, which people use, top 1 % never gets there. -->

# %% [markdown]
# ## 6 What to remember
#
# * A packet's bytes are what **travels**: values, indices, scales, seeds.
# * **Forget nothing**: what is not sent stays in the residual. It belongs in the checkpoint.
# * Packets that can be added go by all-reduce; the others by all-gather, and that grows with N.
# * A hook starts, and does not wait. All ranks must get the same gradient.
# * Plot loss against **seconds, on your link, with your optimizer**.
#
# **The next question.** Prefetching, mixed precision and activation checkpointing promise faster steps, too. Which of
# them make your model faster? See lesson 11, `11_faster_steps`.

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * count what **travels**
# * forget nothing
# * seconds, on your link, with your optimizer
#
# Next: a table of four promises. Which are kept?

# %% [markdown]
# ## Bonus: Your own compressor
#
# Now **invent** one. A small network trains on four ranks, with momentum, error feedback and a budget of bytes for the
# whole training. For each step and each layer, choose how many of the largest entries to send and how many bits to use
# per entry: 4, 8, 16 or 32. If only some entries of a layer travel, their indices travel, too. Indices cost 4 bytes for
# each sent entry, or one bit for each entry of the layer, whichever is less. With fewer than 32 bits, a layer also
# sends one 4-byte scale. `most_entries(num_bytes, bits, size)` says how many entries fit; `packet_bytes` and
# `plan_bytes`, in the same module, count.


# %% tags=["given"]
from labkit.plans.compressed_steps import most_entries, plan_bytes

# %% [markdown]
# ### Exercise [[compression_plan]]
#
# *20 points, about 30 minutes; difficulty 3 of 5, importance 4 of 5*
#
# The naive plan sends the same fraction of every layer in every step, in 32 bits. Half of the points are for a lower
# loss than that. The other half are for a loss no higher than Qsparse-local-SGD's (Basu and others, 2019). The loss is
# a mean over three seeds. The plan is data; in a class, a board ranks everybody's plan.


# %% tags=["design"] exercise="compression_plan" points=20 difficulty=3 importance=4 minutes=30 weights=[1, 1, 1, 1] title="A compression plan" provides=["compression_plan"] bonus=true
def compression_plan(sizes: list[int], num_steps: int, budget_bytes: int) -> list[list[tuple[int, int]]]:
    """Return, for each step and each layer, how many entries travel and how many bits each has; (0, 4) sends nothing.

    Args:
        sizes: Number of entries of each layer.
        num_steps: Number of training steps.
        budget_bytes: The most that one rank may send over all steps, indices and scales included.
    """
    # BEGIN SOLUTION compression_plan
    left, plan = float(budget_bytes), []
    for step in range(num_steps):  # 4 bits, in every second step and in the last; what rounding leaves over goes on
        to_come = (num_steps - step + 1) // 2
        room = left / to_come if (num_steps - 1 - step) % 2 == 0 else 0
        plan.append([(most_entries(int(room * size / sum(sizes)), 4, size), 4) for size in sizes])
        left -= plan_bytes(plan[-1:], sizes)
    return plan
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("compression_plan", compression_plan)

# %% [markdown] tags=["slide-only"]
# ## Invent a compressor
#
# * for each step and layer: how many entries, how many bits
# * one budget of bytes for the whole training
# * momentum and error feedback are given
#
# **To the room:** would you send in every step?
#
# <!-- notes: What waits in the residual is not lost. The class board ranks the plans. -->

# %% [markdown]
# ## Bonus: Deep gradient compression
#
# Error feedback delays entries. If momentum is then applied to what arrives, each late entry goes on pushing for
# many steps. Lin and others (2018) reverse the order, momentum first and then top-k:
#
# * **Momentum correction**: each rank keeps SGD's velocity and adds it, not the gradient, to its residual in every
#   step. The optimizer is then plain SGD. So an entry gathers momentum while it waits. Once an entry is sent, its
#   velocity and residual are reset to 0; otherwise, stale momentum would push on.
# * **Clipping**: each rank first clips its gradient to norm $\text{max\_norm} / \sqrt{N}$, because the sum of N
#   independent gradients is about $\sqrt N$ times as long as one.
# * **Warm-up**: early in training, gradients change fast. So each rank sends a quarter of the entries at first, then a
#   sixteenth, ...
#
# ### Exercise [[deep_compression]]
#
# *10 points, about 18 minutes; difficulty 3 of 5, importance 3 of 5*
#
# `DeepCompression` takes the place of `ErrorFeedback`, so it has a `compressor`, and every key has its own state.
# Gradients may have any shape, need not be contiguous, and are not changed. With `warmup` = w, the n-th call of a key
# (from 0) keeps the share max(ratio, 0.25 ** (1 + n // w)); with `warmup` = 0, the share is always `ratio`. Each call
# returns `TopK(share).compress(residual)`.


# %% tags=["exercise"] exercise="deep_compression" points=10 difficulty=3 importance=3 minutes=18 title="Deep gradient compression" provides=["DeepCompression"] needs=["few_entries"] bonus=true
class DeepCompression:
    """An error-feedback memory like ErrorFeedback, with clipping, momentum and warm-up before top-k.

    Args:
        ratio: Fraction of the entries to keep after the warm-up.
        momentum: Momentum factor. In each call, velocity = momentum * velocity + clipped gradient, and the residual
            grows by the velocity. Where an entry is sent, its velocity and its residual become 0.
        max_norm: A gradient whose norm is above max_norm / sqrt(num_ranks) is scaled down to exactly that norm. If
            the ranks' gradients are independent, their sum then has a norm of at most about max_norm.
        num_ranks: N.
        warmup: How many calls of a key each stage of the warm-up lasts; 0 for no warm-up.
    """

    def __init__(
        self, ratio: float = 0.01, momentum: float = 0.9, max_norm: float = 1.0, num_ranks: int = 1, warmup: int = 0
    ) -> None:
        self.ratio, self.momentum, self.max_norm = ratio, momentum, max_norm
        self.num_ranks, self.warmup = num_ranks, warmup
        self.compressor = TopK(ratio)
        self.velocities: dict[Any, Tensor] = {}
        self.residuals: dict[Any, Tensor] = {}
        self.calls: dict[Any, int] = {}

    def compress(self, gradient: Tensor, key: Any = 0) -> Packet:
        """Return the packet of the largest entries of this key's residual."""
        # BEGIN SOLUTION deep_compression
        limit = self.max_norm / self.num_ranks**0.5
        clipped = gradient * min(1.0, limit / max(float(gradient.norm()), 1e-30))
        calls = self.calls.get(key, 0)
        share = max(self.ratio, 0.25 ** (1 + calls // self.warmup)) if self.warmup else self.ratio
        velocity = self.momentum * self.velocities.get(key, 0) + clipped
        residual = self.residuals.get(key, 0) + velocity
        velocity, residual = velocity.contiguous(), residual.contiguous()
        packet = TopK(share).compress(residual)
        places = packet.parts[1].long()
        residual.view(-1)[places] = 0
        velocity.view(-1)[places] = 0
        self.velocities[key], self.residuals[key], self.calls[key] = velocity, residual, calls + 1
        return packet
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return the kept values at their indices, 0 elsewhere."""
        # BEGIN SOLUTION deep_compression
        return self.compressor.decompress(packet)
        # END SOLUTION


# %% tags=["check"]
labkit.check("deep_compression", DeepCompression)


# %% tags=["nbval-ignore-output"]
class Counted:
    """A memory, and how many bytes its packets have."""

    def __init__(self, memory):
        self.memory, self.sent_bytes = memory, 0

    def compress(self, gradient):
        packet = self.memory.compress(gradient)
        self.sent_bytes += wire_bytes(packet)
        return packet

    def decompress(self, packet):
        return self.memory.decompress(packet)


for name, optimizer in (("deep", "sgd"), ("top 1 %", "momentum")):
    memories = [
        DeepCompression(num_ranks=4, warmup=5) if name == "deep" else ErrorFeedback(TopK(0.01)) for _ in range(4)
    ]
    ranks = [Counted(memory) for memory in memories]
    losses = models.train_as_ranks(iter(ranks).__next__, optimizer, 200)  # hands out ranks[0], ranks[1], ...
    end = f"loss {sum(losses[-10:]) / 10:.2f} at the end"
    print(f"{name:8} {optimizer:9} {end}, {ranks[0].sent_bytes / 1e6:.1f} MB sent by each rank")

# %% [markdown]
# Momentum works again: the velocity comes before top-k, and the optimizer is plain SGD. The warm-up is not free. It
# adds as many bytes as 149 steps of top 1 % send. In 200 steps that is 75 % more, in 20,000 steps 0.7 %. For Adam,
# 1-bit Adam (Tang and others, 2021) uses a similar trick: it freezes the second moment after a while, and compresses
# the first.

# %% [markdown]
# ## Bonus: Eight bits that do not grow
#
# An `all_gather` of int8 grows with N. But int8 gradients *can* be summed on the way, if a rank unpacks them first. Cut
# the gradient into N pieces, and let each rank add up one:
#
# 1. An **all_to_all** gives each rank all ranks' codes and scales for its piece.
# 2. The rank unpacks them, averages, and quantises the average again.
# 3. An `all_gather` brings every average to every rank.
#
# That is a **quantised reduce-scatter**, and a gather. Apart from scales, a link carries 2(N-1)/N bytes for each entry,
# as in an `all_reduce` of one-byte numbers. That is never more than 2 bytes, however many ranks there are. Each entry
# is rounded twice.
#
# ### Exercise [[quantised_all_reduce]]
#
# *10 points, about 20 minutes; difficulty 4 of 5, importance 3 of 5*
#
# The tensor may have any shape and need not be contiguous, and N need not divide its number of entries. Do not change
# the tensor; pad a copy to a multiple of N. In step 1 and in step 3, send one int8 code for each entry and one float32
# scale for each piece, and nothing else. Your `Int8` compresses.


# %% tags=["exercise"] exercise="quantised_all_reduce" points=10 difficulty=4 importance=3 minutes=20 title="Eight bits that do not grow" provides=["quantised_all_reduce"] needs=["fewer_bits"] bonus=true
def quantised_all_reduce(tensor: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return the mean of the tensor over the ranks, in its shape and dtype, bitwise identical on every rank.

    Args:
        tensor: This rank's, float32 or float64.
        group: The ranks that take part; None is everybody.
    """
    # BEGIN SOLUTION quantised_all_reduce
    size, int8 = dist.get_world_size(group), Int8()
    flat = tensor.flatten()
    pieces = nn.functional.pad(flat, (0, -flat.numel() % size)).view(size, -1)
    codes, scales = (
        torch.stack(parts) for parts in zip(*(int8.compress(piece).parts for piece in pieces), strict=True)
    )

    def pack(codes: Tensor, scale: Tensor) -> Packet:
        return Packet((codes, scale.reshape(1)), pieces[0].shape, pieces.dtype)

    def exchange(mine: Tensor) -> Tensor:
        others = torch.empty_like(mine)
        dist.all_to_all_single(others, mine, group=group)
        return others

    scales = exchange(scales)
    theirs = [pack(codes, scale) for codes, scale in zip(exchange(codes), scales, strict=True)]
    total = sum(map(int8.decompress, theirs)) / size
    mine = int8.compress(total).parts
    both = [[torch.empty_like(part) for _ in range(size)] for part in mine]
    for of_ranks, part in zip(both, mine, strict=True):
        dist.all_gather(of_ranks, part, group=group)
    gathered = [pack(codes, scale) for codes, scale in zip(*both, strict=True)]
    means = torch.cat([int8.decompress(each) for each in gathered])
    return means[: flat.numel()].view(tensor.shape)
    # END SOLUTION


# %% tags=["check"]
labkit.check("quantised_all_reduce", quantised_all_reduce)

# %% [markdown]
# ## Bonus: PowerSGD
#
# A gradient of a linear layer is a matrix M of n x m numbers. **PowerSGD** (Vogels, Karimireddy and Jaggi, 2019) bets
# that M is nearly of low rank: it sends two thin matrices, P of n x r and Q of m x r, with $M \approx P Q^T$. It
# finds them by one step of the power method, which starts from the result of the last call:
#
# 1. $P = M Q$ with the Q of the last call (at first drawn at random, with one seed for all ranks);
# 2. average P over the ranks, and make its columns orthonormal;
# 3. $Q = M^T P$, averaged over the ranks.
#
# Both are *linear* in M, so both can be averaged by all-reduce: no all-gather, nothing grows with N. P and Q are
# small, and a bucket has many matrices. So all P of a bucket travel **together**, joined into one flat tensor; then
# all Q do. Here a bias of n numbers is a matrix of n x 1: up to a sign, its P is the vector divided by its norm, and
# its Q is the norm. (The paper and torch send biases uncompressed.)


# %% tags=["given"]
def average_together(tensors: list[Tensor], group: dist.ProcessGroup | None = None) -> list[Tensor]:
    """Return the mean of each tensor over the ranks; one all_reduce brings them all.

    Args:
        tensors: Of one dtype, and of the same shapes on every rank. They are not changed.
        group: The ranks that take part; None is everybody.
    """
    joined = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(joined, group=group)
    means = (joined / dist.get_world_size(group)).split([tensor.numel() for tensor in tensors])
    return [mean.view_as(tensor) for mean, tensor in zip(means, tensors, strict=True)]


class PowerSGD:
    """A compressor of a bucket's gradients, each to two thin matrices; all ranks get the same averaged packets.

    Args:
        rank: Columns of the thin matrices, at most.
        average: Returns the means of a list of tensors over the ranks; the default is for one rank alone.
        seed: Draws each matrix's first Q; the same on all ranks.
    """

    def __init__(self, rank: int = 2, average: Any = lambda tensors: tensors, seed: int = 0) -> None:
        self.rank, self.average, self.seed = rank, average, seed
        self.qs: list[Tensor] | None = None

    def compress(self, gradients: list[Tensor]) -> list[Packet]:
        """Return one packet for each gradient; it decompresses to about that gradient's mean over the ranks.

        Args:
            gradients: A bucket's gradients, always in the same order. They are not changed.

        Returns:
            Packets of two parts: P, orthonormal, shape (n, r), and Q, shape (m, r), in the gradient's dtype, with r =
            min(rank, n, m).
        """
        matrices = [gradient.reshape(len(gradient), -1) for gradient in gradients]
        if self.qs is None:
            generator = torch.Generator().manual_seed(self.seed)
            sizes = [(matrix.shape[1], min(self.rank, *matrix.shape)) for matrix in matrices]
            self.qs = [torch.randn(size, generator=generator).to(gradients[0]) for size in sizes]
        averaged = self.average([matrix @ q for matrix, q in zip(matrices, self.qs, strict=True)])
        ps = [torch.linalg.qr(p)[0] for p in averaged]
        self.qs = self.average([matrix.T @ p for matrix, p in zip(matrices, ps, strict=True)])
        parts = zip(ps, self.qs, strict=True)
        return [Packet(pair, gradient.shape, gradient.dtype) for pair, gradient in zip(parts, gradients, strict=True)]

    def decompress(self, packet: Packet) -> Tensor:
        """Return P Q^T in the gradient's shape."""
        p, q = packet.parts
        return (p @ q.T).view(packet.shape)


# %%
torch.manual_seed(0)
matrix = torch.randn(256, 3) @ torch.randn(3, 256) + 0.1 * torch.randn(256, 256)
once = PowerSGD(rank=4)
for call in range(3):
    (packet,) = once.compress([matrix])
    left = (matrix - once.decompress(packet)).norm() / matrix.norm()
    print(f"call {call}: {wire_bytes(packet) / (4 * matrix.numel()):.1%} of the bytes, {left:.1%} lost")

# %% [markdown]
# This matrix has rank 3, plus noise. The first call starts from a random Q, so its result is a guess. The second call
# starts from the Q of the first and is nearly there.
#
# Now the hook. Your `ErrorFeedback` remembers the bucket as a whole, and a small class cuts a flat bucket into its
# gradients.


# %% tags=["given"]
class OfBucket:
    """A compressor of a flat bucket, made from a compressor of the list of its gradients.

    Args:
        power: The compressor of the list, a PowerSGD.
        shapes: The shapes of the bucket's gradients.
    """

    def __init__(self, power: Any, shapes: tuple[torch.Size, ...]) -> None:
        self.power, self.shapes = power, shapes

    def compress(self, flat: Tensor) -> list[Packet]:
        """Return a packet for each gradient."""
        pieces = flat.split([shape.numel() for shape in self.shapes])
        return self.power.compress([piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)])

    def decompress(self, packets: list[Packet]) -> Tensor:
        """Return the flat bucket."""
        return torch.cat([self.power.decompress(packet).flatten() for packet in packets])


class PowerState:
    """What power_hook keeps: for each bucket a PowerSGD with its memory.

    Args:
        rank: Columns of the thin matrices, at most.

    Attributes:
        of_bucket: The memory of each bucket, by the bucket's number and the shapes of its gradients, because DDP
            rebuilds its buckets.
        sent_bytes: Bytes of all packets of this rank so far.
    """

    def __init__(self, rank: int = 2) -> None:
        self.rank, self.sent_bytes = rank, 0
        self.of_bucket: dict[Any, ErrorFeedback] = {}


def power_hook(state: PowerState, bucket: dist.GradBucket) -> Future[Tensor]:
    """Average a bucket by PowerSGD in two all-reduces; waits for both, so nothing overlaps."""
    shapes = tuple(gradient.shape for gradient in bucket.gradients())
    key = (bucket.index(), shapes)
    if key not in state.of_bucket:
        state.of_bucket[key] = ErrorFeedback(OfBucket(PowerSGD(state.rank, average_together), shapes))
    feedback = state.of_bucket[key]
    packets = feedback.compress(bucket.buffer())
    state.sent_bytes += sum(wire_bytes(packet) for packet in packets)
    future: Future[Tensor] = Future()
    future.set_result(feedback.decompress(packets))
    return future


# %% [markdown]
# `power_hook` **waits**, against the rule of section 4, because the second all-reduce needs what the first one
# brought. (Torch's own hook starts the second in `.then`. On NCCL that is fine. On gloo, with several buckets, one
# rank may start bucket 1's second all-reduce before bucket 0's, and another rank the other way round; then the wrong
# tensors meet.)
#
# ## Bonus: Every link
#
# Between the three link speeds there are others. This figure shows all of them. The cost of compressing is a step's
# time with the hook minus its time without, at 400 Gbit/s, where ranks hardly wait for bytes. Move the link,
# then the size of the gradients and the number of ranks. (It counts in bytes: 1 GB/s is 8 Gbit/s.)

# %% tags=["nbval-ignore-output"]
fast = labkit.virtual(4, gpu="a100", gpus_per_node=1, nic="ethernet_400g")
makes = {"no hook": None, **COMPRESSORS}
fast_s = {name: labkit.run(under_ddp, make, on=fast).results[0][0] for name, make in makes.items()}
labkit.compression_explorer(
    {
        name: {
            "num_bytes": step_bytes[name],
            "compress_s": fast_s[name] - fast_s["no hook"],
            "addable": make is None or make().addable,
            "losses": curves[name, "adamw"],
        }
        for name, make in makes.items()
    },
    num_ranks=4,
    compute_s=fast_s["no hook"],
)

# %% [markdown]
# ### Sources
#
# * F. Seide and others, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
#   Speech DNNs", Interspeech 2014: one bit, and error feedback.
# * D. Alistarh and others, "QSGD", NeurIPS 2017, and A. Aji and K. Heafield, "Sparse Communication for Distributed
#   Gradient Descent", EMNLP 2017: quantisation and top-k.
# * Y. Lin and others, "Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed Training", ICLR
#   2018: momentum correction, local clipping, warm-up.
# * S. Stich, J.-B. Cordonnier and M. Jaggi, "Sparsified SGD with Memory", NeurIPS 2018; S. P. Karimireddy and others,
#   "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019: why memory works.
# * A. Beznosikov and others, "On Biased Compression for Distributed Learning", arXiv:2002.12410 (2020): three ranks on
#   which top-1 runs away.
# * T. Vogels, S. P. Karimireddy and M. Jaggi, "PowerSGD", NeurIPS 2019.
# * S. Agarwal and others, "On the Utility of Gradient Compression in Distributed Training Systems", MLSys 2022: where
#   it does not pay.
# * PyTorch documentation: DDP communication hooks.
