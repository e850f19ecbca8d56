"""The environment variables of the processes grading starts: ours, and a submission's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from labkit.interpreter import safe_pythonpath

_PACKAGE_HOME = str(Path(__file__).resolve().parents[3])


def submission_environment(work: Path) -> dict[str, str]:
    """Return the environment a submission's processes get: enough for Python, nothing of the grader's.

    Args:
        work: The only folder they should write to.
    """
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "PYTHONPATH": _PACKAGE_HOME,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "HOME": str(work),
        "USER": "student",
        "LOGNAME": "student",
        "TMPDIR": str(work),
        "IPYTHONDIR": str(work / "ipython"),
        "MPLCONFIGDIR": str(work / "matplotlib"),
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # a sandbox has no other
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return environment


def trusted_environment() -> dict[str, str]:
    """Return the environment of the processes that are ours: the caller's, with one thread for each."""
    environment = dict(os.environ)
    environment.update(
        PYTHONPATH=safe_pythonpath(environment, _PACKAGE_HOME),
        OMP_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        CUDA_VISIBLE_DEVICES="",
    )
    return environment
