"""Linear layers that are recorded as their products: what a program sees of them is what torch's own would show."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from torch import nn
from torch.utils.checkpoint import checkpoint

import labkit
from labkit.simulator import linear

Loss = Callable[[nn.Module, torch.Tensor], Any]


def _model(*, bias: bool = False, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    layers = nn.Linear(24, 40, bias), nn.GELU(), nn.Linear(40, 40, bias), nn.Linear(40, 8, bias)
    return nn.Sequential(*layers).to("meta", dtype)


def _steps(model: nn.Module, x: torch.Tensor, loss: Loss = lambda model, x: model(x).sum()) -> list[object]:
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
    for _ in range(3):
        loss(model, x).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [tuple(one.shape) for one in model.parameters()]


def plain() -> object:
    return _steps(_model(), torch.empty(2, 6, 24, device="meta"))


def two_dimensions_in_half_precision() -> object:
    return _steps(_model(dtype=torch.bfloat16), torch.empty(12, 24, device="meta", dtype=torch.bfloat16))


def gradients_add_up() -> object:
    model, x = _model(), torch.empty(2, 6, 24, device="meta", requires_grad=True)
    for _ in range(3):
        model(x).sum().backward()
    assert x.grad is not None
    return x.grad.stride(), [None if one.grad is None else one.grad.stride() for one in model.parameters()]


def no_gradients() -> object:
    model, x = _model(), torch.empty(2, 6, 24, device="meta")
    with torch.no_grad():
        outs = [model(x) for _ in range(3)]
    with torch.inference_mode():
        outs += [model(x) for _ in range(3)]
    return [(one.shape, one.requires_grad, one.is_inference()) for one in outs]


def frozen_weights() -> object:
    model = _model()
    for one in list(model.parameters())[:2]:
        one.requires_grad_(False)
    return _steps(model, torch.empty(2, 6, 24, device="meta"))


def frozen_behind_a_trained_input() -> object:
    model, x = _model().requires_grad_(False), torch.empty(2, 6, 24, device="meta", requires_grad=True)
    for _ in range(3):
        model(x).sum().backward()
    return x.grad is not None


def biases() -> object:
    return _steps(_model(bias=True), torch.empty(2, 6, 24, device="meta"))


def transposed_inputs_and_gradients() -> object:
    def loss(model: nn.Module, x: torch.Tensor) -> Any:
        return (model(x.transpose(0, 1)).transpose(0, 1) * torch.empty(6, 2, 8, device="meta")).sum()

    return _steps(_model(), torch.empty(6, 2, 24, device="meta"), loss)


def single_rows() -> object:
    return _steps(_model(), torch.empty(1, 1, 24, device="meta")), _steps(_model(), torch.empty(24, device="meta"))


def recomputed_in_both_ways() -> object:
    def loss(model: nn.Module, x: torch.Tensor) -> Any:
        first: Any = checkpoint(model, x, use_reentrant=True)
        second: Any = checkpoint(model, x, use_reentrant=False)
        return (first + second).sum()

    return _steps(_model(), torch.empty(2, 6, 24, device="meta", requires_grad=True), loss)


def gradients_of_gradients() -> object:
    model, x = _model(), torch.empty(2, 6, 24, device="meta", requires_grad=True)
    for _ in range(3):
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        slope.pow(2).sum().backward()  # type: ignore[no-untyped-call]
    return [one.grad is not None for one in model.parameters()]


def the_same_graph_twice() -> object:
    model, x = _model(), torch.empty(2, 6, 24, device="meta")
    for _ in range(3):
        out = model(x).sum()
        out.backward(retain_graph=True)
        out.backward()
    return [one.grad is not None for one in model.parameters()]


def autocast() -> object:
    def loss(model: nn.Module, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float().sum()

    return _steps(_model(), torch.empty(2, 6, 24, device="meta"), loss)


def offloaded() -> object:
    seen: list[torch.Size] = []

    def kept(one: torch.Tensor) -> torch.Tensor:
        seen.append(one.shape)
        return one

    def loss(model: nn.Module, x: torch.Tensor) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(kept, lambda one: one):
            return model(x).sum()

    return _steps(_model(), torch.empty(2, 6, 24, device="meta"), loss), seen


def transforms() -> object:
    model = _model()
    weights: dict[str, torch.Tensor] = dict(model.named_parameters())

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.func.functional_call(model, weights, (x,))
        return out.sum()

    x = torch.empty(5, 6, 24, device="meta")
    for _ in range(3):
        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
    return {name: one.shape for name, one in each.items()}


def input_and_weights_in_two_passes() -> object:
    model, x = _model(), torch.empty(2, 6, 24, device="meta", requires_grad=True)
    for _ in range(3):
        out = model(x * 1).sum()
        torch.autograd.grad(out, x, retain_graph=True)
        torch.autograd.grad(out, list(model.parameters())[:2], retain_graph=True)
        out.backward(inputs=list(model.parameters()))
    leaf = model[0](x).sum()
    torch.autograd.grad(leaf, x, retain_graph=True)
    return [one.grad is not None for one in model.parameters()]


def attention_of_torchs_own() -> object:
    layer = nn.MultiheadAttention(24, 4, bias=False, batch_first=True).to("meta")

    def loss(model: nn.Module, x: torch.Tensor) -> Any:
        out: torch.Tensor = model(x, x, x, need_weights=False)[0]
        return out.sum()

    return _steps(layer, torch.empty(2, 6, 24, device="meta"), loss)


def _run(program: Callable[[], Any], num_ranks: int) -> tuple[list[Any], labkit.Timeline]:
    run = labkit.run(program, on=labkit.virtual(num_ranks), echo=False)
    assert run.timeline is not None
    return run.results, run.timeline


PROGRAMS = (
    plain, two_dimensions_in_half_precision, gradients_add_up, no_gradients, frozen_weights,
    frozen_behind_a_trained_input, biases, transposed_inputs_and_gradients, single_rows, recomputed_in_both_ways,
    gradients_of_gradients, the_same_graph_twice, autocast, offloaded, transforms, input_and_weights_in_two_passes,
    attention_of_torchs_own,
)  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: str(one.__name__))
def test_results_spans_and_memory_are_those_of_torchs_own_linear(
    program: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    shortened, mine = _run(program, 2)
    monkeypatch.setattr(linear, "installed", nullcontext)
    own, theirs = _run(program, 2)
    assert shortened == own
    assert mine.makespan_ns == theirs.makespan_ns
    if program is gradients_of_gradients:  # torch adds them up in another order
        assert sorted(mine.name) == sorted(theirs.name)
        return
    for column in ("rank", "start_ns", "end_ns", "name", "bytes"):
        assert np.array_equal(getattr(mine, column), getattr(theirs, column)), column
    for table in ("phase", "lifetime", "memory", "memory_peak", "call"):
        held, expected = mine.tables.get(table, {}), theirs.tables.get(table, {})
        assert held.keys() == expected.keys()
        for name, values in held.items():
            assert np.array_equal(values, expected[name]), (table, name)


def test_a_layer_that_was_met_before_is_one_function_and_three_products() -> None:
    def program() -> tuple[list[str], list[str]]:
        model = nn.Linear(24, 40, bias=False).to("meta")
        names = []
        for _ in range(3):
            out = model(torch.empty(6, 24, device="meta"))
            assert out.grad_fn is not None
            names.append(out.grad_fn.name())
            out.sum().backward()
        return names, [functional.linear.__name__]

    results, timeline = _run(program, 1)
    names, own = results[0]
    assert names[0].startswith("MmBackward")
    assert names[1:] == ["LinearBackward"] * 2
    assert own == ["linear"]
    assert list(timeline.name).count("mm") == 3 * 2  # no input wants a gradient
    assert functional.linear is not linear._linear


def test_a_mode_of_the_programs_own_sees_every_operator() -> None:
    def program() -> list[int]:
        from torch.utils._python_dispatch import TorchDispatchMode

        class Counts(TorchDispatchMode):  # type: ignore[no-untyped-call]
            seen = 0

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                self.seen += 1
                return func(*args, **kwargs or {})

        model, x, counts = _model(), torch.empty(2, 6, 24, device="meta"), []
        for _ in range(3):
            with Counts() as mode:  # type: ignore[no-untyped-call]
                model(x).sum().backward()
            counts.append(mode.seen)
            model.zero_grad()
        return counts

    first, *others = labkit.run(program, on=labkit.virtual(1), echo=False).results[0]
    assert others == [first, first]


class _Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.RMSNorm(8), nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(self.norm(x))
        return functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_what_stands_in_for_functions_of_torch_is_found_by_their_names_and_can_be_scripted() -> None:
    def program() -> tuple[torch.Size, list[bool]]:
        module: Any = functional
        stands_in = [module.linear, module.rms_norm, module.scaled_dot_product_attention]
        kept = [pickle.loads(pickle.dumps(one)) is one for one in stands_in]
        scripted: Any = torch.jit.script(_Scripted())
        return scripted(torch.ones(2, 3, 4, 8)).shape, kept

    assert labkit.run(program, on=labkit.virtual(1), echo=False).results == [(torch.Size([2, 3, 4, 8]), [True] * 3)]
