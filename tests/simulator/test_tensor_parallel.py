"""torch's ColwiseParallel, RowwiseParallel, SequenceParallel and loss_parallel run on virtual ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
from torch.utils.checkpoint import checkpoint

import labkit
from labkit.models import GPT, Addition, loss_of
from tests.simulator.torchs_tensor_parallel import loss_of_torchs, parallelized


def _gradients(sequence: bool) -> dict[str, Any]:
    model = parallelized(GPT().double(), sequence)
    with loss_parallel():
        torch.autograd.backward(loss_of_torchs(model, *Addition().batch(0, 8), sequence))
    named = dict(model.named_parameters())
    wanted = {
        "rows": "tokens.weight",
        "up": "blocks.1.up.weight",
        "down": "blocks.0.down.weight",
        "norm": "norm.weight",
    }
    found = {key: named[name].grad for key, name in wanted.items()}
    return {key: each.full_tensor() if isinstance(each, DTensor) else each for key, each in found.items()}


@pytest.mark.in_turn
@pytest.mark.parametrize(("num_ranks", "sequence"), [(2, False), (4, True), (4, False)])
def test_torchs_plan_has_the_gradients_of_one_process(num_ranks: int, sequence: bool) -> None:
    whole = GPT().double()
    tokens, targets = Addition().batch(0, 8)
    logits = whole(tokens)
    torch.autograd.backward(
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    )
    named = dict(whole.named_parameters())
    run = labkit.run(_gradients, sequence, on=labkit.virtual(num_ranks), echo=False)
    assert run.timeline and not run.timeline.problems
    for found in run.results:
        for key, name in {"rows": "tokens.weight", "up": "blocks.1.up.weight", "down": "blocks.0.down.weight"}.items():
            torch.testing.assert_close(found[key], named[name].grad, rtol=1e-6, atol=1e-9, msg=f"{key} of {name}")
        torch.testing.assert_close(found["norm"], named["norm.weight"].grad, rtol=1e-6, atol=1e-9)


@pytest.mark.in_turn
def test_what_loss_parallel_puts_into_torchs_tables_is_gone_after_the_run() -> None:
    before = dict(DTensor._op_dispatcher._custom_op_handlers)
    labkit.run(_gradients, False, on=labkit.virtual(2), echo=False)
    assert DTensor._op_dispatcher._custom_op_handlers == before
    assert loss_of(GPT(), *Addition().batch(0, 8)).isfinite()


@pytest.mark.in_turn
@pytest.mark.parametrize("shapes", [False, True])
def test_what_a_gather_yields_is_kept_for_a_backward_pass_that_reads_it_itself(shapes: bool) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (kept,) = ctx.saved_tensors
            assert kept.shape == grad.shape
            return grad * 2.0

    def step() -> tuple[int, ...]:
        mesh = init_device_mesh("cuda", (2,))
        weight = nn.Parameter(distribute_tensor(torch.ones(8, 4, device="cuda"), mesh, [Shard(0)]))

        given = (distribute_tensor(torch.ones(8, 4, device="cuda"), mesh, [Shard(0)]) * weight).redistribute(
            mesh, [Replicate()], async_op=True
        )
        torch.autograd.backward(checkpoint(Doubled.apply, given, use_reentrant=False).sum())
        assert weight.grad is not None
        return tuple(weight.grad.shape)

    run = labkit.run(step, on=labkit.virtual(2, gpu="h100", cuda=True, shapes=shapes), echo=False)
    assert run.results == [(8, 4)] * 2


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_over_a_sharded_vocabulary_of_scores_without_values_goes_backward(reduction: str) -> None:
    def step() -> tuple[int, ...]:
        mesh = init_device_mesh("cuda", (2,))
        whole = nn.Linear(16, 32, bias=False, device="cuda")
        head = parallelize_module(whole, mesh, ColwiseParallel(output_layouts=Shard(-1), use_local_output=False))
        labels = torch.randint(32, (4, 8)).to("cuda")
        with loss_parallel():
            scores = head(torch.ones(4, 8, 16, device="cuda")).flatten(0, 1).float()
            loss = torch.nn.functional.cross_entropy(scores, labels.flatten(), reduction=reduction, ignore_index=-100)
            torch.autograd.backward(loss / torch.tensor(32.0, device="cuda"))
        assert whole.weight.grad is not None
        return tuple(whole.weight.grad.shape)

    run = labkit.run(step, on=labkit.virtual(2, gpu="h100", cuda=True, shapes=True), echo=False)
    assert run.results == [(32, 16)] * 2


@pytest.mark.parametrize("shapes", [False, True])
def test_labels_on_a_virtual_device_go_into_torchs_loss_over_a_sharded_vocabulary(shapes: bool) -> None:
    def step() -> tuple[str, tuple[int, ...]]:
        mesh = init_device_mesh("cuda", (2,))
        whole = nn.Linear(16, 32, bias=False, device="cuda")
        layout = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
        head = parallelize_module(whole, mesh, layout)
        labels = torch.tensor([1, 2, 3, 4], device="cuda")
        with loss_parallel():
            loss = torch.nn.functional.cross_entropy(head(torch.ones(4, 16, device="cuda")), labels)
            torch.autograd.backward(loss)
        assert whole.weight.grad is not None
        return loss.device.type, tuple(whole.weight.grad.shape)

    run = labkit.run(step, on=labkit.virtual(2, gpu="h100", cuda=True, shapes=shapes), echo=False)
    assert run.results == [("cuda", (32, 16))] * 2
