"""The hard model holds what it promises to hold."""

from __future__ import annotations

import torch
from torch import nn

from labkit.checks.on_ranks.hard_model import HardModel, hard_batch


def test_equal_seeds_give_equal_models_and_others_differ_in_every_parameter_and_buffer() -> None:
    first, again, other = HardModel(3).state_dict(), HardModel(3).state_dict(), HardModel(4).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not [name for name in first if torch.equal(first[name], other[name])]


def test_it_has_a_tied_weight_a_frozen_layer_an_unused_layer_buffers_and_a_scalar() -> None:
    model = HardModel(0)
    assert model.remix.weight is model.mix.weight
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["fixed.weight", "fixed.bias"]
    assert {name for name, _ in model.named_buffers()} == {
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    }  # fmt: skip
    assert model.scale.shape == ()
    x, y = hard_batch(1, 4)
    nn.functional.mse_loss(model(x), y).backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == {"fixed.weight", "fixed.bias", "spare.weight", "spare.bias"}
    assert all(p.dtype == torch.float64 for p in model.parameters())


def test_what_is_switched_off_is_not_there() -> None:
    plain = HardModel(0, norm=False, tied=False, frozen=False, unused=False)
    assert not list(plain.buffers())
    assert plain.remix.weight is not plain.mix.weight
    x, y = hard_batch(1, 4)
    nn.functional.mse_loss(plain(x), y).backward()
    assert all(p.grad is not None for p in plain.parameters())
