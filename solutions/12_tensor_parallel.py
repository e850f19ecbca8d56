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
# # 12 Tensor parallelism
#
# Data parallelism copies a model; a pipeline cuts it between layers. If a *single layer* is too large for one GPU, or a
# single token takes too long, the matrix itself has to be cut.
#
# By the end, every block of your GPT is spread over several ranks, and the GPT trains to the same loss. You also know
# why such a block stays inside one machine.
#
# **Time:** [[minutes]] minutes (two sittings), and a bonus. **You need** `torch.distributed` from lesson 02,
# `autograd.Function`, and how attention works; no GPU.
#
# **Stuck?** `labkit.hint("two_operators")` gives up to three hints. `labkit.lend("two_operators")` puts a working
# version into the notebook: you forfeit its points, but every cell below it will run.

# %% [markdown] tags=["slide-only"]
# # 12 Tensor parallelism
#
# One layer, several GPUs
#
# <!-- notes: Data parallelism copies the model, pipelines cut it between layers. Here the matrix itself is cut. -->

# %% tags=["given"]

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

import labkit
from labkit.models import GPT, IGNORED, VOCABULARY, Addition, Block, train

Group = dist.ProcessGroup | None


def my_part(count: int, group: Group = None) -> slice:
    """Return which of `count` things are this rank's; parts differ by at most one, and longer parts come first."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    short, longer = divmod(count, size)
    first = rank * short + min(rank, longer)
    return slice(first, first + short + (rank < longer))


# %% [markdown]
# ## 1 Columns, then rows
#
# Write a layer as `x @ A`. You can give each rank some **columns** of `A`, or some **rows**:

# %% tags=["figure"]
labkit.matrix_cuts()

# %% [markdown]
# * With columns, each rank reads all of `x` and computes some columns of the result. In forward nothing travels.
# * With rows, each rank reads only *its columns of `x`*, and gets a **partial sum** of the whole result. An
#   all-reduce adds the partial sums up.
#
# (`nn.Linear` stores its weight transposed: columns of `A` are *rows of* `weight`.)
#
# **[[gelu_of_parts]].** An MLP computes `gelu(x @ A) @ B`. `x` is whole on every rank, and the result must be, too.
# How do you cut `A` and `B` so that forward communicates least? Choose `"columns, columns"`, `"columns, rows"`,
# `"rows, columns"` or `"rows, rows"`.

# %% tags=["why"] exercise="gelu_of_parts" title="Two cuts"
labkit.answer("gelu_of_parts", "columns, rows")

# %% [markdown]
# So you cut an MLP's first matrix by columns and its second by rows.

# %% [markdown] tags=["slide-only"]
# ## Columns first, rows second
#
# | | reads | leaves | sends |
# |---|---|---|---|
# | columns of A | all of x | some columns | nothing (in forward) |
# | rows of B | some columns | a partial sum | all-reduce |
#
# <!-- notes: What the first leaves is what the second reads. GELU works on single numbers, so it needs no exchange. -->

# %% [markdown]
# ## 2 Two operators
#
# In backward, autograd knows nothing of other ranks. So two operators stand at the borders of the cut region:
#
# ```
#   x -- enter --> columns -> gelu -> rows -- leave --> y
# ```
#
# They make one promise: *every tensor gets the same gradient as in one process.* In backward, does each rank have the
# whole gradient of `y`, or only a partial sum of it? And what does it have of the gradient of `x`? An
# `autograd.Function` defines its own backward:
#
# ```python
# class Twice(torch.autograd.Function):
#     @staticmethod
#     def forward(ctx, x, group):
#         ctx.group = group  # for backward
#         return 2 * x
#
#     @staticmethod
#     def backward(ctx, gradient):
#         return 2 * gradient, None  # one for each argument of forward
#
# y = Twice.apply(x, group)
# ```
#
# A `group` holds the ranks that share one copy of the model; `None` means all ranks. Other groups may work on other
# batches.
#
# ### Exercise [[two_operators]]
#
# *25 points, about 12 minutes; difficulty 3 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="two_operators" points=25 difficulty=3 importance=5 minutes=12 title="Two operators" provides=["enter", "leave"]
# BEGIN SOLUTION two_operators
class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None  # one for each argument of forward: the group has no gradient


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


# END SOLUTION
def enter(x: Tensor, group: Group = None) -> Tensor:
    """Return x. In backward, x gets the gradient that it would get if one process did the whole group's work."""
    # BEGIN SOLUTION two_operators
    return Enter.apply(x, group)
    # END SOLUTION


def leave(x: Tensor, group: Group = None) -> Tensor:
    """Return the sum of x over all ranks of the group; in backward, x gets the same gradient as in one process.

    Every rank then computes the same loss from the sum. It is one loss: the gradient of x is the gradient of this
    loss, not of N times it. The given x is not modified.
    """
    # BEGIN SOLUTION two_operators
    return Leave.apply(x, group)
    # END SOLUTION


# %% tags=["check"]
labkit.check("two_operators", enter, leave)

# %% [markdown] tags=["slide-only"]
# ## f and g are conjugate
#
# | | forward | backward |
# |---|---|---|
# | enter (f) | nothing | **all-reduce** |
# | leave (g) | **all-reduce** | nothing |
#
# <!-- notes: The gradient of x is a partial sum on each rank, because each rank knows only its own columns. -->

# %% [markdown]
# In forward, only `leave` adds up; in backward, only `enter` does. Such a pair of operators is called **conjugate**.
# Megatron-LM calls `enter` *f* and `leave` *g*.
#
# `leave` needs no Function: copy `x`, then all-reduce the copy under `torch.no_grad()`. Autograd sees only the copy,
# which passes its gradient on unchanged. But `enter` must change what backward does.
#
# ## 3 A block in pieces
#
# **The bias of the second layer** counts once. If every rank adds it before the all-reduce, it counts N times.
#
# **Heads.** Attention is cut by heads: each computes alone until `out` mixes them. But `qkv.weight` is three matrices
# on top of each other: all of q, all of k, all of v, each with one head after another. The first half of its rows is
# *not* the first half of the heads: it is all of q and half of k. The shapes fit all the same, so no error tells you.
# (See `Block.attention??`.)
#
# Heads need not divide evenly: of 5 heads, `my_part` gives two ranks 3 and 2.
#
# ### Exercise [[parallel_block]]
#
# *40 points, about 35 minutes; difficulty 4 of 5, importance 5 of 5*


# %% tags=["exercise"] exercise="parallel_block" points=40 difficulty=4 importance=5 minutes=35 title="A block in pieces" provides=["ParallelMLP", "ParallelAttention"] needs=["two_operators"]
class ParallelMLP(nn.Module):
    """down(gelu(up(x))); this rank computes its hidden units, `my_part` of them: one or more. Both layers have biases.

    * x and the result are whole and the same on every rank of the group.
    * After one step of plain SGD on every rank's parameters(), the module computes what down(gelu(up(x))) computes
      after one step of plain SGD on up and down in one process. Names and shapes of the parameters are your choice.
    * A rank stores copies of the weights that it uses, and no others. up and down never change, neither when they are
      cut nor in a later step.
    """

    def __init__(self, up: nn.Linear, down: nn.Linear, group: Group = None) -> None:
        super().__init__()
        # BEGIN SOLUTION parallel_block
        self.group, mine = group, my_part(up.out_features, group)
        self.up = nn.Parameter(up.weight.detach()[mine].clone())
        self.up_bias = nn.Parameter(up.bias.detach()[mine].clone())
        self.down = nn.Parameter(down.weight.detach()[:, mine].clone())
        self.bias = nn.Parameter(down.bias.detach().clone())
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        # BEGIN SOLUTION parallel_block
        hidden = functional.gelu(functional.linear(enter(x, self.group), self.up, self.up_bias))
        return leave(functional.linear(hidden, self.down), self.group) + self.bias
        # END SOLUTION


class ParallelAttention(nn.Module):
    """Compute what `labkit.models.Block.attention` computes; this rank has `my_part` of the heads.

    What is said of ParallelMLP holds here, too.

    Raises:
        ValueError: If the group has more ranks than there are heads.
    """

    def __init__(self, qkv: nn.Linear, out: nn.Linear, num_heads: int, group: Group = None) -> None:
        super().__init__()
        # BEGIN SOLUTION parallel_block
        size = dist.get_world_size(group)
        if size > num_heads:
            raise ValueError(f"{num_heads} heads for {size} ranks: use {num_heads} ranks or fewer")
        self.group, self.width, heads = group, out.in_features // num_heads, my_part(num_heads, group)
        mine = slice(heads.start * self.width, heads.stop * self.width)
        self.qkv = nn.Parameter(torch.cat([each[mine] for each in qkv.weight.detach().chunk(3)]))
        self.qkv_bias = nn.Parameter(torch.cat([each[mine] for each in qkv.bias.detach().chunk(3)]))
        self.out = nn.Parameter(out.weight.detach()[:, mine].clone())
        self.bias = nn.Parameter(out.bias.detach().clone())
        # END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        # BEGIN SOLUTION parallel_block
        qkv = functional.linear(enter(x, self.group), self.qkv, self.qkv_bias)
        q, k, v = (each.unflatten(-1, (-1, self.width)).transpose(1, 2) for each in qkv.chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return leave(functional.linear(mixed.transpose(1, 2).flatten(2), self.out), self.group) + self.bias
        # END SOLUTION


# %% tags=["check"]
labkit.check("parallel_block", ParallelMLP, ParallelAttention)

# %% [markdown]
# Here is a whole block. Every rank has the norms, and applies them to all tokens:


# %% tags=["given"]
class ParallelBlock(nn.Module):
    def __init__(self, block: Block, group: Group = None) -> None:
        super().__init__()
        self.norm1, self.norm2 = block.norm1, block.norm2
        self.attention = ParallelAttention(block.qkv, block.out, block.num_heads, group)
        self.mlp = ParallelMLP(block.up, block.down, group)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


# %% [markdown] tags=["slide-only"]
# ## Two traps in a block
#
# * `qkv.weight` is **q on top of k on top of v**: its first half is not half of the heads
# * a bias after a sum counts **once**, not N times
#
# Both run without an error.
#
# <!-- notes: Shapes fit in both cases, and the loss even goes down. Only a comparison with one process shows it. -->

# %% [markdown] tags=["stop"]
# **A good place to stop.** [[minutes]] minutes are left. When you come back, run every cell above this one, and go on.

# %% [markdown]
# ## 4 The vocabulary
#
# The embedding has a row for each entry of the vocabulary. Call an entry a **word**, even if it is a piece of one. Cut
# the embedding by rows: each word's row is on one rank, and the others contribute zeros to a sum.
#
# The same matrix makes the **logits** at the end (the two are *tied*), so each rank has the logits of *its* words. For
# a text of 8192 tokens and Llama 3's 128,256 words, all logits are 4.2 GB in float32. Nobody gathers them.
# Cross-entropy needs only three numbers for each token of the text:
#
# $$\text{loss} = \log \sum_v e^{z_v - m} - (z_{\text{target}} - m), \qquad m = \max_v z_v$$
#
# Each is a maximum or a sum over ranks. Subtracting `m` leaves the loss as it is and keeps the exponentials finite, so
# you can treat `m` as a constant in backward. Each target's logit is on one rank. Targets of `IGNORED` (-100) are left
# out of the mean. The words need not divide evenly: of 12 words, `my_part` gives five ranks 3, 3, 2, 2, 2.
#
# ### Exercise [[parallel_vocabulary]]
#
# *35 points, about 25 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="parallel_vocabulary" points=35 difficulty=3 importance=4 minutes=25 title="A cut vocabulary" provides=["embed", "cross_entropy"] needs=["two_operators"]
def embed(tokens: Tensor, rows: Tensor, vocabulary: int, group: Group = None) -> Tensor:
    """Return each token's row of the embedding, whole on every rank, shape (B, T, D).

    Args:
        tokens: The same on every rank, shape (B, T).
        rows: This rank's rows of the embedding, my_part(vocabulary, group) of them. In backward, each rank gets the
            gradient of its own rows.
    """
    # BEGIN SOLUTION parallel_vocabulary
    mine = my_part(vocabulary, group)
    here = (tokens >= mine.start) & (tokens < mine.stop)
    found = functional.embedding(torch.where(here, tokens - mine.start, 0), rows)
    return leave(found * here[..., None], group)
    # END SOLUTION


def cross_entropy(logits: Tensor, targets: Tensor, vocabulary: int, group: Group = None) -> Tensor:
    """Return functional.cross_entropy of the whole logits: the mean over targets that are not IGNORED.

    * The loss is the same on every rank, and finite however large logits are.
    * Each rank gets the gradient of its own logits.
    * With M targets, IGNORED ones included, forward and backward together reduce at most 4 M numbers (3 M are enough).

    Args:
        logits: The logits of this rank's words, which are my_part(vocabulary, group), one or more; shape (M, this
            many).
        targets: Words of the whole vocabulary. Some may be IGNORED, but not all; the same on every rank, shape (M,).
    """
    # BEGIN SOLUTION parallel_vocabulary
    mine = my_part(vocabulary, group)
    largest = logits.detach().amax(-1)
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
    shifted = logits - largest[:, None]
    total = leave(shifted.exp().sum(-1), group)
    here = (targets >= mine.start) & (targets < mine.stop)
    place = torch.where(here, targets - mine.start, 0)
    right = leave(shifted.gather(-1, place[:, None])[:, 0] * here, group)
    counts = targets != IGNORED
    return ((total.log() - right) * counts).sum() / counts.sum()
    # END SOLUTION


# %% tags=["check"]
labkit.check("parallel_vocabulary", embed, cross_entropy)

# %% [markdown]
# Here is the whole GPT:


# %% tags=["given"]
class ParallelGPT(nn.Module):
    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.rows = nn.Parameter(gpt.tokens.weight.detach()[my_part(len(VOCABULARY))].clone())
        self.positions, self.norm = gpt.positions, gpt.norm
        self.blocks = nn.ModuleList(ParallelBlock(block) for block in gpt.blocks)

    def forward(self, tokens: Tensor) -> Tensor:
        x = embed(tokens, self.rows, len(VOCABULARY)) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(enter(self.norm(x)), self.rows)


def parallel_loss(model: ParallelGPT, tokens: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), len(VOCABULARY))


# %% [markdown]
# This GPT has two blocks. Each `enter` and `leave` makes one all-reduce of a whole activation (batch x tokens x
# width), in forward or in backward. A run on two virtual ranks counts them:


# %%
def one_step():
    parallel_loss(ParallelGPT(GPT()), *Addition().batch(0, 64)).backward()


run = labkit.run(one_step, on=labkit.virtual(2))
activation = 64 * 8 * 96 * 4
large = [call for call in run.timeline.collectives() if call.rank == 0 and call.bytes == activation]
print(f"{len(large)} all-reduces of a whole activation in one step")

# %% [markdown]
# Each block makes four: two `leave`s in forward, two `enter`s in backward. The embedding makes one in forward, and
# the `enter` before the logits makes one in backward. DDP hides its all-reduces behind backward. Nothing hides yours:
# the next layer waits for them.

# %% [markdown] tags=["slide-only"]
# ## Logits need not be gathered
#
# Cross-entropy needs three numbers for each token:
#
# * the largest logit: a **max** over ranks
# * the sum of exponentials: a **sum**
# * the target's logit: a **sum** of zeros and one number
#
# <!-- notes: For 8192 tokens and 128,256 words, logits are 4 GB. Three numbers a token are 98 KB. -->

# %% [markdown] tags=["slide-only"]
# ## How many large all-reduces?
#
# Four for each block, one for the embedding, one for the logits.
#
# **To the room:** DDP hides its all-reduces behind backward. Can these hide?
#
# <!-- notes: No: the next layer needs the sum at once. That is why links matter so much more here. -->

# %% [markdown]
# ## 5 Sequence parallelism
#
# Between the cut regions all ranks do the same work on all tokens: norms, residuals, dropout. That wastes work, and
# memory: each rank keeps *all* these activations for backward. **Sequence parallelism** gives each rank some of the
# tokens there.
#
# Then `leave` gives each rank only *its tokens* of the sum, so it is a **reduce-scatter**. And `enter` has to collect
# all tokens, so it is an **all-gather**. In backward, each does what the other does in forward.
#
# **[[sequence_bytes]].** Tensor parallelism alone makes four all-reduces for each block. With sequence parallelism
# there are four all-gathers and four reduce-scatters instead. All of them run on a ring. By what factor does the
# number of bytes that each rank sends change?

# %% tags=["why"] exercise="sequence_bytes" title="Bytes of sequence parallelism"
labkit.answer("sequence_bytes", 1)

# %% [markdown] tags=["slide-only"]
# ## Sequence parallelism cuts the norms, too
#
# | | forward | backward |
# |---|---|---|
# | gather tokens | all-gather | reduce-scatter |
# | scatter tokens | reduce-scatter | all-gather |
#
# 1/N of the norms' activations.
#
# **To the room:** and how many bytes?
#
# <!-- notes: Lesson 02 built both halves of a ring all-reduce. Where did they go? -->

# %% [markdown]
# Every rank holds a norm's whole weight, but has applied it to *its tokens only*. So the weight's gradient is a partial
# sum, which must be all-reduced after backward.
#
# ### Exercise [[lone_gradient]]
#
# In this run, the norms' gradients are summed by sends and receives, not by an all-reduce. In the figure each sum is
# one bracket, with the norm's name on it. As in every backward, the last block comes first, and norm 2 before norm 1.
# Brackets that are too short show no name.
#
# After the step, the gradient of *one* norm is right on one rank and wrong on three.
#
# `layer`: which norm (`"block 0 norm 1"`, say)? `rank`: which rank has the right gradient? `cause`: `"never summed"`,
# `"summed on one rank"`, `"summed twice"`, or `"other tokens"` (the sums are right; the ranks differ only because each
# saw its own tokens)?

# %% tags=["figure", "nbval-ignore-output"]
labkit.recorded("lone_gradient")

# %% tags=["find"] exercise="lone_gradient" points=0 minutes=6 title="Right on one rank"
labkit.answer("lone_gradient", layer="block 1 norm 2", rank=2, cause="summed on one rank")

# %% [markdown]
# ## 6 Why stay inside one machine?
#
# Take one block of width 8192 with 2048 tokens, in bfloat16, on H100s. NVLink connects the eight GPUs of a machine;
# InfiniBand connects machines. One GPU takes 13.9 ms for forward and backward. Eight take 2.8 ms: 2.1 ms of computing
# and 0.7 ms of all-reduces. **How many ms do sixteen take?**

# %% tags=["predict"]
labkit.predict("sixteen_gpus_ms", 1.4, unit="ms")


# %%
def one_block(width, tokens):
    with torch.device("meta"):
        block = ParallelBlock(Block(width, num_heads=64)).bfloat16()
        x = torch.empty(1, tokens, width, dtype=torch.bfloat16, requires_grad=True)
    dist.barrier()
    with labkit.span("step"):
        block(x).sum().backward()


def step_ms(size, width, tokens):
    timeline = labkit.run(one_block, width, tokens, on=labkit.virtual(size, gpu="h100", link="nvlink4")).timeline
    (step,) = [span for span in timeline.rows() if span.name == "step" and span.rank == 0]
    return (step.end_ns - step.start_ns) / 1e6


rows = ["GPUs   width 8192, 2048 tokens   width 4096, 128 tokens"]
for size in (1, 2, 4, 8, 16):
    rows.append(f"{size:4}   {step_ms(size, 8192, 2048):16.2f} ms   {step_ms(size, 4096, 128):19.2f} ms")
labkit.reveal("sixteen_gpus_ms", step_ms(16, 8192, 2048), rows)

# %% [markdown]
# On sixteen GPUs, computing takes 1.3 ms. That is more than half of 2.1 ms, because norms and residuals (0.4 ms) are
# not cut at all. The all-reduces now cross the network, and grow from 0.7 to 1.0 ms. (They do not grow more, because
# each GPU has a network card of its own.) So twice the GPUs are 1.2 times as fast, and the efficiency falls from 62 %
# to 38 %. In the second column, the operators are so small that launching takes longer than computing: the host needs 4
# µs for each.
#
# So keep all pieces of one copy of the model inside one machine, and give every other machine a copy of its own: these
# are the two axes of a **mesh**.

# %% tags=["figure"]
labkit.figure("mesh")

# %% [markdown] tags=["slide-only"]
# ## Why stay inside one machine?
#
# | H100s | 2048 tokens, width 8192 | 128 tokens, width 4096 |
# |---|---|---|
# | 1 | 13.9 ms | 0.53 ms |
# | 8, one machine | 2.8 ms | 0.30 ms |
# | 16, two machines | 2.3 ms | 0.34 ms |
#
# <!-- notes: Efficiency 62 % on eight, 38 % on sixteen: the network between machines, and the time to launch any operator. -->

# %% [markdown]
# ## 7 The same loss
#
# Train your cut GPT on two ranks and the whole GPT on one, with the same batches. Use float64, so that rounding does
# not show.


# %% tags=["given"]
def whole_loss(model, tokens, targets):
    return functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def train_parallel(num_steps):
    return train(ParallelGPT(GPT().double()), Addition(), num_steps, loss=parallel_loss, max_norm=float("inf"))


def train_whole(num_steps):
    return train(GPT().double(), Addition(), num_steps, loss=whole_loss, max_norm=float("inf"))


# %% tags=["nbval-ignore-output"] seconds=25
together = labkit.run(train_parallel, 100, on=labkit.virtual(2), timeout=600).results[0]
alone = labkit.run(train_whole, 100, on=labkit.virtual(1), timeout=600).results[0]
for step in (0, 49, 99):
    print(f"step {step + 1:3}: one rank {alone[step]:.6f}, two ranks {together[step]:.6f}")

# %% [markdown]
# The losses agree in every printed digit.
#
# ## 8 What stays
#
# A cut block costs four all-reduces, and the next layer waits for each. So keep its ranks inside one machine. The
# norms, and the optimizer state of whatever is not cut, are still on every rank.
#
# **The next question.** DDP keeps N copies of weights, gradients and Adam's two moments. What if each rank kept only
# 1/N of all this, and asked for the rest when it needed it?

# %% [markdown] tags=["slide-only"]
# ## What stays
#
# * columns, then rows; f and g
# * three numbers instead of logits
# * inside a machine, because **the next layer waits**
#
# Next: Adam's state, N times. What if each rank kept 1/N?

# %% [markdown]
# ## Bonus: Clipping
#
# **[[clip_alone]].** Neither of the two runs clipped gradients. Suppose every rank called `clip_grad_norm_` on the
# parameters that *it* holds. What would happen? Choose `"nothing"`, `"norms drift apart"` (the norm layers' weights
# become different on different ranks) or `"an error"`.

# %% tags=["why"] exercise="clip_alone" title="Clipping alone" bonus=true
labkit.answer("clip_alone", "norms drift apart")

# %% [markdown]
# ## Bonus: Your own split
#
# Is alternating columns and rows always best? Around a narrow matrix, exchanging the activations takes longer than
# computing them. Then each rank may keep that matrix **whole** and repeat the work, if memory allows.
#
# Choose a split for each matrix of a chain. `"columns"` and `"whole"` read the whole activation, `"rows"` reads a part.
# `"columns"` outputs a part; `"rows"` and `"whole"` output the whole. The output of the chain must be whole.
# `step_seconds(matrices, splits, machine)` returns the cost of a plan, forward and backward; its docstring lists the
# collectives.
#
# The check has four chains. One chain has 24 matrices, and so 282 billion plans. In two of the four chains the fastest
# plan does not fit in memory. Your function has 16 s for the four together.


# %% tags=["given"]
from labkit.plans.matrix_splits import Machine, Matrix, memory_bytes, step_seconds

# %% [markdown]
# ### Exercise [[split_plan]]
#
# *25 points, about 25 minutes; difficulty 4 of 5, importance 3 of 5*


# %% tags=["design"] exercise="split_plan" bonus=true points=25 weights=[1, 1, 1, 1] difficulty=4 importance=3 minutes=25 title="Your own split" provides=["split_plan"]
def split_plan(matrices: list[Matrix], machine: Machine) -> list[str]:
    """Return "columns", "rows" or "whole" for each matrix; memory_bytes of the plan is at most machine.memory_bytes.

    The faster the better: half of the points are for beating the plan that cuts every matrix by columns, half for the
    optimum, as Alpa (Zheng and others, 2022) finds it.
    """
    # BEGIN SOLUTION split_plan
    plans: list[list[str]] = [[]]
    for count in range(1, len(matrices) + 1):
        longer = [[*plan, split] for plan in plans for split in ("columns", "rows", "whole")]
        plans = []
        for part in (True, False):  # what comes after knows no more of a plan than this and the memory left
            least = float("inf")
            for _, needed, plan in sorted(
                (step_seconds(matrices[:count], plan, machine), memory_bytes(matrices[:count], plan, machine), plan)
                for plan in longer
                if (plan[-1] == "columns") == part
            ):
                if needed < least and needed <= machine.memory_bytes:
                    plans.append(plan)
                    least = needed
    return min(plans, key=lambda plan: step_seconds(matrices, plan, machine))
    # END SOLUTION


# %% tags=["check"]
labkit.challenge("split_plan", split_plan)

# %% [markdown] tags=["slide-only"]
# ## Is columns, rows always best?
#
# * a **narrow** matrix: exchanging takes longer than computing
# * **whole** on every rank: no exchange, more memory
#
# **To the room:** which matrix of a transformer would you keep whole?
#
# <!-- notes: A router of a mixture of experts, low-rank adapters: they are kept whole in practice. -->

# %% [markdown]
# ## Bonus: Sequence parallelism, built
#
# `gather_tokens` replaces `enter`, and `scatter_tokens` replaces `leave`. So a rank holds all tokens only where it
# computes a part of the heads or hidden units; elsewhere it holds its own tokens.
#
# Random numbers now matter:
#
# * Where all ranks hold the same tokens, dropout must drop the *same* numbers everywhere, or the ranks drift apart.
# * Where each rank has its own tokens or hidden units, it must draw a *different* mask. With one mask for all, dropout
#   would drop the same places in every rank's part.
#
# So each rank needs a second stream of random numbers, its own. `torch.get_rng_state()` and
# `torch.set_rng_state(state)` take and put back the state of CPU tensors' generator (`torch.cuda` has the same).
#
# ### Exercise [[sequence_parallel]]
#
# *15 points, about 25 minutes; difficulty 3 of 5, importance 4 of 5*


# %% tags=["exercise"] exercise="sequence_parallel" bonus=true points=15 difficulty=3 importance=4 minutes=25 title="Tokens apart" provides=["gather_tokens", "scatter_tokens", "OwnRandom"]
# BEGIN SOLUTION sequence_parallel
def _all_tokens(x: Tensor, group: Group) -> Tensor:
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=1)


def _my_tokens(x: Tensor, group: Group) -> Tensor:
    parts = [each.contiguous() for each in x.chunk(dist.get_world_size(group), dim=1)]
    mine = torch.empty_like(parts[0])
    dist.reduce_scatter(mine, parts, group=group)
    return mine


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _all_tokens(x, group)

    @staticmethod
    def backward(ctx, gradient):
        return _my_tokens(gradient, ctx.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return _my_tokens(x, group)

    @staticmethod
    def backward(ctx, gradient):
        return _all_tokens(gradient, ctx.group), None


# END SOLUTION
def gather_tokens(x: Tensor, group: Group = None) -> Tensor:
    """Return the tokens of all ranks, in the order of ranks: (B, T/N, D) -> (B, T, D).

    In backward, each rank gets the sum of all ranks' gradients of its own tokens.
    """
    # BEGIN SOLUTION sequence_parallel
    return _Gather.apply(x, group)
    # END SOLUTION


def scatter_tokens(x: Tensor, group: Group = None) -> Tensor:
    """Return this rank's tokens of the sum of all ranks' x: (B, T, D) -> (B, T/N, D).

    In backward, each rank gets the gradients of all tokens, each token's from the rank that holds the token.
    """
    # BEGIN SOLUTION sequence_parallel
    return _Scatter.apply(x, group)
    # END SOLUTION


class OwnRandom:
    """A rank's own random numbers: what is drawn inside `with own:` differs from rank to rank of the group.


    After the `with`, torch's generator is in the state it had before, even if the body raises. Entering the same OwnRandom
    again goes on where its last `with` stopped, even if that one raised. The first `with` starts from a state that
    depends only on the seed and the rank (in the group or in the world, as you like).
    """

    def __init__(self, seed: int, group: Group = None) -> None:
        # BEGIN SOLUTION sequence_parallel
        outside = torch.get_rng_state()
        torch.manual_seed(seed * 10_007 + dist.get_rank(group))
        self.inside = torch.get_rng_state()
        torch.set_rng_state(outside)
        # END SOLUTION

    def __enter__(self) -> None:
        # BEGIN SOLUTION sequence_parallel
        self.outside = torch.get_rng_state()
        torch.set_rng_state(self.inside)
        # END SOLUTION

    def __exit__(self, *error: object) -> None:
        # BEGIN SOLUTION sequence_parallel
        self.inside = torch.get_rng_state()
        torch.set_rng_state(self.outside)
        # END SOLUTION


# %% tags=["check"]
labkit.check("sequence_parallel", gather_tokens, scatter_tokens, OwnRandom)

# %% [markdown]
# Now run your block of section 3, first with `enter` and `leave`, then with these two. With all tokens on every rank,
# each of four ranks keeps 7.4 MB of activations for backward. **How many MB with sequence parallelism ("tokens
# apart")?**

# %% tags=["predict"]
labkit.predict("tokens_apart_mb", 1.9, unit="MB")


# %%
from labkit.timeline.memory import memory_peaks


def gathered_before(x, group=None):
    return x  # the pre-hook has gathered the tokens already, so enter has nothing left to do


def one_step(sequence):
    global enter, leave  # ParallelBlock calls what these names stand for
    block = ParallelBlock(Block(256, num_heads=8))
    if sequence:
        enter, leave = gathered_before, scatter_tokens
        for part in (block.attention, block.mlp):
            part.register_forward_pre_hook(lambda part, x: gather_tokens(*x))
    x = torch.randn(4, 256 // (dist.get_world_size() if sequence else 1), 256, requires_grad=True)
    block(x).sum().backward()


peaks = {}
for name in ("all tokens on every rank", "tokens apart"):
    run = labkit.run(one_step, name == "tokens apart", on=labkit.virtual(4), echo=False)
    peaks[name] = round(memory_peaks(run.timeline)[0].by_category["activations"] / 1e6, 1)
rows = [f"{name:24}  activations {peak:.1f} MB at the peak" for name, peak in peaks.items()]
labkit.reveal("tokens_apart_mb", peaks["tokens apart"], rows)

# %% [markdown]
# The activations inside attention and the MLP were cut already; only those outside shrink. And 2.1 of the 6.0 MB that
# are left are gathered tokens: `qkv` and `up` each keep their whole input for backward, 4 x 256 x 256 numbers of 4
# bytes. Megatron-LM keeps a rank's own tokens instead, and gathers again in backward.

# %% [markdown]
# ## Bonus: A ring of tokens
#
# What if the *text* is too long? **Context parallelism** gives each rank some tokens in attention, too. Every query
# needs all keys and values before it, so these go round a ring, as chunks did in lesson 02: N - 1 times, each rank
# passes on to the next rank the keys and values that it received last (at first, its own). Softmax need not see all
# scores at once: keep the largest score, the sum of exponentials, and the weighted sum of values; rescale both sums
# whenever the largest score grows.
#
# **Causal** attention is unbalanced. If rank 0 holds the first tokens and the last rank the last ones, rank 0 has the
# least to do and the last rank the most. Cut the text into 2N pieces and give each rank two. Which two?
#
# ### Exercise [[ring_attention]]
#
# *15 points, about 50 minutes; difficulty 5 of 5, importance 3 of 5*


# %% tags=["exercise"] exercise="ring_attention" points=15 difficulty=5 importance=3 minutes=50 title="A ring of tokens" provides=["balanced_places", "ring_attention"] bonus=true
def balanced_places(num_tokens: int) -> Tensor:
    """Return which tokens this rank holds, ascending; 2N divides num_tokens.

    Each token is on exactly one rank. All ranks have the same number of tokens and the same amount of work. A query's
    work is the number of keys that it sees: its own and all earlier ones.
    """
    # BEGIN SOLUTION ring_attention
    pieces = torch.arange(num_tokens).chunk(2 * dist.get_world_size())
    return torch.cat([pieces[dist.get_rank()], pieces[-1 - dist.get_rank()]])
    # END SOLUTION


def ring_attention(q: Tensor, k: Tensor, v: Tensor, places: Tensor) -> Tensor:
    """Return causal attention of this rank's queries over all tokens' keys and values, shape (B, H, T/N, K).

    * A rank sends to the next rank only: keys, values and places, N - 1 times. It calls no collective of
      torch.distributed.
    * Of other ranks' keys and values, a rank holds at most two pieces, the last one received and the one being
      received. Of earlier ones it keeps only what softmax needs: the largest score and two running sums.
    * Scores are divided by the root of K, as usual. No gradients are needed.

    Args:
        q, k, v: Of this rank's tokens, shape (B, H, T/N, K).
        places: Where this rank's tokens are in the text, ascending. They may be any places, and a rank does not know
            those of the other ranks' tokens.
    """
    # BEGIN SOLUTION ring_attention
    rank, size = dist.get_rank(), dist.get_world_size()
    held = [k.contiguous(), v.contiguous(), places]
    largest = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total, mixed = torch.zeros_like(largest), torch.zeros_like(q)
    for step in range(size):
        if step:
            coming = [torch.empty_like(each) for each in held]
            for mine, new in zip(held, coming, strict=True):
                send = dist.P2POp(dist.isend, mine, (rank + 1) % size)
                receive = dist.P2POp(dist.irecv, new, (rank - 1) % size)
                for work in dist.batch_isend_irecv([send, receive]):
                    work.wait()
            held = coming
        keys, values, where = held
        if where[0] > places[-1]:
            continue  # all of them are later than all queries
        scores = q @ keys.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(where[None, :] > places[:, None], float("-inf"))
        grown = torch.maximum(largest, scores.amax(-1, keepdim=True))
        weights, old = (scores - grown).exp(), (largest - grown).exp()
        total = total * old + weights.sum(-1, keepdim=True)
        mixed = mixed * old + weights @ values
        largest = grown
    return mixed / total
    # END SOLUTION


# %% tags=["check"]
labkit.check("ring_attention", balanced_places, ring_attention)

# %% [markdown]
# ### Sources
#
# * M. Shoeybi and others, "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism"
#   (2019): columns, rows, *f* and *g*, the cut vocabulary.
# * V. Korthikanti and others, "Reducing Activation Recomputation in Large Transformer Models" (2022): sequence
#   parallelism.
# * H. Liu, M. Zaharia and P. Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context" (2023); W.
#   Brandon and others, "Striped Attention" (2023), on causal balance. Llama 3 was trained with two pieces for each
#   rank, one from either end ("The Llama 3 Herd of Models", 2024).
# * L. Zheng and others, "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning"
#   (2022): the split of every operator as an optimum.
# * PyTorch documentation: `torch.distributed.tensor.parallel`, with `ColwiseParallel`, `RowwiseParallel`,
#   `SequenceParallel` and `loss_parallel`. This lesson's GPT and theirs train to the same losses.
