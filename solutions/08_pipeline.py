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
# # 08 Pipelines
#
# The model does not fit on your GPU. You have four GPUs. So each takes a quarter of the layers. Now the model fits, but
# four GPUs train it no faster than one large GPU would. Why, and what can you do?
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** `send` and `recv` from lesson 02, and an idea
# of what autograd does in `backward()`. No GPU.
#
# **Stuck?** `labkit.hint("run_schedule")` gives up to three hints. `labkit.lend("run_schedule")` puts a working version
# into the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 08 Pipelines
#
# Four GPUs, and no faster than one
#
# <!-- notes: The model does not fit, so each GPU takes a quarter of the layers. Now it fits, and three of four wait. -->

# %% tags=["parameters"]
gpt_steps = 60  # of the GPT's training in section 5

# %% tags=["given"]
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit
from labkit.models import loss_of_logits, stage_of_gpt, train_stage, train_with_pipelining

# %% [markdown]
# ## 1 A cut between layers
#
# Training needs room for parameters, gradients, the optimizer state, and the **activations**: whatever forward computes
# and backward needs again. Data parallelism copies all of that to every GPU. When one copy no longer fits, you have to
# cut.
#
# The most obvious cut goes between layers. Rank 0 holds the first layers, rank 1 the next, and so on. Each part is a
# **stage**.
#
# Forward is easy: receive, compute, send. Backward takes some thought, because autograd stops where the message begins.
# All that stage 1 knows of its input is a tensor that came out of a cable. So *you* carry the gradient across.

# %% [markdown] tags=["slide-only"]
# ## The model is cut between layers
#
# It does not fit on one GPU. Cut it, and give each part, a **stage**, a GPU of its own.
#
# 1. Forward: a stage sends its output to the next stage.
# 2. Backward: the gradient of that output comes back.
#
# <!-- notes: A stage waits for the one before it, and in backward for the one after it. That is the whole trouble. -->

# %% tags=["figure"]
labkit.figure("cable")

# %% [markdown]
# What enters a stage must be a **leaf** that requires a gradient, or `x.grad` stays None. Send without the graph
# (`y.detach()`). What you send, and what you receive into, must be contiguous; `torch.empty_like` of a transposed
# tensor is not.
#
# ### Exercise [[one_batch]]
#
# *15 points, about 13 minutes; difficulty 3 of 5, importance 5 of 5*
#
# Rank s is stage s. A receiver must make room first, so `sample` shows what one sample looks like when it enters this
# stage. For the timeline, wrap forward in `with labkit.span("F0"):` and backward in `with labkit.span("B0"):`.


# %% tags=["exercise"] exercise="one_batch" points=15 difficulty=3 importance=5 minutes=13 title="One batch through the stages" provides=["run_stage"]
def run_stage(
    module: nn.Module,
    sample: Tensor,
    num_samples: int,
    inputs: Tensor | None = None,
    targets: Tensor | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor | None:
    """Carry a whole batch forward and backward through this rank's stage; gradients are added to .grad.

    The module runs once. Use point-to-point messages to the neighbours only. With one rank nothing is sent.

    Args:
        module: This stage's layers.
        sample: One sample as it enters this stage, without the batch dimension; only shape, dtype and device matter.
        num_samples: Number of samples in the batch.
        inputs: The batch, on the first stage (rank 0); else None.
        targets: What should come out, on the last stage; else None.
        loss_fn: loss_fn(outputs, targets) is the mean over the samples. Every stage gets it; only the last calls it.

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
    with labkit.span("F0"):
        left = module(entered)

    loss, gradient = None, None
    if is_last:
        left = loss_fn(left, targets)
        loss = left.detach()
    else:
        dist.send(left.detach().contiguous(), dst=stage + 1)
        gradient = torch.empty_like(left, memory_format=torch.contiguous_format)
        dist.recv(gradient, src=stage + 1)
    with labkit.span("B0"):
        torch.autograd.backward(left, gradient)
    if stage > 0:
        dist.send(entered.grad.contiguous(), dst=stage - 1)
    return loss
    # END SOLUTION


# %% tags=["check"]
labkit.check("one_batch", run_stage)

# %% [markdown] tags=["slide-only"]
# ## Four GPUs, the work of one
#
# Four stages, one on each rank, run one batch of 16,384 samples.
#
# **To the room:** what share of the time is a GPU idle?
#
# <!-- notes: Collect guesses, then show the timeline of section 1: a staircase up, a staircase down. -->

# %% [markdown]
# Now run four stages of twelve linear layers on four virtual H100s, with one batch of 16,384 samples. What fraction of
# the time does a GPU wait?


# %% tags=["given"]
WIDTH, SAMPLES, DEPTH = 16384, 16384, 12  # of the layers, of the batch, of each stage


def layers() -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, device="meta") for _ in range(DEPTH)))


def one_large_batch():
    x = torch.empty(SAMPLES, WIDTH, device="meta", requires_grad=True)  # else stage 0 would skip its input's gradient
    ends = (x if dist.get_rank() == 0 else None, x if dist.get_rank() == 3 else None)
    run_stage(layers(), x[0], SAMPLES, *ends, nn.functional.mse_loss)


# %%
one_batch = labkit.run(one_large_batch, on=labkit.virtual(4))
waiting = labkit.schedule_explorer(run=one_batch.timeline).numbers["run"]["bubble"]
print(f"the four GPUs wait {waiting:.0%} of the time, on average")
one_batch.timeline

# %% [markdown]
# You see a staircase up, a staircase down, and never two stages at work. Each stage works a quarter of the time.
# Otherwise it waits: *blocked* in a call, or idle, because its work is done. You bought memory, but no speed. This
# waiting is the **bubble**.

# %% [markdown]
# ## 2 Microbatches
#
# The stages wait because there is one batch, and it is in one place. So cut the batch, too. With M **microbatches**,
# stage 0 sends the first one on and goes to work on the second.

# %% [markdown] tags=["slide-only"]
# ## GPipe cuts the batch into microbatches
#
# 1. Stage 0 sends a **microbatch** on, and goes to work on the next.
# 2. All forwards come first, then all backwards.
#
# **To the room:** eight microbatches on four stages. What share of the time is a stage idle now?
#
# <!-- notes: Guesses first; the next slide shows the step, whole. Huang and others, 2019. -->

# %% tags=["figure"]
labkit.figure("factory", num_stages=4, num_microbatches=8)

# %% [markdown]
# **How many microbatches do four stages need before they wait less than 5 % of the time?**

# %% tags=["predict"]
labkit.predict("microbatches_for_5_percent", 20)

# %% [markdown]
# Assume that messages take no time, and call the time of one forward in one stage a turn. The last stage begins P-1
# turns after the first, and has M turns of work. Backward is the same in reverse. Count.
#
# For `step_seconds`, each microbatch also costs each stage a constant, `overhead_s`: it starts kernels and sends
# messages.
#
# ### Exercise [[bubble]]
#
# *10 points, about 4 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="bubble" points=10 difficulty=2 importance=5 minutes=4 title="The bubble" provides=["bubble_share", "step_seconds"]
def bubble_share(num_stages: int, num_microbatches: int) -> float:
    """Return the fraction of all time that a stage is idle if all stages and microbatches take equally long."""
    # BEGIN SOLUTION bubble
    return (num_stages - 1) / (num_microbatches + num_stages - 1)
    # END SOLUTION


def step_seconds(num_stages: int, num_microbatches: int, batch_seconds: float, overhead_s: float) -> float:
    """Return the time of a step: forward and backward of all microbatches through all stages.

    Args:
        num_stages: P.
        num_microbatches: M.
        batch_seconds: Forward and backward of the whole batch on one stage, without overhead.
        overhead_s: Extra seconds for each microbatch on each stage, forward and backward together.
    """
    # BEGIN SOLUTION bubble
    return (num_microbatches + num_stages - 1) * (batch_seconds / num_microbatches + overhead_s)
    # END SOLUTION


# %% tags=["check"]
labkit.check("bubble", bubble_share, step_seconds)

# %%
enough = next(count for count in range(1, 1000) if bubble_share(4, count) < 0.05)
labkit.reveal("microbatches_for_5_percent", enough, [f"{m}: {bubble_share(4, m):.0%}" for m in (1, 4, 8, 16, 32)])

# %% [markdown] tags=["slide-only"]
# ## More microbatches, less idle time
#
# With room for all M microbatches, P stages are idle this part of the time, the **bubble**:
#
# $$\frac{P-1}{M+P-1}$$
#
# | | M = 1 | 4 | 8 | 16 | 32 |
# |---|---:|---:|---:|---:|---:|
# | 3 stages | 67 % | 33 % | 20 % | 11 % | 6 % |
# | 4 stages | 75 % | 43 % | 27 % | 16 % | 9 % |
# | 8 stages | 88 % | 64 % | 47 % | 30 % | 18 % |
#
# <!-- notes: Four microbatches a stage leave less than a fifth. The price is memory, and small matrices. -->

# %% [markdown]
# ## 3 Your schedule
#
# More microbatches make the bubble smaller. But between its forward and its backward, a microbatch **holds** its
# activations in memory, on every stage that it has passed.
#
# So which stage should do what, and when? A **schedule** answers that, and it is data: for each stage a list of what it
# runs, in order.


# %% tags=["given"]
@dataclass(frozen=True)
class Work:
    microbatch: int


class Forward(Work): ...


class Backward(Work): ...


# %% [markdown]
# **GPipe** (Huang and others, 2019) runs all forwards, then all backwards. If memory is short, it can do so in groups of
# microbatches that fit, here four:

# %% [markdown] tags=["slide-only"]
# ## Short of memory, GPipe runs in groups
#
# GPipe holds all eight microbatches. If a stage has memory for four, it runs four forwards and their backwards, and
# then the other four.
#
# **To the room:** how many turns does a step take now, instead of 33?
#
# <!-- notes: The pipeline fills and drains once more. L = 4 is enough: who runs backward early never holds more. -->

# %% tags=["figure"]
labkit.figure("factory", num_stages=4, num_microbatches=8, most_held=4)

# %% [markdown]
# The rules of the game:
#
# * A forward takes one turn, a backward two, a message none.
# * A stage runs its list in order, each entry as soon as what it needs is there.
# * Forward needs the same microbatch's forward on the previous stage. Backward needs this stage's own forward, and the
#   backward of the next stage.
# * A stage holds a microbatch from the start of its forward to the end of its backward, and may hold at most
#   `most_held`.
#
# ### Exercise [[fill_stages]]
#
# *30 points, about 25 minutes; difficulty 3 of 5, importance 5 of 5*
#
# Any order that finishes and never exceeds the memory is legal. The score of each case is the turns of its step.
#
# * `naive` is GPipe in groups of microbatches that fit into memory. Half of the points are for beating it wherever
#   that is possible.
# * `1F1B` comes from PipeDream (2019). In the variant here (Narayanan and others, 2021), all microbatches are finished
#   when the step ends. A stage with little memory begins with at most `most_held` forwards. The other half are for a
#   step as short as 1F1B's.
# * No schedule can be shorter than the `lower bound`; perhaps none can be as short.


# %% tags=["design"] exercise="fill_stages" points=30 difficulty=3 importance=5 minutes=25 weights=[1, 1, 1, 1, 1, 1, 1, 1] title="Keep the stages at work" provides=["fill_stages"]
def fill_stages(num_stages: int, num_microbatches: int, most_held: int) -> list[list[Work]]:
    """Return for each stage its Forward(m) and Backward(m), in an order that takes the fewest turns.

    A stage holds at most most_held microbatches, each from its forward to its backward.

    Args:
        num_stages: P, 2 or more.
        num_microbatches: M.
        most_held: How many microbatches each stage has memory for, 2 or more; it may be less than P or more than M.
    """
    # BEGIN SOLUTION fill_stages
    orders = [[] for _ in range(num_stages)]
    rooms = [min(most_held, num_stages - stage) for stage in range(num_stages)]  # more would only wait for gradients
    ends = {}  # when each piece of work on each stage is done
    free = [0] * num_stages
    now = 0
    while any(len(order) < 2 * num_microbatches for order in orders):
        for stage, order in enumerate(orders):
            forwards = sum(isinstance(work, Forward) for work in order)
            backwards = len(order) - forwards
            gradient = ends.get((stage + 1, Backward(backwards)), now + 1) if stage < num_stages - 1 else 0
            activation = ends.get((stage - 1, Forward(forwards)), now + 1) if stage > 0 else 0
            if free[stage] > now:
                continue
            if backwards < forwards and gradient <= now:
                work, lasts = Backward(backwards), 2
            elif forwards < num_microbatches and forwards - backwards < rooms[stage] and activation <= now:
                work, lasts = Forward(forwards), 1
            else:
                continue
            order.append(work)
            free[stage] = ends[stage, work] = now + lasts
        now += 1
    return orders
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("fill_stages", fill_stages)

# %% [markdown]
# Here is yours for eight microbatches, with memory for four of them, above GPipe in groups of four. Hatched is bubble;
# grey is what a stage holds. Drag a box to another place and see what happens. Then see what half the memory costs:
# run it with `fill_stages(4, 8, 2)`, too.

# %% [markdown] tags=["slide-only"]
# ## 1F1B: one forward, one backward
#
# 1. Stage s of P begins with P - s **forwards**, or with fewer if its memory holds fewer.
# 2. Then it takes turns: one **backward**, which frees memory, one forward.
#
# GPipe in groups waits until a whole group has come back.
#
# <!-- called: yours, 1F1B -->
# <!-- notes: The next slide has both in the same memory. Follow stage 3: from turn 3 on it never waits for a forward. -->

# %% tags=["nbval-ignore-output"]
labkit.schedule_explorer(yours=fill_stages(4, 8, 4), GPipe_in_groups_of_4=["F0F1F2F3B0B1B2B3F4F5F6F7B4B5B6B7"] * 4)

# %% [markdown] tags=["slide-only"]
# ## 1F1B: memory for 2 instead of 4 costs 18 turns
#
# | turns, with memory for | 8 | 4 | 2 |
# |---|---:|---:|---:|
# | GPipe in groups | 33 | 42 | 60 |
# | **1F1B** | 33 | **33** | **51** |
#
# With memory for four, stage 3 works without a gap from its first forward to its last backward, so more memory saves
# no turn. With memory for two, it has to wait.
#
# <!-- notes: Fewer than 33 turns cannot be: 3 until stage 3 begins, 24 of its work, 6 until the last gradient is back. -->

# %% [markdown]
# **GPipe** with memory for everything runs all forwards, then all backwards, and holds all M microbatches. Yours held
# at most four. A bonus asks how many are enough to be as fast.

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 4 Run it
#
# A schedule of work says nothing about messages. But the messages follow from the work: after each forward a `Send`
# here and a `Recv` on the next stage, after each backward a `SendGrad` and a `RecvGrad`. `with_messages` simulates all
# stages together. Whenever a stage has done a piece of work, `with_messages` adds the send to that stage's list and, at
# the same moment, the receive to its neighbour's. So both sides have their messages in the same order. Two stages and
# one microbatch become `[Forward(0), Send(1, 0), RecvGrad(1, 0), Backward(0)]` and `[Recv(0, 0), Forward(0),
# Backward(0), SendGrad(0, 0)]`.


# %% tags=["given"]
@dataclass(frozen=True)
class Message:
    peer: int
    microbatch: int


class Recv(Message): ...  # the input of this stage


class Send(Message): ...  # the output of this stage


class RecvGrad(Message): ...  # the gradient of the output that this stage sent


class SendGrad(Message): ...  # the gradient of the input that this stage received


Record = Work | Message


def with_messages(orders: list[list[Work]]) -> list[list[Record]]:
    """Return every stage's work with its messages."""
    waiting, ready = [list(order) for order in orders], set()
    programs: list[list[Record]] = [[] for _ in orders]
    while any(waiting):
        moved = False
        for stage, order in enumerate(waiting):
            onward = 1 if order and isinstance(order[0], Forward) else -1
            begins = stage == (0 if onward == 1 else len(orders) - 1)
            if order and (begins or (stage, order[0]) in ready):
                work, to, moved = order.pop(0), stage + onward, True
                programs[stage].append(work)
                if 0 <= to < len(orders):
                    ready.add((to, work))
                    give, take = (Send, Recv) if onward == 1 else (SendGrad, RecvGrad)
                    programs[stage].append(give(to, work.microbatch))
                    programs[to].append(take(stage, work.microbatch))
        if not moved:
            raise ValueError(f"Nobody can go on: {[order[0] for order in waiting if order]} come too early.")
    return programs


# %% [markdown] tags=["slide-only"]
# ## Run a schedule: wait as late as you can
#
# | | |
# |---|---|
# | receive | Begin early. Wait **only when the tensor is needed**. |
# | send | Begin, and go on with the next work. |
# | loss | Multiply each by its microbatch's share of the samples. |
# | memory | Free a microbatch's tensors after its backward. |
#
# <!-- notes: Show the run of section 4 beside the schedule on paper. On NCCL both sides must post in one order. -->

# %% [markdown]
# Now the executor. Four things make it right:
#
# * **The scale.** `loss_fn` is a mean over *its* samples. The step's loss is the mean over all samples of all
#   microbatches, and they may have different sizes. Scale each microbatch's loss: its gradients are then scaled, too.
# * **Adding up.** `backward` adds to `.grad`. Do not set it to zero in between.
# * **Releasing memory.** After a microbatch's `Backward`, keep no reference to its graph (`dict.pop`).
# * **Waiting late.** Post a receive with `dist.irecv` where its record stands. Wait for it before the work that needs
#   it: the later, the more work it can hide behind. Post a send with `dist.isend`, go on, and wait for it only at the
#   end.
#
# ### Exercise [[run_schedule]]
#
# *45 points, about 30 minutes; difficulty 5 of 5, importance 5 of 5*
#
# The schedule may be any list of records that can finish. Follow its order. Some schedules receive a tensor long before
# they need it, but no `RecvGrad` stands before the `Forward` of its microbatch. `irecv` takes a peer as `group_src`,
# `isend` as `group_dst`. Draw the work as the spans `f"F{m}"` and `f"B{m}"`.


# %% tags=["exercise"] exercise="run_schedule" points=45 difficulty=5 importance=5 minutes=30 title="Run a schedule" provides=["run_schedule"]
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

    The module runs once for each Forward. All messages have arrived when this returns. No collective is called, and
    with one stage nothing is sent. The gradient of an output arrives in the output's shape and dtype. You may keep a
    detached output until its send is done. You may use message tags, since every stage runs this function.

    Args:
        schedule: Records in order; peers are ranks within group.
        module: This stage's layers.
        sizes: Number of samples in each microbatch, the same list on every stage; they may differ.
        sample: One sample as it enters this stage, without the batch dimension; only shape, dtype and device matter.
        inputs: The microbatches, on the first stage; else None.
        targets: What should come out for each microbatch, on the last stage; else None.
        loss_fn: loss_fn(outputs, targets) is the mean over a microbatch's samples. Only the last stage calls it.
        group: The stages' process group; None is the default group.

    Returns:
        The mean loss over the whole batch on the last stage, a detached tensor; None on the others.
    """
    # BEGIN SOLUTION run_schedule
    entered, left, gradients, coming, sent = {}, {}, {}, {}, {}
    total = None
    for record in schedule:
        m = record.microbatch
        if isinstance(record, Recv):
            entered[m] = sample.new_empty((sizes[m], *sample.shape))
            coming["F", m] = dist.irecv(entered[m], group=group, group_src=record.peer)
        elif isinstance(record, RecvGrad):
            gradients[m] = torch.empty_like(left[m], memory_format=torch.contiguous_format)
            coming["B", m] = dist.irecv(gradients[m], group=group, group_src=record.peer)
        elif isinstance(record, Send):
            sent["F", m] = dist.isend(left[m].detach().contiguous(), group=group, group_dst=record.peer)
        elif isinstance(record, SendGrad):
            sent["B", m] = dist.isend(entered.pop(m).grad.contiguous(), group=group, group_dst=record.peer)
        elif isinstance(record, Forward):
            if inputs is None:
                coming.pop(("F", m)).wait()
            with labkit.span(f"F{m}"):
                left[m] = module(inputs[m] if inputs is not None else entered[m].requires_grad_())
                if targets is not None:
                    left[m] = loss_fn(left[m], targets[m]) * (sizes[m] / sum(sizes))
                    total = left[m].detach() if total is None else total + left[m].detach()
        else:
            if targets is None:
                coming.pop(("B", m)).wait()
                sent.pop(("F", m)).wait()  # its gradient is here, so it has arrived: free what it held
            with labkit.span(f"B{m}"):
                torch.autograd.backward(left.pop(m), gradients.pop(m, None))
    for work in sent.values():
        work.wait()
    return total
    # END SOLUTION


# %% tags=["check"]
labkit.check("run_schedule", run_schedule)

# %% [markdown]
# Now on the four virtual H100s: the same samples, in 8 microbatches.


# %% tags=["given"]
def one_step(orders: list[list[Work]]):
    stage, count = dist.get_rank(), len(orders[0]) // 2
    x = [torch.empty(SAMPLES // count, WIDTH, device="meta", requires_grad=True) for _ in range(count)]
    ends = (x if stage == 0 else None, x if stage == len(orders) - 1 else None)
    run_schedule(with_messages(orders)[stage], layers(), [len(x[0])] * count, x[0][0], *ends, nn.functional.mse_loss)


# %% tags=["nbval-ignore-output"]
schedules = {"GPipe": [[kind(m) for kind in (Forward, Backward) for m in range(8)]] * 4, "yours": fill_stages(4, 8, 4)}
runs = {name: labkit.run(one_step, orders, on=labkit.virtual(4)).timeline for name, orders in schedules.items()}

labkit.schedule_explorer(**runs)

# %% [markdown]
# On paper GPipe's bubble is 27.3 %, and in this run 27.4 %: next to such large layers, messages take almost no time. On
# GPUs, two rules are easy to miss:
#
# * **Never call `.item()` on a loss in the middle.** It blocks the CPU until the GPU has the number.
# * **NCCL keeps order.** Messages between two GPUs travel in the order in which both sides post them, so both must
#   agree. In schedules from `with_messages`, both agree. In some of the check's schedules they do not: two neighbours
#   both send before they receive. Gloo allows that, because there each direction has its own order. With NCCL it can
#   hang.
#
# One mistake raises no error: forgetting the scale. With eight equal microbatches all gradients are eight times too
# large, and Adam hides it, because it divides by the size of the gradient. You notice only when you change M, or when
# clipping starts to cut gradients that were never too large.

# %% [markdown]
# ## 5 The GPT
#
# Train a GPT of four blocks, cut in two, on two real processes: first with your executor, then with
# `torch.distributed.pipelining`. Both clip by the norm over *all* stages, so each stage's sum of squares is
# all-reduced. (If the embedding and the output layer share one matrix, Megatron-LM keeps both copies equal by an
# all-reduce of their gradients. Here they are separate.)


# %% tags=["given"]
def yours(num_steps: int) -> list[float]:
    stage, module = dist.get_rank(), stage_of_gpt(dist.get_rank(), 2)
    schedule = with_messages(fill_stages(2, 8, 8))[stage]

    def step(tokens: Tensor, targets: Tensor) -> Tensor | None:
        ends = (tokens.chunk(8) if stage == 0 else None, targets.chunk(8) if stage == 1 else None)
        return run_schedule(schedule, module, [8] * 8, torch.empty(tokens.shape[1], 96), *ends, loss_of_logits)

    return train_stage(module, step, num_steps)


# %% tags=["nbval-ignore-output"] seconds=40
losses = {
    train.__name__: labkit.run(train, gpt_steps, on=labkit.local(2, device="cpu"), echo=False).results[1]
    for train in (yours, train_with_pipelining)
}
print("loss in the last step:", {name: round(of_steps[-1], 4) for name, of_steps in losses.items()})
print("never further apart than 0.01:", max(abs(a - b) for a, b in zip(*losses.values(), strict=True)) < 0.01)

# %% [markdown]
# The loss is the same, but the library is stricter. It takes the plain mean over the M microbatches, and gives every
# buffer the size of the first microbatch. So all microbatches must be equally large, and M must divide the batch. Your
# executor takes any sizes.

# %% [markdown] tags=["slide-only"]
# ## A plain mean errs if sizes differ
#
# | microbatch | samples | mean loss | by samples | plain mean |
# |---|---:|---:|---:|---:|
# | 0 | 3 | 1 | 3/4 · 1 | 1/2 · 1 |
# | 1 | 1 | 5 | 1/4 · 5 | 1/2 · 5 |
# | loss of the step | | | **2** | **3** |
#
# Your executor weighs by samples. `torch.distributed.pipelining` takes the plain mean, in which the last sample counts
# twice. Give it equal microbatches.
#
# <!-- notes: Run the last cell together. torch.distributed.pipelining takes a mean of means, so microbatches must be equal. -->

# %% [markdown]
# ## 6 What to remember
#
# * Autograd ends at the cable; **you** carry the gradient.
# * The bubble is **(P-1)/(M+P-1)**. Microbatches shrink it, and cost memory unless backward comes soon.
# * A schedule is **data**: draw it, play it, then run it.
# * Scale a loss by **samples of the microbatch over samples of the batch**.
#
# The slowest stage sets the pace, so a stage with the embedding or a large output layer gets fewer blocks.
#
# **The next question.** A step can be as short as GPipe's with much less memory. As long as each GPU has one stage and
# backward is one piece of work, no order makes a shorter step. Does anything have to wait at all? Lesson 09,
# `09_schedules`.

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * **You** carry the gradient across a cut.
# * With memory enough, stages are idle (P-1)/(M+P-1) of the time.
# * Backward soon keeps memory small.
# * A schedule is data: draw it, then run it.
#
# Next: can the idle time go away?
#
# <!-- notes: The slowest stage sets the pace; embeddings make the ends heavy. -->

# %% [markdown]
# ## Bonus: Memory enough
#
# GPipe holds all M microbatches. How many must a stage hold to be as fast?
#
# **[[held_enough]].** Eight stages, 64 microbatches. A forward takes one turn, a backward two. Every stage has room for
# k microbatches. What is the smallest k that allows a step as short as GPipe's?

# %% tags=["why"] exercise="held_enough" bonus=true title="Memory enough"
labkit.answer("held_enough", 8)

# %% [markdown] tags=["slide-only"]
# ## PipeDream never drains, and pays with old weights
#
# Batch after batch enters, and the optimizer steps after each.
#
# | | |
# |---|---|
# | It saves time: | no stage runs empty between steps. |
# | It costs memory: | a stage keeps old weights for each batch in flight (**weight stashing**). |
# | It costs steps: | gradients of old weights help less, as with parameter servers. |
#
# <!-- notes: Count the minibatches between a forward on stage 0 and its backward. The gradients are right, for weights that are old. -->

# %% [markdown]
# ## Bonus: Old weights, again
#
# Why does the pipeline have to run empty at the end of each step? Because all microbatches of a step must see the same
# weights. In lesson 06 workers computed with old weights, and it cost steps. **PipeDream** (Narayanan and others, 2019)
# makes the same trade for pipelines: it never drains. Whole batches (its paper calls them minibatches) enter one right
# after another, and the optimizer steps after each of them. By the time a minibatch comes back to stage 0, the weights
# there have been updated since its own forward.
#
# That breaks the chain rule, unless backward uses the weights that its own forward used. So each stage keeps a copy of
# the weights for each minibatch it holds: **weight stashing**. The gradient is right then, for weights that are some
# steps old.
#
# **[[stashed_versions]].** PipeDream has four stages, and each runs backward as soon as it can. How many versions of its
# weights does stage 0 keep, the newest one included?

# %% tags=["why"] exercise="stashed_versions" bonus=true title="Versions of the weights"
labkit.answer("stashed_versions", 4)

# %% [markdown]
# One price is memory for the copies. The other is that the number of stages changes the training: with more stages,
# gradients belong to older weights. GPipe and the 1F1B of section 3 drain instead; their price is the bubble.

# %% [markdown]
# ## Bonus: How many microbatches?
# The formula for the bubble says: as many as you can. Your machine says something else, because of the overhead.
#
# Run two stages on two real processes. The clock starts after a barrier. On a GPU it is read only after
# `torch.cuda.synchronize()`: without it the clock stops when the work has been *started*.


# %% tags=["export"]
def main() -> dict[int, float]:
    """Return the median milliseconds of a step for several numbers of microbatches; the first of each is a warm-up."""
    import time

    stage, num_stages = dist.get_rank(), dist.get_world_size()
    device = labkit.device() if "nccl" in dist.get_backend() else torch.device("cpu")
    module = nn.Sequential(*(nn.Linear(512, 512) for _ in range(6))).to(device)
    x = torch.randn(512, 512, device=device)
    ms_a_step: dict[int, float] = {}
    for count in (1, 2, 4, 8, 16, 64):
        parts, sizes = list(x.chunk(count)), [512 // count] * count
        schedule = with_messages([[kind(m) for kind in (Forward, Backward) for m in range(count)]] * num_stages)[stage]
        ends = (parts if stage == 0 else None, parts if stage == num_stages - 1 else None)
        times = []
        for _ in range(6):
            dist.barrier()
            begin = time.perf_counter()
            run_schedule(schedule, module, sizes, x[0], *ends, nn.functional.mse_loss)
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) * 1e3)
        ms_a_step[count] = sorted(times[1:])[2]
    return ms_a_step


# %% tags=["nbval-ignore-output"]
measured = labkit.run(main, on=labkit.local(2)).results[0]
print({count: round(ms, 1) for count, ms in measured.items()})

# %% [markdown]
# `step_seconds` is linear in its last two arguments. Fit both to what was measured, and let the formula choose:

# %% tags=["nbval-ignore-output"]
matrix = torch.tensor([[step_seconds(2, m, 1, 0), step_seconds(2, m, 0, 1)] for m in measured], dtype=torch.float64)
seconds = torch.tensor(list(measured.values()), dtype=torch.float64).unsqueeze(1) / 1e3
batch_seconds, overhead_s = torch.linalg.lstsq(matrix, seconds).solution.clamp(min=0).flatten().tolist()
print(f"whole batch on one stage: {1e3 * batch_seconds:.1f} ms; each microbatch costs {1e3 * overhead_s:.2f} ms more")
print("best by the formula:", min(range(1, 513), key=lambda m: step_seconds(2, m, batch_seconds, overhead_s)))
print("best measured:      ", min(measured, key=measured.get))

# %% [markdown]
# Set the derivative to zero: the best M is $\sqrt{(P-1)\,t/o}$, up to rounding. Here t is the time of the whole batch
# on one stage, and o is the overhead of one microbatch. More stages need more microbatches. A faster device with the
# same overhead needs fewer. Near the minimum the curve is flat. On a busy machine each message waits for a core, and
# the best M may be 1.
#
# The same function runs under plain `torchrun`, with as many stages as there are ranks:
#
# ```
# labkit export 08_pipeline.ipynb --out pipeline.py
# torchrun --nproc-per-node 4 pipeline.py
# ```
#
# ## Bonus: Say it with a number
#
# Your model fits into four stages, and you have more GPUs than that. You can run several pipelines side by side. Each
# gets its share of the microbatches, and gradients are averaged over the pipelines.
#
# ### Exercise [[four_or_eight_stages]]
#
# *6 points, about 8 minutes; difficulty 2 of 5, importance 4 of 5*
#
# You have 32 GPUs and 64 equal microbatches in a step. Would you run eight pipelines of four stages, or four of eight?
# Answer in two to five sentences, for a person to read. Give both bubbles, say how much longer a step takes with
# the larger bubble, and name one cost or benefit that neither bubble shows. If you work alone, compare yours with
# `labkit.lend("four_or_eight_stages")`.

# %% [markdown] tags=["write"] exercise="four_or_eight_stages" title="Four stages or eight" minutes=8 bonus=true rubric={"27.3 % and 30.4 %, with 8 and 16 microbatches": 2, "about 5 % longer: the work of a GPU is the same, so it is over 1 - bubble": 2, "names what the bubble leaves out: half the weights a GPU with eight stages, or twice the messages": 2}
# Eight pipelines of four stages. Each gets 8 microbatches, a bubble of 3/11 = 27.3 %; four pipelines of eight stages
# get 16 each, 7/23 = 30.4 %. A GPU computes as much either way, so a step takes work / (1 - bubble), and that is 4.5 %
# more with eight stages. The bubble does not say that eight stages hold half the weights and optimizer state on each
# GPU, nor that activations cross twice as many cuts. So I would take eight stages only where four are short of memory.

# %% [markdown]
# ### Sources
#
# * Y. Huang and others, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019:
#   microbatches and the bubble.
# * D. Narayanan and others, "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019: 1F1B without a
#   flush, weight stashing.
# * D. Narayanan and others, "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021: 1F1B with a flush.
# * D. Narayanan and others, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021:
#   the bubble over the *working* time, (P-1)/M, where section 2 divides by all time; both ends of a tied embedding.
# * PyTorch documentation: `torch.distributed.pipelining`.
