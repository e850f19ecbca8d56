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
# # 14 All of them at once
#
# Two teams train the same 70 billion parameters on the same 512 H100s, with the same batch and the same eight-way data,
# pipeline and tensor parallelism. By this lesson's cost formula, one job reaches 17 % of the GPUs' peak, the other 48
# %. The only difference is *which GPU does what*.
#
# You have built every axis by itself. Now you put them together: the mesh, the step, one gradient and one norm for all
# ranks. Then your parts train the course's GPT on eight ranks, and so do torch's own. Both reach the losses of a single
# process.
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus that takes longer. **You need** lessons 08, 09, 12 and 13,
# with 13's bonus `hybrid_shards`; what you skipped is lent. No GPU.
#
# **Stuck?** `labkit.hint("mesh_groups")` gives up to three hints. `labkit.lend("mesh_groups")` puts a working version
# into the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 14 All of them at once
#
# 512 H100s, 70 billion parameters: 17 % of peak, or 48 %
#
# <!-- notes: Same model, same GPUs, same degrees of parallelism. The only difference is which GPU does what. -->

# %% tags=["given"]
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

import labkit
from labkit.hybrid_gpt import HybridStage, adamw_over, group_of_ends, mean_losses, one_f_one_b, played_step, warm_up
from labkit.plans.hybrid_step import JOBS, SEVENTY_BILLION, Job, MeshPlan, cost, every_order, every_plan
from labkit.plans.mesh_weights import Weight

# %%
for order in ("tensor data pipeline", "data pipeline tensor"):
    plan = MeshPlan(tuple((axis, 8) for axis in order.split()))
    print(f"{order:20}  {100 * cost(SEVENTY_BILLION, plan).of_peak:.0f} % of peak")

# %% [markdown]
# ## 1 Axes and their order
#
# A **mesh** gives each rank a place on every **axis**. Ranks count through the places as a clock does: the last axis
# changes fastest. `{"data": 2, "pipeline": 2, "tensor": 2}` puts rank 5 at data 1, pipeline 0, tensor 1.
#
# Ranks that differ *only* in their tensor place form a group along `tensor`; the other axes have groups in the same
# way. Each rank is in one group along each axis, and every collective of this lesson runs in such a group.

# %% tags=["figure"]
labkit.figure("mesh", data=2, tensor=4)

# %% [markdown] tags=["slide-only"]
# ## A mesh gives each rank three numbers
#
# | rank | data | pipeline | tensor |
# |---|---|---|---|
# | 0 | 0 | 0 | 0 |
# | 1 | 0 | 0 | 1 |
# | 2 | 0 | 1 | 0 |
# | 5 | 1 | 0 | 1 |
#
# **To the room:** who is in rank 5's group along data?
#
# <!-- notes: Ranks 1 and 5. The last axis counts fastest. Every rank makes every group. -->

# %% [markdown]
# Order matters, because ranks are numbered machine by machine: ranks 0 to 7 share the first one. Along the last axis,
# neighbours sit in the same machine. Along the first one, they are as far apart as they can be.
#
# *Every* rank must call `dist.new_group(ranks)` for every group, in the same order, even for the groups that it is not
# in.
#
# ### Exercise [[mesh_groups]]
#
# *20 points, about 12 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="mesh_groups" points=20 difficulty=2 importance=5 minutes=12 title="The mesh" provides=["coordinates", "ranks_along", "group_along"]
def coordinates(rank: int, sizes: dict[str, int]) -> dict[str, int]:
    """Return a rank's place on each axis.

    Args:
        rank: From 0 up to, not including, the product of sizes.
        sizes: Ranks along each axis, outermost axis first: the last axis changes fastest.
    """
    # BEGIN SOLUTION mesh_groups
    place = {}
    for axis in reversed(sizes):
        rank, place[axis] = divmod(rank, sizes[axis])
    return {axis: place[axis] for axis in sizes}
    # END SOLUTION


def ranks_along(rank: int, sizes: dict[str, int], *axes: str) -> list[int]:
    """Return, in ascending order, this rank and all that differ from it only in their places along `axes`.

    Takes one axis or more: the ranks along ("data", "shard") may differ in either place, or in both.
    """
    # BEGIN SOLUTION mesh_groups
    mine, count = coordinates(rank, sizes), torch.Size(sizes.values()).numel()
    others = [axis for axis in sizes if axis not in axes]
    return [r for r in range(count) if all(coordinates(r, sizes)[axis] == mine[axis] for axis in others)]
    # END SOLUTION


def group_along(sizes: dict[str, int], *axes: str) -> dist.ProcessGroup:
    """Return this rank's process group along these axes; all ranks of the mesh call this together."""
    # BEGIN SOLUTION mesh_groups
    own = None
    for rank in range(dist.get_world_size()):
        ranks = ranks_along(rank, sizes, *axes)
        if ranks[0] == rank:
            group = dist.new_group(ranks)
            own = group if dist.get_rank() in ranks else own
    return own
    # END SOLUTION


# %% tags=["check"]
labkit.check("mesh_groups", coordinates, ranks_along, group_along)

# %% [markdown]
# The functions of sections 3 to 5 get a `mesh` with a fourth axis, `shard`. Along it, ranks share the optimizer's
# state, as in lesson 13. The first and the last stage of a pipeline also form a group, `ends`. A `Mesh` makes process
# groups, so create it only inside `labkit.run`, as in section 5.


# %% tags=["given"]
class Mesh:
    def __init__(self, **sizes: int) -> None:
        self.sizes, self.place = sizes, coordinates(dist.get_rank(), sizes)
        self.groups = {axis: group_along(sizes, axis) for axis in sizes}  # this rank's group along each axis
        pipelines = [ranks_along(rank, sizes, "pipeline") for rank in range(dist.get_world_size())]
        self.ends = group_of_ends(pipelines)  # first and last stage; None on other ranks, and with a single stage


# %% [markdown] tags=["slide-only"]
# ## Who sees the same samples?
#
# * data, shard: **other** samples
# * pipeline, tensor: **the same** samples
#
# **To the room:** who may draw the same dropout mask?
#
# <!-- notes: Tensor ranks, where nothing is cut. Nobody else. -->

# %% [markdown]
# ## 2 Who gets what
#
# Only two axes split the batch: `data` and `shard`. The ranks with the same place on both form a **replica**, and all
# of them work on the same samples. Number the replicas `r = place["data"] * sizes["shard"] + place["shard"]`, and cut
# the batch into slices of consecutive samples, one for each replica and all of the same length. Replica r takes slice
# r, in microbatches of equal size.
#
# Random numbers follow the same map. Where nothing is cut, tensor ranks hold the *same* activations, so they must drop
# the same ones. Where activations are cut, each tensor rank holds a different piece and needs a different mask.
# Different replicas and different stages always need different masks.
#
# ### Exercise [[who_gets_what]]
#
# *15 points, about 10 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="who_gets_what" points=15 difficulty=2 importance=4 minutes=10 title="Who gets what" provides=["my_samples", "dropout_seed"]
def my_samples(batch: int, microbatch: int, sizes: dict[str, int], place: dict[str, int]) -> list[list[int]]:
    """Return the numbers of the samples in each microbatch of the rank at this place, in order.

    Args:
        batch: Samples of a step, numbered from 0.
        microbatch: Samples of a microbatch.
        sizes: Of "data", "shard", "pipeline" and "tensor".
        place: On the same axes.

    Raises:
        ValueError: If the batch cannot be split into whole microbatches, the same number on every replica.
    """
    # BEGIN SOLUTION who_gets_what
    replicas = sizes["data"] * sizes["shard"]
    if batch % (replicas * microbatch):
        raise ValueError(f"{replicas} replicas with microbatches of {microbatch} do not make up a batch of {batch}")
    share = batch // replicas
    first = (place["data"] * sizes["shard"] + place["shard"]) * share
    return [list(range(at, at + microbatch)) for at in range(first, first + share, microbatch)]
    # END SOLUTION


def dropout_seed(seed: int, sizes: dict[str, int], place: dict[str, int], is_cut: bool) -> int:
    """Return the seed that the rank at this place draws its dropout masks from.

    A seed used for cut layers on any rank is never used for uncut layers on any rank.

    Args:
        seed: The run's seed. A different run seed gives this rank a different seed.
        sizes: Of "data", "shard", "pipeline" and "tensor".
        place: On the same axes.
        is_cut: Whether tensor ranks hold pieces of the activations; else they hold the same ones.
    """
    # BEGIN SOLUTION who_gets_what
    number = int(is_cut)
    for axis in ("data", "shard", "pipeline", "tensor"):
        number = number * sizes[axis] + (place[axis] if is_cut or axis != "tensor" else 0)
    return seed * 2 * torch.Size(sizes.values()).numel() + number
    # END SOLUTION


# %% tags=["check"]
labkit.check("who_gets_what", my_samples, dropout_seed)

# %% [markdown]
# ## 3 One gradient
#
# After backward, every rank has gradients of its own. Three questions decide what must be added up.
#
# * **Who holds the same weight?** Replicas do. Tensor ranks hold different *pieces* of a cut matrix, but the same norm
#   layers, and the same biases where they are added after the all-reduce. And the embedding is on two stages: it is
#   *tied* to the output layer.
# * **Did they compute the same gradient?** If every tensor rank saw all tokens, each has the whole gradient of a norm
#   layer or such a bias already. With sequence parallelism, each rank saw only *its tokens*, so its gradient is a
#   partial sum. And each end of the pipeline has the gradient of its own use of the embedding only.
# * **How much does each replica count?** The step's loss is the mean over all targets of the batch. A replica's
#   gradient is the mean over *its* targets, and some replicas have more targets than others.
#
# `combine_gradients` returns a shard for each weight, as lesson 13 cut them.

# %% [markdown] tags=["slide-only"]
# ## Who adds what to whom?
#
# | | replicas | tensor | ends |
# |---|---|---|---|
# | cut matrix | sum | | |
# | bias after a sum | sum | | |
# | norm, own tokens | sum | **sum** | |
# | embedding, tied | sum | | **sum** |
#
# <!-- notes: Everything is summed over replicas (data and shard), weighted by targets. The other two columns are where people go wrong. -->

# %% [markdown]
# ### Exercise [[combine_gradients]]
#
# *25 points, about 25 minutes; difficulty 4 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="combine_gradients" points=25 difficulty=4 importance=5 minutes=25 title="One gradient" provides=["combine_gradients"] needs=["mesh_groups"]
def combine_gradients(weights: list[Weight], mesh: Mesh, num_targets: int) -> list[Tensor]:
    """Return this rank's shard of each weight's gradient: that of the mean loss over all targets of the batch.

    To cut a gradient, flatten it, pad it with zeros at its end to a multiple of S = mesh.sizes["shard"], and split it
    into S equal pieces. The shard is piece number mesh.place["shard"].

    Args:
        weights: The weights of this rank's stage. weight.parameter.grad is the gradient of the mean loss over the
            targets that this rank's replica has; every weight has one, and you may change it. weight.tensor says what
            the other tensor ranks hold: "cut" (other pieces of it), "whole" (the same weight, each has computed the
            whole gradient) or "tokens" (the same weight, each has seen its own tokens only). weight.tied: the first and
            the last stage both hold it. With one stage it needs no sum over ends.
        mesh: With the axes "data", "shard", "pipeline" and "tensor": sizes, place, groups, ends.
        num_targets: How many targets this rank's replica has, at least 1.
    """
    # BEGIN SOLUTION combine_gradients
    everybody = torch.tensor(float(num_targets), dtype=torch.float64)
    for axis in ("data", "shard"):
        dist.all_reduce(everybody, group=mesh.groups[axis])
    shards = []
    for weight in weights:
        gradient = weight.parameter.grad * (num_targets / everybody.item())
        groups = [mesh.groups["data"], mesh.groups["shard"]]
        groups += [mesh.groups["tensor"]] if weight.tensor == "tokens" else []
        groups += [mesh.ends] if weight.tied and mesh.ends is not None else []
        for group in groups:
            dist.all_reduce(gradient, group=group)
        count = mesh.sizes["shard"]
        rows = functional.pad(gradient.flatten(), (0, -gradient.numel() % count)).view(count, -1)
        shards.append(rows[mesh.place["shard"]].clone())
    return shards
    # END SOLUTION


# %% tags=["check"]
labkit.check("combine_gradients", combine_gradients)

# %% [markdown] tags=["slide-only"]
# ## Each element once
#
# Some elements are there many times: on replicas, on tensor ranks, on both ends.
#
# **To the room:** what happens if you count one twice?
#
# <!-- notes: No error. You clip at a lower norm than the one you set. -->

# %% [markdown]
# ## 4 One norm
#
# Clipping needs the norm of the *whole* gradient: each element once. But on a mesh some elements exist many times.
# Replicas along `data` hold the same shards. Every tensor rank holds the norm layers and the uncut biases. Both ends of
# the pipeline hold the embedding. Count one of them twice, and you clip at a lower norm than you set: no error says so.
#
# ### Exercise [[clip_whole]]
#
# *15 points, about 12 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="clip_whole" points=15 difficulty=3 importance=5 minutes=12 title="One norm" provides=["clip_whole"] needs=["mesh_groups"]
def clip_whole(weights: list[Weight], shards: list[Tensor], mesh: Mesh, max_norm: float) -> Tensor:
    """Scale this rank's shards in place, so that the norm of the whole gradient is at most max_norm.

    Returns the norm before clipping, the same on every rank. If it is at most max_norm, the shards stay unchanged. You
    may divide by the norm plus 1e-6, as torch does.

    Args:
        weights: The weights of this rank's stage.
        shards: A shard of each weight's gradient, as combine_gradients returns them. Replicas along "data" hold the
            same shards.
        mesh: As in combine_gradients.
        max_norm: The largest norm allowed.
    """
    # BEGIN SOLUTION clip_whole
    squares = torch.zeros((), dtype=torch.float64)
    for weight, shard in zip(weights, shards, strict=True):
        counts_here = weight.tensor == "cut" or mesh.place["tensor"] == 0
        if counts_here and (not weight.tied or mesh.place["pipeline"] == 0):
            squares += shard.double().square().sum()
    for axis in ("shard", "pipeline", "tensor"):
        dist.all_reduce(squares, group=mesh.groups[axis])
    norm = squares.sqrt()
    for shard in shards:
        shard.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
    # END SOLUTION


# %% tags=["check"]
labkit.check("clip_whole", clip_whole)

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 5 The step
#
# Now train the GPT with what you built: your operators and cut layers (lesson 12), your `run_schedule` (08), your
# shards (13), your mesh.


# %% tags=["given"]
from types import SimpleNamespace

from labkit.models import GPT, IGNORED, Addition, train

PARTS = {"two_operators": "enter", "parallel_block": "ParallelMLP ParallelAttention", "run_schedule": "run_schedule",
         "parallel_vocabulary": "embed cross_entropy", "hybrid_shards": "node_shard_of start_node_gather"}  # fmt: skip


def my_parts(data: int, shard: int, pipeline: int, tensor: int) -> SimpleNamespace:
    parts = {name: labkit.mine(slug, name=name) for slug, names in PARTS.items() for name in names.split()}
    return SimpleNamespace(schedules=one_f_one_b(parts["run_schedule"], pipeline, 64 // 16 // data // shard), **parts)


def train_hybrid(parts: SimpleNamespace, num_steps: int, **sizes: int) -> list[float]:
    """Return the loss of each step where it is known: on the last stage, of this rank's replica."""
    mesh, losses = Mesh(**sizes), []
    stage = HybridStage(GPT(), mesh, parts)
    weights, shard_group = stage.weights(), mesh.groups["shard"]
    shards = [nn.Parameter(parts.node_shard_of(each.parameter, shard_group)) for each in weights]
    optimizer, mine = adamw_over(shards, weights), my_samples(64, 16, mesh.sizes, mesh.place)
    for step, (tokens, targets) in enumerate(Addition().loader(num_steps, 64)):
        x = [tokens[m] for m in mine] if stage.is_first else None
        y = [targets[m] for m in mine] if stage.is_last else None
        sample, schedule = torch.empty(tokens.shape[1], 96), parts.schedules[mesh.place["pipeline"]]
        loss = parts.run_schedule(schedule, stage, [16] * len(mine), sample, x, y, stage.loss, mesh.groups["pipeline"])
        num_targets = sum((targets[m] != IGNORED).sum().item() for m in mine)
        gradients = combine_gradients(weights, mesh, num_targets)
        clip_whole(weights, gradients, mesh, 1.0)
        for shard, gradient in zip(shards, gradients, strict=True):
            shard.grad = gradient
        warm_up(optimizer, step, num_steps)
        optimizer.step()
        stage.zero_grad()
        parts.start_node_gather(shards, [each.parameter for each in weights], shard_group)()
        losses += [] if loss is None else [loss.item()]
    return losses


# %% [markdown]
# You have eight virtual ranks: 2 shards x 2 stages x 2 tensor ranks. For comparison, the GPT also trains in one
# process, and with torch's own tools on the same mesh: `init_device_mesh`, `parallelize_module`, `fully_shard` and
# `torch.distributed.pipelining`. (Not with torch 2.11, whose `fully_shard` cannot run on virtual ranks.)

# %% seconds=20
from labkit.torchs_hybrid import step_beside, train_torchs

SIZES = {"data": 1, "shard": 2, "pipeline": 2, "tensor": 2}
parts, eight = my_parts(**SIZES), labkit.virtual(8)
yours = labkit.run(lambda: train_hybrid(parts, 4, **SIZES), on=eight, echo=False)
torchs = labkit.run(train_torchs, 4, on=eight, echo=False)
print("one process", [round(loss, 4) for loss in train(GPT(), Addition(), 4)])
print("yours      ", mean_losses(yours.results))
print("torch's own", mean_losses(torchs.results))

# %% [markdown]
# The losses are the same: how a model is spread over ranks does not change what it learns. The third loss tests your
# clip: without clipping, it would be 2.731.
#
# This run does not test all of your work: no weight here is of kind `"tokens"`, and both replicas have the same number
# of targets.
#
# **How many percent longer is a step of torch's than one of yours?** Negative if it is shorter.

# %% tags=["predict"]
labkit.predict("torchs_step", 8, unit="%")

# %%
labkit.reveal("torchs_step", *step_beside(yours.timeline, torchs.timeline))

# %% [markdown]
# torch's step has fewer collectives and hides a third of its communication. But it runs more small operators, and
# each costs a launch of 4 us here, however little it computes. Together they cost about as much as the hiding saves.
#
# Here are both runs on one time axis. torch's run ends later because it begins later: `parallelize_module` scatters
# every weight, and stages first tell each other their shapes.

# %% tags=["no-slide"]
labkit.compare(yours.timeline, torchs.timeline, names=("yours", "torch's own"))

# %% [markdown] tags=["slide-only"]
# ## Eight ranks, one model
#
# One process, your parts, torch's own: **the same losses**.
#
# **To the room:** torch's run ends later. Is its step slower?
#
# <!-- notes: Show the timelines. No: it begins later, scattering weights. In a step it has fewer collectives and more operators. -->

# %% [markdown]
# ## 6 Which axis is on the network?
#
# A colleague's step on eight GPUs: two ranks along each of `data`, `pipeline` and `tensor`, and two GPUs in each
# machine, numbered machine by machine. `F0` is the first microbatch forward, `B0` the same one backward. The step takes
# much longer than it should.

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("wrong_order")

# %% [markdown]
# ### Exercise [[wrong_order]]
#
# `partner`: which rank holds the other pieces of rank 0's matrices? `slow`: what takes most of the step?
# `"partial sums of a layer"`, `"messages between stages"` or `"gradients"`? `last`: which axis should come last?
#
# All ranks of an all-reduce leave it at the same moment. Hover over rank 0's first all-reduce. On which other rank
# does an all-reduce end at that moment?

# %% tags=["find"] exercise="wrong_order" points=0 minutes=7 title="On the network"
labkit.answer("wrong_order", partner=4, slow="partial sums of a layer", last="tensor")

# %% [markdown]
# Fix it: this cell plays such a step with the axes in *your* order. Which orders are fast?


# %%
def play(order):
    machines, sizes = labkit.virtual(8, gpus_per_node=2), dict.fromkeys(order.split(), 2)
    return labkit.run(lambda: played_step(Mesh(**sizes)), on=machines, echo=False).timeline


order = "pipeline tensor data"  # write another one, and run this cell again
print(f"{order}: {play(order).makespan_ns / 1e6:.1f} ms")

# %% [markdown]
# When you have tried yours, here are all six:

# %% seconds=2
print(*(f"{order:20} {play(order).makespan_ns / 1e6:5.1f} ms" for order in every_order()), sep="\n")

# %% [markdown]
# The two orders with `tensor` last are fast. With `data` last, partial sums *and* messages are on the network.

# %% [markdown] tags=["slide-only"]
# ## Twice the machines, the same batch
#
# * half the microbatches for each replica
# * the same bubble, no fewer gradients
#
# **To the room:** what is the new step time divided by the old one?
#
# <!-- notes: 0.57. With twice the batch as well it is 1, and then the loss has its say. -->

# %% [markdown]
# ## 7 Twice the machines
#
# Back to 70 billion parameters on 512 H100s, eight on each axis, `tensor` last. You double the machines: `data`
# goes from 8 to 16. The batch stays the same. **What is the new step time divided by the old one?**

# %% tags=["predict"]
labkit.predict("twice_the_nodes", 0.5)


# %%
before = cost(SEVENTY_BILLION, MeshPlan((("data", 8), ("pipeline", 8), ("tensor", 8))))
after = cost(replace(SEVENTY_BILLION, num_gpus=1024), MeshPlan((("data", 16), ("pipeline", 8), ("tensor", 8))))
rows = [f"{name:10} {getattr(before, name):6.2f} s  {getattr(after, name):6.2f} s"
        for name in ("seconds", "compute", "tensor", "bubble", "exchange", "gradients")]  # fmt: skip
labkit.reveal("twice_the_nodes", after.seconds / before.seconds, ["           512 H100s  1024 H100s", *rows])

# %% [markdown]
# Each replica now has half as many microbatches. Computing and partial sums (`tensor`) halve. The bubble and the
# messages in it (`exchange`) stay: a pipeline fills and drains once a step. Gradients even take a little longer:
# their ring has more ranks.
#
# **[[batch_too]].** And with twice the machines *and* twice the batch: what is the new step time divided by the one on
# 512 H100s?

# %% tags=["why"] exercise="batch_too" title="Twice the batch, too"
labkit.answer("batch_too", 1)

# %% [markdown] tags=["slide-only"]
# ## What would you try first?
#
# | more ... | buys | costs |
# |---|---|---|
# | tensor ranks | memory | partial sums, every layer |
# | stages | memory | a bubble |
# | replicas | time | gradients, fewer microbatches |
# | recomputed layers | memory | a third of a layer |
#
# <!-- notes: In two of the three jobs the fastest plan does not fit. Ask which stage is full, and which is half empty. -->

# %% [markdown]
# ## 8 Your own mesh
#
# With more tensor ranks, each needs less memory, but they exchange more. With more stages, each needs less memory, but
# the bubble is longer. With more replicas, each has fewer microbatches, but gradients are summed over more ranks.
#
# `every_plan(job)` lists every order, all sizes that give equal stages, and microbatches of 1 to 8 samples.
# `cost(job, plan)` has the `seconds` of a step, and in `stage_bytes` what a GPU of each stage holds: weights,
# gradients, optimizer state, activations. Here are the fastest plan of each job, and the best time with `data` first:

# %%
for name, job in JOBS.items():
    fastest = min(every_plan(job), key=lambda plan: cost(job, plan).seconds)
    slower = min(cost(job, plan).seconds for plan in every_plan(job, [("data", "pipeline", "tensor")]))
    print(name, job, fastest, cost(job, fastest), f"with data first at best {slower:.2f} s", sep="\n  ")

# %% [markdown]
# In all three jobs, `pipeline` first beats `data` first. Two of the three fastest plans, printed above, do not fit in
# memory. The naive answer is the fastest plan of `every_plan` that fits. But a plan has two more fields: `recompute`,
# how many layers of each stage keep only their input and run forward again in backward, and `layers`, how many layers
# each stage has.
#
# Each job counts by itself. Half of its points are for beating the naive answer, or for matching it if nothing is
# faster. The other half are for a step as short as AdaPipe's (Sun and others, 2024) with equal stages. The best known
# plan is faster still.
#
# `lay_out` has 20 s for each job.
#
# ### Exercise [[lay_out]]
#
# *25 points, about 35 minutes; difficulty 4 of 5, importance 4 of 5*


# %% tags=["design"] exercise="lay_out" points=25 weights=[1, 1, 1, 1, 1, 1] difficulty=4 importance=4 minutes=35 title="Your own mesh" provides=["lay_out"]
def lay_out(job: Job) -> MeshPlan:
    """Return a fast plan for a step of this job that takes at most job.memory_bytes on each GPU."""
    # BEGIN SOLUTION lay_out
    best, least = None, float("inf")
    for plan in every_plan(job):
        if cost(job, plan).seconds >= least:
            continue
        stages = plan.size("pipeline")
        again = [0] * stages
        for stage in range(stages):  # the first ones have most microbatches in flight
            while again[stage] < job.num_layers // stages:
                plan = replace(plan, recompute=tuple(again))
                if cost(job, plan).stage_bytes[stage] <= job.memory_bytes:
                    break
                again[stage] += 1
        plan = replace(plan, recompute=tuple(again))
        found = cost(job, plan)
        if found.peak_bytes <= job.memory_bytes and found.seconds < least:
            best, least = plan, found.seconds
    return best
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("lay_out", lay_out)

# %% [markdown]
# ## 9 Under torchrun
#
# Here it is as a program:


# %% tags=["export"]
def main() -> list[float]:
    """Train the GPT on 8 ranks with the parts in this folder's notebooks; return the losses that this rank knows."""
    sizes = {"data": 1, "shard": 2, "pipeline": 2, "tensor": 2}
    return train_hybrid(my_parts(**sizes), 20, **sizes)


# %% [markdown]
# ```
# labkit export 14_hybrid_parallelism.ipynb --out hybrid.py
# torchrun --nproc-per-node 8 hybrid.py
# ```
#
# Save your notebooks; the next cell lists the exercises they show as passed.

# %% tags=["nbval-ignore-output"]
labkit.built()

# %% [markdown]
# ## 10 What stays
#
# * The last axis has the fastest links. Partial sums travel most: put `tensor` last. Messages between stages cost
#   least: put `pipeline` first, and `data` between.
# * For every weight ask who else holds it, and what they saw. That decides each sum, and what counts once in a norm.
# * Only replicas split the batch. With more replicas, each computes less and has fewer partial sums. Bubble, messages
#   and gradients do not shrink.
# * A pipeline's first stage is the fullest: it has the most microbatches in flight. Make room there, not everywhere.
#
# **The next question.** You tried hundreds of plans in a second, because a formula stood in for the cluster. How far
# can you trust it? What would you measure first?

# %% [markdown] tags=["slide-only"]
# ## What stays
#
# * `tensor` last, `data` before it, `pipeline` first
# * who else holds it, and what did they see?
# * only replicas split the batch
#
# Next: a formula stood in for the cluster. How far do you trust it?

# %% [markdown]
# ## Bonus: Stages that are not alike
#
# The best known plans of [[lay_out]] deal out layers unevenly. In the 7 B job the first stage holds the most
# microbatches, so it must recompute layers and is the slowest. The last stage holds the fewest and recomputes less. The
# slowest stage sets the pace, so AdaPipe also moves layers from the first stage to the last. The best plan of the 36 B
# job wins in another way. It recomputes nothing, and has 32 stages. They cannot share 80 layers equally, so each has 1
# to 3. Llama 3's first and last stages have fewer layers for yet another reason: the first also has the embedding, the
# last the output layer.
#
# ### Exercise [[deal_layers]]
#
# *10 points, about 25 minutes; difficulty 4 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="deal_layers" points=10 difficulty=4 importance=3 minutes=25 title="Stages that are not alike" provides=["deal_layers"] bonus=true
def deal_layers(seconds: list[list[float]], num_layers: int, num_microbatches: int) -> list[int]:
    """Return how many layers each stage gets, one or more, so that a step is as short as possible.

    With M microbatches, a step takes sum(t) + (M - 1) * max(t), where t has the seconds of each stage.

    Args:
        seconds: seconds[s][n - 1] is how long stage s takes for a microbatch with n layers, recomputation included. It
            rises with n, not always evenly. The list of a stage ends where no more layers fit in its memory; together
            the stages have room for num_layers.
        num_layers: Layers of the model.
        num_microbatches: M, microbatches of a step.
    """
    # BEGIN SOLUTION deal_layers
    best, least = [], float("inf")
    for limit in sorted({time for row in seconds for time in row}):
        if (num_microbatches - 1) * limit >= least:
            break
        ways = {0: (0.0, [])}  # by layers dealt out: the least sum, and how
        for row in seconds:
            tries = [
                (done + n, (total + time, [*layers, n]))
                for done, (total, layers) in ways.items()
                for n, time in enumerate(row, 1)
                if time <= limit and done + n <= num_layers
            ]
            ways = {}
            for done, way in tries:
                ways[done] = min(ways.get(done, way), way)
        if num_layers in ways and ways[num_layers][0] + (num_microbatches - 1) * limit < least:
            least = ways[num_layers][0] + (num_microbatches - 1) * limit
            best = ways[num_layers][1]
    return best
    # END SOLUTION


# %% tags=["check"]
labkit.check("deal_layers", deal_layers)

# %% [markdown]
# ## Bonus: A ring as an axis of the mesh
#
# A text too long for one GPU is cut, too. Along an axis `context`, ranks hold different tokens of the same samples. For
# weights they are like replicas: each rank has seen its own targets, so gradients are weighted and summed along this
# axis. For attention they are a **ring**: keys and values go round in blocks, and each rank's queries meet all of them.
# No rank ever holds all keys, or the scores of its queries with all keys.
#
# Softmax does not need all scores at once. Keep each query's largest score so far, its sum of exponentials and its
# weighted sum of values; rescale both sums whenever the largest grows. (The bonus of lesson 12 asked for this much.)
#
# Backward is new. A key's gradient comes from *every* query that saw it, and those are on other ranks. And scores were
# not kept. So forward returns, besides its output, one number for each query: the logarithm of its sum of exponentials.
# From that, backward recomputes the attention weights, block by block. Softmax's backward also needs a sum over each
# query's whole row. You can get it from the output, without a second pass around the ring.
#
# ### Exercise [[context_ring]]
#
# *15 points, about 75 minutes; difficulty 5 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="context_ring" points=15 difficulty=5 importance=3 minutes=75 title="Around the ring, and back" provides=["ring_forward", "ring_backward"] bonus=true
# BEGIN SOLUTION context_ring
def passed_on(tensors, place, size, group):
    coming = [torch.empty_like(each) for each in tensors]
    for mine, new in zip(tensors, coming, strict=True):
        send = dist.P2POp(dist.isend, mine, group=group, group_peer=(place + 1) % size)
        receive = dist.P2POp(dist.irecv, new, group=group, group_peer=(place - 1) % size)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()
    return coming


# END SOLUTION


def ring_forward(
    q: Tensor, k: Tensor, v: Tensor, places: Tensor, group: dist.ProcessGroup | None = None
) -> tuple[Tensor, Tensor]:
    """Return causal attention of this rank's queries over all keys of the group, and each query's logsumexp.

    Each rank sends only to the next rank of the group, and the last rank to the first. No collective of
    torch.distributed is called (batch_isend_irecv is none). In forward and backward together, a rank sends at most
    (2N - 1) times the bytes of its k, v and places, plus N times the bytes of its gradients of k and v. The number of
    messages is up to you. For a fixed T/N, a rank's memory does not grow with N. Autograd is off.

    Args:
        q, k, v: Of this rank's tokens, shape (B, H, T/N, K); scores are divided by the root of K.
        places: Where these tokens are in the text, ascending, shape (T/N,). They may be any places, and other ranks do
            not know them.
        group: N ranks along the axis; None for all.

    Returns:
        The output, shape (B, H, T/N, K), and the logarithm of the sum of exp(score) over all keys that a query sees,
        its own and earlier ones, shape (B, H, T/N, 1).
    """
    # BEGIN SOLUTION context_ring
    size, place = dist.get_world_size(group), dist.get_rank(group)
    held = [k.contiguous(), v.contiguous(), places]
    largest = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total, mixed = torch.zeros_like(largest), torch.zeros_like(q)
    for step in range(size):
        if step:
            held = passed_on(held, place, size, group)
        keys, values, where = held
        if where[0] > places[-1]:
            continue  # all of them are later than all queries
        scores = q @ keys.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(where[None, :] > places[:, None], float("-inf"))
        grown = torch.maximum(largest, scores.amax(-1, keepdim=True))
        weights, old = (scores - grown).exp(), (largest - grown).exp()
        total = total * old + weights.sum(-1, keepdim=True)
        mixed = mixed * old + weights @ values
        largest = grown
    return mixed / total, largest + total.log()
    # END SOLUTION


def ring_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, places: Tensor, out: Tensor, logsumexp: Tensor,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of this rank's q, k and v, by the rules of ring_forward.

    Args:
        gradient: The gradient of this rank's output.
        q, k, v, places: As in ring_forward.
        out, logsumexp: What ring_forward returned.
        group: As in ring_forward.
    """
    # BEGIN SOLUTION context_ring
    size, place = dist.get_world_size(group), dist.get_rank(group)
    k, v = k.contiguous(), v.contiguous()
    root, row = q.shape[-1] ** 0.5, (gradient * out).sum(-1, keepdim=True)
    of_q = torch.zeros_like(q)
    held = [k, v, places, torch.zeros_like(k), torch.zeros_like(v)]
    for _ in range(size):
        keys, values, where, of_keys, of_values = held
        scores = q @ keys.transpose(-1, -2) / root
        weights = (scores - logsumexp).exp().masked_fill(where[None, :] > places[:, None], 0.0)
        slopes = weights * (gradient @ values.transpose(-1, -2) - row) / root
        of_q += slopes @ keys
        of_keys += slopes.transpose(-1, -2) @ q
        of_values += weights.transpose(-1, -2) @ gradient
        held = passed_on(held, place, size, group)
    return of_q, held[3], held[4]
    # END SOLUTION


# %% tags=["check"]
labkit.check("context_ring", ring_forward, ring_backward)

# %% [markdown]
# Here is your ring on an axis of a mesh: eight virtual ranks, two texts along `data`, each cut into four along
# `context`. How far are its output and gradients from each text's attention in one process?


# %%
def furthest_off(**sizes):
    mesh = Mesh(**sizes)
    ring, draw = mesh.groups["context"], torch.Generator().manual_seed(mesh.place["data"])
    q, k, v, gradient = (torch.randn(1, 2, 64, 8, generator=draw) for _ in range(4))
    places = torch.arange(64).chunk(sizes["context"])[mesh.place["context"]]
    mine = [each[:, :, places] for each in (q, k, v)]
    with torch.no_grad():
        out, logsumexp = ring_forward(*mine, places, ring)
        found = ring_backward(gradient[:, :, places], *mine, places, out, logsumexp, ring)
    leaves = [each.requires_grad_() for each in (q, k, v)]
    whole = functional.scaled_dot_product_attention(*leaves, is_causal=True)
    wanted = (whole, *torch.autograd.grad(whole, leaves, gradient))
    return max((a - b[:, :, places]).abs().max().item() for a, b in zip((out, *found), wanted, strict=True))


off = labkit.run(lambda: furthest_off(context=4, data=2, pipeline=1), on=labkit.virtual(8), echo=False).results
print("equal, up to rounding" if max(off) < 1e-5 else off)

# %% [markdown]
# These ranks hold their tokens in order. A ring may skip a block whose keys are all later than a rank's queries: then
# rank 0 is soon done, and waits. **Zig-zag** gives each rank two shorter pieces, one from the beginning and one from
# the end, so that every rank has the same number of (query, key) pairs to compute. Count only the pairs in which the
# query may see the key; a rank's block with itself counts about half.
#
# **[[ring_balance]].** The text is long and only computing counts. With 8 ranks, by what factor is zig-zag faster than
# a ring whose ranks hold their tokens in order and skip those blocks?

# %% tags=["why"] exercise="ring_balance" title="Zig-zag" bonus=true
labkit.answer("ring_balance", 1.875)

# %% [markdown] tags=["slide-only"]
# ## A ring of tokens, and back
#
# * forward: keys and values go round, N - 1 passes
# * backward: their **gradients** go with them, N passes
#
# **To the room:** in order, who is done first?
#
# <!-- notes: Rank 0: it has half a block, the last rank seven and a half of eight. Zig-zag is 1.875 times as fast. -->

# %% [markdown]
# ## Bonus: Experts
#
# A **mixture of experts** has many MLPs in a layer and uses one for each token: more weights, the same work. A
# **router** decides: the largest of `softmax(x @ router)` says which expert, and how much its result counts (the
# **gate**). The output is `x + gate * expert(x)`.
#
# Along an axis `expert`, each rank holds experts and tokens of its own. So tokens travel: an all-to-all brings each to
# its expert, another one brings the result back. How many go where is not known in advance.
#
# What if everybody asks for the same expert? Two answers, both from Switch Transformer (Fedus and others, 2021). Each
# expert has a **capacity**. It takes the first tokens that ask for it: rank 0's in their order, then rank 1's, and so
# on. Later tokens skip it: their output is `x`. So the tokens that are dropped do not depend on the number of ranks:
# they are those that one process would drop, with all tokens in the order of the ranks.
#
# And a **balance loss** pulls the router towards equal shares: `E * sum(f * P)` over E experts. `f` is the share of
# tokens that ask for an expert, taken or not, and `P` is its mean probability; both count all tokens of the group.
#
# ### Exercise [[expert_parallel]]
#
# *15 points, about 50 minutes; difficulty 4 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="expert_parallel" points=15 difficulty=4 importance=3 minutes=50 title="Experts" provides=["expert_layer"] bonus=true
def expert_layer(
    x: Tensor, router: Tensor, experts: list[nn.Module], capacity: int, group: dist.ProcessGroup | None = None
) -> tuple[Tensor, Tensor]:
    """Return the layer's output for this rank's tokens, and the balance loss, the same on every rank of the group.

    A token that is taken goes to its expert's rank and back; nothing else travels but a few numbers for each expert. No
    expert computes more than its capacity; one that gets no token may be called or not. Autograd is off.

    Args:
        x: This rank's tokens, shape (T, D); other ranks may have more or fewer. Some ranks may have none, but not all.
        router: Shape (D, E), the same on every rank.
        experts: The E/N experts of this rank, each from (n, D) to (n, D): rank r of the group has experts r E/N up to,
            not including, (r + 1) E/N.
        capacity: How many tokens an expert takes, of all ranks of the group together.
        group: N ranks along the axis; None for all.
    """
    # BEGIN SOLUTION expert_parallel
    num_experts, size, place = router.shape[1], dist.get_world_size(group), dist.get_rank(group)
    chances = (x @ router).softmax(-1)
    gate, chosen = chances.max(-1)
    asks = functional.one_hot(chosen, num_experts)  # (T, E)
    told = torch.cat([asks.sum(0).to(x.dtype), chances.sum(0)])
    everybody = [torch.empty_like(told) for _ in range(size)]
    dist.all_gather(everybody, told, group=group)
    counts, sums = torch.stack(everybody).split(num_experts, dim=1)  # (N, E) each
    balance = num_experts * (counts.sum(0) * sums.sum(0)).sum() / counts.sum() ** 2

    number = counts[:place].sum(0)[chosen] + asks.cumsum(0).gather(1, chosen[:, None])[:, 0] - 1
    rows = (number < capacity).nonzero().flatten()
    rows = rows[chosen[rows].argsort(stable=True)]  # this rank's tokens that are taken, sorted by expert
    up_to = functional.pad(counts.cumsum(0).clamp(max=capacity), (0, 0, 1, 0))
    taken = up_to.diff(dim=0).long().view(size, size, -1)  # from which rank, to which rank, to which of its experts
    sent, received = taken[place].sum(-1).tolist(), taken[:, place].sum(-1).tolist()

    inbox, back = x.new_empty(sum(received), x.shape[1]), x.new_empty(len(rows), x.shape[1])
    dist.all_to_all_single(inbox, x[rows], received, sent, group=group)
    whose = torch.arange(len(experts)).repeat(size).repeat_interleave(taken[:, place].flatten())
    for mine, expert in enumerate(experts):
        inbox[whose == mine] = expert(inbox[whose == mine])
    dist.all_to_all_single(back, inbox, sent, received, group=group)
    out = x.clone()
    out[rows] += gate[rows, None] * back
    return out, balance
    # END SOLUTION


# %% tags=["check"]
labkit.check("expert_parallel", expert_layer)

# %% [markdown]
# In backward, gradients take the reverse path: the same all-to-all, with input and output splits swapped.

# %% [markdown] tags=["slide-only"]
# ## Experts: all-to-all, there and back
#
# * all-to-all: each token to its expert, and back
# * capacity: first come, first served
# * balance loss: `E * sum(f * P)`, 1 where all are asked alike
#
# **To the room:** everybody asks for one expert. What is the loss?
#
# <!-- notes: Up to E, where the router is sure. Tokens beyond capacity pass the layer unchanged. -->

# %% [markdown]
# ### Sources
#
# * D. Narayanan and others, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC
#   2021: tensor ranks inside a node, stages across nodes, replicas for the rest.
# * Z. Sun and others, "AdaPipe: Optimizing Pipeline Parallelism with Adaptive Recomputation and Partitioning", ASPLOS
#   2024: what each stage recomputes, and how many layers it gets.
# * The Llama team, "The Llama 3 Herd of Models" (2024), section 3.3: the order of the axes, and why.
# * H. Liu, M. Zaharia and P. Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context" (2023); T.
#   Dao and others, "FlashAttention" (2022): attention weights recomputed in backward; W. Brandon and others, "Striped
#   Attention" (2023).
# * W. Fedus, B. Zoph and N. Shazeer, "Switch Transformers: Scaling to Trillion Parameter Models with Simple and
#   Efficient Sparsity" (2021): one expert a token, capacity, the balance loss.
# * V. Korthikanti and others, "Reducing Activation Recomputation in Large Transformer Models" (2022): the activations
#   that a layer keeps.
# * PyTorch documentation: `init_device_mesh`, `parallelize_module`, `fully_shard`, `torch.distributed.pipelining`.
