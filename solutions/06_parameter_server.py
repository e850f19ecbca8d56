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
# # 06 Parameter servers
#
# The weights live in one place, and workers come and go. You will build the server in four kinds, let a slow worker
# loose on each of them, share a table among several servers, and kill one without losing a thing.

# %% [markdown]
# **What you will be able to do**
#
# * call a method of an object that lives on another rank, and answer a call later, when its time has come;
# * write a synchronous, an asynchronous and a bounded server, and one that does not wait for the last;
# * read off a timeline what a slow worker costs, and measure how stale a gradient was;
# * say in numbers when all-reduce wins and when a server does;
# * spread a table over servers, fetch only the rows a batch needs, and find the hot key;
# * lose a server, and nothing that was acknowledged.
#
# **Time:** about two and a half hours, and 15 minutes more for the bonus exercise.
#
# **What you must know:** `send`, `recv` and all-reduce of lesson 02, averaging gradients of lesson 04, and what a lock
# is. If you did not finish those lessons, go on: nothing here calls your code from there.
#
# **Points.** As before, they rest on other cases than those that `labkit.check` shows: other numbers of workers and
# servers, other orders of arrival.

# %% tags=["given"]
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch import Tensor, nn
from torch.futures import Future

import labkit

# %% [markdown]
# ## 1 The post, mended
#
# In lesson 00 you met a parameter server that is copied from blog to blog. Three workers send it gradients, everybody
# says "done", and the weight has not moved. Here is its heart again:
#
# ```python
# self.thread = threading.Thread(target=self.serve, daemon=True)   # never started: serve() is never reached
# ...
# return server.state()                # and the state is read before anybody could have been served
# ...
# dist.isend(torch.ones(1), dst=0)     # nobody waits for the handle: the buffer may be gone before it is sent
# ```
#
# Three faults, and no error. To mend them you need no thread at all: the server's rank has nothing else to do.
#
# ### Exercise [[posted_training]]
#
# *6 points, about 6 minutes; difficulty 2 of 5, importance 4 of 5*
#
# Rank 0 is the server. It takes what the others send it, and in the end everybody learns the weight.


# %% tags=["exercise"] exercise="posted_training" points=6 difficulty=2 importance=4 minutes=6 title="The post, mended" provides=["posted_training"]
def posted_training(weight: Tensor, gradients: list[Tensor], num_gradients: int, lr: float) -> Tensor:
    """Return the weight after the server took lr times every gradient of every worker off it; the same on all ranks.

    Every worker sends each of its gradients to rank 0 in a message of its own.

    Args:
        weight: The weight at the start, the same on every rank; it is left as it is.
        gradients: On a worker (every rank but 0) its gradients, each of the weight's shape; empty on rank 0.
        num_gradients: How many gradients each worker has.
        lr: Learning rate.
    """
    # BEGIN SOLUTION posted_training
    weight = weight.clone()
    if dist.get_rank() > 0:
        for gradient in gradients:
            dist.send(gradient.contiguous(), dst=0)
    else:
        gradient = torch.empty_like(weight)
        for _ in range(num_gradients):
            for worker in range(1, dist.get_world_size()):
                dist.recv(gradient, src=worker)
                weight -= lr * gradient
    dist.broadcast(weight, src=0)
    return weight
    # END SOLUTION


# %% tags=["check"]
labkit.check("posted_training", posted_training)


# %%
def the_post():
    gradients = [torch.ones(1)] * 4 if dist.get_rank() else []
    return posted_training(torch.zeros(1), gradients, 4, 0.1).item()


print([round(weight, 6) for weight in labkit.run(the_post, on=labkit.virtual(4)).results])

# %% [markdown]
# Twelve gradients of 1.0, each times 0.1: the weight is -1.2, on every rank. The number you worked out in lesson 00.
#
# One thing is still bad. The server takes the messages in an order that *you* wrote down. If worker 1 is slow, the
# server stands in `recv` from worker 1, while worker 2 has something for it. A server should not ask who is next. It
# should be **called**.

# %% [markdown] tags=["slide-only"]
# ### A server is called
#
# ```
# worker 1 --push--> |        |
# worker 2 --push--> | server |  a thread for each call, one lock for the weights
# worker 3 --push--> |        |
# ```
#
# * messages: the server asks one worker after the other
# * remote calls: whoever is ready comes in

# %% [markdown]
# ## 2 A call instead of a message
#
# `torch.distributed.rpc` does that. A rank calls a function, and it runs on another rank, in a thread there, whatever
# that rank is doing. Four words are all you need:
#
# | | |
# |---|---|
# | `rpc.init_rpc(name, rank=..., world_size=...)` | join; everybody has a name |
# | `rpc.rpc_async(name, function, args=(...))` | call a function there; returns a **future** at once |
# | `rpc.RRef(server)` | a reference to an object that stays here; it may be sent to other ranks |
# | `rref.rpc_sync().push(...)` | call a method of that object, where it lives, and wait for the result |
#
# Arguments and results travel by value: what you get is a copy. A function travels by its name, so define it at the
# top level of a cell.


# %% tags=["given"]
def start_rpc() -> tuple[int, int]:
    """Join RPC under the name "rank0", "rank1", ...; return this rank and the number of ranks."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are using a Backend")  # of torch, to torch
        rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world_size)
    return rank, world_size


# %%
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, number):
        self.value += number
        return f"{self.value}, counted on {rpc.get_worker_info().name}"


def count(counter, number):
    return counter.rpc_sync().add(number)


def first_calls():
    rank, world_size = start_rpc()
    found = None
    if rank == 0:
        counter = rpc.RRef(Counter())
        futures = [rpc.rpc_async(f"rank{peer}", count, args=(counter, peer)) for peer in range(1, world_size)]
        found = [future.wait() for future in futures]
    rpc.shutdown()
    return found


for line in labkit.run(first_calls, on=labkit.virtual(4), init=False).results[0]:
    print(line)

# %% [markdown]
# Rank 0 asked three ranks to `count`, and each of them called `add` back on rank 0. (`init=False`: RPC needs no process
# group. Each line is what one rank was told. On real processes it is anybody's guess who is counted first.)
#
# Now the server. This is what all of yours have in common. It keeps the weights as one flat vector, the number of times
# they changed (their **version**), and a record of every gradient it used. Calls come in threads of their own, several
# at once, so there is a lock.


# %% tags=["given"]
@dataclass(frozen=True)
class Update:
    """One gradient that was used.

    Attributes:
        sequence: 0 for the first gradient the server used, 1 for the next, and so on.
        worker: Whose it was.
        version_read: Version of the weights it was computed from.
        version_applied: Version of the weights it was taken off; the staleness is the difference.
    """

    sequence: int
    worker: int
    version_read: int
    version_applied: int


class Server:
    """Weights that live on one rank; what all servers of this lesson have in common."""

    def __init__(self, weight: Tensor, num_workers: int, lr: float) -> None:
        """Keep a copy of the weights.

        Args:
            weight: Where to begin, shape (N,).
            num_workers: Workers are numbered from 0.
            lr: Learning rate.
        """
        self.weight, self.num_workers, self.lr = weight.clone(), num_workers, lr
        self.version = 0
        self.updates: list[Update] = []
        self.lock = threading.Lock()

    def pull(self) -> tuple[int, Tensor]:
        """Return the version and a copy of the weights."""
        with self.lock:
            return self.version, self.weight.clone()

    def leave(self, worker: int) -> None:
        """Take note that a worker will push no more."""


# %% [markdown]
# `pull` returns a **copy**, made under the lock. A server that handed out `self.weight` itself would change what it is
# just sending.
#
# ### A call that is answered later
#
# The synchronous server takes one step with the mean of *all* workers' gradients. So the first worker that pushes must
# wait for the last one. If `push` itself waited, it would keep a thread of the server busy, and with more workers than
# threads nobody could get in who would end the waiting. Instead `push` returns a promise, a `Future`, and RPC sends
# the answer when somebody completes it:
#
# ```python
# @rpc.functions.async_execution        # "the result is in the future that I return"
# def push(self, worker, version, gradient):
#     ...
#     return self.future                # later, in another call: future.set_result(answer)
# ```
#
# `set_result` completes a future once and for all. Everyone who waits for it gets that answer, and the next step needs
# a new `Future()`.
#
# ### Exercise [[sync_server]]
#
# *10 points, about 12 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="sync_server" points=10 difficulty=3 importance=5 minutes=12 title="The synchronous server" provides=["SyncServer"]
class SyncServer(Server):
    """Takes one step with the mean of all workers' gradients; then all of them go on."""

    def __init__(self, weight: Tensor, num_workers: int, lr: float) -> None:
        """Keep a copy of the weights; see Server."""
        super().__init__(weight, num_workers, lr)
        # BEGIN SOLUTION sync_server
        self.gradients: dict[int, Tensor] = {}
        self.future: Future = Future()
        # END SOLUTION

    @rpc.functions.async_execution
    def push(self, worker: int, version: int, gradient: Tensor) -> Future:
        """Take in a worker's gradient for this step; return a future of (version, weights) after the step.

        Each worker pushes once in a step. The last one of a step changes the weights by lr times the mean, counts the
        version up by one, and completes the future of all. Then the next step begins.
        For every gradient an Update is noted, in the order in which they came.

        Args:
            worker: Who pushes.
            version: Version of the weights the gradient was computed from.
            gradient: Of the mean loss of the worker's samples, shape (N,).
        """
        # BEGIN SOLUTION sync_server
        with self.lock:
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.gradients[worker] = gradient
            future = self.future
            if len(self.gradients) == self.num_workers:
                self.weight -= self.lr / self.num_workers * sum(self.gradients.values())
                self.version += 1
                self.gradients, self.future = {}, Future()
                future.set_result((self.version, self.weight.clone()))
        return future
        # END SOLUTION


# %% tags=["check"]
labkit.check("sync_server", SyncServer)

# %% [markdown] tags=["slide-only"]
# ### A call that is answered later
#
# ```python
# @rpc.functions.async_execution
# def push(self, worker, version, gradient):
#     with self.lock:
#         ...                       # keep the gradient
#         future = self.future      # the promise of this step
#         if everybody_is_here:
#             ...                   # take the step, make a new promise
#             future.set_result(...)
#     return future
# ```
#
# No thread waits. The last one in answers for all.

# %% [markdown]
# Something to train: find 20 numbers from noisy samples. The directions are unequally steep, as in real losses. Every
# worker draws its own samples, and a sample depends on worker and step alone, so every run of this notebook draws the
# same.
#
# What takes the time is said by a `Pace`: for so many seconds a worker sleeps, in place of computing. That way your two
# or four cores can play nine machines, and in the virtual world sleep is virtual too.


# %% tags=["given"]
def steepness() -> Tensor:
    """Return how steep the loss is in each of the 20 directions."""
    return torch.logspace(0, -1.5, 20)


def loss_of(weight: Tensor) -> float:
    """Return the loss without noise: zero where all 20 numbers are 1."""
    return (0.5 * steepness() * (weight - 1).square()).sum().item()


def gradient_of(weight: Tensor, worker: int, step: int) -> Tensor:
    """Return the gradient of one worker's samples: the true one, and noise drawn from worker and step."""
    draw = torch.Generator().manual_seed(1000 * worker + step)
    return steepness() * (weight - 1) + 0.05 * torch.randn(20, generator=draw)


@dataclass(frozen=True)
class Pace:
    """How long workers take for a gradient.

    Attributes:
        seconds: What a worker takes.
        slow: Worker -> how many times as long it takes, always.
        moods: Share of steps, drawn from worker and step, in which a worker takes four times as long.
    """

    seconds: float = 0.010
    slow: tuple[tuple[int, float], ...] = ()
    moods: float = 0.0

    def of(self, worker: int, step: int) -> float:
        """Return the seconds of one worker's step."""
        draw = torch.Generator().manual_seed(7919 * worker + step)
        in_a_mood = torch.rand((), generator=draw).item() < self.moods
        return self.seconds * dict(self.slow).get(worker, 1.0) * (4.0 if in_a_mood else 1.0)


@dataclass(frozen=True)
class Seen:
    """What a worker saw when a push of its was answered: when, which version, how good its weights were."""

    seconds: float
    version: int
    loss: float


@dataclass(frozen=True)
class Trained:
    """What a training run left behind: what workers saw, in order of time, and the server's record."""

    seen: list[Seen]
    updates: list[Update]


def work(server: rpc.RRef, worker: int, until: int, pace: Pace) -> list[Seen]:
    """Pull, compute and push until the weights have reached a version; return what was seen after each push."""
    version, weight = server.rpc_sync().pull()
    seen, begin = [], time.perf_counter()
    while version < until:
        with labkit.span(f"version {version}"):
            gradient = gradient_of(weight, worker, len(seen))
            time.sleep(pace.of(worker, len(seen)))
        version, weight = server.rpc_sync().push(worker, version, gradient)
        seen.append(Seen(time.perf_counter() - begin, version, loss_of(weight)))
    server.rpc_sync().leave(worker)
    return seen


def train(make_server: Callable[[Tensor, int], Server], until: int, pace: Pace) -> Trained | None:
    """Train until a version is reached: rank 0 has the server, every other rank is a worker. Rank 0 returns the record.

    Args:
        make_server: Called with the first weights and the number of workers.
        until: Version at which workers stop.
        pace: How long a gradient takes.
    """
    rank, world_size = start_rpc()
    trained = None
    if rank == 0:
        server = rpc.RRef(make_server(torch.zeros(20), world_size - 1))
        calls = [
            rpc.rpc_async(f"rank{peer}", work, args=(server, peer - 1, until, pace)) for peer in range(1, world_size)
        ]
        seen = [each for call in calls for each in call.wait()]
        trained = Trained(sorted(seen, key=lambda each: each.seconds), server.local_value().updates)
    rpc.shutdown()
    return trained


# %%
run = labkit.run(train, partial(SyncServer, lr=1.0), 4, Pace(), on=labkit.virtual(5), init=False)
run.timeline

# %% [markdown]
# Rank 0 is the server, and waits for its four calls of `work`, each of which is the long bar of a worker's host row.
# Every arrow up is a push. A black bar in a worker's row is a push that waits for its answer: the workers compute,
# push, and stand still until it comes. All of them go on together.
#
# Is the training itself right? Compare with one process that takes the mean of the four gradients.


# %%
def one_process(num_steps, num_workers, lr):
    weight = torch.zeros(20)
    for step in range(num_steps):
        weight -= lr * torch.stack([gradient_of(weight, worker, step) for worker in range(num_workers)]).mean(0)
    return loss_of(weight)


print(f"server {run.results[0].seen[-1].loss:.6f}, one process {one_process(4, 4, 1.0):.6f}")

# %% [markdown]
# ## 3 Enter the straggler
#
# Now worker 3 takes three times as long: a shared machine, a hot GPU, a slow disk. The others need 10 ms a step. **With
# four workers, how many ms does one synchronous step take now?**

# %% tags=["predict"]
labkit.predict("synchronous_step_ms", 15, unit="ms")


# %%
ONE_SLOW = Pace(slow=((3, 3.0),))
slow = labkit.run(train, partial(SyncServer, lr=1.0), 4, ONE_SLOW, on=labkit.virtual(5), init=False)
labkit.reveal("synchronous_step_ms", round(1e3 * slow.results[0].seen[-1].seconds / 4, 1), slow.timeline)

# %% [markdown] tags=["slide-only"]
# ### One worker in four is three times as slow
#
# | server | ms a step of four gradients | who waits |
# |---|---:|---|
# | synchronous | 30 | three workers, two thirds of the time |
# | asynchronous | 12 | nobody |
#
# What is the price of not waiting?

# %% [markdown]
# Three workers wait two thirds of the time for the fourth. That is what *synchronous* means, with a server as with
# all-reduce. But a server has a choice that all-reduce does not have: it can answer at once.
#
# **Asynchronous SGD.** Each gradient is applied when it comes, and its worker goes on with the weights as they are
# then. Nobody waits. The price: while a worker computed, others have changed the weights. Its gradient belongs to an
# old version. The number of versions between is its **staleness**.
#
# ### Exercise [[async_server]]
#
# *8 points, about 6 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="async_server" points=8 difficulty=2 importance=5 minutes=6 title="The asynchronous server" provides=["AsyncServer"]
class AsyncServer(Server):
    """Applies every gradient when it comes, and answers at once."""

    def push(self, worker: int, version: int, gradient: Tensor) -> tuple[int, Tensor]:
        """Take lr times the gradient off the weights, count the version up, note an Update; return version and weights.

        What is returned belongs together: the weights as they were at that version. Other calls run at the same time.

        Args:
            worker: Who pushes.
            version: Version of the weights the gradient was computed from.
            gradient: Shape (N,).
        """
        # BEGIN SOLUTION async_server
        with self.lock:
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.weight -= self.lr * gradient
            self.version += 1
            return self.version, self.weight.clone()
        # END SOLUTION


# %% tags=["check"]
labkit.check("async_server", AsyncServer)

# %% [markdown]
# (Nothing is promised for later here, so `push` is a plain method. One detail of comparing: a synchronous step uses the
# *mean* of N gradients, so an asynchronous server gets a learning rate N times smaller.)
#
# The slow worker takes three times as long as each of the three others. **How stale is its gradient when it comes: how
# many versions went by while it computed?**

# %% tags=["predict"]
labkit.predict("slow_worker_staleness", 3)


# %% tags=["nbval-ignore-output"]
def staleness(updates, worker=None):
    """Return the staleness of each gradient, of one worker or of all."""
    return [each.version_applied - each.version_read for each in updates if worker in (None, each.worker)]


asynchronous = labkit.run(train, partial(AsyncServer, lr=0.25), 16, ONE_SLOW, on=labkit.virtual(5), init=False)
labkit.reveal(
    "slow_worker_staleness", max(staleness(asynchronous.results[0].updates, 3)), labkit.staleness_view(asynchronous)
)

# %% [markdown]
# The run, update by update, in the order in which the server applied them. Step through: each gradient with the
# version it was made from, and the updates it missed meanwhile, lit on the server's row. The same run over time:

# %%
for worker in (0, 3):
    print(f"worker {worker}: {staleness(asynchronous.results[0].updates, worker)}")
asynchronous.timeline

# %% [markdown]
# Hardly any black on the workers' rows: nobody waits (rank 0 serves, all the time). Three fast workers, three pushes
# each, nine versions while the slow one computes (six the first time: it comes a moment before their third). The fast
# ones are two or three versions behind: whoever else pushed in between.
#
# Staleness is not harmless. A step in an old direction can go too far, and the answer to it comes late again. On a
# slope of steepness 1, plain SGD is stable for learning rates up to 2. With a delay of τ versions it is stable up to
# 2 sin(π / (4τ + 2)) only: 1 for τ = 1, 0.209 for τ = 7.
#
# That looks like a tenth, and most of it is no loss at all: eight asynchronous gradients are eight steps, where the
# synchronous server takes one step with their mean. So compare 8 · 0.209 = 1.67 with 2. **For equal workers staleness
# costs a sixth of the largest learning rate**, beyond the division by N; however many they are, N times the limit stays
# above π/2. Try both servers on both sides of 1.67: eight workers of equal pace, 240 gradients each.

# %%
print(f"before: loss {loss_of(torch.zeros(20)):.2f}")
for rate in (1.6, 1.92):
    together = labkit.run(train, partial(SyncServer, lr=rate), 30, Pace(), on=labkit.virtual(9), init=False)
    at_once = labkit.run(train, partial(AsyncServer, lr=rate / 8), 240, Pace(), on=labkit.virtual(9), init=False)
    late = max(staleness(at_once.results[0].updates))
    print(
        f"learning rate {rate}: synchronous {together.results[0].seen[-1].loss:.3f}, "
        f"asynchronous with {rate / 8:.2f} each {at_once.results[0].seen[-1].loss:.3f}, staleness {late}"
    )

# %% [markdown]
# And a slow worker among the eight? Its gradients are 21 versions late, but they are few, and delays that differ do not
# swing in step: with `Pace(slow=((7, 3.0),))` the asynchronous server bears even a little more than 0.209. Try 0.22
# with and without it.

# %% [markdown] tags=["slide"]
# ### What each server answers, and when
#
# | | weights change | the answer comes |
# |---|---|---|
# | synchronous | with the mean of all N gradients | when the last worker has pushed |
# | asynchronous | with each gradient | at once |
# | bounded (stale-synchronous) | with each gradient | when the slowest worker is at most s steps behind |
# | backup workers | with the mean of the first K gradients | when K have come; late ones are dropped |

# %% [markdown] tags=["slide-only"]
# ### Staleness
#
# $$ \tau = \text{version applied} - \text{version read} $$
#
# * N equal asynchronous workers: about N - 1
# * a worker that is k times as slow as the N - 1 others: about k(N - 1)
# * SGD with delay τ is stable below $2\sin(\pi/(4\tau+2))$ over the steepness
# * N gradients one by one: first divide the learning rate by N; staleness then takes a sixth (N = 8), never more than 22 %

# %% [markdown]
# ## 4 A bound on staleness
#
# Between the two lies the **stale-synchronous** server (Ho et al., 2013). Every worker has a clock: how many gradients
# it has pushed. Gradients are applied when they come. But a worker that is more than `bound` steps ahead of the slowest
# does not get its answer yet. It waits until the slowest has caught up.
#
# * bound 0: all go in lock step;
# * bound ∞: asynchronous;
# * in between: a slow moment of one worker costs nobody anything, a slow worker costs all, and no gradient is from
#   long ago.
#
# ### Exercise [[bounded_server]]
#
# *14 points, about 18 minutes; difficulty 4 of 5, importance 5 of 5*
#
# Think of three moments in which somebody may be let go: the push of the worker itself, the push of the slowest, and
# the leaving of the slowest. Whoever is let go gets the weights *of that moment*.


# %% tags=["exercise"] exercise="bounded_server" points=14 difficulty=4 importance=5 minutes=18 title="The bounded server" provides=["BoundedServer"]
# BEGIN SOLUTION bounded_server
def answer_who_may_go(server: Server) -> None:
    """Answer everybody who waits and is at most bound ahead of the slowest; called with the lock held."""
    slowest = min(server.clocks.values(), default=0)
    for worker in [each for each in server.waiting if server.clocks[each] - slowest <= server.bound]:
        server.waiting.pop(worker).set_result((server.version, server.weight.clone()))


# END SOLUTION


class BoundedServer(Server):
    """Applies every gradient when it comes; answers when the slowest worker is at most `bound` steps behind."""

    def __init__(self, weight: Tensor, num_workers: int, lr: float, bound: int) -> None:
        """Keep a copy of the weights; see Server.

        Args:
            weight: Where to begin, shape (N,).
            num_workers: Workers are numbered from 0; all of them are there from the start.
            lr: Learning rate.
            bound: How many more gradients than the slowest a worker may have pushed when it gets an answer, 0 or more.
        """
        super().__init__(weight, num_workers, lr)
        # BEGIN SOLUTION bounded_server
        self.bound = bound
        self.clocks = dict.fromkeys(range(num_workers), 0)
        self.waiting: dict[int, Future] = {}
        # END SOLUTION

    @rpc.functions.async_execution
    def push(self, worker: int, version: int, gradient: Tensor) -> Future:
        """Apply lr times the gradient at once, count the version up by one and note an Update.

        The worker's clock goes up by one. The future that is returned is completed with (version, weights), as they are
        then, as soon as no worker that is still there is more than `bound` behind this one.
        """
        # BEGIN SOLUTION bounded_server
        future: Future = Future()
        with self.lock:
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.weight -= self.lr * gradient
            self.version += 1
            self.clocks[worker] += 1
            self.waiting[worker] = future
            answer_who_may_go(self)
        return future
        # END SOLUTION

    def leave(self, worker: int) -> None:
        """Wait no more for a worker that will push no more."""
        # BEGIN SOLUTION bounded_server
        with self.lock:
            del self.clocks[worker]
            answer_who_may_go(self)
        # END SOLUTION


# %% tags=["check"]
labkit.check("bounded_server", BoundedServer)

# %% [markdown]
# Three fast workers and a slow one, once more, and a bound of 2. **After the first moments, how many steps does a fast
# worker take while the slow one takes ten?**

# %% tags=["predict"]
labkit.predict("fast_worker_steps", 30)

# %%
bounded = labkit.run(train, partial(BoundedServer, lr=0.25, bound=2), 80, ONE_SLOW, on=labkit.virtual(5), init=False)
pushes = [sum(each.worker == worker for each in bounded.results[0].updates) for worker in range(4)]
labkit.reveal("fast_worker_steps", round(10 * (pushes[0] - 2) / pushes[3]), f"gradients of each worker: {pushes}")

# %% [markdown]
# The bound gives a loan, and no more. A worker that is *always* slow sets the pace for all, two steps later. What the
# bound is good for is a worker that is slow *now and then*. You will see it in the next picture.

# %% [markdown]
# ## 5 The first nine
#
# Another way out keeps the mean, and with it the reproducible steps of a synchronous server: have one or two workers
# more than you need, **backup workers**, and take each step with the first gradients that come (Chen et al., 2016). Who
# is late has worked for nothing: its gradient belongs to a step that is over. It is dropped, and the worker gets the
# weights of now.
#
# ### Exercise [[backup_workers]]
#
# *8 points, about 8 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="backup_workers" points=8 difficulty=3 importance=4 minutes=8 title="Backup workers" provides=["BackupServer"]
class BackupServer(Server):
    """Takes each step with the mean of the first gradients that come; those that come late are dropped."""

    def __init__(self, weight: Tensor, num_workers: int, lr: float, needed: int) -> None:
        """Keep a copy of the weights; see Server.

        Args:
            weight: Where to begin, shape (N,).
            num_workers: Workers are numbered from 0.
            lr: Learning rate.
            needed: Gradients that make a step, 1 to num_workers.
        """
        super().__init__(weight, num_workers, lr)
        # BEGIN SOLUTION backup_workers
        self.needed = needed
        self.gradients: list[Tensor] = []
        self.future: Future = Future()
        # END SOLUTION

    @rpc.functions.async_execution
    def push(self, worker: int, version: int, gradient: Tensor) -> Future:
        """Take in a gradient for the step that begins at `version`; return a future of (version, weights).

        If that step is over already, the gradient is dropped without an Update, and the answer is (version, weights) as
        they are, at once. Else an Update is noted, and the answer comes after the step, which the last of the `needed`
        gradients brings about: lr times their mean, one version up.
        """
        # BEGIN SOLUTION backup_workers
        with self.lock:
            if version < self.version:
                late: Future = Future()
                late.set_result((self.version, self.weight.clone()))
                return late
            self.updates.append(Update(len(self.updates), worker, version, self.version))
            self.gradients.append(gradient)
            future = self.future
            if len(self.gradients) == self.needed:
                self.weight -= self.lr * torch.stack(self.gradients).mean(0)
                self.version += 1
                self.gradients, self.future = [], Future()
                future.set_result((self.version, self.weight.clone()))
        return future
        # END SOLUTION


# %% tags=["check"]
labkit.check("backup_workers", BackupServer)

# %% [markdown]
# Ten workers, each of which is four times slower in one step of ten, drawn at random. The synchronous server waits for
# all ten, this one for the first nine. **By which factor is it faster?**

# %% tags=["predict"]
labkit.predict("backup_speedup", 1.1)


# %%
seconds, rows = {}, []
for needed in (10, 9, 8):
    found = labkit.run(
        train, partial(BackupServer, lr=1.0, needed=needed), 40, Pace(moods=0.1), on=labkit.virtual(11), init=False
    ).results[0]  # fmt: skip
    seconds[needed] = found.seen[-1].seconds
    rows.append(f"the first {needed} of 10: {1e3 * seconds[needed] / 40:.1f} ms a step, loss {found.seen[-1].loss:.4f}")
labkit.reveal("backup_speedup", round(seconds[10] / seconds[9], 2), rows)

# %% [markdown]
# One step of ten is slow *for each worker*. With ten workers somebody is slow in 1 - 0.9^10 = 65 % of all steps, and a
# synchronous server meets it each time. That is why stragglers are a matter of scale: with 100 workers it is every
# step.

# %% [markdown]
# ## 6 All of them on one axis
#
# Eight workers; one is always twice as slow, and every worker has a mood in one step of ten. Four servers, and each may
# use 320 gradients. Everything below is virtual time, so it is the same on every machine.


# %%
PACE = Pace(slow=((7, 2.0),), moods=0.1)
POLICIES = {  # gradients that make a version, the server, its worker-by-worker learning rate
    "synchronous": (8, partial(SyncServer, lr=0.4)),
    "first 7 of 8": (7, partial(BackupServer, lr=0.35, needed=7)),
    "bounded, 3": (1, partial(BoundedServer, lr=0.05, bound=3)),
    "asynchronous": (1, partial(AsyncServer, lr=0.05)),
}
runs = {
    name: labkit.run(train, make, -(-320 // each), PACE, on=labkit.virtual(9), init=False)
    for name, (each, make) in POLICIES.items()
}


def waiting_share(timeline):
    """Return the share of time in which a worker (ranks 1 and up) computes nothing."""
    work = [span for span in timeline.rows() if span.name.startswith("version ")]
    begin, end = min(span.start_ns for span in work), max(span.end_ns for span in work)
    return 1 - sum(span.duration_ns for span in work) / ((end - begin) * (timeline.num_ranks - 1))


def loss_at(trained, *, seconds=None, version=None):
    """Return the last loss that a worker saw before this time, or when this version was reached."""
    before = [each for each in trained.seen if (each.seconds <= seconds if seconds else each.version <= version)]
    return max(before, key=lambda each: each.version).loss


print("               320 gradients   workers   staleness     loss after")
print("                   take, ms       wait   mean  most   200 ms   160 gradients")
for name, (each, _) in POLICIES.items():
    found, late = runs[name].results[0], staleness(runs[name].results[0].updates)
    print(
        f"{name:14} {1e3 * found.seen[-1].seconds:12.0f} {waiting_share(runs[name].timeline):12.0%}"
        f" {sum(late) / len(late):6.1f} {max(late):5} {loss_at(found, seconds=0.2):8.3f} {loss_at(found, version=160 // each):10.3f}"
    )

# %%
import matplotlib.pyplot as plt


def draw(runs, until_ms=120):
    shown = [name for name in runs if name != "first 7 of 8"]
    figure, axes = plt.subplots(
        len(shown) + 1, 1, sharex=True, figsize=(9, 7.5), height_ratios=[2] * len(shown) + [1.6]
    )
    shade = plt.get_cmap("cividis_r")
    for name, axis in zip(shown, axes[:-1], strict=True):
        trained, timeline = runs[name].results[0], runs[name].timeline
        begin = min(span.start_ns for span in timeline.rows() if span.name.startswith("version "))
        applied = {(each.worker, each.version_read): each.version_applied for each in trained.updates}
        late = []
        for span in timeline.rows():
            if span.name.startswith("version "):
                worker, read = span.rank - 1, int(span.name.split()[1])
                age = applied.get((worker, read), read) - read
                start, length = (span.start_ns - begin) / 1e6, span.duration_ns / 1e6
                axis.broken_barh(
                    [(start, length)], (worker - 0.4, 0.8), color=shade(age / 16), edgecolor="black", lw=0.3
                )
                axis.annotate(str(age), (start + length / 2, worker), ha="center", va="center", fontsize=6,
                              color="white" if age > 8 else "black", annotation_clip=True)  # fmt: skip
                if start + length <= until_ms:
                    late.append((start + length, age))
        axis.set(ylabel=f"{name}\nworker", yticks=range(8), ylim=(-0.6, 7.6), xlim=(0, until_ms))
        times, ages = zip(*sorted(late), strict=True)
        axes[-1].plot(
            times, ages, marker={"synchronous": "o", "bounded, 3": "^", "asynchronous": "x"}[name], ls="", label=name
        )
    axes[-1].set(xlabel="virtual time, ms", ylabel="staleness of a\ngradient, versions")
    axes[-1].set_ylim(top=32)  # room for the legend
    axes[-1].legend(loc="upper left", ncols=3)
    figure.tight_layout()
    plt.show()


draw(runs)

# %% [markdown]
# Each bar is one gradient being computed, and its number says how stale it was when it was applied. Look for three
# things:
#
# * **synchronous**: no gradient is stale, and there is more white than bar. Whoever is in a mood stops everybody;
# * **asynchronous**: no white. The longer a bar, the larger its number: the moods are worse than the slow worker 7;
# * **bounded**: the same as asynchronous, until somebody has used up the loan of three steps. Find worker 4: at 52 ms
#   it must wait for worker 3, which is in a mood. And the slow worker 7 will make all the others wait, in the long run.
#
# Now the two questions that decide. Which one learns most *for each gradient*, and which one *for each second*?

# %%
figure, (by_time, by_count) = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
for (name, run), style in zip(runs.items(), ("-", "--", "-.", ":"), strict=True):
    seen = run.results[0].seen
    by_time.plot([1e3 * each.seconds for each in seen], [each.loss for each in seen], style, label=name)
    points = sorted({(each.version * POLICIES[name][0], each.loss) for each in seen})
    by_count.plot(*zip(*points, strict=True), style, label=name)
by_time.set(xlabel="virtual time, ms", ylabel="loss", yscale="log")
by_count.set(xlabel="gradients used")
by_count.legend()
figure.tight_layout()
plt.show()

# %% [markdown]
# On the right, over gradients, all four are close together: with a learning rate this small, a staleness of seven does
# little harm. On the left, over time, they are far apart. That is the trade: **a stale gradient is worth a little less,
# and it comes much sooner.** Near the largest learning rate the right picture changes, as you saw at 1.92, and
# asynchronous SGD falls apart first.

# %% [markdown]
# The same runs to step through: choose one, and look at what each of its gradients missed. With backup workers, a grey
# bar with a ✗ is a gradient that came too late: it was computed, sent, and dropped.

# %% tags=["nbval-ignore-output"]
labkit.staleness_view(runs)

# %% [markdown] tags=["slide"]
# ### Eight workers, one slow, all moody: 320 gradients
#
# | | speed | staleness | what it is for |
# |---|---|---|---|
# | synchronous | the slowest worker of every step | 0 | results that can be repeated |
# | first K of N | the K-th fastest | 0 | moods, at the price of dropped work |
# | bounded | moods are free, a slow worker is not | limited | both |
# | asynchronous | everybody at their own pace | unlimited | workers that differ by nature |
#
# Stale gradients want a smaller learning rate: stable below 2 sin(π/(4τ+2)) over the steepness; for N equal workers
# that is the synchronous one divided by N, less a sixth for N = 8 and 22 % for many.

# %% [markdown]
# ### The same on real processes
#
# Four real processes: a server and three workers, of which one takes three times as long. First what the virtual
# cluster says, then what your machine says.
#
# The real runs of this lesson stay on the CPU (`device="cpu"`), on a host with GPUs too. RPC sends GPU tensors only
# between workers that have told each other which device is which (`TensorPipeRpcBackendOptions.set_device_map`), and
# waiting, which is what this lesson measures, is the same there.

# %% tags=["nbval-ignore-output"]
THREE = Pace(slow=((2, 3.0),))
print("ms for each gradient used     virtual   real processes")
for name, until, each, make in (
    ("synchronous", 10, 3, partial(SyncServer, lr=0.4)),
    ("asynchronous", 30, 1, partial(AsyncServer, lr=0.13)),
):
    took = []
    for world in (labkit.virtual(4), labkit.local(4, device="cpu")):
        found = labkit.run(train, make, until, THREE, on=world, init=False).results[0]
        took.append(1e3 * found.seen[-1].seconds / (until * each))
    print(f"{name:26} {took[0]:10.2f} {took[1]:16.2f}")

# %% [markdown]
# **Explain the difference.** The virtual cluster knows what a call costs in principle: it was measured once, on an idle
# machine, with two processes. Here four processes share your cores with this notebook, so a thread that is woken has to
# wait for a core. The sleeping is the same in both. What stays in either world is the order: asynchronous is faster,
# by half or more.

# %% [markdown]
# ## 7 When all-reduce wins
#
# So far the weights were 20 numbers. Make them 100 MB, and the server's own link becomes the straggler. N workers send
# it B bytes each, and N times B come back. Split the weights over S servers, and each has N/S times B. A worker's own
# link carries B in each direction.
#
# Say a link carries `bandwidth_Bps` in each direction at once, and a message costs `latency_s` before its first byte.
# Then half a step (everybody pushes) takes the latency and the time of the *busiest* link, a server's or a worker's.
# The other half (everybody gets the weights) takes the same again.
#
# And suppose that a step touches only a share of the weights. Workers of a server push and pull that share only. A ring
# sends everything, zeros too. **Up to which share does the server need no more time than the ring, by bandwidth
# alone?** Count half a step of each: a rank of the ring sends (N-1)/N times B, and the busiest link of the server's
# step carries the share times what you have just found for it.
#
# ### Exercise [[server_or_ring]]
#
# *6 points, about 8 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="server_or_ring" points=6 difficulty=2 importance=4 minutes=8 title="Server or ring" provides=["server_seconds", "largest_share"]
def server_seconds(
    num_bytes: float, num_workers: int, num_servers: int, latency_s: float, bandwidth_Bps: float
) -> float:
    """Return the time of one synchronous step: all workers push their gradient, then all get the weights.

    Args:
        num_bytes: B, of all weights together; servers hold equal parts.
        num_workers: N.
        num_servers: S; each has a link of its own.
        latency_s: Of a message; messages to different servers go at the same time.
        bandwidth_Bps: Of every link, in each direction.
    """
    # BEGIN SOLUTION server_or_ring
    return 2 * (latency_s + max(1, num_workers / num_servers) * num_bytes / bandwidth_Bps)
    # END SOLUTION


def largest_share(num_workers: int, num_servers: int) -> float:
    """Return the share of weights touched in a step up to which a server needs no more time than a ring, at most 1.

    Only bandwidth counts here, no latency. The ring reduces all weights among the workers.
    """
    # BEGIN SOLUTION server_or_ring
    ring = (num_workers - 1) / num_workers
    return min(1.0, ring / max(1, num_workers / num_servers))
    # END SOLUTION


# %% tags=["check"]
labkit.check("server_or_ring", server_seconds, largest_share)

# %% [markdown]
# A hundred megabytes on eight machines with 100 Gbit/s Ethernet. **How many times as long as the ring does one server
# take?**

# %% tags=["predict"]
labkit.predict("server_over_ring", 4.0)


# %% tags=["given"]
def ring_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:
    """Return the time of a ring all_reduce, as in lesson 02."""
    steps, chunk_bytes = 2 * world_size - 2, num_bytes / world_size
    return steps * (latency_s + chunk_bytes / bandwidth_Bps)


def push_pieces(servers: list[rpc.RRef], worker: int, num_elements: int, device: str) -> None:
    """Push a gradient in equal pieces, one to every server at the same time, and wait for all answers."""
    piece = torch.zeros(num_elements // len(servers), device=device)
    for answer in [server.rpc_async().push(worker, 0, piece) for server in servers]:
        answer.wait()


def one_server_step(num_servers: int, num_bytes: int, device: str = "meta") -> float | None:
    """Return, on rank 0, the seconds of one synchronous step: the first ranks are servers, the others workers."""
    rank, world_size = start_rpc()
    took, num_workers = None, world_size - num_servers
    if rank == 0:
        piece = torch.zeros(num_bytes // 4 // num_servers, device=device)
        servers = [
            rpc.remote(f"rank{number}", SyncServer, args=(piece, num_workers, 0.1)) for number in range(num_servers)
        ]
        for server in servers:
            server.rpc_sync().leave(0)  # any call will do: it comes back when the server has been made
        begin = time.perf_counter()
        calls = [
            rpc.rpc_async(f"rank{num_servers + worker}", push_pieces, args=(servers, worker, num_bytes // 4, device))
            for worker in range(num_workers)
        ]
        for call in calls:
            call.wait()
        took = time.perf_counter() - begin
    rpc.shutdown()
    return took


# %%
from labkit.hardware import find_link

SIZE, LINK = 100 * 10**6, find_link("ethernet_100g")
NUMBERS = (LINK.latency_ns / 1e9, LINK.share * LINK.bytes_per_second)


def one_ring():
    tensor = torch.empty(SIZE // 4, device="meta")
    begin = time.perf_counter()
    dist.all_reduce(tensor)
    return time.perf_counter() - begin


ring = max(labkit.run(one_ring, on=labkit.virtual(8, link=LINK, algorithm="ring")).results)
rows = ["100 MB, 8 workers       formula, ms   virtual, ms"]
rows.append(f"ring {1e3 * ring_seconds(SIZE, 8, *NUMBERS):30.1f} {1e3 * ring:13.1f}")
measured = {}
for servers in (1, 2, 4, 8):
    measured[servers] = labkit.run(
        one_server_step, servers, SIZE, on=labkit.virtual(8 + servers, link=LINK), init=False
    ).results[0]  # fmt: skip
    formula = server_seconds(SIZE, 8, servers, *NUMBERS)
    rows.append(f"{servers} server{'s' if servers > 1 else ' '} {1e3 * formula:25.1f} {1e3 * measured[servers]:13.1f}")
labkit.reveal("server_over_ring", round(measured[1] / ring, 2), rows)

# %% [markdown]
# The ring's step does not care how many workers there are; the server's grows with them, until there are as many
# servers as workers.
#
# Why is the virtual number larger than the formula, by half for eight servers? Every worker has one link, and sends its
# pieces one after another: first the one for server 0, last the one for server 7. So all queue at server 0 while server
# 7 has nothing to do. The last push has arrived after N + S - 1 pieces in place of N, and the answers take N more: 23
# times 1.06 ms are 24.4 ms, where the formula has 16 times 1.06. The last millisecond is calls on their way, and adding
# up.
#
# And the other way round: which share of the weights may a step touch?

# %%
print("share of the weights up to which a server is faster than a ring, bandwidth alone")
print("workers    1 server  2 servers  8 servers  a server for each")
for count in (2, 8, 64):
    print(f"{count:7}" + "".join(f"{largest_share(count, each):11.1%}" for each in (1, 2, 8, count)))

# %% [markdown] tags=["slide"]
# ### Server or ring
#
# $$ t_\text{server} = 2\Big(a + \max(1, N/S)\,\frac{B}{\beta}\Big) \qquad t_\text{ring} = 2(N-1)\Big(a +
# \frac{B}{N\beta}\Big) $$
#
# | 100 MB, 8 workers, 100 Gbit/s | ms |
# |---|---:|
# | ring | 15 |
# | 1 server | 136 |
# | 4 servers | 34 |
# | 8 servers | 17 |
#
# * **all weights change in every step, workers are alike:** all-reduce. Eight more machines buy nothing
# * **a step touches a few rows:** servers. With 64 workers and 8 servers, up to 12 % of the weights
# * **workers are unlike, or come and go:** servers

# %% [markdown]
# ## 8 Several servers, and where a key lives
#
# The few rows: that is a recommender. Its table has one row (an **embedding**) for each user, film or word, millions of
# them, and a batch touches some hundreds. No worker holds the table. It **pulls** the rows of its batch by their keys,
# computes, and **pushes** the gradients of those rows.
#
# With several servers, everybody must know where a key lives. Two rules are common:
#
# * **by range**: the keys are cut into as many stretches as there are servers. Neighbours stay together;
# * **by hash**: scrambled, so that neighbours end up anywhere. A well-known scramble is Fibonacci hashing (Knuth):
#   multiply by 2654435761, keep the lowest 32 bits, and take that number's place on the scale from 0 to 2^32. With S
#   servers: `(key * 2654435761 % 2**32) * S // 2**32`.
#
# Why not Python's `hash`? Of a text it differs from process to process, so that two workers would look for one word in
# two places. And of a whole number it is that number, which is no scramble.
#
# ### Exercise [[place_keys]]
#
# *6 points, about 8 minutes; difficulty 2 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="place_keys" points=6 difficulty=2 importance=3 minutes=8 title="Where a key lives" provides=["place_by_range", "place_by_hash"]
def place_by_range(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    """Return the number of the server on which each key lives, int64: stretches of keys 0 to num_keys - 1, in order.

    Lengths of the stretches differ by at most one, longer ones first.

    Args:
        keys: int64, of any shape, each 0 <= key < num_keys.
        num_keys: Keys there are.
        num_servers: Servers, numbered from 0.
    """
    # BEGIN SOLUTION place_keys
    length, longer = divmod(num_keys, num_servers)
    firsts = torch.tensor(
        [server * length + min(server, longer) for server in range(1, num_servers)], dtype=torch.int64
    )
    return torch.bucketize(keys, firsts, right=True)
    # END SOLUTION


def place_by_hash(keys: Tensor, num_servers: int) -> Tensor:
    """Return the number of the server on which each key lives, int64, by Fibonacci hashing.

    Args:
        keys: int64, of any shape, each 0 <= key < 2**31.
        num_servers: Servers, numbered from 0.
    """
    # BEGIN SOLUTION place_keys
    return (keys * 2654435761 % 2**32) * num_servers // 2**32
    # END SOLUTION


# %% tags=["check"]
labkit.check("place_keys", place_by_range, place_by_hash)

# %% [markdown]
# Now a server for rows. It holds some keys with their rows, and counts how many rows it was asked for. A push takes
# `lr` times each gradient off its row.


# %% tags=["given"]
class RowServer:
    """Some rows of a table, found by their keys."""

    def __init__(self, keys: Tensor, rows: Tensor, lr: float) -> None:
        """Hold these rows.

        Args:
            keys: int64, ascending, shape (R,).
            rows: Row i is that of keys[i], shape (R, D).
            lr: Learning rate.
        """
        self.keys, self.rows, self.lr = keys, rows.clone(), lr
        self.lock, self.served = threading.Lock(), 0

    def pull(self, keys: Tensor) -> Tensor:
        """Return the rows of these keys, in this order."""
        with self.lock:
            self.served += len(keys)
            return self.rows[torch.searchsorted(self.keys, keys)]

    def push(self, keys: Tensor, gradients: Tensor) -> int:
        """Take lr times each gradient off its key's row; return how many rows changed."""
        with self.lock:
            self.served += len(keys)
            self.rows.index_add_(0, torch.searchsorted(self.keys, keys), gradients, alpha=-self.lr)
        return len(keys)

    def load(self) -> int:
        """Return how many rows it was asked for, to read or to write."""
        return self.served


# %% [markdown]
# And what a worker needs: `pull_rows` and `push_rows`, which make one table of all servers. Three things make them
# fast:
#
# * a key that occurs several times in the batch travels **once**: its row on the way here, the *sum* of its gradients
#   on the way back. (`torch.unique(keys, return_inverse=True)` returns the different keys, and for each place of `keys`
#   which of them stands there. `index_add_` adds rows to where they belong.)
# * one call for each server, none to a server that has nothing to do;
# * all calls go out before you wait for the first answer.
#
# ### Exercise [[sparse_rows]]
#
# *12 points, about 15 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="sparse_rows" points=12 difficulty=3 importance=5 minutes=15 title="Rows from many servers" provides=["pull_rows", "push_rows"]
def pull_rows(servers: Sequence[rpc.RRef], place: Callable[[Tensor], Tensor], keys: Tensor) -> Tensor:
    """Return the rows of these keys, one for each place in keys, shape (K, D).

    Each server that has any of the keys is asked once, through server.rpc_async().pull(its_keys), with different keys.

    Args:
        servers: References to RowServers.
        place: place(keys) is the number of the server on which each key lives.
        keys: int64, shape (K,), K at least 1; keys may occur several times.
    """
    # BEGIN SOLUTION sparse_rows
    wanted, where = torch.unique(keys, return_inverse=True)
    home = place(wanted)
    calls = {
        number: server.rpc_async().pull(wanted[home == number])
        for number, server in enumerate(servers)
        if (home == number).any()
    }
    answers = {number: call.wait() for number, call in calls.items()}
    first = next(iter(answers.values()))
    rows = first.new_empty(len(wanted), first.shape[1])
    for number, answer in answers.items():
        rows[home == number] = answer
    return rows[where]
    # END SOLUTION


def push_rows(servers: Sequence[rpc.RRef], place: Callable[[Tensor], Tensor], keys: Tensor, gradients: Tensor) -> None:
    """Push the gradients of rows to their servers, and return when all have them.

    Each server that has any of the keys is called once, through server.rpc_async().push(its_keys, sums), with different
    keys and for each of them the sum of its gradients.

    Args:
        servers: References to RowServers.
        place: place(keys) is the number of the server on which each key lives.
        keys: int64, shape (K,), K at least 1; keys may occur several times.
        gradients: One for each place in keys, shape (K, D).
    """
    # BEGIN SOLUTION sparse_rows
    different, where = torch.unique(keys, return_inverse=True)
    sums = gradients.new_zeros(len(different), gradients.shape[1]).index_add_(0, where, gradients)
    home = place(different)
    calls = [
        server.rpc_async().push(different[home == number], sums[home == number])
        for number, server in enumerate(servers)
        if (home == number).any()
    ]
    for call in calls:
        call.wait()
    # END SOLUTION


# %% tags=["check"]
labkit.check("sparse_rows", pull_rows, push_rows)

# %% [markdown]
# ### The hot key
#
# Keys are not equally popular. In real data the k-th most popular film is watched about 1/k as often as the first: a
# **power law**. Draw 4,096 keys like that from a table of 100,000. **How many different keys are among them?**

# %% tags=["predict"]
labkit.predict("distinct_keys", 4000)


# %% tags=["given"]
def popular_keys(num_draws: int, num_keys: int, seed: int) -> Tensor:
    """Return drawn keys, int64: key k is drawn 1/(k+1) as often as key 0."""
    share = 1 / torch.arange(1, num_keys + 1, dtype=torch.float64)
    return torch.multinomial(share, num_draws, replacement=True, generator=torch.Generator().manual_seed(seed))


# %%
drawn = popular_keys(4096, 100_000, seed=0)
counts = torch.bincount(drawn, minlength=100_000)
print(f"key 0 was drawn {counts[0]} times; the ten most popular are {counts[:10].sum() / 4096:.0%} of all draws")
labkit.reveal("distinct_keys", len(torch.unique(drawn)))

# %% [markdown]
# Sending each key once saves more than half the bytes of such a batch. But it does not save the server of the most
# popular keys: *every* worker asks for them in every step. Let eight workers pull and push from four servers, placed by
# range and by hash. **Which share of all rows that are asked for falls on the busiest server, if the keys are placed by
# range?**

# %% tags=["predict"]
labkit.predict("busiest_server_share", 0.25)


# %% tags=["given"]
@dataclass(frozen=True)
class Placing:
    """A rule that says where a key is looked up, as data, so that it can travel.

    Attributes:
        num_servers: Servers, numbered from 0.
        num_keys: With so many keys, keys are placed by range; 0 places them by hash.
        num_hot: The keys below this one, the most popular, have a copy on every server.
        reader: Of these, this worker looks up the copies of one server.
    """

    num_servers: int
    num_keys: int = 0
    num_hot: int = 0
    reader: int = 0

    def __call__(self, keys: Tensor) -> Tensor:
        """Return the server of each key."""
        if self.num_keys:
            home = place_by_range(keys, self.num_keys, self.num_servers)
        else:
            home = place_by_hash(keys, self.num_servers)
        return torch.where(keys < self.num_hot, self.reader % self.num_servers, home)


def start_table(num_keys: int, dim: int, lr: float, place: Placing) -> list[rpc.RRef]:
    """Return references to new RowServers on the first ranks; rows are small random numbers, the same every time."""
    rows = 0.1 * torch.randn(num_keys, dim, generator=torch.Generator().manual_seed(0))
    keys, servers = torch.arange(num_keys), []
    home = place(keys)
    for number in range(place.num_servers):
        (held,) = torch.where((home == number) | (keys < place.num_hot))
        servers.append(rpc.remote(f"rank{number}", RowServer, args=(held, rows[held], lr)))
    return servers


def look_up(servers: list[rpc.RRef], place: Placing, worker: int, num_steps: int, num_keys: int, push: bool) -> None:
    """Pull the rows of a batch of popular keys, some times, and push gradients for them if asked to."""
    for step in range(num_steps):
        keys = popular_keys(1024, num_keys, seed=100 * worker + step)
        rows = pull_rows(servers, place, keys)
        if push:
            push_rows(servers, place, keys, torch.ones_like(rows))


def loads(place: Placing, num_steps: int, num_keys: int, push: bool = True) -> tuple[list[int], float] | None:
    """Return, on rank 0, the rows each server was asked for, and the seconds: the first ranks are servers."""
    rank, world_size = start_rpc()
    found = None
    if rank == 0:
        servers = start_table(num_keys, 256, 0.1, place)
        for server in servers:
            server.rpc_sync().load()  # answered when its rows have come
        begin = time.perf_counter()
        calls = [
            rpc.rpc_async(
                f"rank{peer}", look_up, args=(servers, replace(place, reader=peer), peer, num_steps, num_keys, push)
            )
            for peer in range(place.num_servers, world_size)
        ]
        for call in calls:
            call.wait()
        took = time.perf_counter() - begin
        found = [server.rpc_sync().load() for server in servers], took
    rpc.shutdown()
    return found


# %%
busiest, rows, TEN_GIGABITS = {}, [], find_link("ethernet_10g")
for rule, place in (("range", Placing(4, 10_000)), ("hash", Placing(4))):
    found, took = labkit.run(loads, place, 3, 10_000, on=labkit.virtual(12, link=TEN_GIGABITS), init=False).results[0]
    busiest[rule] = round(max(found) / sum(found), 3)
    rows.append(f"by {rule:5}  rows asked for {found}, busiest {busiest[rule]:.0%}, {1e3 * took:.1f} ms")
labkit.reveal("busiest_server_share", busiest["range"], rows)

# %% [markdown]
# Ids are often given out in order of popularity or age, and then a range puts all that is popular on one server. A hash
# spreads the *keys* evenly. It cannot spread **one** key. The most popular one still has a single home, and with a
# thousand workers that home is busy with nothing else.
#
# So **replicate** the hot keys: copies on all servers. A worker reads whichever copy it likes, so the reads are shared.
# But a write must go to *every* copy. What does that do to the loads? Before you build such a thing, compute it.
#
# ### Exercise [[hot_keys]]
#
# *6 points, about 8 minutes; difficulty 2 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="hot_keys" points=6 difficulty=2 importance=3 minutes=8 title="Copies of hot keys" provides=["server_loads"] needs=["place_keys", "sparse_rows"]
def server_loads(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    """Return how many rows each server must read or write, float64, shape (num_servers,).

    The num_hot keys with the most reads have copies on all servers: each of their reads is served by one of the servers,
    all servers equally often, and each of their writes by every server. All other keys are read and written at home.

    Args:
        reads: How often each key is read, float64, shape (K,), no two alike.
        writes: How often each key is written, float64, shape (K,).
        home: The server on which each key lives, int64, shape (K,).
        num_servers: Servers, numbered from 0.
        num_hot: Keys that have copies, 0 to K.
    """
    # BEGIN SOLUTION hot_keys
    hot = torch.zeros(len(reads), dtype=torch.bool)
    hot[reads.topk(num_hot).indices] = True
    at_home = torch.where(hot, 0.0, reads + writes)
    loads = torch.zeros(num_servers, dtype=torch.float64).index_add_(0, home, at_home)
    return loads + reads[hot].sum() / num_servers + writes[hot].sum()
    # END SOLUTION


# %% tags=["check"]
labkit.check("hot_keys", server_loads)

# %%
popularity = 1 / torch.arange(1, 10_001, dtype=torch.float64)
popularity /= popularity.sum()
print("busiest of 16 servers, as a multiple of what each would have if all were even")
print("hot keys     as many writes as reads    a write for 100 reads")
for num_hot in (0, 1, 10, 100, 1000):
    line = f"{num_hot:8}"
    for share in (1.0, 0.01):
        load = server_loads(popularity, share * popularity, place_by_hash(torch.arange(10_000), 16), 16, num_hot)
        line += f"{(load.max() * 16 / (1 + share)).item():24.2f}"
    print(line)

# %% [markdown]
# With a write for every hundred reads (a trained model that serves), copies of ten keys make the servers almost even.
# With as many writes as reads (training, where every pulled row is pushed), each copied key is written sixteen times:
# one copied key gains nothing, and ten make all servers *busier*. So systems that train copy very few keys, or let
# copies be a little stale. You know that trade already.
#
# And on the cluster? The table by range once more, read only, with copies of its hottest keys. What your function says
# of the busiest server stands beside what it was asked for. One thing differs from the arithmetic above: a batch asks
# for a key once, however often it holds it. A key of popularity p is in a batch of 1024 with probability 1 - (1 -
# p)^1024, and there are 24 batches: eight workers, three steps.

# %%
reads = 24 * (1 - (1 - popularity) ** 1024)
home = place_by_range(torch.arange(10_000), 10_000, 4)
print("hot keys    busiest server: expected   asked for       ms")
for num_hot in (0, 10, 100, 1000):
    place, on = Placing(4, 10_000, num_hot), labkit.virtual(12, link=TEN_GIGABITS)
    found, took = labkit.run(loads, place, 3, 10_000, False, on=on, init=False).results[0]
    expected = server_loads(reads, torch.zeros_like(reads), home, 4, num_hot).max().item()
    print(f"{num_hot:8} {expected:27.0f} {max(found):11} {1e3 * took:8.1f}")

# %% [markdown]
# The busiest server's link is the time of everybody, so taking rows off it pays at once. Ten copies do little here,
# a thousand (a tenth of the table) make the servers nearly even.

# %% [markdown] tags=["slide"]
# ### Keys, placed
#
# | | spreads the keys | spreads the hottest key | to find all rows from a to b |
# |---|---|---|---|
# | by range | only if popularity has nothing to do with order | no | ask one or two servers |
# | by hash | yes | no | ask all |
# | copies of hot keys | | reads yes, writes ×S | |
#
# * one call for each server, each key once, all calls under way at the same time
# * `hash("word")` differs from process to process: never place keys with it

# %% [markdown] tags=["slide-only"]
# ### Pull and push of rows
#
# ```
# keys of the batch   7 3 7 5 3 3
# different keys      3 5 7           each travels once
# by server           [3, 5]  [7]     one call each, all at once
# rows                back to 7 3 7 5 3 3
# gradients           summed for each key, the same way
# ```
#
# 4,096 keys of a power law: half of them are different ones.

# %% [markdown]
# ## 9 Hybrid: rows from servers, layers by all-reduce
#
# A recommender has both: a huge table of which a batch touches little, and a small dense network of which it touches
# everything. By the numbers of section 7, the first belongs on servers and the second wants all-reduce. So do each with
# its own tool, in one step:
#
# 1. pull the rows of the batch, and make them a leaf of autograd;
# 2. forward, loss, backward: gradients for the layers *and* for the rows;
# 3. all-reduce the gradients of the layers, take the optimizer's step;
# 4. push the gradients of the rows.
#
# Mind the scale. The loss that counts is the mean over *all* workers' samples. The layers' gradients are averaged over
# the workers. And the rows'? The server adds up whatever comes.
#
# ### Exercise [[server_hybrid]]
#
# *10 points, about 12 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="server_hybrid" points=10 difficulty=3 importance=4 minutes=12 title="The hybrid step" provides=["hybrid_step"]
def hybrid_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    pull: Callable[[Tensor], Tensor],
    push: Callable[[Tensor, Tensor], None],
    keys: Tensor,
    targets: Tensor,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Take one step towards a smaller mean squared error over the samples of all workers; return this worker's own loss.

    The layers' gradients are averaged over the workers of group and given to the optimizer. What is pushed for the rows
    makes the servers' sum the gradient of that same mean.

    Args:
        model: Dense layers: model(rows) returns one number for each sample, where rows has shape (B, K, D).
        optimizer: Of the model's parameters.
        pull: pull(keys) returns the rows of flat keys, shape (B * K, D).
        push: push(keys, gradients) sends gradients of rows to their servers, which add up what all workers send.
        keys: K keys for each sample, int64, shape (B, K); B is the same on every worker.
        targets: Shape (B,).
        group: The workers; None is all ranks.

    Returns:
        The mean squared error of this worker's samples before the step, a detached scalar.
    """
    # BEGIN SOLUTION server_hybrid
    rows = pull(keys.flatten()).detach().requires_grad_()
    loss = nn.functional.mse_loss(model(rows.view(*keys.shape, -1)), targets)
    optimizer.zero_grad()
    loss.backward()
    num_workers = dist.get_world_size(group)
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= num_workers
    optimizer.step()
    push(keys.flatten(), rows.grad / num_workers)
    return loss.detach()
    # END SOLUTION


# %% tags=["check"]
labkit.check("server_hybrid", hybrid_step)

# %% [markdown]
# Six ranks: two hold the table, four train. The all-reduce is among those four only.


# %% tags=["given"]
class Recommender(nn.Module):
    """A score for a list of items: the mean of their rows through two layers."""

    def __init__(self, dim: int) -> None:
        """Make the layers."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, rows_BKD: Tensor) -> Tensor:
        """Return one number for each sample, shape (B,)."""
        return self.layers(rows_BKD.mean(1)).squeeze(1)


def answer_of(keys: Tensor) -> Tensor:
    """Return what a recommender should learn: the mean taste of the items, which is hidden in their keys."""
    return torch.sin(keys.float()).mean(1)


TABLE: list[RowServer] = []  # on a server's rank: what it holds


def the_table() -> RowServer:
    """Return the rows that this rank holds; rpc.remote(name, the_table) makes a reference to them."""
    return TABLE[0]


def train_recommender(num_servers: int, num_steps: int) -> list[float]:
    """Return a trainer's losses, on a server's rank none: the first ranks hold the table, the others train."""
    rank, world_size = start_rpc()
    trainers = dist.new_group(list(range(num_servers, world_size)))
    place, losses = Placing(num_servers), []
    if rank < num_servers:
        (keys,) = torch.where(place(torch.arange(2000)) == rank)
        TABLE.append(RowServer(keys, 0.1 * torch.sin(7.0 * keys[:, None] + torch.arange(16)), lr=100.0))
    dist.barrier()  # all rows are there
    if rank >= num_servers:
        servers = [rpc.remote(f"rank{number}", the_table) for number in range(num_servers)]
        pull, push = partial(pull_rows, servers, place), partial(push_rows, servers, place)
        torch.manual_seed(0)
        model = Recommender(16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(num_steps):
            keys = popular_keys(32 * 4, 2000, seed=1000 * rank + step).view(32, 4)
            losses.append(hybrid_step(model, optimizer, pull, push, keys, answer_of(keys), trainers).item())
    rpc.shutdown()
    return losses


# %%
hybrid = labkit.run(train_recommender, 2, 40, on=labkit.virtual(6))
for rank, losses in enumerate(hybrid.results):
    if losses:
        print(
            f"trainer on rank {rank}: mean loss of the first ten steps {sum(losses[:10]) / 10:.3f}, of the last {sum(losses[-10:]) / 10:.3f}"
        )

# %% [markdown]
# It learns, and no rank ever held table and layers together. What travelled? Compare with a table that is all-reduced
# as if it were dense:

# %%
calls = [span for span in hybrid.timeline.rows() if span.rank == 2 and span.kind == "rpc_async"]
dense = [span for span in hybrid.timeline.rows() if span.rank == 2 and span.kind == "all_reduce"]
print(
    f"a trainer's step: {sum(span.bytes for span in calls) / 40:,.0f} bytes of keys and row gradients to the servers,"
)
print(f"                  {sum(span.bytes for span in dense) / 40:,.0f} bytes of layers all-reduced")
print(f"the whole table, all-reduced: {2000 * 16 * 4:,} bytes")

# %% [markdown]
# (Two thousand rows are a toy. The table of a real recommender has a hundred million, and the first line stays as it
# is.)

# %% tags=["nbval-ignore-output"]
here = labkit.run(train_recommender, 2, 40, on=labkit.local(4, device="cpu"))
print(
    f"two servers and two trainers on this machine: loss {sum(here.results[2][:10]) / 10:.3f} -> {sum(here.results[2][-10:]) / 10:.3f}"
)

# %% [markdown] tags=["slide-only"]
# ### The hybrid step
#
# | | what changes in a step | how |
# |---|---|---|
# | layers | all of it | all-reduce, mean over workers |
# | rows | those of the batch | pull and push; each worker pushes 1/N of its gradient |
#
# Both are the gradient of one mean, over the samples of all workers.

# %% [markdown]
# ## 10 A server dies
#
# All-reduce has no single place that everything hangs on. A server is one. If its machine dies, the weights are gone.
# So keep a second copy, and agree on words. A push is **acknowledged** when its answer has come. The promise: *what was
# acknowledged is never lost, and nothing counts twice.*
#
# * **Primary and backup.** Workers push to the primary. It passes each gradient on to the backup, and acknowledges when
#   the *backup* has it.
# * **Retry.** A worker that gets an error, or no answer, pushes the same gradient to the backup, which is now in
#   charge.
# * **Once.** Perhaps the primary had passed it on, and died before it could say so. So each gradient carries its worker
#   and a number, and a server that has seen this pair does not apply it again.
#
# How do you call a server that may be dead? Not through an `RRef`: torch counts the references to an object over all
# ranks, and when the owner is gone and does not answer, it ends the process that holds one (PyTorch 2.13 does; seen).
# So these are called by name. `Remote("rank1")` has the same `push` as a server, and the future of its answer.


# %% tags=["given"]
HELD: list[Server] = []  # the server that this rank holds, if any


@rpc.functions.async_execution
def push_here(worker: int, number: int, gradient: Tensor) -> Future:
    """Push a gradient to the server that this rank holds."""
    return HELD[0].push(worker, number, gradient)


@dataclass(frozen=True)
class Remote:
    """The server on a rank, called by the rank's name.

    Attributes:
        name: "rank1", for example.
    """

    name: str

    def push(self, worker: int, number: int, gradient: Tensor) -> Future:
        """Push a gradient there; return a future of the answer, which raises RuntimeError if none can come."""
        return rpc.rpc_async(self.name, push_here, args=(worker, number, gradient))


# %% [markdown]
# ### Exercise [[replicated_server]]
#
# *14 points, about 18 minutes; difficulty 4 of 5, importance 4 of 5*
#
# `future.then(function)` returns another future: when the first is complete, `function(future)` is called, and what it
# returns completes the second. In it, `future.value()` is the answer, or raises the error that came instead. And a
# call to a dead rank raises a `RuntimeError`.


# %% tags=["exercise"] exercise="replicated_server" points=14 difficulty=4 importance=4 minutes=18 title="Nothing acknowledged is lost" provides=["Replica", "push_safely"]
class Replica(Server):
    """A server that may have a backup: another Replica that is told of every gradient before it is acknowledged."""

    def __init__(self, weight: Tensor, num_workers: int, lr: float, backup: Remote | None = None) -> None:
        """Keep a copy of the weights; see Server.

        Args:
            weight: Where to begin, shape (N,).
            num_workers: Workers are numbered from 0.
            lr: Learning rate.
            backup: Where the Replica is that takes over; None has none.
        """
        super().__init__(weight, num_workers, lr)
        # BEGIN SOLUTION replicated_server
        self.backup = backup
        self.applied: set[tuple[int, int]] = set()
        # END SOLUTION

    @rpc.functions.async_execution
    def push(self, worker: int, number: int, gradient: Tensor) -> Future:
        """Apply lr times this gradient once, however often it is pushed; return a future of the version.

        It is applied when it comes, in whichever order numbers come, and counts the version up by one. With a backup,
        it is pushed there too, by backup.push(worker, number, gradient), every time it is pushed here, and the future
        is completed only when the backup has answered. If the backup fails, so does the future.

        Args:
            worker: Who pushes.
            number: Which of the worker's gradients this is; a worker and a number name one gradient for good.
            gradient: Shape (N,).
        """
        # BEGIN SOLUTION replicated_server
        with self.lock:
            if (worker, number) not in self.applied:
                self.applied.add((worker, number))
                self.weight -= self.lr * gradient
                self.version += 1
            version = self.version
        if self.backup is not None:
            return self.backup.push(worker, number, gradient).then(lambda answer: answer.value() and version)
        done: Future = Future()
        done.set_result(version)
        return done
        # END SOLUTION


def push_safely(replicas: Sequence[Remote], worker: int, number: int, gradient: Tensor) -> int:
    """Push a gradient to the first replica that answers, in order; return its place in replicas.

    Args:
        replicas: The primary first; replica.push(worker, number, gradient) returns a future.
        worker: Who pushes.
        number: Which of the worker's gradients this is.
        gradient: Shape (N,).

    Raises:
        RuntimeError: If none answers.
    """
    # BEGIN SOLUTION replicated_server
    for place, replica in enumerate(replicas):
        try:
            replica.push(worker, number, gradient).wait()
        except RuntimeError:
            continue
        return place
    raise RuntimeError(f"gradient {number} of worker {worker}: none of {len(replicas)} replicas answers")
    # END SOLUTION


# %% tags=["check"]
labkit.check("replicated_server", Replica, push_safely)

# %% [markdown]
# Now kill one. Three workers push 40 gradients each. The gradient of worker k is 1 in place k and 0 elsewhere, and the
# learning rate is -1. So the weights *count*: place k says how many gradients of worker k are in them. In the middle
# the primary leaves without a word. **How many of the 120 will the backup hold in the end?**

# %% tags=["predict"]
labkit.predict("backup_holds", 110)


# %% tags=["given"]
DONE: list[int] = []  # on the backup's rank: workers that have pushed all


def done(worker: int) -> None:
    """Take note, on the backup's rank, that a worker has pushed all."""
    DONE.append(worker)


def survive(
    make_replica: Callable[..., Server], num_pushes: int, dies_after_s: float, kill: bool = False
) -> list[int] | None:
    """Let the primary (rank 0) die while workers push.

    Args:
        make_replica: Called on ranks 0 and 1 with weights, number of workers, learning rate and, on rank 0, the backup.
        num_pushes: Gradients of each worker (ranks 2 and up).
        dies_after_s: When the primary dies.
        kill: Whether it is a process that is killed, or else a rank that leaves RPC without a word.

    Returns:
        On rank 1, the backup, how many gradients of each worker are in its weights; on a worker, how many of its
        gradients each replica acknowledged; on rank 0 nothing.
    """
    rank, num_workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 2
    start = (torch.zeros(num_workers), num_workers, -1.0)
    if rank == 0:
        primary = os.fork() if kill else 0  # a child is killed: labkit.run ends all ranks if one of them dies
        if primary:
            os.waitpid(primary, 0)
            return None
        HELD.append(make_replica(*start, Remote("rank1")))
    elif rank == 1:
        HELD.append(make_replica(*start))
    start_rpc()
    found = None
    if rank == 0:
        time.sleep(dies_after_s)
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
    elif rank == 1:
        while len(DONE) < num_workers:
            time.sleep(0.01)
        found = HELD[0].pull()[1].int().tolist()
    else:
        worker, found = rank - 2, [0, 0]
        for number in range(num_pushes):
            time.sleep(0.002)
            found[push_safely([Remote("rank0"), Remote("rank1")], worker, number, torch.eye(num_workers)[worker])] += 1
        with suppress(RuntimeError):  # once it has heard of all workers the backup leaves, perhaps before it answers
            rpc.rpc_sync("rank1", done, args=(worker,))
    rpc.shutdown(graceful=False)
    return found


# %%
_, backup, *workers = labkit.run(survive, Replica, 40, 0.05, on=labkit.virtual(5), init=False).results
rows = [f"in the backup's weights: {backup}"]
for worker, (by_primary, by_backup) in enumerate(workers):
    rows.append(f"acknowledged to worker {worker}: {by_primary} by the primary, {by_backup} by the backup")
labkit.reveal("backup_holds", sum(backup), rows)

# %% [markdown]
# Forty of each: nothing lost, nothing twice. Move the moment of death, and look again. It is the same at every moment,
# and you need not believe it:

# %%
moments = [moment / 1000 for moment in range(10, 110, 10)]
ends = [labkit.run(survive, Replica, 40, moment, on=labkit.virtual(5), init=False).results[1] for moment in moments]
print(f"killed at {len(moments)} moments, every time all are there, once: {all(end == [40] * 3 for end in ends)}")

# %% [markdown]
# In the virtual world the primary leaves without a word. On this machine you can do it as it happens in life: a real
# process, and the signal that nothing survives.

# %% tags=["nbval-ignore-output"]
killed = labkit.run(survive, Replica, 40, 0.1, True, on=labkit.local(4, device="cpu"), init=False, echo=False)
print("in the backup's weights:", killed.results[1])
for worker in (0, 1):
    print("acknowledged to worker {}: {} by the primary, {} by the backup".format(worker, *killed.results[2 + worker]))

# %% [markdown] tags=["slide"]
# ### Primary and backup
#
# ```
# worker --push (worker, number)--> primary --the same--> backup
#        <------- acknowledged ----         <-- has it --
# ```
#
# * acknowledged means: **two** have it
# * no answer? The same number to the backup. It knows what it has already
# * price: one more hop for every push
# * a primary that is slow, and not dead, is the hard case: two servers that both think they are in charge

# %% [markdown]
# ## 11 Checkpoints (bonus)
#
# A backup does not help when the power fails in the whole room. So write the weights to disk now and then. One thing
# can go wrong: the machine dies *while* it writes. If the new file has taken the place of the old one by then, you have
# neither. The cure is as old as file systems: write under another name, and rename when all is written. Renaming
# (`Path.replace`) is one step for the file system; it happens or it does not.
#
# When the power fails, one thing more matters. What a program has written lies in memory for a while before the system
# brings it to the disk, and a new name may get there before the data. `os.fsync(file.fileno())` comes back when the
# data is there; call it before you rename. (The check pulls a plug that it made itself: what was not brought to the disk
# is gone then.)
#
# And whoever reads must expect a file that is damaged anyway, and take the newest one that is not.
#
# ### Exercise [[checkpoints]]
#
# *8 points, about 12 minutes; difficulty 3 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="checkpoints" points=8 difficulty=3 importance=3 minutes=12 title="Checkpoints" provides=["save_checkpoint", "load_checkpoint"] bonus=true
def save_checkpoint(folder: Path, version: int, weight: Tensor) -> None:
    """Write version and weights to a file of their own in the folder; whenever it breaks off, older ones stay whole.

    What breaks off must not be taken for a checkpoint later on. Earlier checkpoints stay.

    Args:
        folder: Where checkpoints are; it exists.
        version: Of the weights; later ones are larger.
        weight: Shape (N,).
    """
    # BEGIN SOLUTION checkpoints
    path = folder / f"{version:012}.checkpoint"
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        torch.save({"version": version, "weight": weight}, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    # END SOLUTION


def load_checkpoint(folder: Path) -> tuple[int, Tensor] | None:
    """Return version and weights of the newest checkpoint that can be read, or None if there is none.

    Args:
        folder: Where save_checkpoint wrote. Some files may be damaged: cut off, or empty.
    """
    # BEGIN SOLUTION checkpoints
    for path in sorted(folder.glob("*.checkpoint"), reverse=True):
        try:
            found = torch.load(path, weights_only=True)
        except Exception:  # damaged in any way: an older one will do
            continue
        return found["version"], found["weight"]
    return None
    # END SOLUTION


# %% tags=["check"]
labkit.check("checkpoints", save_checkpoint, load_checkpoint)

# %%
import tempfile

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for version in (9, 10):
        save_checkpoint(folder, version, torch.full((3,), float(version)))
    newest = max(folder.iterdir())
    newest.write_bytes(newest.read_bytes()[:100])
    print("the newest file was cut off; there is still version", load_checkpoint(folder)[0])

# %% [markdown]
# What a checkpoint cannot save is everything after it. A server that writes one every hundred versions loses up to
# a hundred acknowledged gradients. Copies are for what must not be lost, checkpoints for what may be done again.

# %% [markdown]
# ## 12 Break it on purpose
#
# **Push without a lock.** Nothing could be simpler than this server, and you will find it in many posts. Eight workers
# push ones twenty-five times each, as fast as they can. It should count to 200. **What does it count to?**

# %% tags=["predict"]
labkit.predict("count_without_lock", 200)


# %%
class NoLock(Server):
    def push(self, worker, version, gradient):
        weight = self.weight.clone()
        weight -= self.lr * gradient
        self.weight = weight
        return self.version, weight


def count_up(server, num_pushes):
    for _ in range(num_pushes):
        server.rpc_sync().push(0, 0, torch.ones(100_000))


def crowd(make_server, num_pushes):
    rank, world_size = start_rpc()
    counted = None
    if rank == 0:
        server = rpc.RRef(make_server(torch.zeros(100_000), world_size - 1, -1.0))
        calls = [rpc.rpc_async(f"rank{peer}", count_up, args=(server, num_pushes)) for peer in range(1, world_size)]
        for call in calls:
            call.wait()
        counted = int(server.local_value().weight[0].item())
    rpc.shutdown()
    return counted


counted = {
    server.__name__: labkit.run(crowd, server, 25, on=labkit.virtual(9), init=False).results[0]
    for server in (NoLock, AsyncServer)
}
labkit.reveal("count_without_lock", counted["NoLock"], [f"{name:12} {count}" for name, count in counted.items()])

# %% [markdown]
# Two pushes read the same weight, both add 1 to it, both write it back. One of them is gone, and nothing says so. In
# the virtual world this happens in the same way every time, so you can look for it. On your machine it depends on the
# moment:

# %% tags=["nbval-ignore-output"]
print(
    "three real workers, 200 pushes each:",
    labkit.run(crowd, NoLock, 200, on=labkit.local(4, device="cpu"), init=False).results[0],
)


# %% [markdown]
# If it says 600, run it again. It may be right a hundred times, and wrong on the day it matters.
#
# **A worker that just goes.** Synchronous servers count on everybody. Let one worker return early, without a word. What
# will the others see?


# %% tags=["nbval-ignore-output"]
from labkit.errors import RunError


def one_goes(make_server):
    rank, world_size = start_rpc()
    if rank == 0:
        server = rpc.RRef(make_server(torch.zeros(20), world_size - 1))
        calls = [
            rpc.rpc_async(f"rank{peer}", work, args=(server, peer - 1, 1 if peer == 3 else 3, Pace()))
            for peer in range(1, world_size)
        ]
        print("versions seen at the end:", [call.wait()[-1].version for call in calls])
    rpc.shutdown()


try:
    labkit.run(one_goes, partial(SyncServer, lr=1.0), on=labkit.virtual(4), init=False)
except RunError as error:
    print(error)

# %% [markdown]
# Read the last two lines first: two pushes wait for a future that nobody has completed. That is the step that will
# never be full. All the others wait for those two.
#
# Your bounded server is told when a worker leaves, and your backup workers do not need all of them:

# %%
for make in (partial(BoundedServer, lr=1.0, bound=0), partial(BackupServer, lr=1.0, needed=2)):
    labkit.run(one_goes, make, on=labkit.virtual(4), init=False)

# %% [markdown]
# **Acknowledge too early.** This replica answers at once, and tells its backup of five gradients together: a fifth of
# the calls, and no waiting. Many systems do that, and call it asynchronous replication. What does the promise cost?


# %%
class Hasty(Replica):
    def __init__(self, weight, num_workers, lr, backup=None):
        super().__init__(weight, num_workers, lr)
        self.told, self.later = backup, []

    @rpc.functions.async_execution
    def push(self, worker, number, gradient):
        answer = super().push(worker, number, gradient)
        self.later.append((worker, number, gradient))
        if self.told and len(self.later) == 5:
            batch, self.later = self.later, []
            for each in batch:
                self.told.push(*each)
        return answer


lost = []
for moment in moments:
    results = labkit.run(survive, Hasty, 40, moment, on=labkit.virtual(5), init=False, echo=False).results
    lost.append(sum(map(sum, results[2:])) - sum(results[1]))
print(
    f"killed at {len(moments)} moments; acknowledged gradients that were lost: {sum(lost)}, at most {max(lost)} at once"
)

# %% [markdown] tags=["slide"]
# ### Four ways to break it
#
# | mistake | what you see |
# |---|---|
# | push without a lock | updates are lost, now and then, and no error |
# | a worker goes without a word | a synchronous server waits for ever |
# | a learning rate too large for the staleness | the loss explodes, with a server that is right |
# | acknowledged before the backup has it | lost, only if the server dies in that moment |
#
# Count something that must come out even. Kill at every moment, not at one.

# %% [markdown]
# ## 13 The finished thing
#
# Your bounded server and its workers as a function that also runs under plain `torchrun`.


# %% tags=["export"]
def main() -> dict[str, float]:
    """Train with a bounded server on rank 0 and a worker on every other rank; return what rank 0 saw."""
    workers = int(os.environ["WORLD_SIZE"]) - 1
    begin = time.perf_counter()
    trained = train(partial(BoundedServer, lr=0.4 / workers, bound=2), 40 * workers, Pace(moods=0.1))
    if trained is None:
        return {}
    late = [each.version_applied - each.version_read for each in trained.updates]
    return {
        "loss": round(trained.seen[-1].loss, 4),
        "gradients": len(trained.updates),
        "largest_staleness": max(late),
        "seconds": round(time.perf_counter() - begin, 2),
    }


# %% tags=["nbval-ignore-output"]
labkit.run(main, on=labkit.local(3, device="cpu"), init=False).results[0]

# %% [markdown]
# From a shell, next to this notebook:
#
# ```
# labkit export 06_parameter_server.ipynb --out parameter_server.py
# torchrun --nproc-per-node 4 parameter_server.py
# ```
#
# (`torch.distributed.rpc` is complete and in maintenance: it works, and no features are added. Large systems use the
# same ideas with transports of their own.)

# %% [markdown] tags=["slide"]
# ### What breaks at scale
#
# * **The server's link.** N workers, one link: its load grows with N. Add servers as you add workers.
# * **The hot key.** More servers do not help one key.
# * **Staleness grows with N.** A thousand asynchronous workers are a thousand versions apart.
# * **Moods.** With a thousand workers, somebody is slow in every step.
# * **Failure is normal.** With a thousand machines, one dies every day or so. Who notices, and who decides who is in
#   charge?

# %% [markdown]
# ## What to remember
#
# * A call that must wait returns a **future**; threads are for work, not for waiting.
# * Everything that belongs together is read and written **under one lock**, and what goes out is a copy.
# * **Synchronous** waits for the slowest, **asynchronous** pays in staleness, **bounded** lends a few steps, **backup
#   workers** drop the last.
# * Dense and alike: **all-reduce**. A few rows of a large table, or workers that are unlike: **servers**.
# * A key travels once, to the one server that has it; all servers are asked at the same time.
# * Acknowledged means that **two** have it. Numbers make a retry harmless.
#
# **The question for the next lesson.** Servers cut the *weights* into pieces. But in every step each worker still needs
# all the layers, one after the other. What if the model itself is too large for any worker? Then you must cut the
# model, and send activations in place of weights. Lesson 08, `08_pipeline`.

# %% [markdown]
# ### Sources
#
# * M. Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014: servers, ranges of keys,
#   copies. J. Dean et al., "Large Scale Distributed Deep Networks", NeurIPS 2012: asynchronous SGD.
# * Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NeurIPS 2013: the
#   bound.
# * J. Chen, X. Pan, R. Monga, S. Bengio and R. Jozefowicz, "Revisiting Distributed Synchronous SGD", 2016: backup
#   workers.
# * D. Knuth, "The Art of Computer Programming", volume 3, section 6.4: multiplicative hashing.
# * M. Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019: tables
#   split over devices, layers copied.
# * The bound on the learning rate with a delay is that of the recurrence w(t+1) = w(t) - r w(t-τ), whose roots leave
#   the unit circle at r = 2 sin(π/(4τ+2)).
# * PyTorch documentation: `torch.distributed.rpc`, `torch.futures`.
