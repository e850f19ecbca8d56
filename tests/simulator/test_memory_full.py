"""A virtual device that is full: who asked for what at which line, what is there, and how a learner goes on."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import labkit
from labkit.errors import ConfigError, RankFailed
from labkit.hardware import find_device
from labkit.timeline.memory import memory_peaks, peak_memory_bytes


def _train(batch: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(8)))
    stepper = torch.optim.Adam(model.parameters())
    for _ in range(2):
        stepper.zero_grad()
        model(torch.randn(batch, 256)).sum().backward()
        stepper.step()


def test_a_tensor_that_does_not_fit_ends_the_rank_with_what_is_there_and_where_it_was_made() -> None:
    with pytest.raises(RankFailed) as caught:
        labkit.run(_train, 2048, on=labkit.virtual(2, memory="16 MB"), echo=False)
    text = str(caught.value)
    assert caught.value.rank == 0 and "failed first: OutOfVirtualMemory: Rank 0 is out of memory" in text
    first, live, *largest, helps = text[text.rindex("Rank 0 is out of memory") :].splitlines()
    assert re.fullmatch(
        r"Rank 0 is out of memory \(test_memory_full.py, line \d+\): mm makes a tensor of 2.1 MB "
        r"\(2048 x 256, float32\), and [\d.]+ [KM]?B of the 16 MB of its h100 are free.",
        first,
    ), first
    assert re.match(r"  live: activations [\d.]+ MB, (parameters|optimizer state|gradients) [\d.]+ MB", live), live
    assert any("of activations (2048 x 256, float32), made by mm at test_memory_full.py, line " in line
               for line in largest), largest  # fmt: skip
    assert helps.startswith("  what helps against activations: smaller batches") and "checkpoint" in helps


def test_a_learner_who_catches_it_goes_on_with_a_smaller_batch() -> None:
    def fn() -> list[str]:
        tried = []
        for batch in (8192, 64):
            try:
                _train(batch)
                tried.append("fits")
            except torch.OutOfMemoryError as error:
                tried.append(type(error).__name__)
        return tried

    run = labkit.run(fn, on=labkit.virtual(2, memory="20 MB"), echo=False)
    assert run.results == [["OutOfVirtualMemory", "fits"]] * 2
    assert peak_memory_bytes(run.timeline) <= 20_000_000
    assert {peak.capacity for peak in memory_peaks(run.timeline)} == {20_000_000}


def test_in_backward_it_is_the_same_error() -> None:
    def fn() -> str:
        x = torch.ones(1000, 100, requires_grad=True)
        y = (x.exp() * 2).sum()
        try:
            y.backward()
        except torch.cuda.OutOfMemoryError as error:
            return str(error)
        return ""

    # x and exp(x) are 800 KB; backward would add as much.
    run = labkit.run(fn, on=labkit.virtual(1, memory="1.3 MB"), echo=False)
    assert "out of memory" in run.results[0] and "activations" in run.results[0]


def test_a_tensor_larger_than_the_device_is_said_to_be_so_even_on_meta() -> None:
    def fn() -> None:
        torch.empty(200_000, 200_000, device="meta")

    with pytest.raises(RankFailed, match="this one alone is more than a whole a100 holds"):
        labkit.run(fn, on=labkit.virtual(1, gpu="a100"), echo=False)


def test_reference_cycles_are_collected_before_memory_is_called_full() -> None:
    def fn() -> str:
        for _ in range(100):
            pair: list[object] = [torch.ones(100_000)]
            pair.append(pair)
        return "fits"

    assert labkit.run(fn, on=labkit.virtual(1, memory="4 MB"), echo=False).results == ["fits"]


def test_a_storage_that_grows_counts() -> None:
    def fn() -> str:
        tensor = torch.empty(10)
        tensor.untyped_storage().resize_(0)
        tensor.untyped_storage().resize_(400_000)
        try:
            tensor.untyped_storage().resize_(2_000_000)
        except torch.OutOfMemoryError:
            return f"{tensor.untyped_storage().nbytes()}"
        return ""

    run = labkit.run(fn, on=labkit.virtual(1, memory="1 MB"), echo=False)
    assert run.results == ["400000"] and peak_memory_bytes(run.timeline) == 400_000


def test_a_device_has_the_memory_it_is_sold_with_or_what_is_asked_for() -> None:
    assert labkit.virtual(1).cluster.device.memory_bytes == find_device("h100").memory_bytes
    assert labkit.virtual(1, memory="16 GiB").cluster.device.memory_bytes == 16 * 2**30
    for wrong in (0, -5, 1.5, True, "much"):
        with pytest.raises(ConfigError, match=r"memory|much"):
            labkit.virtual(1, memory=wrong)  # type: ignore[arg-type]
