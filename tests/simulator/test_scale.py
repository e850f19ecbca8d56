"""Hundreds of ranks, and models that would not fit: what makes that possible changes no result."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

import labkit
from labkit.errors import RankFailed, RunTimeout
from tests.benchmarks.transformer_3d import Shape, train_step

SMALL = Shape(
    layers=4, hidden=8192, heads=64, kv_heads=8, inner=28672, vocab=8192, sequence=4096, pipeline=4, data=1, tensor=1,
    num_microbatches=8,
)  # fmt: skip


def _step(shape: Shape, **world: Any) -> labkit.Run:
    num_ranks = shape.pipeline * shape.data * shape.tensor
    return labkit.run(train_step, shape, on=labkit.virtual(num_ranks, join_operators=True, **world), echo=False)


@pytest.mark.in_turn
def test_a_pipeline_of_meta_tensors_has_the_bubble_of_the_closed_form() -> None:
    few, many = (_step(replace(SMALL, num_microbatches=number)).results[0] for number in (8, 16))
    microbatch = (many - few) / 8  # each further one costs the slowest stage's time
    # (P-1)/(M+P-1): on top of M microbatches the pipeline fills and drains for P-1 of them; the update comes after.
    rest = few - 8 * microbatch
    assert 0.75 * 3 * microbatch < rest < 1.1 * 3 * microbatch


@pytest.mark.in_turn
def test_a_step_takes_at_least_what_its_arithmetic_takes_and_not_twice_that() -> None:
    device = labkit.virtual(1).cluster.device
    shape = replace(SMALL, num_microbatches=16)
    ideal = 6 * shape.num_parameters * shape.tokens / (4 * device.peak_flops["bfloat16"] * device.compute_share)
    with_bubble = ideal * (16 + 3) / 16
    # Attention's own arithmetic is not in 6 N; neither is what is limited by memory: norms, rotation, the update.
    assert with_bubble < _step(shape).results[0] < 2 * with_bubble


@pytest.mark.in_turn
def test_three_ways_of_splitting_compute_the_same_model() -> None:
    whole = Shape(2, 64, 4, 2, 128, 96, 16, 1, 1, 1, 2)
    losses = [labkit.run(_losses, shape, on=labkit.virtual(n), echo=False).results for shape, n in (
        (whole, 1), (replace(whole, tensor=2), 2), (replace(whole, pipeline=2), 2),
        (replace(whole, pipeline=2, data=2, tensor=2), 8),
    )]  # fmt: skip
    for ranks in losses[1:]:
        last = [values for values in ranks if values]
        assert last
        for values in last:
            assert values == pytest.approx(losses[0][0], rel=0.03)


def _losses(shape: Shape) -> list[float]:
    """Return the loss of each microbatch of a real model, on ranks of the last stage; all weights are given."""
    from torch.distributed.device_mesh import init_device_mesh

    from tests.benchmarks import transformer_3d as program

    torch.set_default_dtype(torch.float32)
    mesh = init_device_mesh("cpu", (shape.pipeline, shape.data, shape.tensor), mesh_dim_names=("pp", "dp", "tp"))
    stage = program.Stage(shape, mesh)
    found: list[float] = []
    with torch.no_grad():
        for parameter in stage.parameters():
            parameter.fill_(0.05)
        if stage.words is not None:
            rows = stage.first_word + torch.arange(stage.vocab)
            stage.words.weight.copy_(torch.sin(rows[:, None] * torch.linspace(0.1, 1, shape.hidden)))
        if stage.head is not None:
            rows = stage.first_word + torch.arange(stage.vocab)
            stage.head.weight.copy_(torch.cos(rows[:, None] * torch.linspace(0.1, 1, shape.hidden)) / 8)
    stage.register_forward_hook(lambda _, __, y: found.append(float(y.detach())) if y.dim() == 0 else None)
    tokens = torch.arange(shape.num_microbatches * shape.sequence).view(-1, 1, shape.sequence) % shape.vocab
    near = program.Neighbours(shape, mesh, "cpu")
    program.one_f_one_b(shape, stage, near, tokens, (tokens + 1) % shape.vocab)
    return found


@pytest.mark.in_turn
def test_joined_operators_change_no_time_and_no_byte() -> None:
    shape = Shape(2, 256, 4, 2, 512, 512, 128, 2, 1, 2, 4)
    each = labkit.run(train_step, shape, on=labkit.virtual(4), echo=False)
    joined = _step(shape)
    assert joined.results == each.results
    assert len(joined.timeline) < len(each.timeline) / 3
    for of in (each.timeline, joined.timeline):
        assert of.num_ranks == 4
    sums = [int(of.bytes[of.kind == "operator"].sum()) for of in (each.timeline, joined.timeline)]
    busy = [int((of.end_ns - of.start_ns)[of.kind == "operator"].sum()) for of in (each.timeline, joined.timeline)]
    assert sums[0] == sums[1]
    assert busy[0] == busy[1]
    calls = [of.select(of.kind == "all_reduce") for of in (each.timeline, joined.timeline)]
    assert np.array_equal(calls[0].start_ns, calls[1].start_ns)
    assert np.array_equal(calls[0].end_ns, calls[1].end_ns)


def _on_meta() -> list[Any]:
    """Return what a wide choice of operators yields on meta; each is called twice, the second time from memory."""
    a = torch.empty(4, 6, device="meta")
    wide, half = torch.empty(4, 6, 8, device="meta").transpose(0, 2), torch.empty(4, 6, device="meta", dtype=torch.half)
    whole = torch.empty(4, 6, device="meta", dtype=torch.long)
    calls: list[Any] = [
        lambda: a + half, lambda: a * 2, lambda: whole / 2, lambda: whole + 1.5, lambda: wide + 1, lambda: wide.clone(),
        lambda: wide.sum(0), lambda: a.max(dim=1), lambda: torch.cat([a, a]), lambda: torch.stack([a, a], 1),
        lambda: a.t().contiguous(), lambda: a @ a.t(), lambda: functional.softmax(wide, 1), lambda: a.to(torch.half),
        lambda: functional.layer_norm(a, (6,)), lambda: a.add_(1), lambda: half.mul_(a), lambda: a.zero_(),
        lambda: torch.zeros(3, device="meta"), lambda: torch.arange(5, device="meta"), lambda: a.expand(2, 4, 6) * 1,
        lambda: torch.where(a > 0, a, 1.0), lambda: a.topk(2), lambda: torch.split(a, 2), lambda: a.resize_(2, 3),
        lambda: torch.empty(4, 6, device="meta").unsqueeze_(0), lambda: torch.nn.functional.dropout(wide, 0.5),
    ]  # fmt: skip
    found: list[Any] = []
    for call in calls:
        for _ in range(2):
            out = call()
            outs = out if isinstance(out, tuple) else (out,)
            found.append([(tuple(one.shape), one.stride(), str(one.dtype), one.device.type, one.storage_offset(),
                           one.untyped_storage().nbytes()) for one in outs])  # fmt: skip
    return found


def test_what_is_remembered_of_meta_tensors_is_what_torch_yields() -> None:
    assert labkit.run(_on_meta, on=labkit.virtual(2), echo=False).results == [_on_meta()] * 2


def test_a_result_that_hangs_on_the_default_dtype_is_not_taken_from_another() -> None:
    def divide() -> list[str]:
        whole, found = torch.empty(3, device="meta", dtype=torch.long), []
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            found.append(str((whole / 2).dtype))
        return found

    expected = ["torch.float32", "torch.float64", "torch.float32"]
    assert labkit.run(divide, on=labkit.virtual(1), echo=False).results == [expected]


def test_numbers_that_are_equal_and_of_different_types_are_different_arguments() -> None:
    def add() -> list[str]:
        whole = torch.empty(3, device="meta", dtype=torch.long)
        flags = torch.empty(3, device="meta", dtype=torch.bool)
        return [str((of * number).dtype) for of in (whole, flags) for number in (1, 1.0, True)]

    types = ["int64", "float32", "int64", "int64", "float32", "bool"]
    assert labkit.run(add, on=labkit.virtual(1), echo=False).results == [[f"torch.{name}" for name in types]]


def test_an_operator_on_values_is_never_taken_from_memory() -> None:
    def count() -> list[int]:
        return [int(torch.nonzero(torch.tensor(values)).numel()) for values in ([1, 0, 1], [1, 1, 1], [0, 0, 0])]

    assert labkit.run(count, on=labkit.virtual(1), echo=False).results == [[2, 3, 0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention_of_meta_tensors_holds_no_score_for_every_pair(dtype: torch.dtype) -> None:
    def attending() -> None:
        q = torch.empty(2, 4, 1024, 64, dtype=dtype, device="meta", requires_grad=True)
        functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()

    held = labkit.run(attending, on=labkit.virtual(1)).timeline.tables["memory_peak"]["bytes"].max()
    scores = 2 * 4 * 1024 * 1024 * dtype.itemsize
    assert held < scores


def test_meta_tensors_take_the_fused_kernels_of_a_gpu_in_ranks_only() -> None:
    def attend() -> list[tuple[int, ...]]:
        make = torch.empty
        q = make(2, 8, 64, 16, device="meta", dtype=torch.bfloat16, requires_grad=True)
        k = make(2, 2, 64, 16, device="meta", dtype=torch.bfloat16, requires_grad=True)
        out = functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
        weight = torch.nn.Parameter(make(16, device="meta", dtype=torch.bfloat16))
        functional.rms_norm(out, (16,), weight).sum().backward()
        return [tuple(one.shape) for one in (out, q.grad, k.grad, weight.grad) if one is not None]

    real = functional.scaled_dot_product_attention
    run = labkit.run(attend, on=labkit.virtual(1), echo=False)
    assert run.results == [[(2, 8, 64, 16), (2, 8, 64, 16), (2, 2, 64, 16), (16,)]]
    names = run.timeline.name.tolist()
    assert names.count("_scaled_dot_product_flash_attention") == 1
    assert names.count("rms_norm") == 1
    assert "_safe_softmax" not in names
    assert functional.scaled_dot_product_attention is real


def test_the_fused_norm_takes_tokens_that_tensor_ranks_share() -> None:
    def norm() -> tuple[Any, ...]:
        mesh, make = init_device_mesh("cuda", (2,)), torch.empty
        rms = nn.RMSNorm(64, device="cuda", dtype=torch.bfloat16)
        shared = parallelize_module(rms, mesh, SequenceParallel())
        out = shared(make(4, 8, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True))
        out.to_local().sum().backward()
        assert rms.weight.grad is not None
        return tuple(out.shape), tuple(out.to_local().shape), tuple(rms.weight.grad.shape), str(out.placements[0])

    run = labkit.run(norm, on=labkit.virtual(2, gpu="h100", shapes=True), echo=False)
    assert run.results == [((4, 16, 64), (4, 8, 64), (64,), "S(1)")] * 2
    assert run.timeline.name.tolist().count("rms_norm") == 2


def test_messages_of_meta_tensors_are_checked_though_they_have_no_values() -> None:
    def mismatch() -> None:
        tensor = torch.empty(3 + dist.get_rank(), device="meta")
        dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0)

    with pytest.raises(RankFailed, match="Both ends of a message need the same number of elements"):
        labkit.run(mismatch, on=labkit.virtual(2), echo=False)


def test_a_rank_draws_its_own_numbers_however_ranks_take_turns() -> None:
    def draw() -> list[float]:
        numbers = [float(torch.rand(()))]
        dist.barrier()
        state = torch.get_rng_state()
        numbers.append(float(torch.rand(())))
        dist.barrier()
        torch.set_rng_state(state)
        numbers.append(float(torch.rand(())))
        dist.barrier()
        torch.default_generator.manual_seed(7)
        dist.barrier()
        numbers.append(float(functional.dropout(torch.ones(1000), 0.5).sum()))
        return numbers

    found = labkit.run(draw, on=labkit.virtual(3), seed=5, echo=False).results
    seventh = torch.Generator().manual_seed(7)
    kept = float(torch.empty(1000).bernoulli_(0.5, generator=seventh).sum() * 2)
    for rank, numbers in enumerate(found):
        generator = torch.Generator().manual_seed(5 + rank)
        first, second = (float(torch.rand((), generator=generator)) for _ in range(2))
        assert numbers == [first, second, second, kept]


@pytest.mark.in_turn
def test_512_ranks_communicate_and_leave_no_thread() -> None:
    def ring_step() -> float:
        rank, size = dist.get_rank(), dist.get_world_size()
        got = torch.empty(4)
        ops = [
            dist.P2POp(dist.isend, torch.full((4,), float(rank)), (rank + 1) % size),
            dist.P2POp(dist.irecv, got, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        dist.all_reduce(got)
        return float(got[0])

    before = threading.active_count()
    run = labkit.run(ring_step, on=labkit.virtual(512), echo=False)
    assert run.results == [512 * 511 / 2] * 512
    assert threading.active_count() == before


@pytest.mark.in_turn
def test_a_deadlock_of_512_ranks_is_told_in_a_few_lines() -> None:
    def circle() -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        dist.send(torch.ones(2), (rank + 1) % size)

    def one_is_missing() -> None:
        if dist.get_rank() != 300:
            dist.all_reduce(torch.ones(2))

    before = threading.active_count()
    with pytest.raises(RunTimeout) as told:
        labkit.run(circle, on=labkit.virtual(512), echo=False)
    assert "rank 0 -> rank 1 -> " in str(told.value)
    assert len(str(told.value).splitlines()) < 12
    assert len(told.value.reports) == 512
    with pytest.raises(RunTimeout) as told:
        labkit.run(one_is_missing, on=labkit.virtual(512), echo=False)
    assert re.search(r"ranks 0-299, 301-511 wait in all_reduce .*, which rank 300 finished without\n", str(told.value))
    assert len(str(told.value).splitlines()) == 4
    assert threading.active_count() == before
