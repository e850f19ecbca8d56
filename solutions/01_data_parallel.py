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
# # 01 Data parallelism in one process
#
# One process, several devices, one thread for each. You will build `nn.DataParallel` from five small functions, prove
# that its gradients are right, and find out why nobody trains large models with it.

# %% [markdown]
# **What you will be able to do**
#
# * cut a batch into pieces and put the results together again, nested inputs and gradients included;
# * copy a model so that the gradients of all copies arrive in the original;
# * run the copies in threads, and find the replica that raised an error;
# * say when the mean of means is not the mean, and mend it;
# * write what a step moves as a plan, and cost it before you run it;
# * share work among devices that are not equally fast.
#
# **Time:** about 110 minutes, and 12 more for the bonus exercise. **What you must know:** `nn.Module`, what
# `backward()` does, and what lesson 00 says about `labkit.run`. No GPU is needed.
#
# **Devices.** Everything here takes a list of devices. With several GPUs that list is
# `[torch.device("cuda", 0), torch.device("cuda", 1)]`. Without them it is `[torch.device("cpu")] * 2`: two *logical*
# devices, which are the same processor twice. All the rules are the same; only the speed is not, and the virtual
# cluster will tell you about that. (This lesson was developed without a GPU: its lines for GPUs are there and have
# never run on one.)
#
# **Points** rest on other cases than those that `labkit.check` shows you. Wall time earns none.

# %% tags=["given"]
import copy
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import labkit

# %% tags=["given"]
Devices = list[torch.device]


def logical_devices(count: int) -> Devices:
    """Return that many devices: GPUs if there are so many, else the processor, several times."""
    if torch.cuda.device_count() >= count:
        return [torch.device("cuda", number) for number in range(count)]
    return [torch.device("cpu")] * count


# %% [markdown]
# ## 1 Scatter
#
# The idea needs four verbs. A batch comes in on the first device. **Scatter** cuts it, one piece for each device.
# **Replicate** copies the model to each device. **Apply** runs every copy on its piece, all at the same time.
# **Gather** joins the outputs on the first device. There the loss is computed, as if nothing had happened, and
# `backward()` goes the whole way back.

# %% [markdown] tags=["slide"]
# ### Four verbs
#
# ```
#                scatter        apply            gather
#              +- piece 0 --> replica 0 --> output 0 -+
#      batch --+- piece 1 --> replica 1 --> output 1 -+--> outputs --> loss
#              +- piece 2 --> replica 2 --> output 2 -+
#                                ^
#                                +--- replicate, in every step
# ```
#
# One process. One thread for each replica. Everything begins and ends on device 0.

# %% [markdown]
# Ten samples, four devices. **How many samples does the last device get**, if the sizes differ by at most one and the
# longer pieces come first?

# %% tags=["predict"]
labkit.predict("last_piece", 1, unit="samples")

# %% [markdown]
# ### Exercise [[scatter]]
#
# *10 points, about 8 minutes; difficulty 2 of 5, importance 5 of 5*
#
# A model takes more than one tensor. It is called with positional arguments and with keywords, and in them there may be
# tuples, lists and dicts. So `scatter` goes through whatever it is given and cuts the tensors it finds. (Plain tuples
# are enough, here and in [[gather]]. A *namedtuple* wants its fields one by one and not in a list: torch's own takes these
# too.)
#
# Two things to think of. What comes out when there are **fewer samples than devices**? And what becomes of an **empty**
# dict, when a call has no keywords?


# %% tags=["exercise"] exercise="scatter" points=10 difficulty=2 importance=5 minutes=8 title="Scatter" provides=["scatter"]
def scatter(value: Any, devices: Devices) -> list[Any]:
    """Return one piece of value for each device that gets a sample, piece i on devices[i].

    Args:
        value: A tensor is cut along its first dimension into pieces whose sizes differ by at most one, the longer ones
            first; gradients flow back into it. Of n samples on more than n devices come n pieces. Plain tuples, lists
            and dicts are cut through: every piece is of the same kind, with the same keys. A tensor without dimensions goes
            to every device, and so does anything else, as it is.
        devices: One or more.
    """
    # BEGIN SOLUTION scatter
    if isinstance(value, Tensor):
        if value.dim() == 0:
            return [value.to(device) for device in devices]
        pieces = value.tensor_split(min(len(value), len(devices)))
        return [piece.to(device) for piece, device in zip(pieces, devices, strict=False)]
    if isinstance(value, tuple | list) and value:
        return [type(value)(parts) for parts in zip(*(scatter(item, devices) for item in value), strict=False)]
    if isinstance(value, dict) and value:
        of_items = zip(*(scatter(item, devices) for item in value.values()), strict=False)
        return [dict(zip(value, parts, strict=True)) for parts in of_items]
    return [value] * len(devices)
    # END SOLUTION


# %% tags=["check"]
labkit.check("scatter", scatter)

# %%
CPUS = [torch.device("cpu")] * 4
sizes = [len(piece) for piece in scatter(torch.arange(10), CPUS)]
labkit.reveal("last_piece", sizes[-1], f"ten samples on four devices: {sizes}")

# %%
print("three samples on four devices:", scatter(torch.arange(3), CPUS))
for piece in scatter(((torch.arange(4),), {"scale": 2.0}), CPUS[:2]):
    print("arguments and keywords:", piece)

# %% [markdown]
# The last two lines are how you will use it: arguments and keywords go in as one pair, and every piece is again such a
# pair, ready for one replica.
#
# ## 2 Gather
#
# The way back. Every replica returns an output of its own, and they become one, in the order of the pieces. Most
# outputs are tensors with a sample in every row: join them along the first dimension. A replica may also return its
# *loss*, a tensor without dimensions; then you get a vector with one loss for each.
#
# ### Exercise [[gather]]
#
# *8 points, about 6 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="gather" points=8 difficulty=2 importance=4 minutes=6 title="Gather" provides=["gather"]
def gather(outputs: list[Any], device: torch.device) -> Any:
    """Return the outputs of all replicas as one, on one device; gradients flow back into every output.

    Args:
        outputs: One for each replica, all built alike. Tensors are joined along the first dimension, in order; tensors
            without dimensions become a vector. Plain tuples, lists and dicts are joined item by item and stay of their
            kind. Of anything else the first replica's counts.
        device: Where the result lies.
    """
    # BEGIN SOLUTION gather
    first = outputs[0]
    if isinstance(first, Tensor):
        there = [output.to(device) for output in outputs]
        return torch.stack(there) if first.dim() == 0 else torch.cat(there)
    if isinstance(first, tuple | list):
        return type(first)(gather(list(items), device) for items in zip(*outputs, strict=True))
    if isinstance(first, dict):
        return {key: gather([output[key] for output in outputs], device) for key in first}
    return first
    # END SOLUTION


# %% tags=["check"]
labkit.check("gather", gather)

# %%
batch = {"x": torch.arange(10), "name": "ten numbers"}
again = gather(scatter(batch, CPUS), CPUS[0])
print("gather undoes scatter:", torch.equal(again["x"], batch["x"]), again["name"])

# %% [markdown]
# ## 3 Replicate
#
# Now the interesting one. Each device needs a copy of the model. A copy of a *tensor* is easy: `p.to(device)`. What
# must not be lost is where the copy came from. After `backward()` you want the gradients of all copies, **added up, in
# the original's** `.grad`, for the optimizer knows no other.
#
# Autograd does this for you, if copying is a step that it sees. Look:

# %%
weight = nn.Parameter(torch.tensor([1.0, 2.0]))
copies = [weight.clone() for number in range(3)]
sum(((number + 1) * each).sum() for number, each in enumerate(copies)).backward()
print("copies are leaves:", [each.is_leaf for each in copies])
print("gradient of the original:", weight.grad.tolist())

# %% [markdown]
# 1 + 2 + 3 = 6: three gradients, added up. A clone is no leaf; it is a node between the original and the loss. So a
# replica's "parameters" must be such clones, and not new `nn.Parameter`s.
#
# How do you get a module whose parameters are these tensors? `copy.deepcopy(module, memo)` copies a module with all it
# holds, and `memo` is a dict `{id(object): its copy}` of what has been copied *already*. What stands there is used as
# it is, also where two layers share one weight.
#
# **Buffers** need a decision. BatchNorm writes its running mean while it computes. Three replicas make three of them,
# and only one can survive the step. The custom is: **replica 0's**. It writes into the original's buffers, the others
# into copies that are thrown away.
#
# ### Exercise [[replicate]]
#
# *14 points, about 12 minutes; difficulty 4 of 5, importance 5 of 5*
#
# One more trap, and it shows only on logical devices: `p.to(device)` returns *the same tensor* if it lies there
# already. For a real copy say `p.to(device, copy=True)`.


# %% tags=["exercise"] exercise="replicate" points=14 difficulty=4 importance=5 minutes=12 title="Replicate" provides=["replicate"]
def replicate(module: nn.Module, devices: Devices) -> list[nn.Module]:
    """Return one replica for each device: modules that compute what the module computes.

    Gradients of all replicas arrive, added up, in the module's parameters. Replica 0 writes into the module's own
    buffers; each other replica has parameters and buffers that share no memory with the module or with one another.

    Args:
        module: Lies on devices[0]; stays as it is.
        devices: Replica i lies on devices[i].
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


# %%
def small_model(norm=False):
    """Return the same small model in every call, in float64."""
    torch.manual_seed(1)
    middle = nn.BatchNorm1d(8) if norm else nn.Tanh()
    return nn.Sequential(nn.Linear(5, 8), middle, nn.Linear(8, 3)).double()


model = small_model(norm=True)
replicas = replicate(model, CPUS[:3])
for replica in replicas:
    replica(torch.randn(4, 5, dtype=torch.float64))
print("batches that BatchNorm has seen, original:", model[1].num_batches_tracked.item())
print("in the replicas:", [replica[1].num_batches_tracked.item() for replica in replicas])

# %% [markdown] tags=["slide"]
# ### What a replica holds
#
# | | replica 0 | replica 1, 2, ... |
# |---|---|---|
# | parameters | the original's, or clones | **clones that autograd sees** |
# | gradients | in the original | in the original, added up |
# | buffers | **the original's**: what it writes stays | copies: what they write is lost |
#
# New `nn.Parameter`s instead of clones: no error, and no gradients.

# %% [markdown]
# ## 4 Apply, in parallel
#
# Each replica gets a thread. `threading.Thread(target=f, args=(i,))` makes one, `start()` starts it and returns at
# once, `join()` waits for its end. So: start all of them, **then** join all of them.
#
# Three things are different in a thread:
#
# * what its function returns is lost, so it must put its result somewhere, by number, not by who is done first;
# * `torch.no_grad()` counts for the thread that called it. A new thread begins with gradients on;
# * an exception ends the thread, prints something, and *the others never hear of it*.
#
# The last is the nastiest. If one replica of eight fails, you want to know which, and see the line where it happened. A
# Python exception can be kept in a variable and raised later, in another thread: `raise error` keeps its type and its
# traceback. And `error.add_note("in replica 2")` puts a line below its message.
#
# ### Exercise [[parallel_apply]]
#
# *14 points, about 12 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="parallel_apply" points=14 difficulty=3 importance=5 minutes=12 title="Apply, in parallel" provides=["parallel_apply"]
def parallel_apply(replicas: list[nn.Module], inputs: list[tuple[tuple, dict]]) -> list[Any]:
    """Return every replica's output, in the order of the replicas, computed at the same time in threads.

    Gradients are recorded in the threads if, and only if, they are recorded where this is called.

    Args:
        replicas: Called as replica(*arguments, **keywords).
        inputs: (arguments, keywords) for each replica.

    Raises:
        Exception: What a replica raised, when all threads have ended: the same exception with its own traceback, and
            "replica 2" in its text or a note. If several failed, that of the lowest number.
    """
    # BEGIN SOLUTION parallel_apply
    outputs: list[Any] = [None] * len(replicas)
    errors: dict[int, Exception] = {}
    with_gradients = torch.is_grad_enabled()

    def apply(number: int) -> None:
        try:
            arguments, keywords = inputs[number]
            with torch.set_grad_enabled(with_gradients):
                outputs[number] = replicas[number](*arguments, **keywords)
        except Exception as raised:
            errors[number] = raised

    threads = [threading.Thread(target=apply, args=(number,)) for number in range(len(replicas))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        number = min(errors)
        errors[number].add_note(f"in replica {number}")
        raise errors[number]
    return outputs
    # END SOLUTION


# %% tags=["check"]
labkit.check("parallel_apply", parallel_apply)

# %% [markdown]
# ## 5 MiniDataParallel
#
# You have the four verbs. The class puts them together, and needs hardly more than one line for each.
#
# ### Exercise [[mini_data_parallel]]
#
# *18 points, about 10 minutes; difficulty 3 of 5, importance 5 of 5*
#
# Mind two things. The optimizer changes the original after every step, so *when* must the replicas be made? And if the
# batch is smaller than the number of devices, how many replicas do you need?


# %% tags=["exercise"] exercise="mini_data_parallel" points=18 difficulty=3 importance=5 minutes=10 title="MiniDataParallel" provides=["MiniDataParallel"] needs=["scatter", "gather", "replicate", "parallel_apply"]
class MiniDataParallel(nn.Module):
    """A module that runs on several devices and looks like one.

    Args:
        module: What is trained; lies on devices[0]. Its parameters are this module's parameters.
        devices: Where replicas run, one or more; outputs come back to the first.
    """

    def __init__(self, module: nn.Module, devices: Devices) -> None:
        super().__init__()
        # BEGIN SOLUTION mini_data_parallel
        self.module, self.devices = module, devices
        # END SOLUTION

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Return what the module returns for the whole batch."""
        # BEGIN SOLUTION mini_data_parallel
        pieces = scatter((arguments, keywords), self.devices)
        replicas = replicate(self.module, self.devices[: len(pieces)])
        return gather(parallel_apply(replicas, pieces), self.devices[0])
        # END SOLUTION


# %% tags=["check"]
labkit.check("mini_data_parallel", MiniDataParallel)

# %% [markdown]
# Is it right? Compare it with the plain module on the whole batch, in float64 and with plain SGD, three steps, eleven
# samples on four devices. (Why SGD? Adam divides a gradient by its own size, and would hide a factor that is wrong.)

# %%
torch.manual_seed(0)
SAMPLES = torch.randn(11, 5, dtype=torch.float64)
TARGETS = torch.randn(11, 3, dtype=torch.float64)


def three_steps(model, wrapped):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(wrapped(SAMPLES), TARGETS).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


alone, together = small_model(), small_model()
difference = (three_steps(alone, alone) - three_steps(together, MiniDataParallel(together, CPUS))).abs().max().item()
print(f"largest difference after three steps is below 1e-14: {difference < 1e-14}")

# %% [markdown]
# With GPUs, torch's own class stands beside yours: the same gradients, and what a step takes. The one changed argument
# is the list of devices.


# %% tags=["nbval-ignore-output"]
def gradients_and_ms(wrap, gpus, num_steps=5):
    """Return the gradients of a step on these GPUs, and the shortest step in ms; the first ones warm up."""
    model = small_model().to(gpus[0])
    wrapped, took = wrap(model), []
    for _ in range(num_steps):
        model.zero_grad()
        start = time.perf_counter()
        nn.functional.mse_loss(wrapped(SAMPLES.to(gpus[0])), TARGETS.to(gpus[0])).backward()
        for gpu in gpus:
            torch.cuda.synchronize(gpu)
        took.append(1e3 * (time.perf_counter() - start))
    return [parameter.grad for parameter in model.parameters()], min(took)


count = torch.cuda.device_count()
if count > 1:
    gpus = logical_devices(count)
    theirs, theirs_ms = gradients_and_ms(lambda model: nn.DataParallel(model, list(range(count))), gpus)
    mine, mine_ms = gradients_and_ms(lambda model: MiniDataParallel(model, gpus), gpus)
    equal = all(torch.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(mine, theirs, strict=True))
    print(f"gradients equal those of nn.DataParallel: {equal}; a step: {theirs_ms:.1f} ms there, {mine_ms:.1f} ms here")
else:
    print(f"{count} GPUs here: nn.DataParallel would just call the module. Yours runs on logical devices too.")

# %% [markdown]
# Torch cuts in another way. It takes `chunk`, whose pieces are all as large as the first, as far as the samples go: ten
# samples on four devices are 3, 3, 3 and 1, five on four are 2, 2 and 1, three replicas only, and nine on eight are 2,
# 2, 2, 2 and 1. The gradients do not care. What is computed *of a piece* does.
#
# One thing is *not* as on one device, in torch's class as in yours. BatchNorm computes mean and variance of **its own
# piece**. On a piece of three samples these are poor, and the model trains differently. And a piece of one sample has
# no variance at all:

# %%
five = torch.randn(5, 5, dtype=torch.float64)
try:
    MiniDataParallel(small_model(norm=True), CPUS)(five)
except ValueError as error:
    print(f"{type(error).__name__}: {error}")
    print("note:", *error.__notes__)

# %% [markdown]
# Five samples on four devices are 2, 1, 1 and 1. On one device the same batch would have worked. Thanks to your note
# you know where to look.

# %% [markdown] tags=["slide"]
# ### MiniDataParallel is right
#
# * outputs and gradients equal the plain module's on the whole batch
# * a batch smaller than the number of devices: fewer replicas
# * an error in a replica: same type, own traceback, and which replica
# * **not** the same: BatchNorm, whose statistics are each piece's own
#
# Prove it in float64, with SGD, with sizes that do not divide.

# %% [markdown]
# ## 6 When the mean of means is wrong
#
# Outputs can be large: a language model returns a number for every word of its vocabulary, for every position. It is
# cheaper to compute the loss *in* the replica and to gather one number from each. So each replica returns the mean over
# its own samples, `gather` makes a vector of them, and what most people write then is `losses.mean()`.
#
# Nine samples on eight devices: pieces of 2, 1, 1, 1, 1, 1, 1 and 1. **How many times as much does a sample count that
# is alone on its device, compared with one that shares it?**

# %% tags=["predict"]
labkit.predict("lone_sample_weight", 1.0)


# %%
def losses_of(values, num_devices):
    """Return each piece's mean, as replicas would, and the sizes of the pieces."""
    pieces = scatter(values, [torch.device("cpu")] * num_devices)
    return torch.stack([piece.mean() for piece in pieces]), [len(piece) for piece in pieces]


values = torch.zeros(9, requires_grad=True)
losses, sizes = losses_of(values, 8)
losses.mean().backward()
labkit.reveal("lone_sample_weight", (values.grad[8] / values.grad[0]).item())

# %% [markdown]
# The mean of means gives every *device* the same weight; you want it for every *sample*. With equal pieces there is no
# difference, which is why it goes unnoticed until the last batch of an epoch.
#
# It gets worse where the loss counts only some elements: words that are not padding. One piece may hold 900 of them and
# the next 20. Or none at all: a mean over nothing is `nan`, and `nan` times zero is still `nan`.
#
# ### Exercise [[whole_batch_loss]]
#
# *8 points, about 6 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="whole_batch_loss" points=8 difficulty=2 importance=5 minutes=6 title="The loss of the whole batch" provides=["whole_batch_loss"]
def whole_batch_loss(losses: Tensor, counts: list[int]) -> Tensor:
    """Return the mean over everything that counted, on all devices together; gradients flow back into losses.

    Args:
        losses: Each replica's mean over what counted there, shape (N,). Where nothing counted it is nan.
        counts: How many samples (or words) counted in each; at least one of them is not zero.
    """
    # BEGIN SOLUTION whole_batch_loss
    sums = [losses[number] * count for number, count in enumerate(counts) if count > 0]
    return torch.stack(sums).sum() / sum(counts)
    # END SOLUTION


# %% tags=["check"]
labkit.check("whole_batch_loss", whole_batch_loss)

# %%
losses, sizes = losses_of(torch.arange(9.0), 8)
print("mean of means:", losses.mean().item())
print("weighted:     ", whole_batch_loss(losses, sizes).item())
print("mean of 0..8: ", torch.arange(9.0).mean().item())

# %% [markdown]
# ## 7 What the threads really do
#
# It is right. Is it fast? Python has a **global interpreter lock**, the GIL: one thread of a process runs Python at a
# time. PyTorch lets go of it while an operator computes. So threads help as far as the time goes into *long operators*,
# and not at all as far as it goes into Python.
#
# Take the worst case, a forward pass that is a plain Python loop. Thirty-two samples on one device, then on two. **How
# many times faster are two devices?** (Three measurements come in this section. They need two idle cores.)

# %% tags=["predict"]
labkit.predict("two_device_speedup", 2.0)


# %% tags=["given"]
class Lanes:
    """What was measured in one process, one row for each thread that did something."""

    def __init__(self) -> None:
        self.threads: dict[threading.Thread, int] = {}
        self.spans: list[tuple[int, int, int, str]] = []

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record this thread's time inside the block."""
        row = self.threads.setdefault(threading.current_thread(), len(self.threads))
        start = time.perf_counter_ns()
        yield
        self.spans.append((row, start, time.perf_counter_ns(), name))

    def timeline(self) -> labkit.Timeline:
        """Return what was measured as a timeline whose ranks are the threads."""
        rows, starts, ends, names = zip(*sorted(self.spans), strict=True)
        first = min(starts)
        return labkit.Timeline(
            rank=rows,
            lane=[0] * len(rows),
            start_ns=[start - first for start in starts],
            end_ns=[end - first for end in ends],
            name=names,
            kind=["span"] * len(rows),
        )


# %% [markdown]
# (`Lanes` is a stopwatch. `with lanes.span("forward"):` writes down when the block began and ended, and in which
# thread. The picture says *rank*; here read *thread*. Row 0 is the main thread, which starts the others and waits.)


# %% tags=["nbval-ignore-output"]
class PythonLoop(nn.Module):
    """A forward pass that keeps the interpreter busy, some milliseconds for each sample."""

    def forward(self, x):
        with lanes.span("forward"):
            for _ in range(len(x) * 400_000):
                pass
        return x


def seconds(model, x, num_devices):
    """Return the shortest of three forward passes on that many devices."""
    global lanes
    wrapped = MiniDataParallel(model, [torch.device("cpu")] * num_devices)
    found = []
    for _ in range(3):
        lanes = Lanes()
        with lanes.span("forward of all"), torch.no_grad():
            wrapped(x)
        found.append((lanes.timeline().makespan_ns / 1e9, lanes))
    shortest, lanes = min(found, key=lambda each: each[0])
    return shortest


one = seconds(PythonLoop(), torch.ones(32, 1), 1)
two = seconds(PythonLoop(), torch.ones(32, 1), 2)
labkit.reveal("two_device_speedup", one / two, lanes.timeline())

# %% [markdown]
# Both threads look busy, from beginning to end. They are not: each *waits for the lock* half of the time, and a
# stopwatch cannot see the difference. That is a trap of every timeline: a long bar may be waiting.
#
# Now a forward pass of one long operator, a matrix product, each on one core. PyTorch gives up the lock in it:


# %% tags=["nbval-ignore-output"]
class LongOperators(nn.Module):
    """A forward pass that spends its time in matrix products."""

    def forward(self, x):
        with lanes.span("forward"):
            for _ in range(4):
                x = x @ x.mT / 1000
        return x


torch.set_num_threads(1)  # one core for each device
large = torch.ones(2, 1000, 1000)
one_device, two_devices = (seconds(LongOperators(), large, count) for count in (1, 2))
print(f"matrix products: {one_device / two_devices:.1f} times faster on two devices")

# %% [markdown]
# And the loop of Python again, in **two processes**. Each has an interpreter, and so a lock, of its own:


# %% tags=["nbval-ignore-output"]
def loop_in_a_process(num_samples):
    found = []
    for _ in range(3):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(num_samples * 400_000):
            pass
        found.append(time.perf_counter() - start)
    return min(found)


alone = max(labkit.run(loop_in_a_process, 32, on=labkit.local(1, device="cpu")).results)
halves = max(labkit.run(loop_in_a_process, 16, on=labkit.local(2, device="cpu")).results)
print(f"loop of Python: {alone / halves:.1f} times faster in two processes")

# %% [markdown]
# Two threads with a Python loop, two threads with matrix products, two processes: on a quiet machine with two cores
# that is about 1, 2 and 2. If yours differs, something else was running too: run the cells of this section again.
#
# This is the first of three reasons why training runs in **one process for each device**, from the next lesson to the
# last. A forward pass on a GPU is thousands of short kernels, and Python has to start each one. Eight threads with one
# lock start them one after another, while eight GPUs wait.

# %% [markdown] tags=["slide"]
# ### Reason 1: one interpreter, one lock
#
# | forward pass is | two threads | two processes |
# |---|---|---|
# | a loop of Python | as slow as one | twice as fast |
# | a few long operators | up to twice as fast | twice as fast |
#
# A GPU's forward pass: thousands of short kernels, each started by Python.

# %% [markdown]
# ## 8 A step as a plan
#
# The second reason is what moves. No clock is needed to see it: write it down. Between scatter and the optimizer's
# step, five things travel, all of them from device 0 or to it:
#
# | what | from | to | bytes |
# |---|---|---|---|
# | inputs | 0 | every other | its samples |
# | model: parameters and buffers | 0 | every other | all of them |
# | outputs | every other | 0 | its samples |
# | output gradients | 0 | every other | its samples |
# | model gradients | every other | 0 | all of them |
#
# The last two are `backward()`: it walks the same way back, so what was gathered is scattered, and what was copied is
# summed up.


# %% tags=["given"]
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
# *10 points, about 8 minutes; difficulty 2 of 5, importance 5 of 5*
#
# Nothing is sent here. You write a list of records, in the order in which things must happen. Within one kind, the
# devices come in order. What device 0 does with its own piece moves nothing.


# %% tags=["exercise"] exercise="step_plan" points=10 difficulty=2 importance=5 minutes=8 title="The plan" provides=["step_plan"]
def step_plan(
    sizes: list[int], input_bytes: int, output_bytes: int, model_bytes: int, gradient_bytes: int
) -> list[Move]:
    """Return what moves in one step of data parallelism, in order.

    Args:
        sizes: Samples on each device, from 0 on.
        input_bytes: Of one sample.
        output_bytes: Of one sample's output; its gradient is as large.
        model_bytes: All parameters and buffers.
        gradient_bytes: The gradients of all parameters that have one.
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

# %%
for move in step_plan([4, 3, 3], input_bytes=20, output_bytes=12, model_bytes=600, gradient_bytes=600):
    print(move)

# %% [markdown]
# Now a model with some weight: eight linear layers of 2048 x 2048, 134 MB of parameters. The batch is 8192 samples, on
# eight A100 that talk over PCIe. A single one of them needs about 100 ms for forward and backward. **How long does a
# step take on all eight, in ms?** (A perfect eighth would be 12.5.)

# %% tags=["predict"]
labkit.predict("eight_device_ms", 12.5, unit="ms")

# %% [markdown]
# You can know it before you run it. Every byte passes through device 0's one port, and a port carries one thing at a
# time. So the times simply add up.
#
# ### Exercise [[plan_cost]]
#
# *8 points, about 6 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="plan_cost" points=8 difficulty=2 importance=5 minutes=6 title="What the plan costs" provides=["port_bytes", "plan_seconds"]
def port_bytes(plan: list[Move], num_devices: int) -> list[int]:
    """Return the bytes that pass each device's port in a step, sent and received."""
    # BEGIN SOLUTION plan_cost
    totals = [0] * num_devices
    for move in plan:
        totals[move.src] += move.num_bytes
        totals[move.dst] += move.num_bytes
    return totals
    # END SOLUTION


def plan_seconds(plan: list[Move], latency_s: float, bandwidth_Bps: float) -> float:
    """Return the seconds a plan takes if its moves follow one another: latency and bytes / bandwidth for each."""
    # BEGIN SOLUTION plan_cost
    return sum(latency_s + move.num_bytes / bandwidth_Bps for move in plan)
    # END SOLUTION


# %% tags=["check"]
labkit.check("plan_cost", port_bytes, plan_seconds)

# %%
WIDTH, DEPTH, BATCH = 2048, 8, 8192
MODEL_BYTES = DEPTH * (WIDTH * WIDTH + WIDTH) * 4
LATENCY, BANDWIDTH = 8e-6, 24e9  # PCIe 4, 16 lanes, as the virtual cluster has it


def plan_for(num_devices):
    sizes = [len(piece) for piece in torch.arange(BATCH).tensor_split(num_devices)]
    return step_plan(sizes, WIDTH * 4, WIDTH * 4, MODEL_BYTES, MODEL_BYTES)


print("devices  port of device 0  port of device 1    moving")
for n in (1, 2, 4, 8):
    plan = plan_for(n)
    first, second = ([*port_bytes(plan, n), 0])[:2]
    print(
        f"{n:7} {first / 1e6:14.0f} MB {second / 1e6:14.0f} MB {plan_seconds(plan, LATENCY, BANDWIDTH) * 1e3:6.1f} ms"
    )

# %% [markdown]
# With every device that you add, one more copy of the model leaves device 0, and one more set of gradients comes back.
# Its port is the **hot spot**. With eight devices you expect 86 ms of moving, and an eighth of 100 ms of computing. Now
# let the virtual cluster play it: eight ranks take the parts of the devices, and every `Move` is a message.


# %%
def play(plan, *kinds):
    """Carry out the moves of these kinds: this rank sends what leaves it and receives what comes to it."""
    for move in plan:
        if move.what in kinds and dist.get_rank() in (move.src, move.dst):
            buffer = torch.empty(move.num_bytes, dtype=torch.uint8, device="meta")
            if dist.get_rank() == move.src:
                dist.send(buffer, dst=move.dst)
            else:
                dist.recv(buffer, src=move.src)


def tower():
    """Return the model without numbers: on the meta device tensors have shapes and no data."""
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, device="meta") for _ in range(DEPTH)))


def data_parallel_step():
    rank, n = dist.get_rank(), dist.get_world_size()
    plan, model = plan_for(n), tower()
    play(plan, "inputs", "model")
    with labkit.span("forward"):
        outputs = model(torch.empty(len(torch.arange(BATCH).tensor_split(n)[rank]), WIDTH, device="meta"))
    play(plan, "outputs")
    play(plan, "output gradients")
    with labkit.span("backward"):
        outputs.sum().backward()
    play(plan, "model gradients")


def on_a100s(function, n):
    return labkit.run(function, on=labkit.virtual(n, gpu="a100", link="pcie4"))


eight = on_a100s(data_parallel_step, 8)
labkit.reveal("eight_device_ms", eight.timeline.makespan_ns / 1e6, eight.timeline)

# %% [markdown]
# Look at row 0 first: it sends, sends, sends. Then at the others: they wait for the model, compute for a moment, and
# wait again. (*Busy*, in the line above the picture, counts sending and receiving, and waiting for that.) Eight A100,
# and each of them computes for an eighth of the time.
#
# What would be better? In **every** step the parameters travel, though nobody but the optimizer has changed them, and
# each device could have made the same change by itself, had it known the gradients. So keep a model on each device, and
# exchange nothing but **gradients**, as a sum that all of them get: an `all_reduce`. That is `DistributedDataParallel`.


# %%
def distributed_step():
    n, model = dist.get_world_size(), tower()
    with labkit.span("forward"):
        outputs = model(torch.empty(BATCH // n, WIDTH, device="meta"))
    with labkit.span("backward"):
        outputs.sum().backward()
    gradients = torch.empty(MODEL_BYTES // 4, device="meta")
    dist.all_reduce(gradients)


table = {
    n: [on_a100s(step, n).timeline.makespan_ns / 1e6 for step in (data_parallel_step, distributed_step)]
    for n in (1, 2, 4, 8)
}
print("devices   this lesson   all_reduce")
for n, (ours, theirs) in table.items():
    print(f"{n:7} {ours:10.1f} ms {theirs:9.1f} ms")

# %% [markdown]
# Read the first column downwards. Two devices help, four are no better than two, and eight are as slow as one. In the
# second column they are not.
# The all-reduce moves as many bytes for the same purpose; but it uses *every* port, all the time, and none carries more
# than the others. How that is done is lesson 02.
#
# (To be fair: where it can, torch's `DataParallel` lets NCCL spread the model and sum up the gradients, and then device
# 0's port is less hot than in this plan. The model still travels in every step, and device 0 still gathers everything.)

# %% [markdown] tags=["slide"]
# ### Reasons 2 and 3: everything passes device 0
#
# * **the model travels in every step**, though only the optimizer changed it
# * **one port** carries (N-1) models out, (N-1) gradients back, all inputs and all outputs
# * one memory holds the whole batch's outputs
#
# | eight A100 over PCIe, one step | |
# |---|---|
# | one device alone | about 100 ms |
# | scatter, broadcast, gather, 8 devices | no faster |
# | each keeps a model, gradients by all_reduce | about a quarter |

# %% [markdown]
# ## 9 Unequal devices
#
# So far every device got as many samples as the next. If one is slower, all wait for it. Two GPUs of different
# generations, a shared machine, a hot one: give each what it can do in the same time.
#
# A device of speed 3 beside two of speed 1 should get 3/5 of the batch. Of 11 samples these are 6.6, 2.2 and 2.2. What
# now? The **largest remainder**, an old rule for seats in parliaments: round down, 6, 2 and 2, and hand out what is
# left over, one each, to the largest fractions. Here one sample is left, and 0.6 is the largest: 7, 2 and 2.
#
# Fractions can be equal. Ten samples at speeds 1, 1 and 4 are 10/6, 10/6 and 40/6: three times two thirds, and the
# first devices win: 2, 2 and 6. As floats they differ in the last digit, and somebody else wins. So compare remainders
# as **whole numbers**: 10, 10 and 40 divided by 6 leave 4, 4 and 4.
#
# ### Exercise [[shares_by_speed]]
#
# *10 points, about 10 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="shares_by_speed" points=10 difficulty=3 importance=4 minutes=10 title="Shares by speed" provides=["shares_by_speed", "slowest_seconds"]
def shares_by_speed(num_samples: int, speeds: list[int]) -> list[int]:
    """Return the samples of each device, in proportion to its speed, by largest remainder; they add up to num_samples.

    Args:
        num_samples: 0 or more.
        speeds: Samples per second of each device, 1 or more. Of equal remainders the first device's comes first.
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

# %% [markdown]
# Three devices, which take 100, 200 and 200 samples a second. A batch of 50. With equal pieces the step takes 0.17 s,
# for the slow one has 17 samples. **And with shares by speed, in seconds?**

# %% tags=["predict"]
labkit.predict("fair_shares_seconds", 0.17, unit="s")

# %%
SPEEDS = [100, 200, 200]
equal = [len(piece) for piece in torch.arange(50).tensor_split(3)]
fair = shares_by_speed(50, SPEEDS)
shares = {"equal": equal, "by speed": fair}
rows = [f"{name:8} {share}: {slowest_seconds(share, SPEEDS):.3f} s" for name, share in shares.items()]
labkit.reveal("fair_shares_seconds", slowest_seconds(fair, SPEEDS), rows)

# %% [markdown]
# Now the data. A `DataLoader` yields whole batches, which then have to be cut. Better to cut them by hand where they
# are made, so that each device gets its own samples and no others.
#
# ### Exercise [[split_loader]]
#
# *8 points, about 12 minutes; difficulty 3 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="split_loader" points=8 difficulty=3 importance=3 minutes=12 title="A loader that splits" provides=["SplitLoader"] needs=["shares_by_speed"] bonus=true
class SplitLoader:
    """Batches of a dataset, each cut among devices by their speeds.

    Iterating goes through every sample once, then ends. With shuffle the order is another one each time, but the same
    for two loaders of the same seed. The last batch may be smaller.

    Args:
        dataset: dataset[i] is a pair of tensors (input, target); len(dataset) of them.
        batch_size: Samples of a batch, all devices together.
        speeds: As in shares_by_speed.
        shuffle: Whether samples come in a random order, or as they are.
        seed: Of the order.
    """

    def __init__(self, dataset: Any, batch_size: int, speeds: list[int], shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.batch_size, self.speeds = dataset, batch_size, speeds
        self.shuffle, self.seed = shuffle, seed
        # BEGIN SOLUTION split_loader
        self.epoch = 0
        # END SOLUTION

    def __len__(self) -> int:
        """Return the number of batches, the smaller last one included."""
        # BEGIN SOLUTION split_loader
        return -(-len(self.dataset) // self.batch_size)
        # END SOLUTION

    def __iter__(self) -> Iterator[dict[int, tuple[Tensor, Tensor]]]:
        """Yield each batch as {device number: (inputs, targets)}; a device whose share is 0 is left out."""
        # BEGIN SOLUTION split_loader
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(f"{self.seed} {self.epoch}").shuffle(order)
        self.epoch += 1
        for start in range(0, len(order), self.batch_size):
            batch = iter(order[start : start + self.batch_size])
            num_samples = min(self.batch_size, len(order) - start)
            pieces = {}
            for device, share in enumerate(shares_by_speed(num_samples, self.speeds)):
                chosen = [self.dataset[next(batch)] for _ in range(share)]
                if chosen:
                    inputs, targets = zip(*chosen, strict=True)
                    pieces[device] = torch.stack(inputs), torch.stack(targets)
            yield pieces
        # END SOLUTION


# %% tags=["check"]
labkit.check("split_loader", SplitLoader)


# %% [markdown]
# Three devices that sleep instead of computing, so that you can see the balance on any machine. Rows 1, 2 and 3 are the
# devices; the first one is slow. First equal pieces, then your shares:


# %% tags=["nbval-ignore-output"]
class Sleeper(nn.Module):
    """A device that takes its time for every sample."""

    def __init__(self, samples_per_second):
        super().__init__()
        self.samples_per_second = samples_per_second

    def forward(self, x):
        with lanes.span("forward"):
            time.sleep(len(x) / self.samples_per_second)
        return x


def one_step(shares):
    global lanes
    lanes = Lanes()
    pieces = torch.ones(sum(shares), 1).split(shares)
    with lanes.span("a step"):
        parallel_apply([Sleeper(speed) for speed in SPEEDS], [((piece,), {}) for piece in pieces])
    return lanes.timeline()


one_step(equal)

# %% tags=["nbval-ignore-output"]
one_step(fair)

# %% [markdown]
# In the second picture all bars end together: that is what balance looks like. The pieces are uneven on purpose now, so
# a loss that is gathered from them must be the weighted one of section 6.

# %% [markdown] tags=["slide"]
# ### Unequal devices
#
# * a step ends when the **slowest** device ends: max(share / speed)
# * shares by speed, rounded by **largest remainder**, so that they add up
# * pieces are uneven then: **weigh the losses** by their counts
#
# Speeds change (heat, other users): measure them again from time to time.

# %% [markdown]
# ## 10 Break it on purpose
#
# Five mistakes. For each: what will happen? Say it to yourself before you run the cell.


# %%
def step_on(replicas):
    """Run a step on given replicas: scatter, apply, gather, loss, backward."""
    pieces = [((piece,), {}) for piece in scatter(SAMPLES, CPUS[: len(replicas)])]
    outputs = gather(parallel_apply(replicas, pieces), CPUS[0])
    nn.functional.mse_loss(outputs, TARGETS).backward()


# %% [markdown]
# **Replicas that are detached.** `copy.deepcopy(module)` without a memo makes perfectly good copies. The model here has
# four parameters. **How many of them have a gradient after `backward()`?**

# %% tags=["predict"]
labkit.predict("gradients_of_copies", 4)

# %%
model = small_model()
step_on([copy.deepcopy(model) for _ in range(4)])
labkit.reveal("gradients_of_copies", sum(parameter.grad is not None for parameter in model.parameters()))

# %% [markdown]
# No error. The gradients are there, in the copies, and the copies are thrown away. The optimizer skips parameters whose
# gradient is `None`, and the loss stays where it was for ever.
#
# **No replicas at all.** Logical devices are one processor, so why copy? Give the same module to all four threads. The
# outputs are right, the gradients too. **What does BatchNorm's `num_batches_tracked` say after one step?**

# %% tags=["predict"]
labkit.predict("batches_tracked", 1)

# %% tags=["nbval-ignore-output"]
model = small_model(norm=True)
step_on([model] * 4)
labkit.reveal("batches_tracked", model[1].num_batches_tracked.item())

# %% [markdown]
# Four threads wrote into the same running mean, one after the other if you are lucky, and each with its own piece.
# Forget to copy the buffers in `replicate` and you get the same. With GPUs you would get an error: a tensor on another
# device.
#
# **A write in forward.** This model counts how often it was called, in a buffer and in a plain attribute, and it keeps
# its weight positive. Three steps on four replicas. **What does the plain attribute say afterwards?**


# %% tags=["predict"]
labkit.predict("plain_attribute", 3)


# %%
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.register_buffer("in_buffer", torch.zeros((), dtype=torch.int64))
        self.plain = 0

    def forward(self, x):
        self.in_buffer += 1
        self.plain += 1
        return x * self.weight


model = Counting()
wrapped = MiniDataParallel(model, CPUS)
for _ in range(3):
    wrapped(SAMPLES)
print("twelve calls; in the buffer:", model.in_buffer.item())
labkit.reveal("plain_attribute", model.plain)

# %% [markdown]
# What a replica writes is lost with the replica. Only replica 0's buffers are the original's, so the buffer says 3, and
# a plain attribute says nothing. The same goes for a parameter that forward changes in place.
#
# **An exception that nobody hears.** A pool of threads keeps a task's exception until you ask for its `result()`. If
# you never ask, it is gone:


# %%
def careless_apply(replicas, inputs):
    outputs = [None] * len(replicas)

    def apply(number):
        outputs[number] = replicas[number](*inputs[number][0])

    with ThreadPoolExecutor(len(replicas)) as pool:
        for number in range(len(replicas)):
            pool.submit(apply, number)
    return outputs


pieces = [((piece,), {}) for piece in scatter(five, CPUS)]
outputs = careless_apply(replicate(small_model(norm=True), CPUS), pieces)
print("outputs:", [None if output is None else tuple(output.shape) for output in outputs])

# %% [markdown]
# Three of four replicas failed, and all you see is `None`. The error comes later, in `gather`, with a message about
# something else. That is why [[parallel_apply]] asks for the original one.
#
# **Replicas made once.** Copying the model in every step is expensive, so somebody moves `replicate` to `__init__`.
# Three steps of training, compared with the plain module:


# %%
class MadeOnce(MiniDataParallel):
    def __init__(self, module, devices):
        super().__init__(module, devices)
        object.__setattr__(self, "made", replicate(module, devices))

    def forward(self, x):
        pieces = [((piece,), {}) for piece in scatter(x, CPUS)]
        return gather(parallel_apply(self.made, pieces), CPUS[0])


alone, together = small_model(), small_model()
difference = (three_steps(alone, alone) - three_steps(together, MadeOnce(together, CPUS))).abs().max().item()
print(f"largest difference after three steps: {difference:.4f}")

# %% [markdown]
# No error, and the loss goes down. (Section 5 had a difference below 1e-14 here.) Replica 0 shares its parameters with
# the original. The others go on computing with those of the first step, and their gradients, which no longer fit, are
# added up in the original all the same. After a thousand steps nothing fits any more.

# %% [markdown] tags=["slide"]
# ### Five ways to break it
#
# | mistake | what you see |
# |---|---|
# | replicas detached | nothing; gradients are `None`, the loss stays |
# | no replicas, or buffers shared | nothing; running statistics of all pieces, in any order |
# | a write in forward | nothing; lost, but for replica 0's buffers |
# | an exception nobody asks for | another error, somewhere else |
# | replicas made once | nothing; gradients at old weights |

# %% [markdown]
# ## 11 What breaks at scale
#
# * **One process ends at one machine.** Threads share memory; two machines do not.
# * **One interpreter** starts the kernels of all devices, one after another.
# * **One device** sends the model and collects everything: its port, its memory and its time are the limit.
#
# PyTorch's documentation says so itself: it recommends `DistributedDataParallel` instead of `DataParallel`, even on one
# machine. What remains of this lesson is what every kind of data parallelism needs: pieces that need not be equal, a
# mean over samples and not over devices, buffers that somebody must own, and errors that say who.

# %% [markdown] tags=["slide"]
# ### What to remember
#
# * scatter, replicate, apply, gather: four lines, and right
# * gradients reach the original because copying is a step that autograd sees
# * weigh means by counts
# * one process, one lock, one port: it does not scale
# * one process for each device, and **gradients by all_reduce**, does

# %% [markdown]
# **The question for the next lesson.** Eight devices each hold 134 MB of gradients, and all want the sum. No port
# should carry much more than any other. You saw that it can be done in a fraction of the time. How? Lesson 02,
# `02_ring_all_reduce`, builds it.

# %% [markdown]
# ### Sources
#
# * PyTorch documentation: `torch.nn.DataParallel`, `torch.nn.parallel.DistributedDataParallel`; "Use
#   nn.parallel.DistributedDataParallel instead of multiprocessing or nn.DataParallel".
# * S. Li and others, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", *Proceedings of the
#   VLDB Endowment* 13 (2020): why one process for each device.
# * M. L. Balinski and H. P. Young, *Fair Representation* (1982): largest remainders, and what is odd about them.
