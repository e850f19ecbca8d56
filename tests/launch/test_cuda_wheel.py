"""torch's CUDA build on a host without a GPU: what driver libraries of our own count, and what comes of it.

That build is some 5 GB with all its libraries and not in requirements.lock; LABKIT_CUDA_TORCH names a folder of it:
``pip install --target FOLDER torch===2.13.0`` (PyPI's wheel for Linux is the CUDA build).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

PROGRAM = """
import json, os, sys
import torch
import torch.distributed as dist
import labkit
from labkit.errors import ConfigError
from labkit.launch.gpus import gpus

def total():
    tensor = torch.ones(3, device=labkit.device()) * (dist.get_rank() + 1)
    dist.all_reduce(tensor)
    return tensor[0].item(), str(tensor.device), os.getpid(), os.getppid()

def main():
    here = gpus()
    found = {"wheel": torch.version.cuda, "counted": here.counted, "usable": len(here.usable), "problem": here.problem}
    from labkit.doctor import _gpus
    found["doctor"] = _gpus().text
    run = labkit.run(total, on=labkit.local(2))
    found["backend"], found["results"] = run.backend, run.results
    try:
        labkit.run(total, on=labkit.local(2, device="cuda"))
    except ConfigError as error:
        found["refused"] = str(error)
    print("FOUND " + json.dumps(found))

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    named = os.environ.get("LABKIT_CUDA_TORCH", "")
    if not (Path(named) / "torch" / "lib" / "libtorch_cuda.so").is_file() or not named:
        pytest.skip(
            "LABKIT_CUDA_TORCH names no folder with torch's CUDA build: pip install --target FOLDER torch===2.13.0"
        )
    return Path(named).resolve()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with driver libraries of our own."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("stub_driver.c")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / name, source, "-ldl"], check=True)
    return folder


def found_with(wheel: Path, driver: Path, folder: Path, **settings: str) -> tuple[dict[str, Any], str, str]:
    """Return what the program found, what it said, and the log of calls of the driver."""
    program, log = folder / "program.py", folder / "calls"
    program.write_text(PROGRAM, encoding="utf-8")
    log.touch()
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {"PYTHONPATH": str(wheel), "LD_LIBRARY_PATH": str(driver), "STUB_LOG": str(log)} | settings
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program], env=environment, cwd=Path(__file__).parents[2],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-2000:]
    return json.loads(lines[0].removeprefix("FOUND ")), done.stdout, log.read_text()


@pytest.mark.parametrize(
    ("settings", "counted", "problem"),
    [
        ({"STUB_GPUS": "0"}, 0, ""),
        ({"STUB_GPUS": "2", "STUB_ERROR": "100"}, 2, "No CUDA GPUs are available"),
        ({"STUB_GPUS": "2", "STUB_VERSION": "11040"}, 2, "driver on your system is too old (found version 11040)"),
        ({"STUB_GPUS": "2", "STUB_ERROR": "999"}, 2, "CUDA unknown error"),
        ({"STUB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "MIG-11111111-2222-3333-4444-555555555555"}, 0, ""),
    ],
    ids=[
        "no GPU",
        "two counted and none usable",
        "old driver",
        "a driver that fails",
        "a part of a GPU that is not there",
    ],
)
def test_ranks_run_on_the_cpu_and_every_door_says_why(
    settings: dict[str, str], counted: int, problem: str, wheel: Path, driver: Path, tmp_path: Path
) -> None:
    found, said, calls = found_with(wheel, driver, tmp_path, **settings)
    assert found["wheel"] is not None
    assert (found["counted"], found["usable"]) == (counted, 0)
    assert problem in found["problem"] and problem in found["doctor"]
    assert found["backend"] == "gloo/cpu"
    assert [result[:2] for result in found["results"]] == [[3.0, "cpu"], [3.0, "cpu"]]
    if counted:
        assert f"{counted} GPUs counted, none usable" in said and problem in said
        assert problem in found["refused"]
    else:
        assert "torch sees 0 GPUs" in found["refused"]
    # The process that forks ranks, and ranks that need no GPU, never ask the driver.
    asked = {int(line.split()[0]) for line in calls.splitlines()}
    assert not asked & {pid for result in found["results"] for pid in result[2:]}
