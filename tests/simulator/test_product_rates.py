"""Products and attention on a device with streams take what was measured of their size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import labkit
from labkit.hardware import DEVICES, Hardware, find_link, load
from labkit.product_rates import A100, H100

PEAK = DEVICES["h100"].flops_per_second("bfloat16")


@pytest.mark.parametrize("rates", [H100, A100], ids=["h100", "a100"])
def test_a_size_that_was_measured_reaches_about_what_was_measured(rates: Any) -> None:
    for length, sums, rate in rates.points:
        assert rates.flops_per_second(sums, length) == pytest.approx(rate, rel=0.13)


def test_larger_products_count_as_the_largest_and_short_sums_reach_less() -> None:
    assert H100.flops_per_second(2**30, 2**14) == H100.flops_per_second(2**26, 4096)
    assert H100.flops_per_second(2**26, 4096) == pytest.approx(720e12, rel=0.02)
    assert H100.flops_per_second(2**26, 512) < 0.8 * H100.flops_per_second(2**26, 4096)
    assert A100.flops_per_second(8192**2, 8192) == pytest.approx(253.7e12, rel=0.01)


def _products() -> None:
    for size in (1024, 8192):
        matrix = torch.empty(size, size, device="cuda", dtype=torch.bfloat16)
        matrix @ matrix
    torch.cuda.synchronize()


def _took(run: Any, name: str) -> list[int]:
    return [span.end_ns - span.start_ns for span in run.timeline.rows() if span.name == name]


def test_a_small_product_of_a_script_takes_longer_than_its_operations_at_the_best_rate() -> None:
    small, large = _took(labkit.run(_products, on=labkit.virtual(1, gpu="h100", shapes=True)), "mm")
    assert small == pytest.approx(2 * 1024**3 / H100.flops_per_second(2**20, 1024) * 1e9, rel=1e-3)
    assert large == pytest.approx(2 * 8192**3 / 720e12 * 1e9, rel=0.02)
    assert small > 2.5 * 2 * 1024**3 / 720e12 * 1e9


def test_where_nobody_measured_all_products_reach_the_same_share() -> None:
    device = replace(DEVICES["h100"], products=None)
    took = _took(labkit.run(_products, on=labkit.virtual(1, gpu=device, shapes=True)), "mm")
    best = [2 * size**3 / (PEAK * device.compute_share) * 1e9 for size in (1024, 8192)]
    assert took == [pytest.approx(each, abs=1) for each in best]


def _attends(is_causal: bool) -> None:
    q, k, v = (torch.empty(2, 8, 2048, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    torch.cuda.synchronize()


def test_a_causal_mask_halves_what_attention_computes_at_the_rate_of_its_kernel() -> None:
    on = labkit.virtual(1, gpu="h100", shapes=True)
    whole, causal = (
        _took(labkit.run(_attends, is_causal, on=on), "_scaled_dot_product_flash_attention")[0]
        for is_causal in (False, True)
    )
    assert whole == pytest.approx(4 * 2 * 8 * 2048**2 * 128 / (0.35 * PEAK) * 1e9, rel=1e-3)
    assert causal == pytest.approx(whole / 2, rel=1e-3)


def test_a_file_of_hardware_holds_its_products(tmp_path: Path) -> None:
    Hardware(DEVICES["a100"], find_link("nvlink3"), "a test").save(tmp_path / "host.json")
    assert load(tmp_path / "host.json").device == DEVICES["a100"]
