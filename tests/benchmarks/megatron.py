"""GPT training with tensor, pipeline and data parallelism as in Megatron-LM, on meta tensors, in virtual time.

An iteration is put together from three virtual runs, for ranks that do the same need not all be run:

1. one node's tensor-parallel group runs a transformer layer forwards, forwards again and backwards (activations are
   recomputed), and the embedding's and logits' share of the first and last stage;
2. one rank for each pipeline stage runs the interleaved 1F1B schedule, each part of a stage taking what run 1 said,
   with activations sent between nodes;
3. one rank of every replica all-reduces a stage's gradients; the optimizer passes over its states.

The virtual accelerator gives every matrix product the share of the peak that one of 8192^3 reaches. Theirs are less
regular: an A100's 108 multiprocessors take a tile of the product each, all of them at once, and the last such wave is
rarely full. What it leaves idle is added to run 1.

Sources: D. Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
https://arxiv.org/abs/2104.04473; NVIDIA, "Matrix Multiplication Background User's Guide", sections on tile and wave
quantization, https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.simulator.cluster import describe
from labkit.simulator.run import simulate

SEQUENCE, VOCABULARY = 2048, 51_200
MULTIPROCESSORS, TILE = 108, (256, 128)


@dataclass(frozen=True)
class Job:
    """One row of a table of published runs.

    Attributes:
        billions: Parameters.
        heads: Attention heads.
        hidden: Width.
        layers: Transformer layers.
        tensor: Tensor-parallel ranks.
        pipeline: Pipeline stages.
        gpus: All ranks.
        batch: Sequences in an iteration, over all replicas.
        microbatch: Sequences in a microbatch.
        chunks: Parts of the model that a stage holds in the interleaved schedule.
        published: Teraflop/s per GPU, by the formula of `flops`.
    """

    billions: float
    heads: int
    hidden: int
    layers: int
    tensor: int
    pipeline: int
    gpus: int
    batch: int
    microbatch: int
    chunks: int
    published: float

    @property
    def replicas(self) -> int:
        """Data-parallel copies of the model."""
        return self.gpus // (self.tensor * self.pipeline)

    @property
    def num_microbatches(self) -> int:
        """Microbatches of one replica."""
        return self.batch // (self.replicas * self.microbatch)

    @property
    def flops(self) -> float:
        """Return the floating-point operations of an iteration with recomputation (the paper's equation 3)."""
        one = 96 * self.batch * SEQUENCE * self.layers * self.hidden**2
        return one * (1 + SEQUENCE / (6 * self.hidden) + VOCABULARY / (16 * self.layers * self.hidden))


class _Copy(torch.autograd.Function):
    """The input of a tensor-parallel block: gradients are summed over the group."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class _Sum(torch.autograd.Function):
    """The output of a tensor-parallel block: partial sums are added over the group."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad


def _meta(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float16, device="meta", requires_grad=True)


class Layer:
    """One rank's share of a transformer layer; scaling, masking, biases and activations are fused as in Megatron."""

    def __init__(self, job: Job) -> None:
        h, t = job.hidden, job.tensor
        self.job = job
        self.norms = [(_meta(h), _meta(h)) for _ in range(2)]
        self.qkv, self.qkv_bias = _meta(3 * h // t, h), _meta(3 * h // t)
        self.project = _meta(h, h // t)
        self.up, self.up_bias = _meta(4 * h // t, h), _meta(4 * h // t)
        self.down = _meta(h, 4 * h // t)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the layer's output; x has shape (sequence * microbatch, hidden)."""
        job = self.job
        heads, width, rows = job.heads // job.tensor, job.hidden // job.heads, job.microbatch * job.heads // job.tensor
        y = torch.layer_norm(x, (job.hidden,), *self.norms[0])
        qkv = torch.addmm(self.qkv_bias, _Copy.apply(y), self.qkv.t())
        parts = qkv.view(SEQUENCE, job.microbatch * heads, 3 * width).split(width, -1)
        query, key, value = (part.transpose(0, 1) for part in parts)
        scores = torch.bmm(query, key.transpose(1, 2))
        weights = torch.native_dropout(torch.softmax(scores, -1), 0.1, True)[0]
        context = (
            torch.bmm(weights, value).transpose(0, 1).reshape(SEQUENCE * job.microbatch, rows // job.microbatch * width)
        )
        x = x + torch.native_dropout(_Sum.apply(context @ self.project.t()), 0.1, True)[0]
        y = torch.layer_norm(x, (job.hidden,), *self.norms[1])
        y = torch.nn.functional.gelu(torch.addmm(self.up_bias, _Copy.apply(y), self.up.t()))
        return x + torch.native_dropout(_Sum.apply(y @ self.down.t()), 0.1, True)[0]


def full_waves(rows: int, columns: int, batch: int = 1) -> float:
    """Return the share of an A100 that a product's tiles keep busy, in the better way to lay the tiles."""
    shares = []
    for high, wide in (TILE, TILE[::-1]):
        tiles = batch * math.ceil(rows / high) * math.ceil(columns / wide)
        useful = batch * rows * columns / (high * wide)
        shares.append(useful / (math.ceil(tiles / MULTIPROCESSORS) * MULTIPROCESSORS))
    return max(shares)


def idle_seconds(job: Job) -> tuple[float, float, float, float]:
    """Return what unfilled waves add to a layer forwards and backwards, and to the logits forwards and backwards."""
    rows, h, t = job.microbatch * SEQUENCE, job.hidden, job.tensor
    a100 = describe(1, gpu="a100").device
    rate = a100.flops_per_second("float16") * a100.compute_share

    def idle(*products: tuple[int, int, int]) -> float:
        return sum(2 * m * n * k / rate * (1 / full_waves(m, n) - 1) for m, n, k in products)

    def backwards(*products: tuple[int, int, int]) -> float:
        # The gradients of the input and of the weight.
        return idle(*((m, k, n) for m, n, k in products), *((n, k, m) for m, n, k in products))

    layer = (rows, 3 * h // t, h), (rows, h, h // t), (rows, 4 * h // t, h), (rows, h, 4 * h // t)
    logits = (rows, VOCABULARY // t, h)
    return idle(*layer), backwards(*layer), idle(logits), backwards(logits)


def _layer_seconds(job: Job) -> tuple[float, float, float, float]:
    """Return the seconds of a layer forwards and backwards, and of the logits forwards and backwards."""
    rows = job.microbatch * SEQUENCE
    layer, x = Layer(job), _meta(rows, job.hidden)
    with torch.no_grad():
        begin = time.perf_counter()
        layer(x)
        forwards = time.perf_counter() - begin
    out = layer(x)
    begin = time.perf_counter()
    out.backward(torch.empty_like(out))
    backwards = time.perf_counter() - begin
    head = _meta(VOCABULARY // job.tensor, job.hidden)
    begin = time.perf_counter()
    logits = (_Copy.apply(x) @ head.t()).float()
    loss = torch.softmax(logits, -1).sum()
    dist.all_reduce(torch.empty(3 * rows, device="meta"))
    head_forwards = time.perf_counter() - begin
    begin = time.perf_counter()
    loss.backward()
    return forwards, backwards, head_forwards, time.perf_counter() - begin


def interleaved(stage: int, num_stages: int, num_microbatches: int, chunks: int) -> Iterator[tuple[str, int, int]]:
    """Yield ("F" or "B", chunk, microbatch) of a stage in the order of Megatron's (interleaved) 1F1B schedule."""
    total = num_microbatches * chunks
    if chunks == 1:
        warmup = min(num_stages - stage - 1, total)
    elif num_microbatches == num_stages:
        warmup = total
    else:
        warmup = min((num_stages - stage - 1) * 2 + (chunks - 1) * num_stages, total)

    def place(step: int, backwards: bool) -> tuple[int, int]:
        if chunks == 1:
            return 0, step
        round_, inside = divmod(step, num_stages * chunks)
        chunk, offset = divmod(inside, num_stages)
        return (chunks - 1 - chunk if backwards else chunk), round_ * num_stages + offset

    for step in range(total + warmup):
        if step < total:
            yield ("F", *place(step, False))
        if step >= warmup:
            yield ("B", *place(step - warmup, True))


def _stage(job: Job, layer: tuple[float, float, float, float]) -> float:
    """Run the schedule as one stage; return its seconds."""
    stage, num_stages, chunks = dist.get_rank(), dist.get_world_size(), job.chunks
    per_chunk = job.layers / (num_stages * chunks)
    forwards = per_chunk * layer[0]
    backwards = per_chunk * (layer[0] + layer[1])  # recomputed first
    # Of an activation each tensor-parallel rank sends its share over a card of its own (scatter/gather).
    activation = torch.empty(job.microbatch * SEQUENCE * job.hidden // job.tensor, dtype=torch.float16, device="meta")
    gathered = activation.numel() * 2 * (job.tensor - 1) / 240e9
    pending: list[dist.Work] = []
    received: dict[tuple[str, int, int], dist.Work] = {}

    def neighbour(kind: str, chunk: int, comes: bool) -> tuple[int, int] | None:
        step = (-1 if comes else 1) * (1 if kind == "F" else -1)
        other = chunk * num_stages + stage + step
        return None if not 0 <= other < num_stages * chunks else (other % num_stages, other // num_stages)

    def tag(kind: str, chunk: int, microbatch: int) -> int:
        return ((0 if kind == "F" else 1) * chunks + chunk) * job.num_microbatches + microbatch

    plan = list(interleaved(stage, num_stages, job.num_microbatches, chunks))
    begin = time.perf_counter()

    def expect(op: tuple[str, int, int]) -> None:
        source = neighbour(op[0], op[1], True)
        if source is not None:
            received[op] = dist.irecv(activation, source[0], tag=tag(*op))

    for op in plan[:1]:
        expect(op)
    for place, op in enumerate(plan):
        kind, chunk, microbatch = op
        if place + 1 < len(plan):
            expect(plan[place + 1])  # posted before this one computes, so that bytes and compute overlap
        if op in received:
            received.pop(op).wait()
            time.sleep(gathered)
        last = chunk == chunks - 1 and stage == num_stages - 1
        time.sleep((forwards if kind == "F" else backwards) + (layer[2 if kind == "F" else 3] if last else 0.0))
        target = neighbour(kind, chunk, False)
        if target is not None:
            pending.append(dist.isend(activation, target[0], tag=tag(kind, target[1], microbatch)))
    for work in pending:
        work.wait()
    return time.perf_counter() - begin


def _all_reduce_seconds(num_bytes: int) -> float:
    begin = time.perf_counter()
    dist.all_reduce(torch.empty(num_bytes // 2, dtype=torch.float16, device="meta"))
    return time.perf_counter() - begin


def seconds(job: Job) -> dict[str, float]:
    """Return the seconds of an iteration, by what they go to."""
    ran = simulate(_layer_seconds, (job,), describe(job.tensor, gpu="a100", nic="ib_hdr"), echo=False).results[0]
    forwards, backwards, first, last = (one + more for one, more in zip(ran, idle_seconds(job), strict=True))
    layer = forwards, backwards, first, last
    one_a_node = describe(job.pipeline, gpu="a100", nic="ib_hdr", gpus_per_node=1)
    pipeline = max(simulate(_stage, (job, layer), one_a_node, echo=False).results)
    parameters = (12 * job.layers * job.hidden**2 / job.pipeline + VOCABULARY * job.hidden) / job.tensor
    gradients = 0.0
    if job.replicas > 1:
        # Tensor-parallel ranks of a node reduce at once, each over a card of its own.
        inside = max(1, 8 // job.tensor) if job.pipeline == 1 else 1
        world = describe(job.replicas, gpu="a100", nic="ib_hdr", gpus_per_node=inside)
        gradients = simulate(_all_reduce_seconds, (int(2 * parameters),), world, echo=False).results[0]
    a100 = one_a_node.device
    # Adam in mixed precision: gradient to float32, three float32 states read and written, parameter written in float16.
    optimizer = parameters * (2 + 4 + 4 + 2 * 3 * 4 + 2) / (a100.memory_bytes_per_second * a100.memory_share)
    useful = job.num_microbatches * job.layers / job.pipeline * (2 * layer[0] + layer[1])
    return {
        "pipeline": pipeline, "gradients": gradients, "optimizer": optimizer, "bubble_and_ends": pipeline - useful,
        "total": pipeline + gradients + optimizer,
    }  # fmt: skip


def teraflops(job: Job) -> float:
    """Return the predicted teraflop/s per GPU."""
    return job.flops / seconds(job)["total"] / job.gpus / 1e12


PUBLISHED = (
    Job(1.7, 24, 2304, 24, 1, 1, 32, 512, 4, 1, 137),
    Job(3.6, 32, 3072, 30, 2, 1, 64, 512, 4, 1, 138),
    Job(7.5, 32, 4096, 36, 4, 1, 128, 512, 4, 1, 142),
    Job(18.4, 48, 6144, 40, 8, 1, 256, 1024, 4, 1, 135),
    Job(39.1, 64, 8192, 48, 8, 2, 512, 1536, 1, 2, 138),
    Job(76.1, 80, 10240, 60, 8, 4, 1024, 1792, 1, 3, 140),
    Job(145.6, 96, 12288, 80, 8, 8, 1536, 2304, 1, 2, 148),
    Job(310.1, 128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 155),
    Job(529.6, 128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 163),
    Job(1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 1, 2, 163),
)
"""Table 1 of the paper. The microbatch and the parts of a stage are not in it and are assumed (section 5.1 says that
the interleaved schedule and scatter/gather were on)."""
