"""The local world asked for GPUs where there are none; what it does on GPUs is in tests/gpu_report."""

from __future__ import annotations

import pytest
import torch

import labkit
from labkit.errors import ConfigError


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="needs a host without a GPU")
def test_cuda_is_refused_where_there_is_no_gpu() -> None:
    with pytest.raises(ConfigError, match='device="cuda" was asked for 2 ranks, but on this host: torch sees 0 GPUs'):
        labkit.run(lambda: None, on=labkit.local(2, device="cuda"))
