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
# Two teams train the same 70 billion parameters on the same 512 H100s: the same batch, the same eight-way data, pipeline and
# tensor parallelism. One job reaches 17 % of the GPUs' peak, the other 48 %. The only difference is *which GPU does what*.
#
# You have built every axis by itself. In this lesson you put them together: the mesh, the step, one gradient and one norm for
# all ranks. At the end your parts train the course's GPT on eight ranks, to the losses of a single process, beside torch's own.
#
# **Time:** [[minutes]] minutes. **You need** lessons 09, 12 and 13, or `labkit.lend` for what you skipped; no GPU.
#
# **Stuck?** `labkit.hint("mesh_groups")` gives up to three hints. `labkit.lend("mesh_groups")` puts a working version into
# the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 14 All of them at once
#
# 512 H100s, 70 billion parameters: 17 % of peak, or 48 %
#
# <!-- notes: Same model, same GPUs, same degrees of parallelism. The only difference is which GPU does what. -->

# %% tags=["given"]
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

import labkit
from labkit.hybrid_gpt import Weight
from labkit.plans.hybrid_step import SEVENTY_BILLION, Job, MeshPlan, cost, fault

# %%
for order in ("tensor data pipeline", "data pipeline tensor"):
    plan = MeshPlan(tuple((axis, 8) for axis in order.split()))
    print(f"{order:20}  {100 * cost(SEVENTY_BILLION, plan).of_peak:.0f} % of peak")

# %% [markdown]
# ## 1 Axes and their order
#
# A **mesh** gives each rank a place on every **axis**. Count through the places as a clock does: the last axis turns fastest.
# `{"data": 2, "pipeline": 2, "tensor": 2}` puts rank 5 at data 1, pipeline 0, tensor 1.
#
# Ranks that differ *only* in their tensor place form a group along `tensor`, and so for every axis. Each rank is in one group
# along each axis, and every collective of this lesson runs in such a group.

# %% tags=["figure"]
labkit.figure("mesh", data=2, tensor=4)

# %% [markdown]
# Order matters, because ranks are numbered machine by machine: ranks 0 to 7 share the first one. Along the last axis,
# neighbours sit in the same machine. Along the first one, they are as far apart as they can be.
#
# `dist.new_group(ranks)` is a call for *everybody*: every rank makes every group, in the same order, also those it is not in.
#
# ### Exercise [[mesh_groups]]
#
# *20 points, about 9 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="mesh_groups" points=20 difficulty=2 importance=5 minutes=9 title="The mesh" provides=["coordinates", "ranks_along", "group_along"]
def coordinates(rank: int, sizes: dict[str, int]) -> dict[str, int]:
    """Return a rank's place on each axis.

    Args:
        rank: 0 to the product of sizes.
        sizes: Ranks along each axis, outermost axis first: the last one counts fastest.
    """
    # BEGIN SOLUTION mesh_groups
    place = {}
    for axis in reversed(sizes):
        rank, place[axis] = divmod(rank, sizes[axis])
    return {axis: place[axis] for axis in sizes}
    # END SOLUTION


def ranks_along(rank: int, sizes: dict[str, int], *axes: str) -> list[int]:
    """Return, ascending, the ranks that have this rank's place on all other axes, itself among them."""
    # BEGIN SOLUTION mesh_groups
    mine, count = coordinates(rank, sizes), torch.Size(sizes.values()).numel()
    others = [axis for axis in sizes if axis not in axes]
    return [r for r in range(count) if all(coordinates(r, sizes)[axis] == mine[axis] for axis in others)]
    # END SOLUTION


def group_along(sizes: dict[str, int], *axes: str) -> dist.ProcessGroup:
    """Return the process group of this rank along these axes; all ranks of the mesh call this."""
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

# %% [markdown] tags=["slide-only"]
# ## A mesh
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
# From here on every function gets a `mesh`. It has one axis more than you saw: along `shard`, ranks share the optimizer's
# state, as in lesson 13. The first and the last stage have a group of their own, `ends`.


# %% tags=["given"]
class Mesh:
    def __init__(self, **sizes: int) -> None:
        self.sizes, self.place = sizes, coordinates(dist.get_rank(), sizes)
        self.groups = {axis: group_along(sizes, axis) for axis in sizes}  # this rank's group along each axis
        self.ends = None  # first and last stage; None on other ranks, and with a single stage
        for rank in range(dist.get_world_size()):
            stages = ranks_along(rank, sizes, "pipeline")
            if rank == stages[0] != stages[-1]:
                group = dist.new_group([stages[0], stages[-1]])
                self.ends = group if dist.get_rank() in (stages[0], stages[-1]) else self.ends


# %% [markdown]
# ## 2 Who gets what
#
# Only two axes split the batch: `data` and `shard`. A place on both is a **replica**. Tensor ranks and stages of one replica
# all work on the same samples. Replica number `data place x shard ranks + shard place` takes the next run of consecutive
# samples, in microbatches of equal size.
#
# Random numbers follow the same map. Where nothing is cut, tensor ranks hold the *same* activations, so they must drop the
# same ones. Where activations are cut, each holds a piece of its own and needs a mask of its own. Other samples and other
# layers always need other masks.
#
# ### Exercise [[who_gets_what]]
#
# *15 points, about 7 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="who_gets_what" points=15 difficulty=2 importance=4 minutes=7 title="Who gets what" provides=["my_samples", "dropout_seed"]
def my_samples(batch: int, microbatch: int, sizes: dict[str, int], place: dict[str, int]) -> list[list[int]]:
    """Return the numbers of the samples in each microbatch of the rank at this place, in order.

    Args:
        batch: Samples of a step, numbered from 0.
        microbatch: Samples of a microbatch.
        sizes: Of "data", "shard", "pipeline" and "tensor".
        place: On the same axes.

    Raises:
        ValueError: If whole microbatches, equally many on every replica, do not make up the batch.
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

    Args:
        seed: The run's.
        sizes: Of "data", "shard", "pipeline" and "tensor".
        place: On the same axes.
        is_cut: Whether tensor ranks hold pieces of the activations; else they hold the same ones.
    """
    # BEGIN SOLUTION who_gets_what
    number = 0
    for axis in ("data", "shard", "pipeline", "tensor"):
        number = number * sizes[axis] + (place[axis] if is_cut or axis != "tensor" else 0)
    return seed * 10_007 + number
    # END SOLUTION


# %% tags=["check"]
labkit.check("who_gets_what", my_samples, dropout_seed)

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
# ## 3 One gradient
#
# After backward, every rank has gradients of its own. Three questions decide what must be added up.
#
# * **Who holds the same weight?** Replicas do. Tensor ranks hold other *pieces* of a cut matrix, but the same norms and the same
#   biases after a sum. And the embedding is on two stages: it is *tied* to the output layer.
# * **Did they compute the same gradient?** A bias after a sum sees everything on every tensor rank: its gradient is whole
#   already. With sequence parallelism each saw *its tokens* only: a partial sum. And each end of the pipeline has only what
#   its own use of the embedding contributes.
# * **By which weight?** The step's loss is the mean over all targets of the batch. A replica's gradient is the mean over
#   *its* targets, and replicas do not have equally many.
#
# What comes out is a shard for each weight, as lesson 13 cut them.

# %% [markdown] tags=["slide-only"]
# ## Who adds what to whom?
#
# | | data, shard | tensor | ends |
# |---|---|---|---|
# | cut matrix | sum | | |
# | bias after a sum | sum | | |
# | norm, own tokens | sum | **sum** | |
# | embedding, tied | sum | | **sum** |
#
# <!-- notes: Everything is summed over replicas, weighed by targets. The other two columns are where people go wrong. -->

# %% [markdown]
# ### Exercise [[combine_gradients]]
#
# *25 points, about 13 minutes; difficulty 4 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="combine_gradients" points=25 difficulty=4 importance=5 minutes=13 title="One gradient" provides=["combine_gradients"]
def combine_gradients(weights: list[Weight], mesh: Mesh, num_targets: int) -> list[Tensor]:
    """Return this rank's shard of each weight's gradient: that of the mean loss over all targets of the batch.

    A shard is flat: of the gradient, padded with zeros at its end, the run number mesh.place["shard"] of as many equal
    runs as that axis has ranks.

    Args:
        weights: Of this rank's stage. weight.parameter.grad is the gradient of the mean loss over the targets that this
            rank's replica has. weight.tensor says what the other tensor ranks hold: "cut" (other pieces of it), "whole"
            (the same, each has computed the whole gradient) or "tokens" (the same, each has seen its own tokens only).
            weight.tied: the first and the last stage both hold it. With one stage it is there once.
        mesh: With the axes "data", "shard", "pipeline" and "tensor": sizes, place, groups, ends.
        num_targets: How many targets this rank's replica has.
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

# %% [markdown]
# (An all-reduce along `shard`, of which each rank keeps a part, sends twice what a reduce-scatter would. Lesson 13 has the
# better one. Here what counts is *who*.)
#
# ## 4 One norm
#
# Clipping needs the norm of the *whole* gradient: each element once. Your shards lie on a mesh on which some elements exist
# many times. Replicas along `data` hold the same shards. Every tensor rank holds the norms and biases. Both ends of the
# pipeline hold the embedding. Count one of them twice, and every step is clipped a little too much: no error, only a model
# that learns more slowly than it should.
#
# ### Exercise [[clip_whole]]
#
# *15 points, about 8 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="clip_whole" points=15 difficulty=3 importance=5 minutes=8 title="One norm" provides=["clip_whole"]
def clip_whole(weights: list[Weight], shards: list[Tensor], mesh: Mesh, max_norm: float) -> Tensor:
    """Scale this rank's shards in place, so that the norm of the whole gradient is at most max_norm.

    Returns the norm as it was before, the same on every rank. A gradient that is short enough stays as it is.

    Args:
        weights: Of this rank's stage.
        shards: Of the gradient of each weight, as combine_gradients returns them; replicas along "data" hold the same.
        mesh: As there.
        max_norm: What the norm may be.
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

# %% [markdown] tags=["slide-only"]
# ## Each element once
#
# Some elements are there many times: on replicas, on tensor ranks, on both ends.
#
# **To the room:** what happens if you count one twice?
#
# <!-- notes: No error. Every step is clipped a little too much. -->

# %% [markdown]
# ## 7 Lay out your own
#
# ### Exercise [[lay_out]]
#
# *25 points, about 12 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["design"] exercise="lay_out" points=25 difficulty=3 importance=4 minutes=12 title="Your own mesh" provides=["lay_out"]
def lay_out(job: Job) -> MeshPlan:
    """Return a fast plan for a step of this job that takes at most job.memory_bytes on each GPU."""
    # BEGIN SOLUTION lay_out
    from itertools import permutations

    divisors = [each for each in range(1, job.num_gpus + 1) if job.num_gpus % each == 0]
    best = None
    for tensor in divisors:
        for stages in (each for each in divisors if job.num_gpus // tensor % each == 0):
            ranks = {"tensor": tensor, "pipeline": stages, "data": job.num_gpus // tensor // stages}
            for order in permutations(ranks):
                for microbatch in (1, 2, 4, 8):
                    plan = MeshPlan(tuple((axis, ranks[axis]) for axis in order), microbatch)
                    if not fault(job, plan) and cost(job, plan).peak_bytes <= job.memory_bytes:
                        best = min(best or plan, plan, key=lambda each: cost(job, each).seconds)
    return best
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("lay_out", lay_out)
