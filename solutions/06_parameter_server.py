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
# # 06 Parameter servers
#
# Of eight GPUs, one is slow today. An all-reduce makes seven wait for it, step after step. What if each worker sent its
# gradient to a server that holds the weights, took the newest weights, and went on?
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** all-reduce (lesson 02) and what a lock is; no
# GPU.
#
# **Stuck?** `labkit.hint("sync_server")` gives up to three hints. `labkit.lend("sync_server")` puts a working version
# here: you forfeit its points, but every cell below will run.

# %% [markdown] tags=["slide-only"]
# # 06 Parameter servers
#
# One of eight workers is slow today. Who should wait?
#
# <!-- notes: Ask what an all-reduce does with a slow rank, and let somebody say it. -->

# %% tags=["given"]
from functools import partial

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch import Tensor
from torch.futures import Future

import labkit
from labkit.plans import policies
from labkit.plans.policies import Crew, milliseconds, play, policy_of
from labkit.servers.server import Server, Update, start_rpc
from labkit.servers.training import Pace, one_process, train, waiting_share

# %% [markdown]
# ## 1 Calling a server
#
# With `recv(src=...)`, a server must decide whom to listen to next. While it listens to a slow worker, a fast one
# waits. A **remote call** turns that around: a worker calls a method of an object on another rank, which runs it in one
# of its threads. In `torch.distributed.rpc`:
#
# | | |
# |---|---|
# | `rpc.init_rpc(name, rank=..., world_size=...)` | join; every rank has a name |
# | `rpc.rpc_async(name, function, args=(...))` | call a function there; returns a **future** at once |
# | `rpc.RRef(server)` | a reference, for any rank, to an object that stays here |
# | `rref.rpc_sync().push(...)` | call a method of that object, where it lives, and wait for the result |
#
# Arguments and results travel by value: you get a copy.


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
    rank, world_size = start_rpc()  # init_rpc, under the name "rank0", "rank1", ...
    found = None
    if rank == 0:
        counter = rpc.RRef(Counter())
        futures = [rpc.rpc_async(f"rank{peer}", count, args=(counter, peer)) for peer in range(1, world_size)]
        found = [future.wait() for future in futures]
    rpc.shutdown()
    return found


labkit.run(first_calls, on=labkit.virtual(4), init=False).results[0]

# %% [markdown]
# All your servers extend this class. Calls arrive in several threads at once, so `pull` copies the weights while it
# holds a lock:
#
# ```python
# class Server:
#     def __init__(self, weight, num_workers, lr):
#         self.weight, self.num_workers, self.lr = weight.clone(), num_workers, lr
#         self.version = 0                   # how often the weights have changed
#         self.updates: list[Update] = []    # one record for each gradient that was used
#         self.lock = threading.Lock()
#
#     def pull(self):
#         with self.lock:
#             return self.version, self.weight.clone()
#
#     def leave(self, worker): ...           # this worker will push no more
# ```
#
# In an `Update(sequence, worker, version_read, version_applied)`:
#
# * `sequence` counts the used gradients from 0;
# * `version_read` is the version that the gradient was computed from;
# * `version_applied` is the version just before the step: 5 if the step made version 6.
#
# ### A call that is answered later
#
# The synchronous server steps with the mean of *all* workers' gradients, so the first push must wait for the last. If
# `push` itself waited, it would occupy a thread. With more workers than threads, none would be free for the last push,
# and all would wait forever. So `push` returns a **future**, and RPC sends the answer when somebody completes it:
#
# ```python
# @rpc.functions.async_execution        # "the result is in the future that I return"
# def push(self, worker, version, gradient):
#     ...
#     return self.future                # later, in another call: future.set_result(answer)
# ```
#
# Several pushes may return the same future: one `set_result` answers them all.
#
# ### Exercise [[sync_server]]
#
# *28 points, about 14 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="sync_server" points=28 difficulty=3 importance=5 minutes=14 title="The synchronous server" provides=["SyncServer"]
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

        Each worker pushes once in a step. The last push of a step subtracts lr times the mean, raises the version by
        one, and completes the future of all, with weights that no later step changes. Then the next step begins.
        Note an Update for every gradient, in the order of their arrival.

        Args:
            worker: Who pushes.
            version: Version of the weights the gradient was computed from.
            gradient: Gradient of the mean loss over the worker's samples; it has the shape of the weights.
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
# ## A call that waits is answered later
#
# ```python
# @rpc.functions.async_execution
# def push(self, worker, version, gradient):
#     with self.lock:
#         ...                       # keep the gradient
#         future = self.future      # the promise of this step
#         if everybody_is_here:
#             ...                   # step, new promise
#             future.set_result(...)
#     return future
# ```
#
# <!-- notes: No thread waits. The last one in answers for all. -->

# %% [markdown] tags=["slide-only"]
# ## One worker in four takes three times as long
#
# The others need 10 ms.
#
# **To the room:** how long is a synchronous step?
#
# <!-- notes: Reveal the timeline of section 2: three rows hatched for two thirds of the time. -->

# %% [markdown]
# The task: find 20 numbers from noisy samples. `train` runs your server on rank 0 and a worker on every other rank,
# until the weights have changed four times. A `Pace` sets how long a worker sleeps instead of computing: 10 ms a step.

# %%
run = labkit.run(train, partial(SyncServer, lr=1.0), 4, Pace(), on=labkit.virtual(5), init=False)
print(f"loss: server {run.results[0].seen[-1].loss:.6f}, one process {one_process(4, 4, 1.0):.6f}")
run.timeline

# %% [markdown]
# Rank 0 serves. Where a worker's row is hatched, its push waits. All go on together, and the loss is that of one
# process.
#
# ## 2 Enter the straggler
#
# Now worker 3, on rank 4, takes three times as long. How long is a step of all four?

# %%
ONE_SLOW = Pace(slow=((3, 3.0),))
slow = labkit.run(train, partial(SyncServer, lr=1.0), 4, ONE_SLOW, on=labkit.virtual(5), init=False)
print(f"a step: {1e3 * slow.results[0].seen[-1].seconds / 4:.1f} ms")
slow.timeline

# %% [markdown]
# Three workers wait two thirds of the time, as in an all-reduce. A server can answer at once.
#
# In **asynchronous SGD** the server applies each gradient on arrival, and its worker goes on with the current weights.
# Nobody waits. The price: while a worker computed, others changed the weights, so its gradient is old. Its
# **staleness** is `version_applied - version_read`: the versions in between.

# %% tags=["figure", "nbval-ignore-output"]
labkit.figure("stale", delay=2, learning_rate=0.6)

# %% [markdown] tags=["slide-only"]
# ## A stale gradient points downhill from where you were
#
# * the worker read the weights there
# * the server has moved on since
# * so the step may lead uphill
#
# <!-- notes: Play the figure of section 2. With a small learning rate the detour is small. -->

# %% [markdown]
# Somebody wrote such a server. Four workers pushed 16 gradients; only 15 reached the weights. Each span on rank 0 is
# one push, which writes at its end. Zoom in: its label says who pushes, and which version the push read.

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("lost_update")

# %% [markdown]
# ### Exercise [[lost_update]]
#
# `rank`: the rank whose gradient was lost. `version`: the version that its push read.
# `cause`: `"its worker is slow"`, `"it is stale"`, `"it came late and was dropped"` or
# `"another push read before this one wrote"`.

# %% tags=["find"] exercise="lost_update" points=0 minutes=6 title="The lost update"
labkit.answer("lost_update", rank=2, version=6, cause="another push read before this one wrote")

# %% [markdown] tags=["slide-only"]
# ## 16 pushed, 15 arrived
#
# No error. No warning.
#
# **To the room:** whose gradient is lost?
#
# <!-- notes: The recorded run of section 2. Every version should be read once on rank 0. -->

# %% [markdown]
# This was that server's `push`:
#
# ```python
# def push(self, worker, version, gradient):
#     before = self.weight
#     with self.lock:
#         self.weight = before - self.lr * gradient
#         self.version += 1
#     record = Update(len(self.updates), worker, version, self.version)
#     self.updates.append(record)
#     return self.version, self.weight
# ```
#
# ### Exercise [[async_server]]
#
# *17 points, about 5 minutes; difficulty 2 of 5, importance 5 of 5*
#
# Fix it. The lost update is not its only bug.


# %% tags=["exercise"] exercise="async_server" points=17 difficulty=2 importance=5 minutes=5 title="The asynchronous server" provides=["AsyncServer"]
class AsyncServer(Server):
    """Applies every gradient on arrival, and answers at once."""

    def push(self, worker: int, version: int, gradient: Tensor) -> tuple[int, Tensor]:
        """Apply the gradient, note an Update, and return (version, weights) at once.

        Calls may run at the same time. Subtract lr times the gradient and raise the version by one. No gradient may be
        lost. The returned weights are those of the returned version, and no later push changes them.

        Args:
            worker: Who pushes.
            version: Version of the weights the gradient was computed from.
            gradient: It has the shape of the weights.
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
# Now train until version 16. (A synchronous step uses the *mean* of N gradients, so here the learning rate is N times
# smaller.) **What is the largest staleness of the slow worker's gradients?**

# %% tags=["predict"]
labkit.predict("slow_workers_staleness", 3)

# %% tags=["nbval-ignore-output"]
asynchronous = labkit.run(train, partial(AsyncServer, lr=0.25), 16, ONE_SLOW, on=labkit.virtual(5), init=False)
late = max(asynchronous.results[0].staleness(worker=3))
labkit.reveal("slow_workers_staleness", late, labkit.staleness_view(asynchronous))

# %% [markdown]
# Step through: each gradient is shown with the updates it missed. While the slow worker computes one gradient, three
# fast workers push three each.
#
# How much staleness can SGD take? Take the loss w²/2: its gradient is w. With fresh gradients, SGD is stable at
# learning rates up to 2. With eight equal workers, each gradient is 7 versions old. **What is the largest stable
# learning rate now?**


# %%
def is_stable(rate, delay):
    w = [1.0] * (delay + 1)
    for _ in range(5000):
        w.append(w[-1] - rate * w[-1 - delay])
    return max(map(abs, w[-1000:])) <= 1


print(is_stable(2.0, delay=0), is_stable(2.0, delay=7))

# %% tags=["predict"]
labkit.predict("stable_rate", 0.5)

# %%
limits = {n: max(k / 100 / n for k in range(1, 201) if is_stable(k / 100 / n, n - 1)) for n in (1, 2, 8, 64)}
rows = [f"{n:7}{limit:15.3f}{n * limit:16.2f}" for n, limit in limits.items()]
labkit.reveal("stable_rate", round(limits[8], 3), ["workers   largest rate   times workers", *rows])

# %% [markdown]
# The limit fell to a tenth of 2. But with eight gradients an asynchronous server takes eight steps of rate r, a
# synchronous one takes one. Eight steps go as far as one at rate 8r. So compare 2 with 8r (last column). **For eight
# workers staleness costs a sixth of the largest learning rate**, for 64 a fifth. (For this loss and a constant delay of
# τ, theory says 2 sin(π / (4τ + 2)).)

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 3 A bound on staleness
#
# Between synchronous and asynchronous lies the **stale-synchronous** server (Ho et al., 2013). Each worker has a clock:
# how many gradients it has pushed. The server applies each gradient on arrival. A worker at most `bound` pushes ahead
# of the slowest is answered at once. A worker further ahead waits until the slowest is at most `bound` pushes behind.
# With bound 0, nobody goes on before all have pushed.
#
# ### Exercise [[bounded_server]]
#
# *35 points, about 23 minutes; difficulty 4 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="bounded_server" points=35 difficulty=4 importance=5 minutes=23 title="The bounded server" provides=["BoundedServer"]
# BEGIN SOLUTION bounded_server
def answer_who_may_go(server: Server) -> None:
    """Answer everybody who waits and is at most bound ahead of the slowest; called with the lock held."""
    slowest = min(server.clocks.values(), default=0)
    for worker in [each for each in server.waiting if server.clocks[each] - slowest <= server.bound]:
        server.waiting.pop(worker).set_result((server.version, server.weight.clone()))


# END SOLUTION


class BoundedServer(Server):
    """Applies every gradient on arrival; answers once the slowest worker is at most `bound` pushes behind."""

    def __init__(self, weight: Tensor, num_workers: int, lr: float, bound: int) -> None:
        """Keep a copy of the weights; see Server.

        Args:
            weight: Where to begin; one dimension.
            num_workers: Workers are numbered from 0; all of them are there from the start.
            lr: Learning rate.
            bound: The most by which a worker's clock may exceed the slowest worker's when it is answered; 0 or more.
        """
        super().__init__(weight, num_workers, lr)
        # BEGIN SOLUTION bounded_server
        self.bound = bound
        self.clocks = dict.fromkeys(range(num_workers), 0)
        self.waiting: dict[int, Future] = {}
        # END SOLUTION

    @rpc.functions.async_execution
    def push(self, worker: int, version: int, gradient: Tensor) -> Future:
        """Subtract lr times the gradient at once, raise the version by one and note an Update.

        The worker's clock goes up by one. Return a future. Complete it as soon as every remaining worker is at most
        `bound` pushes behind this one, with the (version, weights) of that moment, which no later push changes.
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
        """Take this worker out of the count: answer at once every push that waited only for it.

        The worker will push no more, and none of its own pushes waits for an answer.
        """
        # BEGIN SOLUTION bounded_server
        with self.lock:
            del self.clocks[worker]
            answer_who_may_go(self)
        # END SOLUTION


# %% tags=["check"]
labkit.check("bounded_server", BoundedServer)

# %% [markdown]
# Three fast workers, a slow one, and bound 2. Once the fast ones have used their head start, **how many steps does each
# of them take while the slow one takes ten?**

# %% tags=["predict"]
labkit.predict("fast_worker_steps", 30)

# %%
bounded = labkit.run(train, partial(BoundedServer, lr=0.25, bound=2), 80, ONE_SLOW, on=labkit.virtual(5), init=False)
pushes = [sum(each.worker == worker for each in bounded.results[0].updates) for worker in range(4)]
# minus the head start: right after a push of the slow worker, a fast one is 2 (the bound) ahead
labkit.reveal("fast_worker_steps", round(10 * (pushes[0] - 2) / pushes[3]), f"gradients of each worker: {pushes}")

# %% [markdown]
# When a push takes a fast worker three ahead, it is applied, but answered only with the slow worker's next push. Then
# the fast worker is two ahead again. So a worker that is *always* slow sets the pace. A bound helps against workers
# that are slow *now and then*.

# %% [markdown] tags=["slide-only"]
# ## When does the answer come?
#
# | | weights change | the answer comes |
# |---|---|---|
# | synchronous | with the mean of all N | after the last push |
# | asynchronous | with each gradient | at once |
# | bounded | with each gradient | when the slowest is near |
#
# <!-- notes: Staleness of N equal asynchronous workers is about N - 1. A worker k times as slow: k(N - 1). -->

# %% [markdown]
# ## 4 All three compared
#
# Eight workers. One always takes twice as long, and every worker stalls in one step of ten: that step takes four times
# as long (`stalls=0.1`). Each server may use 320 gradients.

# %%
PACE = Pace(slow=((7, 2.0),), stalls=0.1)
POLICIES = {  # how many gradients make one version, and how to make the server
    "synchronous": (8, partial(SyncServer, lr=0.4)),
    "bounded, 3": (1, partial(BoundedServer, lr=0.05, bound=3)),
    "asynchronous": (1, partial(AsyncServer, lr=0.05)),
}
runs = {
    name: labkit.run(train, make, 320 // each, PACE, on=labkit.virtual(9), init=False)
    for name, (each, make) in POLICIES.items()
}
print("               320 gradients   workers   staleness     loss after")
print("                   take, ms       wait   mean  most   200 ms   160 gradients")
for name, (each, _) in POLICIES.items():
    found, late = runs[name].results[0], runs[name].results[0].staleness()
    print(
        f"{name:14} {1e3 * found.seen[-1].seconds:12.0f} {waiting_share(runs[name].timeline):12.0%}"
        f" {sum(late) / len(late):6.1f} {max(late):5} {found.loss_at(seconds=0.2):8.3f} {found.loss_at(version=160 // each):10.3f}"
    )

# %% tags=["no-slide", "nbval-ignore-output"]
labkit.staleness_view(runs)

# %% [markdown]
# (`wait` is the share of their time that workers wait.) **How can staleness be far above a bound of 3?** The bound
# counts a worker's own *steps*. Staleness counts *versions*, and every gradient of every worker makes one. While worker
# A computes, B may go from 3 pushes behind to 4 ahead (the fourth is applied, not answered): 7 pushes. Seven
# workers make 49 versions. A bound of s steps bounds the staleness by (N - 1)(2s + 1) versions.
#
# *Per gradient* the three are close, at this small learning rate. *Per second* they are far apart: **a stale gradient
# is worth a little less, and it comes much sooner.**

# %% [markdown] tags=["slide-only"]
# ## Worth a little less, and much sooner
#
# | | speed | staleness |
# |---|---|---|
# | synchronous | the slowest of every step | 0 |
# | bounded | stalls cost nothing | (N - 1)(2s + 1) at most |
# | asynchronous | everybody's own | no limit |
#
# <!-- notes: The bound counts steps of one worker, staleness counts versions, which everybody makes. -->

# %% [markdown]
# ## 5 A policy of your own
#
# Servers differ in whom they wait for and how much they trust an old gradient. Write a **policy** as data:
#
# | | |
# |---|---|
# | `needed` | how many gradients make one version; the step subtracts the mean of (rate × gradient) |
# | `bound` | a worker is answered only while it is at most this many pushes ahead of the slowest; `None`: no bound |
# | `rates` | learning rates for staleness 0, 1, 2, ...; with k rates, a gradient of staleness k or more is dropped |
#
# A worker waits until two things are true: its gradient is in a version or was dropped, and the bound lets it go on.
# Dropped pushes count for the bound.
#
# The workers of a `Crew` need 9 to 11 ms for a gradient, but the last one is erratic: with `share=0.25, factor=10.0`, a
# quarter of its steps take ten times as long. They train four weights w with the loss Σ c(w-1)²/2; the curvatures c go
# from 1 to 0.03. `milliseconds(policy_of({...}), crew)` returns how many ms it takes until the loss is 0.01, the mean
# of six seeds (`None`: never). `play` returns what happened with one seed.

# %%
ERRATIC = Crew(num_workers=8, share=0.25, factor=10.0)
for policy in (policies.synchronous, policies.asynchronous, policies.bounded):
    found, rate = policies.with_best_rate(policy, ERRATIC)
    seeds = [play(policy(ERRATIC, rate), ERRATIC, seed).ms for seed in policies.SEEDS]
    print(
        f"{policy.__name__:12} {found:6.0f} ms ({min(seeds):.0f} to {max(seeds):.0f}), best of {policies.RATES}: {rate}"
    )

# %% [markdown]
# ### Exercise [[staleness_policy]]
#
# *20 points, about 18 minutes; difficulty 3 of 5, importance 4 of 5*
#
# Write a policy that reaches the loss sooner. Half of the points are for beating the best of these three ("naive"),
# half for matching "staleness-aware" (Zhang et al., 2016).


# %% tags=["design"] exercise="staleness_policy" points=20 difficulty=3 importance=4 minutes=18 weights=[1, 1, 1, 1] title="A policy for an erratic worker" provides=["staleness_policy"]
def staleness_policy(crew: Crew) -> dict:
    """Return a policy, {"needed": ..., "bound": ..., "rates": [...]}, that reaches the loss soon with this crew."""
    # BEGIN SOLUTION staleness_policy
    plans = []
    for needed in (1, 2):
        for rate in (0.25, 0.6, 0.75, 1.0, 1.5):
            for rates in ([rate] * 3, [rate] * 6, [rate / max(1, late) for late in range(1000)]):
                plan = {"needed": needed, "bound": None, "rates": rates}
                found = milliseconds(policy_of(plan), crew)
                if found is not None:
                    plans.append((found, len(plans), plan))
    return min(plans)[2]
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("staleness_policy", staleness_policy)

# %% [markdown] tags=["slide-only"]
# ## One worker in eight stalls now and then
#
# | 8 workers | ms to the loss |
# |---|---:|
# | synchronous | 492 |
# | bounded, 3 | 242 |
# | asynchronous | 127 |
# | staleness-aware | 119 |
# | best known | 89 |
#
# **To the room:** what would you do with its gradient?
#
# <!-- notes: Drop it. Two gradients make a version, what is staler than two is dropped, and the rate can be larger. -->

# %% [markdown]
# ## 6 Server or ring
#
# Take B = 100 MB of weights. Each of N workers pushes B and pulls B. The server's link carries N times B each way. With
# S servers, each carries N/S times B. In a ring, each link carries 2(N-1)/N times B. Put one server on each worker's
# machine. Each way, its link carries (N-1)/N times B for the worker and as much for the server: 2(N-1)/N times B, as in
# the ring. So without spare machines, servers gain nothing for dense weights.
#
# Servers win in two cases. A step that touches **few rows** of a large table pushes only those. And with N **spare CPU
# machines** as servers, each link carries only B each way. If one piece is pulled while the next is pushed, that beats
# the ring: BytePS (Jiang et al., 2020), in the bonus.

# %% [markdown] tags=["slide-only"]
# ## Eight servers come near a ring
#
# | 100 MB, 8 workers, 100 Gbit/s | ms |
# |---|---:|
# | ring | 15 |
# | 1 server | 136 |
# | 4 servers | 34 |
# | 8 servers | 17 |
#
# <!-- notes: Spare machines win when push and pull overlap: BytePS. A step that touches few rows: servers. -->

# %% [markdown] tags=["slide-only"]
# ## Where servers pay
#
# * a step touches **few rows** of a large table
# * workers are **unlike**, or come and go
# * **spare machines**, and push and pull overlap
#
# <!-- notes: torch.distributed.rpc is in maintenance mode. TorchRec, Ray, Monarch, or servers over gRPC and RDMA. -->

# %% [markdown]
# ## What to remember
#
# * A call that must wait returns a **future**; threads are for work, not for waiting.
# * Hold **one lock** from the read to the write, and hand out copies.
# * **Synchronous** waits for the slowest, **asynchronous** pays in staleness, **bounded** lets workers run a few steps
#   ahead.
# * Dense weights and equal workers: **all-reduce**. A few rows of a large table, or unequal workers: **servers**.
#
# `torch.distributed.rpc` is in maintenance mode. People use TorchRec for embedding tables, Ray or Monarch for actors,
# or their own servers over gRPC or RDMA.
#
# A table of two billion rows does not fit on your GPU, and the machine with popular rows may die. Where does each
# row live, and what survives? **Next:** lesson 07, `07_keys_rows_failures`.

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * a call that must wait returns a **future**
# * **one lock** from the read to the write
# * synchronous waits for the slowest, asynchronous pays in staleness
#
# Next: a table of two billion rows, and the machine with popular rows dies.

# %% [markdown]
# ### Sources
#
# * Y. Jiang et al., "A Unified Architecture for Accelerating Distributed DNN Training in Heterogeneous GPU/CPU
#   Clusters", OSDI 2020: BytePS.
# * M. Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014. J. Dean et al., "Large
#   Scale Distributed Deep Networks", NeurIPS 2012: asynchronous SGD.
# * Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NeurIPS 2013.
# * W. Zhang et al., "Staleness-Aware Async-SGD for Distributed Deep Learning", IJCAI 2016.
# * J. Chen et al., "Revisiting Distributed Synchronous SGD", 2016: backup workers.

# %% [markdown]
# ## Bonus: server or ring
#
# Section 6 counted bytes. Now count seconds. A link carries `bandwidth_Bps` in each direction at once, and a message
# costs `latency_s` before its first byte. The latencies of different messages overlap. First everybody pushes, then
# everybody gets the weights. Each of these two phases ends when the busiest link is done. Is that a server's link or a
# worker's? (It depends on whether there are more workers or more servers.)
#
# Now let a step touch only a share of the weights. With servers, only that share is pushed and pulled. A ring sends
# everything, zeros too. **What is the largest share with which servers are no slower than the ring, by bandwidth
# alone?**
#
# ### Exercise [[server_or_ring]]
#
# *20 points, about 10 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="server_or_ring" points=20 difficulty=2 importance=4 minutes=10 title="Server or ring" provides=["server_seconds", "largest_share"] bonus=true
def server_seconds(
    num_bytes: float, num_workers: int, num_servers: int, latency_s: float, bandwidth_Bps: float
) -> float:
    """Return the time of one synchronous step: all workers push their gradient, then all get the weights.

    Args:
        num_bytes: B, the size of all weights; every server holds an equal part.
        num_workers: N.
        num_servers: S; each has a link of its own.
        latency_s: Latency of one message. Latencies overlap, so each of the two phases costs one latency.
        bandwidth_Bps: Bandwidth of every link, in each direction.
    """
    # BEGIN SOLUTION server_or_ring
    return 2 * (latency_s + max(1, num_workers / num_servers) * num_bytes / bandwidth_Bps)
    # END SOLUTION


def largest_share(num_workers: int, num_servers: int) -> float:
    """Return the largest share of the weights with which servers are no slower than a ring.

    Only bandwidth counts here, no latency. The ring reduces all weights among the workers.
    """
    # BEGIN SOLUTION server_or_ring
    ring = (num_workers - 1) / num_workers
    return min(1.0, ring / max(1, num_workers / num_servers))
    # END SOLUTION


# %% tags=["check"]
labkit.check("server_or_ring", server_seconds, largest_share)

# %% [markdown]
# A hundred megabytes, eight workers, 100 Gbit/s Ethernet:

# %%
from labkit.hardware import find_link
from labkit.servers.training import in_pieces, one_ring, one_server_step, ring_seconds

SIZE, LINK = 100 * 10**6, find_link("ethernet_100g")
NUMBERS = (LINK.latency_ns / 1e9, LINK.share * LINK.bytes_per_second)
ring = max(labkit.run(one_ring, SIZE, on=labkit.virtual(8, link=LINK, algorithm="ring")).results)
rows = ["100 MB, 8 workers       formula, ms   virtual, ms"]
rows.append(f"ring {1e3 * ring_seconds(SIZE, 8, *NUMBERS):30.1f} {1e3 * ring:13.1f}")
for servers in (1, 2, 4, 8):
    world = labkit.virtual(8 + servers, link=LINK)
    took = labkit.run(one_server_step, SyncServer, servers, SIZE, on=world, init=False).results[0]
    formula = server_seconds(SIZE, 8, servers, *NUMBERS)
    rows.append(f"{servers} server{'s' if servers > 1 else ' '} {1e3 * formula:25.1f} {1e3 * took:13.1f}")
print(*rows, sep="\n")

# %% [markdown]
# However many workers there are, a ring's link carries less than 2B each way; one server's link carries N times B.
# (With eight servers the run is slower than the formula: all workers send to server 0 first, and to server 7 last.)
#
# So are servers never worth it for dense weights? They can be. The formula counts all pushes and *then* all pulls, so
# each direction of a link is idle half the time. BytePS (Jiang et al., 2020) cuts the weights into small pieces and
# pulls one piece while it pushes the next: both directions are busy at once.
#
# Take eight workers and eight spare servers again. A ring took 15.1 ms, and a link needs 8.5 ms for 100 MB one way.
# **How many ms does a step take with 64 pieces, eight on each server?**

# %% tags=["predict"]
labkit.predict("overlapped_ms", 17.0, unit="ms")


# %%
def overlapped_step(pieces, worker, version, gradients):
    pushes = [piece.rpc_async().push(worker, version, each) for piece, each in zip(pieces, gradients, strict=True)]
    return [push.wait()[1] for push in pushes]


def waiting_step(pieces, worker, version, gradients):
    return [overlapped_step([piece], worker, version, [each])[0] for piece, each in zip(pieces, gradients, strict=True)]


rows, overlapped = ["pieces   each waited for, ms   overlapped, ms"], {}
for number in (8, 16, 32, 64):
    took = []
    for step in (waiting_step, overlapped_step):
        world = labkit.virtual(16, link=LINK)
        overlapped[number] = labkit.run(in_pieces, SyncServer, step, 8, number, SIZE, on=world, init=False)
        took.append(1e3 * max(overlapped[number].results))
    rows.append(f"{number:6}{took[0]:24.1f}{took[1]:17.1f}")
labkit.reveal("overlapped_ms", round(1e3 * max(overlapped[64].results), 1), rows)

# %%
overlapped[16].timeline

# %% [markdown]
# Zoom in on one worker (ranks 8 to 15): its pushes begin together, and the first answers come while the last pieces are
# still on their way out. With smaller pieces a step comes closer to the 8.5 ms that B needs on a link. It never gets
# there: nothing can be pulled before all have pushed a first piece, and each piece also pays a latency. The ring takes
# 15.1 ms: its links carry 2(N-1)/N times B each way.
#
# The spare machines bring links of their own. GPU clusters rarely have them to spare, and within a node NVLink is
# faster than any network, so all-reduce is the usual choice.

# %%
print("largest share of the weights with which servers are no slower than a ring, bandwidth alone")
print("workers    1 server  2 servers  8 servers  a server for each")
for number in (2, 8, 64):
    print(f"{number:7}" + "".join(f"{largest_share(number, each):11.1%}" for each in (1, 2, 8, number)))

# %% [markdown]
# ## Bonus: the first nine
#
# There is another way not to wait for the slowest. Have one or two workers more than you need, **backup workers**, and
# take each step with the mean of the first gradients that arrive (Chen et al., 2016). No gradient is stale. On real
# machines, which ones arrive first depends on timing, so a run cannot be repeated exactly. A late gradient belongs to a
# step that is over: it is dropped, and its worker gets the current weights.
#
# ### Exercise [[backup_workers]]
#
# *16 points, about 10 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="backup_workers" points=16 difficulty=3 importance=4 minutes=10 title="Backup workers" provides=["BackupServer"] bonus=true
class BackupServer(Server):
    """Takes each step with the mean of the first gradients that arrive; late ones are dropped."""

    def __init__(self, weight: Tensor, num_workers: int, lr: float, needed: int) -> None:
        """Keep a copy of the weights; see Server.

        Args:
            weight: Where to begin; one dimension.
            num_workers: Workers are numbered from 0.
            lr: Learning rate.
            needed: How many gradients make a step, 1 to num_workers.
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

        If that step is over already, drop the gradient, note no Update, and answer at once with the server's current
        (version, weights). Otherwise note an Update at once, and answer after the step. The push that brings the last
        of the `needed` gradients takes the step: subtract lr times their mean, raise the version by one. No later push
        changes the weights of an answer.
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
# Take ten workers. Each of them is four times slower in one step of ten. The synchronous server waits for all ten, the
# backup server for the first nine. **By what factor is it faster?**

# %% tags=["predict"]
labkit.predict("backup_speedup", 1.1)

# %%
seconds, rows = {}, []
for needed in (10, 9, 8):
    make = partial(BackupServer, lr=1.0, needed=needed)
    found = labkit.run(train, make, 40, Pace(stalls=0.1), on=labkit.virtual(11), init=False).results[0]
    seconds[needed] = found.seen[-1].seconds
    rows.append(f"the first {needed} of 10: {1e3 * seconds[needed] / 40:.1f} ms a step, loss {found.seen[-1].loss:.4f}")
labkit.reveal("backup_speedup", round(seconds[10] / seconds[9], 2), rows)

# %% [markdown]
# With ten workers somebody is slow in 1 - 0.9^10 = 65 % of all steps, and a synchronous server waits each time. With a
# hundred workers it is all but one step in 38,000.
#
# ## Bonus: the broken server of lesson 00
#
# In lesson 00 you met a parameter server in which everybody says "done" and the weight has not moved. It had three
# bugs: the thread was never started, `state` did not wait for the thread, and the workers never waited for their
# `isend`. Write a server that works. The gradients travel by plain `send` and `recv`. It needs no thread: the server's
# rank has nothing else to do.
#
# ### Exercise [[posted_training]]
#
# *10 points, about 8 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="posted_training" points=10 difficulty=2 importance=4 minutes=8 title="The post, mended" provides=["posted_training"] bonus=true
def posted_training(weight: Tensor, gradients: list[Tensor], num_gradients: int, lr: float) -> Tensor:
    """Subtract lr times every gradient of every worker from the weight, in any order; return it, the same on all ranks.

    Every worker sends each of its gradients to rank 0 in a message of its own; rank 0 may answer as it likes, with a
    broadcast for example.

    Args:
        weight: The weight at the start, the same on every rank; do not change it.
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

# %% [markdown]
# ## Bonus: break it on purpose
#
# **Push without a lock.** Eight workers push ones twenty-five times each, as fast as they can. The learning rate is -1,
# so each push adds 1. This server should count to 200. **What does it count to?**

# %% tags=["predict"]
labkit.predict("count_without_lock", 200)

# %%
from labkit.errors import RunError
from labkit.servers.training import crowd, one_goes


class NoLock(Server):
    def push(self, worker, version, gradient):
        weight = self.weight.clone()
        weight -= self.lr * gradient
        self.weight = weight
        return self.version, weight


counted = {
    server.__name__: labkit.run(crowd, server, 25, on=labkit.virtual(9), init=False).results[0]
    for server in (NoLock, AsyncServer)
}
labkit.reveal("count_without_lock", counted["NoLock"], [f"{name:12} {count}" for name, count in counted.items()])

# %% [markdown]
# Two pushes read the same weight, both add 1 to it, both write it back. One of them is gone, and nothing says so. In
# the virtual world this happens in the same way every time. On your machine it depends on timing: three real workers,
# 200 pushes each, should count to 600.

# %% tags=["nbval-ignore-output"]
labkit.run(crowd, NoLock, 200, on=labkit.local(4, device="cpu"), init=False).results[0]

# %% [markdown]
# If it says 600, run it again. A lost update can stay away in every test, and come on the day it matters.
#
# **A worker that just goes.** Let one worker return early, without a word. What will the others see?

# %% tags=["nbval-ignore-output"]
try:
    labkit.run(one_goes, partial(SyncServer, lr=1.0), on=labkit.virtual(4), init=False)
except RunError as error:
    print(error)

# %% [markdown]
# Read the last two lines first: two pushes wait for a future that nobody completes. Your bounded server is told when a
# worker leaves, and a backup server does not need every worker:

# %%
for make in (partial(BoundedServer, lr=1.0, bound=0), partial(BackupServer, lr=1.0, needed=2)):
    labkit.run(one_goes, make, on=labkit.virtual(4), init=False)

# %% [markdown]
# ## Bonus: on real processes
#
# Here are your bounded server and its workers as a function that also runs under plain `torchrun`. The function stays
# on the CPU: RPC sends GPU tensors only between workers that have told each other which device is which
# (`TensorPipeRpcBackendOptions.set_device_map`).


# %% tags=["export"]
def main() -> dict[str, float]:
    """Train with a bounded server on rank 0 and a worker on every other rank; return what rank 0 saw."""
    trained = train(partial(BoundedServer, lr=0.2, bound=2), 80, Pace(stalls=0.1))
    if trained is None:
        return {}
    return {"loss": round(trained.seen[-1].loss, 4), "largest_staleness": max(trained.staleness())}


# %% tags=["nbval-ignore-output"]
labkit.run(main, on=labkit.local(3, device="cpu"), init=False).results[0]

# %% [markdown]
# ```
# labkit export 06_parameter_server.ipynb --out parameter_server.py
# torchrun --nproc-per-node 4 parameter_server.py
# ```
