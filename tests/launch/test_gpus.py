"""Which GPUs work is found by trying: a real child process, with a stand-in for torch where the host's has no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from labkit.launch import gpus as module
from labkit.launch.gpus import Gpu, Gpus, gpus, probe

TORCH = """
import os, signal, types

class Tensor:
    def __init__(self, value): self.value = value
    def __add__(self, other): return Tensor(self.value + other)
    def tolist(self): return [self.value] * 2

def ones(count, device):
    index = int(device.partition(":")[2])
    {when_tried}
    return Tensor(1.0)

def about(index):
    return types.SimpleNamespace(uuid=f"5c7e-{{index}}", name="NVIDIA H100", total_memory=80 * 10**9)

cuda = types.SimpleNamespace(
    device_count=lambda: 2, get_device_properties=about, nccl=types.SimpleNamespace(version=lambda: (2, 28, 9))
)
"""
DISTRIBUTED = "is_available = is_nccl_available = lambda: True\n"
OLD = "The NVIDIA driver on your system is too old (found version 11040)."


@pytest.fixture
def torch_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts a torch of two GPUs in the child's way; it says what happens to who tries one."""

    def make(when_tried: str = "pass") -> None:
        folder = tmp_path / "torch"
        folder.mkdir()
        (folder / "__init__.py").write_text(TORCH.format(when_tried=when_tried), encoding="utf-8")
        (folder / "distributed.py").write_text(DISTRIBUTED, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return make


def test_gpus_that_work_are_known_by_their_uuid_however_they_are_numbered(torch_that: Callable[..., None]) -> None:
    torch_that()
    both = tuple(Gpu(f"GPU-5c7e-{index}", "NVIDIA H100", 80 * 10**9) for index in (0, 1))
    assert probe(2, None) == probe(2, "3,0") == Gpus(both, 2, "2.28.9")


def test_a_part_of_a_gpu_keeps_the_name_it_was_given(torch_that: Callable[..., None]) -> None:
    torch_that()
    assert probe(2, "MIG-a1, MIG-b2").names == ("MIG-a1", "MIG-b2")


def test_a_driver_that_is_too_old_is_told_and_leaves_no_gpu(torch_that: Callable[..., None]) -> None:
    torch_that(f"raise RuntimeError({OLD!r} + chr(10) + 'Please update')")
    assert probe(2, None) == Gpus((), 2, "2.28.9", OLD)


def test_one_gpu_that_fails_costs_the_other_nothing(torch_that: Callable[..., None]) -> None:
    torch_that("if index == 1: raise RuntimeError('CUDA error: out of memory')")
    found = probe(2, None)
    assert found.names == ("GPU-5c7e-0",) and found.problem == "GPU 1: CUDA error: out of memory"


def test_a_driver_that_kills_who_asks_it_is_told(torch_that: Callable[..., None]) -> None:
    torch_that("os.kill(os.getpid(), signal.SIGSEGV)")
    assert probe(2, None) == Gpus((), 2, "", "a process that tried them was ended by SIGSEGV")


def test_a_gpu_that_never_answers_is_told(torch_that: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.5)
    torch_that("signal.pause()")
    assert probe(2, None).problem == "a process that tried them did not answer for 0.5 s"


def test_where_torch_counts_none_no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(module, "probe", lambda *_: pytest.fail("a process was started"))
    assert gpus() == Gpus()


@pytest.mark.long
def test_the_command_that_guards_the_gpu_tests_fails_without_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "labkit.launch.gpus"], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 1 and "No GPU can be used here" in done.stderr
