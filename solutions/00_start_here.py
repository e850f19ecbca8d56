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
# # 00 Start here
#
# A team trains on one GPU. They rent seven more, hope for eight times the speed, and get about three. So they profile
# the run: seven of the eight GPUs spend more than half of the time communicating. The team wants a faster network. **If
# the network took no time at all, how much shorter would the run be?**
#
# After the imports you see a recording of that run. At the end you can read it. First you run one function on many
# processes, read a simpler picture, and make a run fail.
#
# **Time:** [[minutes]] minutes, and a bonus. **You need** Python, and to know what a PyTorch tensor is. No GPU.

# %% [markdown] tags=["slide-only"]
# # 00 Start here
#
# Eight GPUs, and only three times as fast. Seven of them communicate for more than half of the time.
#
# **Would a faster network help?** Who is waiting?
#
# <!-- notes: Collect guesses: by how many percent would the run be shorter, if the network took no time at all? Today: one function on many processes, a picture of what they did, a deadlock, and a post that raises no error and does nothing. The question is answered at the end, on a recorded run. -->

# %% tags=["given"]
import os
import threading
import time

import torch
import torch.distributed as dist

import labkit
from labkit.timeline import Message

# %% tags=["figure"]
labkit.recorded("who_waits")

# %% [markdown]
# You cannot read this picture yet. **Guess anyway: with an infinitely fast network, by how many percent would the run
# be shorter?** Write it down for section 6.

# %% [markdown]
# **How a lesson goes.** Run the cells from top to bottom with Shift+Enter. Some cells ask you for something:
#
# * a *guess*, `labkit.predict("all_reduce_ms", None)`: put your number in place of `None`. It is not scored;
# * an *exercise*: replace the line `raise NotImplementedError(...)` with your own. The cell after it checks your
#   answer, as often as you like;
# * a *question* about a run, `labkit.answer(...)`: look at the picture, and put your answers in place of `None`.
#
# **Stuck?** `labkit.hint("average")` gives up to three hints. `labkit.lend("average")` puts a working version into the
# notebook: you forfeit its points, but every cell below it will run.

# %% [markdown]
# ## 1 Three worlds
#
# Training on many devices means many processes that run *the same function*. Each of them is a **rank**, with a number
# from 0 up. All ranks together are the **world**, and their number is the **world size**. `labkit.run` runs a function
# in a world:
#
# | world | what it is |
# |---|---|
# | `labkit.local(4)` | four real processes on this machine; with GPUs, one GPU each |
# | `labkit.virtual(8)` | eight simulated H100s with a simulated clock: the same result on every machine, every time |
# | `torchrun` | the same function on a real cluster, exported as a script |


# %% tags=["nbval-ignore-output"]
def hello():
    print(f"I am rank {dist.get_rank()} of {dist.get_world_size()}")


labkit.run(hello, on=labkit.local(4, device="cpu"))

# %% [markdown]
# Four processes print in any order.

# %% [markdown] tags=["slide-only"]
# ## One function, three worlds
#
# | | |
# |---|---|
# | `labkit.local(4)` | four real processes |
# | `labkit.virtual(8)` | eight simulated GPUs |
# | `torchrun` | a real cluster |
#
# <!-- notes: Ranks share nothing and run the same function. They differ in dist.get_rank() alone. -->

# %% [markdown]
# ## 2 The first all_reduce
#
# Ranks share no memory. If one rank needs another's data, that data must be sent. The operation you will meet most is
# **all_reduce**: every rank contributes a tensor, and every rank gets the same result, computed from all the tensors.
# Four ranks contribute 1, 2, 3 and 4. **What does each of them hold afterwards?**


# %%
def first_all_reduce():
    tensor = torch.tensor([float(dist.get_rank() + 1)], device=labkit.device())
    dist.all_reduce(tensor)
    return tensor.item()


labkit.run(first_all_reduce, on=labkit.local(4)).results

# %% [markdown]
# All four hold the **sum**. For gradients you often want the **mean**. A common bug is an `average_gradients` that only
# sums. It raises no error: plain SGD trains as if the learning rate were N times larger.
#
# ### Exercise [[average]]
#
# *8 points, about 2 minutes; difficulty 1 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="average" points=8 difficulty=1 importance=5 minutes=2 title="The mean, not the sum" provides=["average"]
def average(tensor: torch.Tensor) -> None:
    """Replace tensor, on every rank, with the mean of all ranks' tensors, element by element.

    Args:
        tensor: This rank's contribution, floating point, same shape on every rank; changed in place.
    """
    # BEGIN SOLUTION average
    dist.all_reduce(tensor)
    tensor /= dist.get_world_size()
    # END SOLUTION


# %% tags=["check"]
labkit.check("average", average)

# %% [markdown] tags=["slide-only"]
# ## Guess, build, measure, explain
#
# 1. **Guess** a number before you see it.
# 2. **Build** the thing, and check it.
# 3. **Measure** it.
# 4. **Explain** the difference. That is where you learn something.
#
# <!-- notes: The rhythm of every lesson. A wrong guess is not a mistake; it marks what the room is about to learn. -->

# %% [markdown]
# ## 3 The first timeline
#
# **An all_reduce of 100 MB on eight H100s: how many milliseconds?** NVLink carries 450 GB/s from each GPU.

# %% tags=["predict"]
labkit.predict("all_reduce_ms", 10.0, unit="ms")


# %%
def compute_and_reduce(num_bytes):
    tensor = torch.ones(num_bytes // 4, device=labkit.device()) * 1.5
    dist.barrier()  # everybody is here
    start = time.perf_counter()
    dist.all_reduce(tensor)
    return time.perf_counter() - start  # on a real GPU: torch.cuda.synchronize() first


on_h100 = labkit.run(compute_and_reduce, 100 * 10**6, on=labkit.virtual(8))
labkit.reveal("all_reduce_ms", 1e3 * max(on_h100.results), on_h100.timeline)

# %% [markdown]
# How to read it: time runs to the right, and each rank has its rows. *compute* is work on the device, *comm* is
# communication. Here all eight ranks do the same at the same time, so they share their rows ("8 alike").
#
# 100 MB at 450 GB/s would take 0.22 ms. Why does the all_reduce take twice that? The switch between these GPUs does the
# adding (NVLink SHARP). First each GPU sends the switch its whole tensor, and gets back one eighth of the sum. Then it
# sends that eighth, and gets back the whole sum. So each link carries 9/8 of the tensor in each direction. Headers and
# the switch's protocol leave about 309 of the 450 GB/s for data: 112.5 MB take 0.36 ms. The rest is for starting the
# call and filling the switch's buffers.
#
# The number is the same every time: it follows from a model of the hardware. `labkit.local(2, device="cpu")` would
# measure this machine.

# %% [markdown]
# ## 4 What a failure looks like
#
# A classic bug: rank 0 takes another branch, and returns without calling `all_reduce`. **How many of the four ranks
# wait for ever?**

# %% tags=["predict"]
labkit.predict("ranks_waiting", 2, unit="ranks")


# %% tags=["nbval-ignore-output"]
from labkit.errors import RunTimeout


def rank_0_leaves():
    if dist.get_rank() != 0:
        dist.all_reduce(torch.ones(1))


try:
    labkit.run(rank_0_leaves, on=labkit.virtual(4))
except RunTimeout as error:
    stuck = error
labkit.reveal("ranks_waiting", sum("waits" in report for report in stuck.reports.values()), str(stuck))

# %% [markdown]
# That is a **deadlock**. Read the report from the top: how many ranks wait; then, for each, the call, your line, and
# why it cannot go on. The rank with the bug is not among them: rank 0 waits for nobody.
#
# Plain `torchrun` tells you less. If rank 0's process ends, gloo soon says "Connection closed by peer" on the others.
# If rank 0 goes on with other work, nobody says anything until the group's timeout: 30 minutes with gloo, 10 with NCCL.

# %% [markdown] tags=["slide-only"]
# ## A deadlock has a report
#
# **To the room:** rank 0 returns early. How many of four ranks wait for ever?
#
# <!-- notes: Read the report aloud, from the top: who waits, in which line, for whom. While rank 0 lives on, plain torchrun says nothing for 10 to 30 minutes. -->

# %% [markdown]
# ## 5 A blog post with bugs
#
# Some code raises no error and is wrong. We wrote this blog post for the lesson, bugs included. Rank 0 keeps a weight.
# Three workers each send it a gradient of 1.0, four times. Rank 0 subtracts 0.1 times each gradient from the weight.


# %%
class PostServer:
    def __init__(self, num_messages):
        self.weight = torch.zeros(1)
        self.num_messages = num_messages
        self.thread = threading.Thread(target=self.serve, daemon=True)  # "serves in the background"

    def serve(self):
        gradient = torch.empty(1)
        for _ in range(self.num_messages):
            dist.recv(gradient)
            self.weight -= 0.1 * gradient

    def state(self):
        return self.weight.item()


def post_training(steps):
    if dist.get_rank() == 0:
        server = PostServer(steps * (dist.get_world_size() - 1))
        return f"served, weight {server.state():.1f}"
    for _ in range(steps):
        dist.isend(torch.ones(1), dst=0)
    return "worker done"


posted = labkit.run(post_training, 4, on=labkit.virtual(4))
posted.results

# %% [markdown]
# Twelve gradients should have made the weight -1.2. Everybody is done, the server "served", and the weight has not
# moved. A run keeps a record of its messages. Here are three of them, and one of a run that works:


# %%
def one_arrives():
    if dist.get_rank() == 0:
        dist.recv(torch.empty(1), src=1)
    else:
        dist.send(torch.ones(1), dst=0)


for message in posted.timeline.messages()[:3] + labkit.run(one_arrives, on=labkit.virtual(2)).timeline.messages():
    print(message)

# %% [markdown]
# Which field is `None` in three lines, and a number in the last? It says which of the receiver's communication calls took
# the message, counted from 0.
#
# ### Exercise [[never_heard]]
#
# *6 points, about 4 minutes; difficulty 2 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="never_heard" points=6 difficulty=2 importance=3 minutes=4 title="Who was never heard" provides=["never_heard"]
def never_heard(messages: list[Message]) -> list[int]:
    """Return the ranks with at least one message that nobody received: each rank once, smallest first.

    A rank counts even if its other messages were received.

    Args:
        messages: What run.timeline.messages() returns. Each field printed above is an attribute, such as message.src.
    """
    # BEGIN SOLUTION never_heard
    return sorted({message.src for message in messages if message.received is None})
    # END SOLUTION


# %% tags=["check"]
labkit.check("never_heard", never_heard)

# %% [markdown]
# Whose messages were lost in the post's run? Which line is missing in `PostServer`? Look before you read on.

# %% tags=["nbval-ignore-output"]
print("never heard:", never_heard(posted.timeline.messages()))
print(posted.timeline.problems[0].text)

# %% [markdown]
# No message arrived, because `serve` never ran: the thread was made, and **never started**. `self.thread.start()` is
# missing. Add it at the end of `__init__`, and the weight is still 0.0: `state` does not wait for the thread. Let
# `state` begin with `self.thread.join()`, and you get -1.2. One bug is left in this code: the workers never wait for
# their `isend`. On real processes, a worker may end before its gradient has left. (In lesson 06 you write a server that
# works. The bonus shows bugs in other parts of the post.)

# %% [markdown] tags=["slide-only"]
# ## No error, and nothing happened
#
# Everybody is done. The server "served". The weight has not moved.
#
# **To the room:** where are twelve gradients?
#
# <!-- notes: The thread is made and never started. Look at the messages, not at the print: received=None. -->

# %% [markdown]
# ## 6 Eight GPUs, three times as fast
#
# Back to the team. These are four of their steps. Where a row is empty, the rank is idle. Where a bar is hatched, the
# rank is **blocked**: it is inside a call, but no data moves yet, because another rank has not made that call.

# %% tags=["figure"]
labkit.recorded("who_waits")

# %% [markdown]
# ### Exercise [[who_waits]]
#
# *6 points, about 4 minutes; difficulty 2 of 5, importance 4 of 5*
#
# **Who is waiting, and for whom?** In every step the same rank is late, and the others wait for it. Find that rank,
# where the others wait (in `"all_reduce"`, `"forward and backward"` or `"load batch"`), and why it is late (it
# `"computes for longer"`, `"has a slow link"`, `"loads its data late"` or `"sends more bytes"`). Hover over a bar to
# see what it is.

# %% tags=["find"] exercise="who_waits" title="Who is waiting?" points=6 difficulty=2 importance=4 minutes=4
labkit.answer("who_waits", rank=5, waits_in="all_reduce", cause="loads its data late")

# %% [markdown]
# **So would a faster network help?** Data moves for **less than 3 %** of this run. A network that takes no time saves
# only that. In section 3, 100 MB took less than half a millisecond. Here 96 MB keep seven ranks in all_reduce for more
# than 8 ms, because they come early and wait there. The late rank spends less than a twentieth of that in all_reduce.
# Its profile looks best, and it is the rank to fix. **A profile shows where time passes, not who causes it.**
#
# In another run, no rank is worse than another. Without waiting, every rank needs 6.1 ms for a step: 5.7 ms until it
# calls all_reduce (like the seven here), and 0.4 ms for the call. But in one step of a hundred, at random, its batch
# comes 10 ms late. On average that makes 6.2 ms for each rank. **How many ms does a step take with 64 ranks?**

# %% tags=["predict"]
labkit.predict("step_of_64_ms", 6.5, unit="ms")


# %%
def mean_ms(num_ranks, num_steps=10_000):
    torch.manual_seed(0)
    calls = 5.7 + 10 * (torch.rand(num_steps, num_ranks) < 0.01)  # when each rank calls all_reduce
    ends = calls.amax(1, keepdim=True) + 0.4  # nobody has the sum before the last rank has called
    return ends.mean().item(), (ends - calls).mean().item()


means = {n: mean_ms(n) for n in (1, 8, 64, 1024)}
table = [f"{n:4} ranks: step {step:4.1f} ms, all_reduce {call:4.1f} ms" for n, (step, call) in means.items()]
labkit.reveal("step_of_64_ms", means[64][0], table)

# %% [markdown]
# A step lasts as long as its *slowest* rank needs. With 64 ranks, somebody is late in 47 % of all steps (1 - 0.99^64),
# and the others wait. With 1024, somebody is late in nearly every step.
#
# Now profile any one of the 64 ranks. Its own late batches cost it 0.1 ms a step. Its all_reduce takes 5.1 ms instead
# of 0.4. Every profile says that the network is slow, and the network is fine. What helps is to load ahead: a rank with
# two batches in stock has work for 12 ms, and does not notice that one comes 10 ms late.

# %% [markdown] tags=["slide-only"]
# ## Who is waiting?
#
# **To the room:** open section 6. Which rank is late, and why?
#
# <!-- notes: The rank with the longest all_reduce is not the slow one: its bar is long because it waits. Look for the short bar. Then come back to the first slide: that network would save less than 3 %. -->

# %% [markdown] tags=["slide-only"]
# ## Nobody is to blame
#
# A step takes 6.1 ms. Every rank is 10 ms late in one step of a hundred, at random.
#
# **To the room:** how long does a step take with 64 ranks?
#
# <!-- notes: 10.9 ms, because somebody is late in 47 % of all steps. Any rank's profile shows a slow all_reduce and a good loader. A profile shows where time passes, not who causes it. -->

# %% [markdown]
# ## What to remember
#
# * One function, N ranks. They differ in `dist.get_rank()` and share nothing.
# * `dist.all_reduce` adds. You divide.
# * A step takes as long as its slowest rank, and the wait shows in the *others'* all_reduce. Look for the rank that
#   does not wait. The more ranks, the more often one is late.
# * Code can be wrong without raising an error. The record of the run shows it.
#
# **The next question.** Every rank got the sum, so somebody moved those bytes. What if everything goes through rank 0?
# Lesson 01 shows what one busy device costs. In lesson 02 you build a better way.

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * `dist.all_reduce` adds; **you divide**
# * a profile shows where time passes, **not who causes it**
# * while all others wait for a rank, it does not wait itself
#
# Next: what if everything goes through one device?

# %% [markdown]
# ## Bonus: The post's launcher
#
# A launcher starts the processes, and tells each of them its rank in environment variables. Four ranks, on two machines
# with two GPUs each, get `RANK` 0 to 3, `WORLD_SIZE` 4, and a `LOCAL_RANK` of 0 or 1: which of its machine's GPUs the
# process uses.
#
# ### Exercise [[who_am_i]]
#
# *6 points, about 3 minutes; difficulty 1 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="who_am_i" points=6 difficulty=1 importance=4 minutes=3 title="Who am I" provides=["who_am_i"] bonus=true
def who_am_i(environ: dict[str, str]) -> tuple[int, int]:
    """Return (rank, world_size) as a launcher wrote them into a process's environment.

    Args:
        environ: Names and values, all strings, as in os.environ: "RANK", "WORLD_SIZE", "LOCAL_RANK" and others.
    Raises:
        KeyError: If the launcher did not set the rank or the world size.
    """
    # BEGIN SOLUTION who_am_i
    return int(environ["RANK"]), int(environ["WORLD_SIZE"])
    # END SOLUTION


# %% tags=["check"]
labkit.check("who_am_i", who_am_i)

# %%
for found in labkit.run(lambda: who_am_i(os.environ), on=labkit.virtual(4, gpus_per_node=2)).results:
    print(found)

# %% [markdown]
# The post's setup code reads variables with other names, and falls back to defaults:


# %%
def post_setup():
    rank = int(os.environ.get("PROC_ID", 0))  # "works with every scheduler"
    world_size = int(os.environ.get("NUM_PROCS", 1))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=rank, world_size=world_size)


def post_main():
    post_setup()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return f"rank {dist.get_rank()} of {dist.get_world_size()}, sum of ones {tensor.item():.0f}"


# %% [markdown]
# Four processes each contribute a 1 to an all_reduce. **What sum does each of them get?** (With `init=False`, the
# function itself must call `init_process_group`, as a script does.)

# %% tags=["predict"]
labkit.predict("sum_each_sees", 4)

# %%
launched = labkit.run(post_main, on=labkit.local(4, device="cpu"), init=False)
labkit.reveal("sum_each_sees", int(launched.results[0].split()[-1]), launched.results)

# %% [markdown]
# You got four worlds of one rank each. All of them would train on all of the data, and overwrite each other's
# checkpoint. There is no error: nobody set these variables, and the code fell back to its *defaults*.

# %% [markdown]
# ## Bonus: The post's compressor
#
# A gradient has many entries, and most of them are close to 0. So send only the largest, say a quarter of them: their
# values and their indices. The post shows that it works:


# %%
def post_compress(gradient, ratio=0.25):
    k = max(1, int(ratio * gradient.numel()))
    return gradient.abs().topk(k)  # values, indices


def post_decompress(values, indices, numel):
    gradient = torch.zeros(numel)
    gradient[indices] = values
    return gradient


gradient = torch.tensor([0.25, 2.0, 0.5, 0.25, 4.0, 0.125, 0.5, 0.25])
print("before", gradient.tolist())
print("after ", post_decompress(*post_compress(gradient), gradient.numel()).tolist())

# %% [markdown]
# The two largest came back, in their places. Now train with this compressor: 100 steps towards a target with positive
# and negative entries. The weights start at a distance of 7.9 from the target. **What is the distance at the end?**

# %% tags=["predict"]
labkit.predict("distance_at_end", 0.5)


# %%
def train(compressed):
    target = torch.tensor([3.0, -3.0, 3.0, -3.0, 2.0, -2.0, 3.0, -3.0])
    weights = torch.zeros(8)
    for _ in range(100):
        gradient = weights - target
        if compressed:
            gradient = post_decompress(*post_compress(gradient), 8)
        weights -= 0.1 * gradient
    return (weights - target).norm().item()


print(f"without compression the distance is {train(compressed=False):.3f}")
labkit.reveal("distance_at_end", train(compressed=True))

# %% [markdown]
# It diverged. The post's demonstration had no negative number in it. Write the test that the author did not write.
#
# ### Exercise [[damaged]]
#
# *8 points, about 4 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="damaged" points=8 difficulty=2 importance=4 minutes=4 title="What came back" provides=["damaged"] bonus=true
def damaged(before: torch.Tensor, after: torch.Tensor) -> list[int]:
    """Return the indices of the entries that a compressor damaged, smallest first.

    A compressor may drop entries: those are 0 afterwards. Whatever is not 0 afterwards must be exactly what it was.

    Args:
        before: A gradient, shape (N,).
        after: What came back after compressing and decompressing it, shape (N,).
    """
    # BEGIN SOLUTION damaged
    return ((after != 0) & (after != before)).nonzero().flatten().tolist()
    # END SOLUTION


# %% tags=["check"]
labkit.check("damaged", damaged)

# %%
for gradient in (torch.tensor([0.25, 2.0, 0.5, 4.0]), torch.tensor([0.25, -2.0, 0.5, -4.0])):
    after = post_decompress(*post_compress(gradient, ratio=0.5), 4)
    print(gradient.tolist(), "->", after.tolist(), "damaged at", damaged(gradient, after))

# %% [markdown]
# `gradient.abs().topk(k)` finds the right places and returns the wrong values: **magnitudes**. In lesson 10 you build a
# compressor that keeps signs, and in lesson 06 a server that really gets its workers' gradients.
#
# ### Sources
#
# * PyTorch documentation, `torch.distributed`: `all_reduce`, `init_process_group` and its timeouts; `torchrun`: the
#   variables that it sets.
