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
# # 11 Faster and smaller steps
#
# A tuning table goes round in many forms. One of them says:
#
# | trick | gain |
# |---|---|
# | prefetching | 25 % of the time |
# | mixed precision | 2 to 3 times as fast |
# | gradient compression | 30 to 50 % of the time |
# | activation checkpointing | 40 % of the memory |
#
# Your step is too slow, and your model does not fit. Which line do you try first? Each line can be true for one job and
# wrong for another. You will build a prefetching loader, autocast for mixed precision, and a recompute plan. You will
# measure where each of them pays. The bonus does the same for compression.
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** `backward()`, an optimizer, and what an
# all-reduce is (lesson 02); no GPU.
#
# **Stuck?** `labkit.hint("prefetching_loader")` gives up to three hints. `labkit.lend("prefetching_loader")` puts a
# working version into the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 11 Faster and smaller steps
#
# Four claims, put to the test
#
# <!-- notes: The table goes round in blogs and talks. Ask the room which line they would try first, and write it down. -->

# %% [markdown] tags=["slide-only"]
# ## Which line do you try first?
#
# | trick | gain |
# |---|---|
# | prefetching | 25 % of the time |
# | mixed precision | 2 to 3 times as fast |
# | gradient compression | 30 to 50 % of the time |
# | activation checkpointing | 40 % of the memory |
#
# <!-- notes: Each is true somewhere: a measurement with the model, the link and the device left out. -->

# %% tags=["given"]
import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from time import perf_counter, sleep, thread_time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import labkit
from labkit import models


def virtual_run(function: Callable[..., Any], *args: Any, gpu: str = "h100") -> labkit.Timeline:
    return labkit.run(function, *args, on=labkit.virtual(1, gpu=gpu)).timeline


# %% [markdown]
# ## 1 Look before you tune
#
# Four GPUs train a model. A background thread loads batches ahead, so no GPU should ever wait for data. This is the
# run:

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("starved_step")

# %% [markdown]
# ### Exercise [[starved_step]]
#
# *15 points, about 5 minutes; difficulty 2 of 5, importance 5 of 5*
#
# Much of this run is lost. `waits_in`: where do the ranks wait, in `"all_reduce"`, `"forward and backward"` or
# `"next batch"`? `share`: what fraction of the run is lost there (0.1 for a tenth)? `every`: how many steps from one
# such wait to the next? `cause`: `"each batch loads slower than it trains"`,
# `"few batches load slowly, and too few are loaded ahead"`, `"one rank loads for all"` or `"the network is slow"`?

# %% tags=["find"] exercise="starved_step" points=15 difficulty=2 importance=5 minutes=5 title="The starved step"
labkit.answer(
    "starved_step",
    waits_in="next batch",
    share=0.33,
    every=6,
    cause="few batches load slowly, and too few are loaded ahead",
)

# %% [markdown] tags=["slide-only"]
# ## Much of the run is lost. Where?
#
# * four GPUs, a thread that loads ahead
# * nobody should ever wait for data
#
# **To the room:** open the recorded run. Who waits, how often, for what?
#
# <!-- notes: Ask how long a wait is, how often it comes, and how long a batch loads. The timeline shows all three; an average may hide them. -->

# %% [markdown]
# Of the table's lines, only prefetching could help with such a wait, and this run prefetches already. **Look at the
# timeline first.** (The timeline's summary says *blocked 0 %*, although much of the run is lost: it counts only waits
# for messages.)
#
# ## 2 Prefetching
#
# A simple loop loads a batch, trains on it, and then loads the next batch. The two jobs could run at the same time: a
# thread loads batch 1 while you train on batch 0, and a queue holds the few batches that are ready.
#
# Three things go wrong in loaders that people write. The **end**: the loop must end when the batches do. An **error**
# in the thread must be raised in the loop, or the loop waits forever. After a loop that is **left early**, by `break`,
# nothing refers to the generator any more, so Python closes it: `GeneratorExit` is raised at its `yield`. The thread
# must then end, even if it is blocked in `put`.
#
# ### Exercise [[prefetching_loader]]
#
# *35 points, about 25 minutes; difficulty 4 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="prefetching_loader" points=35 difficulty=4 importance=4 minutes=25 title="A prefetching loader" provides=["prefetched"]
def prefetched(batches: Iterable[Any], depth: int = 2) -> Iterator[Any]:
    """Yield the batches in order, while a thread fetches the next ones.

    The thread goes on fetching while the loop works on a batch. Besides that batch, at most `depth` batches wait in
    the queue, and the thread holds at most one more. An error of the iterable is raised here, after the batches before
    it. Once close() of the generator has returned, the thread has ended, even if the queue was full.

    Args:
        batches: What is loaded, any iterable, perhaps an empty one; only the thread iterates over it.
        depth: The most batches in the queue, 1 or more.
    """
    # BEGIN SOLUTION prefetching_loader
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def fetch() -> None:
        last: tuple[str, Any] = ("end", None)
        try:
            for batch in batches:
                if stop.is_set():
                    return
                ready.put(("batch", batch))
        except Exception as trouble:
            last = ("error", trouble)
        if not stop.is_set():
            ready.put(last)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        stop.set()
        while not ready.empty():
            ready.get()
        thread.join()
    # END SOLUTION


# %% tags=["check"]
labkit.check("prefetching_loader", prefetched)

# %% [markdown]
# The virtual cluster simulates the time of each thread separately. So the two jobs overlap as on an idle machine, and
# the gain has no noise. A GPT of three million parameters runs forward and backward on an A100, and each batch takes 1
# ms to load. **What fraction of the time does prefetching save?**

# %% tags=["predict"]
labkit.predict("prefetch_saves", 0.5)


# %%
def epoch(load_ms, ahead):
    with torch.device("meta"):
        model, batch = models.GPT(num_layers=4, width=256), torch.zeros(2, 64, 12, dtype=torch.long)
    batches = (sleep(load_ms / 1e3) or batch for _ in range(20))
    for tokens, targets in prefetched(batches) if ahead else batches:
        models.loss_of(model, tokens, targets).backward()


gains = {}
for load_ms in (0.1, 0.5, 1, 3, 10):
    in_turns, ahead = (virtual_run(epoch, load_ms, each, gpu="a100").makespan_ns for each in (False, True))
    gains[f"load {load_ms} ms"] = 1 - ahead / in_turns
labkit.reveal("prefetch_saves", round(gains["load 1 ms"], 2), [f"{a}: {b:.1%} saved" for a, b in gains.items()])

# %% [markdown]
# Prefetching hides the shorter of loading and training. Suppose that loading takes `a` ms and training `b` ms. In
# turns, a step takes a + b; with batches loaded ahead, it takes only the longer of the two. So prefetching saves min(a,
# b) / (a + b), at most one half, when a = b. The table's 25 % is the case in which one takes three times as long as the
# other.
#
# **[[faster_device]].** Loading takes 6 ms a batch, training 10 ms, and the loader works ahead. You switch to a GPU
# that is three times as fast. How many ms does a step take now?

# %% tags=["why"] exercise="faster_device" title="A faster device"
labkit.answer("faster_device", 6)

# %% [markdown] tags=["slide-only"]
# ## Prefetching saves the shorter of the two
#
# ```
# in turns   [load][  train  ][load][  train  ][load][  train  ]
#
# ahead      [load][load]  [load]
#                  [  train  ][  train  ][  train  ]
# ```
#
# **To the room:** the GPU becomes three times as fast. And the step?
#
# <!-- notes: Loading takes 6 ms, training 10. Ask for the step before and after, and then for what would help. -->

# %% [markdown]
# ## 3 Mixed precision
#
# Tensor cores run 16-bit matmuls many times faster than ordinary cores run float32 ones. But not everything should have
# 16 bits. An optimizer adds 0.003 to a weight of 1, a thousand times. In float32 the weight becomes 4. **What does it
# become in bfloat16?**

# %% tags=["predict"]
labkit.predict("weight_in_bfloat16", 3.9)

# %%
weight = torch.tensor(1.0, dtype=torch.bfloat16)
for _ in range(1000):
    weight += 0.003
labkit.reveal("weight_in_bfloat16", weight.item())

# %% [markdown]
# It stays 1. bfloat16 has 8 significant bits, so the next number after 1 is 1.0078, and 1.003 rounds back to 1. That is
# why **parameters stay in float32**, and only copies of them are cast. Sums of many numbers stay in float32 for the
# same reason. (In a matmul, the tensor cores take 16-bit factors and add in float32.) Exponentials need float32, too:
# bfloat16 rounds an x near 20 by up to 0.06, so exp(x) is off by up to 6 %.
#
# **Before you read the lists below:** which precision would you give to `linear`, `softmax`, `layer_norm`, `cross_entropy`,
# `matmul` and `gelu`?
#
# The answer differs from function to function, so each call needs its own cast. A `TorchFunctionMode` intercepts every
# call of a torch function while it is active:
#
# ```python
# class Loud(TorchFunctionMode):
#     def __torch_function__(self, function, types, args=(), kwargs=None):
#         print(function)
#         return function(*args, **(kwargs or {}))
# ```


# %% tags=["given"]
IN_16_BITS = (functional.linear, functional.conv2d, torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm)
IN_32_BITS = (
    functional.cross_entropy, functional.mse_loss, functional.softmax, functional.log_softmax, functional.layer_norm,
    torch.exp, torch.log,
)  # fmt: skip

# %% [markdown]
# ### Exercise [[autocast]]
#
# *15 points, about 10 minutes; difficulty 3 of 5, importance 4 of 5*
#
# Functions in the first list compute in `dtype`, those in the second in float32; all others get their arguments
# unchanged. Arguments may come by position or by keyword. A floating-point tensor may be float32, bfloat16 or float16.
# Integers, such as labels, stay integers.


# %% tags=["exercise"] exercise="autocast" points=15 difficulty=3 importance=4 minutes=10 title="Autocast" provides=["Autocast"]
class Autocast(TorchFunctionMode):
    """While it is active, functions of IN_16_BITS compute in dtype and those of IN_32_BITS in float32.

    Args:
        dtype: torch.bfloat16 or torch.float16.
    """

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return the function's result on its arguments, cast as the two lists say."""
        # BEGIN SOLUTION autocast
        kwargs = kwargs or {}
        wanted = self.dtype if function in IN_16_BITS else torch.float32 if function in IN_32_BITS else None
        if wanted is None:
            return function(*args, **kwargs)

        def cast(value: Any) -> Any:
            return value.to(wanted) if isinstance(value, Tensor) and value.is_floating_point() else value

        return function(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})
        # END SOLUTION


# %% tags=["check"]
labkit.check("autocast", Autocast)

# %% [markdown]
# Now test the table's "2 to 3 times as fast", on blocks of the GPT in bfloat16. An A100 computes float32 products on
# ordinary cores unless you allow TF32, which rounds the factors to 10 bits of fraction. **On blocks of width 4096, by
# what factor is a step in bfloat16 faster than one in float32?**

# %% tags=["predict"]
labkit.predict("bfloat16_speedup", 2.5)


# %% tags=["given"]
def gpt_blocks(width: int, count: int) -> nn.Sequential:
    with torch.device("meta"):
        return nn.Sequential(*(models.Block(width, 16) for _ in range(count)))


# %%
def two_blocks(precision, width):
    x = torch.empty(4, width // 2, width, device="meta")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")  # "high" allows TF32
    with Autocast(getattr(torch, precision)) if precision in ("float16", "bfloat16") else nullcontext():
        gpt_blocks(width, 2)(x).float().square().mean().backward()


speedups, rows = {}, ["16 bits instead of     float32  TF32"]
for gpu, half in (("v100", "float16"), ("v100", "bfloat16"), ("a100", "bfloat16"), ("h100", "bfloat16")):
    for width in (4096, 1024, 128):
        ns = {each: virtual_run(two_blocks, each, width, gpu=gpu).makespan_ns for each in ("float32", "tf32", half)}
        speedups[f"{gpu}, {half}, width {width}"] = ns["float32"] / ns[half]
        rows.append(f"{gpu} {half:8} width {width:4} {ns['float32'] / ns[half]:6.1f} {ns['tf32'] / ns[half]:5.1f}")
labkit.reveal("bfloat16_speedup", round(speedups["a100, bfloat16, width 4096"], 1), rows)

# %% [markdown]
# On an A100, bfloat16 is 14 times as fast as float32, but only 1.8 times as fast as TF32. A V100 gains a factor of 7
# with float16, and nothing with bfloat16, which its tensor cores do not support. And a block of width 128 is *slower*
# everywhere: it spends its time launching kernels, and every cast is one more kernel. **A speedup means nothing without
# the baseline, the card and the width.**

# %% [markdown] tags=["slide-only"]
# ## Mixed precision keeps parameters in 32 bits
#
# * matmuls in 16 bits; sums and exponentials in 32; **parameters in 32**
# * float16 needs loss scaling; bfloat16 does not
# * ask: faster than *what*? float32, or TF32?
#
# <!-- notes: Small layers get slower: they are bound by launching kernels, and autocast launches more of them. -->

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 4 Smaller: compute it again
#
# Backward needs what forward computed, so every activation waits in memory. **Activation checkpointing** keeps only the
# input of a segment of layers, and recomputes the rest when backward arrives there. `torch.utils.checkpoint` does it.
#
# What can it save? Only activations. Parameters, gradients and the optimizer's state stay. Train twelve blocks of the
# GPT on a virtual H100, with one checkpoint for each block and AdamW in float32. **What fraction of the peak does
# checkpointing save with much data and few parameters (width 1024, 32 sequences)?**

# %% tags=["predict"]
labkit.predict("peak_saved", 0.4)


# %%
from labkit.timeline.memory import peak_memory_bytes


def train_blocks(width, batch, checkpoints):
    blocks, x = gpt_blocks(width, 12), torch.empty(batch, 512, width, device="meta")
    optimizer = torch.optim.AdamW(blocks.parameters(), foreach=False)
    for _ in range(2):  # the second step has the optimizer's state
        out = x.requires_grad_()
        for block in blocks:
            out = torch.utils.checkpoint.checkpoint(block, out, use_reentrant=False) if checkpoints else block(out)
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


saved, rows = {}, []
for name, width, batch in (("much data, narrow", 1024, 32), ("in between", 2048, 4), ("little data, wide", 4096, 1)):
    plain, again = (virtual_run(train_blocks, width, batch, each) for each in (False, True))
    saved[name] = 1 - peak_memory_bytes(again) / peak_memory_bytes(plain)
    rows.append(f"{name:18} {saved[name]:4.0%} saved, {again.makespan_ns / plain.makespan_ns:.2f} times as long")
labkit.reveal("peak_saved", round(saved["much data, narrow"], 2), rows)

# %% [markdown]
# Checkpointing saves 73 % where activations dominate, 7 % in between, and nothing where parameters and optimizer state
# dominate. It costs a second forward: here the step takes 1.14 to 1.22 times as long.
#
# A checkpoint around every block is the simplest plan, and a poor one. Look inside a block that stores its attention
# scores (4 sequences of 2048 tokens, width 4096, 32 heads, all in bfloat16, on the virtual H100; `mixed` is softmax @
# v):
#
# | | norm | qkv | scores | softmax | mixed | out | norm | up | gelu | down |
# |---|---|---|---|---|---|---|---|---|---|---|
# | MB | 67 | 201 | 1074 | 1074 | 67 | 67 | 67 | 268 | 268 | 67 |
# | us to compute | 46 | 1042 | 415 | 737 | 415 | 347 | 46 | 1389 | 184 | 1389 |
#
# **Which would you drop first, and which last?** The attention scores are large, and quick to recompute. `up` takes
# longer to recompute, and is a quarter of their size. But what dropping a tensor saves depends on its neighbours, and
# on where the peak is. **Choose** for each tensor whether to keep it.
#
# The rules:
#
# * To keep it simple, each tensor is computed from the one before it alone. (Residual additions, and that `mixed` needs
#   v, are left out.) The chain's input is always there and costs nothing.
# * Backward goes through the chain from its end and needs every tensor.
# * A tensor that you keep stays in memory until backward has passed it.
# * The kept tensors cut the chain into **stretches** of tensors that are not kept: one before the first kept tensor,
#   one between each kept tensor and the next, one after the last. A stretch may be empty. When backward arrives at a
#   stretch, all of it is recomputed.
#
# While backward is in a stretch, memory holds two things: the whole stretch, and all kept tensors *before* it. The peak
# is the largest such sum. If the last tensor is kept, the stretch after it is empty and counts, too: memory then
# holds all kept tensors. A plan may keep no tensor at all. For example, here are five tensors, of which 1 and 3 are kept:
#
# ```
# tensor    0    1    2    3    4
# MB        4    1    8    2    5      backward in    memory holds
# kept           x         x           4              1 + 2 + 5 = 8
#                                      2              1 + 8     = 9    <- the peak
#                                      0              4
# ```
#
# ### Exercise [[recompute_plan]]
#
# *35 points, about 33 minutes; difficulty 4 of 5, importance 4 of 5*
#
# A chain repeats one block and has 20 to 50 tensors, too many to try every plan. Your function has 14 s for the check's
# three chains together.
#
# * Half of the points: recompute less than with a checkpoint around every block, which keeps each block's last tensor.
# * The other half: recompute as little as any plan under these rules can. Checkmate (Jain and others, 2020) searches
#   for that optimum. The check prints how long the best plan recomputes.


# %% tags=["design"] exercise="recompute_plan" points=35 difficulty=4 importance=4 minutes=33 weights=[1, 1, 1, 1, 1, 1, 1, 1] title="A recompute plan" provides=["recompute_plan"]
def recompute_plan(sizes_mb: list[int], times_us: list[int], limit_mb: int) -> list[int]:
    """Return the indices of the tensors that are kept, ascending; the peak is at most limit_mb.

    Args:
        sizes_mb: The size of each tensor of the chain, in the order in which forward computes them.
        times_us: How long it takes to compute each tensor from the one before it. A tensor that is not kept costs this
            once more.
        limit_mb: The most that the peak may be. There is a plan that fits.
    """
    # BEGIN SOLUTION recompute_plan
    count, ways = len(sizes_mb), {-1: [(0, 0, ())]}  # last kept tensor -> (held, again, kept) that nothing beats
    best = (math.inf, ())
    for last in range(-1, count):
        unbeaten, least = [], math.inf
        for way in sorted(ways.get(last, [])):
            if way[1] < least:
                unbeaten.append(way)
                least = way[1]
        for held, again, kept in unbeaten:
            for following in range(last + 1, count + 1):
                if held + sum(sizes_mb[last + 1 : following]) > limit_mb:
                    break
                total = again + sum(times_us[last + 1 : following])
                if following == count:
                    best = min(best, (total, kept))
                else:
                    ways.setdefault(following, []).append((held + sizes_mb[following], total, (*kept, following)))
    return list(best[1])
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("recompute_plan", recompute_plan)

# %% [markdown]
# V. Korthikanti and others (2022) dropped only the tensors inside attention. Here those are scores and softmax: 2148 of
# 3220 MB, recomputed in 1.2 ms. A checkpoint around the block recomputes everything but `down`, in 4.6 ms. But a
# stretch is in memory as a whole while it is recomputed, so if you drop two large neighbours, both need room at that
# moment. Today's kernels (FlashAttention) never store the scores.

# %% [markdown] tags=["slide-only"]
# ## Not all activations are alike
#
# | in a GPT block | MB | us to recompute |
# |---|---|---|
# | scores, softmax | 1074 each | 415, 737 |
# | up | 268 | 1389 |
# | qkv | 201 | 1042 |
#
# **To the room:** which do you keep?
#
# <!-- notes: Large and cheap goes; small and expensive stays. The board shows who recomputes least. -->

# %% [markdown]
# That leaves compression; the bonus tries it on the GPT.
#
# ## 5 What stays
#
# * Look at the timeline **before** you tune.
# * Prefetching saves the shorter of loading and training. Mixed precision pays where matmuls are large.
# * Recompute what is large and cheap; keep what is small and expensive.
#
# **The next question.** A pipeline puts different layers on different GPUs. But what if a single layer is too large, or too
# slow? Can two GPUs compute *one* matrix product, and what must they tell each other?

# %% [markdown] tags=["slide-only"]
# ## What stays
#
# * look **before** you tune
# * large and cheap: recompute; small and dear: keep
# * a claim needs model, link and device
#
# Next: one layer on two GPUs. What must they tell each other?

# %% [markdown]
# ## Bonus: float16, and all of it on the GPT
#
# **Loss scaling.** bfloat16 has float32's range. float16 does not: a number below 0.00000003 becomes zero, and
# gradients are small. The fix: multiply the loss by a **scale**, and divide the gradients by it before the optimizer
# uses them. The scale should be as large as possible without overflow. You cannot know that in advance, so search for
# it. Start high. If a gradient is not finite, halve the scale and **skip the step**. After many good steps in a row,
# double it.
#
# ### Exercise [[loss_scaling]]
#
# *20 points, about 8 minutes; difficulty 2 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="loss_scaling" points=20 difficulty=2 importance=3 minutes=8 title="Loss scaling" bonus=true provides=["LossScaler"]
class LossScaler:
    """Keeps float16 gradients in range: scales the loss, unscales the gradients, skips steps that overflowed.

    Args:
        scale: The scale to begin with.
        growth_interval: The scale doubles after this many good steps in a row; then the count starts again.
    """

    def __init__(self, scale: float = 2.0**16, growth_interval: int = 2000) -> None:
        self.scale = scale
        self.growth_interval = growth_interval
        self.good_steps = 0

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale."""
        # BEGIN SOLUTION loss_scaling
        return loss * self.scale
        # END SOLUTION

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Divide the gradients by the scale and let the optimizer step, or skip it; adapt the scale.

        What .grad holds after a skipped step does not matter.

        Returns:
            Whether the optimizer took its step: not if any gradient has an entry that is infinite or not a number.
        """
        # BEGIN SOLUTION loss_scaling
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
        if not finite:
            self.scale /= 2
            self.good_steps = 0
            return False
        for scaled in gradients:
            scaled /= self.scale
        optimizer.step()
        self.good_steps += 1
        if self.good_steps == self.growth_interval:
            self.scale *= 2
            self.good_steps = 0
        return True
        # END SOLUTION


# %% tags=["check"]
labkit.check("loss_scaling", LossScaler)

# %% [markdown]
# With several ranks, **all must skip together**, or one rank's model falls behind. After DDP's all-reduce they do: an
# infinity on one rank is an infinity in everybody's mean. (A compressor that clamps, lesson 10's `Cast`, would hide it.)

# %% [markdown]
# ### All of it
#
# The GPT learns to add two-digit numbers: first with `models.train` in float32, then with your loader, your autocast
# and your loss scaling in float16.


# %% tags=["given"]
def train_fast(model: nn.Module, task: models.Addition, num_steps: int, lr: float = 3e-3) -> list[float]:
    optimizer, scaler, losses = models.optimizer_for(model, lr), LossScaler(2.0**16, 50), []
    for step, (tokens, targets) in enumerate(prefetched(task.loader(num_steps, 64))):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, 10 * (step + 1) / num_steps)
        with Autocast(torch.float16):
            loss = models.loss_of(model, tokens, targets)
        optimizer.zero_grad()
        scaler.scaled(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), scaler.scale)  # gradients are scaled, so their limit is too
        scaler.step(optimizer)
        losses.append(loss.item())
    return losses


# %% tags=["nbval-ignore-output"] seconds=40
for name, train in (("float32", models.train), ("loader, autocast, scaling", train_fast)):
    losses = train(models.GPT(), models.Addition(), 150)
    print(f"{name:26} loss {losses[0]:.2f} at the start, {sum(losses[-10:]) / 10:.2f} at the end")

# %% [markdown]
# About the same loss. Do not compare the time: float16 pays only on a device with matmul units for it, such as a GPU.

# %% [markdown]
# ## Bonus: The true table
#
# Now compression: the GPT of section 2 trains under torch's DDP on four machines with one A100 each, without and with
# torch's hook that sends float16, half of the bytes. **At 100 Gbit/s, what fraction of the step does the hook save?**

# %% tags=["predict"]
labkit.predict("hook_saves", 0.4)

# %%
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook


def ddp_step_seconds(hook):
    model = models.GPT(num_layers=4, width=256)  # three million parameters
    ddp, seconds = nn.parallel.DistributedDataParallel(model), []
    if hook:
        ddp.register_comm_hook(None, hook)
    for step in range(2):
        tokens, targets = models.Addition().batch(step, 32, rank=dist.get_rank(), world_size=dist.get_world_size())
        begin = perf_counter()
        models.loss_of(ddp, tokens, targets).backward()
        seconds.append(perf_counter() - begin)
    return seconds[1]


hooked, rows = {}, []
for gigabits in (1, 10, 100, 400):
    on = labkit.virtual(4, gpu="a100", gpus_per_node=1, nic=f"ethernet_{gigabits}g")
    plain, half = (max(labkit.run(ddp_step_seconds, each, on=on).results) for each in (None, fp16_compress_hook))
    hooked[f"4 x A100, {gigabits} Gbit/s"] = 1 - half / plain
    rows.append(
        f"{gigabits:3} Gbit/s: {1e3 * plain:8.1f} ms, with the hook {1e3 * half:8.1f} ms, {1 - half / plain:6.1%} saved"
    )
labkit.reveal("hook_saves", round(hooked["4 x A100, 100 Gbit/s"], 2), rows)

# %% [markdown]
# **[[fast_network]].** The hook always halves the bytes. It saves 50 % of a step at 1 Gbit/s, but only 9 % at 400. Why?
# Choose `"casting takes longer"`, `"little communication is exposed"` or `"the hook is skipped"`.

# %% tags=["why"] exercise="fast_network" title="A fast network" bonus=true
labkit.answer("fast_network", "little communication is exposed")

# %% [markdown]
# And now the table, line by line: where is each promise kept? The code turns each promise into a range, and counts it
# as kept where the gain lies in that range.

# %%
PROMISED = {
    "prefetching, 20 to 30 % of the time": (0.20, 0.30, gains),
    "mixed precision, 2 to 3 times as fast": (2.0, 3.0, speedups),
    "compression, 30 to 50 % of the time": (0.30, 0.50, hooked),
    "checkpointing, 35 to 45 % of the memory": (0.35, 0.45, saved),
}
for claim, (low, high, places) in PROMISED.items():
    print(claim)
    for verdict in ("less", "kept", "more"):
        there = [
            place
            for place, value in places.items()
            if verdict == ("less" if value < low else "more" if value > high else "kept")
        ]
        print(
            f"   {verdict}: {len(there):2} of {len(places)}   {'; '.join(there[:2])}{' ...' if len(there) > 2 else ''}"
        )

# %% [markdown]
# (Here mixed precision is compared with float32. Compared with TF32, which the A100 and the H100 have, it was at most
# 1.8 times as fast: see section 3's table.) Each promise is somebody's measurement, **with the model, the link and the
# device left out**. Ask for those three.

# %% [markdown] tags=["slide-only"]
# ## Each is true somewhere
#
# * prefetching: the shorter of loading and training, no more
# * mixed precision: against what, on which card, how wide?
# * compression: only what the network does not hide
# * checkpointing: activations only
#
# **Ask for the model, the link and the device.**
#
# <!-- notes: Show the table that the notebook printed. -->

# %% [markdown]
# ## Bonus: Your own loader
#
# A thread that *waits*, for a disk or a network, costs nothing. A thread that *computes* in Python takes turns with your
# training, because the interpreter runs one thread at a time (lesson 01):


# %% tags=["nbval-ignore-output"]
def loader_here(seconds, computes):
    for number in range(15):
        end = thread_time() + seconds
        while computes and thread_time() < end:
            math.sqrt(2.0)  # "decoding"
        sleep(0 if computes else seconds)
        yield number


def epoch_here(computes, ahead):
    begin = perf_counter()
    for _ in prefetched(loader_here(0.004, computes)) if ahead else loader_here(0.004, computes):
        end = thread_time() + 0.008
        while thread_time() < end:
            math.sqrt(2.0)  # "training", in Python
    return perf_counter() - begin


for computes in (False, True):
    pairs = [(epoch_here(computes, True), epoch_here(computes, False)) for _ in range(3)]
    share = sorted(1 - ahead / in_turns for ahead, in_turns in pairs)[1]
    print(f"a loader that {'computes' if computes else 'waits'}: {share:.0%} saved (at most a third is possible)")

# %% [markdown]
# That is why `torch.utils.data.DataLoader` has worker *processes*.
#
# ### Sources
#
# * P. Micikevicius and others, "Mixed Precision Training", ICLR 2018: autocast's rules and loss scaling.
# * T. Chen and others, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174 (2016): checkpointing.
# * V. Korthikanti and others, "Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198 (2022):
#   selective recomputation.
# * P. Jain and others, "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys 2020.
# * S. Agarwal and others, "On the Utility of Gradient Compression in Distributed Training Systems", MLSys 2022: where
#   compression does not pay.
# * PyTorch documentation: `torch.autocast`, `torch.amp.GradScaler`, `torch.overrides`, `torch.utils.checkpoint`,
#   `torch.utils.data.DataLoader`.
