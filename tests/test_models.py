"""The course's model learns what it is given, the same way each time, whole or in shares."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from labkit.models import GPT, IGNORED, VOCABULARY, Addition, accuracy, loss_of, optimizer_for, train


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("num_digits", [1, 2, 3, 5])
def test_every_sum_is_right_and_its_digits_come_last_to_first(num_digits: int) -> None:
    tokens, targets = Addition(num_digits).batch(3, 32)
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        text = "".join(VOCABULARY[each] for each in row) + VOCABULARY[wanted[-1]]
        first, second, total = text.replace("+", "=").split("=")
        assert int(first) + int(second) == int(total[::-1]) and len(total) == num_digits + 1
        assert wanted[: 2 * num_digits + 1] == [IGNORED] * (2 * num_digits + 1)
        assert wanted[2 * num_digits + 1 :] == [VOCABULARY.index(each) for each in total]


def test_the_shares_of_all_ranks_are_the_batch() -> None:
    task = Addition(seed=4)
    whole = {tuple(row) for row in task.batch(7, 12)[0].tolist()}
    shares = [task.batch(7, 12, rank=rank, world_size=3)[0] for rank in range(3)]
    assert {tuple(row) for share in shares for row in share.tolist()} == whole
    assert [len(share) for share in shares] == [4, 4, 4]
    with pytest.raises(ValueError, match="12 has no equal shares for 5 ranks"):
        task.batch(7, 12, rank=0, world_size=5)


def test_steps_and_seeds_are_different_batches() -> None:
    batches = [Addition(seed=seed).batch(step, 8)[0] for seed in (0, 1) for step in (-1, 0, 1)]
    assert len({tuple(batch.flatten().tolist()) for batch in batches}) == len(batches)


def test_equal_seeds_give_equal_losses_to_the_last_bit() -> None:
    torch.manual_seed(1)
    first = train(GPT(seed=2), Addition(seed=3), 5, size=16)
    torch.manual_seed(99)
    assert train(GPT(seed=2), Addition(seed=3), 5, size=16) == first
    assert train(GPT(seed=5), Addition(seed=3), 5, size=16) != first


def test_a_token_sees_none_after_it() -> None:
    model, tokens = GPT(), Addition().batch(0, 4)[0]
    changed = tokens.clone()
    changed[:, 5:] = 0
    torch.testing.assert_close(model(changed)[:, :5], model(tokens)[:, :5])
    assert not torch.equal(model(changed)[:, 5:], model(tokens)[:, 5:])


def test_it_has_a_few_hundred_thousand_parameters_and_decays_only_matrices() -> None:
    model = GPT()
    assert 200_000 < model.num_parameters < 500_000
    decayed, others = (group["params"] for group in optimizer_for(model).param_groups)
    assert all(each.dim() == 2 for each in decayed) and all(each.dim() == 1 for each in others)
    assert sum(each.numel() for each in (*decayed, *others)) == model.num_parameters


def test_gradients_are_clipped_by_their_global_norm() -> None:
    model, task = GPT(), Addition()
    train(model, task, 1, max_norm=0.25)
    assert sum(float(each.grad.norm()) ** 2 for each in model.parameters() if each.grad is not None) ** 0.5 <= 0.2501


@pytest.mark.in_turn
def test_it_begins_as_a_guess_and_learns_in_a_hundred_steps() -> None:
    model, task = GPT(), Addition()
    tokens, targets = task.batch(-1, 128)
    assert 2.3 < loss_of(model, tokens, targets).item() < 3.0
    losses = train(model, task, 120, lr=4e-3)
    assert sum(losses[-10:]) / 10 < 1.5


@pytest.mark.long
def test_it_learns_visibly_within_twenty_seconds_of_computing() -> None:
    model, task = GPT(), Addition()
    begun = time.process_time()
    losses = train(model, task, 120, lr=4e-3)
    assert time.process_time() - begun < 20  # of one core, whatever else the machine does
    assert sum(losses[-10:]) / 10 < 0.7 * losses[0]


@pytest.mark.long
def test_it_adds_after_four_hundred_steps() -> None:
    model, task = GPT(), Addition()
    losses = train(model, task, 400)
    assert sum(losses[-20:]) / 20 < 0.4
    assert accuracy(model, task) > 0.4
