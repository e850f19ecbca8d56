"""Lesson 10 keeps its contract: topics, exercises, points, stubs; and its answers do what they promise."""

from __future__ import annotations

import itertools
import re
import runpy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import labkit
from labkit import models
from labkit.lessons.source import Lesson, load
from labkit.plans.compressed_steps import BITS, final_loss, most_entries, packet_bytes
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "10_gradient_compression.py"


class TestContract(LessonContract):
    number = "10"
    topics: ClassVar = {
        "16 bits": r"ends at 65504",
        "8 bits": r"1/254",
        "top-k": r"the k entries of largest magnitude",
        "random-k": r"drawn at random",
        "error feedback": r"forget nothing",
        "divergence without it": r"x \*\*runs away\*\*",
        "a run that diverges": r'labkit\.recorded\("diverging_run"\)',
        "why all_reduce is wrong": r"belong to different entries",
        "all_gather": r"to everybody\*\*, by `all_gather`",
        "communication hook": r"register_comm_hook",
        "buckets rebuilt": r"rebuilds its buckets",
        "rates of each row, several seeds": r"has its own learning rate.*several seeds",
        "deep gradient compression": r"lin and others, 2018",
        "momentum correction": r"\*\*momentum correction\*\*",
        "quantised reduce-scatter": r"\*\*quantised reduce-scatter\*\*",
        "PowerSGD": r"vogels, karimireddy and jaggi, 2019",
        "three links": r"gigabits, step_s, step_bytes, rows = \(1, 10, 100\)",
        "loss against bytes and seconds": r"in \*\*seconds\*\*, a fast link leaves little",
        "a budget of bytes": r"a budget of bytes",
        "the next lesson": r"11_faster_steps",
        "sources": r"### sources",
    }
    slides = (7, 25)
    least_guesses = 3


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="10")


@pytest.mark.in_turn
def test_the_recorded_run_is_what_the_ranks_wrote_down() -> None:
    made = runpy.run_path(str(SOURCE.parent / "hidden" / "gradient_compression" / "diverging_run" / "record.py"))
    log = labkit.recorded("diverging_run").tables["norms"]
    fresh = made["record"](2, 1, 14, made["STAYS"]).tables["norms"]
    assert list(log) == list(fresh)
    assert all(np.allclose(log[name], fresh[name], rtol=0.05, atol=0.05) for name in log)
    losses = [log["loss"][log["step"] == step].mean() for step in range(60)]
    assert losses[24] < losses[0] / 5 and max(losses[25:]) > 1.5 * losses[24]
    whole = np.hypot(log["sent"], log["residual"])
    wrong = np.abs(whole - log["compressed"]) > 0.02 * log["compressed"]
    assert set(zip(log["rank"][wrong], log["bucket"][wrong], strict=True)) == {(2, 1)}
    assert log["step"][wrong].min() == 14


class _Whole:
    """Compresses nothing."""

    def compress(self, gradient: Tensor) -> Tensor:
        """Return the gradient."""
        return gradient

    def decompress(self, packet: Tensor) -> Tensor:
        """Return the gradient."""
        return packet


@pytest.mark.long
def test_four_ranks_that_send_everything_train_as_one_process_does(answers: dict[str, Any]) -> None:
    def short(make: Any, optimizer: str) -> float:
        losses = models.train_as_ranks(make, optimizer, 12)
        return sum(losses[-3:])

    exact = _Whole
    assert short(exact, "adamw") == pytest.approx(sum(models.train(models.GPT(), models.Addition(), 12)[-3:]), rel=1e-2)
    with pytest.raises(ValueError, match="choose 'adamw', 'momentum' or 'sgd'"):
        models.train_as_ranks(exact, "lion", 1)


def test_a_plans_bytes_and_the_entries_that_fit() -> None:
    assert [packet_bytes(*each) for each in ((0, 4, 64), (64, 32, 64), (3, 4, 64), (1, 32, 64))] == [0, 256, 14, 8]
    for bits, size in itertools.product(BITS, (7, 64, 1000)):
        for room in (3, 40, 400, 5000):
            most = most_entries(room, bits, size)
            assert packet_bytes(most, bits, size) <= room
            assert most == size or packet_bytes(most + 1, bits, size) > room


def test_a_plan_that_sends_everything_trains_as_plain_sgd_does() -> None:
    shapes = [(5, 6), (6, 3)]
    whole = [[(30, 32), (18, 32)]] * 20
    assert final_loss(whole, shapes, 1) < 0.9 * final_loss([], shapes, 1)
    assert final_loss([[(30, 16), (18, 16)]] * 20, shapes, 1) == pytest.approx(final_loss(whole, shapes, 1), rel=1e-2)


def test_top_1_runs_away_on_three_ranks_and_with_memory_it_does_not(answers: dict[str, Any]) -> None:
    corners = torch.tensor([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]])
    ends = {}
    for remember in (False, True):
        compressors = [answers["TopK"](1 / 3) for _ in range(3)]
        if remember:
            compressors = [answers["ErrorFeedback"](each) for each in compressors]
        x = torch.ones(3)
        for _ in range(100):
            slopes = [2 * (corner @ x) * corner + x / 2 for corner in corners]
            x = x - 0.02 * sum(c.decompress(c.compress(g)) for c, g in zip(compressors, slopes, strict=True)) / 3
        ends[remember] = float(x.norm())
    assert ends[False] > 50
    assert ends[True] < 0.5


def _gradients(names: dict[str, Any], kind: str) -> list[Tensor]:
    """Return the gradients after one backward under a hook."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0002)
    if kind == "torch's":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif kind == "ours":
        state = names["HookState"](names["ErrorFeedback"](names["Cast"](torch.float16)))
        ddp.register_comm_hook(state, names["compression_hook"])
    torch.manual_seed(dist.get_rank())
    torch.autograd.backward(ddp(torch.randn(5, 6, dtype=torch.float64)).square().mean())
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_the_hook_agrees_with_torchs_own(answers: dict[str, Any]) -> None:
    names = {name: answers[name] for name in ("HookState", "ErrorFeedback", "Cast", "compression_hook")}

    def all_kinds() -> dict[str, list[Tensor]]:
        return {kind: _gradients(names, kind) for kind in ("plain", "torch's", "ours")}

    for came in labkit.run(all_kinds, on=labkit.local(2, device="cpu"), echo=False).results:
        for kind in ("torch's", "ours"):
            for gradient, right in zip(came[kind], came["plain"], strict=True):
                assert torch.allclose(gradient, right, rtol=2e-3, atol=1e-4), kind


def test_the_given_power_hook_gives_all_ranks_one_gradient_with_few_bytes(answers: dict[str, Any]) -> None:
    names = {name: answers[name] for name in ("PowerState", "power_hook")}

    def three_steps() -> tuple[int, list[Tensor]]:
        torch.manual_seed(0)
        model = nn.Linear(40, 30)
        ddp = nn.parallel.DistributedDataParallel(model)
        state = names["PowerState"](2)
        ddp.register_comm_hook(state, names["power_hook"])
        for _ in range(3):
            ddp.zero_grad()
            ddp(torch.randn(8, 40)).square().mean().backward()
        return state.sent_bytes, [
            parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
        ]

    outcome = labkit.run(three_steps, on=labkit.local(2, device="cpu"), echo=False)
    (sent, first), (_, second) = outcome.results
    assert sent == 3 * 4 * (2 * (40 + 30) + (30 + 1))
    assert outcome.timeline is not None
    assert sum(call.rank == 0 and call.kind == "all_reduce" for call in outcome.timeline.collectives()) == 3 * 2
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "optimizer", "rate", "seed", "quoted"),
    [("no hook", "adamw", 1.0, 1, 0.08), ("TopK", "sgd", 1.0, 1, 0.16), ("TopK", "adamw", 1.0, 0, 1.55)],
)
def test_the_losses_that_the_text_quotes(
    answers: dict[str, Any], name: str, optimizer: str, rate: float, seed: int, quoted: float
) -> None:
    make = _Whole if name == "no hook" else lambda: answers["ErrorFeedback"](answers["TopK"](0.01))
    torch.set_num_threads(2)  # another number rounds otherwise, too
    losses = models.train_as_ranks(make, optimizer, 200, rate=rate, seed=seed)
    assert sum(losses[-10:]) / 10 == pytest.approx(quoted, rel=0.3)  # another processor rounds otherwise
    if rate == 1.0 and seed:
        assert f" {quoted} |" in SOURCE.read_text()


def test_a_steps_time_is_what_the_cell_printed() -> None:
    text, printed = SOURCE.read_text().replace("\n# ", " "), SOURCE.with_suffix(".ipynb").read_text()
    rows = {
        name: times.split()
        for name, times in re.findall(r"(no hook|top 1 %|random 1 %) +((?:\d+\.\d\d *){3})", printed)
    }
    factor = float(rows["no hook"][1]) / float(rows["top 1 %"][1])
    assert f"Not a hundred times, but {factor:.1f}." in text and "2 x 3/4 of B, 25 times as much" in text
    reduced, gathered = 2 * 3 / 4 * 4, 3 * 8 * 0.01  # bytes that each of four ranks sends for an entry of the gradient
    assert reduced / gathered == pytest.approx(25)
    assert f"(random 1 %) takes {rows['random 1 %'][1]} ms" in text


@pytest.mark.in_turn
def test_deep_compression_sends_nearly_twice_the_bytes_of_top_1(answers: dict[str, Any]) -> None:
    gradient, sent = torch.randn(226_560), []
    compressors = answers["DeepCompression"](num_ranks=4, warmup=5), answers["ErrorFeedback"](answers["TopK"](0.01))
    for each in compressors:
        sent.append(sum(answers["wire_bytes"](each.compress(gradient)) for _ in range(200)))
    assert 1.7 < sent[0] / sent[1] < 1.9
    more = 200 * (sent[0] / sent[1] - 1)  # in steps of top 1 %
    said = SOURCE.read_text().replace("\n# ", " ")
    assert f"as many bytes as {more:.0f} steps of top 1 % send. In 200 steps that is {more / 2:.0f} % more" in said
