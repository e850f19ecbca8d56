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
# # 01 Data parallelism in one process
#
# One A100 takes 101 ms for a training step. With the class you build here, three of them take 61 ms, and eight
# take 98 ms. **Why are three GPUs faster than eight?**
#
# PyTorch has this class, `nn.DataParallel`, and advises against it. Why build it? It is data parallelism at its
# simplest: one process, no network. Its two limits explain what replaced it.
#
# **Time:** [[minutes]] minutes, and a bonus. **You need** `nn.Module`, `backward()`, and lesson 00; no GPU.
# `[torch.device("cpu")] * 4` stands in for four GPUs.
#
# **Stuck?** `labkit.hint("scatter_and_gather")` gives up to three hints. `labkit.lend("scatter_and_gather")` puts a
# working version into the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 01 Data parallelism in one process
#
# Build what you should not use, and see why three GPUs are faster than eight
#
# <!-- notes: nn.DataParallel is data parallelism at its simplest: one process, no network. Whoever has seen where
# it stops understands why DistributedDataParallel looks the way it does. -->

# %% [markdown] tags=["slide-only"]
# ## Why learn what you should not use?
#
# * data parallelism **at its simplest**: one process, no network
# * later lessons reuse its ideas
# * its two limits explain **what replaced it**
#
# <!-- notes: PyTorch's own documentation advises against nn.DataParallel. Two timelines will show why. -->

# %% tags=["given"]
import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit

Batch = dict[str, Tensor]
Devices = list[torch.device]
CPUS = [torch.device("cpu")] * 4

# %% [markdown]
# ## 1 Four verbs
#
# The batch arrives on device 0. **Scatter** cuts it into pieces, one for each device. **Replicate** copies the model to
# each. **Apply** runs all copies at the same time, one thread each. **Gather** joins the outputs on device 0. The loss
# is computed there, and `backward()` goes all the way back: autograd must be able to follow every step.

# %% tags=["figure"]
labkit.figure("batch", one_process=True)

# %% [markdown] tags=["slide-only"]
# ## Four verbs, one process
#
# ```
#            scatter        apply            gather
#          +- piece 0 --> replica 0 --> output 0 -+
#  batch --+- piece 1 --> replica 1 --> output 1 -+--> loss
#          +- piece 2 --> replica 2 --> output 2 -+
#                            ^
#                            +--- replicate, in every step
# ```
#
# <!-- notes: Everything begins and ends on device 0. The loss is computed there, and backward walks the same way back. -->

# %% [markdown]
# ## 2 Scatter and gather
#
# A batch is a dict of tensors, `{"input": x, "mask": m}`, whose first dimension counts samples. The model is called as
# `model(**batch)`. An epoch's last batch may have ten samples for four devices, or only three.
#
# ### Exercise [[scatter_and_gather]]
#
# *30 points, about 7 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="scatter_and_gather" points=30 difficulty=2 importance=5 minutes=7 title="Scatter and gather" provides=["scatter", "gather"]
def scatter(batch: Batch, devices: Devices) -> list[Batch]:
    """Return the pieces of a batch, consecutive samples in order; piece i has the batch's keys and lies on devices[i].

    Sizes differ by at most one, longer pieces first. With fewer samples than devices, there is one piece for each
    sample; a batch has at least one sample. Gradients flow back into the batch.
    """
    # BEGIN SOLUTION scatter_and_gather
    num_samples = len(next(iter(batch.values())))
    count = min(num_samples, len(devices))
    cut = {key: tensor.tensor_split(count) for key, tensor in batch.items()}
    return [{key: parts[i].to(devices[i]) for key, parts in cut.items()} for i in range(count)]
    # END SOLUTION


def gather(outputs: list[Tensor], device: torch.device) -> Tensor:
    """Return all replicas' outputs as one tensor on the device; gradients flow back into every output.

    They are concatenated along dimension 0, in order. 0-dimensional outputs (one loss per replica) become a vector.
    """
    # BEGIN SOLUTION scatter_and_gather
    there = [output.to(device) for output in outputs]
    return torch.stack(there) if there[0].dim() == 0 else torch.cat(there)
    # END SOLUTION


# %% tags=["check"]
labkit.check("scatter_and_gather", scatter, gather)

# %% [markdown]
# ## 3 Replicate
#
# After `backward()`, the gradients of *all* copies must be added up in the **original's** `.grad`: the optimizer looks
# nowhere else. Autograd does that if it has seen the copying:

# %%
weight = nn.Parameter(torch.tensor([1.0, 2.0]))
copies = [weight.clone() for _ in range(3)]
(1 * copies[0] + 2 * copies[1] + 3 * copies[2]).sum().backward()
print("gradient of the original:", weight.grad.tolist())

# %% [markdown]
# 1 + 2 + 3 = 6. A clone is a step in autograd's graph between the original and the loss; a new `nn.Parameter` is not.
#
# How do such clones get into a module? `copy.deepcopy(module, memo)` takes a dict `{id(thing): stand-in}`. It copies
# the module, but where it meets an object whose `id` is in the dict, the copy gets the stand-in.
#
# **Buffers** need a decision. They are tensors that no optimizer touches, such as BatchNorm's running mean, which
# forward writes. Each replica writes its own, and only one can be kept: by convention, replica 0's.
#
# A trap: `tensor.to(device)` returns *the same tensor* if it is on that device; `tensor.to(device, copy=True)` never
# does.
#
# ### Exercise [[replicate]]
#
# *35 points, about 16 minutes; difficulty 4 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="replicate" points=35 difficulty=4 importance=5 minutes=16 title="Replicate" provides=["replicate"]
def replicate(module: nn.Module, devices: Devices) -> list[nn.Module]:
    """Return one module for each device, replica i on devices[i], that computes what the given module computes.

    * After backward, the grad of each parameter of the given module is the sum of all replicas' gradients. This is
      also true of a weight that two layers share.
    * Replica 0 uses the given module's own buffers, and may be the given module itself. The other replicas share no
      memory with the given module, nor with each other.
    * The given module is already on devices[0] and does not change: it keeps the same parameter and buffer objects.
    """
    # BEGIN SOLUTION replicate
    tensors = [*module.parameters(), *module.buffers()]
    replicas = []
    for number, device in enumerate(devices):
        memo = {id(tensor): tensor.to(device, copy=number > 0) for tensor in tensors}
        replicas.append(copy.deepcopy(module, memo))
    return replicas
    # END SOLUTION


# %% tags=["check"]
labkit.check("replicate", replicate)

# %% [markdown] tags=["slide-only"]
# ## A replica is not a new model
#
# | | replica 0 | the others |
# |---|---|---|
# | parameters | the original's | **clones that autograd sees** |
# | gradients | in the original | in the original, added up |
# | buffers | **the original's** | copies, thrown away |
#
# <!-- notes: With new nn.Parameters instead of clones nothing raises, and nothing is trained. -->

# %% [markdown]
# ## 4 Apply
#
# One thread for each replica: `threading.Thread`, or a `ThreadPoolExecutor`. A thread is not quite a function call:
#
# * `torch.no_grad()` applies only to the thread that entered it; a new thread starts with gradients enabled;
# * an exception ends its own thread, not yours: a `Thread` prints it, a pool keeps it until somebody asks for the
#   result. If replica 5 of 8 fails, your call should fail too, with the traceback of that replica;
# * threads end in any order.
#
# ### Exercise [[parallel_apply]]
#
# *35 points, about 8 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="parallel_apply" points=35 difficulty=3 importance=5 minutes=8 title="Apply, in parallel" provides=["parallel_apply"]
def parallel_apply(replicas: list[Any], inputs: list[dict[str, Any]]) -> list[Any]:
    """Return the results of replicas[i](**inputs[i]), in order of i; all run at the same time, in threads.

    There is at least one replica. Each is a module or, in section 6, a plain function. `torch.is_grad_enabled()` is the
    same in the threads as in the caller's thread. (No other mode of the caller's thread, such as autocast, needs to
    reach them.)

    Raises:
        Exception: The same exception object that a replica raised, after all threads have finished. If several failed,
            the exception of the one that comes first in `replicas`.
    """
    # BEGIN SOLUTION parallel_apply
    with_gradients = torch.is_grad_enabled()

    def call(replica: Any, batch: dict[str, Any]) -> Any:
        with torch.set_grad_enabled(with_gradients):
            return replica(**batch)

    with ThreadPoolExecutor(len(replicas)) as pool:
        futures = [pool.submit(call, *pair) for pair in zip(replicas, inputs, strict=True)]
    return [future.result() for future in futures]
    # END SOLUTION


# %% tags=["check"]
labkit.check("parallel_apply", parallel_apply)

# %% [markdown]
# ## 5 All four together
#
# Each verb is one call now:


# %% tags=["given"]
class MiniDataParallel(nn.Module):
    """A module that runs on several devices and looks like one."""

    def __init__(self, module: nn.Module, devices: Devices) -> None:
        super().__init__()
        self.module, self.devices = module, devices

    def forward(self, **batch: Tensor) -> Tensor:
        pieces = scatter(batch, self.devices)
        replicas = replicate(self.module, self.devices[: len(pieces)])
        return gather(parallel_apply(replicas, pieces), self.devices[0])


# %% [markdown]
# Is it right? Run eleven samples on four devices and on one, in float64, where rounding cannot hide a mistake:

# %%
torch.manual_seed(0)
x, y = torch.randn(11, 5).double(), torch.randn(11, 3).double()
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
losses = [nn.functional.mse_loss(each(input=x), y) for each in (model, MiniDataParallel(model, CPUS))]
alone, together = (torch.autograd.grad(loss, model[0].weight)[0] for loss in losses)
print("equal gradients, to 14 decimals:", torch.allclose(alone, together, rtol=0, atol=1e-14))

# %% [markdown]
# BatchNorm gives *other* results than on a single device, in `nn.DataParallel` as in your class: each replica takes
# mean and variance from **its own piece**.
#
# **[[made_once]].** To copy less, somebody calls `replicate` only once, before the first step. What happens in three
# steps of training? Choose `"error"`, `"no gradients"`, `"wrong silently"` or `"same"`.

# %% tags=["why"] exercise="made_once" title="Replicas made once"
labkit.answer("made_once", "wrong silently")


# %%
class MadeOnce(MiniDataParallel):
    def forward(self, **batch: Tensor) -> Tensor:
        self.replicas = getattr(self, "replicas", None) or replicate(self.module, self.devices)
        return gather(parallel_apply(self.replicas, scatter(batch, self.devices)), self.devices[0])


for kind in (MiniDataParallel, MadeOnce):
    wrapped = kind(copy.deepcopy(model), CPUS)
    optimizer = torch.optim.SGD(wrapped.module.parameters(), lr=0.5)
    for step in range(3):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(wrapped(input=x), y)
        loss.backward()
        optimizer.step()
        print(f"{kind.__name__:17} step {step}: loss {loss.item():.3f}")

# %% [markdown]
# At step 0 the losses are equal. Then the optimizer updates the original's weights, but the clones keep the old ones.
# (If your replica 0 is the original itself, it uses the new ones.)

# %% [markdown] tags=["slide-only"]
# ## Right, to 14 decimals
#
# * eleven samples on four devices: sizes that do not divide
# * float64: rounding cannot hide a mistake
# * not equal: BatchNorm, which sees its own piece only
#
# **To the room:** what if replicas are made only once?
#
# <!-- notes: Have them follow one weight through two steps: who changes it, and who reads it? -->

# %% [markdown]
# ## 6 What threads cannot do
#
# Is it fast? Python has a **global interpreter lock**, the GIL: only one thread of a process runs Python code at a
# time. (Free-threaded Python has none.) Take the worst case: a hundred layers of plain Python. With one thread, a layer
# takes a ms or two. With two threads, each has half of the samples, and a layer takes half as long unless its thread
# waits. A layer of more than 3 ms most likely waited for the lock. The picture puts its bar in the *host* row, the
# others in the *compute* row.


# %% tags=["given"]
BARS: list[tuple[int, int, int]] = []


def python_layers(row: int, x: Tensor) -> None:
    for _ in range(100):
        start = time.perf_counter_ns()
        for _ in range(len(x) * 2_000):
            pass
        BARS.append((row, start, time.perf_counter_ns()))


def on_threads(count: int) -> labkit.Timeline:
    BARS.clear()
    pieces = torch.ones(32, 1).tensor_split(count)
    parallel_apply([python_layers] * count, [{"row": i, "x": piece} for i, piece in enumerate(pieces)])
    rank, start, end = torch.tensor(sorted(BARS)).T.numpy()
    lane = 2 * (end - start > 3_000_000)  # HOST, else COMPUTE
    name = ["layer"] * len(rank)
    return labkit.Timeline(rank, lane, start - start.min(), end - start.min(), name, ["span"] * len(rank))


# %% [markdown]
# **How many times faster are two threads than one?** (Median of five trials.)

# %% tags=["predict"]
labkit.predict("two_threads", 1.0)

# %% tags=["nbval-ignore-output"] seconds=3
trials = [(on_threads(1).makespan_ns, two := on_threads(2)) for _ in range(5)]
ratios = sorted(one / two.makespan_ns for one, two in trials)
labkit.reveal("two_threads", ratios[2], trials[-1][1])

# %% tags=["nbval-ignore-output"]
print("five trials:", *(f"{ratio:.2f}" for ratio in ratios))

# %% [markdown]
# About 1 means that the second thread gained nothing. Python hands the lock over every 5 ms. In that time one thread
# finishes a few layers, and the other is stuck in one.
#
# **[[long_operators]].** Now take two long matrix products. Each keeps one core busy, and two cores are free. One
# thread computes both in turn; two threads compute one each. Are two threads `"no faster"` than one, `"twice as fast"`
# or `"four times"`?

# %% tags=["why"] exercise="long_operators" title="Long operators"
labkit.answer("long_operators", "twice as fast")

# %% [markdown]
# So threads are enough where operators are long. On a GPU, Python launches one kernel after another, and many are
# short. Eight threads that launch kernels take turns at one lock, and GPUs wait for their next kernel. That is limit
# number one. If each GPU has its own interpreter, no launch waits for another: **one process for each GPU**.

# %% [markdown] tags=["slide-only"]
# ## Limit 1: one interpreter, one lock
#
# | forward pass is | two threads |
# |---|---|
# | Python | as slow as one |
# | a few long operators | **how fast?** |
#
# A GPU's forward pass is thousands of short kernels, each launched by Python.
#
# <!-- notes: Show the timeline of two threads: whenever one moves, the other is stuck in a long bar. -->

# %% [markdown] tags=["slide-only"]
# ## Eight A100s, as slow as one
#
# One A100: 101 ms. Three of them: 61 ms. Eight of them: 98.3 ms.
#
# **To the room:** open the notebook at section 7. Whom do the others wait for?
#
# <!-- notes: Let the room look at the recorded run, and collect answers: a slow device, uneven pieces, the lock, one port. Why are three the fastest? Each further device costs 11 ms or more at the port, and the fourth saves 8 ms of computing. -->

# %% [markdown]
# ## 7 Eight devices, hardly faster than one
#
# This is one step on eight A100s, recorded on the virtual cluster: eight layers of 2048 x 2048 (134 MB), 8192 samples.
# Each GPU has one PCIe port. Rank *i* plays device *i*.

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("hot_spot")

# %% [markdown]
# ### Exercise [[hot_spot]]
#
# Hover over bars and follow arrows. `rank`: whom do the others wait for? `starts_ms`: each row's first `compute` bar is
# its forward pass. When does the last of them begin, in ms (within 6 %)? `cause`: `"slow device"`, `"uneven pieces"`,
# `"lock"` or `"one port"`?

# %% tags=["find"] exercise="hot_spot" points=0 minutes=4 title="Who is waiting?"
labkit.answer("hot_spot", rank=0, starts_ms=42, cause="one port")

# %% [markdown]
# That staircase is limit number two. Seven models go out and seven models' gradients come back (1.88 GB), besides
# inputs, outputs and the outputs' gradients (0.18 GB). One after another, these 2.06 GB take about 86 ms at 24 GB/s.
# Each device computes for 12.6 ms.
#
# **Why are three faster than eight?** Each further device costs at least 11 ms: its model goes out, and its gradients
# come back. The second device saves 50 ms of computing, the third 17, the fourth only 8.
#
# The whole model is sent in *every* step, though only the optimizer changes it. With the summed gradients, each device
# could do the update itself. So keep a model on every device and exchange **gradients** only. Each device contributes
# its own and gets the sum: an **all-reduce**. **How many ms will this step take?**

# %% tags=["predict"]
labkit.predict("all_reduce_step_ms", 30, unit="ms")


# %% seconds=3
def all_reduce_step():
    model = nn.Sequential(*(nn.Linear(2048, 2048, device="meta") for _ in range(8)))  # shapes without numbers
    model(torch.empty(8192 // dist.get_world_size(), 2048, device="meta")).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


run = labkit.run(all_reduce_step, on=labkit.virtual(8, gpu="a100", link="pcie4"))
labkit.reveal("all_reduce_step_ms", run.timeline.makespan_ns / 1e6, run.timeline)

# %% [markdown]
# Only gradients are sent, through all ports at the same time and in both directions at once: each port sends and
# receives 7/4 of the 134 MB. That takes 9.8 ms instead of 86. Computing takes 12.6 ms. The last millisecond goes into
# starting sixteen all-reduces, one for each weight and bias.

# %% [markdown] tags=["slide-only"]
# ## Limit 2: everything passes device 0
#
# | one step, eight A100 over PCIe | |
# |---|---|
# | one device alone | 101 ms |
# | scatter, replicate, apply, gather | 98.3 ms |
# | a model on each, gradients by all-reduce | 23.4 ms |
#
# <!-- notes: Show the recorded run. Seven copies of the model leave device 0 one after another: the staircase. -->

# %% [markdown]
# ## 8 What to remember
#
# * Threads share one interpreter. So use one process for each GPU.
# * Device 0's port sends N-1 models and receives as many models' gradients: 7 each way with eight devices, more with
#   each you add. In the all-reduce each port sends and receives 2(N-1)/N times the gradients (see lesson 02): 7/4 each
#   way, always below 2.
#
# **The next question.** Eight devices each hold 134 MB of gradients, and each needs the sum. How do you share the bytes
# fairly among the ports?

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * pieces, copies, gradients that add up
# * one process for each GPU
# * **nobody in the middle**
#
# Next: eight devices, 134 MB each, all want the sum. How?

# %% [markdown]
# ## Bonus: A step as a plan
#
# What moves in a step can be written down before anything runs. A **plan** is a list of records:


# %% tags=["given"]
from dataclasses import dataclass


@dataclass(frozen=True)
class Move:
    """Some bytes that go from one device to another."""

    what: str  # "inputs", "model", "outputs", "output gradients" or "model gradients"
    src: int
    dst: int
    num_bytes: int


# %% [markdown]
# ### Exercise [[step_plan]]
#
# *8 points, about 8 minutes; difficulty 2 of 5, importance 3 of 5*
#
# The loss is computed on device 0. `backward()` sends gradients the opposite way: an output's gradient goes from device
# 0 to the device that computed the output, and the gradients of each copy of the model go to device 0. Inputs need no
# gradient.


# %% tags=["exercise"] exercise="step_plan" points=8 difficulty=2 importance=3 minutes=8 title="A step as a plan" provides=["step_plan"] bonus=true
def step_plan(
    sizes: list[int], input_bytes: int, output_bytes: int, model_bytes: int, gradient_bytes: int
) -> list[Move]:
    """Return all that moves between devices in one step.

    All inputs come first, then all models, outputs, output gradients and model gradients. Within each of these kinds,
    the moves are in the order of devices.

    Args:
        sizes: Number of samples on each device, 1 or more, device 0 first.
        input_bytes: Bytes of one sample's input.
        output_bytes: Bytes of one sample's output; the output's gradient has as many.
        model_bytes: Bytes of all parameters and buffers together.
        gradient_bytes: Bytes of all parameter gradients together (a frozen parameter has none).
    """
    # BEGIN SOLUTION step_plan
    others = range(1, len(sizes))
    plan = [Move("inputs", 0, device, sizes[device] * input_bytes) for device in others]
    plan += [Move("model", 0, device, model_bytes) for device in others]
    plan += [Move("outputs", device, 0, sizes[device] * output_bytes) for device in others]
    plan += [Move("output gradients", 0, device, sizes[device] * output_bytes) for device in others]
    plan += [Move("model gradients", device, 0, gradient_bytes) for device in others]
    return plan
    # END SOLUTION


# %% tags=["check"]
labkit.check("step_plan", step_plan)

# %% [markdown]
# The plan tells you what section 7 costs, without a run. Every move has device 0 at one end, and each phase ends before
# the next begins, so the moves run one at a time. Each costs a latency (8 µs) and its bytes divided by the bandwidth
# (24 GB/s):

# %%
for n in (1, 2, 3, 4, 8):
    sizes = [len(piece) for piece in torch.arange(8192).tensor_split(n)]
    plan = step_plan(sizes, 2048 * 4, 2048 * 4, 134_283_264, 134_283_264)
    moving_ms = 1e3 * sum(8e-6 + move.num_bytes / 24e9 for move in plan)
    print(f"{n} devices: {moving_ms:5.1f} ms of moving, {100.6 / n:6.1f} ms of computing")

# %% [markdown]
# With each device that you add, computing gets shorter and moving gets longer. The sum is smallest with three. With
# eight, it is about what the recorded run took.
#
# ## Bonus: Unequal devices
#
# GPUs can differ in speed: one is older, shared with another job, or throttled by heat. With equal pieces, all wait for
# the slowest. Uneven pieces fix that. But once pieces differ, even by one sample, there is a trap.
#
# **[[lone_sample]].** Suppose each replica returns the *mean* loss of its piece, and you take `losses.mean()`. Nine
# samples on eight devices: two samples share a device, and seven have a device each. In that mean, not all samples have
# the same weight. A sample alone on its device has how many times the weight of a sample that shares one?

# %% tags=["why"] exercise="lone_sample" title="A sample alone" bonus=true
labkit.answer("lone_sample", 2)

# %% [markdown]
# Now the pieces. A device of speed 3 beside two of speed 1 should get 3/5 of 11 samples: 6.6, 2.2 and 2.2. The
# **largest remainder** rule, which some elections use to allot seats, makes whole numbers of them: round down (6, 2,
# 2), then give the samples left over, one each, to the largest fractions: 7, 2, 2.
#
# ### Exercise [[shares_by_speed]]
#
# *8 points, about 8 minutes; difficulty 3 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="shares_by_speed" points=8 difficulty=3 importance=3 minutes=8 title="Shares by speed" provides=["shares_by_speed", "slowest_seconds"] bonus=true
def shares_by_speed(num_samples: int, speeds: list[int]) -> list[int]:
    """Return the samples of each device, in proportion to its speed, by largest remainder; they add up to num_samples.

    Args:
        num_samples: 0 or more.
        speeds: Samples per second of each device, 1 or more. If two remainders are equal, the device that comes first
            in the list gets the sample. Compare remainders exactly: as floats, two equal fractions may differ.
    """
    # BEGIN SOLUTION shares_by_speed
    exact = [divmod(num_samples * speed, sum(speeds)) for speed in speeds]
    shares = [whole for whole, _ in exact]
    by_remainder = sorted(range(len(speeds)), key=lambda device: -exact[device][1])
    for device in by_remainder[: num_samples - sum(shares)]:
        shares[device] += 1
    return shares
    # END SOLUTION


def slowest_seconds(shares: list[int], speeds: list[int]) -> float:
    """Return how long a step takes: until the last device is done."""
    # BEGIN SOLUTION shares_by_speed
    return max(share / speed for share, speed in zip(shares, speeds, strict=True))
    # END SOLUTION


# %% tags=["check"]
labkit.check("shares_by_speed", shares_by_speed, slowest_seconds)

# %%
SPEEDS = [100, 200, 200]
for name, shares in {"equal": [17, 17, 16], "by speed": shares_by_speed(50, SPEEDS)}.items():
    print(f"{name:8} {shares}: {slowest_seconds(shares, SPEEDS):.3f} s")

# %% [markdown]
# ## Bonus: Say it with a number
#
# A colleague has eight more A100s in the box of section 7, and wants sixteen devices to share the step, still in one
# process: scatter, replicate, apply, gather. Again the moves run one at a time.
#
# ### Exercise [[sixteen_devices]]
#
# *6 points, about 7 minutes; difficulty 2 of 5, importance 4 of 5*
#
# Answer in two to five sentences, for a human reader. How many ms of a step are data movement, and how many are
# computing? Where do both numbers come from? What would you do instead? If you work alone,
# `labkit.lend("sixteen_devices")` shows a model answer.

# %% [markdown] tags=["write"] exercise="sixteen_devices" title="Sixteen devices" minutes=7 bonus=true rubric={"derives about 170 ms of moving: 30 copies of 134 MB over one port of 24 GB/s": 2, "holds that against the 6 ms that computing still gets shorter by": 2, "says what to do instead, and why no port is in the middle then": 2}
# Sixteen devices are slower than eight, and slower than one. In each step device 0 sends 15 copies of the model and
# receives 15 gradients: 30 x 134 MB at 24 GB/s are 168 ms, and inputs and outputs add 8 ms. With eight devices it was
# 86 ms. Computing shrinks only from 12.6 to 6.3 ms, so the step goes from 99 to 183 ms. I would run one process for
# each GPU, keep a model in each and all-reduce the gradients: then every port carries a share and device 0's is no
# longer in the middle.

# %% [markdown]
# ### Sources
#
# * PyTorch documentation: `torch.nn.DataParallel`, which broadcasts the model with NCCL where it can. That takes load
#   off device 0's port, but the model is still sent in every step, and all outputs still end on device 0. And, in the
#   CUDA notes: "Use nn.parallel.DistributedDataParallel instead of multiprocessing or nn.DataParallel".
# * S. Li and others, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", *Proceedings of the
#   VLDB Endowment* 13 (2020): why one process for each GPU.
# * S. Gross, "Making the Global Interpreter Lock Optional in CPython", PEP 703 (2023): what the lock costs, and a
#   Python without it. The 5 ms are `sys.getswitchinterval()`.
# * M. L. Balinski and H. P. Young, *Fair Representation* (1982): largest remainders, and what is odd about them.
