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
# # 09 Schedules
#
# Four GPUs, eight microbatches, and each GPU waits 27 % of the time. More microbatches would help, but your batch is
# too small for more. Does anything have to wait at all?
#
# The answers got better over the years: GPipe (2019), 1F1B (2019; today's form 2021), interleaving (2021), zero bubble
# (2023). You will meet 1F1B, write a program that finds deadlocks, and then compete with the best.
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** lesson 08: stages, microbatches, and what a
# schedule is. Nothing here calls your code from there.
#
# **Stuck?** `labkit.hint("find_deadlock")` gives up to three hints. `labkit.lend("find_deadlock")` puts a working version into
# the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 09 Schedules
#
# Does anybody have to wait?
#
# <!-- notes: GPipe 2019, interleaving 2021, zero bubble 2023. Recognise one, find deadlocks, compete with the best. -->

# %% tags=["parameters"]
gpt_steps = 40  # of the GPT's training in section 5

# %% tags=["given"]
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit
from labkit.models import pipelining_step, stage_of_gpt, train_stage, train_with_pipelining


@dataclass(frozen=True)
class Work:
    microbatch: int


class Forward(Work):
    """Run this microbatch forward through the stage."""


class Backward(Work):
    """Run it backward."""


# %% [markdown]
# ## 1 One forward, one backward
#
# GPipe runs all forwards, then all backwards, and holds every microbatch. Here is the schedule that Megatron-LM runs instead.
# Its name is **1F1B**: one forward, one backward.

# %% tags=["figure"]
labkit.figure("factory", num_stages=4, num_microbatches=6, schedule="1f1b")

# %% [markdown]
# Step through it and watch one stage at a time: what it does first, when it runs its first backward, what it does last.
# **With 8 stages and 32 microbatches, how many microbatches does stage 0 hold at most?** (GPipe: all 32.)

# %% tags=["predict"]
labkit.predict("microbatches_held", 32)

# %% [markdown]
# ### Exercise [[one_f_one_b]]
#
# *15 points, about 8 minutes; difficulty 3 of 5, importance 5 of 5*
#
# Write down what you saw, for any P and M. A forward takes one turn and a backward two; messages take none.


# %% tags=["exercise"] exercise="one_f_one_b" points=15 difficulty=3 importance=5 minutes=8 title="One forward, one backward" provides=["one_f_one_b"]
def one_f_one_b(stage: int, num_stages: int, num_microbatches: int) -> list[Work]:
    """Return what one stage runs in 1F1B, in order: Forward(m) and Backward(m) of each microbatch, once each.

    Forwards go from microbatch 0 to M-1, and so do backwards. A step is as short as GPipe's, 3(M+P-1) turns. Stage s never
    holds more than P-s microbatches that have gone forward and not yet backward.

    Args:
        stage: s, 0 to P-1.
        num_stages: P, 1 or more.
        num_microbatches: M, 1 or more; it may be less than P.
    """
    # BEGIN SOLUTION one_f_one_b
    ahead = min(num_stages - stage, num_microbatches)
    order = [Forward(microbatch) for microbatch in range(ahead)]
    for microbatch in range(num_microbatches):
        order.append(Backward(microbatch))
        if microbatch + ahead < num_microbatches:
            order.append(Forward(microbatch + ahead))
    return order
    # END SOLUTION


# %% tags=["check"]
labkit.check("one_f_one_b", one_f_one_b)


# %%
def held(order):
    """Return the most microbatches that have gone forward and not backward."""
    sums = [sum(1 if isinstance(work, Forward) else -1 for work in order[:at]) for at in range(len(order) + 1)]
    return max(sums)


gpipe = [[kind(m) for kind in (Forward, Backward) for m in range(8)]] * 4
pictures = labkit.schedule_explorer(GPipe=gpipe, yours=[one_f_one_b(stage, 4, 8) for stage in range(4)])
labkit.reveal("microbatches_held", held(one_f_one_b(0, 8, 32)), pictures)

# %% [markdown]
# The bubble is the same as GPipe's, but what a stage holds no longer grows with M. So memory no longer limits M; only
# your batch does.

# %% [markdown] tags=["slide-only"]
# ## 1F1B: GPipe's bubble, less memory
#
# ```
# stage 0  F0 F1 F2 F3             B0 F4 B1 F5 B2    B3 ...
# stage 1     F0 F1 F2       B0 F3 B1 F4 B2 F5 B3 ...
# stage 2        F0 F1    B0 F2 B1 F3 B2 F4 B3 ...
# stage 3           F0 B0 F1 B1 F2 B2 F3 B3 ...
# ```
#
# The same bubble as GPipe. Stage s holds P-s microbatches, not M.
#
# <!-- notes: Show the figure of section 1 first, and let the room say the rule for a stage's first forwards. -->

# %% [markdown]
# ## 2 Will it finish?
#
# Lesson 08's executor waits for its sends only at the very end. That is not how large systems do it. NCCL moves the
# messages between two GPUs in the order in which they were posted, and a send ends when the other side receives. So if
# two GPUs each post a send to the other and wait for it, neither gets to its receive. Such systems therefore post
# consecutive sends and receives as one batch (`dist.batch_isend_irecv`), and wait for the whole batch. Whether a
# schedule finishes or hangs depends on which messages make a batch, and where the batches stand between the work.
#
# You want to know that before you rent 512 GPUs. Here are work *and* messages:


# %% tags=["given"]
@dataclass(frozen=True)
class Message:
    peer: int
    microbatch: int


class Recv(Message):
    """Receive the microbatch's activation from stage `peer`."""


class Send(Message):
    """Send the output of Forward to stage `peer`."""


class RecvGrad(Message):
    """Receive from stage `peer` the gradient of this stage's output."""


class SendGrad(Message):
    """Send to stage `peer` the gradient of this stage's input."""


Record = Work | Message


def steps(schedule: list[Record]) -> Iterator[list[Record]]:
    """Yield the schedule's steps: messages that stand together as one list, each piece of work alone."""
    for is_message, records in groupby(schedule, key=lambda record: isinstance(record, Message)):
        if is_message:
            yield list(records)
        else:
            yield from ([record] for record in records)


# %% [markdown]
# A schedule has **steps** (not to be confused with training steps): messages that stand together are one step, and each
# `Forward` or `Backward` is one by itself. A stage *posts* all messages of a step when it arrives there, and goes on
# when all are *done*. A message is done when its partner has been posted on the other side. The partner of
# `Send(peer=1, microbatch=2)` on stage 0 is `Recv(peer=0, microbatch=2)` on stage 1. The partner of a `SendGrad` is a
# `RecvGrad`. (To keep it simple, only the partner counts here, not the order in which NCCL moves messages. So a
# schedule that passes may still hang on NCCL.) A message stays posted, even if its stage gets stuck. Stages exchange
# messages only with their neighbours. A stage cannot leave a step that contains
#
# * a message whose partner has not been posted;
# * a `Forward` of a microbatch that no earlier step has received, except on the first stage;
# * a `Backward` of a microbatch that has not gone forward on this stage;
# * on every stage but the last, a `Backward` of a microbatch whose gradient was not received in an earlier step;
# * a `Send` of a microbatch that has not gone forward, or a `SendGrad` of one that has not gone backward. Such a
#   message is never posted, because there is nothing to send. The step's other messages are posted.
#
# ### Exercise [[find_deadlock]]
#
# *30 points, about 25 minutes; difficulty 4 of 5, importance 4 of 5*
#
# Play all stages on paper until nobody can go on. `steps(schedule)` cuts a schedule into steps.


# %% tags=["exercise"] exercise="find_deadlock" points=30 difficulty=4 importance=4 minutes=25 title="Find the deadlock" provides=["find_stuck"]
def find_stuck(schedules: list[list[Record]]) -> dict[int, Record]:
    """Return each stage that can never finish, and the record at which it is stuck; {} if all stages finish.

    When no stage can go on, look at the step where each unfinished stage stands. Return, for each of these stages, the
    first record in its step that cannot complete. A stage that waits for a stuck stage is stuck, too.

    Args:
        schedules: The schedule of each stage, by its number; no schedule has the same record twice. They are not
            changed.
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
        if isinstance(record, Message):
            return (record.peer, partner[type(record)](stage, record.microbatch)) in posted
        return True

    moved = True
    while moved:
        moved = False
        for stage, plan in enumerate(plans):
            while at[stage] < len(plan):
                step = plan[at[stage]]
                ready = {(stage, r) for r in step if isinstance(r, Message) and done.issuperset(needs(stage, r))}
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
facing = [
    [Forward(0), Send(1, 0), Forward(1), Send(1, 1), RecvGrad(1, 0), Backward(0), RecvGrad(1, 1), Backward(1)],
    [Recv(0, 0), Forward(0), Backward(0), SendGrad(0, 0), Recv(0, 1), Forward(1), Backward(1), SendGrad(0, 1)],
]
print("1F1B, two stages:      ", find_stuck(facing))
print("stage 1 expects one:   ", find_stuck([facing[0], facing[1][:4]]))

# %% [markdown]
# 1F1B needs messages that are posted together. On stage 0, `Send` of microbatch 1 stands beside `RecvGrad` of microbatch 0. On
# stage 1, `SendGrad` of 0 stands beside `Recv` of 1. Suppose each stage posts its send alone and waits for it. Then neither
# stage ever posts its receive, and both sends wait forever.

# %% [markdown] tags=["slide-only"]
# ## Two sends that face each other
#
# ```
# stage 0   ... F1  Send 1      waits for  Recv 1
# stage 1   ... B0  SendGrad 0  waits for  RecvGrad 0
# ```
#
# Posted together: `Send 1 + RecvGrad 0`, `SendGrad 0 + Recv 1`. Nobody waits.
#
# <!-- notes: On NCCL a send ends when the other side receives. A program of forty lines finds every such circle. -->

# %% [markdown]
# ## 3 The order that waits
#
# A schedule can finish and still be slow. Here is the recording of one step with four stages and eight microbatches.
# Its gradients are right, but it takes 1.5 times as long as 1F1B.

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("waiting_order")

# %% [markdown]
# ### Exercise [[waiting_order]]
#
# `stage`: whose order makes the others wait? `microbatch`: which microbatch's forward could that stage have run in its
# first long wait? `cause`: `"slow GPU"`, `"slow link"`, `"too few forwards first"` or `"too many forwards first"`?

# %% tags=["find"] exercise="waiting_order" points=0 minutes=6 title="The order that waits"
labkit.answer("waiting_order", stage=1, microbatch=2, cause="too few forwards first")

# %% [markdown] tags=["slide-only"]
# ## Right, and 1.5 times as long
#
# **To the room:** which stage has the wrong order?
#
# <!-- notes: The recorded run of section 3. All stages wait. At whose door does something lie while it waits? -->

# %% [markdown] tags=["slide-only"]
# ## Backward is two jobs
#
# * **I**, the gradient of the stage's input: the previous stage waits for it
# * **W**, the gradient of the weights: nobody waits before the optimizer
#
# And two small chunks on each GPU: the last one gets its first work after half the time.
#
# <!-- notes: W can stand in the white. Until it is done, what it needs is held. Placement round or v: draw both. -->

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 4 The shortest step
#
# 1F1B uses less memory than GPipe but takes just as long. Two ideas save time.
#
# **Backward is two jobs.** The gradient of the stage's input, `I`, is urgent: the previous stage waits for it. The
# gradient of the weights, `W`, is not: nobody needs it before the optimizer. So a stage can do W where it would
# otherwise wait (Qi and others, 2023). Until a microbatch's W is done, the stage still holds what this W needs.
#
# **Small stages, visited twice.** Give each GPU two small **chunks** of the model instead of one large stage (Narayanan
# and others, 2021). A forward through a chunk takes half as long, so the last GPU gets its first work after (P-1)/2
# turns instead of P-1. The model has 2P parts, and there are two ways to lay them out:
#
# | placement | chunk 0 of stage s is part | chunk 1 of stage s is part |
# |---|---|---|
# | `"round"` | s | P + s |
# | `"v"` | s | 2P - 1 - s |
#
# Now the rules of the game:
#
# * F, I and W take one turn each for a whole stage, and half a turn each for a chunk. B is I and W together.
# * F of a part needs F of the previous part. I (or B) of a part needs its own F, and I (or B) of the next part. W needs
#   its own I. Messages take no time.
# * A stage holds a microbatch from the start of its F to the end of its W (or B). With two chunks, a microbatch
#   that one chunk holds counts as half, and one that both hold as a whole.
#
# So `["F0", "F1", "I0", "F2", "W0"]` takes five turns, if nothing is late, and holds three microbatches from the start
# of F2 to the end of W0.
#
# ### Exercise [[shortest_step]]
#
# *30 points, about 30 minutes; difficulty 5 of 5, importance 4 of 5*
#
# A plan is data: a placement, and for each stage a list of words. `"F0"` is the forward of microbatch 0 through chunk 0, and
# `"F0.1"` through chunk 1.
#
# * Half of the points: fewer turns than 1F1B (`naive`) in every case.
# * All of the points: no more turns than `ZB-V` (Qi and others, 2023) in every case. ZB-V holds at most P microbatches,
#   so it always fits.
#
# No plan is shorter than the `lower bound`, (P-1)/2 + 3M turns: with two chunks, the last stage gets its first work after
# (P-1)/2 turns at the earliest, and then has 3M turns of work. ZB-V reaches it in every case.


# %% tags=["design"] exercise="shortest_step" points=30 difficulty=5 importance=4 minutes=30 weights=[1, 1, 1, 1, 1, 1, 1, 1] title="The shortest step" provides=["shortest_step"]
def shortest_step(num_stages: int, num_microbatches: int, most_held: int) -> tuple[str, list[list[str]]]:
    """Return a placement, "one" (a chunk on each stage), "round" or "v", and for each stage the list of its work.

    Each chunk works on each microbatch once: with F and B, or with F, I and W.

    Args:
        num_stages: P.
        num_microbatches: M, at least 2P.
        most_held: How many microbatches each stage has memory for, P or more.
    """
    # BEGIN SOLUTION shortest_step
    orders = []
    for stage in range(num_stages):
        behind, steady = num_stages - stage, max(num_microbatches - num_stages, num_stages - 1)
        phases = [  # ZB-V, which needs memory for num_stages
            ("F0", 2 * behind - 1), ("F1 F0", stage), ("F1 I1 W1", behind), ("F0 I0 W0 F1 I1 W1", steady),
            ("I0 I1", stage), ("I0 W0", behind), ("W1", stage), ("W0", stage),
        ]  # fmt: skip
        order, done = [], dict.fromkeys(("F0", "F1", "I0", "I1", "W0", "W1"), 0)
        for work in (word for words, times in phases for word in words.split() * times):
            if done[work] < num_microbatches:
                order.append(f"{work[0]}{done[work]}.{work[1]}")
                done[work] += 1
        orders.append(order)
    return "v", orders
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("shortest_step", shortest_step)

# %% [markdown]
# Here are the published schedules; a line marks a memory of four microbatches. Switch on ZB-H1, ZB-V and interleaved.

# %% tags=["nbval-ignore-output"]
labkit.schedule_explorer(memory_limit=4)

# %% [markdown]
# | 4 stages, 8 microbatches | turns | held at most | price |
# |---|---:|---:|---|
# | GPipe | 33 | 8 | memory |
# | 1F1B | 33 | 4 | |
# | interleaved, 2 chunks | 28.5 | 5.5 | a microbatch crosses 7 borders between GPUs, not 3 |
# | ZB-H1 | 27 | 4 | backward in two parts |
# | ZB-V | 25.5 | 4 | backward in two parts, and 6 borders; 25.5 is the bound |
#
# `torch.distributed.pipelining` has four of them: `ScheduleGPipe`, `Schedule1F1B`, `ScheduleInterleaved1F1B` and
# `ScheduleZBVZeroBubble`.
#
# **[[slow_messages]].** Take the same 4 stages and 8 microbatches, but let a message take half a turn. Which has the
# longest step: `"GPipe"`, `"1F1B"`, `"interleaved"` or `"ZB-H1"`? (Think first; then the slider `message` shows it.)

# %% tags=["why"] exercise="slow_messages" title="Slow messages"
labkit.answer("slow_messages", "1F1B")

# %% [markdown] tags=["slide-only"]
# ## The shortest step we know: 25.5 turns
#
# | 4 stages, 8 microbatches | turns | held |
# |---|---:|---:|
# | GPipe | 33 | 8 |
# | 1F1B | 33 | 4 |
# | interleaved | 28.5 | 5.5 |
# | ZB-H1 | 27 | 4 |
# | ZB-V | 25.5 | 4 |
#
# **To the room:** how far below 1F1B do you come?
#
# <!-- notes: Show the table after the exercise; before it only its first two rows. The board ranks the plans. -->

# %% [markdown]
# ## 5 Data x pipeline
#
# Pipelines do not replace data parallelism. With four GPUs and two stages you have two pipelines, each with its own part of the
# batch. A `DeviceMesh` is a table of ranks with names for its axes:
#
# ```python
# mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipe"))
# mesh.get_group("pipe")   # this rank's pipeline: a row of the table
# mesh.get_group("data")   # the same stage in all pipelines: a column
# ```
#
# Run the schedule along the row, then combine the gradients along the column. Mind the scale: each pipeline has the
# gradient of the mean over *its* samples, and the pipelines may have different numbers of samples.
#
# ### Exercise [[data_and_pipeline]]
#
# *25 points, about 10 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="data_and_pipeline" points=25 difficulty=3 importance=4 minutes=10 title="Data x pipeline" provides=["hybrid_step"]
def hybrid_step(
    mesh: dist.DeviceMesh,
    run_step: Callable[[dist.ProcessGroup], Tensor | None],
    module: nn.Module,
    num_samples: int,
) -> Tensor | None:
    """Run one step of several pipelines; .grad becomes the gradient of the mean loss over the samples of all pipelines.

    Args:
        mesh: A mesh with the axes "data" and "pipe".
        run_step: Runs this rank's pipeline once in the group it is given; it overwrites .grad with the gradient of the
            mean over the pipeline's own samples. Returns that mean loss on the last stage, None on the others.
        module: This rank's stage. A frozen or unused parameter keeps None as its gradient; these parameters are the
            same in every pipeline.
        num_samples: Number of samples in this rank's pipeline; it may differ between pipelines.

    Returns:
        The mean loss over all samples on the last stages; None on the others.
    """
    # BEGIN SOLUTION data_and_pipeline
    data = mesh.get_group("data")
    loss = run_step(mesh.get_group("pipe"))
    everybody = torch.tensor(float(num_samples), dtype=torch.float64)
    dist.all_reduce(everybody, group=data)
    share = num_samples / everybody.item()
    for tensor in [p.grad for p in module.parameters() if p.grad is not None] + ([] if loss is None else [loss]):
        tensor *= share
        dist.all_reduce(tensor, group=data)
    return loss
    # END SOLUTION


# %% tags=["check"]
labkit.check("data_and_pipeline", hybrid_step)

# %% [markdown]
# Now the GPT on four real processes: two pipelines of two stages, each with half of every batch, under torch's 1F1B.
# Compare with one pipeline that gets the whole batch. For clipping, squared norms are summed over one pipeline's stages
# only: the other pipeline has the same gradients.


# %% tags=["given"]
def two_pipelines(num_steps: int) -> list[float]:
    """Return the loss of each step, on the last stages."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipe"))
    row, stage = mesh.get_coordinate()
    module = stage_of_gpt(stage, 2)
    pipelined = pipelining_step(module, 4, mesh.get_group("pipe"))

    def step(tokens: Tensor, targets: Tensor) -> Tensor | None:
        mine = slice(row, None, 2)
        return hybrid_step(mesh, lambda group: pipelined(tokens[mine], targets[mine]), module, len(tokens[mine]))

    return train_stage(module, step, num_steps, group=mesh.get_group("pipe"))


# %% tags=["nbval-ignore-output"] seconds=40
one = labkit.run(train_with_pipelining, gpt_steps, on=labkit.local(2, device="cpu"), echo=False).results[1]
two = labkit.run(two_pipelines, gpt_steps, on=labkit.local(4, device="cpu"), echo=False).results[3]
print("loss in the last step, one pipeline and two:", round(one[-1], 4), round(two[-1], 4))
print("never further apart than 0.01:", max(abs(a - b) for a, b in zip(one, two, strict=True)) < 0.01)

# %% [markdown] tags=["slide-only"]
# ## Rows carry activations, columns gradients
#
# | | stage 0 | stage 1 |
# |---|---|---|
# | pipeline 0 | rank 0 | rank 1 |
# | pipeline 1 | rank 2 | rank 3 |
#
# * rows: activations, to the neighbour
# * columns: gradients, all-reduced
#
# <!-- notes: Weigh by samples before the sum. Clip by one row: the other holds the same gradients. -->

# %% [markdown]
# ## 6 What to remember
#
# * **1F1B** has GPipe's bubble, but holds at most P microbatches.
# * A deadlock shows on paper: play the schedule until nobody can go on.
# * In a slow run every stage waits. Look for the stage that waits although the data for a forward or backward is
#   already there: its order puts something else first, whose data is still missing.
# * Backward is **two jobs**; the second one fills bubbles. Chunks shorten the last GPU's first wait.
#
# The game had equal stages and free messages. In a real pipeline, no order makes a step shorter than the work of the
# slowest stage.
#
# **The next question.** Along the columns the gradients still travel uncompressed: 4 bytes a parameter, every step.
# Most of those numbers are tiny. What if you sent only the largest? Lesson 10, `10_gradient_compression`.

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * 1F1B: GPipe's bubble, P microbatches
# * a deadlock shows on paper
# * W fills bubbles
#
# Next: gradients still travel whole.
#
# <!-- notes: No order makes a step shorter than the work of the slowest stage. -->

# %% [markdown]
# ## Bonus: Memory against time
#
# If 1F1B still needs too much memory, keep none of a stage's activations but its *input*, and run forward again just
# before backward: activation **checkpointing** (Chen and others, 2016). If backward takes twice as long as forward, the
# work grows from 3 units to 4, by a third.
#
# ### Exercise [[recompute]]
#
# *8 points, about 30 minutes; difficulty 4 of 5, importance 3 of 5*
#
# Write it as a `torch.autograd.Function`: `forward(ctx, x, ...)` and `backward(ctx, gradient)` are static methods, and
# autograd is off inside both. Besides `x`, hand `forward` whatever backward needs: the module, and the parameters that
# must get gradients. `backward` returns one gradient, or None, for each argument of `forward` after `ctx`.
# `ctx.save_for_backward` gets `x` alone. The second run also needs the state of torch's CPU generator and copies of the
# buffers; you may keep these as attributes of `ctx`. `torch.utils.checkpoint` may not be called.


# %% tags=["exercise"] exercise="recompute" points=8 difficulty=4 importance=3 minutes=30 title="Recompute" bonus=true provides=["checkpointed"]
def checkpointed(module: nn.Module, x: Tensor) -> Tensor:
    """Return module(x), saving only x for backward, which runs the module again; gradients are the same.

    The parameters get their gradients, even if x needs none; frozen and unused parameters get none. The second run
    draws the same random numbers and reads the same buffer values as the first. Afterwards torch's CPU generator and
    the buffers (BatchNorm's running statistics) are as if there had been no second run.

    Args:
        module: Any module that takes one tensor; it may draw random numbers on the CPU, and change its buffers.
        x: Its input; it may or may not need a gradient.
    """
    # BEGIN SOLUTION recompute
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def put(copies):
        for buffer, copy in zip(module.buffers(), copies, strict=True):
            buffer.copy_(copy)

    class Recompute(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *parameters):
            ctx.rng_state = torch.get_rng_state()
            ctx.buffers = [buffer.clone() for buffer in module.buffers()]
            ctx.save_for_backward(x)
            return module(x)  # autograd is off in here

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_(ctx.needs_input_grad[0])
            after = torch.get_rng_state()
            left = [buffer.clone() for buffer in module.buffers()]
            torch.set_rng_state(ctx.rng_state)
            put(ctx.buffers)
            with torch.enable_grad():
                out = module(x)
            torch.set_rng_state(after)
            wanted = [x, *parameters] if x.requires_grad else parameters
            found = list(torch.autograd.grad(out, wanted, gradient, allow_unused=True))
            put(left)
            return tuple(found) if x.requires_grad else (None, *found)

    return Recompute.apply(x, *parameters)
    # END SOLUTION


# %% tags=["check"]
labkit.check("recompute", checkpointed)


# %% [markdown]
# ## Bonus: Megatron's longer warm-up
#
# Here is **interleaved 1F1B** by formula, for any number V of chunks in placement `"round"`. M must be a multiple of P.
# Microbatches go in groups of P: all P through chunk 0, then the same P through chunk 1, up to chunk V-1; then the next
# group. Backward goes the same way with the last chunk first. Stage s begins with `factor * (P-1-s) + (V-1) * P`
# forwards (but no more than there are). Then it alternates one forward and one backward until the forwards are used up,
# and runs the backwards that are left. Megatron-LM's factor is 2.


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


class BackwardInput(Work):
    """Compute the gradient of the stage's input, which the previous stage waits for."""


class BackwardWeight(Work):
    """Compute the gradients of the parameters, which nobody waits for."""


# %% tags=["given"]
def interleaved(stage: int, num_stages: int, num_microbatches: int, num_chunks: int, factor: int = 2) -> list[Any]:
    """Return the order of one rank's work; chunk c of rank s is part c * num_stages + s of the model."""
    total = num_microbatches * num_chunks
    forwards, backwards = [], []
    for number in range(total):
        group, place = divmod(number, num_stages * num_chunks)
        chunk, microbatch = place // num_stages, group * num_stages + place % num_stages
        forwards.append(ForwardChunk(chunk, microbatch))
        backwards.append(BackwardChunk(num_chunks - 1 - chunk, microbatch))
    warmup = min(factor * (num_stages - 1 - stage) + (num_chunks - 1) * num_stages, total)
    order = forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[total - warmup :]


# %% tags=["nbval-ignore-output"]
labkit.schedule_explorer(
    factor_2=[interleaved(stage, 4, 8, 2, 2) for stage in range(4)],
    factor_1=[interleaved(stage, 4, 8, 2, 1) for stage in range(4)],
)

# %% [markdown]
# **[[warmup_factor]].** Both take 28.5 turns. With factor 1 a stage holds at most 4 microbatches, with factor 2 it
# holds 5.5. What does factor 2 buy? Choose `"fewer messages"`, `"a shorter step where messages take time"`, `"a shorter
# step with more chunks"` or `"nothing"`. (The slider `message` sets how long a message takes.)

# %% tags=["why"] exercise="warmup_factor" bonus=true title="What the 2 buys"
labkit.answer("warmup_factor", "a shorter step where messages take time")

# %% [markdown]
# ## Bonus: ZB-H1, by formula
#
# ### Exercise [[zero_bubble]]
#
# *8 points, about 15 minutes; difficulty 4 of 5, importance 2 of 5*
#
# This is the `ZB-H1` of section 4. Each stage has one chunk, backward is split in two, and no stage may hold more than
# stage 0 holds in 1F1B. Start from 1F1B's order. The `BackwardWeight` of microbatch m comes right after the
# `BackwardInput` of microbatch m + d, where d depends only on the stage. The last d `BackwardWeight`s have no such
# partner: they come at the end of the list. Which d is right? (Another order passes, too, if it keeps what the
# docstring says.)


# %% tags=["exercise"] exercise="zero_bubble" points=8 difficulty=4 importance=2 minutes=15 title="Fill the bubble" provides=["zero_bubble"] needs=["one_f_one_b"] bonus=true
def zero_bubble(stage: int, num_stages: int, num_microbatches: int) -> list[Forward | BackwardInput | BackwardWeight]:
    """Return the order of one stage's work with backward in two parts, so that the bubble is a third of 1F1B's.

    Forward, BackwardInput and BackwardWeight last one turn each, and a step takes 3M + P - 1 turns. No stage holds more
    than P microbatches that have gone forward and not yet through BackwardWeight.

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

# %% [markdown]
# ## Bonus: Run them for real
#
# An order of work says nothing about messages. And now that a rank has several chunks, a message must name its chunk.
# The given function simulates all ranks together. Whenever a rank has done a piece of work, the function adds the send
# to that rank's list and, at the same moment, the receive to the other rank's. So all ranks agree on one order of
# messages, and no cycle of waiting ranks (deadlock) can form.


# %% tags=["given"]
@dataclass(frozen=True)
class Give:
    """Send this chunk's output to rank `peer`; with gradient=True, send the gradient of the chunk's input."""

    peer: int
    chunk: int
    microbatch: int
    gradient: bool


@dataclass(frozen=True)
class Take:
    """Receive this chunk's input from rank `peer`; with gradient=True, receive the gradient of the chunk's output."""

    peer: int
    chunk: int
    microbatch: int
    gradient: bool


Piece = Work | ForwardChunk | BackwardChunk


def with_messages(orders: list[list[Piece]]) -> list[list[Piece | Give | Take]]:
    """Return every rank's work with its messages. If there is only one rank, it may have only one chunk.

    Raises:
        ValueError: If the schedule cannot finish.
    """
    num_ranks, programs = len(orders), [[] for _ in orders]
    last_part = num_ranks * (1 + max(getattr(work, "chunk", 0) for order in orders for work in order)) - 1
    ready, waiting = set(), [list(order) for order in orders]
    while any(waiting):
        moved = False
        for rank, order in enumerate(waiting):
            work = order[0] if order else None
            chunk = getattr(work, "chunk", 0)
            backward = isinstance(work, Backward | BackwardChunk | BackwardInput)
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
                f"Nobody can go on: {[order[0] for order in waiting if order]} need something that nobody has computed."
            )
    return programs


# %% [markdown]
# Backward in two halves needs help from the layers: a layer's backward returns only the gradient of its input, and
# appends to a list a function that computes the other gradients later.
#
# ### Exercise [[linear_later]]
#
# *10 points, about 14 minutes; difficulty 4 of 5, importance 2 of 5*


# %% tags=["exercise"] exercise="linear_later" points=10 difficulty=4 importance=2 minutes=14 title="The weights later" provides=["linear_later"] bonus=true
def linear_later(x: Tensor, weight: Tensor, bias: Tensor | None, later: list[Callable[[], None]]) -> Tensor:
    """Return nn.functional.linear(x, weight, bias); backward computes only the gradient of x and defers the others.

    Args:
        x: Shape (..., in).
        weight: Shape (out, in), a leaf; it may be frozen.
        bias: Shape (out,), a leaf that may be frozen, or None.
        later: Each backward appends exactly one function to it, even if weight and bias are both frozen. When called,
            that function adds the gradients of weight and bias to their .grad.
    """

    # BEGIN SOLUTION linear_later
    class Later(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x)
            return nn.functional.linear(x, weight, bias)

        @staticmethod
        def backward(ctx, gradient):
            entered = ctx.saved_tensors[0].detach()  # rest runs with autograd on

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


# %% tags=["check"]
labkit.check("linear_later", linear_later)

# %% [markdown]
# The executor is lesson 08's. It stores inputs and outputs by chunk *and* microbatch. After a backward, the deferred
# functions are in `later`. `BackwardInput` saves them for `BackwardWeight`; every other backward calls them at once.


# %% tags=["given"]
def run_orders(
    program: list[Piece | Give | Take],
    chunks: list[nn.Module],
    sizes: list[int],
    samples: list[Tensor],
    later: list[Callable[[], None]],
    inputs: list[Tensor] | None = None,
    targets: list[Tensor] | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor | None:
    """Carry out this rank's program; gradients of the mean loss are added to .grad; return the loss on the last rank."""
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
                if isinstance(record, Backward | BackwardChunk):
                    for rest in put_off.pop(m):
                        rest()
    for work in sent:
        work.wait()
    return total


# %% [markdown]
# Run three of the schedules on four virtual H100s. As in lesson 08, there are four stages of twelve layers, and 8
# microbatches.


# %% tags=["given"]
class LaterLinear(nn.Linear):
    """A linear layer that defers the gradients of its weights."""

    def __init__(self, width: int, later: list[Callable[[], None]], linear: Callable[..., Tensor]) -> None:
        super().__init__(width, width, device="meta")
        self.later, self.linear = later, linear

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return self.linear(x, self.weight, self.bias, self.later)


def smaller_bubble(orders: list[list[Any]], num_chunks: int, width: int = 16384, samples: int = 16384) -> None:
    rank, last, later = dist.get_rank(), dist.get_rank() == len(orders) - 1, []
    x = [torch.empty(samples // 8, width, device="meta", requires_grad=True) for _ in range(8)]
    chunks = [
        nn.Sequential(*(LaterLinear(width, later, linear_later) for _ in range(12 // num_chunks)))
        for _ in range(num_chunks)
    ]
    run_orders(
        with_messages(orders)[rank], chunks, [samples // 8] * 8, [torch.empty(width, device="meta")] * num_chunks, later,
        x if rank == 0 else None, x if last else None, nn.functional.mse_loss,
    )  # fmt: skip


# %%
smaller = {
    "1F1B": ([one_f_one_b(stage, 4, 8) for stage in range(4)], 1),
    "interleaved": ([interleaved(stage, 4, 8, 2) for stage in range(4)], 2),
    "zero bubble": ([zero_bubble(stage, 4, 8) for stage in range(4)], 1),
}
for name, (orders, num_chunks) in smaller.items():
    took = labkit.run(smaller_bubble, orders, num_chunks, on=labkit.virtual(4)).timeline.makespan_ns
    print(f"{name:12} {took / 1e9:.2f} s")

# %% [markdown]
# On paper the three take 33 (1F1B), 28.5 (interleaved) and 27 turns (zero bubble). Divide the times by these turns: the
# quotients differ by less than 1 %, although interleaving sends more than twice as many messages. So messages, which
# cost nothing on paper, cost little here.
#
# ### Sources
#
# * Y. Huang and others, "GPipe", NeurIPS 2019. D. Narayanan and others, "Memory-Efficient Pipeline-Parallel DNN Training", ICML
#   2021, and S. Fan and others, "DAPPLE", PPoPP 2021: 1F1B with a flush after each step.
# * D. Narayanan and others, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021:
#   interleaved stages.
# * P. Qi, X. Wan, G. Huang and M. Lin, "Zero Bubble Pipeline Parallelism", 2023: ZB-H1, ZB-V.
# * T. Chen, B. Xu, C. Zhang and C. Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016: checkpointing.
# * PyTorch documentation: `torch.distributed.pipelining`, `dist.batch_isend_irecv`, `DeviceMesh`.
