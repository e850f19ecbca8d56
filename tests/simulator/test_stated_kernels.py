"""Kernels that no dispatcher sees: ranks find them by name, compute what they compute, and take the stated time."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as functional

import labkit
from labkit import kernels
from labkit.commands.launch_script import launch
from labkit.errors import ConfigError
from labkit.timeline import Timeline

ATTENTION = "flash_attn.flash_attn_func"
SHAPE = 2, 1024, 8, 64
FLOPS = 4 * 2 * 8 * 1024 * 1024 * 64
STATES = """
import torch.nn.functional as functional
import labkit

def instead(q, k, v, causal=False):
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).contiguous()

def flops(q, k, v, causal=False):
    size, length, heads, depth = q.shape
    return 4 * size * heads * length * length * depth

labkit.hardware.kernel("flash_attn.flash_attn_func", flops=flops, instead=instead, backward=2.5)
"""
SCRIPT = """
import torch, torch.distributed as dist
from flash_attn import flash_attn_func
dist.init_process_group("nccl")
torch.manual_seed(0)
given = [torch.randn(2, 1024, 8, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
out = flash_attn_func(*given, causal=True)
out.backward(out.detach())
assert out.is_cuda and given[0].grad.is_cuda and given[0].grad.shape == (2, 1024, 8, 64)
print(f"{given[1].grad.float().norm().item():.3f}")
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def stated() -> Iterator[None]:
    """What a test states is forgotten after it."""
    before = dict(kernels.STATED)
    yield
    kernels.STATED.clear()
    kernels.STATED.update(before)


def _launched(tmp_path: Path, script: str = SCRIPT, **hardware: Any) -> tuple[Timeline, str]:
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "kernels.py").write_text(STATES)
    said: list[str] = []
    out = tmp_path / "run.npz"
    found = launch(
        tmp_path / "train.py", [], "virtual:1", {"gpu": "h100", **hardware}, kernels=tmp_path / "kernels.py", out=out,
        say=said.append,
    )  # fmt: skip
    assert found is not None
    return found, "\n".join(said)


def _ns(timeline: Timeline, name: str) -> list[int]:
    return [span.end_ns - span.start_ns for span in timeline.rows() if span.name == name]


@pytest.mark.in_turn
def test_a_library_that_is_not_installed_computes_what_it_should_in_the_stated_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    given = [torch.randn(SHAPE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    out = functional.scaled_dot_product_attention(*(one.transpose(1, 2) for one in given), is_causal=True)
    out.backward(out.detach())
    assert given[1].grad is not None
    timeline, _ = _launched(tmp_path)
    assert f"{given[1].grad.float().norm().item():.3f}" in capsys.readouterr().out
    device = labkit.hardware.find_device("h100")
    forward = FLOPS / (device.flops_per_second("bfloat16") * device.compute_share) * 1e9
    assert _ns(timeline, "flash_attn_func") == [pytest.approx(forward, abs=1)]
    assert _ns(timeline, "flash_attn_func_backward") == [pytest.approx(2.5 * forward, abs=1)]
    assert not _ns(timeline, "_scaled_dot_product_flash_attention_for_cpu")
    assert "flash_attn" not in sys.modules


@pytest.mark.in_turn
def test_with_shapes_only_it_takes_as_long(tmp_path: Path) -> None:
    with_values, _ = _launched(tmp_path)
    shapes, _ = _launched(tmp_path, shapes=True)
    for name in ("flash_attn_func", "flash_attn_func_backward"):
        assert _ns(shapes, name) == _ns(with_values, name)


@pytest.mark.in_turn
def test_what_the_host_computes_stays_there_and_takes_no_time(tmp_path: Path) -> None:
    on_host = SCRIPT.replace('device="cuda"', 'device="cpu"').replace("out.is_cuda and", "not out.is_cuda and not")
    timeline, _ = _launched(tmp_path, on_host)
    assert not _ns(timeline, "flash_attn_func") and not _ns(timeline, "flash_attn_func_backward")


def _call_of_another_library() -> torch.Tensor:
    return torch.ops.stated_test.twice(torch.ones(1000, 1000))


@pytest.fixture(scope="module")
def twice() -> Iterator[None]:
    library: Any = torch.library.Library("stated_test", "DEF")
    library.define("twice(Tensor given) -> Tensor")
    library.impl("twice", lambda given: given * 2, "CPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("twice")
def test_an_operator_of_another_library_takes_the_stated_time_or_is_named() -> None:
    on, device = labkit.virtual(1, gpu="h100"), labkit.hardware.find_device("h100")
    unstated = labkit.run(_call_of_another_library, on=on).timeline
    assert [problem.text for problem in unstated.problems] == [
        "stated_test::twice: nobody stated its arithmetic, so it takes the time of the bytes it reads and writes. "
        'labkit.hardware.kernel("stated_test::twice", flops=...) states it.'
    ]
    labkit.hardware.kernel("stated_test::twice", flops=lambda given: 1e6 * given.numel())
    run = labkit.run(_call_of_another_library, on=on)
    assert not run.timeline.problems and torch.equal(run.results[0], torch.full((1000, 1000), 2.0))
    rate = device.flops_per_second("float32", tf32=False) * device.compute_share
    assert _ns(run.timeline, "twice") == [pytest.approx(1e12 / rate * 1e9, rel=1e-6)]


TRITON = """
import torch, torch.distributed as dist
from triton.runtime.jit import JITFunction
dist.init_process_group("nccl")
def add_kernel(): pass
def other(): pass
given = torch.randn(1024, device="cuda")
JITFunction(add_kernel).run(given, torch.empty_like(given), grid=(1,), warmup=False, BLOCK=128)
JITFunction(other).run(given, grid=(1,), warmup=False)
dist.destroy_process_group()
"""


class _JITFunction:
    """Where Triton's launches come by: a function, and run() with the grid and warmup beside its arguments."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        raise RuntimeError("0 active drivers")


def test_a_launch_of_triton_takes_the_stated_time_where_there_are_no_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("triton", "triton.runtime", "triton.runtime.jit"):
        module: Any = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        module.JITFunction = _JITFunction
        monkeypatch.setitem(sys.modules, name, module)
    labkit.hardware.kernel("triton:add_kernel", flops=0, bytes=lambda *_, BLOCK: BLOCK * 1e6)
    (tmp_path / "train.py").write_text(TRITON)
    on, device = labkit.virtual(1, gpu="h100", shapes=True), labkit.hardware.find_device("h100")
    timeline = labkit.run(labkit.script(tmp_path / "train.py"), on=on).timeline
    rate = device.memory_bytes_per_second * device.memory_share
    assert _ns(timeline, "add_kernel") == [pytest.approx(128e6 / rate * 1e9, abs=1)]
    (problem,) = timeline.problems
    assert problem.text.startswith("The Triton kernel other took no time and computed nothing.")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("softmax", {"instead": torch.softmax}, "names no kernel"),
        ("flash_attn.flash_attn_func", {}, "instead= must say what computes its result"),
        ("mine::op", {"instead": torch.softmax}, "computes its result itself"),
        ("a b.c", {"instead": torch.softmax}, "names no kernel"),
    ],
)
def test_what_cannot_be_stated_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        labkit.hardware.kernel(name, flops=1, **options)


@pytest.mark.in_turn
@pytest.mark.usefixtures("twice")
@pytest.mark.parametrize(("flops", "words"), [(-1, "at least 0"), (lambda given: given.nothing, "AttributeError")])
def test_a_cost_that_cannot_be_computed_is_told_with_the_kernels_name(flops: Any, words: str) -> None:
    labkit.hardware.kernel("stated_test::twice", flops=flops)
    with pytest.raises(labkit.errors.RunError, match=words):
        labkit.run(_call_of_another_library, on=labkit.virtual(1))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "could not be read"),
        ("import nothing_of_this_name", "line 1: ModuleNotFoundError"),
        ("def f(:", "line 1: SyntaxError"),
    ],
)
def test_a_file_of_kernels_that_does_not_run_is_told(tmp_path: Path, source: str | None, words: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    if source is not None:
        (tmp_path / "kernels.py").write_text(source)
    with pytest.raises(ConfigError, match=words):
        launch(tmp_path / "train.py", [], "virtual:1", {}, kernels=tmp_path / "kernels.py")
