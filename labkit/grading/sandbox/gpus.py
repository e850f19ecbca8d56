"""The GPUs that ranks of hidden cases may use: those that work, also from inside the sandbox, and their device files.

A sandbox is shown one GPU's files and those that belong to all. There is nothing between a submission and the driver
then: what that costs is said in docs/attacks.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from labkit.errors import EnvironmentProblem
from labkit.grading.own_folders import own_prefix
from labkit.grading.sandbox import seccomp
from labkit.grading.sandbox.bubblewrap import Sandbox
from labkit.grading.sandbox.environments import submission_environment
from labkit.grading.sandbox.view import SCRATCH
from labkit.interpreter import python
from labkit.launch import gpu_probe
from labkit.launch.gpus import probe

DEV = Path("/dev")
DRIVER = Path("/proc/driver/nvidia/gpus")
_OF_ALL = ("nvidiactl", "nvidia-uvm")
_PATIENCE_S = 120
_WITHOUT = "Leave --device out to grade on the CPU."


def gpu_environment(gpu: str) -> dict[str, str]:
    """Return the variables of a process that may use one GPU, named by its UUID; for "" there are none.

    The workspace of cuBLAS is set so that a product of matrices comes out the same in every run.
    """
    if not gpu:
        return {}
    return {"CUDA_VISIBLE_DEVICES": gpu, "LABKIT_DEVICE": "cuda:0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def device_files(gpu: str) -> tuple[Path, ...]:
    """Return the device files that a process needs for one GPU: its own, and the two that the driver has for all.

    Where the driver does not say which number a GPU has, they are those of every GPU.

    Args:
        gpu: Its UUID; "" for no GPU.
    """
    if not gpu:
        return ()
    own = [DEV / f"nvidia{number}" for number in _numbers(gpu)] or sorted(DEV.glob("nvidia[0-9]*"))
    return tuple(path for path in (*(DEV / name for name in _OF_ALL), *own) if path.exists())


def _numbers(gpu: str) -> list[int]:
    """Return the minor number of a GPU's device file, as the driver says it."""
    found = []
    for about in DRIVER.glob("*/information"):
        lines = (line.partition(":") for line in about.read_text(encoding="utf-8", errors="replace").splitlines())
        fields = {name.strip(): value.strip() for name, _, value in lines}
        if fields.get("GPU UUID", "").lower() == gpu.lower() and fields.get("Device Minor", "").isdigit():
            found.append(int(fields["Device Minor"]))
    return found


def gpus_for_grading(sandbox: str) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that hidden cases can run on.

    Args:
        sandbox: "bubblewrap", in which each GPU is tried; or "none".

    Raises:
        EnvironmentProblem: If there is none, or none can be used from inside the sandbox; says why.
    """
    here = probe(0, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not here.usable:
        found = f"{here.counted} counted, none usable: {here.problem}" if here.problem else "torch sees none"
        raise EnvironmentProblem(f"--device cuda needs a GPU here, but {found}. {_WITHOUT}")
    whole = tuple(name for name in here.names if not name.startswith("MIG-"))
    if not whole:
        raise EnvironmentProblem(
            f"--device cuda needs a whole GPU, but this machine has only parts of one (MIG). {_WITHOUT}"
        )
    if sandbox == "none":
        return whole
    said = {gpu: problem_inside(gpu) for gpu in whole}
    reached = tuple(gpu for gpu in whole if not said[gpu])
    if not reached:
        raise EnvironmentProblem(
            f"the GPU works, but a sandbox cannot use it ({said[whole[0]]}). Its device files must be open to every "
            f"user (ls -l /dev/nvidia*), and its driver's libraries lie in /usr or in LD_LIBRARY_PATH. {_WITHOUT}"
        )
    return reached


def problem_inside(gpu: str) -> str:
    """Return why an addition on a GPU does not come out right in a sandbox such as a rank's, "" where it does.

    Args:
        gpu: Its UUID.
    """
    files = device_files(gpu)
    if not files:
        return f"there are no device files {DEV}/nvidia*"
    filter_fd = seccomp.filter_file()
    with tempfile.TemporaryDirectory(prefix=own_prefix("gpu")) as control, open(os.devnull, "wb") as null:
        program = python("-W", "ignore", gpu_probe.__file__)
        environment = submission_environment(Path(SCRATCH)) | gpu_environment(gpu)
        command = Sandbox(Path(control), devices=files).command(program, environment, null.fileno(), filter_fd)
        try:
            tried = subprocess.run(
                command, pass_fds=[null.fileno(), filter_fd], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=_PATIENCE_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"a process that tried it did not answer for {_PATIENCE_S} s"
        finally:
            os.close(filter_fd)
    try:
        found = json.loads(tried.stdout.splitlines()[-1])["gpus"]
    except (ValueError, IndexError, KeyError):
        return (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
    return str(found[0].get("problem", "")) if found else "torch sees no GPU in there"
