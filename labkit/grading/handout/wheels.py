"""All packages of a release in a folder, for a USB stick or a slow line."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.handout.runtime_lock import pinned
from labkit.interpreter import python

CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch's builds without CUDA are: 200 MB on Linux, where PyPI's takes several GB."""
WHEELS = "wheels"
"""The folder of a release in which its README's commands find packages without a network."""


def fetch_wheels(release: Path, folder: Path) -> str:
    """Return what was fetched: the packages of a release for machines like this one, beside those that are there.

    Args:
        release: What `labkit release` wrote.
        folder: Where they go; ``wheels`` in the release is where its README looks for them.

    Raises:
        ConfigError: If `folder` is a file.
        EnvironmentProblem: If pip does not get them.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--wheels needs a folder, and {folder} is a file")
    folder.mkdir(parents=True, exist_ok=True)
    lock = release / "requirements.lock"
    command = python("-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", str(folder))
    if sys.platform == "linux":  # elsewhere PyPI has no build with CUDA; where this is not reached, PyPI's is taken
        torch = [pinned(lock.read_text(encoding="utf-8"), "torch"), "--no-deps", "--retries", "1", "--timeout", "20"]
        subprocess.run([*command, "--index-url", CPU_BUILDS, *torch], capture_output=True, text=True)
        command += ["--find-links", str(folder)]
    done = subprocess.run([*command, "-r", str(lock)], capture_output=True, text=True)
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), "pip said nothing")
        raise EnvironmentProblem(f"the packages for {folder} could not be downloaded: {why}")
    files = list(folder.glob("*.whl"))
    size = sum(path.stat().st_size for path in files)
    kind = f"{platform.system()} {platform.machine()} with Python {'.'.join(platform.python_version_tuple()[:2])}"
    return (
        f"{folder}: {len(files)} packages, {size / 1e6:.0f} MB, for {kind}. For others run it on a machine of each "
        "kind, with the same folder."
    )
