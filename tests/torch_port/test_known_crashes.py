"""Torches that crash are kept from it, in words."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from torch.torch_version import TorchVersion

import labkit
from labkit.errors import RankFailed
from labkit.simulator import run
from labkit.torch_port import known_crashes


def test_fully_shard_crashed_with_torch_2_11_alone() -> None:
    crashing = [
        f"2.{minor}" for minor in range(11, 16) if known_crashes.crashes_in_fully_shard(TorchVersion(f"2.{minor}.0"))
    ]
    assert crashing == ["2.11"]


@pytest.mark.in_turn
def test_on_a_virtual_rank_it_is_refused_and_elsewhere_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        fully_shard(torch.nn.Linear(4, 4))

    real = known_crashes.refused
    monkeypatch.setattr(run, "refused", lambda on_a_rank: real(on_a_rank, TorchVersion("2.11.0")))
    with pytest.raises(
        RankFailed, match=r"fully_shard of torch 2\.11\.0 crashes on virtual ranks; install torch 2\.13"
    ):
        labkit.run(work, on=labkit.virtual(2))
    monkeypatch.undo()
    labkit.run(work, on=labkit.virtual(2))
