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
# # 00 Start here
#
# One function, many processes. You will run it on this machine and on eight GPUs that are not there, watch what each
# rank does, break it, and find out why a widely copied post about distributed training does not work.

# %% [markdown]
# **What you will be able to do**
#
# * run a function on several ranks, real ones and virtual ones, and read the picture of what they did;
# * predict a time, measure it, and explain the difference;
# * read the report of a deadlock;
# * find four faults in code that raises no error.
#
# **Time:** [[minutes]] minutes. **What you must know:** Python, and what a PyTorch tensor is. No GPU is needed.
#
# **How a lesson goes.** Run the cells from top to bottom with Shift+Enter. There are three kinds that want something
# from you:
#
# * a *guess*: `labkit.predict("rank_0_holds", None)`. Put your number in place of `None`, before you go on. It is not
#   scored; a wrong guess marks what you are about to learn;
# * an *exercise*: replace the line `raise NotImplementedError(...)` by your own;
# * a *check*: `labkit.check("average", average)` tells you what is right and what is not, as often as you like. Stuck?
#   `labkit.hint("average")` gives up to three hints.
#
# Exercises have points, all of them or none. They rest on other inputs than those the check shows you.
#
# Below each exercise's name stand two more numbers. *Difficulty* says how much thinking it takes, from 1 to 5;
# *importance* how much of what comes later rests on it. In every lesson, all exercises that are not marked *bonus* are
# the essential path: do them in order, and leave a bonus for a second visit.

# %% tags=["given"]
import os
import threading
import time

import torch
import torch.distributed as dist

import labkit
from labkit import doctor
from labkit.timeline import Message

# %% [markdown]
# ## 1 What this machine has
#
# Nothing needs installing, but it helps to know what you are on. This takes some seconds: it starts two processes to
# see whether that works.

# %% tags=["nbval-ignore-output"]
print(doctor.as_text(doctor.examine()))

# %% [markdown]
# Look at two lines: how many **cores** there are, for processes share them, and whether there is a **GPU**. Without one
# all lessons work. What a GPU would do, you will see on virtual ones.
#
# ## 2 Three worlds
#
# Training on many devices means many processes that run *the same function*. Each is a **rank** and has a number, from
# 0 up. How many there are is the **world size**. `labkit.run` takes a function to a world:
#
# | world | what it is | what it is for |
# |---|---|---|
# | `labkit.local(4)` | four real processes on this machine; with GPUs, one GPU each | the truth |
# | `labkit.virtual(8)` | eight H100 GPUs that are not there, in this one process, on a clock that is computed | what you do not own; the same on every machine, every time |
# | `torchrun` | the same function on a real cluster, exported as a script | later lessons |


# %% tags=["nbval-ignore-output"]
def hello():
    print(f"I am rank {dist.get_rank()} of {dist.get_world_size()}")


labkit.run(hello, on=labkit.local(4))

# %% [markdown]
# The order of the lines is anybody's guess: four processes, and nobody told them to take turns. Now the virtual world:


# %%
labkit.run(hello, on=labkit.virtual(8))

# %% [markdown]
# Same function. Here the order is always the same, for ranks run one at a time, and the time they take is counted, not
# measured.
#
# ## 3 The first all_reduce
#
# Ranks share no memory. What one knows and another needs must be sent. The operation you will meet most is
# **all_reduce**: every rank gives a tensor, and every rank gets the sum. Four ranks give 1, 2, 3 and 4. **What does
# rank 0 hold afterwards?**

# %% tags=["predict"]
labkit.predict("rank_0_holds", 1)


# %%
def first_all_reduce():
    tensor = torch.tensor([float(dist.get_rank() + 1)], device=labkit.device())
    # what every rank gives, and after the next line what every rank gets
    dist.all_reduce(tensor)
    return tensor.item()


four = labkit.run(first_all_reduce, on=labkit.local(4))
labkit.reveal("rank_0_holds", four.results[0], f"all four ranks: {four.results}")

# %% [markdown]
# All four hold the same: the **sum**. (`labkit.device()` is the GPU of this rank, and the CPU where there is none. With
# it the same function runs on both.) When gradients are put together you often want the **mean**. Posts have been
# copied for years in which a function called `average_gradients` does what you just saw, and nothing more. No error is
# raised. The model just trains with a learning rate that is N times too large.
#
# ### Exercise [[average]]
#
# *8 points, about 3 minutes; difficulty 1 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="average" points=8 difficulty=1 importance=5 minutes=3 title="The mean, not the sum" provides=["average"]
def average(tensor: torch.Tensor) -> None:
    """Replace tensor, on every rank, by the mean of all ranks' tensors, element by element.

    Args:
        tensor: This rank's contribution, floating point, same shape on every rank; changed in place.
    """
    # BEGIN SOLUTION average
    dist.all_reduce(tensor)
    tensor /= dist.get_world_size()
    # END SOLUTION


# %% tags=["check"]
labkit.check("average", average)

# %% [markdown] tags=["slide"]
# ### Predict, build, measure, explain
#
# 1. **Predict** a number, before you see it.
# 2. **Build** the thing, and check it.
# 3. **Measure** it, on real processes.
# 4. **Explain** the difference. That is where you learn something.

# %% [markdown]
# ## 4 The first timeline
#
# Predict: **an all_reduce of 100 MB on eight H100s, how many milliseconds?** (NVLink carries 450 GB/s from each GPU. A
# guess is enough.)

# %% tags=["predict"]
labkit.predict("all_reduce_ms", 10.0, unit="ms")


# %%
def compute_and_reduce(num_bytes):
    tensor = torch.ones(num_bytes // 4, device=labkit.device())
    for _ in range(3):
        tensor = tensor * 1.5
    dist.barrier()  # everybody is here
    start = time.perf_counter()
    dist.all_reduce(tensor)
    if tensor.is_cuda:
        torch.cuda.synchronize()  # a real GPU is still at it when the call returns
    return time.perf_counter() - start


on_h100 = labkit.run(compute_and_reduce, 100 * 10**6, on=labkit.virtual(8))
labkit.reveal("all_reduce_ms", 1e3 * max(on_h100.results), on_h100.timeline)

# %% [markdown]
# How to read the picture: time runs to the right, and each rank has its rows. *compute* is work on the device, *comm*
# is communication, *memory* what the device holds. White is idle; hatched is **blocked**: a call in which nothing moves
# yet, because the rank waits for another. The numbers on the right say how busy each row was. All ranks first multiply,
# then stand in all_reduce together. Inside a virtual rank `time.perf_counter()` shows virtual time, so the stopwatch and
# the picture agree.
#
# Now measure, on two real processes of this machine. The same function, one changed argument:

# %% tags=["nbval-ignore-output"]
here = labkit.run(compute_and_reduce, 100 * 10**6, on=labkit.local(2, device="cpu"))
print(f"two processes here: {1e3 * max(here.results):.0f} ms, eight H100s: {1e3 * max(on_h100.results):.2f} ms")
here.timeline

# %% [markdown]
# **Explain it.** A hundred times slower or more, though only two ranks take part. There is no link between these two
# processes: the bytes are copied through the memory of one machine, by the same cores that add them up, while an H100
# sends by itself and its switch can add on the way. And run the cell again: the measured number moves, the virtual one
# never does. You will want both: one tells you what the hardware allows, the other what happened. (You have GPUs?
# Leave out `device="cpu"`, and the two processes use them.)
#
# ## 5 What a failure looks like
#
# A classic, in every second forum question: rank 0 has something else to do first, returns, and **never calls** what
# the others wait in. **How many of the four ranks wait for ever?**

# %% tags=["predict"]
labkit.predict("ranks_waiting", 2, unit="ranks")


# %% tags=["nbval-ignore-output"]
from labkit.errors import RunTimeout


def rank_0_leaves():
    tensor = torch.ones(1)
    if dist.get_rank() == 0:
        return tensor.item()
    dist.all_reduce(tensor)
    return tensor.item()


try:
    labkit.run(rank_0_leaves, on=labkit.virtual(4))
except RunTimeout as error:
    stuck = error
labkit.reveal("ranks_waiting", sum("waits" in report for report in stuck.reports.values()), str(stuck))

# %% [markdown]
# That is a **deadlock**. Read the report from the top: how many ranks wait; then for each, the call, your line, and why
# it cannot go on. "rank 0 finished without it" is the whole story. Under plain `torchrun` you would see no text at all
# until the group's timeout, which is 30 minutes with gloo and 10 with NCCL. On real processes labkit tells you too,
# after two seconds in which nobody moved:

# %% tags=["nbval-ignore-output"]
try:
    labkit.run(rank_0_leaves, on=labkit.local(4, device="cpu"))
except Exception as error:
    print(error)

# %% [markdown]
# (With real processes you may also read of a connection that was closed: rank 0 ended, and took its end of the line
# with it. Both are true. The first rank that went wrong is the one to look for.)
#
# ## 6 The post that does not run
#
# Below is a post of the kind that is copied from blog to blog, "Distributed training in 40 lines": a launcher, a
# gradient compressor, a parameter server. (It was written for this lesson, with the faults of its kind.) Each part
# runs, prints something friendly, and is wrong. You have the tools to see it.
#
# ### The launcher


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
# Four processes each give a 1 and add up. **What sum does each of them see?** (`init=False` leaves
# `init_process_group` to the function, as a script would.)

# %% tags=["predict"]
labkit.predict("sum_each_sees", 4)

# %%
launched = labkit.run(post_main, on=labkit.local(4, device="cpu"), init=False)
labkit.reveal("sum_each_sees", int(launched.results[0].split()[-1]), launched.results)

# %% [markdown]
# Four worlds of one rank each. All of them would train, on all of the data, and save over each other's checkpoint. No
# error, since the launcher never passed a rank and the code was content with a *default*. (A *store* is where ranks
# leave word for each other. A `HashStore` is a dictionary in one process, so nobody else could have been found there
# anyway.) What launchers really set is this:


# %%
def environment():
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    return {name: os.environ[name] for name in names}


for found in labkit.run(environment, on=labkit.virtual(4, gpus_per_node=2)).results:
    print(found)

# %% [markdown]
# Four ranks on two machines of two. `LOCAL_RANK` says which GPU of its machine a process takes; every machine has a 0.
#
# ### Exercise [[who_am_i]]
#
# *6 points, about 3 minutes; difficulty 1 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="who_am_i" points=6 difficulty=1 importance=4 minutes=3 title="Who am I" provides=["who_am_i"]
def who_am_i(environ: dict[str, str]) -> tuple[int, int]:
    """Return (rank, world_size) as a launcher wrote them into a process's environment.

    Args:
        environ: Names and texts, as os.environ has them: "RANK", "WORLD_SIZE", "LOCAL_RANK" and others.
    Raises:
        KeyError: If the launcher did not say which rank this is, or of how many.
    """
    # BEGIN SOLUTION who_am_i
    return int(environ["RANK"]), int(environ["WORLD_SIZE"])
    # END SOLUTION


# %% tags=["check"]
labkit.check("who_am_i", who_am_i)

# %% [markdown]
# ### The compressor
#
# Gradients are large and most entries are small. So send only the largest, a quarter of them, say: their values and
# where they stood. The post shows that it works:


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
# The two largest came back, where they were. Now train with it: 100 steps towards a target, from a start that is
# above it in some places and below it in others. The distance at the start is 8. **What is the distance at the end?**

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
# It ran away. The demonstration of the post had no negative number in it. Write the test that the author did not write.
#
# ### Exercise [[damaged]]
#
# *8 points, about 4 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="damaged" points=8 difficulty=2 importance=4 minutes=4 title="What came back" provides=["damaged"]
def damaged(before: torch.Tensor, after: torch.Tensor) -> list[int]:
    """Return the places of the entries that a compressor damaged, in order.

    A compressor may drop entries: those are 0 afterwards. Whatever is not 0 afterwards must be what it was before.

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
# `gradient.abs().topk(k)` finds the right places and returns the wrong values: **magnitudes**. One line of your test
# says so. In lesson 10 you build a compressor that keeps signs, and find out when it pays.
#
# ### The parameter server
#
# Rank 0 keeps the weights. The others, the workers, send it gradients. Three workers send 1.0 each, four times, and
# the server takes 0.1 of each off its weight. **If all arrive, what is the weight at the end?** Work it out. Then
# run it.

# %% tags=["predict"]
labkit.predict("weight_at_end", -1.2)


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


# %%
posted = labkit.run(post_training, 4, on=labkit.virtual(4))
labkit.reveal("weight_at_end", float(posted.results[0].split()[-1]), posted.results)

# %% [markdown]
# Had they all arrived, it would be -1.2. Everybody is done, the server "served", and the weight has not moved. What
# happened to twelve gradients? A run keeps a
# record of its messages. Here is what three of them look like:

# %%
for message in posted.timeline.messages()[:3]:
    print(message)

# %% [markdown]
# `received` is the position of the receive among the calls of the rank that took the message: 0 for its first call, 1
# for the next. `None` says that nobody ever took it.
#
# ### Exercise [[never_heard]]
#
# *6 points, about 3 minutes; difficulty 2 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="never_heard" points=6 difficulty=2 importance=3 minutes=3 title="Who was never heard" provides=["never_heard"]
def never_heard(messages: list[Message]) -> list[int]:
    """Return the ranks that sent at least one message which nobody received: each once, smallest first.

    Args:
        messages: What run.timeline.messages() returns; of each you need .src and .received.
    """
    # BEGIN SOLUTION never_heard
    return sorted({message.src for message in messages if message.received is None})
    # END SOLUTION


# %% tags=["check"]
labkit.check("never_heard", never_heard)

# %% tags=["nbval-ignore-output"]
print("never heard:", never_heard(posted.timeline.messages()))
print(posted.timeline.problems[0].text)

# %% [markdown]
# No worker was ever heard. So nobody received, so `serve` never ran: the thread was made, and **never started**. The
# method that does all the work is never reached. Labkit's own record says it in a sentence, on real processes as well.
# In lesson 06 you build a server that is reached, and count what it does.

# %% [markdown]
# ## 7 Eight GPUs, three times as fast
#
# A team trained on one GPU, and rented eight. They hoped for eight times the speed and got three. Their run was
# recorded, so you can look at it. These are four steps:

# %% tags=["figure"]
labkit.recorded("who_waits")

# %% [markdown]
# ### Exercise [[who_waits]]
#
# *6 points, about 4 minutes; difficulty 2 of 5, importance 4 of 5*
#
# **Who is waiting, and for whom?** In every step one rank is late, and the others wait for it. Find the rank, what the
# others wait in, and what makes it late. Click a bar to see what it is, and put your answers in place of `None`.

# %% tags=["find"] exercise="who_waits" title="Who is waiting?" points=6 difficulty=2 importance=4 minutes=4
labkit.answer("who_waits", rank=5, waits_in="all_reduce", cause="loads its data late")

# %% [markdown]
# The rank with the longest all_reduce is not the slow one: its bar is long because it waits. You will look for the short
# bar again and again in this course.

# %% [markdown] tags=["slide"]
# ### Four faults, no error
#
# | in the post | what really happens | how you saw it | mended in |
# |---|---|---|---|
# | `average_gradients` only adds | learning rate N times too large | `run.results` | [[average]]; lessons 02 and 04 |
# | the launcher passes no rank | N worlds of one rank | sum of ones is 1 | [[who_am_i]]; lesson 04, at its end |
# | the compressor keeps magnitudes | training runs away | a test with negative numbers | lesson 10 |
# | the server is never started | gradients go nowhere | `received=None` | lesson 06 |

# %% [markdown] tags=["slide"]
# ### What breaks at scale
#
# All four faults pass a test with **one** rank, positive numbers and no look at the result. Real runs have hundreds of
# ranks, and each hour costs money.
#
# * Compare with the truth: one process, the whole batch.
# * Try a number of ranks that is not 2, and numbers that are not positive.
# * Look at the messages, not at the print.

# %% [markdown]
# ## What to remember
#
# * One function, N ranks. They differ in `dist.get_rank()` and share nothing.
# * `dist.all_reduce` adds. You divide.
# * **Predict, build, measure, explain**, in this order.
# * A deadlock has a report: who waits, in which line, for whom.
# * Code that raises no error may still be wrong. The record of a run knows.
#
# **The question for the next lessons.** `dist.all_reduce` gave every rank the sum of four tensors. Somebody had to move
# them. If everything goes through rank 0, its link carries it all. How would you share the work among the ranks, so
# that none of them is busier than the others? Lesson 01 shows where one busy device leads, lesson 02 is the answer.
