"""Settings of torch that change with the rank."""

from __future__ import annotations

import sys

import pytest
import torch

from labkit.torch_port.process_tables import FLAGS


def test_a_switch_of_ranks_sets_determinism_without_what_torch_compile_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    (put,) = [put for get, put, _ in FLAGS if get is torch._C._get_deterministic_algorithms]
    monkeypatch.delitem(sys.modules, "torch._inductor.config", raising=False)
    put(True)
    try:
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.empty(3).isnan().all()
    finally:
        put(False)
    assert not torch.are_deterministic_algorithms_enabled()
    assert "torch._inductor.config" not in sys.modules


def test_a_switch_of_ranks_sets_what_torch_compile_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    (put,) = [put for get, put, _ in FLAGS if get is torch._C._get_deterministic_algorithms]
    config = type("Config", (), {"deterministic": False})()
    monkeypatch.setitem(sys.modules, "torch._inductor.config", config)
    put(True)
    try:
        assert config.deterministic
    finally:
        put(False)
    assert not config.deterministic
