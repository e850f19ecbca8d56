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
# # 07 Keys, rows and failures
#
# A recommender's table has two billion rows, 256 GB with optimizer state. It fits on none of your GPUs. Every batch
# touches a few hundred rows, the popular ones again and again. On Friday the machine with the most popular row dies.
#
# Where does a row live? What travels? And what is left after Friday?
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** futures and remote calls (lesson 06) and
# all-reduce (lesson 02); no GPU.
#
# **Stuck?** `labkit.hint("place_keys")` gives up to three hints. `labkit.lend("place_keys")` puts a working version
# into the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 07 Keys, rows and failures
#
# A table no GPU can hold. A machine that dies on Friday.
#
# <!-- notes: Ask where a row should live, before anybody says hash. -->

# %% tags=["given"]
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch import Tensor, nn
from torch.futures import Future

import labkit
from labkit.servers.replicas import Remote, hasty, survive
from labkit.servers.rows import circle, loads, train_alone, train_recommender
from labkit.servers.server import Server

# %% [markdown]
# ## 1 Where a key lives
#
# Each row of the table has a **key**, a whole number, and every worker must find a key's server without asking anybody.
# Three rules are common:
#
# * **by range**: each server gets one range of consecutive keys, so neighbours stay together;
# * **by hash**: keys are hashed first, so neighbours end up anywhere. Fibonacci hashing multiplies by 2654435761 and
#   keeps the lowest 32 bits. That is the key's **hash**, a number on a scale from 0 to 2^32. The scale is cut into S
#   equal parts, one for each server in order. A hash on a border belongs to the part that begins there;
# * **on a circle**: bend the scale into a circle and scatter some points of each server over it. A key belongs to the
#   first point at or after its hash. After the last point comes the first. This is **consistent hashing**.
#
# Python's own `hash` will not do. A string's hash differs between processes, and an integer's hash is itself, which
# scatters nothing.
#
# ### Exercise [[place_keys]]
#
# *20 points, about 10 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="place_keys" points=20 difficulty=2 importance=4 minutes=10 title="Where a key lives" provides=["place_by_range", "place_by_hash", "place_on_circle"]
def place_by_range(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    """Return each key's server, int64: keys 0 to num_keys - 1 are cut into one range for each server, in order.

    Each range has consecutive keys. The ranges' lengths differ by at most one, longer ones first.

    Args:
        keys: int64, of any shape, each 0 <= key < num_keys.
        num_keys: Number of keys.
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
    """Return each key's server, int64, by Fibonacci hashing.

    Args:
        keys: int64, of any shape, each 0 <= key < 2**31.
        num_servers: Servers, numbered from 0.
    """
    # BEGIN SOLUTION place_keys
    return (keys * 2654435761 % 2**32) * num_servers // 2**32
    # END SOLUTION


def place_on_circle(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    """Return each key's server, int64, by consistent hashing.

    Args:
        keys: int64, of any shape, each 0 <= key < 2**31.
        points: The points of all servers, int64, ascending, each 0 <= point < 2**32, all distinct; shape (P,).
        owners: The server of each point, int64, shape (P,).
    """
    # BEGIN SOLUTION place_keys
    return owners[torch.searchsorted(points, keys * 2654435761 % 2**32) % len(points)]
    # END SOLUTION


# %% tags=["check"]
labkit.check("place_keys", place_by_range, place_by_hash, place_on_circle)

# %% [markdown]
# Now a server joins; play the figure. On the circle it takes the keys just before its points, and no other key moves.

# %% tags=["figure", "nbval-ignore-output"]
labkit.figure("joining", num_servers=3, num_keys=14)

# %% [markdown]
# The same with a hundred thousand keys: a fifth server joins four. Each server has 64 points on the circle, and the
# points of the four old servers stay where they are. Every key whose server changes must be sent over the network.
# **What fraction of the keys moves with placement by hash?** (The output shows the other rules, too.)

# %% tags=["predict"]
labkit.predict("keys_that_move", 0.2)

# %%
every = torch.arange(100_000)
rules = {
    "by range": lambda servers: place_by_range(every, 100_000, servers),
    "by hash": lambda servers: place_by_hash(every, servers),
    "on a circle": lambda servers: place_on_circle(every, *circle(servers)),
    "key % S": lambda servers: every % servers,
}
moved = {name: (rule(4) != rule(5)).double().mean().item() for name, rule in rules.items()}
rows = [f"{name:12} {share:5.1%} of the keys move" for name, share in moved.items()]
labkit.reveal("keys_that_move", round(moved["by hash"], 2), rows)

# %% [markdown]
# The new server must get about a fifth. On the circle only its keys move; how many they are depends on where its points
# fell. By range and by hash, the parts of servers 0 to 3 used to end at 1/4, 2/4, 3/4 and 1 of the scale. Now they
# end at 1/5, 2/5, 3/5 and 4/5. Every key between an old end and the new one moves: 1/20 + 2/20 + 3/20 + 4/20 = 1/2.
# With `key % S`, a key stays only if key % 4 equals key % 5: the first four of every twenty.
#
# The price of the circle is balance: its stretches have different lengths, so servers get different shares. With more
# points for each server, the shares become more equal. More points also spread a dead server's keys over all the
# others.

# %% [markdown] tags=["slide-only"]
# ## A fifth server joins four. How many keys move?
#
# | rule | moves |
# |---|---|
# | by range, by hash | half |
# | on a circle | about a fifth, all to the new server |
#
# **To the room:** what is the price of the circle?
#
# <!-- notes: Balance. Stretches differ; more points even them out. Dynamo and Cassandra place keys like this. -->

# %% [markdown]
# ## 2 Rows from many servers
#
# A worker **pulls** the rows of its batch by key, computes, and **pushes** their gradients. `RowServer` in
# `labkit.servers.rows` holds rows and subtracts `lr` times what is pushed. You write the worker's side, which makes all
# servers look like one table:
#
# * a key that occurs several times in a batch travels **once**: one row comes back, and the *sum* of its gradients goes
#   out;
# * each server is called once, or not at all;
# * all calls are out before you wait for the first answer.
#
# After `distinct, index = torch.unique(keys, return_inverse=True)`, `distinct[index]` is `keys`. `index_add_` adds rows
# at given indices. `server.rpc_async().pull(keys)` returns a future.
#
# ### Exercise [[sparse_rows]]
#
# *25 points, about 15 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="sparse_rows" points=25 difficulty=3 importance=5 minutes=15 title="Rows from many servers" provides=["pull_rows", "push_rows"]
def pull_rows(servers: Sequence[rpc.RRef], place: Callable[[Tensor], Tensor], keys: Tensor) -> Tensor:
    """Return the rows of these keys, one for each position in keys, shape (K, D).

    Make exactly one call to each server that has any of the keys: server.rpc_async().pull(its_keys); its_keys has no
    duplicates. Make all calls before you wait for the first answer.
    Rows may have any floating dtype (float64 in the check); keep it.

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

    Make exactly one call to each server that has any of the keys: server.rpc_async().push(its_keys, sums). its_keys has
    no duplicates; sums has the summed gradient of each of these keys, in the dtype of gradients. Make all calls before
    you wait for the first answer.

    Args:
        servers: References to RowServers.
        place: place(keys) is the number of the server on which each key lives.
        keys: int64, shape (K,), K at least 1; keys may occur several times.
        gradients: One for each position in keys, shape (K, D).
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

# %% [markdown] tags=["slide-only"]
# ## Each distinct key travels once
#
# ```
# keys of the batch   7 3 7 5 3 3
# distinct keys       3 5 7           each travels once
# by server           [3, 5]  [7]     one call each, all at once
# rows                back to 7 3 7 5 3 3
# gradients           summed for each key, the same way
# ```
#
# <!-- notes: unique with return_inverse there, index_add_ back. Wait only when all calls are out. -->

# %% [markdown]
# ## 3 Popular keys
#
# Keys are not equally popular. The k-th most popular film is watched about 1/k as often as the first: a **power law**.
# Here key 0 is the most popular, key 1 comes second, and so on.
#
# Sending each key once saves bytes. But *every* worker still asks the server of key 0 in every step. Let eight workers
# pull and push batches of 1,024 keys with four servers. The 10,000 keys are placed by range. **What fraction of all
# requested rows comes from the busiest server?**

# %% tags=["predict"]
labkit.predict("busiest_server_share", 0.25)


# %%
rules = {
    "by range": partial(place_by_range, num_keys=10_000, num_servers=4),
    "by hash": partial(place_by_hash, num_servers=4),
    "on a circle": partial(place_on_circle, points=circle(4)[0], owners=circle(4)[1]),
}
busiest, rows = {}, []
for name, rule in rules.items():
    world = labkit.virtual(12, link="ethernet_10g")
    results = labkit.run(loads, pull_rows, push_rows, rule, 4, 3, 10_000, on=world, init=False).results
    served, took = [rows for rows, _ in results[:4]], max(seconds for _, seconds in results)
    busiest[name] = round(max(served) / sum(served), 3)
    rows.append(f"{name:12}  rows asked for {served}, busiest {busiest[name]:.0%}, {1e3 * took:.1f} ms")
labkit.reveal("busiest_server_share", busiest["by range"], rows)

# %% [markdown]
# Why 73 %? By the power law, the first quarter of the keys draws 86 % of the visits: (1 + 1/2 + ... + 1/2500) / (1 +
# ... + 1/10000). But a batch asks for each key only once, however often it occurs. Repeated keys are mostly popular
# ones, so this mostly relieves the first server: its share drops to 73 %. Ids often follow age or popularity, so a
# range puts all popular keys in one place. A hash spreads them.
#
# Here is a recorded run: four workers train with three servers, and all wait for one server. Each server holds twenty
# keys. Here key k lives on rank k % 3. A span on a server's row is one call: the verb, the asking rank, the keys.

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("hot_server")

# %% [markdown]
# ### Exercise [[hot_server]]
#
# `server`: the rank of the server that the others wait for. `key`: the key that keeps it busy. `cause`: `"it holds more
# keys"`, `"one worker is slow"`, `"every batch has this key"` or `"its link is slow"`.

# %% tags=["find"] exercise="hot_server" points=0 minutes=4 title="The busy server"
labkit.answer("hot_server", server=2, key=17, cause="every batch has this key")

# %% [markdown]
# A hash spreads the *keys*. It cannot spread **one** key, and a **hot key** is in every batch.
#
# What helps? **Copies** of the hot keys on all servers. A worker reads any copy, but a write must reach every copy. Do
# copies help in inference, which hardly writes? And in training, where each row that is read is also written? The bonus
# computes both.

# %% [markdown] tags=["slide-only"]
# ## No hash spreads one key
#
# | busiest of 16 servers | 0 copies | 10 | 1000 |
# |---|---|---|---|
# | a write for 100 reads | 2.4 × even | 1.1 | 1.1 |
# | as many writes as reads | 2.4 | 3.3 | 6.7 |
#
# **To the room:** which line of the table is training?
#
# <!-- notes: A write goes to every copy. The notebook prints the exact numbers. -->

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 4 Rows from servers, layers by all-reduce
#
# A recommender also has a small dense network, all of which changes in each step: work for all-reduce. One step uses
# both. *After the step, layers and rows must have the values that one process with all samples would have computed.*
#
# Two facts matter here. Pulled rows come without an autograd graph. And the pushes of all workers *add up* on the
# servers. What must your step do because of each?
#
# ### Exercise [[server_hybrid]]
#
# *25 points, about 15 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="server_hybrid" points=25 difficulty=3 importance=4 minutes=15 title="The hybrid step" provides=["hybrid_step"]
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

    Average the layers' gradients over the workers of group and step the optimizer. Scale the rows' gradients so that
    the sum of all workers' pushes is the gradient of the mean loss over all workers' samples. Discard the gradients
    of the previous step. A frozen parameter has no gradient and stays as it is; every other parameter gets a gradient
    on every worker.

    Args:
        model: Dense layers: model(rows), with rows of shape (B, K, D), returns one number for each sample, shape (B,).
        optimizer: Holds the model's parameters; it may keep state from step to step.
        pull: pull(keys) returns the rows of flat keys, shape (B * K, D).
        push: push(keys, gradients) sends gradients of rows, shape (B * K, D), to the servers of these flat keys. The
            effects of all workers' pushes add up. A step begins only when every worker's pushes of the previous step
            have been answered.
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
# Six ranks: two hold the table, four train, with AdamW for the layers. A step begins only when every worker's pushes
# of the previous step have been answered. Compare with one process that has everything:

# %%
CIRCLE = partial(place_on_circle, points=circle(2)[0], owners=circle(2)[1])
hybrid = labkit.run(train_recommender, hybrid_step, pull_rows, push_rows, CIRCLE, 2, 30, on=labkit.virtual(6))
losses = torch.tensor(hybrid.results[2:]).mean(0)
alone = torch.tensor(train_alone(range(2, 6), 30))
print(
    f"loss {losses[:5].mean():.4f} -> {losses[-5:].mean():.4f}; one process ends within {(losses - alone).abs().max():.0e}"
)
calls = [span for span in hybrid.timeline.rows() if span.rank == 2 and span.kind == "rpc_async"]
print(
    f"a trainer's step sends {sum(span.bytes for span in calls) / 30:,.0f} bytes to servers; the whole table has {2000 * 16 * 4:,}"
)

# %% [markdown]
# With two billion rows, the table would grow to 128 GB (without optimizer state). A trainer's step would still send
# as many bytes as here, because its batches are the same.
#
# **[[late_adagrad]].** The rows' optimizer lives with the rows, and so does its state. The state begins at 0. Adagrad
# adds each gradient's *square* to it, then moves the row by lr x gradient / √state. One push of a row's first gradient
# would move it a distance d. Instead four workers push equal quarters, and the server runs Adagrad on each quarter as
# it arrives. How far does the row move now, as a multiple of d?

# %% tags=["why"] exercise="late_adagrad" title="Adagrad on every push"
labkit.answer("late_adagrad", 2.78)

# %% [markdown] tags=["slide-only"]
# ## Layers all-reduce, rows pull and push
#
# | | changes in a step | how | optimizer's state |
# |---|---|---|---|
# | layers | all | all-reduce | on each worker |
# | rows | a few hundred | pull, push | with the rows |
#
# Both are the gradient of **one** mean.
#
# <!-- notes: Each worker pushes 1/N of its row gradient. With Adagrad the server must add up first: squares do not add. -->

# %% [markdown]
# ## 5 A server dies
#
# With all-reduce every rank holds all weights. A server's rows are nowhere else. A push is **acknowledged** when its
# answer has come. The promise, if one server dies: *what was acknowledged is not lost, and nothing counts twice.*
#
# * **Primary and backup.** Workers push to the primary. It passes each gradient on and acknowledges when the *backup*
#   has it.
# * **Retry.** A worker that gets an error pushes the same gradient to the backup, which is now in charge.
# * **Once.** The primary may have passed the gradient on and died before it acknowledged. So each gradient carries its
#   worker's number and a sequence number, and a server never applies the same pair twice.
#
# `Remote("rank1").push(worker, number, gradient)` calls the server on that rank by name and returns a future.
# `first.then(function)` returns a second future. When `first` completes, `function(first)` runs, and its return value
# completes the second; if it raises, the second fails with that error. Inside `function`, `first.value()` returns the
# answer or raises the error of `first`. A call to a dead rank raises `RuntimeError`, at once or when you wait.
#
# ### Exercise [[replicated_server]]
#
# *30 points, about 23 minutes; difficulty 4 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="replicated_server" points=30 difficulty=4 importance=4 minutes=23 title="Nothing acknowledged is lost" provides=["Replica", "push_safely"]
class Replica(Server):
    """A server that may have a backup: another Replica that is told of every gradient before it is acknowledged."""

    def __init__(self, weight: Tensor, num_workers: int, lr: float, backup: Remote | None = None) -> None:
        """Keep a copy of the weights; see Server.

        Args:
            weight: Where to begin; one dimension.
            num_workers: Workers are numbered from 0.
            lr: Learning rate.
            backup: The Replica that takes over, on another rank; None if there is none.
        """
        super().__init__(weight, num_workers, lr)
        # BEGIN SOLUTION replicated_server
        self.backup = backup
        self.applied: set[tuple[int, int]] = set()
        # END SOLUTION

    @rpc.functions.async_execution
    def push(self, worker: int, number: int, gradient: Tensor) -> Future:
        """Subtract lr times this gradient once, however often it is pushed; return a future of the version.

        Several calls may run at once, each in its own thread; self.lock keeps them apart. Apply a new gradient as soon
        as it arrives, and raise self.version by one. (Lesson 06's Update is not used here.) The future's value is this
        server's version right after this call. A repeated push changes neither weights nor version.

        With a backup, call backup.push(worker, number, gradient) for every push, also for a repeated one; the order of
        these calls does not matter. Complete the future only when the backup has answered that call. If the backup's
        future fails, so does this one. The call itself waits for nobody.

        Args:
            worker: Who pushes.
            number: Which of the worker's gradients this is; (worker, number) identifies a gradient.
            gradient: It has the shape of the weights.
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
    """Push a gradient to the replicas in order until one answers; return the index of that one.

    Send every replica the same worker and number. Do not call the replicas after the one that answers.

    Args:
        replicas: The primary first; replica.push(worker, number, gradient) returns a future.
        worker: Who pushes.
        number: Which of the worker's gradients this is.
        gradient: It has the shape of the weights.

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
# Now kill one. Three workers push 40 gradients each. Worker k's are 1 at index k and 0 elsewhere, and the learning rate
# is -1, so the weights *count*. In the middle the primary leaves without a word.

# %%
ONES = [[row] * 40 for row in torch.eye(3)]


def killed_at(moment, make=Replica):
    world = labkit.virtual(5)
    return labkit.run(survive, make, push_safely, ONES, moment, on=world, init=False, echo=False).results


_, (_, held), *workers = killed_at(0.05)
rows = [f"worker {k}: the primary acknowledged {one}, the backup {two}" for k, (one, two) in enumerate(workers)]
print(f"in the backup's weights: {held.int().tolist()}", *rows, sep="\n")

# %% [markdown]
# Nothing lost, nothing applied twice. Now kill at ten moments, and then a real process:

# %% tags=["nbval-ignore-output"] seconds=10
ends = [killed_at(moment / 1000)[1][1].tolist() for moment in range(10, 110, 10)]
print(f"killed at {len(ends)} moments, every time all are there, once: {all(end == [40.0] * 3 for end in ends)}")
real = labkit.run(
    survive, Replica, push_safely, ONES[:2], 0.1, True, on=labkit.local(4, device="cpu"), init=False, echo=False
)
print(
    f"a killed process: {real.results[1][1][:2].int().tolist()} in the backup's weights, acknowledged {real.results[2:]}"
)

# %% [markdown]
# The promise costs one more round trip for every push, and the worker waits for it. Redis and MySQL, by default, answer
# first and tell the backup later: asynchronous replication. Take such a primary. It answers each push at once, and
# forwards gradients in batches of five, whoever sent them. **Killed at the same ten moments, how many of the 1,200
# acknowledged gradients are lost?**

# %% tags=["predict"]
labkit.predict("lost_by_the_hasty", 100)


# %%
lost = [120 - int(killed_at(moment / 1000, hasty(Replica))[1][1].sum()) for moment in range(10, 110, 10)]
labkit.reveal("lost_by_the_hasty", sum(lost), f"killed at {len(lost)} moments, at most {max(lost)} lost at once")

# %% [markdown]
# A kill loses the batch that was not full yet: here up to four gradients, on average two. Nobody is told, because no
# call failed.
#
# Li et al. (2014) found a cheaper way that keeps the promise. Their servers **replicate after aggregation**: the
# primary first adds up the gradients of all workers in a step, then passes on *one* sum. So N messages to the backup
# become one.
#
# (After the primary has died, the backup has no backup of its own until someone starts one. If the *backup* dies, the
# primary still applies gradients, but acknowledges none until the backup is replaced. If the primary was only slow, two
# servers act as primary. Real systems let a majority decide.)
#
# **[[after_aggregation]].** When may a primary that replicates after aggregation acknowledge a push? Choose `"when it
# has arrived"`, `"when it is in the sum"` or `"when the backup has the sum"`.

# %% tags=["why"] exercise="after_aggregation" title="One sum for all"
labkit.answer("after_aggregation", "when the backup has the sum")

# %% [markdown] tags=["slide-only"]
# ## Acknowledged: two have it
#
# ```
# worker --(worker, number)--> primary --the same--> backup
#        <---acknowledged-----         <--has it----
# ```
#
# **To the room:** no answer comes. What does the worker send, and to whom?
#
# <!-- notes: The same number, to the backup. Kill at every moment, not at one. The hard case is a primary that is slow and not dead: two in charge. -->

# %% [markdown] tags=["slide-only"]
# ## Replicate after aggregation
#
# * every gradient to the backup: N messages a step
# * add up first: **one**
#
# **To the room:** and when may the primary say "acknowledged"?
#
# <!-- notes: Li et al. 2014. The price is waiting: the first worker is told when the last one has come. -->

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * a circle moves only what the new server takes
# * no hash spreads one key
# * acknowledged means that **two** have it
#
# Next: what if the layers fit on no device?
#
# <!-- notes: A retry is harmless because it carries the same number. -->

# %% [markdown]
# ## What to remember
#
# * A circle moves only the keys that a new server takes.
# * Send each distinct key once. Call all servers at the same time.
# * A hash cannot spread a single hot key.
# * Few samples touch a row, so rows live on servers. All samples touch a layer, so layers are all-reduced. The
#   optimizer's state lives with its weights.
# * While both servers live, a push is acknowledged only when **both** have it. Sequence numbers make a retry harmless.
#
# Every worker still needs all the layers. What if they fit on no device? **Next:** lesson 08, `08_pipeline`, cuts the
# model.

# %% [markdown]
# ## Bonus: copies of hot keys
#
# No placement spreads one key, but copies do. They are not free: what is read often may be written often.
#
# ### Exercise [[hot_keys]]
#
# *10 points, about 5 minutes; difficulty 2 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="hot_keys" points=10 difficulty=2 importance=3 minutes=5 title="Copies of hot keys" provides=["server_loads"] bonus=true
def server_loads(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    """Return how many rows each server must read or write, float64, shape (num_servers,).

    The num_hot most-read keys have one copy on every server, home included; every other key is only at home. A read
    goes to one copy, and reads are spread evenly over the copies. A write goes to every copy.

    Args:
        reads: How often each key is read, float64, shape (K,), all distinct.
        writes: How often each key is written, float64, shape (K,).
        home: The server on which each key lives, int64, shape (K,).
        num_servers: Servers, numbered from 0.
        num_hot: Number of keys that have copies, 0 to K.
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

# %% [markdown]
# Sixteen servers hold 10,000 keys by hash. An even share is a sixteenth of all reads and writes. Without copies the
# busiest server does 2.4 even shares. **Training has as many writes as reads. How many even shares does the busiest
# server do with copies of the ten hottest keys?**

# %% tags=["predict"]
labkit.predict("ten_copies", 1.2)

# %%
popularity, home = 1 / torch.arange(1, 10_001, dtype=torch.float64), place_by_hash(torch.arange(10_000), 16)
rows = ["busiest of 16 servers / an even share; hot keys:      0     1    10   100  1000"]
for name, writes in (("a write for 100 reads", popularity / 100), ("as many writes as reads", popularity)):
    found = [server_loads(popularity, writes, home, 16, hot) for hot in (0, 1, 10, 100, 1000)]
    shares = [(load.max() / ((popularity + writes).sum() / 16)).item() for load in found]
    rows.append(f"{name:51}" + "".join(f"{share:6.2f}" for share in shares))
labkit.reveal("ten_copies", round(shares[2], 2), rows)

# %% [markdown]
# Ten keys draw 30 % of all visits. Their *reads* are now spread over sixteen servers, but each of their *writes* goes
# to all sixteen. Without copies, these writes are 15 % of all work (30 % of half). Now every server does all of them.
# An even share was 6.25 %, so they alone make 2.39 even shares. Copies help in inference. In training, where every push
# goes to every copy, they make the busiest server slower.
#
# A backup does not help when the power fails in the whole room. Lesson 16, `16_when_machines_fail`, is about what does.
#
# ### Sources
#
# * M. Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014: key ranges on a circle,
#   replication after aggregation.
# * D. Karger et al., "Consistent Hashing and Random Trees", STOC 1997.
# * D. Knuth, "The Art of Computer Programming", volume 3, section 6.4.
# * Redis documentation, "Replication", and MySQL Reference Manual, "Replication": asynchronous by default.
