"""The page of GPU reports holds what came in, and what came in names nobody."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from labkit.gpu_report.claims import CLAIMS
from labkit.gpu_report.page import page, summary
from labkit.gpu_report.private import without_names
from labkit.gpu_report.report import FORMAT

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import gpu_pages  # noqa: E402

CAME = gpu_pages.reports()
ONE: dict[str, Any] = {
    "labkit_gpu_report": FORMAT, "labkit": "0.2.0", "date": "2026-01-01", "rehearsal": False, "minutes": 15,
    "host": {"system": "Linux", "machine": "x86_64", "python": "3.12.3", "torch": "2.11.0+cu130", "cuda": "13.0",
             "nccl": "2.28.9", "cores": 16, "memory_bytes": 10**11, "problem": "", "gpus_counted": 1,
             "gpus": [{"model": "NVIDIA H100 80GB HBM3", "memory_bytes": 85 * 10**9}]},
    "forecast_of": "h100", "forecast_source": "", "seconds": {}, "left_out": [], "failed": {}, "timelines": [],
    "all-reduce": [], "lessons": [{"lesson": "00", "outcome": "ran through", "words": "", "seconds": 1, "cells": 3,
                                   "cells_begun": 3, "runs": {}, "checks": []}],
    "gpt": [{"ranks": 1, "backend": "nccl/cuda", "dtype": "float32", "layers": 12, "width": 768, "tokens": 1024,
             "sequences": 8, "steps": 10, "measured_ms": 130.4, "forecast_ms": 121.4, "measured_bytes": 10**10,
             "forecast_bytes": None}],
    "tests": [{"claim": "one rank on one GPU uses NCCL", "num_gpus": 1, "held": True, "words": "", "seconds": 1}],
}  # fmt: skip


@pytest.mark.parametrize("name", CAME)
def test_a_report_that_came_in_is_one_of_gpus_and_names_nobody(name: str) -> None:
    data = CAME[name]
    assert data["labkit_gpu_report"] == FORMAT and not data["rehearsal"] and data["host"]["gpus"]
    text = (gpu_pages.FOLDER / f"{name}.json").read_text(encoding="utf-8")
    for each in _texts(json.loads(text)):
        assert without_names(each, ()) == each
    assert page(data)


def _texts(data: object) -> list[str]:
    if isinstance(data, str):
        return [data]
    if isinstance(data, dict | list):
        return [text for each in (data.values() if isinstance(data, dict) else data) for text in _texts(each)]
    return []


def test_the_page_says_what_a_report_found_and_what_nobody_tried() -> None:
    said = gpu_pages.overview({"h100_x1": ONE})
    assert "1 × NVIDIA H100 80GB HBM3</a> | 0.2.0, 2.11.0+cu130, 2.28.9 | 2026-01-01 | 1 of 1 | 1 of 1 |" in said
    assert "| float32: 130 ms, 121 ms |" in said
    assert "| one rank on one GPU uses NCCL | 1 | 1 | 1 |" in said
    assert "| two ranks on two GPUs use NCCL | 2 | 0 | 0 |" in said
    assert all(f"| {claim.words} |" in said for claim in CLAIMS.values())


def test_without_any_report_it_says_so() -> None:
    assert "None has come in yet." in gpu_pages.overview({})


def test_a_report_comes_to_a_sentence_for_each_part() -> None:
    close = {**ONE, "gpt": [{**ONE["gpt"][0], "measured_ms": 121.0}]}
    assert summary(ONE) == [
        "1 of 1 claims hold.", "1 of 1 lessons ran through.", "The forecast of a GPT's step in float32 is 7 % too low.",
    ]  # fmt: skip
    assert "The forecast of a GPT's step in float32 is within 1 %." in summary(close)


@pytest.mark.parametrize(("launched_ms", "backend", "told"), [
    (24.8, "nccl/cuda", True), (18.0, "nccl/cuda", False), (24.8, "gloo/cpu", False), (None, "nccl/cuda", False),
])  # fmt: skip
def test_a_step_that_waits_for_its_host_is_no_step_of_the_gpu(
    launched_ms: float | None, backend: str, told: bool
) -> None:
    row = {**ONE["gpt"][0], "dtype": "bfloat16", "measured_ms": 24.1, "forecast_ms": 17.7, "backend": backend}
    row |= {} if launched_ms is None else {"launched_ms": launched_ms}
    said = "In bfloat16 the GPU waits for its host, which takes 24.8 ms to launch a step."
    lines = summary({**ONE, "gpt": [row]})
    assert (said in lines) == told and any("forecast" in line for line in lines) != told
    assert page({**ONE, "gpt": [row]})
