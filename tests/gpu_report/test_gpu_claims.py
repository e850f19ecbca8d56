"""What labkit claims of GPUs holds: on those of this host, and what can be tried on the CPU, on every host."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from labkit.gpu_report.claims import CLAIMS, Claim, DoesNotHold, Place
from labkit.gpu_report.claims.records import hidden_of_kernels, messages_in_order

NUM_GPUS = torch.cuda.device_count()
ON_THE_CPU = [name for name, claim in CLAIMS.items() if not claim.cuda_only]
needs_one = pytest.mark.skipif(NUM_GPUS < 1, reason="needs one CUDA GPU, torch sees none")
needs_two = pytest.mark.skipif(NUM_GPUS < 2, reason=f"needs two CUDA GPUs, torch sees {NUM_GPUS}")


def of(num_gpus: int) -> list[str]:
    return [name for name, claim in CLAIMS.items() if claim.num_gpus == num_gpus]


@pytest.mark.in_turn
@pytest.mark.parametrize("name", ON_THE_CPU)
def test_a_claim_that_is_not_about_cuda_holds_on_the_cpu(name: str) -> None:
    CLAIMS[name].check(Place("cpu", 2))


@pytest.mark.gpu1
@needs_one
@pytest.mark.parametrize("name", of(1))
def test_a_claim_about_one_gpu_holds(name: str) -> None:
    CLAIMS[name].check(Place("cuda", NUM_GPUS))


@pytest.mark.gpu2
@needs_two
@pytest.mark.parametrize("name", of(2))
def test_a_claim_about_two_gpus_holds(name: str) -> None:
    CLAIMS[name].check(Place("cuda", NUM_GPUS))


@pytest.mark.gpu2
@needs_two
def test_messages_are_ordered_within_the_exported_error_after_five_minutes_too() -> None:
    messages_in_order(Place("cuda", NUM_GPUS), pause_s=300)


def test_every_claim_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compares what came with what should have: of ranks that all answer 0 none is true."""
    from labkit.gpu_report.claims import ranks

    monkeypatch.setattr(ranks, "total", lambda: 0.0)
    with pytest.raises(DoesNotHold, match=r"expected .*1\.0.*, got .*0\.0"):
        CLAIMS["one_rank_on_one_gpu_runs_on_nccl"].check(Place("cpu", 1))


def test_a_place_says_why_it_cannot_try_a_claim() -> None:
    two = Claim("a claim", lambda place: None, num_gpus=2, cuda_only=False)
    assert two.problem(Place("cuda", 1)) == "it needs 2 GPUs"
    assert two.problem(Place("cpu", 2)) == ""
    assert replace(two, cuda_only=True).problem(Place("cpu", 2)) == "it is about CUDA"


def test_the_share_that_a_profile_shows_is_computed_as_the_text_says() -> None:
    assert hidden_of_kernels([(0.0, 4.0), (6.0, 8.0)], [(1.0, 3.0), (5.0, 7.0)]) == 0.5
