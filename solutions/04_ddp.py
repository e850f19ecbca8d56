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
# # 04 DistributedDataParallel
#
# Eight GPUs compute while the network is idle. Then the network works while they are idle. Whose fault is that?
#
# Four lines after `backward()` are enough to train on eight GPUs, and they are slow. PyTorch's
# `DistributedDataParallel` (DDP) is fast. Two ideas make the difference, and you build both: hooks and buckets.
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** lesson 02: what an all-reduce is, and what it
# costs. No GPU: `labkit.virtual(8)` simulates eight of them, with the same times in every run.
#
# **Stuck?** `labkit.hint("bucketed_ddp")` gives up to three hints. `labkit.lend("bucketed_ddp")` puts a working version
# into the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 04 DistributedDataParallel
#
# Eight GPUs and one network: why do they take turns?
#
# <!-- notes: Four lines after backward train on eight GPUs, slowly. Two ideas make DDP of them: hooks and buckets. -->

# %% tags=["parameters"]
gpt_steps = 60  # training steps in section 7
use_mine = False  # True: the last bonus runs on the all_reduce that you wrote

# %% tags=["given"]
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.models import GPT, Addition, loss_of, optimizer_for
from labkit.timeline.metrics import hidden_communication_share

# %% [markdown]
# ## 1 Two rules
#
# Every rank holds a copy of the model. The copies behave as one model if they
#
# 1. **begin equal**: everybody starts with rank 0's parameters;
# 2. **take equal steps**: every rank hands its optimizer the same gradients.
#
# Then they stay equal, and no step has to send a parameter.

# %% [markdown] tags=["slide-only"]
# ## Two rules keep replicas equal
#
# | | when | what travels |
# |---|---|---|
# | begin equal | once | parameters and buffers |
# | take equal steps | every step | **gradients, averaged** |
#
# <!-- notes: Three lines keep the first rule; the second is yours to write. Adam hides a wrong factor. -->

# %% tags=["figure"]
labkit.figure("batch")

# %% [markdown]
# The first rule is three lines:


# %% tags=["given"]
def broadcast_module(module: nn.Module) -> None:
    """Copy rank 0's parameters and buffers to every rank, in place."""
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach(), src=0)


# %% [markdown]
# (**Buffers** are tensors that no optimizer touches and the forward pass needs, such as BatchNorm's running mean.)
#
# The second rule is yours. Each rank computes the gradient of the mean loss over its own samples. If every rank
# has the same number of samples, the mean of these gradients is the gradient over the whole batch.
#
# A **frozen** parameter (`requires_grad=False`) has no gradient on any rank. A skipped layer is different: one rank may
# skip it while another uses it. Even then, **every rank must make the same calls in the same order**.
#
# ### Exercise [[average_gradients]]
#
# *12 points, about 6 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="average_gradients" points=12 difficulty=2 importance=5 minutes=6 title="Average after backward" provides=["average_gradients"]
def average_gradients(module: nn.Module) -> None:
    """Set every gradient, on every rank, to the mean over all ranks: overwrite grad in place, or assign a new tensor.

    Called after backward. If a parameter requires a gradient but its grad is None on this rank, this rank contributes
    zeros. You may assume that at least one rank has a gradient for it. Parameters that require no gradient keep None,
    and nothing is sent for them.
    """
    # BEGIN SOLUTION average_gradients
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())
    # END SOLUTION


# %% tags=["check"]
labkit.check("average_gradients", average_gradients)

# %% [markdown]
# That is a complete data-parallel trainer. The check compares gradients, in float64: rounding can hide nothing. In a
# training run, you would hardly notice a gradient that is eight times too large. Clipping scales both the right
# gradient and the wrong one down to the same norm. And Adam divides by the gradient's usual size, so the factor eight
# cancels.

# %% [markdown]
# ## 2 Taking turns
#
# Take eight linear layers of 2048 x 2048, 134 MB of gradients, on eight A100s over PCIe. (Tensors on the `meta` device
# have no numbers, so this runs on a laptop.)


# %% tags=["given"]
PCIE = labkit.virtual(8, gpu="a100", link="pcie4")


class AveragedAtTheEnd(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args):
        return self.module(*args)

    def finish_gradient_synchronization(self) -> None:
        average_gradients(self.module)


def one_step(wrap, width=2048, depth=8, batch=1024):
    ddp = wrap(nn.Sequential(*(nn.Linear(width, width, device="meta") for _ in range(depth))))
    dist.barrier()  # what comes before is not part of the step
    with labkit.span("forward"):
        loss = ddp(torch.empty(batch, width, device="meta")).sum()
    with labkit.span("backward"):
        loss.backward()
    ddp.finish_gradient_synchronization()


def step(wrap, on=PCIE, **model) -> labkit.Timeline:
    timeline = labkit.run(partial(one_step, **model), wrap, on=on).timeline
    return timeline.select(timeline.start_ns >= timeline.start_ns[timeline.name == "forward"].min())


# %%
at_the_end = step(AveragedAtTheEnd)
print(f"a step takes {at_the_end.makespan_ns / 1e6:.1f} ms; hidden: {hidden_communication_share(at_the_end):.0%}")
at_the_end

# %% [markdown]
# All eight ranks do the same thing, so they share a row: the GPU works first, then the network. **Hidden** is the share
# of communication time in which the same rank also computes. Here it is 0%.
#
# **What would the step take, in ms, if communication ran while backward computes?** Read it off the figure.

# %% tags=["predict"]
labkit.predict("overlapped_step_ms", 20.0, unit="ms")

# %% [markdown] tags=["slide-only"]
# ## GPUs and network take turns
#
# Eight A100s over PCIe, 134 MB of gradients: the GPUs work, then the network.
#
# **To the room:** what would a step take if both worked at once?
#
# <!-- notes: Show the timeline of section 2 and collect guesses in ms. -->

# %% [markdown]
# ## 3 A hook for each parameter
#
# Backward goes from the last layer to the first. The last layer's gradient is complete long before `backward()`
# returns, and nobody touches it again.
#
# Autograd tells you when: a function registered by `parameter.register_post_accumulate_grad_hook(hook)` is called as
# `hook(parameter)` once `parameter.grad` is complete, also for a weight that two layers share.
#
# And `dist.all_reduce(tensor, async_op=True)` returns a handle at once. Leave the tensor alone until `handle.wait()`
# has returned; then it holds the result. (With NCCL, `wait()` does not block the CPU. It makes the GPU work that you
# launch afterwards wait for the result.)
#
# (Do not use torch's *functional* collectives: they wait at the first use of the result.)
#
# ### Exercise [[overlapped_ddp]]
#
# *25 points, about 10 minutes; difficulty 3 of 5, importance 5 of 5*
#
# Add methods as you like. Every trained parameter gets its gradient in every step. The check watches backward: once
# backward has finished a layer, the all_reduce of that layer's gradients must have been started.


# %% tags=["exercise"] exercise="overlapped_ddp" points=25 difficulty=3 importance=5 minutes=10 title="A hook for each parameter" provides=["OverlappedDDP"]
class OverlappedDDP(nn.Module):
    """Data parallelism in which each gradient leaves while backward is still computing.

    On every rank, a new wrapper holds rank 0's parameters (frozen ones too) and rank 0's buffers. Each gradient gets
    its own all_reduce as soon as it is complete, while backward goes on, and nobody waits for it before
    finish_gradient_synchronization. In a step, nothing is sent for a parameter that requires no gradient. Nobody
    changes requires_grad after wrapping.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        # BEGIN SOLUTION overlapped_ddp
        broadcast_module(module)
        self.handles: list[dist.Work] = []
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.on_gradient)
        # END SOLUTION

    def forward(self, *args, **kwargs):
        """Return what the module returns."""
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self) -> None:
        """Return when every gradient is the mean over all ranks; afterwards the next step may begin."""
        # BEGIN SOLUTION overlapped_ddp
        for handle in self.handles:
            handle.wait()
        self.handles.clear()

    def on_gradient(self, parameter: nn.Parameter) -> None:
        parameter.grad.div_(dist.get_world_size())
        self.handles.append(dist.all_reduce(parameter.grad, async_op=True))
        # END SOLUTION


# %% tags=["check"]
labkit.check("overlapped_ddp", OverlappedDDP)

# %%
overlapped = step(OverlappedDDP)
labkit.reveal("overlapped_step_ms", overlapped.makespan_ns / 1e6, overlapped)

# %% [markdown]
# Most of the communication is hidden now; the figure's title says how much. The part that runs after backward has ended
# is **exposed**.

# %% [markdown] tags=["slide-only"]
# ## Hooks send while backward computes
#
# ```
# at the end   compute  [ forward ][    backward    ]
#              network                               [ gradients ]
#
# hooks        compute  [ forward ][    backward    ]
#              network               [ ][ ][ ][ ][ ][ ]
# ```
#
# **To the room:** what is still exposed, and why?
#
# <!-- notes: Show both timelines. NCCL takes some of the GPU's processors and memory bandwidth; the virtual one not. -->

# %% [markdown]
# ## 4 Who is late?
#
# Two recorded steps of DDP on eight A100s. All gradients are right, yet every step takes longer than with eight equal
# ranks.
#
# A hatched bar is **blocked**: its rank has called the collective, and waits for somebody who has not.

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("late_rank")

# %% [markdown] tags=["slide-only"]
# ## One of eight is late
#
# Every gradient is right. Every step takes longer than it should.
#
# **To the room:** which rank, and why?
#
# <!-- notes: The recorded run of section 4. Hatched, blocked bars belong to those who wait. The late one is not blocked while they wait for it. -->

# %% [markdown]
# ### Exercise [[late_rank]]
#
# Compare rows and hover over bars. `rank`: who is late? `late_ms`: how many ms later than the others does that rank end
# its first backward (to one decimal)? `cause`: `"late data"`, `"slow GPU"`, `"slow link"` or `"waits in a hook"`?

# %% tags=["find"] exercise="late_rank" points=0 minutes=5 title="Who is late?"
labkit.answer("late_rank", rank=5, late_ms=5.2, cause="waits in a hook")

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 5 Buckets
#
# Eight large layers are the easy case. A real model has hundreds of parameter tensors, and most are tiny. Each
# all-reduce pays a fixed start-up cost, the latencies of its steps.
#
# So DDP puts gradients together in **buckets** and sends a bucket when it is full: `bucket_cap_mb=25` by default.
# Before you look at the figure and at `bucket_plan`, decide two things: in which order do gradients go into buckets,
# and when does a new bucket begin?

# %% tags=["figure"]
labkit.figure("buckets")


# %% tags=["given"]
def bucket_plan(sizes: list[int], cap_bytes: int) -> list[list[int]]:
    """Return the buckets in the order in which they leave: lists of indices into sizes (bytes)."""
    plan, held = [], 0
    for index in reversed(range(len(sizes))):
        if not plan or held + sizes[index] > cap_bytes:
            plan, held = [*plan, []], 0
        plan[-1].append(index)
        held += sizes[index]
    return plan


# %% [markdown]
# ### Exercise [[bucketed_ddp]]
#
# *38 points, about 28 minutes; difficulty 4 of 5, importance 5 of 5*
#
# Below the test cases, the check prints **par**: the virtual time and memory that our own solution needs. The last case
# fails if your wrapper needs over 8% more time or 10% more memory than par: it copies too much, or hides too little
# communication.
#
# Why does the plan's order matter? Two ranks may complete gradients in different orders, and all-reduces have no names:
# the n-th call on one rank meets the n-th call on the others.


# %% tags=["exercise"] exercise="bucketed_ddp" points=38 difficulty=4 importance=5 minutes=28 title="Buckets that overlap with backward" provides=["BucketedDDP"]
class BucketedDDP(nn.Module):
    """Data parallelism in which gradients leave in buckets, while backward is still computing.

    On every rank, a new wrapper holds rank 0's parameters (frozen ones too) and rank 0's buffers. The gradients of all
    parameters that require one travel in the buckets of bucket_plan, one all_reduce for each bucket, in the plan's
    order. A bucket's all_reduce starts as soon as its last gradient is complete and the all_reduce of the bucket
    before it has started. Nobody waits before finish_gradient_synchronization. You may replace a parameter's grad by a view of its bucket. The caller sets
    every grad to None before each step, so backward never adds to an old bucket. On a virtual cluster a step takes at
    most 1.08 times par's time, and at most 1.1 times its memory.

    Args:
        module: All its parameters have one dtype; each that requires a gradient gets one in every step.
        bucket_cap_mb: What a bucket may hold, in units of 2**20 bytes.
    """

    def __init__(self, module: nn.Module, bucket_cap_mb: float = 25.0) -> None:
        super().__init__()
        self.module = module
        # BEGIN SOLUTION bucketed_ddp
        broadcast_module(module)
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        sizes = [parameter.numel() * parameter.element_size() for parameter in trained]
        plan = bucket_plan(sizes, int(bucket_cap_mb * 2**20))
        self.buckets = [[trained[index] for index in bucket] for bucket in plan]
        self.start_over()
        for parameter in trained:
            parameter.register_post_accumulate_grad_hook(self.on_gradient)
        # END SOLUTION

    def forward(self, *args, **kwargs):
        """Return what the module returns."""
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self) -> None:
        """Return when every gradient is the mean over all ranks; afterwards the next step may begin."""
        # BEGIN SOLUTION bucketed_ddp
        for bucket, (flat, handle) in zip(self.buckets, self.in_flight, strict=True):
            handle.wait()
            pieces = flat.split([parameter.numel() for parameter in bucket])
            for parameter, piece in zip(bucket, pieces, strict=True):
                parameter.grad.copy_(piece.view_as(parameter))
        self.start_over()

    def start_over(self) -> None:
        self.complete: set[nn.Parameter] = set()
        self.in_flight: list[tuple[torch.Tensor, dist.Work]] = []

    def on_gradient(self, parameter: nn.Parameter) -> None:
        self.complete.add(parameter)
        for bucket in self.buckets[len(self.in_flight) :]:
            if not self.complete.issuperset(bucket):
                break
            flat = torch.cat([each.grad.reshape(-1) for each in bucket])
            flat /= dist.get_world_size()
            self.in_flight.append((flat, dist.all_reduce(flat, async_op=True)))
        # END SOLUTION


# %% tags=["check"]
labkit.check("bucketed_ddp", BucketedDDP)

# %% [markdown]
# How much does the cap matter? Forty layers of 384 x 384 (24 MB), on eight machines with one A100 each and 100 Gbit/s
# Ethernet between them. **Which cap is fastest: 0.5, 5, 12 or 100 MB (one bucket for all)?**

# %% tags=["predict"]
labkit.predict("fastest_cap", 100.0, unit="MB")

# %%
ETHERNET = labkit.virtual(8, gpu="a100", gpus_per_node=1, nic="ethernet_100g")
small_layers = {"width": 384, "depth": 40, "batch": 2048}
steps = {
    cap: step(partial(BucketedDDP, bucket_cap_mb=cap), ETHERNET, **small_layers) for cap in (0.5, 5.0, 12.0, 100.0)
}
rows = [f"cap {cap:5} MB: {found.makespan_ns / 1e6:6.2f} ms" for cap, found in steps.items()]
labkit.reveal("fastest_cap", min(steps, key=lambda cap: steps[cap].makespan_ns), rows)

# %% [markdown]
# Small buckets pay many starts: a cap of 0.5 makes 80 buckets, and 80 starts of some 0.2 ms are 16 ms. Large buckets
# leave late: a single bucket starts once, but all of its 3.9 ms come after backward. A cap of 5 makes five buckets:
# communication starts five times, and most buckets leave early. In the explorer below, move the cap to see both
# effects. Then make the link slower, or one rank late.

# %% tags=["nbval-ignore-output"]
layer_bytes = [4 * numel for _ in range(40) for numel in (384 * 384, 384)]
labkit.bucket_explorer(layer_bytes, bucket_plan, cap_mb=5, run=steps[5.0])

# %% [markdown]
# (At a cap of 0.5 the explorer shows 27 ms, more than the run took. It assumes a ring everywhere; the run uses a tree
# for small tensors, as NCCL would, and a tree has fewer steps.)

# %% [markdown] tags=["slide-only"]
# ## Small buckets leave early and pay often
#
# | | leaves | pays its start |
# |---|---|---|
# | small | early | often |
# | large | late | once |
#
# torch: 25 MB, the first one 1 MB
#
# <!-- notes: Move the cap in the bucket explorer. After the first step torch cuts its buckets anew, in the order in which
# gradients were really complete. -->

# %% [markdown]
# ## 6 Which gradients share a bucket?
#
# No cap is best everywhere. Torch's rule is 25 MB with a first bucket of 1 MB, so that something leaves early. Can you
# do better?
#
# You get three models: 40 equal layers, a convolutional net, and a GPT with 498 MB of gradients; and two networks:
# eight GPUs in one machine, and eight machines on 100 Gbit/s Ethernet. For each model you know when every gradient is
# ready. An all-reduce takes `start_us + bytes / bytes_per_us`. This model is simpler than section 5's: on Ethernet
# every start costs 300 µs. Here, unlike in [[bucketed_ddp]], a bucket leaves only when the bucket before it has
# arrived.
#
# ### Exercise [[bucket_design]]
#
# *25 points, about 20 minutes; difficulty 3 of 5, importance 4 of 5*
#
# Your score is the exposed communication: how many ms it goes on after the last gradient is ready. Each case earns its
# own points: half for beating one bucket for all (`naive`), half for being as fast as MG-WFBP (Shi, Chu and Li, 2019),
# a rule that looks at bytes and times.


# %% tags=["design"] exercise="bucket_design" points=25 difficulty=3 importance=4 minutes=20 weights=[4, 4, 4, 4, 4, 5, 5, 5, 5] title="Which gradients travel together" provides=["bucket_design"]
def bucket_design(num_bytes: list[int], ready_us: list[int], start_us: int, bytes_per_us: int) -> list[list[int]]:
    """Return the buckets in the order in which they leave: lists of indices into num_bytes, each index exactly once.

    Only one bucket is on the network at a time: it leaves when its last gradient is ready and the bucket before it has
    arrived. No bucket may be empty.

    Args:
        num_bytes: Bytes of each parameter's gradient, in the order of the model.
        ready_us: When each is complete, in microseconds from the beginning of backward.
        start_us: What an all_reduce costs, whatever it carries.
        bytes_per_us: What it carries in a microsecond.
    """
    # BEGIN SOLUTION bucket_design
    order = sorted(range(len(ready_us)), key=lambda index: (ready_us[index], -index))
    best: list[tuple[float, list[list[int]]]] = [(0.0, [])]  # of the first n gradients: when they are through, and how
    for last in range(1, len(order) + 1):
        choices = []
        for first in range(last):
            end, plan = best[first]
            bucket = order[first:last]
            lasts = start_us + sum(num_bytes[index] for index in bucket) / bytes_per_us
            choices.append((max(end, ready_us[bucket[-1]]) + lasts, [*plan, bucket]))
        best.append(min(choices, key=lambda choice: choice[0]))
    return best[-1][1]
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("bucket_design", bucket_design)

# %% [markdown]
# MG-WFBP lets a bucket wait for one more gradient if that wait is shorter than starting another all-reduce. With 40
# equal layers, another layer becomes ready every 150 µs, and on the slow network a start takes 300. So the bucket waits
# again and again, until it holds all layers: 3.94 ms exposed, as with one bucket. Each wait is cheaper than the start
# that it avoids, but the waits add up: nothing is on the network until backward ends. The best plan leaves 0.78 ms.
#
# **[[tied_embedding]].** The output layer of the 498 MB GPT uses the embedding's weight: one parameter with two uses, a
# **tied** weight. On the slow network the best plan still leaves 26 ms exposed. Which gradient cannot be hidden: `"the
# first MLP's"`, `"the output layer's"` or `"the embedding's"`?

# %% tags=["why"] exercise="tied_embedding" title="What cannot be hidden"
labkit.answer("tied_embedding", "the embedding's")

# %% [markdown] tags=["slide-only"]
# ## Exposed ms: better than torch's rule
#
# | eight machines | one bucket | torch's rule | best known |
# |---|---|---|---|
# | 40 equal layers | 3.94 | 3.85 | 0.78 |
# | a convolutional net | 12.2 | 2.07 | 0.32 |
# | a GPT | 76.9 | 27.8 | 25.8 |
#
# <!-- notes: Who in the room is below torch's? The class board ranks the plans. The GPT's embedding comes last. -->

# %% [markdown]
# ## 7 The GPT
#
# Your wrapper and torch's each train a small GPT of 225,000 parameters that learns to add, with AdamW and clipped
# gradients, on two real processes.


# %% tags=["given"]
def train_gpt(wrap, num_steps: int) -> list[float]:
    """Return this rank's loss in each step."""
    torch.set_num_threads(1)
    model = GPT(seed=dist.get_rank()).to(labkit.device())  # different on each rank until it is wrapped
    ddp, optimizer, losses = wrap(model), optimizer_for(model), []
    for tokens, targets in Addition().loader(num_steps, 64, rank=dist.get_rank(), world_size=dist.get_world_size()):
        optimizer.zero_grad()
        loss = loss_of(ddp, tokens.to(labkit.device()), targets.to(labkit.device()))
        loss.backward()
        if hasattr(ddp, "finish_gradient_synchronization"):
            ddp.finish_gradient_synchronization()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


# %% tags=["nbval-ignore-output"] seconds=40
wrappers = {"yours": partial(BucketedDDP, bucket_cap_mb=0.25), "torch's": nn.parallel.DistributedDataParallel}
losses = {
    name: labkit.run(train_gpt, wrap, gpt_steps, on=labkit.local(2)).results[0] for name, wrap in wrappers.items()
}
print("loss in the last step:", {name: round(of_steps[-1], 4) for name, of_steps in losses.items()})
print("never further apart than 0.01:", max(abs(a - b) for a, b in zip(*losses.values(), strict=True)) < 0.01)

# %% [markdown]
# Clipping needs the norm of the whole gradient. So it comes after `finish_gradient_synchronization`, when all ranks
# hold the same gradient.

# %% [markdown] tags=["slide-only"]
# ## Yours and torch's: the same loss
#
# * the same GPT, the same batches
# * next: layers that are skipped
# * weights that are shared
# * ranks that run out of data
#
# <!-- notes: Run the last cell together. The model here is well behaved. Lesson 05 takes those that are not. -->

# %% [markdown]
# ## 8 What to remember
#
# * **Begin equal, take equal steps.** Parameters travel once, gradients in every step.
# * **Hooks** say when a gradient is complete; until `wait()` the tensor is the network's.
# * **Buckets**: small ones pay many starts, large ones leave late. Their order is part of the protocol.
# * Blocked (hatched) bars belong to those who wait. The rank they wait for is not blocked at that moment.
#
# **The next question.** The small GPT was easy, too: every parameter got its gradient, and no rank ran out of data.
# What if a rank skips a layer? See `05_ddp_for_real_models`.

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * begin equal, take equal steps
# * hooks say **when**, buckets say **how much at once**
# * hatched bars wait: look for the rank they wait for
#
# Next: models that skip layers.
#
# <!-- notes: The order of buckets is part of the protocol; lesson 05 has models that break it. -->

# %% [markdown]
# ## Bonus: What overlap costs
#
# The figures of this lesson are too optimistic in one way: communication on the virtual network does not slow the GPU
# down. NCCL, the library that moves gradients between real GPUs, does. Its kernels run on some of the GPU's processors
# and use its memory bandwidth, so backward becomes a little slower while they run. Overlap still pays, but a measured
# gain is smaller.
#
# **[[overlap_here]].** Now take two processes on your laptop's CPU, with no GPU. Does overlap hide `"as much"`,
# `"less"` or `"more"` there?

# %% tags=["why"] exercise="overlap_here" title="Overlap on a laptop" bonus=true
labkit.answer("overlap_here", "less")

# %% [markdown]
# **[[slower_link]].** Take the run of section 5 with a cap of 5, and make its link ten times slower. What determines
# the length of the step then: `"backward"`, `"the last bucket"` or `"the network"`?

# %% tags=["why"] exercise="slower_link" title="A slower link" bonus=true
labkit.answer("slower_link", "the network")

# %% [markdown]
# ## Bonus: The best cap, by a formula
#
# Backward takes time T and produces gradient bytes at a constant rate. With k equal buckets, one is ready every T/k.
#
# ### Exercise [[overlap_gain]]
#
# *8 points, about 8 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="overlap_gain" points=8 difficulty=3 importance=4 minutes=8 title="What overlap is worth" provides=["overlapped_seconds", "best_num_buckets"] bonus=true
def overlapped_seconds(
    backward_s: float, num_bytes: float, num_buckets: int, world_size: int, latency_s: float, bandwidth_Bps: float
) -> float:
    """Return the time from the beginning of backward until the last bucket is averaged.

    Bucket i of 1..k is ready at backward_s * i / k. Each bucket travels by a ring all_reduce (lesson 02), one at
    a time.

    Args:
        backward_s: Time of backward alone.
        num_bytes: Bytes of all gradients together.
        num_buckets: Number k of equal buckets.
        world_size: Number of ranks.
        latency_s: Latency of one message of the ring.
        bandwidth_Bps: Bandwidth of one link, in bytes per second.
    """
    # BEGIN SOLUTION overlap_gain
    bucket = 2 * (world_size - 1) * (latency_s + num_bytes / num_buckets / world_size / bandwidth_Bps)
    return max(backward_s + bucket, backward_s / num_buckets + num_buckets * bucket)
    # END SOLUTION


def best_num_buckets(
    backward_s: float, num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float, most: int = 1000
) -> int:
    """Return the number of buckets, 1 to most, with the least overlapped_seconds; of several, the smallest."""

    # BEGIN SOLUTION overlap_gain
    def seconds(num_buckets: int) -> float:
        return overlapped_seconds(backward_s, num_bytes, num_buckets, world_size, latency_s, bandwidth_Bps)

    return min(range(1, most + 1), key=seconds)
    # END SOLUTION


# %% tags=["check"]
labkit.check("overlap_gain", overlapped_seconds, best_num_buckets)

# %% [markdown]
# Now use the formula for the forty layers of section 5. The link's two numbers come from two all-reduces, of 4 MB and
# of all gradients, both large enough for a ring: a straight line through two points.


# %%
def reduce_once(num_bytes):
    dist.all_reduce(torch.empty(num_bytes, dtype=torch.uint8, device="meta"))


total, small = sum(layer_bytes), 2**22
first, second = (labkit.run(reduce_once, size, on=ETHERNET).timeline.makespan_ns / 1e9 for size in (small, total))
per_byte = (second - first) / (total - small)
latency, bandwidth = (first - per_byte * small) / 14, 2 * 7 / 8 / per_byte
spans = steps[100.0].spans(rank=0)
backward_s = spans.select(spans.name == "backward").makespan_ns / 1e9
count = best_num_buckets(backward_s, total, 8, latency, bandwidth)
print(f"best by the formula: {count} buckets of {total / count / 2**20:.1f} MB")

# %% [markdown]
# ## Bonus: On your own ring
#
# Set `use_mine = True` in the first code cell, and two steps of the small GPT run on the `all_reduce` that you wrote in
# lesson 03, if that notebook is in the same folder.

# %% tags=["nbval-ignore-output"]
all_reduce = labkit.mine("drop_in_all_reduce", otherwise=dist.all_reduce) if use_mine else dist.all_reduce


def train_on(all_reduce):
    dist.all_reduce = all_reduce  # in this rank's own process, which ends with the run
    return train_gpt(BucketedDDP, 2)


print("loss:", labkit.run(train_on, all_reduce, on=labkit.local(2)).results[0])

# %% [markdown]
# ### Sources
#
# * S. Li and others, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", *Proceedings of the
#   VLDB Endowment* 13 (2020): hooks, buckets and their order.
# * S. Shi, X. Chu and B. Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD Algorithms",
#   INFOCOM (2019): which gradients to merge.
# * PyTorch documentation: `torch.nn.parallel.DistributedDataParallel`, `Tensor.register_post_accumulate_grad_hook`; and
#   NCCL's, on `NCCL_MAX_CTAS`: how many of a GPU's processors its kernels may use.
