"""Lesson 10 keeps its contract: topics, exercises, points, stubs; and its answers do what they promise."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import labkit
from labkit.lessons.executed import execute
from labkit.lessons.source import Lesson, load
from tests.checks.four_proofs import styles
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "10_gradient_compression.py"


class TestContract(LessonContract):
    number = "10"
    exercises = (
        "fewer_bits",
        "one_bit",
        "few_entries",
        "error_feedback",
        "mean_of_packets",
        "compression_hook",
        "power_sgd",
        "where_it_pays",
    )
    bonus = ("power_sgd",)
    bonus_points = 10
    topics: ClassVar = {
        "bytes on the wire": r"say the bytes \*on the wire\*",
        "16 bits": r"ends at 65504",
        "8 bits": r"m / 127",
        "sign": r"seide and others, 2014",
        "top-k, and the post of lesson 00": r"mend the compressor of lesson 00",
        "random-k": r"drawn at random",
        "error feedback": r"forget nothing",
        "divergence without it": r"it \*\*runs away\*\*",
        "why all_reduce is wrong": r"belong to different entries",
        "all_gather": r"dist\.all_gather",
        "communication hook": r"register_comm_hook",
        "buckets built anew": r"builds its buckets anew",
        "the learner's own wrapper": r'labkit\.mine\("bucketed_ddp", otherwise=torchddp\)',
        "torch's own hook": r"fp16_compress_hook",
        "PowerSGD": r"vogels, karimireddy and jaggi, 2019",
        "where it pays": r"pays below",
        "grows with N": r"grows with every rank",
        "four links": r"gigabits = \(1, 10, 100, 400\)",
        "loss against bytes and seconds": r"against \*\*seconds\*\*, it depends on the network",
        "lose the signs": r"lose the signs",
        "forget the residual": r"forget the residual",
        "all-reduce sparse values": r"all-reduce sparse values",
        "a seed for each rank": r"seed of each rank's own",
        "without the scale": r"quantise without the scale",
        "at scale": r"what breaks at scale",
        "the next lesson": r"11_faster_steps",
    }
    slides = (7, 25)
    least_guesses = 7


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="10")


def test_the_borders_of_gathering_are_where_the_text_says(answers: dict[str, Any]) -> None:
    gather, reduce = answers["all_gather_seconds"], answers["all_reduce_seconds"]
    assert gather(100.0, 8, 0, 1) == pytest.approx(reduce(400.0, 8, 0, 1))  # int8 on 8 ranks sends as much as float32
    assert gather(2.0, 100, 0, 1) == pytest.approx(reduce(100.0, 100, 0, 1))
    assert answers["pays_below"](100.0, 2.0, 99, 1.0) > 0 == answers["pays_below"](100.0, 2.0, 101, 1.0)


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
    """Return the gradients after one backward under a hook, on torch's DDP or a wrapper of lesson 04."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    if kind.startswith("own"):
        ddp = names[kind](model, 0.0002)
    else:
        ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0002)
    state = names["HookState"](names["ErrorFeedback"](names["Cast"](torch.float16)))
    if kind == "torch's":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif kind != "plain":
        names["register_hook"](ddp, state, names["compression_hook"])
    torch.manual_seed(dist.get_rank())
    ddp(torch.randn(5, 6, dtype=torch.float64)).square().mean().backward()
    if hasattr(ddp, "finish_gradient_synchronization"):
        ddp.finish_gradient_synchronization()
    return [parameter.grad for parameter in model.parameters()]  # type: ignore[misc]


def test_the_hook_agrees_with_torchs_own_on_its_ddp_and_on_the_wrapper_of_lesson_04(answers: dict[str, Any]) -> None:
    names = {
        name: answers[name] for name in ("HookState", "ErrorFeedback", "Cast", "register_hook", "compression_hook")
    }
    names["own"] = namespace(number="04")["BucketedDDP"]

    def all_kinds() -> dict[str, list[Tensor]]:
        found = {kind: _gradients(names, kind) for kind in ("plain", "torch's", "hook")}
        return found | {"own": _gradients(names, "own")}  # last: it replaces dist.all_reduce in this rank

    for came in labkit.run(all_kinds, on=labkit.local(2, device="cpu"), echo=False).results:
        for kind in ("torch's", "hook", "own"):
            for gradient, right in zip(came[kind], came["plain"], strict=True):
                assert torch.allclose(gradient, right, rtol=2e-3, atol=1e-4), kind
        assert all(torch.equal(a, b) for a, b in zip(came["hook"], came["own"], strict=True))


@pytest.mark.parametrize(
    "style", ["right_in_few_lines", pytest.param("right_views_of_the_bucket", marks=pytest.mark.long)]
)
def test_the_hook_sits_on_wrappers_of_other_styles_too(answers: dict[str, Any], style: str) -> None:
    names = {
        name: answers[name] for name in ("HookState", "ErrorFeedback", "Cast", "register_hook", "compression_hook")
    }
    names["own"] = namespace(extra="\n\n".join(styles("04")[style].values()), number="04")["BucketedDDP"]

    def both() -> tuple[list[Tensor], list[Tensor]]:
        return _gradients(names, "plain"), _gradients(names, "own")

    for plain, own in labkit.run(both, on=labkit.local(2, device="cpu"), echo=False).results:
        for gradient, right in zip(own, plain, strict=True):
            assert torch.allclose(gradient, right, rtol=2e-3, atol=1e-4)


@pytest.mark.long
def test_the_switch_puts_the_hook_on_the_learners_own_wrapper(lesson: Lesson, tmp_path: Path) -> None:
    shutil.copy(SOURCE.with_name("04_ddp.ipynb"), tmp_path)
    wrapped = next(place for place, cell in enumerate(lesson.cells) if "Wrapper = labkit.mine" in cell.source)
    needed = [cell for cell in lesson.cells[:wrapped] if cell.role in ("parameters", "given", "exercise")]
    section = replace(lesson, cells=(*needed, lesson.cells[wrapped]))
    notebook = execute(section, tmp_path, parameters={"use_mine": True})
    said = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    assert "using your BucketedDDP from 04_ddp.ipynb" in said
    assert "both ranks have the same gradients: True and some are exactly 0: True" in said


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
