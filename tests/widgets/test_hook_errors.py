"""What hooks send and lose of real gradients, held against torch's own hooks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import labkit
from labkit.errors import ConfigError
from labkit.plans.buckets import HOOKS
from labkit.timeline import COMMUNICATION
from labkit.widgets import measured_hooks
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.hook_errors import as_ranks, hook_errors, norms, total_error
from tests.widgets import bucket_programs, measured_gradients
from tests.widgets.in_page import Evaluate


@pytest.mark.in_turn
@pytest.mark.parametrize(("name", "near"), [("fp16", 0.02), ("PowerSGD, rank 4", 0.1)])
def test_torchs_hook_sends_so_much_and_loses_so_much(name: str, near: float) -> None:
    run = labkit.run(bucket_programs.hooked, name, on=labkit.local(2), echo=False)
    ranks = as_ranks([own for own, _ in run.results])
    lost, sizes = hook_errors(ranks)[name], norms(ranks)
    means = [sum(parts) / 2 for parts in zip(*ranks, strict=True)]
    arrived = [each.numpy() for each in run.results[0][1]]
    errors = [float(np.linalg.norm(a - m) / np.linalg.norm(m)) for a, m in zip(arrived, means, strict=True)]
    assert total_error(lost.errors, sizes) == pytest.approx(total_error(errors, sizes), rel=near)
    begin = next(span.start_ns for span in run.timeline.spans(rank=0).rows() if span.name == "backward")
    spans = run.timeline.spans(rank=0, lane=COMMUNICATION, kind="all_reduce").rows()
    assert sum(span.bytes for span in spans if span.start_ns >= begin) == sum(lost.num_bytes)


def test_top_one_percent_keeps_the_largest_of_each_rank() -> None:
    gradient = np.arange(1, 201, dtype=np.float32)
    lost = hook_errors([[gradient]])["top 1 %"]
    rest = np.linalg.norm(gradient[:198])
    assert lost.num_bytes == (2 * 8,)
    assert lost.errors[0] == pytest.approx(rest / np.linalg.norm(gradient))


def test_what_is_small_or_zero_loses_nothing_to_a_low_rank() -> None:
    bias, zero, matrix = np.ones(10, np.float32), np.zeros((64, 64), np.float32), np.ones((64, 64), np.float32)
    lost = hook_errors([[bias, zero, matrix]])["PowerSGD, rank 4"]
    assert lost.num_bytes == (40, 4 * 4 * 128, 4 * 4 * 128)
    assert lost.errors == pytest.approx((0, 0, 0), abs=1e-6)


def test_the_figure_counts_on_the_gradients_it_is_given(evaluate: Evaluate) -> None:
    draw = np.random.default_rng(0)
    ranks = [[torch.tensor(draw.standard_normal((64, 64)), dtype=torch.float32) for _ in range(4)] for _ in range(2)]
    figure = bucket_explorer(gradients=ranks, hook="fp16")
    assert figure.data["sizes"] == [4 * 64 * 64] * 4
    assert figure.data["hooks"]["PowerSGD, rank 4"]["bytes"] == (4 * 4 * 128,) * 4
    assert figure.data["measuredOn"] == "on your gradients of 2 ranks"
    wanted = total_error(hook_errors(as_ranks(ranks))["fp16"].errors, norms(as_ranks(ranks)))
    assert figure.numbers["errors"]["fp16"] == pytest.approx(wanted, rel=0.01)
    inputs = {"errors": figure.data["hooks"]["fp16"]["errors"], "norms": figure.data["norms"]}
    found = evaluate("buckets", "lost(errors, norms, [0, 1, 2, 3])", **inputs)
    assert found == pytest.approx(figure.numbers["errors"]["fp16"])
    assert "norms" not in bucket_explorer([100, 100]).data  # of gradients that nobody has seen nothing is said


def test_gradients_that_cannot_be_counted_are_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="Parameter 1 has no gradient: leave out"):
        as_ranks([np.ones(3), None])
    with pytest.raises(ConfigError, match=r"Gradients of \[1, 2\] parameters were given; each rank needs"):
        as_ranks([[np.ones(3)], [np.ones(3), np.ones(3)]])
    with pytest.raises(ConfigError, match="parameter 0 is not finite"):
        as_ranks([torch.tensor([float("nan")])])
    with pytest.raises(ConfigError, match="3 sizes and 1 gradients were given"):
        bucket_explorer([1, 2, 3], gradients=[np.ones(3)])


@pytest.mark.long
def test_the_kept_numbers_are_those_of_the_letter_model() -> None:
    ranks = as_ranks(measured_gradients.real_gradients())
    assert norms(ranks) == pytest.approx(measured_hooks.NORMS, rel=0.05)
    for name, lost in hook_errors(ranks).items():
        kept = total_error(measured_hooks.ERRORS[name], measured_hooks.NORMS)
        assert total_error(lost.errors, norms(ranks)) == pytest.approx(kept, rel=0.03), name
    assert set(measured_hooks.ERRORS) == set(HOOKS) - {"none"}
