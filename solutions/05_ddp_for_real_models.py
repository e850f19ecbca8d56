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
# # 05 DDP for real models
#
# The run finished without an error, but the model is a little worse than last month's. Where do you look?
#
# Lesson 04 trained a well-behaved model: every parameter got a gradient in every step, and every rank had as much data
# as the others. Real models skip layers, keep running statistics, add up gradients over several passes, and run out of
# data on one rank before the others. With skipped layers or uneven data, the wrapper of lesson 04 hangs. With running
# statistics, the ranks' models differ in evaluation, and with accumulation it wastes time; neither raises an error.
#
# **Time:** [[minutes]] minutes, and a bonus. **You need** lesson 04: hooks, handles, and why all ranks must make the
# same calls in the same order. No GPU.
#
# **Stuck?** `labkit.hint("mini_ddp")` gives up to three hints. `labkit.lend("mini_ddp")` puts a working version into
# the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 05 DDP for real models
#
# No error, and the model is a little worse. Where do you look?
#
# <!-- notes: Skipped layers, running statistics, accumulation, uneven data: each breaks data parallelism, some of them without an error. -->

# %% tags=["parameters"]
gpt_steps = 60  # training steps in section 7

# %% tags=["given"]
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Sampler

import labkit
from labkit.models import GPT, Addition, loss_of, optimizer_for

# %% [markdown]
# ## 1 A wrapper that fits on one screen
#
# This wrapper sends all gradients in a single bucket. It hides no communication behind backward, but for well-behaved
# models it is right. Read it carefully: you will extend it twice, and may override any of its methods. (Or begin with
# your own wrapper of lesson 04: the checks do not ask how many buckets there are.)


# %% tags=["given"]
class OneBucketDDP(nn.Module):
    """Data parallelism in one bucket, which is sent when every parameter has its gradient."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.work, self.missing = module, None, 0
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        for p in self.trained:
            p.register_post_accumulate_grad_hook(self.on_gradient)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def on_gradient(self, parameter):
        self.missing = (self.missing or len(self.trained)) - 1  # 0 means that a new backward begins
        if self.missing == 0:
            self.launch()

    def launch(self) -> None:
        self.flat = self.pack() / dist.get_world_size()
        self.work = dist.all_reduce(self.flat, async_op=True)

    def pack(self) -> torch.Tensor:
        return torch.cat([p.grad.flatten() for p in self.trained])

    def unpack(self) -> None:
        for p, mean in zip(self.trained, self.flat.split([p.numel() for p in self.trained]), strict=True):
            p.grad.copy_(mean.view_as(p))

    def finish_gradient_synchronization(self) -> None:
        self.work.wait()
        self.unpack()
        self.work, self.missing = None, 0


# %% [markdown]
# ## 2 Several passes, one step
#
# When a batch does not fit into memory, you cut it into pieces. Each piece makes its own pass, forward and backward.
# The gradients of all passes add up in `parameter.grad`, and then the optimizer takes one step. This is **gradient
# accumulation**. Only the last pass needs the network:
#
# ```python
# optimizer.zero_grad()
# with ddp.no_sync():
#     loss_of(ddp(inputs), targets).backward()      # no gradient travels
# loss_of(ddp(more_inputs), more_targets).backward()
# ddp.finish_gradient_synchronization()
# ```
#
# Now every gradient is the sum over both passes, averaged over the ranks. (If you want the mean over the passes, divide
# each loss by their number. The wrapper does not do it for you.)
#
# ### Exercise [[accumulating_ddp]]
#
# *25 points, about 7 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="accumulating_ddp" points=25 difficulty=3 importance=4 minutes=7 title="no_sync for accumulation" provides=["AccumulatingDDP"]
class AccumulatingDDP(OneBucketDDP):
    """A wrapper with no_sync(), a context in which backward only adds to this rank's own gradients.

    The next backward outside this context sends what all passes have added up.
    """

    synchronize = True

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Return a context in which backward sends nothing.

        When it ends, even by an exception, backward sends again, and the exception goes on. What counts is where
        backward runs, not forward. Other wrappers go on sending. Contexts are not nested.
        """
        # BEGIN SOLUTION accumulating_ddp
        before, self.synchronize = self.synchronize, False
        try:
            yield
        finally:
            self.synchronize = before

    def on_gradient(self, parameter):
        if self.synchronize:
            super().on_gradient(parameter)
        # END SOLUTION


# %% tags=["check"]
labkit.check("accumulating_ddp", AccumulatingDDP)

# %% [markdown] tags=["slide-only"]
# ## Accumulate, and send once
#
# ```python
# with ddp.no_sync():
#     loss_of(ddp(inputs), targets).backward()   # no gradient travels
# loss_of(ddp(more_inputs), more_targets).backward()
# ```
#
# **To the room:** four passes. How many times fewer bytes?
#
# <!-- notes: Four times. Without no_sync the result is the same, and the network does four times the work. -->

# %% [markdown]
# ## 3 Models that misbehave
#
# **Skipped layers.** A layer may be in a branch that is not taken, it may be dropped at random, or it may be an expert
# that got no token. Then its hook never fires, and the bucket never fills. Another rank may have used that layer, and
# waits for you.
#
# How can a rank know that no more gradients will come? With `find_unused_parameters=True`, torch searches the graph
# before backward. Here it is simpler: once `finish_gradient_synchronization` is called, no more will come.
#
# **Used by nobody.** If no rank used a parameter in any pass, its `grad` must stay `None`. Zeros would let momentum or
# weight decay move it. But how does a rank know what the others used? They must tell it: something more must be sent.
#
# **Buffers.** BatchNorm's running statistics change in every forward, and each rank computes them from its own samples.
# Torch's answer: before a forward in training, all ranks copy rank 0's buffers.
#
# Torch has a trap here. Each forward decides whether the *next* one copies. After a training forward it copies, even if
# it is the first of an evaluation. After a forward inside `no_sync` it does not. So if only rank 0 evaluates, and calls
# `ddp(inputs)`, it waits for ever for the others. `ddp.module(inputs)` sends nothing.
#
# **Shared weights** need nothing new. The hook fires once, after both layers have added their part.
#
# ### Exercise [[mini_ddp]]
#
# *45 points, about 25 minutes; difficulty 4 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="mini_ddp" points=45 difficulty=4 importance=5 minutes=25 title="MiniDDP" provides=["MiniDDP"] needs=["accumulating_ddp"]
class MiniDDP(AccumulatingDDP):
    """Data parallelism for real models: parameters may stay unused on some or all ranks, buffers follow rank 0.

    * A parameter that some rank used, in any pass of the step, gets the mean over all ranks, on every rank. A rank that
      did not use the parameter contributes zeros.
    * A parameter that no rank used keeps grad None. You may rely on zero_grad() before every step: a grad that is not
      None was made in this step.
    * In a step, the gradients of all trained parameters are all-reduced. For a parameter that no rank used, zeros travel.
      Beyond the gradients, a step may all-reduce at most 8 bytes for each parameter tensor. No other collective is called
      for the gradients.
    """

    def forward(self, *args, **kwargs):
        """Return what the module returns.

        In training mode, each forward first copies rank 0's buffers to all ranks. Inside no_sync you may skip the copy,
        as torch may. Forward sends nothing else. In evaluation mode it sends nothing.
        """
        # BEGIN SOLUTION mini_ddp
        if self.training:
            for buffer in self.module.buffers():
                dist.broadcast(buffer, src=0)
        return super().forward(*args, **kwargs)
        # END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Return when every gradient is the mean over all ranks; afterwards the next step may begin."""
        # BEGIN SOLUTION mini_ddp
        if self.work is None:
            self.launch()
        super().finish_gradient_synchronization()

    def pack(self) -> torch.Tensor:
        """Return all gradients, zeros where there is none, and then a flag for each."""
        if any(p.grad is not None and p.grad.is_sparse for p in self.trained):
            raise TypeError("MiniDDP averages dense gradients, and one is sparse; use nn.Embedding(sparse=False).")
        parts = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in self.trained]
        flags = torch.tensor([float(p.grad is not None) for p in self.trained])
        return torch.cat([*parts, flags.to(parts[0])])

    def unpack(self) -> None:
        """Give the means to the parameters that some rank used."""
        sizes = [p.numel() for p in self.trained]
        *means, flags = self.flat.split([*sizes, len(sizes)])
        for p, mean, flag in zip(self.trained, means, flags.abs().tolist(), strict=True):
            if flag > 0:
                mean = mean.real if mean.is_complex() and not p.is_complex() else mean  # the widest dtype travelled
                p.grad = torch.empty_like(p).copy_(mean.view_as(p))
        # END SOLUTION


# %% tags=["check"]
labkit.check("mini_ddp", MiniDDP)

# %% [markdown]
# Torch does two things that you need not do:
#
# * gradients of different dtypes go into different buckets;
# * **sparse** gradients (`nn.Embedding(sparse=True)`) travel as lists of rows: an all-gather instead of an all-reduce.
#   Each rank then adds the rows up.
#
# Two other things torch leaves to you. First, BatchNorm takes mean and variance from this rank's samples alone, which
# is noisy with few samples per rank. `nn.SyncBatchNorm.convert_sync_batchnorm(model)` computes them over all ranks, at
# the price of two more collectives in every such layer. Second, torch does not deal out the samples. You must give
# every rank different ones: see the bonus exercise.

# %% [markdown] tags=["slide-only"]
# ## Four things that real models need
#
# | | if you forget it |
# |---|---|
# | a skipped layer | everybody waits |
# | used by nobody | weight decay moves it |
# | buffers | every rank evaluates another model |
# | accumulation | bytes for nothing |
#
# <!-- notes: Three of the four give no error. SyncBatchNorm is a choice of your own, not DDP's. -->

# %% [markdown]
# ## 4 A little worse
#
# Here are three recorded steps of four ranks. Each layer is a bucket. There is no error and the loss goes down, but the
# model is a little worse than on one GPU.

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("trains_worse")

# %% [markdown] tags=["slide-only"]
# ## Four ranks, three steps, a little worse
#
# **To the room:** which rank drifts away, and why?
#
# <!-- notes: The recorded run of section 4. Look at the end of a step: whose optimizer begins before the others'? -->

# %% [markdown]
# ### Exercise [[trains_worse]]
#
# Compare the rows at the end of a step. `rank`: whose model drifts away? `gap_ms`: in the first step, how many ms lie
# between the end of that rank's last all-reduce and the start of its optimizer (positive, whichever comes first)?
# `cause`: `"steps before the last bucket"`, `"clips before the mean"`, `"skips an all-reduce"` or `"trains on fewer
# samples"`?

# %% tags=["find"] exercise="trains_worse" points=0 minutes=5 title="A little worse"
labkit.answer("trains_worse", rank=2, gap_ms=0.75, cause="steps before the last bucket")

# %% [markdown]
# How would you have noticed without a timeline? Every hundred steps, sum all parameters into one number, and all-reduce
# it with `MIN` and with `MAX`. If minimum and maximum differ, the models differ. (If they are equal, the models very
# likely are.) This **checksum** costs a few bytes.
#
# The checksum tells you *that* ranks differ, not why. For that there is `labkit.audit`: it runs a program, unchanged,
# on virtual ranks. The audit looks at each parameter's gradient twice: when backward has made it, and when the
# optimizer uses it. The first program in `labkit/wrong_runs.py`, `a_little_worse`, has a mistake that makes ranks
# differ. Open the file. **Which line should the audit blame?** Then run the cell.

# %% tags=["nbval-ignore-output"]
from labkit.wrong_runs import a_little_worse

print(*labkit.audit(a_little_worse, on=labkit.virtual(4)).findings, sep="\n\n")

# %% [markdown]
# The first finding is the damage: rank 2 used a gradient that was not averaged. The second is the cause: rank 2 did not
# wait for that gradient's all-reduce, which line 18 started.
#
# Two more questions about averaging.
#
# **[[clip_where]].** Each rank clips its own gradient to norm 1, and then the clipped gradients are averaged. What do
# you get, compared with clipping the average: `"the same"`, `"an error"`, `"another direction"` or `"models that
# differ"`?

# %% tags=["why"] exercise="clip_where" title="Clip, then average"
labkit.answer("clip_where", "another direction")

# %% [markdown]
# **[[half_precision]].** Float16 ends at 65,504. Sixty-four ranks add up gradients of 2,000, and then divide the sum.
# What is the result: `"2000"`, `"infinity"` or `"0"`?

# %% tags=["why"] exercise="half_precision" title="Divide first or last"
labkit.answer("half_precision", "infinity")

# %% [markdown]
# No checksum finds the mistakes of [[clip_where]] and [[half_precision]], because all ranks stay equal.

# %% [markdown] tags=["slide-only"]
# ## Two mistakes without an error
#
# * clip on every rank, then average
# * float16: add up 64 gradients of 2,000, then divide
#
# **To the room:** what is the result of each?
#
# <!-- notes: Do both on the blackboard: a long gradient and a short one, then 64 times 2,000. All ranks stay equal in both, so no checksum finds them. -->

# %% [markdown]
# ## 5 Uneven inputs
#
# Streams of data do not divide evenly, and one rank runs out of batches first. If it leaves, the others wait for it in
# the next all-reduce. Torch's answer is `with ddp.join():`. Inside it, a rank without data keeps taking part in the
# others' all-reduces. You write a function instead.
#
# A rank may call `ddp.finish_gradient_synchronization()` without a backward. To your `MiniDDP` this looks like a rank
# that skipped every layer.
#
# ### Exercise [[uneven_inputs]]
#
# *30 points, about 14 minutes; difficulty 4 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="uneven_inputs" points=30 difficulty=4 importance=3 minutes=14 title="Uneven inputs" provides=["train_uneven"] needs=["mini_ddp"]
def train_uneven(
    ddp: MiniDDP,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    optimizer: torch.optim.Optimizer,
) -> int:
    """Train until no rank has a batch left; return the number of steps, equal on all ranks.

    In every step the gradient is the mean over the ranks that still have a batch. Each of them counts the same, however
    large its batch is. Every rank takes the same optimizer step.

    Args:
        ddp: The wrapped model, without buffers.
        batches: This rank's (inputs, targets), in order; other ranks may have more or fewer, or none.
        loss_of: Called as loss_of(output, targets).
        optimizer: Of the model's parameters.
    """
    # BEGIN SOLUTION uneven_inputs
    steps = 0
    while True:
        active = torch.tensor(float(steps < len(batches)), device=next(ddp.parameters()).device)
        dist.all_reduce(active)
        if active == 0:
            return steps
        optimizer.zero_grad()
        if steps < len(batches):
            inputs, targets = batches[steps]
            loss_of(ddp(inputs), targets).backward()
        ddp.finish_gradient_synchronization()
        for parameter in ddp.parameters():
            if parameter.grad is not None:
                parameter.grad *= dist.get_world_size() / active.item()
        optimizer.step()
        steps += 1
    # END SOLUTION


# %% tags=["check"]
labkit.check("uneven_inputs", train_uneven)

# %% [markdown] tags=["slide-only"]
# ## One rank runs out of data
#
# | | |
# |---|---|
# | it leaves | the others wait for ever |
# | it sends zeros | the mean is too small |
# | **it says so** | everybody divides by those who had data |
#
# <!-- notes: Torch's answer is ddp.join(). Yours is a function. -->

# %% [markdown]
# ## 6 More GPUs, more samples
#
# Two questions sound alike. **Weak scaling**: each GPU keeps its batch. How much longer is a step? (The **efficiency**
# of weak scaling is the time on one GPU, divided by the time on N.) **Strong scaling**: the whole batch stays as it is,
# and the GPUs share it. How much shorter is a step?
#
# Take the wrapper of section 1, four layers of 2048 x 2048, nodes of eight A100s with a 100 Gbit/s card for each GPU.
# Alone, a GPU gets 4096 samples. **On 64 GPUs with 64 samples each: how many times as fast is a step?**

# %% tags=["predict"]
labkit.predict("strong_scaling", 40.0)


# %% seconds=30
def one_step(batch):
    ddp = OneBucketDDP(nn.Sequential(*(nn.Linear(2048, 2048, device="meta") for _ in range(4))))
    dist.barrier()  # what comes before is not part of the step
    with labkit.span("step"):
        ddp(torch.empty(batch, 2048, device="meta")).sum().backward()
        ddp.finish_gradient_synchronization()


def step_ms(num_gpus, batch):
    world = labkit.virtual(num_gpus, gpu="a100", link="nvlink3", nic="ethernet_100g")
    spans = labkit.run(one_step, batch, on=world).timeline.spans(rank=0)
    return (spans.end_ns - spans.start_ns)[spans.name == "step"][-1] / 1e6


alone = step_ms(1, 4096)
strong = {n: alone / step_ms(n, 4096 // n) for n in (8, 64)}
weak = {n: alone / step_ms(n, 4096) for n in (8, 64)}
rows = [f"{n:3} GPUs: strong {alone / strong[n]:.1f} ms for {alone:.1f}, weak efficiency {weak[n]:.0%}" for n in strong]
labkit.reveal("strong_scaling", round(strong[64], 1), rows)

# %% [markdown]
# Alone, a GPU computes for 24.3 ms in a step. A 64th of that is 0.4 ms, and a step on 64 GPUs takes 2.5. Most of the
# rest is the all-reduce: each GPU still has 67 MB of gradients to send. (If all of it went through one card, that alone
# would take about 10 ms. But a node's eight cards share the bytes that leave the node.) With more GPUs, each one's
# computing shrinks, but its gradients do not. In weak scaling each GPU computes for 24 ms and sends for about 2 ms,
# however many GPUs there are: the efficiency stays high. But then the batch is 64 times as large, and a step is no
# longer the same step.
#
# A mean over more samples is less noisy, so you can take a larger step. How much larger? One step on N ranks should do
# the work of N steps on one rank.
#
# * **SGD** moves by the learning rate times the gradient. While the gradient stays about the same, one step at N times
#   the rate goes as far as N steps did: the **linear scaling rule**.
# * **Adam and AdamW** divide each gradient by its usual size. Suppose that gradients are mostly noise. Then their usual
#   size is the size of the noise, and the noise of a mean shrinks as the number of samples grows. So Adam divides by
#   less, and the true gradient moves the model further.
#
# **[[adam_rate]].** Sixteen ranks instead of one, each with the same batch as before, under AdamW. First think: leave
# the learning rate as it is. How many times as far downhill does a step of sixteen ranks go as a step of one rank? It
# should go as far as 16 of those. Then answer: by what factor must you multiply the learning rate?

# %% tags=["why"] exercise="adam_rate" title="The rate for sixteen"
labkit.answer("adam_rate", 4)

# %% [markdown]
# Where noise dominates, the factor is the square root of N. (The full rule, by Malladi and others, also changes Adam's
# betas and epsilon.) Both rules need a **warm-up**: large steps do harm at the very start, while the model changes
# fast, so the learning rate starts small and grows. Both rules hold only up to a **critical batch size**, which differs
# from task to task. Beyond it more GPUs cost money and save hardly any steps.

# %% [markdown] tags=["slide-only"]
# ## N times the batch, a larger rate
#
# | | learning rate |
# |---|---|
# | SGD | times N |
# | Adam, AdamW | times the root of N |
#
# And a warm-up. Up to the critical batch size.
#
# <!-- notes: Adam divides by the size of the gradient; what is left is the noise, which falls with the square root. -->

# %% [markdown] tags=["slide-only"]
# ## Twice the GPUs: weak or strong scaling
#
# | scaling | stays | shrinks |
# |---|---|---|
# | weak | batch of each GPU, gradients | nothing |
# | strong | **gradients** | compute |
#
# <!-- notes: Gradients never shrink. That is why strong scaling ends, and why people scale weakly. -->

# %% [markdown]
# ## 7 The GPT
#
# Now train a GPT with AdamW, two passes for each step, and clipping by the global norm. It runs on two real processes,
# under your wrapper and under torch's. The GPT shares a weight between embedding and output.


# %% tags=["given"]
def train_gpt(wrap, num_steps: int) -> list[float]:
    """Return this rank's loss in the last pass of each step."""
    torch.set_num_threads(1)
    model = GPT(seed=dist.get_rank()).to(labkit.device())  # different on each rank until it is wrapped
    ddp, optimizer, losses, task = wrap(model), optimizer_for(model), [], Addition()

    def backward(number):
        tokens, targets = task.batch(number, 64, rank=dist.get_rank(), world_size=dist.get_world_size())
        loss = loss_of(ddp, tokens.to(labkit.device()), targets.to(labkit.device())) / 2
        loss.backward()
        return 2 * loss.item()

    for step in range(num_steps):
        optimizer.zero_grad()
        with ddp.no_sync():
            backward(2 * step)
        losses.append(backward(2 * step + 1))
        if isinstance(ddp, MiniDDP):
            ddp.finish_gradient_synchronization()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return losses


# %% tags=["nbval-ignore-output"] seconds=40
wrappers = {"yours": MiniDDP, "torch's": DistributedDataParallel}
losses = {who: labkit.run(train_gpt, wrap, gpt_steps, on=labkit.local(2)).results[0] for who, wrap in wrappers.items()}
print("loss in the last step:", {name: round(of_steps[-1], 4) for name, of_steps in losses.items()})
print("never further apart than 0.01:", max(abs(a - b) for a, b in zip(*losses.values(), strict=True)) < 0.01)

# %% [markdown]
# ## 8 What to remember
#
# * Every rank makes the same calls in the same order, whatever its own data was.
# * A parameter that no rank used keeps `None` after `zero_grad`. Buffers are rank 0's.
# * Average, then clip, then step. Add in float32; if you must add in float16, divide first.
# * With N times the samples, multiply the learning rate by N for SGD and by √N for AdamW, with warm-up.
#
# **The next question.** Every rank waits for the slowest, in every step. What if it did not? What if each pushed its
# gradient to a place where the parameters live, took the newest ones, and went on? Lesson 06, `06_parameter_server`.

# %% [markdown] tags=["slide-only"]
# ## What to remember
#
# * the same calls in the same order
# * average, then clip, then step
# * compare a checksum of the ranks
#
# Next: what if nobody waited for the slowest?
#
# <!-- notes: All-reduce a checksum with MIN and with MAX every hundred steps: where they differ, so do the models. -->

# %% [markdown]
# ## Bonus: Who sees which samples
#
# Every rank must see different samples, the same number of them, in a new order each epoch. Nobody sends lists of
# indices: all ranks make the **same** shuffled list from a shared seed, and each takes its part.
#
# ### Exercise [[sharded_sampler]]
#
# *8 points, about 8 minutes; difficulty 2 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="sharded_sampler" points=8 difficulty=2 importance=4 minutes=8 title="Who sees which samples" provides=["ShardedSampler"] bonus=true
class ShardedSampler(Sampler):
    """This rank's part of the indices 0..size-1: the very ones that torch.utils.data.DistributedSampler yields.

    Their order is torch.randperm with a generator seeded with seed + epoch. The shuffled list is padded to the next
    multiple of world_size by repeating it from its beginning, more than once if necessary. With drop_last, it is cut
    to the multiple below instead. Rank r takes the elements r, r + world_size, r + 2 * world_size, ...

    Args:
        size: Number of samples.
        world_size: Number of ranks.
        rank: Whose part this is.
        shuffle: If True, the order is random; if False, it is 0, 1, 2, ...
        seed: Of the random order, the same on all ranks.
        drop_last: If True, drop the samples left over; if False, pad with the first ones.
    """

    def __init__(
        self, size: int, world_size: int, rank: int, shuffle: bool = True, seed: int = 0, drop_last: bool = False
    ) -> None:
        # BEGIN SOLUTION sharded_sampler
        self.size, self.world_size, self.rank = size, world_size, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        # END SOLUTION

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next; without it every epoch has the same order."""
        # BEGIN SOLUTION sharded_sampler
        self.epoch = epoch
        # END SOLUTION

    def __len__(self) -> int:
        """Return how many samples this rank sees in an epoch."""
        # BEGIN SOLUTION sharded_sampler
        return self.size // self.world_size if self.drop_last else -(-self.size // self.world_size)
        # END SOLUTION

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's indices."""
        # BEGIN SOLUTION sharded_sampler
        order = list(range(self.size))
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(self.size, generator=generator).tolist()
        total = len(self) * self.world_size
        order = (order * -(-total // max(self.size, 1)))[:total]
        return iter(order[self.rank : total : self.world_size])
        # END SOLUTION


# %% tags=["check"]
labkit.check("sharded_sampler", ShardedSampler)

# %% [markdown]
# Ten samples on three ranks are padded to twelve, so two samples are seen twice in every epoch. And if somebody forgets
# `set_epoch`? The loss goes down, nothing looks wrong, and the model sees the same batches in the same order for ever.
#
# ## Bonus: Say it with a number
#
# On one A100, the training of section 6 needs 20,000 steps of 4096 samples. Now you get 64 A100s. The task's critical
# batch size is 65,536 samples. Assume that up to there N times the batch needs an N-th of the steps, and that a larger
# batch saves no more steps.
#
# ### Exercise [[sixty_four_gpus]]
#
# *6 points, about 12 minutes; difficulty 3 of 5, importance 4 of 5*
#
# Weak scaling, strong scaling, or something between? Answer in two to five sentences, for a human reader. How many
# samples does each GPU get per step? How many times sooner is the training done? Why would training take longer with
# more samples per GPU, and why with fewer? `step_ms` of section 6 is still there. If you work alone, compare your
# answer with `labkit.lend("sixty_four_gpus")`.

# %% [markdown] tags=["write"] exercise="sixty_four_gpus" title="Sixty-four GPUs" minutes=12 difficulty=3 bonus=true rubric={"1,024 samples each: the whole batch is then the critical one": 2, "about 48 times sooner: a step 3 times as fast, and a 16th of the steps": 2, "says why 4,096 and 64 are worse: samples that save no steps; gradients that do not shrink": 2}
# 1024 samples on each GPU, so that all 64 together make the critical batch of 65,536. Then a 16th of the steps is
# enough, and `step_ms(64, 1024)` is 8.1 ms in place of 24.3 ms alone, 3.0 times as fast: I am done 48 times
# sooner. With 4096 each (weak scaling) a step takes 26.2 ms and three quarters of the samples save no step: 16 x 0.93
# is 15 times sooner. With 64 each (strong scaling) I keep all 20,000 steps, and one is only 9.6 times as fast, because
# the gradients, which do not shrink, take nearly all of it.

# %% [markdown]
# ### Sources
#
# * S. Li and others, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", *Proceedings of the
#   VLDB Endowment* 13 (2020): unused parameters, `no_sync`, buffers.
# * P. Goyal and others, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", arXiv:1706.02677 (2017): linear
#   scaling and warm-up.
# * S. Malladi and others, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", *NeurIPS* (2022): the
#   square root.
# * S. McCandlish and others, "An Empirical Model of Large-Batch Training", arXiv:1812.06162 (2018): the critical batch
#   size.
