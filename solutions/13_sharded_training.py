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
# # 13 Sharded training
#
# A model of 7 billion parameters is a file of 14 GB. You have eight GPUs of 24 GB, so it fits. You start training, and
# the first step ends with *out of memory*. Where did the memory go, and why does each of your eight GPUs hold the same
# things?
#
# You build **ZeRO**, in three stages. **How many such GPUs would be enough with stage 2?** Stages 1 and 2 are the core
# of this lesson, and answer that. Stage 3, which PyTorch calls FSDP, is the bonus: with it your eight are enough. Core
# and bonus each train the course's GPT: your version and torch's reach the same loss.
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus that takes longer. **You need** lesson 02 (what all-reduce
# is made of) and autograd hooks, which lesson 04 uses; no GPU.
#
# **Stuck?** `labkit.hint("flat_shards")` gives up to three hints. `labkit.lend("flat_shards")` puts a working version
# here: you forfeit its points, but every cell below will run.

# %% [markdown] tags=["slide-only"]
# # 13 Sharded training
#
# A 14 GB model, eight GPUs of 24 GB, out of memory. Why? And how many would be enough with ZeRO-2?
#
# <!-- notes: ZeRO 1 and 2, built one after the other. ZeRO-3, which is FSDP, is the bonus. -->

# %% tags=["given"]
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit
from labkit.models import GPT, clip_shards, optimizer_for, train_fully_sharded, train_on_ranks
from labkit.timeline.memory import memory_peaks

ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# %% [markdown]
# ## 1 Sixteen bytes a parameter
#
# Training with Adam in **mixed precision** keeps five numbers for each parameter:
#
# | | type | bytes |
# |---|---|---|
# | the parameter that forward and backward use | bfloat16 | 2 |
# | its gradient | bfloat16 | 2 |
# | the **master** copy that the optimizer changes | float32 | 4 |
# | Adam's mean of gradients | float32 | 4 |
# | Adam's mean of squares | float32 | 4 |
#
# The master copy is there because bfloat16 has 8 significant bits: add 0.001 to 1.0, and nothing happens.
#
# | | parameters | the file | in training |
# |---|---|---|---|
# | the course's GPT | 226 thousand | 0.5 MB | 3.6 MB |
# | GPT-2 XL | 1.5 billion | 3 GB | 24 GB |
# | Llama 2 7B | 7 billion | 14 GB | 112 GB |
# | GPT-3 | 175 billion | 350 GB | 2.8 TB |
#
# At 16 bytes a parameter, 24 GB hold 1.5 billion parameters, and nothing is left for activations. So about 1 billion
# is the limit. Under data parallelism (DDP, lesson 04) each of your eight GPUs would hold all 112 GB of Llama 2 7B:
# the same numbers, eight times.
#
# ZeRO (Rajbhandari and others, 2020) does not keep N copies. It cuts one copy into N **shards**, one for each rank.
# Each stage does so with more of the 16 bytes:
#
# * **ZeRO-1** shards what the optimizer keeps: 12 of the 16 bytes.
# * **ZeRO-2** also shards the gradients.
# * **ZeRO-3** also shards the parameters. Now everything shrinks with N, but a layer has to be gathered before it
#   computes.
#
# **[[most_saved]].** You go from 8 GPUs to 64. Which stage's memory per GPU changes least? Answer 1 or 3.

# %% [markdown] tags=["slide-only"]
# ## Sixteen bytes a parameter
#
# | | bytes |
# |---|---|
# | parameter, bfloat16 | 2 |
# | gradient, bfloat16 | 2 |
# | master copy, float32 | 4 |
# | Adam's two means, float32 | 8 |
#
# **To the room:** how large a model trains in 24 GB?
#
# <!-- notes: 1.5 billion without activations, so about one billion. GPT-3 takes 2.8 TB. -->

# %% tags=["why"] exercise="most_saved" title="From 8 to 64"
labkit.answer("most_saved", 1)

# %% tags=["figure"]
labkit.sharding_player(num_params=7e9, num_ranks=8, stage=0)

# %% [markdown]
# The figure begins with DDP; the buttons choose a stage. It starts between two steps, when there are no gradients, so
# its bars show 14 bytes a parameter. The caption counts the gradients, too: 16 bytes.

# %% [markdown] tags=["slide-only"]
# ## Every number once
#
# | 7 B on 8 GPUs | each holds | sends, beside DDP |
# |---|---|---|
# | DDP | 112 GB | 1 |
# | ZeRO-1 | 38.5 GB | 1 |
# | ZeRO-2 | 26.3 GB | 1 |
# | ZeRO-3 | **14 GB** | 1.5 |
#
# <!-- notes: Show the figure. Only ZeRO-3 shrinks with N all the way. So with 24 GB each, no number of GPUs is enough for ZeRO-1, ten are for ZeRO-2, and five for ZeRO-3, activations apart. -->

# %% [markdown]
# ## 2 Flat shards
#
# A tensor of 5 x 7 has 35 elements; four ranks cannot share them equally along a dimension. So forget the shape: lay
# the elements out **flat**, and cut them into four pieces of 9. The last piece is short, so it is **padded** with a
# zero. All shards have the same size, as collectives require.
#
# ```
# rank 0            rank 1            rank 2            rank 3
# 0 1 2 ... 8       9 10 ... 17       18 ... 26         27 ... 34 [0]
# ```
#
# An all-reduce is a reduce-scatter followed by an all-gather (lesson 02). Sharding uses the halves separately:
# **all-gather** turns shards into whole tensors, **reduce-scatter** turns whole gradients into shards of their sum.
#
# One collective for each tensor would waste latency, so your two functions take a *list* of tensors. Their collectives
# should also run while you compute. So each function starts its collective at once, and returns a function that waits
# for it:
#
# ```python
# finish = start_gather(shards, tensors)
# ...            # compute something
# finish()       # now the tensors are whole
# ```
#
# `ALL_GATHER(output, input, async_op=True)` (torch's name depends on its version) concatenates the ranks' inputs;
# `REDUCE_SCATTER(output, input, async_op=True)` gives rank *r* the sum of everybody's *r*-th part. Both return a
# handle with `wait()`.
#
# ### Exercise [[flat_shards]]
#
# *40 points, about 25 minutes; difficulty 3 of 5, importance 5 of 5*


# %% [markdown] tags=["slide-only"]
# ## Shards are flat, and padded
#
# ```
# rank 0         rank 1         rank 2         rank 3
# 0 1 2 ... 8    9 10 ... 17    18 ... 26      27 ... 34 [0]
# ```
#
# * **all-gather**: shards become whole tensors
# * **reduce-scatter**: whole gradients become shards of the sum
# * both start now and finish later
#
# <!-- notes: An all-reduce is the two of them, one after the other. -->


# %% tags=["exercise"] exercise="flat_shards" points=40 difficulty=3 importance=5 minutes=25 title="Flat shards" provides=["shard_of", "start_gather", "start_scatter"]
def shard_of(tensor: Tensor) -> Tensor:
    """Return a copy of this rank's part of a tensor: flat, numel / world_size elements, rounded up.

    With n elements a shard, rank r has elements r * n to (r + 1) * n - 1 of the flat tensor; what lies past its end is 0.
    For example, 5 elements on 2 ranks make n = 3, and rank 1 has elements 3 and 4 and a 0.
    """
    # BEGIN SOLUTION flat_shards
    return rows_of(tensor)[dist.get_rank()].clone()
    # END SOLUTION


def start_gather(shards: list[Tensor], tensors: list[Tensor]) -> Callable[[], None]:
    """Begin to gather the tensors from all ranks' shards; return a function that waits until the tensors are filled.

    Use one collective. All tensors have the same dtype. If a shard has another one, convert it first: send in the dtype
    of the tensors. A tensor may be a parameter that autograd has seen. So write into ``tensor.data``, which autograd does not count as a change.

    Args:
        shards: This rank's shard of each tensor.
        tensors: What the returned function fills, in place. While start_gather runs, their storage may be empty,
            so start_gather must not touch it. The caller allocates it before calling the returned function.
    """
    # BEGIN SOLUTION flat_shards
    sizes = [len(shard) for shard in shards]
    everyones = tensors[0].new_empty(dist.get_world_size(), sum(sizes))
    mine = everyones[dist.get_rank()]  # sent from where it will stand
    torch.cat([shard.detach().to(mine.dtype) for shard in shards], out=mine)
    work = ALL_GATHER(everyones.view(-1), mine, async_op=True)

    def finish() -> None:
        work.wait()
        columns = everyones.split(sizes, 1)
        for column, tensor in zip(columns, tensors, strict=True):
            tensor.data.copy_(column.reshape(-1)[: tensor.numel()].view(tensor.shape))

    return finish
    # END SOLUTION


def start_scatter(tensors: list[Tensor]) -> Callable[[], list[Tensor]]:
    """Begin to average tensors over the ranks; return a function that waits and returns this rank's shard of each mean.

    Use one collective. You may rely on this: all tensors have the same dtype, and no sum over the ranks overflows in it.
    """
    # BEGIN SOLUTION flat_shards
    rows = torch.cat([rows_of(tensor) for tensor in tensors], 1)
    mine = rows.new_empty(rows.shape[1])
    work = REDUCE_SCATTER(mine, rows.view(-1), async_op=True)
    sizes = [-(-tensor.numel() // len(rows)) for tensor in tensors]

    def finish() -> list[Tensor]:
        work.wait()
        return list((mine / dist.get_world_size()).split(sizes))

    return finish
    # END SOLUTION


# BEGIN SOLUTION flat_shards
def rows_of(tensor: Tensor) -> Tensor:
    """Return the tensor as one row for each rank, padded with zeros."""
    flat = tensor.detach().reshape(-1)
    missing = -len(flat) % dist.get_world_size()
    return (nn.functional.pad(flat, (0, missing)) if missing else flat).view(dist.get_world_size(), -1)


# END SOLUTION

# %% tags=["check"]
labkit.check("flat_shards", shard_of, start_gather, start_scatter)

# %% [markdown]
# ## 3 ZeRO-1: everybody updates a shard
#
# Adam updates each element independently (Muon and Shampoo do not). So rank *r* can run Adam on shard *r* alone, with
# the same result. After the update, all ranks gather the new parameters.
#
# Your class takes the place of the optimizer. DDP still averages the gradients, so on every rank they are equal.
#
# ### Exercise [[sharded_optimizer]]
#
# *40 points, about 30 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="sharded_optimizer" points=40 difficulty=3 importance=5 minutes=30 title="ZeRO-1" provides=["ShardedOptimizer"] needs=["flat_shards"]
class ShardedOptimizer:
    """An optimizer whose state is sharded: each rank holds only its share of what optimizer_cls keeps.

    Args:
        params: Parameters, or groups: dicts with "params" and their own options. Frozen parameters are never updated.
        optimizer_cls: An optimizer that updates each element independently, such as torch.optim.AdamW.
        kwargs: Its options.

    Attributes:
        param_groups: One dict for each group. Between steps the caller may change a group's "lr", and nothing else;
            a step uses the "lr" that it finds. Whether "params" lists the parameters or this rank's shards is your
            choice.
    """

    def __init__(self, params: Any, optimizer_cls: Any, **kwargs: Any) -> None:
        # BEGIN SOLUTION sharded_optimizer
        groups = list(params)
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        groups = [{**group, "params": [p for p in group["params"] if p.requires_grad]} for group in groups]
        self.shards = {p: nn.Parameter(shard_of(p)) for group in groups for p in group["params"]}
        local = [{**group, "params": [self.shards[p] for p in group["params"]]} for group in groups]
        self.optimizer = optimizer_cls(local, **kwargs)
        self.param_groups = self.optimizer.param_groups
        # END SOLUTION

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the parameters."""
        # BEGIN SOLUTION sharded_optimizer
        for parameter in self.shards:
            parameter.grad = None
        # END SOLUTION

    def step(self) -> None:
        """Do on all ranks together what optimizer_cls would do.

        Gradients are equal on all ranks, and none of them travels. Afterwards every rank has all new parameters. A
        parameter whose grad is None is not updated.
        """
        # BEGIN SOLUTION sharded_optimizer
        self.take_gradients()
        self.optimizer.step()
        start_gather(list(self.shards.values()), list(self.shards))()
        for shard in self.shards.values():
            shard.grad = None

    def take_gradients(self) -> None:
        """Give each shard its part of the gradient."""
        for parameter, shard in self.shards.items():
            shard.grad = None if parameter.grad is None else shard_of(parameter.grad)
        # END SOLUTION


# %% tags=["check"]
labkit.check("sharded_optimizer", ShardedOptimizer)

# %% [markdown]
# **[[whole_first]].** A training step now sends DDP's all-reduce during backward, and your gather in `step`. What are
# its bytes divided by those of DDP alone? (In a ring, an all-reduce of P bytes sends 2P from each rank; a
# reduce-scatter or an all-gather sends P.)

# %% tags=["why"] exercise="whole_first" title="Who needs the whole gradient?"
labkit.answer("whole_first", 1.5)

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 4 ZeRO-2: gradients in shards
#
# Your step sends 3P: 2P for the all-reduce, P for the gather. One of these three P brings numbers that no rank ever
# reads. Which one? Without it, a step sends as many bytes as DDP's.
#
# Memory goes down, too, if a gradient leaves as soon as it is complete. `parameter.register_post_accumulate_grad_hook(hook)`
# calls `hook(parameter)` at that moment.
#
# ### Exercise [[scattered_gradients]]
#
# *20 points, about 15 minutes; difficulty 2 of 5, importance 5 of 5*


# %% [markdown] tags=["slide-only"]
# ## Nobody needs the whole gradient
#
# | | each rank sends |
# |---|---|
# | all-reduce gradients (DDP) | 2P |
# | all-reduce, update a shard, all-gather | 3P |
# | **reduce-scatter, update a shard, all-gather** | 2P |
#
# <!-- notes: With a reduce-scatter, ZeRO-1 and ZeRO-2 send no more than DDP. -->


# %% tags=["exercise"] exercise="scattered_gradients" points=20 difficulty=2 importance=5 minutes=15 title="ZeRO-2" provides=["ScatteringOptimizer"] needs=["flat_shards", "sharded_optimizer"]
class ScatteringOptimizer(ShardedOptimizer):
    """A ShardedOptimizer without DDP around the model: gradients differ from rank to rank, and step takes their mean.

    * A gradient's reduce-scatter starts as soon as the gradient is complete; backward does not wait for it to finish.
    * A rank gets its own shard of each mean gradient, and no more.
    * After backward, no parameter has a grad.
    * Memory does not grow from step to step.
    * You may rely on this: on every rank, there is one backward before each step, and it completes each trained
      parameter's gradient exactly once. Before each forward, zero_grad is called.
    """

    def __init__(self, params: Any, optimizer_cls: Any, **kwargs: Any) -> None:
        # BEGIN SOLUTION scattered_gradients
        super().__init__(params, optimizer_cls, **kwargs)
        self.in_flight: list[tuple[Tensor, Callable[[], list[Tensor]]]] = []
        for parameter in self.shards:
            parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def on_gradient(self, parameter: Tensor) -> None:
        self.in_flight.append((parameter, start_scatter([parameter.grad])))
        parameter.grad = None

    def take_gradients(self) -> None:
        for parameter, finish in self.in_flight:
            (self.shards[parameter].grad,) = finish()
        self.in_flight = []
        # END SOLUTION


# %% tags=["check"]
labkit.check("scattered_gradients", ScatteringOptimizer)

# %% [markdown]
# ## 5 What each stage costs
#
# Run DDP, ZeRO-1 and ZeRO-2 on the virtual cluster: a GPT of 4.7 million parameters on eight H100s, one PCIe port
# each. ZeRO-1 behind DDP sends 1.5 times DDP's bytes. **What is its step time divided by DDP's?**


# %% tags=["given"]
def two_steps(stage: int) -> None:
    model: Any = GPT(num_layers=6, width=256)
    if stage < 2:
        model = nn.parallel.DistributedDataParallel(model)
    sharded = {1: ShardedOptimizer, 2: ScatteringOptimizer}.get(stage)
    options = {"foreach": True}  # all tensors of the update in a few kernels, as on a real GPU
    params = list(model.parameters())
    optimizer = sharded(params, torch.optim.AdamW, **options) if sharded else torch.optim.AdamW(params, **options)
    train_on_ranks(model, optimizer, 2)


def costs(runs: dict[str, Any]) -> list[str]:
    peaks = {name: memory_peaks(run.timeline)[0].bytes / 1e6 for name, run in runs.items()}
    times = {name: run.timeline.makespan_ns / 1e6 for name, run in runs.items()}
    return [f"{name:7} {times[name]:6.2f} ms, {peaks[name]:6.1f} MB at its peak" for name in runs]


# %% tags=["predict"]
labkit.predict("zero1_step", 1.5)

# %% seconds=10
PCIE = labkit.virtual(8, gpu="h100", link="pcie5")
runs = {name: labkit.run(two_steps, i, on=PCIE, echo=False) for i, name in enumerate(("DDP", "ZeRO-1", "ZeRO-2"))}
steps = {name: run.timeline.makespan_ns for name, run in runs.items()}
labkit.reveal("zero1_step", steps["ZeRO-1"] / steps["DDP"], costs(runs))

# %% [markdown]
# (The numbers are those of our solutions, in float32.) DDP's two steps take 5.0 ms of computing and 2.1 ms of communication that
# nothing hides. ZeRO-1 takes 2.7 ms longer: 0.8 ms for its extra bytes, and 1.9 ms for *copying*. It cuts 76 tensors
# into shards and puts them together again, with separate kernels for each. ZeRO-2 sends as many bytes as DDP and still
# takes 1.8 ms longer: 0.2 ms because less of its communication is hidden, and 1.6 ms for copying. (DeepSpeed copies less: its
# parameters are views of one flat buffer, and gradients leave in buckets.)
#
# You get memory for it: a rank's peak falls from 132.9 MB to 105.5 MB with ZeRO-1 and to 48.5 MB with
# ZeRO-2.
#
# With ZeRO-1, Adam's two means shrink from 38.0 MB to 4.7 MB. Why does that save 27.4 MB, and not 33.2? A rank also
# keeps its shards of parameters and gradients, *beside* the whole ones: 4.7 MB. And the peak is at another moment.
# DDP's is in AdamW's update, which needs 19.0 MB for square roots. ZeRO-1's is in the gather, which needs a buffer of
# 19.0 MB, and 1.0 MB to copy one tensor out of it. Roots and buffer cancel out: 33.2 - 4.7 - 1.0 is 27.4, up
# to rounding.
#
# Why does ZeRO-2 save so much? It needs no whole gradients, which saves 19 MB. And it runs without DDP, which saves 38
# MB of communication buffers. DDP makes buckets of 19 MB for the first step, and new ones before the second. Here
# the first ones are not freed.
#
# ## 6 Which rank holds memory that should be free?
#
# Four layers of 1024 x 1024 train with ZeRO-3 on four A100s. A layer's parameters are gathered before it computes and
# freed after it; its gradients are scattered and freed. (You need no more here; the bonus builds it.) After a minute
# or two, one rank runs out of memory, always the same one. Here are the first three steps:

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("who_holds")

# %% [markdown]
# ### Exercise [[who_holds]]
#
# `rank`: which rank holds too much? `extra_mb`: how much higher is its peak than rank 0's? `cause`: does it keep
# `"gathered parameters"`, `"gradients"`, `"activations"`, or `"the whole optimizer state"`? The timeline's memory rows
# show it (More, Memory), and so do two functions. `memory_peaks(labkit.recorded("who_holds"))` gives each rank's peak
# in `bytes`, and its parts in `by_category`. `labkit.timeline.memory.memory_curve(timeline, rank, category)` gives one
# category over time: times and bytes.

# %% tags=["find"] exercise="who_holds" points=0 minutes=6 title="Who holds memory?"
labkit.answer("who_holds", rank=2, extra_mb=8.4, cause="gradients")

# %% [markdown]
# Answer before you go on. Here is a small program with that leak. **Which line fills the memory?** Read it
# (`four_sharded_layers??`) before you run `labkit.audit`, which compares the peaks of ranks that do the same work and
# names the line:

# %%
from labkit.wrong_runs import four_sharded_layers

# %% tags=["nbval-ignore-output"]
print(*labkit.audit(four_sharded_layers, on=labkit.virtual(4, gpu="a100")).findings, sep="\n\n")

# %% [markdown]
# ## 7 The course's GPT, sharded
#
# Two real processes train on the same batches with AdamW: first under torch's DDP, then with your two optimizers.

# %% tags=["parameters"]
NUM_STEPS = 60


# %% tags=["given"]
def trained(stage: int, num_steps: int) -> list[float]:
    model: Any = GPT()
    if stage < 2:
        model = nn.parallel.DistributedDataParallel(model)
    sharded = {1: ShardedOptimizer, 2: ScatteringOptimizer}.get(stage)
    adamw, params = torch.optim.AdamW, model.parameters()
    return train_on_ranks(model, sharded(params, adamw, lr=3e-3) if sharded else adamw(params, lr=3e-3), num_steps)


# %% tags=["nbval-ignore-output"] seconds=30
for stage, name in enumerate(("DDP", "ZeRO-1", "ZeRO-2")):
    losses = labkit.run(trained, stage, NUM_STEPS, on=labkit.local(2, device="cpu"), echo=False).results[0]
    print(f"{name:7}", [round(loss, 4) for loss in (losses[0], *losses[-3:])])

# %% [markdown]
# The same loss: sharding changes where numbers lie, not the numbers.
#
# ## 8 What to remember
#
# * Adam in mixed precision takes 16 bytes a parameter, and data parallelism holds each of them N times.
# * An all-reduce is a reduce-scatter and an all-gather. If the optimizer steps between the two, as in your ZeRO-2, a
#   step sends what DDP sends. Your ZeRO-1 leaves DDP's whole all-reduce in place and gathers besides, so it sends 1.5
#   times DDP's bytes. So does ZeRO-3, because it gathers the parameters twice.
# * A tensor keeps its memory as long as anything refers to it: autograd, a list, a logged loss. (The bonus shows an
#   exception.)
#
# **How many GPUs of 24 GB are enough for 7 billion parameters?** With ZeRO-1, no number is enough: each GPU keeps all
# parameters and gradients, 28 GB. With ZeRO-2 a GPU holds 14 GB of parameters and its share of 98 GB. On eight GPUs
# that is 26.25 GB, still too much. Ten can hold the state, but nothing else: 0.2 GB are left. Sixteen are enough:
# 3.9 GB are left, if `step` gathers in buckets, as DeepSpeed does. (Yours gathers into *one* buffer of 14 GB, and then
# no number is enough.) With ZeRO-3, the bonus, each of your eight holds 14 GB.
#
# At scale, ZeRO-3 gets slow if gathering a layer takes longer than computing the one before, as with small batches or
# slow links between nodes. And every rank still computes every layer.
#
# **The next question.** You can split the data, the sequence of layers, each single layer, and the training state. Your
# 512 GPUs can do all of this at once. Who decides what goes where?

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * 16 bytes a parameter, and **each once**
# * reduce-scatter, update, all-gather
# * memory is free when **nobody** refers to it
#
# Next: data, tensor, pipeline, shards. Who decides?

# %% [markdown]
# ## Bonus: ZeRO-3, where a layer arrives, computes, and goes
#
# Now the parameters are sharded, too. A **block** of the model is gathered just before it computes, and freed right
# after. Backward gathers it again.
#
# ```
# forward    gather 0 | compute 0 | free 0
#                     | gather 1  | compute 1 | free 1
#                                 | gather 2  | compute 2
# ```
#
# While block *i* computes, block *i + 1* is already being gathered: **prefetching**. In backward it is block *i - 1*.
#
# There is a trap in freeing. If you replace `parameter.data`, the memory stays: for backward, autograd has kept views
# of that memory. So **empty the storage** instead. The tensor keeps its shape, and its memory is gone, whoever refers
# to it:

# %%
weight = torch.ones(1000, 1000)
view = weight.t()
weight.untyped_storage().resize_(0)
print(view.shape, view.untyped_storage().nbytes(), "bytes")

# %% [markdown]
# `Unit` does the bookkeeping for one block. While the block is not whole, `parameter.data` *is* the shard, so an
# ordinary optimizer can step it. The shards stay float32: they are the masters. With a `compute_dtype` of bfloat16,
# each gather and each scatter sends half the bytes.


# %% tags=["given"]
class Unit:
    def __init__(self, params: list[nn.Parameter], compute_dtype: torch.dtype | None = None) -> None:
        self.params, self.arriving, self.leaving = params, None, None
        self.trained = [p for p in params if p.requires_grad]
        self.shards = [shard_of(p) for p in params]
        self.whole = [torch.empty_like(p.data, dtype=compute_dtype) for p in params]
        self.free()

    def start_gather(self) -> None:  # does nothing if the parameters are here or on their way
        if self.params and not self.is_whole and self.arriving is None:
            self.arriving = start_gather(self.shards, self.whole)

    def gather(self) -> None:  # returns when the parameters are whole
        self.start_gather()
        if self.arriving is not None:
            for whole in self.whole:
                whole.untyped_storage().resize_(whole.nbytes)
            self.arriving()
            for parameter, whole in zip(self.params, self.whole, strict=True):
                parameter.data = whole
            self.arriving, self.is_whole = None, True

    def free(self) -> None:  # each parameter is its shard again
        for parameter, shard, whole in zip(self.params, self.shards, self.whole, strict=True):
            parameter.data = shard
            whole.untyped_storage().resize_(0)
        self.is_whole = False

    def start_scatter(self) -> None:  # the gradients leave
        self.leaving = start_scatter([p.grad for p in self.trained])
        for each in self.trained:
            each.grad = None

    def finish_scatter(self) -> None:  # waits, and sets each grad; does nothing while the unit is whole
        if self.leaving is not None and not self.is_whole:
            for parameter, gradient in zip(self.trained, self.leaving(), strict=True):
                parameter.grad = gradient.to(parameter.dtype)
            self.leaving = None


# %% [markdown]
# Your code decides *when* each of these happens. PyTorch's hooks call it:
#
# | when | hook |
# |---|---|
# | before a block's forward | `block.register_forward_pre_hook(f)`: `f(block, args)` |
# | after it | `block.register_forward_hook(f)`: `f(block, args, output)` |
# | before its backward | `output.register_hook(f)`: `f(gradient)` |
# | when a gradient is complete | `parameter.register_post_accumulate_grad_hook(f)`: `f(parameter)` |
#
# Each `f` returns `None`. (`block.register_full_backward_pre_hook` would also work, but it keeps the gradient of the
# block's output alive until the block's backward is over.) When all gradients of a unit are complete, start its
# scatter. Starting it also drops the unit's whole gradients.
#
# The **root** unit holds what is in no block, or in several: in the GPT the embeddings and the last norm. The embedding is used
# first and last, so the root stays whole from the start of forward to the end of backward.
#
# ### Exercise [[sharded_module]]
#
# *40 points, about 75 minutes; difficulty 4 of 5, importance 5 of 5*


# %% [markdown] tags=["slide-only"]
# ## A layer arrives, computes, and goes
#
# ```
# forward   gather 0 | compute 0 | free 0
#                    | gather 1  | compute 1 | free 1
#                                | gather 2  | compute 2
# ```
#
# **To the room:** you replace `parameter.data` by an empty tensor. Is the memory free?
#
# <!-- notes: No: autograd kept views of the weight for backward. Empty the storage, resize_(0). -->


# %% tags=["exercise"] exercise="sharded_module" points=40 difficulty=4 importance=5 minutes=75 title="ZeRO-3" provides=["ShardedModule"] needs=["flat_shards"] bonus=true
class ShardedModule(nn.Module):
    """A module whose parameters are shards, except while their block computes.

    * While block i computes, no other block is whole. By then the gather of block i + 1 (in backward, of block i - 1)
      is under way, and no other block's is.
      Between forward and backward, only the last block may stay whole, because backward starts with it.
    * The gradients of a block leave with one reduce-scatter, which starts as soon as the last of them is complete.
    * Backward does not wait for the reduce-scatter that has just started. It may wait for the one started before that.

    Args:
        module: The same on every rank. Every rank uses each trained parameter, at least once, and runs each block
            exactly once, in order. Each forward is followed by its backward.
        blocks: The submodules to gather one at a time, in forward order; None means module.children(). Each returns one
            tensor. A parameter in no block, or in several, is whole from the start of forward to the end of backward.
        compute_dtype: The dtype in which parameters are gathered and used; None means their own.
    """

    def __init__(self, module: nn.Module, blocks: Any = None, compute_dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.module = module
        # BEGIN SOLUTION sharded_module
        blocks = list(module.children() if blocks is None else blocks)
        inside = [set(block.parameters()) for block in blocks]
        alone = {p for p in module.parameters() if sum(p in each for each in inside) == 1}
        self.root = Unit([p for p in module.parameters() if p not in alone], compute_dtype)
        self.units = [Unit([p for p in block.parameters() if p in alone], compute_dtype) for block in blocks]
        self.last_left: Unit | None = None
        for number, block in enumerate(blocks):
            block.register_forward_pre_hook(partial(self.before, number, number + 1))
            block.register_forward_hook(partial(self.after_forward, number))
        for unit in [self.root, *self.units]:
            for parameter in unit.trained:
                parameter.register_post_accumulate_grad_hook(partial(self.on_gradient, unit))

    def before(self, number: int, then: int, *_: Any) -> None:
        self.units[number].gather()
        if 0 <= then < len(self.units):
            self.units[then].start_gather()

    def after_forward(self, number: int, block: nn.Module, args: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(partial(self.before_backward, number))
        if number + 1 < len(self.units) or not torch.is_grad_enabled():
            self.units[number].free()

    def before_backward(self, number: int, *_: Any) -> None:
        if number + 1 < len(self.units):
            self.units[number + 1].free()
        self.before(number, number - 1)

    def on_gradient(self, unit: Unit, parameter: Tensor) -> None:
        if all(p.grad is not None for p in unit.trained):
            if self.last_left is not None:
                self.last_left.finish_scatter()
            if len(unit.trained) == len(unit.params):  # backward may still compute with frozen ones
                unit.free()
            unit.start_scatter()
            self.last_left = unit
        # END SOLUTION

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns."""
        # BEGIN SOLUTION sharded_module
        self.root.gather()
        if self.units:
            self.units[0].start_gather()
        outputs = self.module(*args, **kwargs)
        if not torch.is_grad_enabled():
            self.root.free()
        return outputs
        # END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Call it after backward: then each parameter is its shard, and its grad the shard of the mean gradient."""
        # BEGIN SOLUTION sharded_module
        for unit in [self.root, *self.units]:
            unit.free()
            unit.finish_scatter()
        # END SOLUTION

    def gather_full_params(self) -> dict[str, Tensor]:
        """Return a whole copy of each parameter, by its name in module.named_parameters().

        Copies have the parameter's own dtype, not compute_dtype. Afterwards the parameters are shards again.
        """
        # BEGIN SOLUTION sharded_module
        full = {}
        for unit in [self.root, *self.units]:
            unit.free()
            whole = [torch.empty_like(w, dtype=p.dtype) for p, w in zip(unit.params, unit.whole, strict=True)]
            if whole:
                start_gather(unit.shards, whole)()
            full.update(zip(unit.params, whole, strict=True))
        return {name: full[parameter] for name, parameter in self.module.named_parameters()}
        # END SOLUTION


# %% tags=["check"]
labkit.check("sharded_module", ShardedModule)

# %% [markdown]
# ### What it costs
#
# ZeRO-3 sends 1.5 times DDP's bytes, much of it while the device computes. **What is its step time divided by DDP's?**
# And what is DDP's peak memory divided by ZeRO-3's? (Activations are not sharded.)


# %% tags=["given"]
def two_steps_of_zero3() -> None:
    model = GPT(num_layers=6, width=256)
    sharded = ShardedModule(model, model.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    train_on_ranks(sharded, optimizer, 2, sharded.finish_gradient_synchronization)


# %% tags=["predict"]
labkit.predict("zero3_step", 1.5)

# %% tags=["predict"]
labkit.predict("ddp_memory", 3)

# %% seconds=15
runs["ZeRO-3"] = labkit.run(two_steps_of_zero3, on=PCIE, echo=False)
peaks = {name: memory_peaks(run.timeline)[0].bytes for name, run in runs.items()}
labkit.reveal("ddp_memory", peaks["DDP"] / peaks["ZeRO-3"], costs(runs))

# %%
zero3 = runs["ZeRO-3"].timeline
labkit.reveal("zero3_step", zero3.makespan_ns / steps["DDP"], zero3)

# %% [markdown]
# Memory shrinks, and with our solution the step takes 5 % longer, not 50 %: most of the communication overlaps with
# computing. And there is one collective for each block, not for each tensor as in your ZeRO-2. Look at a rank's memory
# row (More, Memory): blocks are gathered and freed. Besides shards and activations a rank holds up to four blocks'
# worth: the parameters of the block that computes, its gradients, the parameters that arrive, and the gradients that
# leave. So larger blocks take more memory, and need fewer collectives.

# %% [markdown]
# ### The course's GPT on it
#
# One thing is missing before you can train: **clipping** by the norm of the *whole* gradient. Each rank knows only its
# own shards. So each rank adds up the squares of its shards, and an all-reduce adds up these sums: one number travels.
# `clip_shards` does that here; you build it in a later bonus.
#
# **[[own_norm]].** Somebody forgets the `all_reduce`, and each rank clips by the norm of its own shards. What happens?
# Choose `"error"`, `"nothing"`, `"another direction"` (the update points elsewhere) or `"ranks drift apart"`.

# %% tags=["why"] exercise="own_norm" title="Clipped by oneself" bonus=true
labkit.answer("own_norm", "another direction")


# %% tags=["given"]
def yours(num_steps: int) -> list[float]:
    model = GPT()
    optimizer = optimizer_for(model)  # groups parameters by shape, so make it before they are flat shards
    sharded = ShardedModule(model, model.blocks)

    def after_backward() -> None:
        sharded.finish_gradient_synchronization()
        clip_shards(model.parameters(), 1.0)

    return train_on_ranks(sharded, optimizer, num_steps, after_backward)


# %% [markdown]
# Two real processes train with the same batches, AdamW and clipping: first your version, then torch's `fully_shard`
# (`labkit.models.train_fully_sharded`):

# %% tags=["nbval-ignore-output"] seconds=30
for train in (yours, train_fully_sharded):
    losses = labkit.run(train, NUM_STEPS, on=labkit.local(2, device="cpu"), echo=False).results[0]
    print(f"{train.__name__:19}", [round(loss, 4) for loss in (losses[0], *losses[-3:])])

# %% [markdown]
# The same loss: sharding changes where numbers lie, not the numbers.

# %% [markdown]
# ## Bonus: What to do with the room that is left
#
# A transformer's layers are all alike. Those of a **U-Net** (many image generators are U-Nets) differ: each level down
# has a quarter of the positions and twice the channels. So a layer takes equally long on every level. But one level
# down, it has 4 times the parameters and half of the activations. Here is one of 7.7 billion parameters, with three
# levels. (Its skip connections are left out.)

# %% tags=["given"]
from dataclasses import replace

from labkit.plans.sharded_step import UNET, Job, StepPlan, cost

# %%
for layer in (0, 4, 8):
    params, activations = UNET.layer_params[layer] / 1e6, UNET.activation_bytes[layer] / 1e6
    print(f"layer {layer}: {params:3.0f} million parameters, {activations:3.0f} MB of activations a sample")

# %% [markdown]
# With ZeRO-3 on eight devices of 24 GB, the state takes 15 GB of each, so 9 GB are left. What do you spend them on?
#
# * a larger **microbatch**: more samples go through the model together, so layers are gathered less often;
# * **keep** a layer whole between forward and backward: that saves a gather;
# * **save** a layer's activations. A layer whose activations are not saved is recomputed from its input in backward
#   (**activation checkpointing**): if forward takes one unit of time, backward then takes three instead of two.
#
# `cost(job, plan)` gives a plan's `seconds`, and `peak_bytes` on each device. Here they are for the smallest plan, one
# sample at a time:

# %%
print(cost(UNET, StepPlan(microbatch=1, keep=(False,) * 26, save=(False,) * 26)))

# %% [markdown]
# ### Exercise [[memory_plan]]
#
# *10 points, about 30 minutes; difficulty 4 of 5, importance 4 of 5*
#
# Find the fastest plan that fits; `help(Job)` and `help(StepPlan)` list the fields. With two flags for each of 26 layers
# you cannot try every plan. The naive plan takes the largest microbatch that fits and recomputes everything. A faster
# plan earns half of the points. For the other half, your step may take at most 1.5 % longer than with the rule of Capuchin
# (Peng and others, 2020). It weighs the cost of fetching something again against the cost of computing it again.


# %% [markdown] tags=["slide-only"]
# ## 9 GB are left. What do you buy?
#
# * a larger microbatch: fewer gathers
# * layers that stay whole: fewer gathers
# * saved activations: nothing is computed twice
#
# <!-- notes: A flag helps only where its layer holds up the step: a gather that hides behind computing costs nothing. -->


# %% tags=["design"] exercise="memory_plan" points=10 weights=[1, 1, 1, 1, 1, 1] difficulty=4 importance=4 minutes=30 title="A plan for 24 GB" provides=["memory_plan"] bonus=true
def memory_plan(job: Job) -> StepPlan:
    """Return a fast plan for a step of this job that takes at most job.memory_bytes on each device."""
    # BEGIN SOLUTION memory_plan
    layers = range(job.num_layers)

    def with_one_more(plan: StepPlan) -> StepPlan | None:
        before, best = cost(job, plan).seconds, (0.0, None)
        for layer in layers:
            saved = plan.microbatch * (job.activation_bytes[layer] - job.input_bytes[layer])
            for name, num_bytes in (("keep", job.layer_bytes(layer)), ("save", saved)):
                flags = list(getattr(plan, name))
                if not flags[layer]:
                    flags[layer] = True
                    more = replace(plan, **{name: tuple(flags)})
                    after = cost(job, more)
                    worth = (before - after.seconds) / num_bytes
                    if after.peak_bytes <= job.memory_bytes and worth > best[0]:
                        best = worth, more
        return best[1]

    plans = []
    for microbatch in range(1, job.num_samples + 1):
        plan = StepPlan(microbatch, (False,) * job.num_layers, (False,) * job.num_layers)
        if job.num_samples % microbatch == 0 and cost(job, plan).peak_bytes <= job.memory_bytes:
            while more := with_one_more(plan):
                plan = more
            plans.append(plan)
    return min(plans, key=lambda plan: cost(job, plan).seconds)
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("memory_plan", memory_plan)

# %% [markdown]
# ## Bonus: One norm for all shards
#
# With whole gradients, clipping is one line. With shards there are three traps: all ranks need the same norm, a rank
# may hold nothing, and some elements' squares are too large for their dtype.
#
# ### Exercise [[clipped_shards]]
#
# *10 points, about 10 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="clipped_shards" points=10 difficulty=2 importance=4 minutes=10 title="One norm for all shards" provides=["clip_by_global_norm"] bonus=true
def clip_by_global_norm(gradients: list[Tensor], max_norm: float, group: Any = None) -> Tensor:
    """Scale this rank's gradients in place, so that the norm of the whole gradient is at most max_norm.

    Returns the norm of the whole gradient before clipping, computed in float32. You may rely on this: its square is
    finite in float32. If the norm is at most max_norm, all gradients stay unchanged. (torch divides by the norm plus
    1e-6, and so never by zero. You may do the same, although it also shrinks gradients whose norm lies between
    max_norm - 1e-6 and max_norm.)

    Args:
        gradients: This rank's shards, float32, bfloat16 or float16; a rank may have none.
        max_norm: The largest norm allowed.
        group: The ranks that together hold each element exactly once (under hybrid sharding: one node); None means
            all ranks.
    """
    # BEGIN SOLUTION clipped_shards
    squares = torch.zeros(())
    for gradient in gradients:
        squares += gradient.float().square().sum()
    dist.all_reduce(squares, group=group)
    norm = squares.sqrt()
    for gradient in gradients:
        gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
    # END SOLUTION


# %% tags=["check"]
labkit.check("clipped_shards", clip_by_global_norm)

# %% [markdown]
# ## Bonus: Sharded inside a node
#
# With eight nodes of eight GPUs, a gather over all 64 crosses the network again and again. **Hybrid sharding** shards
# inside a node, where NVLink is, and keeps a copy of the model in each node. A block is gathered inside the node. Its
# gradients are reduce-scattered inside the node, and each shard is then all-reduced with its seven counterparts in
# the other nodes.
#
# **[[across_nodes]].** The parameters are P bytes. Take ZeRO-3 over all 64 ranks, in a ring that visits all ranks of
# a node before it goes to the next node. Each *node* then sends about 3P into the network in a step. What does a node
# send under hybrid sharding, in units of P? (Between eight nodes, an all-reduce of P bytes sends 2 x 7/8 P.)

# %% tags=["why"] exercise="across_nodes" title="Across nodes" bonus=true
labkit.answer("across_nodes", 1.75)

# %% [markdown]
# The price is memory: every node holds all 16 bytes of each parameter.
#
# Now build what lesson 14 trains with. Each rank is in two groups: `node` is all ranks of its node, and `across` is the
# rank itself and its counterparts, one in each node.
#
# ### Exercise [[hybrid_shards]]
#
# *10 points, about 15 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="hybrid_shards" points=10 difficulty=2 importance=4 minutes=15 title="Sharded inside a node" provides=["node_shard_of", "start_node_gather", "start_hybrid_scatter"] bonus=true
def node_shard_of(tensor: Tensor, node: Any) -> Tensor:
    """Return a copy of this rank's part of a tensor, as shard_of does, but cut among the ranks of the node alone."""
    # BEGIN SOLUTION hybrid_shards
    return node_rows_of(tensor, node)[dist.get_rank(node)].clone()
    # END SOLUTION


def start_node_gather(shards: list[Tensor], tensors: list[Tensor], node: Any) -> Callable[[], None]:
    """Begin to gather the tensors from the node's shards; return a function that waits until the tensors are filled.

    Use one collective, in the dtype of the tensors, and write into ``tensor.data``.
    """
    # BEGIN SOLUTION hybrid_shards
    sizes = [len(shard) for shard in shards]
    mine = torch.cat([shard.detach().to(tensors[0].dtype) for shard in shards])
    everyones = mine.new_empty(dist.get_world_size(node), len(mine))
    work = ALL_GATHER(everyones.view(-1), mine, group=node, async_op=True)

    def finish() -> None:
        work.wait()
        for column, tensor in zip(everyones.split(sizes, 1), tensors, strict=True):
            tensor.data.copy_(column.reshape(-1)[: tensor.numel()].view(tensor.shape))

    return finish
    # END SOLUTION


def start_hybrid_scatter(tensors: list[Tensor], node: Any, across: Any) -> Callable[[], list[Tensor]]:
    """Begin to average tensors over all nodes' ranks; return a function that waits and returns this rank's shards.

    Use two collectives. The one inside the node has started when this function returns. The one across nodes sends only
    shards; it may start in the returned function.
    """
    # BEGIN SOLUTION hybrid_shards
    rows = torch.cat([node_rows_of(tensor, node) for tensor in tensors], 1)
    mine = rows.new_empty(rows.shape[1])
    work = REDUCE_SCATTER(mine, rows.view(-1), group=node, async_op=True)
    sizes = [-(-tensor.numel() // len(rows)) for tensor in tensors]

    def finish() -> list[Tensor]:
        work.wait()
        dist.all_reduce(mine, group=across)
        return list((mine / (dist.get_world_size(node) * dist.get_world_size(across))).split(sizes))

    return finish


def node_rows_of(tensor: Tensor, node: Any) -> Tensor:
    """Return the tensor as one row for each rank of the node, padded with zeros."""
    flat, count = tensor.detach().reshape(-1), dist.get_world_size(node)
    return nn.functional.pad(flat, (0, -len(flat) % count)).view(count, -1)
    # END SOLUTION


# %% tags=["check"]
labkit.check("hybrid_shards", node_shard_of, start_node_gather, start_hybrid_scatter)

# %% [markdown]
# In torch, hybrid sharding needs a device mesh of two dimensions. `fully_shard` shards along the second one (inside a
# node), and keeps equal copies along the first (across nodes). Here are two nodes of four GPUs, first as eight ranks in
# a row, then as two times four. (With torch 2.11, skip the next cell: that version's `fully_shard` cannot run on
# virtual ranks.)


# %% tags=["given"]
from labkit.timeline.metrics import busbw_factor, collective_timings


def on_mesh(*shape: int) -> float:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = GPT(num_layers=4, width=192)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("across", "inside")[-len(shape) :])
    for block in (*model.blocks, model):
        fully_shard(block, mesh=mesh)
    return train_on_ranks(model, torch.optim.AdamW(model.parameters(), lr=3e-3), 3)[-1]


# %% seconds=15
num_bytes = 4 * sum(p.numel() for p in GPT(num_layers=4, width=192).parameters())
cluster = labkit.virtual(8, gpu="h100", gpus_per_node=4, nic="ethernet_100g", nics_per_node=1)
for shape in ((8,), (2, 4)):
    run = labkit.run(on_mesh, *shape, on=cluster, echo=False)
    across = [call for call in collective_timings(run.timeline) if call.num_ranks != 4]  # four ranks are a node
    units = sum(call.bytes * busbw_factor(call.kind, call.num_ranks) for call in across) / num_bytes / 3
    ms = run.timeline.makespan_ns / 1e6
    print(f"mesh {shape}: a node sends {units:.2f} P a step, {ms:.1f} ms, loss {run.results[0]:.4f}")

# %% [markdown]
# This was torch's `fully_shard`, not your functions. On eight ranks in a row, a step makes two gathers and a
# scatter. Each passes 7/8 P over every link of the ring, and one link leads out of each node: a node sends 3 x 7/8 P.
# On the mesh of two dimensions, these stay inside a node. Only the all-reduce of gradients crosses: 2 x 1/2 P. The
# loss is the same.
#
# ## Bonus: Thirteen billion on the same devices
#
# With 13.6 billion parameters the shards alone take 27 GB on each of your eight 24 GB devices. What could move
# elsewhere?
#
# **Offloading** (ZeRO-Offload, Ren and others, 2021) puts the optimizer's 12 bytes, masters and means, into the
# **host's** memory, which is much larger. The host's cores then do the update: a layer's gradient shard goes down, the
# new parameters come up. That is slow, but it overlaps with backward. The step gets longer only by the time that the
# host still needs when backward ends:
#
# ```
# device  ... backward 39 | backward 38 | backward 37 | ...     | backward 0 |
# host                     | update 39       | update 38      | ...               | update 0 |
# ```
#
# `offloaded_cost(job, host, plan)` returns what a plan costs. Here is the plan with everything on the host and one
# sequence at a time:

# %% tags=["given"]
from labkit.plans.offloaded_step import HOST, THIRTEEN_BILLION, Host, OffloadPlan, offloaded_cost

# %%
nothing, everything = (False,) * 40, (True,) * 40
print(offloaded_cost(THIRTEEN_BILLION, HOST, OffloadPlan(StepPlan(1, nothing, nothing), host=everything)))

# %% [markdown]
# ### Exercise [[offload_plan]]
#
# *10 points, about 25 minutes; difficulty 3 of 5, importance 3 of 5*
#
# Find the fastest plan that fits; `help(Host)` and `help(OffloadPlan)` list the fields. The naive plan moves everything
# to the host, with the largest microbatch that fits, as in the paper. A faster plan earns half of the points. For the
# other half, be as fast as that paper's successor, Twin-Flow (ZeRO-Offload++, 2023), at its best setting. Twin-Flow
# keeps no layer whole; your plan may. The best plan that we know is slightly faster than Twin-Flow.


# %% tags=["design"] exercise="offload_plan" points=10 weights=[1, 1, 1, 1, 1, 1] difficulty=3 importance=3 minutes=25 title="What the host can hold" provides=["offload_plan"] bonus=true
def offload_plan(job: Job, host: Host) -> OffloadPlan:
    """Return a fast plan for a step of this job that takes at most job.memory_bytes on each device."""
    # BEGIN SOLUTION offload_plan
    layers = job.num_layers

    def last(count: int) -> tuple[bool, ...]:
        return tuple(layer >= layers - count for layer in range(layers))

    best = None
    for microbatch in (each for each in range(1, job.num_samples + 1) if job.num_samples % each == 0):
        for moved in range(layers + 1):
            for saved in range(layers + 1):
                plan = OffloadPlan(StepPlan(microbatch, last(0), last(saved)), last(moved))
                found = offloaded_cost(job, host, plan)
                if found.peak_bytes > job.memory_bytes:
                    break
                if best is None or found.seconds < best[0]:
                    best = found.seconds, plan
    return best[1]
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("offload_plan", offload_plan)

# %% [markdown]
# ## Bonus: Saved on four ranks, loaded on six
#
# A **checkpoint** is often loaded on another number of ranks, where the old shards do not fit. So save what *one
# process* would have saved: whole tensors in the parameters' shapes, with each parameter's number as the key. That can be loaded
# on any number of ranks, and into a plain optimizer, too.
#
# The format is PyTorch's. For a parameter of shape (5, 7) that was given first:
#
# ```python
# {"state": {0: {"step": tensor(2.), "exp_avg": a_5_by_7, "exp_avg_sq": another_5_by_7}},
#  "param_groups": [{"lr": 0.001, ..., "params": [0, 1, 2]}]}
# ```
#
# Here every rank gets the whole state. At 7 billion parameters that is 56 GB in float32. So real systems let one rank
# collect it, piece by piece, in the host's memory, or write shards with a table that says where each one is
# (`torch.distributed.checkpoint`).
#
# ### Exercise [[saved_state]]
#
# *15 points, about 40 minutes; difficulty 4 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="saved_state" points=15 difficulty=4 importance=3 minutes=40 title="A checkpoint" provides=["SavedOptimizer"] needs=["flat_shards", "sharded_optimizer"] bonus=true
class SavedOptimizer(ShardedOptimizer):
    """A ShardedOptimizer whose state can be saved, and loaded on another number of ranks.

    For each parameter, optimizer_cls keeps "step", which is equal on all ranks, and tensors with as many elements as
    the parameter.
    """

    def __init__(self, params: Any, optimizer_cls: Any, **kwargs: Any) -> None:
        # BEGIN SOLUTION saved_state
        groups = list(params)
        groups = groups if isinstance(groups[0], dict) else [{"params": groups}]
        numbers = [{**group, "params": list(group["params"])} for group in groups]
        super().__init__(numbers, optimizer_cls, **kwargs)
        self.given = [parameter for group in numbers for parameter in group["params"]]
        self.numbers = {parameter: number for number, parameter in enumerate(self.given)}
        self.members = [[self.numbers[parameter] for parameter in group["params"]] for group in numbers]
        # END SOLUTION

    def state_dict(self) -> dict[str, Any]:
        """Return on every rank what optimizer_cls.state_dict() would return in one process.

        Parameters are numbered in the order in which they were given, over all groups, frozen ones too. "state" holds,
        by number, what optimizer_cls keeps for a parameter; a parameter for which it keeps nothing is left out.
        "param_groups" holds each group's options, and under "params" the numbers of the group's parameters.
        """
        # BEGIN SOLUTION saved_state
        state = {}
        for parameter, shard in self.shards.items():
            kept = self.optimizer.state.get(shard)
            if kept:
                state[self.numbers[parameter]] = {
                    name: value if name == "step" else self.whole(value, parameter) for name, value in kept.items()
                }
        groups = [{**group, "params": of} for group, of in zip(self.param_groups, self.members, strict=True)]
        return {"state": state, "param_groups": groups}

    def whole(self, value: Tensor, parameter: Tensor) -> Tensor:
        """Return what all ranks' shards are together."""
        whole = torch.empty_like(parameter, dtype=value.dtype)
        start_gather([value], [whole])()
        return whole
        # END SOLUTION

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Load copies of what state_dict returned, on any number of ranks; each rank keeps only its shards.

        The next step uses the learning rates that were saved, unless others are set in param_groups after loading.
        """
        # BEGIN SOLUTION saved_state
        for group, options in zip(self.param_groups, saved["param_groups"], strict=True):
            group.update({name: value for name, value in options.items() if name != "params"})
        for number, kept in saved["state"].items():
            shard = self.shards[self.given[number]]
            self.optimizer.state[shard] = {
                name: value.clone() if name == "step" else shard_of(value) for name, value in kept.items()
            }
        # END SOLUTION


# %% tags=["check"]
labkit.check("saved_state", SavedOptimizer)

# %% [markdown]
# ### Sources
#
# * S. Rajbhandari, J. Rasley, O. Ruwase and Y. He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
#   Models", SC 2020: the 16 bytes, the three stages, and what they send.
# * Y. Zhao and others, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", *Proceedings of the VLDB
#   Endowment* 16 (2023): flat shards, padding, prefetching, hybrid sharding.
# * J. Ren and others, "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC 2021: the optimizer's 12
#   bytes can also lie in the host's memory.
# * PyTorch documentation: `torch.distributed.fsdp.fully_shard`. It cuts each parameter along its first dimension
#   instead of flattening it, so that a shard keeps its dimensions.
