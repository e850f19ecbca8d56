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
#
# **Time:** [[minutes]] minutes.
#
# **What you must know:** `send`, `recv` and all-reduce of lesson 02, averaging gradients of lesson 04, and what a lock
# is. If you did not finish those lessons, go on: nothing here calls your code from there.
#
# **Points.** As before, they rest on other cases than those that `labkit.check` shows: other numbers of workers and
# servers, other orders of arrival.

# %% tags=["given"]
import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch import Tensor
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
# *10 points, about 6 minutes; difficulty 2 of 5, importance 4 of 5*
#
# Rank 0 is the server. It takes what the others send it, and in the end everybody learns the weight.


# %% tags=["exercise"] exercise="posted_training" points=10 difficulty=2 importance=4 minutes=6 title="The post, mended" provides=["posted_training"]
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
# Arguments and results travel by value: what you get is a copy. A function travels by its name, so define it at the top
# level of a cell.


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
# threads nobody could get in who would end the waiting. Instead `push` returns a promise, a `Future`, and RPC sends the
# answer when somebody completes it:
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
# *20 points, about 12 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="sync_server" points=20 difficulty=3 importance=5 minutes=12 title="The synchronous server" provides=["SyncServer"]
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
# A `Pace` sets how long a worker sleeps instead of computing. That way two or four cores can play nine machines, and in
# the virtual world sleep is virtual too.


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
# *15 points, about 6 minutes; difficulty 2 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="async_server" points=15 difficulty=2 importance=5 minutes=6 title="The asynchronous server" provides=["AsyncServer"]
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
# The run, update by update, in the order in which the server applied them. Step through: each gradient with the version
# it was made from, and the updates it missed meanwhile, lit on the server's row. The same run over time:

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
# slope of steepness 1, plain SGD is stable for learning rates up to 2. With a delay of τ versions it is stable up to 2
# sin(π / (4τ + 2)) only: 1 for τ = 1, 0.209 for τ = 7.
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
# * N gradients one by one: first divide the learning rate by N; staleness then takes a sixth (N = 8), never more than
#   22 %

# %% [markdown]
# ## 4 A bound on staleness
#
# Between the two lies the **stale-synchronous** server (Ho et al., 2013). Every worker has a clock: how many gradients
# it has pushed. Gradients are applied when they come. But a worker that is more than `bound` steps ahead of the slowest
# does not get its answer yet. It waits until the slowest has caught up.
#
# * bound 0: all go in lock step;
# * bound ∞: asynchronous;
# * in between: a slow moment of one worker costs nobody anything, a slow worker costs all, and no gradient is from long
#   ago.
#
# ### Exercise [[bounded_server]]
#
# *27 points, about 18 minutes; difficulty 4 of 5, importance 5 of 5*
#
# Think of three moments in which somebody may be let go: the push of the worker itself, the push of the slowest, and
# the leaving of the slowest. Whoever is let go gets the weights *of that moment*.


# %% tags=["exercise"] exercise="bounded_server" points=27 difficulty=4 importance=5 minutes=18 title="The bounded server" provides=["BoundedServer"]
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
# *16 points, about 8 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="backup_workers" points=16 difficulty=3 importance=4 minutes=8 title="Backup workers" provides=["BackupServer"]
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
# (The column "workers wait" is the share of all workers' time in which they compute nothing. It counts no server: rank
# 0 only answers calls.)
#
# **A bound of 3 steps, and a staleness far above 3?** The two count different things. The bound counts a worker's own
# gradients, its *steps*: nobody may be more than 3 steps ahead of the slowest. Staleness counts *versions*, and here
# every gradient of every worker makes one. While one worker computes, each of the other seven may push several
# gradients: up to 2 · 3 + 1 = 7 from each before they must wait, 49 versions in the worst case. A bound of s steps
# bounds the staleness by (N - 1)(2s + 1) versions.
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
# wait for a core. The sleeping is the same in both. What stays in either world is the order: asynchronous is faster, by
# half or more.

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
# *12 points, about 8 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="server_or_ring" points=12 difficulty=2 importance=4 minutes=8 title="Server or ring" provides=["server_seconds", "largest_share"]
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
# So are servers never worth it for dense weights? They can be. The table counts a step as all pushes and *then* all
# pulls, so each direction of a link is idle half the time. BytePS (Jiang et al., 2020) cuts the weights into small
# pieces, and a piece is pulled while the next is pushed: both directions are busy at once. With as many spare CPU
# machines as workers a step then takes B over the bandwidth, where a ring, which already uses both directions, needs
# 2(N-1)/N of that. The spare machines bring links of their own, and that is what makes the step shorter. GPU clusters
# rarely have them to spare, and within a node NVLink is faster than any network, so all-reduce is the usual choice.
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
# * **all weights change in every step, workers are alike:** all-reduce; spare machines help only if push and pull
#   overlap
# * **a step touches a few rows:** servers. With 64 workers and 8 servers, up to 12 % of the weights
# * **workers are unlike, or come and go:** servers

# %% [markdown]
# ## 8 Break it on purpose
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

# %% [markdown] tags=["slide"]
# ### Three ways to break it
#
# | mistake | what you see |
# |---|---|
# | push without a lock | updates are lost, now and then, and no error |
# | a worker goes without a word | a synchronous server waits for ever |
# | a learning rate too large for the staleness | the loss explodes, with a server that is right |
#
# Count something that must come out even. Kill at every moment, not at one.

# %% [markdown]
# ## 9 The finished thing
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
# (`torch.distributed.rpc` is in maintenance mode: it works, and nothing is added to it. What people use instead:
# TorchRec for tables of embeddings, split over GPUs with all-to-all; Ray for actors that call each other; Monarch,
# PyTorch's own new one; or their own servers over gRPC or RDMA. The ideas are the same.)

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
#
# **The question for the next lesson.** A table of a hundred million rows fits on no machine, and the machine that holds
# the popular ones may die. Where does a row live, and what is left? Lesson 07, `07_keys_rows_failures`.

# %% [markdown]
# ### Sources
#
# * Y. Jiang et al., "A Unified Architecture for Accelerating Distributed DNN Training in Heterogeneous GPU/CPU
#   Clusters", OSDI 2020: BytePS.
# * M. Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014: servers. J. Dean et al.,
#   "Large Scale Distributed Deep Networks", NeurIPS 2012: asynchronous SGD.
# * Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NeurIPS 2013: the
#   bound.
# * J. Chen, X. Pan, R. Monga, S. Bengio and R. Jozefowicz, "Revisiting Distributed Synchronous SGD", 2016: backup
#   workers.
# * The bound on the learning rate with a delay is that of the recurrence w(t+1) = w(t) - r w(t-τ), whose roots leave
#   the unit circle at r = 2 sin(π/(4τ+2)).
# * PyTorch documentation: `torch.distributed.rpc`, `torch.futures`.
