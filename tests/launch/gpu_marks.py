"""Marks of tests that need GPUs: `make test` leaves them out; where there are too few, they are skipped in words."""

from __future__ import annotations

import pytest
import torch

NUM_GPUS = torch.cuda.device_count()
one_gpu = [pytest.mark.gpu1, pytest.mark.skipif(NUM_GPUS < 1, reason="needs one CUDA GPU, torch sees none")]
two_gpus = [pytest.mark.gpu2, pytest.mark.skipif(NUM_GPUS < 2, reason=f"needs two CUDA GPUs, torch sees {NUM_GPUS}")]


def marked(marks: list[pytest.MarkDecorator]):  # type: ignore[no-untyped-def]
    """Return a decorator that puts several marks on a test."""

    def apply(test):  # type: ignore[no-untyped-def]
        for mark in marks:
            test = mark(test)
        return test

    return apply
