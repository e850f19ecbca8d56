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
# # 10 Gradient compression
#
# Send fewer bytes in every step, and still train. You will build the compressors, the memory that makes them work, and
# the hook that puts them into DDP. Then you find out where it pays. Often it does not.

# %% [markdown]
# **What you will be able to do**
#
# * compress a gradient in seven ways, and say for each how many bytes travel;
# * keep what was not sent, and show what happens to training if you forget it;
# * add up gradients of which every rank kept other entries;
# * put it all into `DistributedDataParallel` by `register_comm_hook`, and into your own wrapper;
# * compute the bandwidth below which a compressor pays, and find it again on the virtual cluster.
#
# **Time:** about two hours, and 15 minutes more for the bonus exercise.
#
# **What you must know:** what an all-reduce costs (lesson 02), and what DDP does with buckets (lesson 04). If you did
# not finish them, go on: torch's own stands in.
#
# **Points.** As before, they rest on other cases than those that `labkit.check` shows.

# %% tags=["parameters"]
use_mine = False  # True: section 7 also runs on the BucketedDDP that you wrote in lesson 04

# %% tags=["given"]
import math
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn import functional

import labkit

# %% [markdown]
# ## 1 What travels
#
# A model of 100 million parameters has 400 MB of gradients in float32. Eight machines average them in a ring over
# Ethernet of 1 Gbit/s. **How many seconds does one all-reduce take?** (A ring sends $2(N-1)/N$ of the bytes over each
# link; of 1 Gbit/s about 118 MB/s are left for the payload.)

# %% tags=["predict"]
labkit.predict("all_reduce_seconds", 1.0, unit="s")


# %%
def average_once(num_bytes):
    dist.all_reduce(torch.empty(num_bytes // 4, device="meta"))


slow = labkit.run(average_once, 400_000_000, on=labkit.virtual(8, gpu="a100", gpus_per_node=1, nic="ethernet_1g"))
labkit.reveal("all_reduce_seconds", slow.timeline.makespan_ns / 1e9)

# %% [markdown]
# For a step that an A100 computes in a fraction of a second. So make the bytes fewer. A **compressor** turns a gradient
# into a packet of smaller tensors, and a packet back into a gradient that is *about* the same:
#
# ```python
# packet = compressor.compress(gradient)
# about_the_same = compressor.decompress(packet)
# ```
#
# What travels are the packet's `parts`. Shape and dtype need not travel: every rank has the same model.


# %% tags=["given"]
@dataclass(frozen=True)
class Packet:
    """A compressed gradient.

    Attributes:
        parts: The tensors that travel.
        shape: Of the gradient; all ranks know it.
        dtype: Of the gradient; all ranks know it.
    """

    parts: tuple[Tensor, ...]
    shape: torch.Size
    dtype: torch.dtype


# %% [markdown]
# ## 2 Fewer bits
#
# The nearest idea: a gradient does not need 32 bits an entry.
#
# * **16 bits** is a cast. float16 has small steps and ends at 65504: what is larger becomes infinite, and infinity in
#   one entry is infinity in the model. So hold it at the end of the range. bfloat16 has float32's range and only 8
#   significant bits.
# * **8 bits** need a scale. Take the largest magnitude m in the gradient. Then $\text{scale} = m / 127$, and
#   each entry becomes the nearest whole number of scales, from -127 to 127. The scale travels too, in float32.
#
# ### Exercise [[fewer_bits]]
#
# *12 points, about 8 minutes; difficulty 2 of 5, importance 4 of 5*
#
# A gradient may have any shape, it may be all zero (what is `0 / 0`?), and its entries may be tiny. Compress must not
# change the gradient. Decompress runs on *another* rank: it has the packet, and nothing that compress left behind. The
# class attribute `addable` comes later.


# %% tags=["exercise"] exercise="fewer_bits" points=12 difficulty=2 importance=4 minutes=8 title="Fewer bits" provides=["wire_bytes", "Cast", "Int8"]
def wire_bytes(packet: Packet) -> int:
    """Return how many bytes travel when this packet does."""
    # BEGIN SOLUTION fewer_bits
    return sum(part.numel() * part.element_size() for part in packet.parts)
    # END SOLUTION


class Cast:
    """A compressor to 16 bits: what is beyond the range is held at its end.

    Args:
        dtype: torch.bfloat16 or torch.float16.
    """

    addable = True

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        self.dtype = dtype

    def compress(self, gradient: Tensor) -> Packet:
        """Return one part, the gradient in 16 bits."""
        # BEGIN SOLUTION fewer_bits
        largest = torch.finfo(self.dtype).max
        return Packet((gradient.clamp(-largest, largest).to(self.dtype),), gradient.shape, gradient.dtype)
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return the gradient in its own dtype and shape."""
        # BEGIN SOLUTION fewer_bits
        return packet.parts[0].to(packet.dtype).view(packet.shape)
        # END SOLUTION


class Int8:
    """A compressor to whole numbers of 8 bits and one float32 scale, the largest magnitude over 127."""

    addable = False

    def compress(self, gradient: Tensor) -> Packet:
        """Return two parts: int8 entries, and the scale as a float32 tensor of one entry."""
        # BEGIN SOLUTION fewer_bits
        scale = (gradient.abs().max() / 127).to(torch.float32).clamp(min=1e-30).reshape(1)
        codes = (gradient / scale).round().clamp(-127, 127).to(torch.int8)
        return Packet((codes, scale), gradient.shape, gradient.dtype)
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return the gradient in its own dtype and shape."""
        # BEGIN SOLUTION fewer_bits
        codes, scale = packet.parts
        return (codes.to(packet.dtype) * scale.to(packet.dtype)).view(packet.shape)
        # END SOLUTION


# %% tags=["check"]
labkit.check("fewer_bits", wire_bytes, Cast, Int8)

# %%
gradient = torch.tensor([0.011, -0.5, 0.25, -0.003])
for name, compressor in (("bfloat16", Cast(torch.bfloat16)), ("float16", Cast(torch.float16)), ("int8", Int8())):
    packet = compressor.compress(gradient)
    back = [round(value, 5) for value in compressor.decompress(packet).tolist()]
    print(f"{name:8} {wire_bytes(packet):2} of 16 bytes  {back}")

# %% [markdown]
# Look at the last entry. In 8 bits it is a whole number of scales, 0.5/127 each, so it came back 31 % too large. Large
# entries are kept well and small ones badly: the scale belongs to the largest. And look at the bytes: with only four
# entries, the scale costs as much as they do.

# %% [markdown]
# ## 3 One bit
#
# Now go to the end of that road: one **sign** for each entry, and one magnitude for all of them, the mean of the
# magnitudes. (Seide and others, 2014, trained speech models with one bit an entry and two values for each column of a
# matrix; Karimireddy and others, 2019, explain why one magnitude and a memory are enough.) 32 times fewer bytes, if you
# really send bits: a tensor of `bool` has a byte an entry.


# %% tags=["given"]
def pack_bits(mask: Tensor) -> Tensor:
    """Return a flat bool tensor as bytes, eight entries in each; the last byte is filled up with False."""
    weights = 2 ** torch.arange(8, dtype=torch.uint8, device=mask.device)
    return (functional.pad(mask, (0, -mask.numel() % 8)).view(-1, 8) * weights).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, num_entries: int) -> Tensor:
    """Return the first num_entries of what pack_bits packed."""
    places = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed.unsqueeze(1) >> places) & 1).flatten()[:num_entries].bool()


# %% [markdown]
# ### Exercise [[one_bit]]
#
# *8 points, about 5 minutes; difficulty 2 of 5, importance 3 of 5*
#
# Zero counts as positive, so two kinds are left, and one bit tells them apart.


# %% tags=["exercise"] exercise="one_bit" points=8 difficulty=2 importance=3 minutes=5 title="One bit" provides=["Sign"]
class Sign:
    """A compressor to one bit an entry and one float32 magnitude, the mean of all magnitudes."""

    addable = False

    def compress(self, gradient: Tensor) -> Packet:
        """Return two parts: packed bits, set where an entry is below zero, and the magnitude, one float32."""
        # BEGIN SOLUTION one_bit
        bits = pack_bits(gradient.flatten() < 0)
        return Packet((bits, gradient.abs().mean().to(torch.float32).reshape(1)), gradient.shape, gradient.dtype)
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return minus the magnitude where the bit is set, the magnitude elsewhere, in the gradient's shape and dtype."""
        # BEGIN SOLUTION one_bit
        bits, magnitude = packet.parts
        negative = unpack_bits(bits, packet.shape.numel()).to(packet.dtype)
        return ((1 - 2 * negative) * magnitude.to(packet.dtype)).view(packet.shape)
        # END SOLUTION


# %% tags=["check"]
labkit.check("one_bit", Sign)

# %% [markdown]
# ## 4 Few entries
#
# The other road: send few entries, and those as they are. **Top-k** sends the k largest magnitudes. Here you mend the
# compressor of lesson 00, which kept magnitudes and lost the signs: find the places by magnitude, and take the values
# *from the gradient*. The places must travel too, so an entry costs 8 bytes: 4 for the value, 4 for its place as int32.
#
# **Random-k** sends k entries drawn at random. That sounds worse, and it is. But it has a charm: if every rank draws
# with the *same* seed, all ranks draw the same places, and no place has to travel.
#
# ### Exercise [[few_entries]]
#
# *14 points, about 10 minutes; difficulty 3 of 5, importance 5 of 5*
#
# Both keep `num_kept(ratio, entries)` entries, and what was not sent comes back as 0. Random-k must draw other places
# in every call: seed a `torch.Generator` with `seed` plus the number of calls before. That sum is its second part, one
# int64. Decompress must work on a rank that has nothing but the packet and the ratio.


# %% tags=["given"]
def num_kept(ratio: float, num_entries: int) -> int:
    """Return how many of the entries a sparse compressor keeps: their share, rounded down, and at least one."""
    return max(1, int(ratio * num_entries))


# %% tags=["exercise"] exercise="few_entries" points=14 difficulty=3 importance=5 minutes=10 title="Few entries" provides=["TopK", "RandomK"]
class TopK:
    """A compressor that keeps the entries of largest magnitude.

    Args:
        ratio: Share of the entries that is kept.
    """

    addable = False

    def __init__(self, ratio: float = 0.01) -> None:
        self.ratio = ratio

    def compress(self, gradient: Tensor) -> Packet:
        """Return two parts: the kept values, and their places in the flat gradient as int32."""
        # BEGIN SOLUTION few_entries
        flat = gradient.flatten()
        places = flat.abs().topk(num_kept(self.ratio, flat.numel())).indices
        return Packet((flat[places], places.to(torch.int32)), gradient.shape, gradient.dtype)
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return the kept values in their places, 0 elsewhere."""
        # BEGIN SOLUTION few_entries
        values, places = packet.parts
        flat = torch.zeros(packet.shape.numel(), dtype=packet.dtype, device=values.device)
        flat[places.long()] = values
        return flat.view(packet.shape)
        # END SOLUTION


class RandomK:
    """A compressor that keeps entries drawn at random, others in each call, and the same ones on ranks with the same seed.

    Args:
        ratio: Share of the entries that is kept.
        seed: The same on all ranks.
    """

    addable = True

    def __init__(self, ratio: float = 0.01, seed: int = 0) -> None:
        self.ratio, self.seed, self.num_calls = ratio, seed, 0

    def compress(self, gradient: Tensor) -> Packet:
        """Return two parts: the kept values, and the seed of this call as an int64 tensor of one entry."""
        # BEGIN SOLUTION few_entries
        seed = torch.tensor([self.seed + self.num_calls])
        self.num_calls += 1
        flat = gradient.flatten()
        return Packet((flat[self.places(seed, flat.numel())], seed), gradient.shape, gradient.dtype)
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return the kept values in their places, 0 elsewhere."""
        # BEGIN SOLUTION few_entries
        values, seed = packet.parts
        flat = torch.zeros(packet.shape.numel(), dtype=packet.dtype, device=values.device)
        flat[self.places(seed, flat.numel())] = values
        return flat.view(packet.shape)

    def places(self, seed: Tensor, num_entries: int) -> Tensor:
        """Return the places that this seed draws."""
        generator = torch.Generator().manual_seed(int(seed))
        return torch.randperm(num_entries, generator=generator)[: num_kept(self.ratio, num_entries)]
        # END SOLUTION


# %% tags=["check"]
labkit.check("few_entries", TopK, RandomK)

# %% [markdown]
# All of them beside each other, on the gradient of a small model. The last column says how much of the gradient (of
# its length) is lost in one step:


# %% tags=["given"]
class Classifier:
    """A classification task that trains in a second: data, labels from a fixed teacher, and a model to begin with.

    Args:
        device: Where data and model are.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        generator = torch.Generator().manual_seed(0)

        def linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
            layer = nn.Linear(inputs, outputs)
            with torch.no_grad():
                layer.weight.copy_(torch.randn(outputs, inputs, generator=generator) * gain / math.sqrt(inputs))
                layer.bias.zero_()
            return layer

        self.points = torch.randn(2048, 32, generator=generator)
        teacher = nn.Sequential(linear(32, 64, 1.2), nn.Tanh(), linear(64, 10, 1.2))
        with torch.no_grad():
            self.labels = teacher(self.points).argmax(1).to(device)
        self.points = self.points.to(device)
        hidden = (linear(32, 256, 0.6), nn.ReLU(), linear(256, 256, 0.6), nn.ReLU())
        self.model = nn.Sequential(*hidden, linear(256, 10, 0.6)).to(device)

    def batch(self, step: int, rank: int, size: int = 32) -> tuple[Tensor, Tensor]:
        """Return the samples and labels of one rank in one step."""
        chosen = torch.randint(0, 2048, (size,), generator=torch.Generator().manual_seed(1000 * step + rank))
        return self.points[chosen], self.labels[chosen]


COMPRESSORS = {
    "float32": partial(Cast, torch.float32),
    "bfloat16": Cast,
    "int8": Int8,
    "sign": Sign,
    "top 1 %": partial(TopK, 0.01),
    "random 10 %": partial(RandomK, 0.1),
}

# %%
task = Classifier()
points, labels = task.batch(0, 0)
grads = torch.autograd.grad(functional.cross_entropy(task.model(points), labels), list(task.model.parameters()))
gradient = torch.cat([grad.flatten() for grad in grads])
print(f"{'':12}  bytes   of float32   lost")
for name, make in COMPRESSORS.items():
    packet = make().compress(gradient)
    lost = (gradient - make().decompress(packet)).norm() / gradient.norm()
    print(f"{name:12} {wire_bytes(packet):6} {wire_bytes(packet) / (4 * gradient.numel()):10.1%} {lost:8.1%}")

# %% [markdown] tags=["slide"]
# ### Six packets
#
# | | what travels | bytes an entry | addable |
# |---|---|---:|---|
# | bfloat16, float16 | the entries, cast | 2 | yes |
# | int8 | whole numbers of a scale, and the scale | 1 | no: every rank has another scale |
# | sign | bits, and one magnitude | 1/8 | no |
# | top-k, ratio r | values and places | 8 r | no: every rank has other places |
# | random-k, ratio r | values, and a seed | 4 r | yes: the same places everywhere |
#
# Say the bytes *on the wire*: a bool is a byte, a Python list of signs is many.

# %% [markdown]
# ## 5 What was not sent
#
# Top-k throws 99 % of the entries away, in every step. Is that not fatal? See for yourself, in the smallest example
# there is (Beznosikov and others, 2020). Three ranks, three weights, top-1. Each rank's loss is
# $(a_i \cdot x)^2 + \|x\|^2/4$ with $a_1 = (-3, 2, 2)$ and its rotations, so the best x is 0. Start at (1, 1, 1), at a
# distance of 1.7. **How far from 0 is x after 100 steps?**

# %% tags=["predict"]
labkit.predict("top_k_distance", 0.1)

# %%
CORNERS = torch.tensor([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]])


def three_ranks(compressors, steps=100, lr=0.02):
    """Return how far x is from 0 after each step; one compressor for each of the three ranks."""
    x, distances = torch.ones(3), []
    for _ in range(steps):
        gradients = [2 * (corner @ x) * corner + x / 2 for corner in CORNERS]
        pairs = list(zip(compressors, gradients, strict=True))
        x = x - lr * sum(each.decompress(each.compress(gradient)) for each, gradient in pairs) / 3
        distances.append(x.norm().item())
    return distances


labkit.reveal("top_k_distance", round(three_ranks([TopK(1 / 3) for _ in range(3)])[-1], 1))

# %% [markdown]
# It **runs away**. Rank 0's gradient there is (-5.5, 4.5, 4.5). Its largest entry has the sign that the other
# two ranks would outvote, (-5.5 + 4.5 + 4.5), but they send *their* largest entries, not that one. Every rank says its
# loudest thing, and the sum is wrong in every place. In lesson 00 it was the lost sign. Here all signs are right.
#
# The cure is to forget nothing. What was not sent stays in a **residual** on the rank that did not send it, and is
# added to the next gradient:
#
# $$ \text{packet} = C(g + e), \qquad e \leftarrow g + e - C^{-1}(\text{packet}) $$
#
# An entry that is too small today grows in the residual until it is the largest. Everything is sent, only later.
#
# ### Exercise [[error_feedback]]
#
# *14 points, about 8 minutes; difficulty 2 of 5, importance 5 of 5*
#
# One residual for each `key`, for DDP has several buckets. And do not change the caller's gradient: it may be DDP's own
# buffer.


# %% tags=["exercise"] exercise="error_feedback" points=14 difficulty=2 importance=5 minutes=8 title="Error feedback" provides=["ErrorFeedback"]
class ErrorFeedback:
    """A compressor with a memory: what it did not send is added to the next gradient of the same key.

    Args:
        compressor: What compresses.

    Attributes:
        residuals: For each key, what has not been sent yet.
    """

    def __init__(self, compressor: Any) -> None:
        self.compressor = compressor
        self.residuals: dict[Any, Tensor] = {}

    def compress(self, gradient: Tensor, key: Any = 0) -> Packet:
        """Return the packet of gradient plus residual; what it leaves out becomes the new residual of this key."""
        # BEGIN SOLUTION error_feedback
        corrected = gradient + self.residuals[key] if key in self.residuals else gradient.clone()
        packet = self.compressor.compress(corrected)
        self.residuals[key] = corrected - self.compressor.decompress(packet)
        return packet
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return what the compressor makes of the packet."""
        # BEGIN SOLUTION error_feedback
        return self.compressor.decompress(packet)
        # END SOLUTION


# %% tags=["check"]
labkit.check("error_feedback", ErrorFeedback)

# %%
without = three_ranks([TopK(1 / 3) for _ in range(3)])
remembered = three_ranks([ErrorFeedback(TopK(1 / 3)) for _ in range(3)])
print("step        20     40     60     80    100")
print("without " + "".join(f"{without[step - 1]:7.2f}" for step in (20, 40, 60, 80, 100)))
print("with    " + "".join(f"{remembered[step - 1]:7.2f}" for step in (20, 40, 60, 80, 100)))

# %% [markdown]
# And on a model: four ranks (here one process plays them in turn), 150 steps of plain SGD, each compressor with and
# without its memory. **Which compressor will be hurt most by forgetting?** Say it to yourself, then run.


# %% tags=["given"]
def train(make: Any, remember: bool = True, steps: int = 150, ranks: int = 4, lr: float = 0.3) -> list[float]:
    """Return the mean loss over the ranks in each step, of training with compressed gradients; one process plays all."""
    task = Classifier()
    parameters = list(task.model.parameters())
    compressors = [ErrorFeedback(make()) if remember else make() for _ in range(ranks)]
    losses = []
    for step in range(steps):
        loss_of_ranks, total = 0.0, torch.zeros(sum(each.numel() for each in parameters))
        for rank, compressor in enumerate(compressors):
            points, labels = task.batch(step, rank)
            loss = functional.cross_entropy(task.model(points), labels)
            gradient = torch.cat([each.flatten() for each in torch.autograd.grad(loss, parameters)])
            total += compressor.decompress(compressor.compress(gradient)) / ranks
            loss_of_ranks += loss.item() / ranks
        with torch.no_grad():
            for each, part in zip(parameters, total.split([each.numel() for each in parameters]), strict=True):
                each -= lr * part.view_as(each)
        losses.append(loss_of_ranks)
    return losses


# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt

torch.set_num_threads(1)  # so small a model has nothing to share among threads
curves = {(name, True): train(make) for name, make in COMPRESSORS.items()}
for name in ("int8", "sign", "top 1 %", "random 10 %"):  # in 16 bits nothing is lost that one could see
    curves[name, False] = train(COMPRESSORS[name], remember=False)
print("mean loss of the last 20 steps   with memory   without")
for name in COMPRESSORS:
    ends = [f"{sum(curves[each][-20:]) / 20:.2f}" for each in ((name, True), (name, False)) if each in curves]
    print(f"{name:30} {ends[0]:>13} {ends[-1]:>9}")

COLOURS = dict(zip(COMPRESSORS, ("black", "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#CC79A7"), strict=True))
figure, panels = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True)
for panel, remember in zip(panels, (True, False), strict=True):
    for name in COMPRESSORS:
        smooth = torch.tensor(curves.get((name, remember), curves[name, True])).unfold(0, 10, 1).mean(1)
        panel.plot(smooth, label=name, color=COLOURS[name])
    panel.set(xlabel="step", title="with memory" if remember else "without", ylabel="training loss")
panels[0].legend(fontsize=8)
plt.show()

# %% [markdown]
# What to notice: with its memory, top 1 % ends near float32 with 2 % of the bytes. Without, the same compressor is far
# behind, and random-k hardly trains: it sends a tenth of the gradient, so it takes a tenth of a step. 16 and 8 bits do
# not mind: they lose little in each step, now one way, now the other, and their lines lie on float32's: of the three
# you see only the one that was drawn last. (Sign even ends below float32. That is no law: with a learning rate of 0.1
# it ends above.)

# %% [markdown] tags=["slide"]
# ### Error feedback
#
# $$ \text{packet} = C(g + e), \qquad e \leftarrow (g + e) - C^{-1}(\text{packet}) $$
#
# * everything is sent in the end, some of it later
# * without it, top-1 on three ranks runs *away* from the optimum, though every sign is right
# * it costs memory: one more gradient on every rank
# * one residual for each bucket and rank; it belongs in the checkpoint

# %% [markdown]
# ## 6 The mean of packets
#
# Three ranks have a packet each. How do they get the mean? `dist.all_reduce` adds tensors entry by entry. Look what it
# adds:


# %%
def all_reduce_of_values():
    rank = dist.get_rank()
    gradient = torch.zeros(6)
    gradient[2 * rank] = 3.0  # each rank has one entry, in another place
    packet = TopK(1 / 6).compress(gradient)
    dist.all_reduce(packet.parts[0])
    return TopK(1 / 6).decompress(packet).tolist()


for rank, came in enumerate(labkit.run(all_reduce_of_values, on=labkit.virtual(3)).results):
    print(f"rank {rank}: {came}")

# %% [markdown]
# The sum should be 3 in places 0, 2 and 4. Instead each rank put the sum of *all values* in *its own* place. No error,
# and the ranks' models drift apart from here on. The k-th value of one rank and the k-th value of another belong to
# different entries.
#
# For the same reason you cannot add int8 numbers of different scales (they would overflow besides), nor bits. A packet
# that cannot be added must travel **to everybody**: `dist.all_gather`. Each rank unpacks all packets and adds
# gradients.
#
# ### Exercise [[mean_of_packets]]
#
# *14 points, about 8 minutes; difficulty 3 of 5, importance 5 of 5*
#
# Only packets may travel. `dist.all_gather(outputs, tensor)` fills a list of N tensors like `tensor`, in the order of
# the ranks, one call for each part. `replace(packet, parts=...)` makes a packet with other parts.


# %% tags=["exercise"] exercise="mean_of_packets" points=14 difficulty=3 importance=5 minutes=8 title="The mean of packets" provides=["mean_of_packets"]
def mean_of_packets(compressor: Any, packet: Packet, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return the mean of what all ranks' packets stand for, the same on every rank.

    Args:
        compressor: Has decompress(packet).
        packet: This rank's; those of other ranks have parts of the same sizes and dtypes. It is not changed.
        group: The ranks that take part; None is everybody.
    """
    # BEGIN SOLUTION mean_of_packets
    num_ranks = dist.get_world_size(group)
    gathered = []
    for part in packet.parts:
        of_ranks = [torch.empty_like(part) for _ in range(num_ranks)]
        dist.all_gather(of_ranks, part, group=group)
        gathered.append(of_ranks)
    packets = [replace(packet, parts=parts) for parts in zip(*gathered, strict=True)]
    return sum(compressor.decompress(each) for each in packets) / num_ranks
    # END SOLUTION


# %% tags=["check"]
labkit.check("mean_of_packets", mean_of_packets)


# %%
def gathered_values():
    gradient = torch.zeros(6)
    gradient[2 * dist.get_rank()] = 3.0
    return mean_of_packets(TopK(1 / 6), TopK(1 / 6).compress(gradient)).tolist()


for rank, came in enumerate(labkit.run(gathered_values, on=labkit.virtual(3)).results):
    print(f"rank {rank}: {came}")

# %% [markdown]
# What to notice: three entries out of three packets of one entry. The mean of sparse gradients is less sparse. With
# many ranks it is hardly sparse at all, so it must not be *sent* again.
#
# Some packets **can** be added. Those of `Cast` are gradients. And those of `RandomK` hold the same places on all
# ranks, so adding value to value is right. That is what the class attribute `addable` says: *the first part may be
# summed over ranks, and the other parts are the same on all of them*. Then an all-reduce will do, and the next section
# but one shows why that matters.

# %% [markdown]
# ## 7 A communication hook
#
# DDP does everything else: buckets, overlap, order. It lets you replace one thing, what happens to a bucket when it is
# full. `ddp.register_comm_hook(state, hook)` takes a function
#
# ```python
# def hook(state, bucket) -> Future[Tensor]: ...
# ```
#
# * `bucket.buffer()` is one flat tensor with the gradients of the bucket, **not** divided by the world size;
# * `bucket.index()` is its number. But after the first step DDP **builds its buckets anew**, in the order in which gradients
#   really became ready. A residual of the old bucket 0 need not fit the new one, so the key of a residual is the number
#   *and* the size: `(bucket.index(), bucket.buffer().numel())`;
# * the future's value becomes the gradient: the *mean*, of the buffer's shape and dtype.
#
# DDP calls the hook in the middle of backward. If it waits there, nothing overlaps. So start the operations with
# `async_op=True`, and say what is to be done *afterwards*:
#
# ```python
# work = dist.all_reduce(tensor, async_op=True)
# return work.get_future().then(lambda _: what_comes_of(tensor))
# torch.futures.collect_all([future, other])      # a future of several
# ```
#
# Compute in `.then`, and communicate outside of it: on gloo it runs in a thread of its own, and a collective that is
# started there may come earlier on one rank and later on another.


# %% tags=["given"]
@dataclass
class HookState:
    """What a hook keeps from step to step.

    Attributes:
        feedback: The compressor with its memory.
        group: The ranks that take part; None is everybody.
        sent_bytes: Bytes of all packets of this rank so far; the hook counts them.
    """

    feedback: ErrorFeedback
    group: dist.ProcessGroup | None = None
    sent_bytes: int = 0


# %% [markdown]
# ### Exercise [[compression_hook]]
#
# *26 points, about 20 minutes; difficulty 4 of 5, importance 5 of 5*
#
# This is the heart of the lesson. Divide first: compress `buffer / N`, then *add* what the ranks send. (Why? The sum of
# eight float16 gradients overflows sooner than the sum of eight eighths.) Then
#
# * if `state.feedback.compressor.addable`: all-reduce the first part, and unpack this rank's packet;
# * else gather every part, as in [[mean_of_packets]], without waiting, and add up what was unpacked.
#
# Compress through `state.feedback`, with that key, and add the packet's bytes to `state.sent_bytes`.


# %% tags=["exercise"] exercise="compression_hook" points=26 difficulty=4 importance=5 minutes=20 title="A communication hook" provides=["compression_hook"] needs=["fewer_bits", "error_feedback"]
def compression_hook(state: HookState, bucket: dist.GradBucket) -> Future[Tensor]:
    """Start averaging one bucket over the ranks with compressed gradients; does not wait.

    Args:
        state: The compressor with its memory, and the group.
        bucket: Of DDP: index() and buffer(), which is not changed.

    Returns:
        A future of the mean gradient, with the buffer's shape and dtype.
    """
    # BEGIN SOLUTION compression_hook
    feedback, num_ranks = state.feedback, dist.get_world_size(state.group)
    key = (bucket.index(), bucket.buffer().numel())
    packet = feedback.compress(bucket.buffer() / num_ranks, key)
    state.sent_bytes += wire_bytes(packet)
    if feedback.compressor.addable:
        work = dist.all_reduce(packet.parts[0], group=state.group, async_op=True)
        return work.get_future().then(lambda _: feedback.decompress(packet))

    works, gathered = [], []
    for part in packet.parts:
        of_ranks = [torch.empty_like(part) for _ in range(num_ranks)]
        works.append(dist.all_gather(of_ranks, part, group=state.group, async_op=True))
        gathered.append(of_ranks)

    def add_up(_: Future[list[Future[list[Tensor]]]]) -> Tensor:
        return sum(feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered, strict=True))

    return torch.futures.collect_all([work.get_future() for work in works]).then(add_up)
    # END SOLUTION


# %% tags=["check"]
labkit.check("compression_hook", compression_hook)

# %% [markdown]
# Now in the real thing: two processes, torch's DDP, your hook. Beside it torch's own hook for float16, which does what
# yours does with `Cast` (it has no memory, so the two agree to the precision of 16 bits, not to the last digit).


# %% tags=["given"]
def descend(ddp: nn.Module, task: Classifier, steps: int, lr: float = 0.3) -> list[float]:
    """Return this rank's loss in each step of plain SGD, each on a batch of its own."""
    losses = []
    for step in range(steps):
        points, labels = task.batch(step, dist.get_rank())
        ddp.zero_grad()
        loss = functional.cross_entropy(ddp(points), labels)
        loss.backward()
        with torch.no_grad():
            for parameter in ddp.parameters():
                parameter -= lr * parameter.grad
        losses.append(loss.item())
    return losses


# %%
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks


def train_with_hook(make, steps=20):
    """Return the mean loss of the last five steps, the bytes of this rank's packets in a step, and a sum of weights."""
    task = Classifier(labkit.device())
    ddp = nn.parallel.DistributedDataParallel(task.model)
    state = None
    if make == "torch's fp16 hook":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif make is not None:
        state = HookState(ErrorFeedback(make()))
        ddp.register_comm_hook(state, compression_hook)
    losses = descend(ddp, task, steps)
    return sum(losses[-5:]) / 5, state.sent_bytes // steps if state else None, task.model[0].weight.sum().item()


for name, make in [("no hook", None), ("torch's fp16 hook", "torch's fp16 hook"), *COMPRESSORS.items()]:
    run = labkit.run(train_with_hook, make, on=labkit.local(2))
    loss, sent, weight = run.results[0]
    same = len({result[2] for result in run.results}) == 1
    print(
        f"{name:18} loss {loss:.2f}   bytes a step {sent or '(no state)':>10}   both ranks have the same model: {same}"
    )

# %% [markdown]
# Every line says that the ranks agree. They must: a hook that gives two ranks different gradients is no data
# parallelism. (That is why the value of the future comes from what *everybody* has, never from this rank's own
# gradient.)
#
# ### On your own wrapper
#
# `BucketedDDP` of lesson 04 calls `dist.all_reduce` once for each bucket. The next cell slips the hook into that place,
# in this rank's own process. (Why not `MiniDDP`? Its buckets end in flags, "this rank used that parameter". Top-k would
# drop them. What is no gradient must not be compressed.) Set `use_mine = True` at the top to see it.


# %% tags=["given"]
@dataclass(frozen=True)
class OwnBucket:
    """What a hook needs to know of a bucket of your own wrapper."""

    number: int
    flat: Tensor

    def index(self) -> int:
        """Return its number."""
        return self.number

    def buffer(self) -> Tensor:
        """Return its gradients, flat."""
        return self.flat


@dataclass(frozen=True)
class HookedSum:
    """What a hooked all_reduce returns in place of its handle."""

    tensor: Tensor
    future: Any

    def wait(self) -> None:
        """Wait until the tensor holds the sum over the ranks."""
        mean = self.future.wait().view_as(self.tensor)
        self.tensor.copy_(mean * dist.get_world_size())  # a hook gives the mean, all_reduce the sum


def register_hook(ddp: nn.Module, state: Any, hook: Any) -> None:
    """Register a hook with torch's DDP, or with a wrapper that calls dist.all_reduce once for each bucket."""
    if hasattr(ddp, "register_comm_hook"):
        ddp.register_comm_hook(state, hook)
        return
    plain, numbers, finish = dist.all_reduce, count(), ddp.finish_gradient_synchronization

    def hooked(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        if op != dist.ReduceOp.SUM:
            return plain(tensor, op, group, async_op)  # no gradient
        dist.all_reduce = plain  # for the hook's own calls
        begun = HookedSum(tensor, hook(state, OwnBucket(next(numbers), tensor.flatten())))
        dist.all_reduce = hooked
        return begun if async_op else begun.wait()

    def finish_and_count_anew():
        nonlocal numbers
        finish()
        numbers = count()

    dist.all_reduce, ddp.finish_gradient_synchronization = hooked, finish_and_count_anew


# %%
TorchDDP = nn.parallel.DistributedDataParallel
Wrapper = labkit.mine("bucketed_ddp", otherwise=TorchDDP) if use_mine else TorchDDP


def gradients_with_hook(wrapper):
    task = Classifier(labkit.device())
    ddp = wrapper(task.model)
    register_hook(ddp, HookState(ErrorFeedback(TopK(0.25))), compression_hook)
    points, labels = task.batch(0, dist.get_rank())
    functional.cross_entropy(ddp(points), labels).backward()
    if hasattr(ddp, "finish_gradient_synchronization"):
        ddp.finish_gradient_synchronization()
    return torch.cat([parameter.grad.flatten().cpu() for parameter in task.model.parameters()])


ours = labkit.run(gradients_with_hook, Wrapper, on=labkit.local(2)).results
print("both ranks have the same gradients:", torch.equal(*ours), "and some are exactly 0:", bool((ours[0] == 0).any()))

# %% [markdown] tags=["slide"]
# ### A communication hook
#
# ```python
# ddp.register_comm_hook(state, hook)          # hook(state, bucket) -> Future[Tensor]
# ```
#
# * divide, compress with memory, start, and *then* unpack; never wait inside the hook
# * addable packets: all-reduce. The others: all-gather, and add what was unpacked
# * keys that survive DDP's building its buckets anew
# * the future's value is the same on all ranks

# %% [markdown]
# ## 8 PowerSGD (bonus)
#
# A gradient of a linear layer is a matrix M of n x m numbers, and mostly it is nearly of low rank. **PowerSGD**
# (Vogels, Karimireddy and Jaggi, 2019) sends two thin matrices, P of n x r and Q of m x r, with $M \approx P Q^T$. The
# trick is how it finds them: one step of the power method, begun where the last one ended.
#
# 1. $P = M Q$ with the Q of the last call (at first drawn at random, with one seed for all ranks);
# 2. average P over the ranks, and make its columns orthonormal;
# 3. $Q = M^T P$, averaged over the ranks.
#
# Both are *linear* in M. So they can be averaged by all-reduce, and the result approximates the mean of all
# M: no all-gather, nothing grows with N.
#
# But P and Q are small, and a bucket has many matrices. Four machines, Ethernet of 10 Gbit/s, sixty layers of 128 x 128,
# rank 2: each P is one KB. **How many times as long do sixty all-reduces of one KB take as a single one of 60 KB?**

# %% tags=["predict"]
labkit.predict("sixty_over_one", 2.0)


# %%
def sixty_all_reduces(entries, times):
    for _ in range(times):
        dist.all_reduce(torch.empty(entries, device="meta"))


four = labkit.virtual(4, gpu="a100", gpus_per_node=1, nic="ethernet_10g")
apart, together = (
    labkit.run(sixty_all_reduces, entries, times, on=four).timeline.makespan_ns
    for entries, times in ((2 * 128, 60), (60 * 2 * 128, 1))
)
labkit.reveal("sixty_over_one", round(apart / together, 1))

# %% [markdown]
# The bytes are the same. But every all-reduce pays the latency of its steps again (lesson 02), and one KB is hardly
# anything *but* latency. So a bucket's P's travel **together**, joined to one flat tensor, and then its Q's: two
# all-reduces a bucket, however many matrices it has.
#
# And the biases? A vector of n numbers is a matrix of n x 1. A matrix of n x m has at most min(n, m) columns worth
# sending, so here P has one, and with one column nothing is lost: P is the vector, scaled to length 1, and Q is its length.
# No special case.
#
# ### Exercise [[power_sgd]]
#
# *10 points, about 15 minutes; difficulty 4 of 5, importance 3 of 5*
#
# First the joining: `average_together` starts **one** all-reduce for the whole list. Then the class, with the three steps
# above for all gradients of a bucket at once. Its `average` does what `average_together` does, and one call of `compress`
# calls it **twice**: with all P's, and with all Q's. Each gradient counts as a matrix of its first dimension by all
# others, keeps a Q of its own, and has min(rank, n, m) columns. The first Q's come from a `torch.Generator` with the
# seed, as in [[few_entries]], in the gradient's dtype. `torch.linalg.qr(p)[0]` has orthonormal columns that span what p's span.


# %% tags=["exercise"] exercise="power_sgd" points=10 difficulty=4 importance=3 minutes=15 title="PowerSGD" provides=["average_together", "PowerSGD"] bonus=true
def average_together(tensors: list[Tensor], group: dist.ProcessGroup | None = None) -> list[Tensor]:
    """Return the mean of each tensor over the ranks; one all_reduce brings them all.

    Args:
        tensors: Of one dtype, and of the same shapes on every rank. They are not changed.
        group: The ranks that take part; None is everybody.
    """
    # BEGIN SOLUTION power_sgd
    joined = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(joined, group=group)
    means = (joined / dist.get_world_size(group)).split([tensor.numel() for tensor in tensors])
    return [mean.view_as(tensor) for mean, tensor in zip(means, tensors, strict=True)]
    # END SOLUTION


class PowerSGD:
    """A compressor of a bucket's gradients, each to two thin matrices; its packets are the same on all ranks.

    Args:
        rank: Columns of the thin matrices, at most.
        average: Returns the means of a list of tensors over the ranks; the default is for one rank alone.
        seed: Of the first Q's, the same on all ranks.
    """

    def __init__(self, rank: int = 2, average: Any = lambda tensors: tensors, seed: int = 0) -> None:
        self.rank, self.average, self.seed = rank, average, seed
        self.qs: list[Tensor] | None = None

    def compress(self, gradients: list[Tensor]) -> list[Packet]:
        """Return a packet for each gradient, which stands for its mean over the ranks.

        Args:
            gradients: Of a bucket, always in the same order. They are not changed.

        Returns:
            Packets of two parts: P, orthonormal, shape (n, r), and Q, shape (m, r), in the gradient's dtype, with r =
            min(rank, n, m).
        """
        # BEGIN SOLUTION power_sgd
        matrices = [gradient.reshape(len(gradient), -1) for gradient in gradients]
        if self.qs is None:
            generator = torch.Generator().manual_seed(self.seed)
            sizes = [(matrix.shape[1], min(self.rank, *matrix.shape)) for matrix in matrices]
            self.qs = [torch.randn(size, generator=generator).to(gradients[0]) for size in sizes]
        averaged = self.average([matrix @ q for matrix, q in zip(matrices, self.qs, strict=True)])
        ps = [torch.linalg.qr(p)[0] for p in averaged]
        self.qs = self.average([matrix.T @ p for matrix, p in zip(matrices, ps, strict=True)])
        parts = zip(ps, self.qs, strict=True)
        return [Packet(pair, gradient.shape, gradient.dtype) for pair, gradient in zip(parts, gradients, strict=True)]
        # END SOLUTION

    def decompress(self, packet: Packet) -> Tensor:
        """Return P Q^T in the gradient's shape."""
        # BEGIN SOLUTION power_sgd
        p, q = packet.parts
        return (p @ q.T).view(packet.shape)
        # END SOLUTION


# %% tags=["check"]
labkit.check("power_sgd", average_together, PowerSGD)

# %%
torch.manual_seed(0)
matrix = torch.randn(256, 3) @ torch.randn(3, 256) + 0.1 * torch.randn(256, 256)
once = PowerSGD(rank=4)
for call in range(3):
    (packet,) = once.compress([matrix])
    lost = (matrix - once.decompress(packet)).norm() / matrix.norm()
    print(f"call {call}: {wire_bytes(packet) / (4 * matrix.numel()):.1%} of the bytes, {lost:.1%} lost")

# %% [markdown]
# Three columns are what this matrix is made of, and the rest is noise. The first call, from a random Q, is a guess; the
# second begins where the first one ended and is nearly there. In training, the gradient changes slowly, so one
# step of the power method each time is enough.
#
# The hook is short now. Your `ErrorFeedback` remembers the bucket as a whole, and between the two stands a small class
# that cuts a flat bucket into its gradients:


# %% tags=["given"]
class OfBucket:
    """A compressor of a flat bucket, made of one that compresses the list of its gradients.

    Args:
        power: Compresses the list.
        shapes: Of the bucket's gradients.
    """

    def __init__(self, power: Any, shapes: tuple[torch.Size, ...]) -> None:
        self.power, self.shapes = power, shapes

    def compress(self, flat: Tensor) -> list[Packet]:
        """Return a packet for each gradient."""
        pieces = flat.split([shape.numel() for shape in self.shapes])
        return self.power.compress([piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)])

    def decompress(self, packets: list[Packet]) -> Tensor:
        """Return the flat bucket."""
        return torch.cat([self.power.decompress(packet).flatten() for packet in packets])


class PowerState:
    """What power_hook keeps: for each bucket a PowerSGD with its memory.

    Args:
        rank: Columns of the thin matrices, at most.

    Attributes:
        of_bucket: By the bucket's number and the shapes of its gradients, for DDP builds its buckets anew.
        sent_bytes: Bytes of all packets of this rank so far.
    """

    def __init__(self, rank: int = 2) -> None:
        self.rank, self.sent_bytes = rank, 0
        self.of_bucket: dict[Any, ErrorFeedback] = {}


def power_hook(state: PowerState, bucket: dist.GradBucket) -> Future[Tensor]:
    """Average a bucket by PowerSGD in two all-reduces; waits for both, so nothing overlaps."""
    shapes = tuple(gradient.shape for gradient in bucket.gradients())
    key = (bucket.index(), shapes)
    if key not in state.of_bucket:
        state.of_bucket[key] = ErrorFeedback(OfBucket(PowerSGD(state.rank, average_together), shapes))
    feedback = state.of_bucket[key]
    packets = feedback.compress(bucket.buffer())
    state.sent_bytes += sum(wire_bytes(packet) for packet in packets)
    future: Future[Tensor] = Future()
    future.set_result(feedback.decompress(packets))
    return future


# %% [markdown]
# It **waits**, against the rule of section 7, because the second all-reduce needs what the first one brought. (Torch's own
# hook starts the second in `.then`. On NCCL that is fine. On gloo, with several buckets, one rank may start bucket 1's
# second before bucket 0's and another rank after it; then the wrong tensors meet.) See it train, beside torch's hook,
# which sends whole gradients in its first two steps:

# %% tags=["nbval-ignore-output"]
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook


def train_with_power(whose, steps=40):
    """Return the mean loss of the last five steps, and the bytes of a compressed step."""
    task = Classifier(labkit.device())
    ddp, sent = nn.parallel.DistributedDataParallel(task.model), None
    if whose == "yours":
        state = PowerState(2)
        ddp.register_comm_hook(state, power_hook)
    elif whose == "torch's":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    losses = descend(ddp, task, steps)
    if whose == "yours":
        sent = state.sent_bytes // steps
    elif whose == "torch's":
        sent = 4 * state.compression_stats()[2] // (steps - 2)
    return sum(losses[-5:]) / 5, sent or 4 * sum(each.numel() for each in ddp.parameters())


for whose in ("no hook", "yours", "torch's"):
    run = labkit.run(train_with_power, whose, on=labkit.local(2))
    loss, sent = run.results[0]
    calls = sum(call.rank == 0 and call.kind == "all_reduce" for call in run.timeline.collectives())
    print(f"PowerSGD, {whose:8} loss {loss:.2f}   bytes a step {sent:>9,}   {calls} all-reduces in 40 steps")

# %% [markdown]
# Two columns in place of each matrix: a thirtieth of the bytes, and after forty steps a little behind. Torch's hook
# sends as much but for one number a bias, in three all-reduces a bucket (it sends the biases for themselves), and stands
# about where yours does. And unlike those of top-k, these packets can be *added*: they go by all-reduce, and do not grow with
# the ranks.

# %% [markdown]
# ## 9 Where it pays
#
# Compression has three prices: its own work, the noise, and, for packets that cannot be added, the all-gather. Put
# them into numbers. In a ring of N ranks, with a latency a for each of its steps and a bandwidth w:
#
# * the all-reduce of B bytes takes 2(N-1) steps, each with B/N bytes;
# * the all-gather of packets of b bytes takes N-1 steps, each with one packet.
#
# The first hardly grows with N, the second grows with every rank. **From how many ranks on does the all-gather of top
# 1 % (2 % of the bytes: values and places) send more than the plain all-reduce?**

# %% tags=["predict"]
labkit.predict("gather_loses_from", 1000)

# %% [markdown]
# ### Exercise [[where_it_pays]]
#
# *12 points, about 8 minutes; difficulty 3 of 5, importance 5 of 5*
#
# In the third function leave latency out. A step with the packet costs `compress_s` more (compressing and unpacking),
# and saves the difference in bytes.


# %% tags=["exercise"] exercise="where_it_pays" points=12 difficulty=3 importance=5 minutes=8 title="Where it pays" provides=["all_reduce_seconds", "all_gather_seconds", "pays_below"]
def all_reduce_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:
    """Return the time of a ring all_reduce of num_bytes."""
    # BEGIN SOLUTION where_it_pays
    return 2 * (world_size - 1) * (latency_s + num_bytes / world_size / bandwidth_Bps)
    # END SOLUTION


def all_gather_seconds(packet_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:
    """Return the time of a ring all_gather in which every rank gives packet_bytes."""
    # BEGIN SOLUTION where_it_pays
    return (world_size - 1) * (latency_s + packet_bytes / bandwidth_Bps)
    # END SOLUTION


def pays_below(num_bytes: float, packet_bytes: float, world_size: int, compress_s: float) -> float:
    """Return the bandwidth, bytes per second, below which gathering packets is faster than the plain all_reduce.

    Latency is left out.

    Args:
        num_bytes: Of the gradients.
        packet_bytes: Of one rank's packet.
        world_size: N.
        compress_s: Compressing and unpacking, together.

    Returns:
        0.0 if it never pays, math.inf if it always does.
    """
    # BEGIN SOLUTION where_it_pays
    saved = 2 * (world_size - 1) / world_size * num_bytes - (world_size - 1) * packet_bytes
    if saved <= 0:
        return 0.0
    return saved / compress_s if compress_s else math.inf
    # END SOLUTION


# %% tags=["check"]
labkit.check("where_it_pays", all_reduce_seconds, all_gather_seconds, pays_below)

# %%
first = next(n for n in range(2, 10_000) if all_gather_seconds(2.0, n, 0, 1) >= all_reduce_seconds(100.0, n, 0, 1))
labkit.reveal("gather_loses_from", first)

# %%
print("MB over each link, of 400 MB of gradients" + "".join(f"{n:>5} ranks" for n in (2, 8, 32, 128)))
plain = [all_reduce_seconds(400, n, 0, 1) for n in (2, 8, 32, 128)]
for name, packet_mb in (("int8", 100), ("sign", 12.5), ("top 1 %", 8)):
    gathered = [all_gather_seconds(packet_mb, n, 0, 1) for n in (2, 8, 32, 128)]
    print(f"{name:11} all_gather {'':18}" + "".join(f"{each:11.0f}" for each in gathered))
for name, factor in (("float32", 1), ("bfloat16", 0.5), ("random 10 %", 0.1)):
    print(f"{name:11} all_reduce {'':18}" + "".join(f"{factor * each:11.0f}" for each in plain))

# %% [markdown]
# Int8 has a quarter of the bytes. On 8 ranks it sends as much as float32, on 32 four times as much. `addable` is worth
# more than a high ratio. (So real
# systems with many ranks add first inside a node, quantise for one exchange in which every rank adds up one part, or
# use PowerSGD, whose packets can be averaged.)
#
# Now the virtual cluster: four machines with one A100 each, the classifier of section 4, torch's DDP with your hook, at
# four speeds of the network. **At 400 Gbit/s, how many times as fast is a step with top 1 % as one without a hook?**

# %% tags=["predict"]
labkit.predict("top_k_speedup", 2.0)

# %%
GIGABITS = (1, 10, 100, 400)


def seconds_of_a_step(make, steps=3):
    """Return the shortest step of this rank but the first, and the bytes of its packets in a step."""
    rank, task = dist.get_rank(), Classifier(labkit.device())
    ddp = nn.parallel.DistributedDataParallel(task.model)
    state = HookState(ErrorFeedback(make())) if make else None
    if state:
        ddp.register_comm_hook(state, compression_hook)
    seconds = []
    for step in range(steps):
        points, labels = task.batch(step, rank)
        begin = time.perf_counter()
        functional.cross_entropy(ddp(points), labels).backward()
        with torch.no_grad():
            for parameter in ddp.parameters():
                parameter -= 0.3 * parameter.grad
                parameter.grad.zero_()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:]), state.sent_bytes / steps if state else 4 * sum(each.numel() for each in ddp.parameters())


def cluster(gigabits, machines=4):
    return labkit.virtual(machines, gpu="a100", gpus_per_node=1, nic=f"ethernet_{gigabits}g")


ROWS = {"no hook": None} | {name: make for name, make in COMPRESSORS.items() if name != "float32"}
step_s, packet_bytes = {}, {}
for name, make in ROWS.items():
    for gigabits in GIGABITS:
        run = labkit.run(seconds_of_a_step, make, on=cluster(gigabits))
        step_s[name, gigabits] = max(seconds for seconds, _ in run.results)
        packet_bytes[name] = run.results[0][1]
rows = ["ms a step      " + "".join(f"{gigabits:5} Gbit/s" for gigabits in GIGABITS)]
for name in ROWS:
    rows.append(f"{name:14} " + "".join(f"{1e3 * step_s[name, gigabits]:12.2f}" for gigabits in GIGABITS))
labkit.reveal("top_k_speedup", round(step_s["no hook", 400] / step_s["top 1 %", 400], 2), rows)

# %% [markdown]
# Compressing costs operators, and operators cost time whatever the network. At 1 Gbit/s that is nothing beside what
# is saved. At 400 Gbit/s every compressor makes this step *slower*.
#
# But a step is not a step: with compression it moves less far. What counts is the time until the loss is down. Take
# the losses of section 5 (the same task, four ranks) and the times from here:


# %% tags=["nbval-ignore-output"]
def steps_until(losses, target=0.6):
    """Return after how many steps the mean loss of ten steps is below the target, or None."""
    smooth = torch.tensor(losses).unfold(0, 10, 1).mean(1)
    below = (smooth < target).nonzero().flatten()
    return int(below[0]) + 10 if len(below) else None


needed = {name: steps_until(curves["float32" if name == "no hook" else name, True]) for name in ROWS}
print("until the loss is below 0.6   steps     MB sent " + "".join(f"{gigabits:5} Gbit/s" for gigabits in GIGABITS))
for name, steps in needed.items():
    times = "".join(f"{1e3 * steps * step_s[name, gigabits]:9.0f} ms" for gigabits in GIGABITS)
    print(f"{name:29} {steps:5} {steps * packet_bytes[name] / 1e6:11.2f} {times}")

figure, panels = plt.subplots(1, 5, figsize=(15, 3.6), sharey=True, layout="constrained")
for name in ROWS:
    curve = "float32" if name == "no hook" else name
    smooth = torch.tensor(curves[curve, True]).unfold(0, 10, 1).mean(1)
    steps = torch.arange(10, 10 + len(smooth))
    panels[0].plot(steps * packet_bytes[name] / 1e6, smooth, label=name, color=COLOURS[curve])
    for panel, gigabits in zip(panels[1:], GIGABITS, strict=True):
        panel.plot(steps * step_s[name, gigabits], smooth, color=COLOURS[curve])
panels[0].set(xlabel="MB sent by a rank", ylabel="training loss", xscale="log")
figure.legend(loc="outside lower center", ncols=len(ROWS))
for panel, gigabits in zip(panels[1:], GIGABITS, strict=True):
    fastest = min(step_s[name, gigabits] for name in ROWS)
    panel.set(xlabel="seconds", title=f"{gigabits} Gbit/s", xlim=(0, 300 * fastest))
plt.show()

# %% [markdown]
# Between the four speeds there are others. The next figure draws all of them, from three numbers of each compressor:
# the bytes of its packet, whether packets can be added, and what a step costs more with it on the fastest network. Move
# the link, then the size of the gradients and the number of ranks. (It counts in bytes: 1 GB/s is 8 Gbit/s.)
#
# The table above says where to look. **Below which speed, in GB/s, is a step with top 1 % faster than one without a
# hook?**

# %% tags=["predict"]
labkit.predict("top_k_pays_below", 5.0, unit="GB/s")

# %% tags=["nbval-ignore-output"]
speeds = labkit.compression_explorer(
    {
        name: {
            "num_bytes": packet_bytes[name],
            "compress_s": max(step_s[name, 400] - step_s["no hook", 400], 0.0),
            "addable": make is None or make().addable,
            "losses": curves["float32" if name == "no hook" else name, True],
        }
        for name, make in ROWS.items()
    },
    num_ranks=4,
    compute_s=step_s["no hook", 400],
)
below = (speeds.numbers["faster_between"]["top 1 %"] or (0.0, 0.0))[1]
labkit.reveal("top_k_pays_below", below / 1e9, speeds)

# %% [markdown]
# Read it twice. Against **bytes**, compression always looks splendid: sign and top 1 % need about a fortieth of them.
# Most papers' first figure is that one. Against **seconds**, it depends on the network. At 1 Gbit/s the sparsest
# win by far. At 10 it is still worth it. At 100 and 400 there is nothing left to win, and most compressors cost. A
# larger model moves these borders, for it has more bytes for each operator.
#
# How far? `pays_below` says it. The cost of compressing a large gradient is memory traffic, at an A100's 1.6 TB/s. Say
# 10 passes over the gradient, if every kernel is good: what comes is added entry by entry into one buffer. Adding it up
# as your `mean_of_packets` does, a whole tensor for each rank, takes about 3 passes a rank more. And selecting the
# largest is no plain pass: put in 500. See how much hangs on that one number: **measure your compressor before you
# believe a table**, this one too.

# %%
print("top 1 % by all_gather is faster than a plain all_reduce below, Gbit/s")
print("ranks   passes     0.3 MB      40 MB    4000 MB")
for ranks in (4, 64, 128):
    for passes in (10, 10 + 3 * ranks, 500):
        borders = []
        for num_bytes in (0.3e6, 40e6, 4e9):
            compress_s = 150e-6 + passes * num_bytes / 1.6e12  # starting kernels, and memory traffic
            borders.append(pays_below(num_bytes, 0.02 * num_bytes, ranks, compress_s) * 8 / 1e9)
        print(f"{ranks:5} {passes:8} " + "".join(f"{each:11.1f}" for each in borders))

# %% [markdown]
# (Agarwal and others, 2022, measured real compressors on real networks. Their finding: what compressing costs makes the
# net gain marginal, if it does not turn it into a loss. And what DDP hides behind backward is free already. A
# compressor that works in the same place, on the same GPU, hides nothing.)

# %% [markdown] tags=["slide"]
# ### Where it pays
#
# $$ \text{saved} = \frac{2(N-1)}{N}B - (N-1)\,b, \qquad \text{pays below } \frac{\text{saved}}{t_\text{compress}} $$
#
# * all-gather of packets grows with N: top 1 % sends as much as a plain all-reduce on 100 ranks, and more beyond
# * what can be added (16 bits, random-k, PowerSGD) goes by all-reduce and does not grow
# * communication that DDP hides behind backward is free already; compressing it saves nothing
# * loss against bytes always looks good. Ask for loss against seconds, on your link

# %% [markdown]
# ## 10 Break it on purpose
#
# Five ways. For each: what will happen? Say it before you run the cell.
#
# **Lose the signs.** The compressor of the post in lesson 00, in today's training: the magnitudes and places are right.


# %% tags=["nbval-ignore-output"]
class PostTopK(TopK):
    def compress(self, gradient):
        flat = gradient.flatten().abs()
        values, places = flat.topk(num_kept(self.ratio, flat.numel()))
        return Packet((values, places.to(torch.int32)), gradient.shape, gradient.dtype)


lost_signs = train(partial(PostTopK, 0.01), remember=False, steps=60)
print("loss after 1, 20, 40 and 60 steps:", *(f"{lost_signs[step]:.2f}" for step in (0, 19, 39, 59)))

# %% [markdown]
# It goes up. With a memory it goes up faster: what was sent with the wrong sign stays in the residual *twice*. No
# error, no warning.
#
# **Forget the residual.** You saw three ranks run away in section 5. Here is the quiet form: random-k without memory.
# Random 10 % of the gradient in each step. **How many times as many steps until the loss is below 1.8?**

# %% tags=["predict"]
labkit.predict("random_k_steps", 2.0)

# %% tags=["nbval-ignore-output"]
whole = steps_until(curves["float32", True], 1.8)
tenth = steps_until(train(partial(RandomK, 0.1), remember=False, steps=240), 1.8)
labkit.reveal("random_k_steps", tenth / whole)

# %% [markdown]
# Towards ten times: it is a step of a tenth. The loss goes down, so nobody looks.
#
# **All-reduce sparse values.** Section 6: every rank has the sum of all values, each in its own places. Are the ranks
# still equal afterwards?


# %%
def sparse_all_reduce(state, bucket):
    packet = TopK(0.01).compress(bucket.buffer() / dist.get_world_size())
    work = dist.all_reduce(packet.parts[0], async_op=True)
    return work.get_future().then(lambda _: TopK(0.01).decompress(packet))


def unseeded_random_k(state, bucket):
    torch.manual_seed(dist.get_rank())  # as if every rank had drawn for itself
    own = RandomK(0.1, seed=int(torch.randint(0, 10**6, ())))
    packet = own.compress(bucket.buffer() / dist.get_world_size())
    work = dist.all_reduce(packet.parts[0], async_op=True)
    return work.get_future().then(lambda _: own.decompress(packet))


def weights_after(hook, steps=3):
    task = Classifier(labkit.device())
    ddp = nn.parallel.DistributedDataParallel(task.model)
    ddp.register_comm_hook(HookState(ErrorFeedback(TopK(0.01))), hook)
    descend(ddp, task, steps)
    return torch.cat([parameter.detach().flatten() for parameter in ddp.parameters()])


for hook in (compression_hook, sparse_all_reduce, unseeded_random_k):
    ranks = labkit.run(weights_after, hook, on=labkit.virtual(3)).results
    differ = (ranks[0] != ranks[1]).float().mean().item()
    print(f"{hook.__name__:18} {differ:6.1%} of the weights differ between rank 0 and rank 1 after 3 steps")

# %% [markdown]
# The second and third line: **all-reduce of sparse values**, and **random-k with a seed of each rank's own**. The
# models are different models from the first step on. DDP never compares them. You should, now and then: an all-reduce
# of a checksum costs nothing.
#
# **Quantise without the scale.** "int8 is int8, so add the numbers." Three ranks, one entry each of 3.0, 0.3 and 0.03;
# the mean is 1.11. What comes, if the codes are all-reduced and rank 0's scale is used?

# %% tags=["predict"]
labkit.predict("sum_of_codes", 1.11)


# %%
def without_the_scales():
    gradient = torch.tensor([[3.0], [0.3], [0.03]][dist.get_rank()])
    packet = Int8().compress(gradient)
    codes = packet.parts[0].to(torch.int32)
    dist.all_reduce(codes)
    return (codes * packet.parts[1] / dist.get_world_size()).item()


labkit.reveal("sum_of_codes", round(labkit.run(without_the_scales, on=labkit.virtual(3)).results[0], 6))

# %% [markdown]
# Each rank's largest entry is 127, whatever it is worth. So every rank counts as much as the loudest. (In int8 itself
# 3 x 127 would not even fit: it becomes 125.)

# %% [markdown] tags=["slide"]
# ### Five ways to break it
#
# | mistake | what you see |
# |---|---|
# | lose the signs | the loss goes up |
# | forget the residual | slow training; on some problems it runs away |
# | all-reduce sparse values | nothing; every rank trains another model |
# | random-k with a seed for each rank | nothing; every rank trains another model |
# | add codes without their scales | gradients of the wrong size |
#
# Compare the ranks' weights with each other, and the first gradients with the uncompressed mean.

# %% [markdown]
# ## 11 The finished thing
#
# Your hook in a script for plain `torchrun`: top 1 % with memory, on torch's DDP.


# %% tags=["export"]
def main() -> dict[str, float]:
    """Train the classifier with compressed gradients for 60 steps; return first and last loss, and bytes a step."""
    rank, task = dist.get_rank(), Classifier(labkit.device())
    ddp = nn.parallel.DistributedDataParallel(task.model)
    state = HookState(ErrorFeedback(TopK(0.01)))
    ddp.register_comm_hook(state, compression_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.3)
    losses = []
    for step in range(60):
        points, labels = task.batch(step, rank)
        optimizer.zero_grad()
        loss = functional.cross_entropy(ddp(points), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    ends = torch.stack([sum(losses[:5]), sum(losses[-5:])]) / 5
    dist.all_reduce(ends)
    first, last = (ends / dist.get_world_size()).tolist()
    return {"first_loss": round(first, 2), "last_loss": round(last, 2), "bytes_a_step": state.sent_bytes // 60}


# %% tags=["nbval-ignore-output"]
labkit.run(main, on=labkit.local(2)).results[0]

# %% [markdown]
# From a shell, next to this notebook:
#
# ```
# labkit export 10_gradient_compression.ipynb --out compressed.py
# torchrun --nproc-per-node 4 compressed.py
# ```

# %% [markdown] tags=["slide"]
# ### What breaks at scale
#
# * **All-gather grows with N.** What cannot be added must be added somewhere: inside the node first, or by PowerSGD.
# * **The residual** is a gradient's worth of memory on every rank, and belongs in the checkpoint. After a change in the number of
#   ranks it belongs to nobody.
# * **Hyperparameters** were tuned without compression. Momentum and clipping meet gradients that come late.
# * **Fast links.** Inside a node, and on 400 Gbit/s between nodes, the plain all-reduce mostly wins.

# %% [markdown]
# ## What to remember
#
# * A packet's bytes are what **travels**: values, places, scales, seeds.
# * **Forget nothing**: what is not sent stays in the residual.
# * Packets that can be added go by **all-reduce**; the others by all-gather, and that grows with N.
# * A hook starts, and does not wait. All ranks must get the same gradient.
# * Loss against **seconds, on your link**. Never against bytes alone.
# * A claim without model, link and device is no claim.
#
# **The question for the next lesson.** Bytes are one line of a tuning table that goes round: prefetching, mixed precision
# and activation checkpointing are the others, each with a promise. Which of them are kept on your model? Lesson 11,
# `11_faster_steps`, puts them to the test.

# %% [markdown]
# ### Sources
#
# * F. Seide and others, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
#   Speech DNNs", Interspeech 2014: one bit, and error feedback.
# * D. Alistarh and others, "QSGD", NeurIPS 2017, and A. Aji and K. Heafield, "Sparse Communication for Distributed Gradient
#   Descent", EMNLP 2017: quantisation and top-k.
# * S. Stich, J.-B. Cordonnier and M. Jaggi, "Sparsified SGD with Memory", NeurIPS 2018; S. P. Karimireddy and others,
#   "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019: why memory works.
# * A. Beznosikov and others, "On Biased Compression for Distributed Learning", arXiv:2002.12410 (2020): three ranks on
#   which top-1 runs away.
# * T. Vogels, S. P. Karimireddy and M. Jaggi, "PowerSGD", NeurIPS 2019.
# * S. Agarwal and others, "On the Utility of Gradient Compression in Distributed Training Systems", MLSys 2022: where
#   it does not pay.
# * PyTorch documentation: DDP communication hooks.
