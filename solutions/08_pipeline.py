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
# # 08 Pipelines
#
# A model that does not fit on one device. You will cut it in two ways, between its layers and inside them, keep all
# parts busy, and prove that the gradients are those of the whole.

# %% [markdown]
# **What you will be able to do**
#
# * say what fills the memory of a device in training, and how many devices a model needs;
# * run forward *and backward* across a cut, with nothing but `send` and `recv`;
# * split a linear layer by columns and by rows, with the two operators that Megatron calls f and g;
# * write a pipeline's schedule as data, GPipe and 1F1B, and find a deadlock on paper;
# * run any such schedule, with gradients equal to those of the whole batch;
# * predict the bubble, find it on the virtual cluster, measure it, and choose the number of microbatches;
# * trade memory for time by recomputing, and put pipelines and data parallelism on one mesh.
#
# **Time:** about two and a half hours, and 65 minutes more for the three bonus exercises.
#
# **What you must know:** `send`, `recv` and `batch_isend_irecv` of lesson 02, and how autograd goes backward. If you
# did not finish lesson 02, go on: nothing here calls your code from there. (With `use_mine`, section 12 runs on your
# `MiniDDP` of lesson 05, too.)
#
# **Points.** As before, they rest on other cases than those that `labkit.check` shows: other numbers of stages and
# microbatches, and batches that do not divide.

# %% tags=["parameters"]
use_mine = False  # True: section 12 also runs on the MiniDDP that you wrote in lesson 04

# %% tags=["given"]
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit

# %% [markdown]
# ## 1 What must fit
#
# Training in float32 takes 4 bytes for each parameter, 4 for its gradient, and 8 for the two numbers that Adam keeps
# beside it. That is what must fit before the first sample comes. **A billion parameters: how many GB is that?**

# %% tags=["predict"]
labkit.predict("parameter_gigabytes", 4, unit="GB")

# %% [markdown]
# Then the **activations**: whatever forward computes and backward needs again. They do not grow with the model alone,
# but with the batch, the length of the sequences and the number of layers.
#
# ### Exercise [[memory_budget]]
#
# *4 points, about 4 minutes; difficulty 1 of 5, importance 4 of 5*
#
# In the third function the device's memory is shared by equal stages: each holds its share of everything.


# %% tags=["exercise"] exercise="memory_budget" points=4 difficulty=1 importance=4 minutes=4 title="The memory budget" provides=["state_bytes", "gradient_bytes", "stages_needed"]
def state_bytes(num_parameters: int, bytes_per_number: int = 4) -> int:
    """Return the bytes of parameters, gradients and Adam's two numbers for each parameter, all of one size."""
    # BEGIN SOLUTION memory_budget
    return (1 + 1 + 2) * num_parameters * bytes_per_number
    # END SOLUTION


def gradient_bytes(num_parameters: int, bytes_per_number: int = 4) -> int:
    """Return the bytes of all gradients of one step, what data parallelism must sum over the ranks."""
    # BEGIN SOLUTION memory_budget
    return num_parameters * bytes_per_number
    # END SOLUTION


def stages_needed(num_parameters: int, activation_bytes: int, device_bytes: int) -> int:
    """Return the smallest number of equal stages that fit: each holds its share of state (float32) and activations.

    Args:
        num_parameters: Of the whole model.
        activation_bytes: Of the whole model.
        device_bytes: Memory of one device.
    """
    # BEGIN SOLUTION memory_budget
    return -(-(state_bytes(num_parameters) + activation_bytes) // device_bytes)
    # END SOLUTION


# %% tags=["check"]
labkit.check("memory_budget", state_bytes, gradient_bytes, stages_needed)

# %%
GB = 10**9
labkit.reveal("parameter_gigabytes", state_bytes(10**9) / GB)

# %% [markdown]
# A widely taught rule of thumb (source at the end) allows 8 bytes more for each parameter, activations and temporary
# memory together, as a high estimate, and arrives at 24 GB for a billion parameters. The first 16 are arithmetic, the
# last 8 a guess about your batch.

# %%
print("parameters      state   gradients a step   80 GB devices, with 8 bytes a parameter for activations")
for billions in (1, 7, 70, 175):
    n = billions * 10**9
    state, gradients, devices = state_bytes(n) // GB, gradient_bytes(n) // GB, stages_needed(n, 8 * n, 80 * GB)
    print(f"{billions:6} billion {state:6} GB {gradients:11} GB {devices:15}")

# %% [markdown]
# The last row is a model of GPT-3's size. Its gradients alone are 700 GB a step in float32, and state and allowance
# together fill more than fifty devices. You cannot copy it to every rank, as in lesson 04. You must **cut** it.

# %% [markdown] tags=["slide"]
# ### What must fit
#
# | a billion parameters, float32, Adam | |
# |---|---:|
# | parameters | 4 GB |
# | gradients | 4 GB |
# | optimizer, two numbers each | 8 GB |
# | **before the first sample** | **16 GB** |
# | activations, temporary memory | often 8 GB; it depends on the batch |
#
# 175 billion parameters: 700 GB of gradients a step, 2,800 GB of state. It has to be cut.

# %% [markdown]
# ## 2 Cut it between layers
#
# The nearest cut: rank 0 holds the first layers, rank 1 the next, and so on. Each such part is a **stage**. This is
# **inter-operator** model parallelism, for whole operators go to different ranks.
#
# Forward is easy: each stage receives what the one before it computed, computes, and sends it on. Backward needs one
# thought. Autograd ends where the message begins. Stage 1 knows only a tensor that came out of the network cable. So
# you carry the gradient across yourself:
#
# 1. what a stage receives becomes a leaf: `entered.requires_grad_()`;
# 2. the next stage sends back the gradient of what it was sent;
# 3. `torch.autograd.backward(left, gradient)` goes on from there, and `entered.grad` is what the stage before needs.
#
# That is the chain rule, with a cable in the middle.

# %% [markdown] tags=["slide"]
# ### Backward across a cut
#
# ```
# stage 0                                   stage 1
# left = module(x)         -- send left ->  entered.requires_grad_()
#                                           loss = loss_fn(module(entered), target)
#                                           loss.backward()
# autograd.backward(left, grad)  <- send entered.grad --
# ```
#
# Autograd stops at the cable. You carry the gradient.

# %% [markdown]
# ### Exercise [[one_batch]]
#
# *10 points, about 10 minutes; difficulty 3 of 5, importance 5 of 5*
#
# Every rank is the stage of its own number. `sample` says what one sample looks like when it enters this stage, so
# that you can make room for what arrives: `sample.new_empty((num_samples, *sample.shape))`. What goes back has the
# shape of what you sent. What is sent must be contiguous and must not drag its graph along: `left.detach()`.
#
# Put names on the timeline, for the pictures and the bubble that follow: `with labkit.span("F"):` around forward, and
# `with labkit.span("B"):` around backward.


# %% tags=["exercise"] exercise="one_batch" points=10 difficulty=3 importance=5 minutes=10 title="One batch through the stages" provides=["run_stage"]
def run_stage(
    module: nn.Module,
    sample: Tensor,
    num_samples: int,
    inputs: Tensor | None = None,
    targets: Tensor | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor | None:
    """Carry a whole batch forward and backward through this rank's stage; gradients are added to .grad.

    Args:
        module: This stage's layers.
        sample: One sample as it enters this stage, without the batch dimension: shape, dtype and device count.
        num_samples: Samples in the batch.
        inputs: The batch, on the first stage (rank 0); else None.
        targets: What should come out, on the last stage; else None.
        loss_fn: loss_fn(outputs, targets) is the mean over the samples; on the last stage.

    Returns:
        The loss on the last stage, detached; None on the others.
    """
    # BEGIN SOLUTION one_batch
    stage = dist.get_rank()
    is_last = stage == dist.get_world_size() - 1
    if stage == 0:
        entered = inputs
    else:
        entered = sample.new_empty((num_samples, *sample.shape))
        dist.recv(entered, src=stage - 1)
        entered.requires_grad_()
    with labkit.span("F"):
        left = module(entered)

    loss, gradient = None, None
    if is_last:
        left = loss_fn(left, targets)
        loss = left.detach()
    else:
        dist.send(left.detach().contiguous(), dst=stage + 1)
        gradient = torch.empty_like(left, memory_format=torch.contiguous_format)
        dist.recv(gradient, src=stage + 1)
    with labkit.span("B"):
        torch.autograd.backward(left, gradient)
    if stage > 0:
        dist.send(entered.grad.contiguous(), dst=stage - 1)
    return loss
    # END SOLUTION


# %% tags=["check"]
labkit.check("one_batch", run_stage)

# %% [markdown]
# Now a model with something to compute: four stages of twelve linear layers each, on four virtual H100s. The layers are
# wide and there are 16,384 samples, so that arithmetic is what takes the time. Their numbers live on the device
# `meta`: PyTorch knows every shape and does no arithmetic, so the laptop is not asked to be four H100s.


# %% tags=["given"]
def message_device() -> torch.device:
    """Return where tensors must live to be sent: this rank's GPU with NCCL, the CPU with gloo."""
    return labkit.device() if "nccl" in dist.get_backend() else torch.device("cpu")


def layers(width: int, num_layers: int, device: torch.device | str) -> nn.Sequential:
    """Return that many linear layers, each followed by a ReLU, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width, device=device), nn.ReLU()) for _ in range(num_layers)))


# %%
WIDTH, SAMPLES, LAYERS = 16384, 16384, 12  # of each stage


def one_large_batch():
    stage, last = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
    module = layers(WIDTH, LAYERS, "meta")
    x = torch.empty(SAMPLES, WIDTH, device="meta", requires_grad=True)  # so that stage 0's backward costs as much
    sample = torch.empty(WIDTH, device="meta")
    run_stage(module, sample, SAMPLES, x if stage == 0 else None, x if last else None, nn.functional.mse_loss)


# %% [markdown]
# All the samples go through in one batch: forward on stage 0, then on 1, 2 and 3, and backward the same way back.
# **What share of the time do the four devices wait, on average?**

# %% tags=["predict"]
labkit.predict("idle_share", 0.5)


# %% tags=["given"]
def bubble_of(timeline: labkit.Timeline) -> float:
    """Return the share of time in which a stage runs neither forward (spans F...) nor backward (B...)."""
    work = [span for span in timeline.rows() if span.kind == "span" and span.name[:1] in ("F", "B")]
    if not work:
        raise ValueError(
            'No spans F... and B... here: wrap forward in labkit.span("F0"), backward in labkit.span("B0").'
        )
    whole = max(span.end_ns for span in work) - min(span.start_ns for span in work)
    return 1 - sum(span.duration_ns for span in work) / (timeline.num_ranks * whole)


# %%
one_batch = labkit.run(one_large_batch, on=labkit.virtual(4))
labkit.reveal("idle_share", bubble_of(one_batch.timeline), one_batch.timeline)

# %% [markdown]
# A staircase up and a staircase down, and hardly ever two stages at work together. Four devices, and the work of one. You bought memory, not speed. The waiting has a name, the **bubble**, and most of
# this lesson is about making it small. But first the other cut.

# %% [markdown]
# ## 3 Cut it inside a layer
#
# A linear layer is a matrix product, and a matrix can be cut. This is **intra-operator** model parallelism (tensor
# parallelism). Two linear layers with a nonlinearity between them, the MLP of a transformer, can be cut so well that
# two all-reduces are all it takes:
#
# * the **first** by columns: each rank holds some of the outputs, with their biases. The nonlinearity works on each
#   output alone, so no rank needs the others';
# * the **second** by rows: each rank takes its own part of the inputs, and the results are *summed* over the ranks.
#   The bias of the second is added once, after the sum.
#
# What travels? Forward: that one sum. Backward: x went into every rank's columns, so its gradient is a sum over the
# ranks too. Megatron-LM (Shoeybi et al., 2019) writes this as two operators that mirror each other:
#
# | | forward | backward | where |
# |---|---|---|---|
# | **f** | nothing | all-reduce | before the columns |
# | **g** | all-reduce | nothing | after the rows |

# %% [markdown] tags=["slide"]
# ### A layer in two halves
#
# $$ Y = \mathrm{g}\big(\phi(\mathrm{f}(X)\,A_r + a_r)\,B_r\big) + b $$
#
# * $A$ by columns, $B$ by rows: rank r holds $A_r$, $a_r$, $B_r$
# * **f**: nothing forward, all-reduce backward. **g**: all-reduce forward, nothing backward
# * two all-reduces for each MLP, in every step, of the *activations* and of their gradients
# * forward, g's is in the way; backward, real systems hide f's behind the gradients of the weights (Megatron-LM)
# * so it needs the fastest links there are, and stays inside one machine

# %% [markdown]
# ### Exercise [[split_layer]]
#
# *10 points, about 10 minutes; difficulty 3 of 5, importance 4 of 5*
#
# An operator with its own backward is a `torch.autograd.Function` with two static methods:
#
# ```python
# class Double(torch.autograd.Function):
#     @staticmethod
#     def forward(ctx, x): return 2 * x
#     @staticmethod
#     def backward(ctx, gradient): return 2 * gradient
# ```
#
# `Double.apply(x)` calls it, and backward returns one gradient for each argument of forward, `None` for those that
# have none. `dist.all_reduce` works in place and wants a contiguous tensor. Do not let it change a tensor that belongs
# to the caller.


# %% tags=["exercise"] exercise="split_layer" points=10 difficulty=3 importance=4 minutes=10 title="Split a layer" provides=["copy_to_ranks", "sum_over_ranks", "split_mlp"]
def copy_to_ranks(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return x as it is; in backward its gradient is the sum over the ranks of group (Megatron's f)."""

    # BEGIN SOLUTION split_layer
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            total = gradient.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=group)
            return total

    return F.apply(x)
    # END SOLUTION


def sum_over_ranks(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return the sum of all ranks' x, a new tensor; in backward the gradient passes as it is (Megatron's g)."""

    # BEGIN SOLUTION split_layer
    class G(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            total = x.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=group)
            return total

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return G.apply(x)
    # END SOLUTION


def split_mlp(
    x: Tensor, columns: nn.Linear, rows: nn.Linear, bias: Tensor, group: dist.ProcessGroup | None = None
) -> Tensor:
    """Return second(gelu(first(x))), computed by all ranks of group together; the same on each of them.

    Args:
        x: The same on every rank, shape (B, D).
        columns: This rank's outputs of the first layer, with their biases.
        rows: This rank's inputs of the second layer, without bias.
        bias: The whole bias of the second layer, the same on every rank.
        group: The ranks that share the layer; None is everybody.
    """
    # BEGIN SOLUTION split_layer
    hidden = nn.functional.gelu(columns(copy_to_ranks(x, group)))
    return sum_over_ranks(rows(hidden), group) + bias
    # END SOLUTION


# %% tags=["check"]
labkit.check("split_layer", copy_to_ranks, sum_over_ranks, split_mlp)

# %% [markdown]
# Count what each cut sends in one step, for a hidden size D and T samples (tokens) in float32. The cut between layers
# sends one activation forward and one gradient backward: 2 · 4TD bytes, to one neighbour. The cut inside an MLP
# all-reduces both, 2(N-1)/N of each, *for every MLP*. **With 24 MLPs on 8 ranks: how many times more bytes does a rank
# send in the second?**

# %% tags=["predict"]
labkit.predict("inside_over_between", 2.0)

# %%
tokens, hidden = 4096, 8192
between_layers = 2 * 4 * tokens * hidden
inside_layers = 24 * 2 * (2 * 7 / 8) * 4 * tokens * hidden
labkit.reveal("inside_over_between", inside_layers / between_layers)

# %% [markdown]
# And those bytes are in the way. Forward, the next layer cannot begin before the sum is there. (Backward is kinder:
# while f's sum travels, a GPU can compute the gradients of the weights, which do not need it. Megatron-LM does. Yours
# waits.) Take one such MLP in bfloat16, 8,192 wide and 32,768 inside, forward and backward, split over eight virtual
# H100s. Inside one machine they have NVLink.
# **In eight machines, with a network card of 50 GB/s each: how many times as fast as one GPU are the eight?**

# %% tags=["predict"]
labkit.predict("eight_machine_speedup", 8.0)


# %%
def split_step():
    ranks = dist.get_world_size()
    with torch.device("meta"):
        x = torch.empty(4096, 8192, dtype=torch.bfloat16, requires_grad=True)
        columns = nn.Linear(8192, 32768 // ranks, dtype=torch.bfloat16)
        rows = nn.Linear(32768 // ranks, 8192, bias=False, dtype=torch.bfloat16)
        bias = torch.empty(8192, dtype=torch.bfloat16, requires_grad=True)
    split_mlp(x, columns, rows, bias).sum().backward()


alone = labkit.run(split_step, on=labkit.virtual(1)).timeline.makespan_ns
speedup, rows = {}, []
for where, world in (("8 GPUs of one machine", labkit.virtual(8)), ("8 machines", labkit.virtual(8, gpus_per_node=1))):
    took = labkit.run(split_step, on=world).timeline.makespan_ns
    speedup[where] = round(alone / took, 1)
    rows.append(f"{where:22} {took / 1e6:5.2f} ms, {alone / took:.1f} times as fast as one GPU")
labkit.reveal("eight_machine_speedup", speedup["8 machines"], rows)

# %% [markdown]
# That is why the two are used together: cuts inside a layer between the GPUs of one machine, where NVLink is; cuts
# between layers from machine to machine. The rest of this lesson is about those, and about the bubble.

# %% [markdown]
# ## 4 Microbatches
#
# The stages wait because there is one batch, and it can be in one place only. So cut the batch. With M
# **microbatches**, stage 0 sends the first one on and goes to work on the second. After P-1 turns all stages are busy.
#
# How large is the bubble then? Say each microbatch takes each stage equally long, and messages take no time. Stage 0
# works on M microbatches. The last stage begins P-1 turns later, and works M turns. Count for forward, and for
# backward the same, in reverse. (Some papers, Megatron's among them, divide the waiting by the *working* time,
# which gives (P-1)/M. Here it is the share of *all* time.)
#
# What does a microbatch cost? Not only its share of the batch: starting kernels, sending messages, matrices too small
# to fill a GPU. Take a fixed `overhead_s` for each microbatch on each stage, forward and backward together.
#
# ### Exercise [[bubble]]
#
# *4 points, about 4 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="bubble" points=4 difficulty=2 importance=5 minutes=4 title="The bubble" provides=["bubble_share", "step_seconds"]
def bubble_share(num_stages: int, num_microbatches: int) -> float:
    """Return the share of all time that a stage waits, where all stages and all microbatches take equally long."""
    # BEGIN SOLUTION bubble
    return (num_stages - 1) / (num_microbatches + num_stages - 1)
    # END SOLUTION


def step_seconds(num_stages: int, num_microbatches: int, batch_seconds: float, overhead_s: float) -> float:
    """Return the time of a step: forward and backward of all microbatches through all stages.

    Args:
        num_stages: P.
        num_microbatches: M.
        batch_seconds: Forward and backward of the whole batch on one stage, without overhead.
        overhead_s: What each microbatch costs each stage on top.
    """
    # BEGIN SOLUTION bubble
    return (num_microbatches + num_stages - 1) * (batch_seconds / num_microbatches + overhead_s)
    # END SOLUTION


# %% tags=["check"]
labkit.check("bubble", bubble_share, step_seconds)

# %%
print("microbatches    " + "".join(f"{count:8}" for count in (1, 4, 8, 16, 32, 64)))
for stages in (2, 4, 8):
    print(
        f"{stages} stages wait   " + "".join(f"{bubble_share(stages, count):8.1%}" for count in (1, 4, 8, 16, 32, 64))
    )

# %% [markdown] tags=["slide"]
# ### The bubble
#
# $$ \text{bubble} = \frac{P-1}{M+P-1} $$
#
# | | M = 1 | 4 | 8 | 16 | 32 | 64 |
# |---|---:|---:|---:|---:|---:|---:|
# | 2 stages | 50.0 % | 20.0 % | 11.1 % | 5.9 % | 3.0 % | 1.5 % |
# | 4 stages | 75.0 % | 42.9 % | 27.3 % | 15.8 % | 8.6 % | 4.5 % |
# | 8 stages | 87.5 % | 63.6 % | 46.7 % | 30.4 % | 17.9 % | 9.9 % |
#
# Four times as many microbatches as stages: less than a fifth is lost (Huang et al., 2019, GPipe).

# %% [markdown]
# ## 5 A schedule is data
#
# What does each stage do, in which order? Write it down before you run it, as with the ring's plan. A **schedule** is
# a list of small records for one stage. The stage's number is also its rank.


# %% tags=["given"]
@dataclass(frozen=True)
class Recv:
    """Receive this microbatch's activation from this stage."""

    peer: int
    microbatch: int


@dataclass(frozen=True)
class Forward:
    """Run this microbatch forward through the stage."""

    microbatch: int


@dataclass(frozen=True)
class Send:
    """Send what came out of Forward to this stage."""

    peer: int
    microbatch: int


@dataclass(frozen=True)
class RecvGrad:
    """Receive, from this stage, the gradient of what it was sent."""

    peer: int
    microbatch: int


@dataclass(frozen=True)
class Backward:
    """Run this microbatch backward through the stage."""

    microbatch: int


@dataclass(frozen=True)
class SendGrad:
    """Send the gradient of what entered to this stage."""

    peer: int
    microbatch: int


Record = Recv | Forward | Send | RecvGrad | Backward | SendGrad

# %% [markdown]
# ### Exercise [[gpipe]]
#
# *10 points, about 8 minutes; difficulty 2 of 5, importance 5 of 5*
#
# GPipe's order is the plain one: all microbatches forward, then all backward, each time from 0 to M-1. Around each
# `Forward` stand its `Recv` and its `Send`, around each `Backward` its `RecvGrad` and its `SendGrad`. The first stage
# has nobody before it, the last nobody after it. Stage 0 of 2, with two microbatches:
#
# ```python
# [Forward(microbatch=0), Send(peer=1, microbatch=0), Forward(microbatch=1), Send(peer=1, microbatch=1),
#  RecvGrad(peer=1, microbatch=0), Backward(microbatch=0), RecvGrad(peer=1, microbatch=1), Backward(microbatch=1)]
# ```


# %% tags=["exercise"] exercise="gpipe" points=10 difficulty=2 importance=5 minutes=8 title="GPipe" provides=["gpipe"]
# BEGIN SOLUTION gpipe
def forward_of(stage: int, num_stages: int, microbatch: int) -> list[Record]:
    """Return Forward with the messages around it."""
    records: list[Record] = [Recv(stage - 1, microbatch)] if stage > 0 else []
    records.append(Forward(microbatch))
    return records + ([Send(stage + 1, microbatch)] if stage < num_stages - 1 else [])


def backward_of(stage: int, num_stages: int, microbatch: int) -> list[Record]:
    """Return Backward with the messages around it."""
    records: list[Record] = [RecvGrad(stage + 1, microbatch)] if stage < num_stages - 1 else []
    records.append(Backward(microbatch))
    return records + ([SendGrad(stage - 1, microbatch)] if stage > 0 else [])


# END SOLUTION


def gpipe(stage: int, num_stages: int, num_microbatches: int) -> list[Record]:
    """Return what one stage does in GPipe: every microbatch forward, then every microbatch backward, in order.

    Args:
        stage: Whose schedule this is, 0 <= stage < num_stages.
        num_stages: P, 1 or more.
        num_microbatches: M, 1 or more.
    """
    # BEGIN SOLUTION gpipe
    schedule = []
    for microbatch in range(num_microbatches):
        schedule += forward_of(stage, num_stages, microbatch)
    for microbatch in range(num_microbatches):
        schedule += backward_of(stage, num_stages, microbatch)
    return schedule
    # END SOLUTION


# %% tags=["check"]
labkit.check("gpipe", gpipe)


# %%
def in_short(schedule):
    names = {Recv: "r", Forward: "F", Send: "s", RecvGrad: "rg", Backward: "B", SendGrad: "sg"}
    return " ".join(f"{names[type(record)]}{record.microbatch}" for record in schedule)


for stage in range(3):
    print(f"stage {stage}: {in_short(gpipe(stage, 3, 3))}")

# %% [markdown]
# ## 6 Will it come to an end?
#
# Before you run a schedule on eight GPUs you want to know that nobody will wait for ever. That can be found on paper,
# for a schedule is data. You need one rule for how it is carried out:
#
# > Messages that stand next to each other are **one batch**. They are posted together, and the stage goes on when all
# > of them are done. A message is done when its partner has been posted on the other side.
#
# The partner of `Send(peer=1, microbatch=2)` on stage 0 is `Recv(peer=0, microbatch=2)` on stage 1, and a `SendGrad`
# has its `RecvGrad`. Why batches? You know it from the ring: two ranks that both stand in `send` wait for ever, and on
# NCCL even `isend` can. The given function below cuts a schedule into such steps: a batch of messages, or one
# `Forward` or `Backward` by itself.


# %% tags=["given"]
MESSAGES = (Recv, Send, RecvGrad, SendGrad)


def steps(schedule: list[Record]) -> Iterator[list[Record]]:
    """Yield the schedule's steps in order: messages that stand together as one list, each other record alone."""
    for is_message, records in groupby(schedule, key=lambda record: isinstance(record, MESSAGES)):
        if is_message:
            yield list(records)
        else:
            yield from ([record] for record in records)


# %%
for number, step in enumerate(steps(gpipe(1, 3, 2))):
    print(number, step)

# %% [markdown]
# ### Exercise [[find_deadlock]]
#
# *10 points, about 15 minutes; difficulty 4 of 5, importance 4 of 5*
#
# Play all stages on paper. Each stands at one of its steps, and you let whoever can go on go on, until nobody can.
# What keeps a stage:
#
# * a message whose partner has not been posted (a stage posts a whole step when it arrives there, and what is posted
#   stays posted);
# * `Forward` of a microbatch that has not been received, except on stage 0;
# * `Backward` of a microbatch that was not run forward, or whose gradient has not been received, except on the last;
# * `Send` before `Forward`, `SendGrad` before `Backward` of the same microbatch: there is nothing to send, and such a
#   message is not posted either.
#
# Return for each stage that does not reach its end the first record that keeps it.


# %% tags=["exercise"] exercise="find_deadlock" points=10 difficulty=4 importance=4 minutes=15 title="Find the deadlock" provides=["find_stuck"]
def find_stuck(schedules: list[list[Record]]) -> dict[int, Record]:
    """Return, for each stage that can never finish, the first record of its step that cannot be done; else {}.

    Args:
        schedules: The schedule of each stage, by its number.
    """
    # BEGIN SOLUTION find_deadlock
    plans = [list(steps(schedule)) for schedule in schedules]
    partner = {Send: Recv, Recv: Send, SendGrad: RecvGrad, RecvGrad: SendGrad}
    at = [0] * len(plans)
    posted: set[tuple[int, Record]] = set()
    done: set[tuple[int, Record]] = set()

    def needs(stage: int, record: Record) -> list[tuple[int, Record]]:
        """Return what must have been done on this stage before."""
        m = record.microbatch
        if isinstance(record, Send):
            return [(stage, Forward(m))]
        if isinstance(record, SendGrad):
            return [(stage, Backward(m))]
        if isinstance(record, Forward):
            return [(stage, Recv(stage - 1, m))] if stage > 0 else []
        if isinstance(record, Backward):
            arrived = [(stage, RecvGrad(stage + 1, m))] if stage < len(plans) - 1 else []
            return [(stage, Forward(m)), *arrived]
        return []

    def can(stage: int, record: Record) -> bool:
        if not done.issuperset(needs(stage, record)):
            return False
        if isinstance(record, MESSAGES):
            return (record.peer, partner[type(record)](stage, record.microbatch)) in posted
        return True

    moved = True
    while moved:
        moved = False
        for stage, plan in enumerate(plans):
            while at[stage] < len(plan):
                step = plan[at[stage]]
                ready = {(stage, r) for r in step if isinstance(r, MESSAGES) and done.issuperset(needs(stage, r))}
                moved = moved or not posted.issuperset(ready)
                posted |= ready
                if not all(can(stage, record) for record in step):
                    break
                done |= {(stage, record) for record in step}
                at[stage] += 1
                moved = True
    waiting = [stage for stage, plan in enumerate(plans) if at[stage] < len(plan)]
    return {stage: next(r for r in plans[stage][at[stage]] if not can(stage, r)) for stage in waiting}
    # END SOLUTION


# %% tags=["check"]
labkit.check("find_deadlock", find_stuck)

# %%
print("GPipe, 4 stages, 8 microbatches:", find_stuck([gpipe(stage, 4, 8) for stage in range(4)]))
fewer = [gpipe(0, 2, 3), gpipe(1, 2, 2)]  # somebody changed the number of microbatches on one rank
print("3 microbatches meet 2:          ", find_stuck(fewer))

# %% [markdown]
# ## 7 One forward, one backward
#
# In GPipe a stage holds the activations of **all** M microbatches before the first backward frees anything. So more
# microbatches, which make the bubble small, need more memory... unless backward begins earlier.
#
# **1F1B** does that (PipeDream-Flush, Narayanan et al., ICML 2021; DAPPLE, Fan et al., 2021, has the same order). A
# microbatch that has reached the last stage turns round at once. After a short warm-up each stage alternates: one
# forward, one backward. **With 8 stages and 32 microbatches, how many microbatches does stage 0 hold at most?** (In
# GPipe all 32.)

# %% tags=["predict"]
labkit.predict("microbatches_held", 32)

# %% [markdown]
# The warm-up of stage s is one forward for each stage behind it, P-1-s of them (or all M, if there are fewer). Then
# follow pairs, one forward and one backward, until no forward is left. Then the backwards that remain. Around each
# `Forward` and `Backward` stand the same messages as before. Stage 0 of 2 with three microbatches, in short:
#
# ```
# F0 s0  F1 s1 rg0 B0  F2 s2 rg1 B1  rg2 B2
# ```
#
# Look at `s1 rg0`: the two are neighbours, so they are one batch. Stage 1 has `sg0 r1` there. Each side sends and
# receives at the same time, and that is what keeps 1F1B from a deadlock.
#
# ### Exercise [[one_f_one_b]]
#
# *12 points, about 10 minutes; difficulty 4 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="one_f_one_b" points=12 difficulty=4 importance=5 minutes=10 title="One forward, one backward" provides=["one_f_one_b"]
def one_f_one_b(stage: int, num_stages: int, num_microbatches: int) -> list[Record]:
    """Return what one stage does in 1F1B: min(P-1-stage, M) forwards, pairs of forward and backward, then the rest.

    Args:
        stage: Whose schedule this is, 0 <= stage < num_stages.
        num_stages: P, 1 or more.
        num_microbatches: M, 1 or more, also less than P.
    """
    # BEGIN SOLUTION one_f_one_b
    warmup = min(num_stages - 1 - stage, num_microbatches)
    schedule = []
    for microbatch in range(warmup):
        schedule += forward_of(stage, num_stages, microbatch)
    for microbatch in range(warmup, num_microbatches):
        schedule += forward_of(stage, num_stages, microbatch)
        schedule += backward_of(stage, num_stages, microbatch - warmup)
    for microbatch in range(num_microbatches - warmup, num_microbatches):
        schedule += backward_of(stage, num_stages, microbatch)
    return schedule
    # END SOLUTION


# %% tags=["check"]
labkit.check("one_f_one_b", one_f_one_b)


# %%
def held(schedule):
    """Return the most microbatches that have gone forward and not yet backward, at any moment."""
    now, most = 0, 0
    for record in schedule:
        now += isinstance(record, Forward) - isinstance(record, Backward)
        most = max(most, now)
    return most


# %% [markdown]
# Here comes your answer, and both schedules as they would run if backward took twice as long as forward and messages
# took no time. The figure tries *your* functions for other numbers of stages and microbatches too: move the sliders.
# The grey line under a stage is what it holds. Where does the second schedule gain, and where does it not?

# %% tags=["nbval-ignore-output"]
labkit.reveal("microbatches_held", held(one_f_one_b(0, 8, 32)), labkit.schedule_explorer(gpipe, one_f_one_b))

# %%
print("held at most, 8 stages and 32 microbatches")
for name, make in (("GPipe", gpipe), ("1F1B", one_f_one_b)):
    print(f"{name:6}", [held(make(stage, 8, 32)) for stage in range(8)])
print("stuck:", find_stuck([one_f_one_b(stage, 8, 32) for stage in range(8)]))

# %% [markdown] tags=["slide"]
# ### GPipe and 1F1B
#
# ```
# GPipe   stage 0  F0 F1 F2 F3             B0 B1 B2 B3
#         stage 1     F0 F1 F2 F3       B0 B1 B2 B3
#         stage 2        F0 F1 F2 F3 B0 B1 B2 B3
#
# 1F1B    stage 0  F0 F1 F2       B0 F3 B1    B2    B3
#         stage 1     F0 F1    B0 F2 B1 F3 B2    B3
#         stage 2        F0 B0 F1 B1 F2 B2 F3 B3
# ```
#
# The same bubble. But stage s holds M microbatches in GPipe, and min(P-s, M) in 1F1B.

# %% [markdown]
# ## 8 Run it
#
# Now the executor. It takes *any* schedule, step by step, and keeps three things: what entered, what left, and the
# gradients that arrived, each by its microbatch.
#
# **The scale of the loss.** The loss of a microbatch is the mean over *its* samples. The whole batch's is the mean
# over all. Ten samples in microbatches of 4, 3 and 3: what must each mean be multiplied by, so that the sum of all is
# the mean of ten? (Not by a third.) Scale the loss, and all gradients follow.
#
# **Adding up.** `backward` adds to `.grad`. So M backwards make the sum by themselves, if nobody sets it to zero in
# between.
#
# **Letting go.** What a microbatch needed must be gone after its `Backward`, or 1F1B saves nothing. Dictionaries have
# `pop`. What the next stage wants is only the values: send `left.detach()`.
#
# **No `.item()`.** On a GPU it stops this process until the number is there, and with it the pipeline. Return tensors.

# %% [markdown]
# ### Exercise [[run_schedule]]
#
# *22 points, about 25 minutes; difficulty 5 of 5, importance 5 of 5*
#
# As in the ring: one `dist.batch_isend_irecv` for each step of messages, and wait for all of it. Peers count within
# `group`, so say it so: `dist.P2POp(dist.isend, tensor, group=group, group_peer=record.peer)`. Name the work on the
# timeline: `with labkit.span(f"F{microbatch}"):` around each forward, `f"B{microbatch}"` around each backward.
#
# With one stage there are no messages, and inputs and targets are on the same rank. The schedule need not be GPipe or
# 1F1B. Follow the records you are given, whatever their order.


# %% tags=["exercise"] exercise="run_schedule" points=22 difficulty=5 importance=5 minutes=25 title="Run a schedule" provides=["run_schedule"]
def run_schedule(
    schedule: list[Record],
    module: nn.Module,
    sizes: list[int],
    sample: Tensor,
    inputs: list[Tensor] | None = None,
    targets: list[Tensor] | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
    group: dist.ProcessGroup | None = None,
) -> Tensor | None:
    """Carry out this stage's schedule; gradients of the mean loss over the whole batch are added to .grad.

    Args:
        schedule: Records in order. Peers are ranks within group. Messages that stand together are one batch.
        module: This stage's layers.
        sizes: Samples in each microbatch, the same list on every stage; they may differ.
        sample: One sample as it enters this stage, without the batch dimension: shape, dtype and device count.
        inputs: The microbatches, on the first stage; else None.
        targets: What should come out for each microbatch, on the last stage; else None.
        loss_fn: loss_fn(outputs, targets) is the mean over a microbatch's samples; on the last stage.
        group: The stages' process group; None is the default group.

    Returns:
        The mean loss over the whole batch on the last stage, a detached tensor; None on the others.
    """
    # BEGIN SOLUTION run_schedule
    entered, left, gradients = {}, {}, {}
    total = None
    for step in steps(schedule):
        batch = []
        for record in step:
            m = record.microbatch
            if isinstance(record, Forward):
                with labkit.span(f"F{m}"):
                    left[m] = module(inputs[m] if inputs is not None else entered[m].requires_grad_())
                    if targets is not None:
                        left[m] = loss_fn(left[m], targets[m]) * (sizes[m] / sum(sizes))
                        total = left[m].detach() if total is None else total + left[m].detach()
            elif isinstance(record, Backward):
                with labkit.span(f"B{m}"):
                    torch.autograd.backward(left.pop(m), gradients.pop(m, None))
            elif isinstance(record, Recv):
                entered[m] = sample.new_empty((sizes[m], *sample.shape))
                batch.append(dist.P2POp(dist.irecv, entered[m], group=group, group_peer=record.peer))
            elif isinstance(record, RecvGrad):
                gradients[m] = torch.empty_like(left[m], memory_format=torch.contiguous_format)
                batch.append(dist.P2POp(dist.irecv, gradients[m], group=group, group_peer=record.peer))
            elif isinstance(record, Send):
                outgoing = left[m].detach().contiguous()
                batch.append(dist.P2POp(dist.isend, outgoing, group=group, group_peer=record.peer))
            else:
                outgoing = entered.pop(m).grad.contiguous()
                batch.append(dist.P2POp(dist.isend, outgoing, group=group, group_peer=record.peer))
        for work in dist.batch_isend_irecv(batch) if batch else []:
            work.wait()
    return total
    # END SOLUTION


# %% tags=["check"]
labkit.check("run_schedule", run_schedule)

# %% [markdown]
# If that passes, you have trained across a cut. (The last lines compare what yours needs on a virtual cluster with what
# ours needs. They give no points; a memory much above par says that something is kept too long.) Now watch it work, on
# the virtual cluster first: the four stages of section 2, the same 16,384 samples, in 8 microbatches.


# %%
def one_step(make_schedule, num_microbatches, wrap=lambda module: module):
    stage, num_stages = dist.get_rank(), dist.get_world_size()
    size = SAMPLES // num_microbatches
    x = [torch.empty(size, WIDTH, device="meta", requires_grad=True) for _ in range(num_microbatches)]
    run_schedule(
        make_schedule(stage, num_stages, num_microbatches),
        wrap(layers(WIDTH, LAYERS, "meta")),
        [size] * num_microbatches,
        torch.empty(WIDTH, device="meta"),
        inputs=x if stage == 0 else None,
        targets=x if stage == num_stages - 1 else None,
        loss_fn=nn.functional.mse_loss,
    )


runs = {make.__name__: labkit.run(one_step, make, 8, on=labkit.virtual(4)) for make in (gpipe, one_f_one_b)}
for name, run in runs.items():
    print(f"{name:12} {run}")


# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt


def draw(timelines):
    """Draw forwards and backwards of each timeline, one row a stage, all on one time axis."""
    figure, panels = plt.subplots(len(timelines), 1, figsize=(10, 1.9 * len(timelines)), sharex=True, squeeze=False)
    whole = max(timeline.makespan_ns for timeline in timelines.values()) / 1e6
    for panel, (title, timeline) in zip(panels[:, 0], timelines.items(), strict=True):
        bubble = bubble_of(timeline)
        work = [span for span in timeline.rows() if span.kind == "span" and span.name[:1] in ("F", "B")]
        begin = min(span.start_ns for span in work)
        for span in work:
            colour = "#0072B2" if span.name[0] == "F" else "#DDAA33"
            left, width = (span.start_ns - begin) / 1e6, span.duration_ns / 1e6
            panel.barh(span.rank, width, left=left, color=colour, edgecolor="black", linewidth=0.6)
            if width > 0.02 * whole:
                ink = "white" if span.name[0] == "F" else "black"
                panel.text(left + width / 2, span.rank, span.name, ha="center", va="center", fontsize=7, color=ink)
        panel.set(yticks=range(timeline.num_ranks), ylabel="stage", title=f"{title}: bubble {bubble:.1%}")
        panel.invert_yaxis()
    panels[-1, 0].set_xlabel("time (ms)")
    figure.tight_layout()
    plt.close(figure)  # whoever called shows it
    return figure


draw({"one batch": one_batch.timeline} | {name: run.timeline for name, run in runs.items()})

# %% [markdown]
# Blue is forward, yellow backward, white is the bubble. The staircase is still there, but its steps are small now. Note
# that the two schedules take equally long. 1F1B is not faster. It is smaller: the virtual cluster keeps account of what
# each rank holds.

# %%
from labkit.timeline.memory import peak_memory_bytes

print("activations at most, GB   " + "".join(f"  stage {stage}" for stage in range(4)))
for name, run in runs.items():
    peaks = [peak_memory_bytes(run.timeline, stage, "activations") / 1e9 for stage in range(4)]
    print(f"{name:26}" + "".join(f"{peak:9.1f}" for peak in peaks))

# %% [markdown]
# Four microbatches in place of eight on the first stage, and one on the last. The bubble, predicted and found, for all
# the numbers of microbatches:

# %%
print("microbatches   predicted   gpipe   1f1b")
for count in (1, 4, 8, 16):
    found = [
        bubble_of(labkit.run(one_step, make, count, on=labkit.virtual(4)).timeline) for make in (gpipe, one_f_one_b)
    ]
    print(f"{count:12} {bubble_share(4, count):11.3f} {found[0]:7.3f} {found[1]:6.3f}")

# %% [markdown]
# To about 1 % the formula says what the virtual cluster finds. What is left are the messages: the formula says that
# they take no time, and here each takes a little, more of them as M grows.

# %% [markdown]
# ## 9 How many microbatches?
#
# The formula says: as many as you can. Now your own machine, two real processes. **Two stages and 8 microbatches:
# which bubble will you measure?** (The formula says 0.111.)

# %% tags=["predict"]
labkit.predict("measured_bubble", 0.111)


# %% tags=["given"]
def own_step(
    make_schedule: Callable[[int, int, int], list[Record]],
    run_schedule: Callable[..., Tensor | None],
    num_microbatches: int,
    module: nn.Module,
    x: Tensor,
) -> Callable[[], Tensor | None]:
    """Return a function that runs one step of this rank's stage; what went in should come out."""
    stage, num_stages = dist.get_rank(), dist.get_world_size()
    xs = [part.detach().requires_grad_(x.requires_grad) for part in x.tensor_split(num_microbatches)]
    return partial(
        run_schedule,
        make_schedule(stage, num_stages, num_microbatches),
        module,
        [len(part) for part in xs],
        x.new_empty(x.shape[1:]),
        inputs=xs if stage == 0 else None,
        targets=[part.detach() for part in xs] if stage == num_stages - 1 else None,
        loss_fn=nn.functional.mse_loss,
    )


def in_turns(kinds: dict[Any, Callable[[], object]], repeats: int = 5) -> dict[Any, float]:
    """Return the median seconds of each kind of step on this rank, every repeat after a barrier.

    They take turns, so that whatever else the host does meets them all alike. A first round does not count: it opens
    connections.
    """
    seconds: dict[Any, list[float]] = {name: [] for name in kinds}
    for _ in range(1 + repeats):
        for name, step in kinds.items():
            dist.barrier()
            begin = time.perf_counter()
            step()
            if message_device().type == "cuda":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - begin)
    return {name: median(each[1:]) for name, each in seconds.items()}


# %%
SIZE = {"width": 512, "num_samples": 512, "num_layers": 6}  # of the model on this host; larger if you have GPUs


def stage_and_batch(width, num_samples, num_layers):
    module = layers(width, num_layers, message_device())
    return module, torch.randn(num_samples, width, device=message_device(), requires_grad=True)


def times_of(counts):
    module, x = stage_and_batch(**SIZE)
    return in_turns({count: own_step(one_f_one_b, run_schedule, count, module, x) for count in counts})


def one_warm_step(num_microbatches):
    module, x = stage_and_batch(**SIZE)
    module(x).sum().backward()  # the first products take longer
    dist.barrier()
    own_step(one_f_one_b, run_schedule, num_microbatches, module, x)()


# %% tags=["nbval-ignore-output"]
ranks = labkit.run(times_of, (1, 2, 4, 8, 16, 64), on=labkit.local(2)).results
measured = {count: max(rank[count] for rank in ranks) for count in ranks[0]}
five = sorted((labkit.run(one_warm_step, 8, on=labkit.local(2)).timeline for _ in range(5)), key=bubble_of)
found = ", ".join(f"{bubble_of(timeline):.1%}" for timeline in five)
labkit.reveal(
    "measured_bubble", bubble_of(five[2]), draw({f"2 real processes; five runs: {found}; the middle one": five[2]})
)

# %% tags=["nbval-ignore-output"]
print("microbatches " + "".join(f"{count:8}" for count in measured))
print("step, ms     " + "".join(f"{1e3 * seconds:8.1f}" for seconds in measured.values()))

# %% [markdown]
# More than the formula? It leaves out what a microbatch costs. Small matrices use a core badly, and each message, each
# wait, each Python record takes its time. That cost is the `overhead_s` of exercise [[bubble]]. (All numbers of microbatches
# took turns in one run, five times each, and the medians stand here. So a busy moment meets all of them alike.)
#
# Now read the line of times. Two forces pull at it: the bubble shrinks with M, the overhead grows. Two cores with
# nothing else to do gave us 141, 101, 104, 119, 156 and 402 ms: a valley, its floor at 2 to 4. Two cores that have other
# things to do may show a line that rises from the start: a stage that waits for its turn on a core makes the other one
# wait too, and every message is a chance for that. Then the overhead is larger than what two stages can win, and the
# best M *is* 1. Whichever line you see, the next cells say why.
#
# ### Exercise [[best_microbatches]]
#
# *4 points, about 4 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="best_microbatches" points=4 difficulty=2 importance=4 minutes=4 title="The best number of microbatches" provides=["best_num_microbatches"] needs=["bubble"]
def best_num_microbatches(num_stages: int, batch_seconds: float, overhead_s: float, num_samples: int) -> int:
    """Return the number of microbatches, 1 to num_samples, with the least step_seconds; the smallest of equals."""
    # BEGIN SOLUTION best_microbatches
    return min(range(1, num_samples + 1), key=lambda count: step_seconds(num_stages, count, batch_seconds, overhead_s))
    # END SOLUTION


# %% tags=["check"]
labkit.check("best_microbatches", best_num_microbatches)

# %% [markdown]
# Fit the two numbers to your own machine, to all that was measured, and let the formula choose:

# %% tags=["nbval-ignore-output"]
# step_seconds is linear in batch_seconds and overhead_s: two unknowns, and the least squares of six measurements
matrix = torch.tensor([[step_seconds(2, m, 1, 0), step_seconds(2, m, 0, 1)] for m in measured], dtype=torch.float64)
seconds = torch.tensor(list(measured.values()), dtype=torch.float64).unsqueeze(1)
fitted = torch.linalg.lstsq(matrix, seconds).solution.flatten().tolist()
batch_seconds, overhead_s = fitted
print(f"whole batch on one stage: {1e3 * batch_seconds:.1f} ms; each microbatch costs {1e3 * overhead_s:.2f} ms more")
print("microbatches " + "".join(f"{count:8}" for count in measured))
print("measured, ms " + "".join(f"{1e3 * seconds:8.1f}" for seconds in measured.values()))
print("formula, ms  " + "".join(f"{1e3 * step_seconds(2, count, *fitted):8.1f}" for count in measured))
if overhead_s > 0:
    print("best by the formula:", best_num_microbatches(2, batch_seconds, overhead_s, 512), "microbatches")
print("best measured:      ", min(measured, key=measured.get), "microbatches")

# %% [markdown]
# Set the derivative to zero and the best M is about $\sqrt{(P-1)\,t/o}$, with t for the whole batch and o for the
# overhead. If o is as large as t, that is 1 with two stages: not worth cutting. So more stages want more microbatches,
# and a faster device wants *fewer*, if its overhead stays. Near the minimum the curve is flat. You need not hit it.
# (The formula takes each microbatch's overhead for the same. On a busy host it is not, and formula and measurement
# part.)

# %% [markdown] tags=["slide"]
# ### How many microbatches?
#
# $$ T(M) = (M+P-1)\left(\frac{t}{M}+o\right), \qquad M^{*} \approx \sqrt{\frac{(P-1)\,t}{o}} $$
#
# * few: the bubble. Many: overhead, small matrices, more messages
# * the batch is not free either: M microbatches of b samples are a batch of M · b, times the data-parallel ranks
# * GPipe: memory grows with M. 1F1B: it does not

# %% [markdown]
# ## 10 Memory against time
#
# 1F1B keeps P - s microbatches on stage s. If that is still too much, keep less of each: only what *entered* the
# stage, and compute the rest again when backward comes. That is activation **checkpointing** (Chen et al., 2016). It
# costs one more forward. If a backward takes twice a forward, **by what factor does the work grow?**

# %% tags=["predict"]
labkit.predict("recompute_factor", 2.0)

# %% [markdown]
# ### Exercise [[recompute]]
#
# *8 points, about 12 minutes; difficulty 4 of 5, importance 3 of 5*
#
# Write it as a `torch.autograd.Function`. In its forward just run the module: autograd is off in there, so nothing is
# saved. In its backward run it again, under `torch.enable_grad()`, and let `torch.autograd.grad` go through it. Four
# traps:
#
# * on the first stage x needs no gradient, and then the output would not need one either, and the parameters would get
#   none. Hand the parameters to `apply` too, and return a gradient for each;
# * dropout must draw the same numbers the second time: keep `torch.get_rng_state()` in forward, set it for the second
#   run, and put back what was there before;
# * `torch.autograd.grad(..., allow_unused=True)` gives `None` for what was not used;
# * BatchNorm counts twice, because forward runs twice: each run moves its running statistics. Gradients do not show it.
#   Keep the module's buffers before the second run, and put them back when you have the gradients.


# %% tags=["exercise"] exercise="recompute" points=8 difficulty=4 importance=3 minutes=12 title="Recompute" provides=["checkpointed"]
def checkpointed(module: nn.Module, x: Tensor) -> Tensor:
    """Return module(x), keeping only x for backward, which runs the module again; gradients are the same.

    Args:
        module: Any module of one tensor; it may draw random numbers on the CPU, and have buffers that forward changes.
        x: Its input; it may or may not need a gradient.
    """
    # BEGIN SOLUTION recompute
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]

    class Recompute(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *parameters):
            ctx.rng_state = torch.get_rng_state()
            ctx.save_for_backward(x)
            return module(x)  # autograd is off in here

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_(ctx.needs_input_grad[0])
            after = torch.get_rng_state()
            buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
            torch.set_rng_state(ctx.rng_state)
            with torch.enable_grad():
                out = module(x)
            torch.set_rng_state(after)
            wanted = [x, *parameters] if x.requires_grad else parameters
            found = list(torch.autograd.grad(out, wanted, gradient, allow_unused=True))
            for buffer, before in buffers:
                buffer.copy_(before)
            return tuple(found) if x.requires_grad else (None, *found)

    return Recompute.apply(x, *parameters)
    # END SOLUTION


# %% tags=["check"]
labkit.check("recompute", checkpointed)


# %%
class Checkpointed(nn.Module):
    """A stage that keeps only what enters it."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return checkpointed(self.module, x)


def saved_bytes(module):
    """Return what autograd keeps of one forward, apart from the parameters."""
    own = {parameter.data_ptr() for parameter in module.parameters()}
    kept = {}

    def pack(tensor):
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(torch.randn(256, 128))
    return sum(kept.values())


plain = layers(128, 6, "cpu")
print(f"kept for backward: {saved_bytes(plain):,} bytes, with recomputing {saved_bytes(Checkpointed(plain)):,}")


# %%
recomputed = labkit.run(one_step, one_f_one_b, 8, Checkpointed, on=labkit.virtual(4))
labkit.reveal("recompute_factor", recomputed.timeline.makespan_ns / runs["one_f_one_b"].timeline.makespan_ns)

# %% [markdown]
# Forward is one part of three, backward two, and you pay forward twice: 4/3. And a stage of L layers keeps one tensor
# in place of L + 1, here 7: what entered, and what each ReLU returned. (A ReLU and the linear layer after it keep the
# same tensor. It counts once.) So about L in place of one. What the whole pipeline keeps, in units of one layer's
# activation:

# %%
print("held on stage 0, 8 stages of 12 layers   GPipe   1F1B")
for count in (8, 32):
    per_stage = [held(make(0, 8, count)) for make in (gpipe, one_f_one_b)]
    print(f"M = {count:2}, everything                      {12 * per_stage[0]:8} {12 * per_stage[1]:6}")
    print(f"M = {count:2}, recomputed                      {per_stage[0] + 12:8} {per_stage[1] + 12:6}")

# %% [markdown]
# (The 12 in the last rows is the one stage that is being computed again.) Recomputing and 1F1B add up. With both, a
# pipeline's memory hardly depends on M any more, and M can be chosen for the bubble alone.

# %% [markdown] tags=["slide"]
# ### What a stage holds
#
# | | activations held | time |
# |---|---|---|
# | GPipe | M microbatches × L layers | 1 |
# | 1F1B | min(P-s, M) microbatches × L layers | 1 |
# | 1F1B, recomputing | min(P-s, M) inputs + one microbatch × L layers | 4/3 |
#
# s is the stage's number: the first stage holds most, so cut the model so that it has less to hold.

# %% [markdown]
# ## 11 What the library does
#
# `torch.distributed.pipelining` has the same parts: a `PipelineStage` around your module, `ScheduleGPipe` and
# `Schedule1F1B`. The next cells run the same two stages with both, yours and the library's, on two real processes, in
# turns. And they compare what comes out: 8 microbatches divide the batch, so the gradients should be the same.


# %% tags=["given"]
def beside_the_library(
    make_schedule: Callable[[int, int, int], list[Record]],
    run_schedule: Callable[..., Tensor | None],
    library_name: str,
    num_microbatches: int,
    width: int,
    num_samples: int,
    num_layers: int,
) -> tuple[dict[str, float], float]:
    """Return the median seconds of your step and the library's, and how far apart their gradients are.

    The second number is the largest difference on this stage, relative to the largest element of the same gradient.
    """
    from torch.distributed import pipelining

    stage, num_stages, device = dist.get_rank(), dist.get_world_size(), message_device()
    yours, theirs = (layers(width, num_layers, device) for _ in range(2))
    x = torch.randn(num_samples, width, device=device)
    piece = pipelining.PipelineStage(theirs, stage, num_stages, device)
    schedule = getattr(pipelining, library_name)(piece, num_microbatches, loss_fn=nn.functional.mse_loss)
    ends = {"target": x} if stage == num_stages - 1 else {}
    kinds = {
        "yours": own_step(make_schedule, run_schedule, num_microbatches, yours, x),
        "library": partial(schedule.step, *([x] if stage == 0 else []), **ends),
    }
    seconds = in_turns(kinds)
    for module, step in zip((yours, theirs), kinds.values(), strict=True):
        module.zero_grad()
        step()
    pairs = [(p.grad, q.grad) for p, q in zip(yours.parameters(), theirs.parameters(), strict=True)]
    return seconds, max(((mine - other).abs().max() / other.abs().max()).item() for mine, other in pairs)


# %% tags=["nbval-ignore-output"]
print("8 microbatches   yours, ms   library, ms   gradients apart")
for make, name in ((gpipe, "ScheduleGPipe"), (one_f_one_b, "Schedule1F1B")):
    both = labkit.run(partial(beside_the_library, make, run_schedule, name, 8, **SIZE), on=labkit.local(2)).results
    yours, theirs = (1e3 * max(seconds[kind] for seconds, _ in both) for kind in ("yours", "library"))
    print(f"{name:14} {yours:11.1f} {theirs:13.1f} {max(apart for _, apart in both):17.1e}")

# %% [markdown]
# What to notice, first the gradients: no difference. Both add up the same products in the same order. You multiply each
# loss by 1/8, the library divides the sum by 8, and to halve a binary number three times costs no digit. (With another
# M expect a difference in the last digits.) Then the times: they took turns here too, and both do the same arithmetic,
# so what differs is bookkeeping. The library checks shapes, calls hooks and takes other kinds of arguments; yours makes
# room for every message anew. Run the cell a second time. What changes from run to run more than the columns differ was
# the host, not the code.
#
# One difference matters. The library divides every gradient by M, so it takes a mean of means, and its buffers have the
# size of the first microbatch. Ten samples in three microbatches end in an error about shapes (PyTorch 2.13): with it,
# a batch must divide. Yours weighs the microbatches and takes any sizes.

# %% [markdown]
# ## 12 Data x pipeline
#
# Pipelines do not replace data parallelism. With 8 ranks and 4 stages you have **two pipelines**, each with its own
# part of the batch, and stage 0 of one holds the same parameters as stage 0 of the other. A `DeviceMesh` is a table of
# ranks with names for its axes:
#
# ```python
# mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "pipe"))
# mesh.get_group("pipe")   # this rank's pipeline: a row of the table
# mesh.get_group("data")   # the same stage in all pipelines: a column
# mesh.get_local_rank("pipe"), mesh["pipe"].size()   # this rank's stage, and the number of stages
# ```
#
# So: run the schedule within the row, then sum the gradients over the column. And the scale once more: `run_schedule`
# gave the gradient of the mean over *this pipeline's* samples. If the pipelines have different numbers of samples, the
# mean over all is a weighted sum. Which weights? (A parameter that is frozen has no gradient, on no pipeline.)
#
# ### Exercise [[data_and_pipeline]]
#
# *6 points, about 8 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="data_and_pipeline" points=6 difficulty=3 importance=4 minutes=8 title="Data x pipeline" provides=["hybrid_step"] needs=["run_schedule"]
def hybrid_step(
    mesh: dist.DeviceMesh,
    schedule: list[Record],
    module: nn.Module,
    sizes: list[int],
    sample: Tensor,
    inputs: list[Tensor] | None = None,
    targets: list[Tensor] | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor | None:
    """Run one step of several pipelines; .grad becomes the gradient of the mean over the samples of all of them.

    Args:
        mesh: A mesh with the axes "data" and "pipe".
        schedule, module, sizes, sample, inputs, targets, loss_fn: As run_schedule takes them; sizes are those of this
            rank's own pipeline, and pipelines may have different ones. .grad is None when this is called.

    Returns:
        The mean loss over all samples on the last stages, a detached tensor; None on the others.
    """
    # BEGIN SOLUTION data_and_pipeline
    data = mesh.get_group("data")
    loss = run_schedule(schedule, module, sizes, sample, inputs, targets, loss_fn, mesh.get_group("pipe"))
    own = sum(sizes)
    everybody = torch.tensor(float(own), dtype=torch.float64, device=message_device())
    dist.all_reduce(everybody, group=data)
    share = own / everybody.item()
    for tensor in [p.grad for p in module.parameters() if p.grad is not None] + ([] if loss is None else [loss]):
        tensor *= share
        dist.all_reduce(tensor, group=data)
    return loss
    # END SOLUTION


# %% tags=["check"]
labkit.check("data_and_pipeline", hybrid_step)


# %%
def two_pipelines(step):
    mesh = dist.init_device_mesh(message_device().type, (2, 2), mesh_dim_names=("data", "pipe"))
    stage, last = mesh.get_local_rank("pipe"), mesh.get_local_rank("pipe") == 1
    row = mesh.get_local_rank("data")
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, 10, 6, generator=generator).double().to(message_device())
    mine = slice(0, 7) if row == 0 else slice(7, 10)  # seven samples for one pipeline, three for the other
    xs, ys = x[mine].tensor_split(3), y[mine].tensor_split(3)
    part = layers(6, 2, message_device()).double()
    loss = step(
        mesh, one_f_one_b(stage, 2, 3), part, [len(each) for each in xs], x[0],
        xs if stage == 0 else None, ys if last else None, nn.functional.mse_loss,
    )  # fmt: skip
    whole = [layers(6, 2, message_device()).double() for _ in range(2)]
    nn.functional.mse_loss(whole[1](whole[0](x)), y).backward()
    pairs = zip(part.parameters(), whole[stage].parameters(), strict=True)
    return mesh.get_coordinate(), all(torch.allclose(p.grad, q.grad, rtol=1e-12) for p, q in pairs), loss


for rank, (place, equal, loss) in enumerate(labkit.run(two_pipelines, hybrid_step, on=labkit.local(4)).results):
    print(f"rank {rank} at {place}: gradients equal to one process with all ten samples: {equal}; loss {loss}")

# %% [markdown]
# ### On your own wrapper
#
# What happens in a column is lesson 05. So your `MiniDDP` can do it: the whole schedule runs inside `no_sync`, and
# `finish_gradient_synchronization` then sends what has added up. Two things to mind. It takes the *mean* over the
# ranks, so what is weighed is multiplied by their number first. And it speaks to all ranks, so here "all" must become
# the column, in this rank's own process. Set `use_mine = True` at the top to run it on yours; else a stand-in averages
# gradient by gradient.


# %% tags=["given"]
class PlainAverages(nn.Module):
    """What step_on_wrapper asks of a wrapper, in a few lines: each gradient averaged by itself, at the end."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Return what the module returns."""
        return self.module(x)

    def no_sync(self) -> nullcontext[None]:
        """Return a context that changes nothing: nothing is sent before the end anyway."""
        return nullcontext()

    def finish_gradient_synchronization(self) -> None:
        """Average every gradient that is there."""
        for parameter in self.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()


def let_all_ranks_mean(column: dist.ProcessGroup) -> None:
    """Let all_reduce, broadcast and get_world_size, called without a group, mean this one; in this rank's process."""
    all_reduce, broadcast, get_world_size = dist.all_reduce, dist.broadcast, dist.get_world_size
    dist.all_reduce = lambda tensor, op=dist.ReduceOp.SUM, group=None, async_op=False: all_reduce(
        tensor, op, group or column, async_op
    )
    dist.broadcast = lambda tensor, src=0: broadcast(tensor, group=column, group_src=src)
    dist.get_world_size = lambda group=None: get_world_size(group or column)


# %%
Wrapper = labkit.mine("mini_ddp", otherwise=PlainAverages) if use_mine else PlainAverages


def step_on_wrapper(mesh, schedule, module, sizes, *others):
    let_all_ranks_mean(mesh.get_group("data"))
    ddp = Wrapper(module)
    with ddp.no_sync():
        loss = run_schedule(schedule, ddp, sizes, *others, mesh.get_group("pipe"))
    samples = torch.tensor(float(sum(sizes)), dtype=torch.float64, device=message_device())
    dist.all_reduce(samples)
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad *= sum(sizes) * dist.get_world_size() / samples.item()
    ddp.finish_gradient_synchronization()
    return loss


on_wrapper = labkit.run(two_pipelines, step_on_wrapper, on=labkit.local(4)).results
print("gradients equal to one process with all ten samples:", all(equal for _, equal, _ in on_wrapper))

# %% [markdown] tags=["slide"]
# ### Data x pipeline on a mesh
#
# | | stage 0 | stage 1 | stage 2 | stage 3 |
# |---|---|---|---|---|
# | pipeline 0 | rank 0 | 1 | 2 | 3 |
# | pipeline 1 | rank 4 | 5 | 6 | 7 |
#
# * along a row: activations and their gradients, to the neighbour only
# * along a column: gradients of the parameters, all-reduced, P times fewer bytes than without the cut
# * a third axis, tensor parallel, lies inside the machine. Ranks that talk most must be nearest

# %% [markdown]
# ## 13 Smaller bubbles (bonus)
#
# Two ideas that real training uses.
#
# **Interleaved stages** (Narayanan et al., SC 2021). Give each rank V small parts in place of a large one. With 2 ranks
# and V = 2, rank 0 holds parts 0 and 2, rank 1 parts 1 and 3. A microbatch goes round twice. The staircase has steps
# of 1/V the height, so the bubble is (P-1)/(VM+P-1), for V times as many messages.
#
# Part c of rank s is called **chunk** c. Only the order of the work is asked here. The messages follow from it, and in
# [[run_orders]] you run it.


# %% tags=["given"]
@dataclass(frozen=True)
class ForwardChunk:
    """Run this microbatch forward through this rank's chunk."""

    chunk: int
    microbatch: int


@dataclass(frozen=True)
class BackwardChunk:
    """Run this microbatch backward through this rank's chunk."""

    chunk: int
    microbatch: int


@dataclass(frozen=True)
class BackwardInput:
    """Compute the gradient of what entered, which the stage before waits for."""

    microbatch: int


@dataclass(frozen=True)
class BackwardWeight:
    """Compute the gradients of the parameters, which nobody waits for."""

    microbatch: int


# %% [markdown]
# ### Exercise [[interleaved]]
#
# *8 points, about 20 minutes; difficulty 4 of 5, importance 2 of 5*
#
# Microbatches go in groups of P. For each group: all P through chunk 0, then the same P through chunk 1, up to chunk
# V-1; then the next group. Backward goes the same way, with the last chunk first. That gives two lists of M · V each.
# Then 1F1B on these lists: a warm-up of 2(P-1-s) + (V-1)P forwards (at most M · V), then pairs of one forward and
# one backward, then the backwards that are left.


# %% tags=["exercise"] exercise="interleaved" points=8 difficulty=4 importance=2 minutes=20 title="Interleaved stages" provides=["interleaved"] bonus=true
def interleaved(
    stage: int, num_stages: int, num_microbatches: int, num_chunks: int
) -> list[ForwardChunk | BackwardChunk]:
    """Return the order of one rank's work with num_chunks parts of the model on each rank.

    Chunk c of rank s is part c * num_stages + s of the model.

    Args:
        stage: The rank, 0 <= stage < num_stages.
        num_stages: P.
        num_microbatches: M, a multiple of P.
        num_chunks: V, 1 or more.
    """
    # BEGIN SOLUTION interleaved
    total = num_microbatches * num_chunks
    forwards, backwards = [], []
    for number in range(total):
        group, place = divmod(number, num_stages * num_chunks)
        chunk, microbatch = place // num_stages, group * num_stages + place % num_stages
        forwards.append(ForwardChunk(chunk, microbatch))
        backwards.append(BackwardChunk(num_chunks - 1 - chunk, microbatch))
    warmup = min(2 * (num_stages - 1 - stage) + (num_chunks - 1) * num_stages, total)
    order = forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[total - warmup :]
    # END SOLUTION


# %% tags=["check"]
labkit.check("interleaved", interleaved)

# %% [markdown]
# **Zero bubble** (Qi et al., 2023). Backward is two jobs. The gradient of what entered is urgent: the stage before
# waits for it. The gradient of the weights is not: nobody needs it before the optimizer. So cut backward in two, and
# use the second half to fill the bubble.
#
# ### Exercise [[zero_bubble]]
#
# *8 points, about 20 minutes; difficulty 4 of 5, importance 2 of 5*
#
# Take 1F1B's order, with `BackwardInput` in place of `Backward`. Then put each `BackwardWeight` somewhere after its
# `BackwardInput`. Stage s should put it off by s microbatches: right after the `BackwardInput` of microbatch j comes
# the `BackwardWeight` of j - s, and what is left comes at the end. (This is the schedule that the paper calls ZB-H1.
# Its fullest stage holds no more than 1F1B's fullest. The last ones hold more: with 4 stages 4, 4, 4, 4 microbatches in
# place of 4, 3, 2, 1, for what the weights' gradients need must be kept as well.)


# %% tags=["exercise"] exercise="zero_bubble" points=8 difficulty=4 importance=2 minutes=20 title="Fill the bubble" provides=["zero_bubble"] needs=["one_f_one_b"] bonus=true
def zero_bubble(stage: int, num_stages: int, num_microbatches: int) -> list[Forward | BackwardInput | BackwardWeight]:
    """Return the order of one stage's work with backward in two parts, so that the bubble is a third of 1F1B's.

    Forward, BackwardInput and BackwardWeight are taken to last equally long. At most num_stages microbatches have gone
    forward and not through BackwardWeight.

    Args:
        stage: 0 <= stage < num_stages.
        num_stages: P.
        num_microbatches: M, at least P.
    """
    # BEGIN SOLUTION zero_bubble
    order, weights = [], 0
    for record in one_f_one_b(stage, num_stages, num_microbatches):
        if isinstance(record, Forward):
            order.append(record)
        elif isinstance(record, Backward):
            order.append(BackwardInput(record.microbatch))
            if record.microbatch >= stage:
                order.append(BackwardWeight(weights))
                weights += 1
    return order + [BackwardWeight(microbatch) for microbatch in range(weights, num_microbatches)]
    # END SOLUTION


# %% tags=["check"]
labkit.check("zero_bubble", zero_bubble)

# %%
for stage in range(3):
    names = {Forward: "F", BackwardInput: "B", BackwardWeight: "W"}
    print(f"stage {stage}:", " ".join(f"{names[type(r)]}{r.microbatch}" for r in zero_bubble(stage, 3, 5)))

# %% [markdown]
# With equal work in forward, backward of the inputs and backward of the weights, 4 stages and 8 microbatches, 1F1B
# waits 27.3 % of the time. **And zero bubble, in %?**

# %% tags=["predict"]
labkit.predict("zero_bubble_share", 20.0, unit="%")

# %% [markdown]
# All three on one axis. (The formulas beside them are those for equal parts. In the third a microbatch's number is
# followed by its chunk.)

# %% tags=["nbval-ignore-output"]
three = labkit.schedule_explorer(one_f_one_b, zero_bubble, interleaved=lambda stage, p, m: interleaved(stage, p, m, 2))
labkit.reveal("zero_bubble_share", 100 * three.numbers["zero_bubble"]["bubble"], three)

# %% [markdown]
# ### Run them for real
#
# Two orders on paper. Do they keep what they promise? An order of work says nothing of messages, and for the first time
# a rank has several parts: a message must say which. The given function below puts the messages in. It plays all ranks
# at once, one piece of work each and round again, and writes every message down on **both** sides at that moment. So
# all ranks agree on one order of all messages, and none can wait in a circle: in that order each message's two sides
# are free. (`torch.distributed.pipelining` does it in the same way.) A message between two chunks of one rank needs no
# network, so here are two ranks or more.


# %% tags=["given"]
@dataclass(frozen=True)
class Give:
    """Send what left this rank's chunk (or, with gradient, the gradient of what entered it) to this rank."""

    peer: int
    chunk: int
    microbatch: int
    gradient: bool


@dataclass(frozen=True)
class Take:
    """Receive what enters this rank's chunk (or, with gradient, the gradient of what left it) from this rank."""

    peer: int
    chunk: int
    microbatch: int
    gradient: bool


Work = Forward | ForwardChunk | BackwardChunk | BackwardInput | BackwardWeight


def with_messages(orders: list[list[Work]]) -> list[list[Work | Give | Take]]:
    """Return every rank's order of work with the messages in it; two ranks or more, or one with one chunk.

    Raises:
        ValueError: If the work comes to no end.
    """
    num_ranks, programs = len(orders), [[] for _ in orders]
    last_part = num_ranks * (1 + max(getattr(work, "chunk", 0) for order in orders for work in order)) - 1
    ready, waiting = set(), [list(order) for order in orders]
    while any(waiting):
        moved = False
        for rank, order in enumerate(waiting):
            work = order[0] if order else None
            chunk, backward = getattr(work, "chunk", 0), isinstance(work, BackwardChunk | BackwardInput)
            part, step = chunk * num_ranks + rank, -1 if backward else 1
            at_the_end = part == (last_part if backward else 0)
            weights = isinstance(work, BackwardWeight)
            if work is None or not (weights or at_the_end or (part, backward, work.microbatch) in ready):
                continue
            moved = True
            programs[rank].append(order.pop(0))
            if not weights and 0 <= part + step <= last_part:
                ready.add((part + step, backward, work.microbatch))
                to_chunk, to = divmod(part + step, num_ranks)
                programs[rank].append(Give(to, chunk, work.microbatch, backward))
                programs[to].append(Take(rank, to_chunk, work.microbatch, backward))
        if not moved:
            raise ValueError(
                f"Nobody can go on: {[order[0] for order in waiting if order]} stand before what they need."
            )
    return programs


# %%
def in_letters(program):
    """Return a program in short: F0.1 is chunk 0 and microbatch 1, > gives and < takes, d stands for a gradient."""
    letters = {
        Forward: "F",
        ForwardChunk: "F",
        BackwardChunk: "B",
        BackwardInput: "B",
        BackwardWeight: "W",
        Give: ">",
        Take: "<",
    }
    names = []
    for record in program:
        place = f"{getattr(record, 'chunk', 0)}.{record.microbatch}"
        names.append(letters[type(record)] + ("d" if getattr(record, "gradient", False) else "") + place)
    return " ".join(names)


for rank, program in enumerate(with_messages([interleaved(rank, 2, 2, 2) for rank in range(2)])):
    print(f"rank {rank}: {in_letters(program)}")

# %% [markdown]
# Backward in two halves needs help from the layers. Autograd computes both gradients of a linear layer in one go. But
# what belongs to the weights can be put off: a layer's backward returns the gradient of its input, and leaves a
# function behind that does the rest when somebody calls it. (That is how the authors of zero bubble do it in Megatron.)
#
# ### Exercise [[run_orders]]
#
# *10 points, about 25 minutes; difficulty 5 of 5, importance 2 of 5*
#
# `run_orders` is the executor of [[run_schedule]] once more, with these differences. Keep what enters and leaves by chunk *and*
# microbatch. Post a `Take` with `dist.irecv` where it stands, and wait for it only when a forward or backward needs it;
# post a `Give` with `dist.isend`, and wait for all of them at the end. `BackwardChunk` does both halves: what the
# layers put off is in `later` when backward returns. `BackwardInput` takes it out of there and keeps it,
# `BackwardWeight` calls it. `Forward`, `BackwardInput` and `BackwardWeight` are about chunk 0. Spans as before, and
# `f"BW{microbatch}"` around the weights' half.


# %% tags=["exercise"] exercise="run_orders" points=10 difficulty=5 importance=2 minutes=25 title="Run them for real" provides=["linear_later", "run_orders"] bonus=true
def linear_later(x: Tensor, weight: Tensor, bias: Tensor | None, later: list[Callable[[], None]]) -> Tensor:
    """Return nn.functional.linear(x, weight, bias); backward gives x its gradient and puts the others off.

    Args:
        x: Shape (..., in).
        weight: Shape (out, in), a leaf. It may be frozen.
        bias: Shape (out,), a leaf, or None.
        later: Each backward appends one function to it, which adds the gradients of weight and bias to their .grad.
    """

    # BEGIN SOLUTION run_orders
    class Later(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x)
            return nn.functional.linear(x, weight, bias)

        @staticmethod
        def backward(ctx, gradient):
            (entered,) = ctx.saved_tensors

            def rest() -> None:
                rows = gradient.reshape(-1, gradient.shape[-1])
                if weight.requires_grad:
                    found = rows.T @ entered.reshape(-1, entered.shape[-1])
                    weight.grad = found if weight.grad is None else weight.grad + found
                if bias is not None and bias.requires_grad:
                    found = rows.sum(0)
                    bias.grad = found if bias.grad is None else bias.grad + found

            later.append(rest)
            return gradient @ weight if ctx.needs_input_grad[0] else None, None, None

    return Later.apply(x, weight, bias)
    # END SOLUTION


def run_orders(
    program: list[Work | Give | Take],
    chunks: list[nn.Module],
    sizes: list[int],
    samples: list[Tensor],
    later: list[Callable[[], None]],
    inputs: list[Tensor] | None = None,
    targets: list[Tensor] | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor | None:
    """Carry out this rank's program; gradients of the mean loss over the whole batch are added to .grad.

    Args:
        program: What with_messages gave for this rank.
        chunks: This rank's parts of the model, in order; their linear layers put their weights' gradients off.
        sizes: Samples in each microbatch, the same list on every rank; they may differ.
        samples: For each chunk one sample as it enters, without the batch dimension: shape, dtype and device count.
        later: Where the layers put what they put off.
        inputs: The microbatches, on rank 0, whose chunk 0 is the first part of the model; else None.
        targets: What should come out for each microbatch, on the last rank (its last chunk ends the model); else None.
        loss_fn: loss_fn(outputs, targets) is the mean over a microbatch's samples; on the last rank.

    Returns:
        The mean loss over the whole batch on the last rank, a detached tensor; None on the others.
    """
    # BEGIN SOLUTION run_orders
    entered, left, gradients, coming, sent, put_off = {}, {}, {}, {}, [], {}
    total = None
    for record in program:
        chunk, m = key = getattr(record, "chunk", 0), record.microbatch
        if isinstance(record, Take):
            like = left[key] if record.gradient else samples[chunk].new_empty((sizes[m], *samples[chunk].shape))
            buffer = torch.empty_like(like, memory_format=torch.contiguous_format, requires_grad=False)
            (gradients if record.gradient else entered)[key] = buffer
            coming[key, record.gradient] = dist.irecv(buffer, record.peer)
        elif isinstance(record, Give):
            tensor = entered.pop(key).grad if record.gradient else left[key].detach()
            sent.append(dist.isend(tensor.contiguous(), record.peer))
        elif isinstance(record, Forward | ForwardChunk):
            if (key, False) in coming:
                coming.pop((key, False)).wait()
            with labkit.span(f"F{m}"):
                first = inputs is not None and chunk == 0
                left[key] = chunks[chunk](inputs[m] if first else entered[key].requires_grad_())
                if targets is not None and chunk == len(chunks) - 1:
                    left[key] = loss_fn(left[key], targets[m]) * (sizes[m] / sum(sizes))
                    total = left[key].detach() if total is None else total + left[key].detach()
        elif isinstance(record, BackwardWeight):
            with labkit.span(f"BW{m}"):
                for rest in put_off.pop(m):
                    rest()
        else:
            if (key, True) in coming:
                coming.pop((key, True)).wait()
            with labkit.span(f"B{m}"):
                torch.autograd.backward(left.pop(key), gradients.pop(key, None))
                put_off[m] = later[:]
                later.clear()
                if isinstance(record, BackwardChunk):
                    for rest in put_off.pop(m):
                        rest()
    for work in sent:
        work.wait()
    return total
    # END SOLUTION


# %% tags=["check"]
labkit.check("run_orders", linear_later, run_orders)

# %% [markdown]
# Now the four virtual H100s again, the same layers and samples in 8 microbatches, and 1F1B's bubble of 3/11 to compare.
# In units of a third of a microbatch's work (forward, gradient of the input, gradients of the weights) 1F1B waits 9 of
# 33.
# **Zero bubble: which share will it wait when it runs?**

# %% tags=["predict"]
labkit.predict("zero_bubble_measured", 0.2)


# %% tags=["given"]
class LaterLinear(nn.Linear):
    """A linear layer that puts the gradients of its weights off."""

    def __init__(
        self,
        width: int,
        later: list[Callable[[], None]],
        linear: Callable[[Tensor, Tensor, Tensor | None, list[Callable[[], None]]], Tensor],
    ) -> None:
        super().__init__(width, width, device="meta")
        self.later, self.linear = later, linear

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return self.linear(x, self.weight, self.bias, self.later)


# %%
def smaller_bubble(orders, num_chunks):
    rank, last, count, later = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1, 8, []
    size = SAMPLES // count
    x = [torch.empty(size, WIDTH, device="meta", requires_grad=True) for _ in range(count)]
    chunks = [
        nn.Sequential(
            *(nn.Sequential(LaterLinear(WIDTH, later, linear_later), nn.ReLU()) for _ in range(LAYERS // num_chunks))
        )
        for _ in range(num_chunks)
    ]
    run_orders(
        with_messages(orders)[rank], chunks, [size] * count, [torch.empty(WIDTH, device="meta")] * num_chunks, later,
        x if rank == 0 else None, x if last else None, nn.functional.mse_loss,
    )  # fmt: skip


smaller = {
    "interleaved, 2 chunks": labkit.run(
        smaller_bubble, [interleaved(s, 4, 8, 2) for s in range(4)], 2, on=labkit.virtual(4)
    ),
    "zero bubble": labkit.run(smaller_bubble, [zero_bubble(s, 4, 8) for s in range(4)], 1, on=labkit.virtual(4)),
}
formulas = {"interleaved, 2 chunks": 3 / (2 * 8 + 3), "zero bubble": 3 / (3 * 8 + 3)}
rows = []
for name, run in {"1F1B": runs["one_f_one_b"], **smaller}.items():
    formula = formulas.get(name, bubble_share(4, 8))
    took, bubble = run.timeline.makespan_ns / 1e9, bubble_of(run.timeline)
    rows.append(f"{name:22} {took:5.2f} s, bubble {bubble:.3f}, on paper {formula:.3f}")
labkit.reveal("zero_bubble_measured", round(bubble_of(smaller["zero bubble"].timeline), 3), rows)

# %% tags=["nbval-ignore-output"]
draw({name: run.timeline for name, run in smaller.items()})

# %% [markdown]
# The paper is right. In the lower picture the last stage has no white until the end, because weights wait there until
# nothing else is to do. And in the upper one each rank's work comes in smaller pieces, with twice as many messages.

# %% [markdown] tags=["slide"]
# ### Smaller bubbles
#
# Time of one microbatch on one stage: forward 1, backward 2 (input 1, weights 1).
#
# | | turns a stage waits | price |
# |---|---|---|
# | GPipe, 1F1B | 3(P-1) | |
# | interleaved, V chunks | 3(P-1)/V | V times the messages, more activations |
# | zero bubble, ZB-H1 | P-1 | backward in two parts; every stage holds what 1F1B's fullest holds |
# | zero bubble, ZB-H2 | 0 | about twice the activations, and the optimizer must not wait for all |
#
# Narayanan et al., SC 2021; Qi et al., 2023.

# %% [markdown]
# ## 14 Break it on purpose
#
# **Mismatch the schedule.** One rank believes in 4 microbatches, the other in 3. First ask your own function, then the
# virtual cluster. What will it say?


# %%
from unittest.mock import patch

from labkit.errors import RunError, RunTimeout


def small_step(make_schedule, counts):
    """One step on small stages, in which each rank has its own opinion of the number of microbatches."""
    stage, num_stages = dist.get_rank(), dist.get_world_size()
    count = counts[stage]
    x = [torch.ones(2, 4, requires_grad=True) for _ in range(count)]
    module = layers(4, 1, "cpu")
    run_schedule(
        make_schedule(stage, num_stages, count), module, [2] * count, torch.empty(4),
        x if stage == 0 else None, x if stage == num_stages - 1 else None, nn.functional.mse_loss,
    )  # fmt: skip
    return module[0][0].weight.grad.norm().item()


print("on paper:", find_stuck([gpipe(0, 2, 4), gpipe(1, 2, 3)]))

# %% tags=["nbval-ignore-output"]
try:
    labkit.run(small_step, gpipe, [4, 3], on=labkit.virtual(2))
except RunError as error:
    print(error)

# %% [markdown]
# The same two places that your function named, with the lines of the program they stand on.
#
# **One message at a time.** 1F1B needs its batches. What if somebody sends and receives them one after another,
# blocking? GPipe survives that. 1F1B does not: stage 0 stands in the send of an activation, stage 1 in the send of a
# gradient, and they face each other. The cell replaces `dist.batch_isend_irecv` by such a loop.


# %% tags=["nbval-ignore-output"]
def one_at_a_time(batch):
    for each in batch:
        call = dist.send if each.op is dist.isend else dist.recv
        call(each.tensor, each.peer, group=each.group)
    return []


with patch.object(dist, "batch_isend_irecv", one_at_a_time):
    print("GPipe:", labkit.run(small_step, gpipe, [4, 4], on=labkit.virtual(2)))
    try:
        labkit.run(small_step, one_f_one_b, [4, 4], on=labkit.virtual(2))
    except RunTimeout as error:
        print("1F1B:", error)


# %% [markdown]
# **Drop a wait.** Post the batch and do not wait. On real processes the result is right or wrong, as it happens. The
# virtual cluster saw it:

# %% tags=["nbval-ignore-output"]
really = dist.batch_isend_irecv


def impatient(batch):
    really(batch)
    return []  # nothing to wait for


with patch.object(dist, "batch_isend_irecv", impatient):
    try:
        run = labkit.run(small_step, gpipe, [2, 2], on=labkit.virtual(2))
        print(*run.timeline.problems[:3], sep="\n")
    except RunError as error:
        print(error)

# %% [markdown]
# **Forget the scale.** No error, no warning. With 4 equal microbatches, by which factor are the gradients too large?

# %% tags=["predict"]
labkit.predict("unscaled_gradients", 1.0)


# %%
def forgotten_scale():
    torch.manual_seed(0)
    module, x, y = nn.Linear(3, 1).double(), torch.randn(8, 3).double(), torch.randn(8, 1).double()
    for part_x, part_y in zip(x.chunk(4), y.chunk(4), strict=True):
        nn.functional.mse_loss(module(part_x), part_y).backward()
    too_large = module.weight.grad.clone()
    module.zero_grad()
    nn.functional.mse_loss(module(x), y).backward()
    return (too_large / module.weight.grad).mean().item()


labkit.reveal("unscaled_gradients", round(forgotten_scale(), 6))

# %% [markdown]
# Adam would hide it, for it divides by the size of the gradients. Then you clip gradients or change M, and wonder.

# %% [markdown] tags=["slide"]
# ### Four ways to break it
#
# | mistake | what you see |
# |---|---|
# | ranks disagree about the schedule | a wait for a message that never comes |
# | 1F1B, one blocking message at a time | two sends that face each other: a deadlock |
# | a wait dropped | wrong numbers, sometimes |
# | the loss not scaled | gradients M times too large, and no error; Adam hides it |
#
# Check the schedule on paper. Compare gradients with one process, in float64, with SGD, on a batch that does not
# divide.

# %% [markdown]
# ## 15 The finished thing
#
# Your pipeline as a function that also runs under plain `torchrun`, with as many stages as there are ranks.


# %% tags=["export"]
def main() -> dict[str, float]:
    """Train one pipeline of all ranks for twenty steps with 1F1B; return the first and last loss, and ms a step."""
    stage, num_stages, device = dist.get_rank(), dist.get_world_size(), message_device()
    last, count = stage == num_stages - 1, 4 * num_stages
    module = layers(64, 2, device)
    optimizer = torch.optim.SGD(module.parameters(), lr=10.0)
    torch.manual_seed(1)
    x = torch.randn(16 * count, 64, device=device)
    xs, ys = list(x.chunk(count)), list(x.flip(1).chunk(count))
    schedule, losses = one_f_one_b(stage, num_stages, count), []
    begin = time.perf_counter()
    for _ in range(20):
        optimizer.zero_grad()
        loss = run_schedule(
            schedule,
            module,
            [16] * count,
            x[0],
            xs if stage == 0 else None,
            ys if last else None,
            nn.functional.mse_loss,
        )
        optimizer.step()
        losses.append(torch.zeros((), device=device) if loss is None else loss)
    milliseconds = (time.perf_counter() - begin) * 1000 / 20
    return {"first_loss": losses[0].item(), "last_loss": losses[-1].item(), "ms_a_step": round(milliseconds, 2)}


# %% tags=["nbval-ignore-output"]
labkit.run(main, on=labkit.local(2)).results[-1]

# %% [markdown]
# From a shell, next to this notebook:
#
# ```
# labkit export 08_pipeline.ipynb --out pipeline.py
# torchrun --nproc-per-node 4 pipeline.py
# ```

# %% [markdown] tags=["slide"]
# ### What breaks at scale
#
# * **Unequal stages.** The pipeline goes at the pace of its slowest stage. Embeddings at one end and a large vocabulary
#   at the other make the ends heavy; give them fewer layers.
# * **The batch.** 64 stages want 256 microbatches, times the data-parallel ranks. At some point a larger batch no
#   longer trains better.
# * **The first stage's memory.** In 1F1B it holds P microbatches, the last one holds one.
# * **One slow link** between two stages slows every microbatch.
# * **One lost rank** stops all stages of its pipeline, and the column that waits for its gradients.

# %% [markdown]
# ## What to remember
#
# * Memory is **16 bytes a parameter** in float32 with Adam, and activations on top.
# * Between layers: few bytes, a bubble. Inside layers: many bytes, no bubble. Inside the machine, between the machines.
# * Autograd ends at the cable; **you** carry the gradient across.
# * A schedule is **data**: draw it, check it on paper, then run it.
# * Bubble **(P-1)/(M+P-1)**. 1F1B does not make it smaller; it makes the memory smaller.
# * Scale the loss by **samples of the microbatch over samples of the batch**.
#
# **The question for the next lesson.** Along the mesh's column, the gradients are still summed as they are: 4 bytes a
# parameter, every step. Most of those numbers are tiny, and none needs 32 bits. What if you sent only the largest one
# per cent, and kept the rest for later? Would it still train? Lesson 10, `10_gradient_compression`, tries.

# %% [markdown]
# ### Sources
#
# * S. Rajbhandari, J. Rasley, O. Ruwase and Y. He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
#   Models", SC 2020: what fills the memory. A. Barth, M. Chambers, S. Eigenbrode and C. Fregly, "Generative AI with
#   Large Language Models", course of DeepLearning.AI and AWS, 2023: 8 bytes more as a high estimate, 24 GB in all. T.
#   Brown et al., "Language Models are Few-Shot Learners", 2020: 175 billion parameters.
# * Y. Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019:
#   microbatches, recomputation, the bubble.
# * D. Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019: one forward, one
#   backward, without a flush. D. Narayanan, A. Phanishayee, K. Shi, X. Chen and M. Zaharia, "Memory-Efficient
#   Pipeline-Parallel DNN Training", ICML 2021: with a flush after each batch (PipeDream-Flush), the 1F1B of this
#   lesson. S. Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models", PPoPP 2021: the same
#   order.
# * M. Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019:
#   f and g. D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
#   SC 2021: uses 1F1B with a flush, and adds interleaved stages. NVIDIA Megatron Core documentation, `tensor_parallel`:
#   the all-reduce of the input's gradient beside the weights' gradients.
# * T. Chen, B. Xu, C. Zhang and C. Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016: checkpointing.
# * P. Qi, X. Wan, G. Huang and M. Lin, "Zero Bubble Pipeline Parallelism", 2023: ZB-H1 and ZB-H2.
# * PyTorch documentation: `torch.distributed.pipelining`, `torch.autograd.Function`, `DeviceMesh`.
