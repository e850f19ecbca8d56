"""Kernel specs for a notebook that is graded: Python in a sandbox, whatever name the notebook asks for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from labkit.grading.limits import Limits
from labkit.grading.notebook.kernel_provisioner import NAME, SandboxProvisioner, kernel_ulimits
from labkit.grading.preloaded.client import Preloaded


class SandboxSpecs(KernelSpecManager):
    """Knows one kernel spec.

    Args:
        hidden: Files and folders the kernel must not see.
        limits: What it may use.
        preloaded: What it is forked from; else it is a new program.
    """

    def __init__(self, hidden: Sequence[Path], limits: Limits, preloaded: Preloaded | None = None) -> None:
        super().__init__()
        # Known also where labkit was not installed since it has this entry point, or was never installed.
        where = f"{SandboxProvisioner.__module__}:{SandboxProvisioner.__name__}"
        entry = EntryPoint(NAME, where, KernelProvisionerFactory.GROUP_NAME)
        KernelProvisionerFactory.instance().provisioners[NAME] = entry
        config = {
            "hidden": [str(path) for path in hidden],
            "scratch_bytes": limits.scratch_bytes,
            "memory_bytes": 2 * limits.kernel_memory_bytes,  # a wall behind MemoryWatch, which ends it with words
            "max_tasks": 2 * limits.kernel_processes,
            "ulimits": kernel_ulimits(limits),
            "preloaded": preloaded,
        }
        self._spec = KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="Python 3 in a sandbox",
            language="python",
            metadata={"kernel_provisioner": {"provisioner_name": NAME, "config": config}},
        )

    def get_kernel_spec(self, kernel_name: str) -> Any:
        """Return the sandboxed Python."""
        return self._spec
