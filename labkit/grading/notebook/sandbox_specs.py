"""Kernel specs for a notebook that is graded: Python in a sandbox, whatever name the notebook asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from labkit.grading.notebook.kernel_provisioner import NAME, SandboxProvisioner, Started


class SandboxSpecs(KernelSpecManager):
    """Knows one kernel spec.

    Args:
        ask: Has the kernel started: see `SandboxProvisioner`.
    """

    def __init__(self, ask: Callable[[Mapping[str, Any]], Started]) -> None:
        super().__init__()
        where = f"{SandboxProvisioner.__module__}:{SandboxProvisioner.__name__}"
        entry = EntryPoint(NAME, where, KernelProvisionerFactory.GROUP_NAME)
        KernelProvisionerFactory.instance().provisioners[NAME] = entry
        self._spec = KernelSpec(
            argv=[],
            display_name="Python 3 in a sandbox",
            language="python",
            metadata={"kernel_provisioner": {"provisioner_name": NAME, "config": {"ask": ask}}},
        )

    def get_kernel_spec(self, kernel_name: str) -> Any:
        """Return the sandboxed Python."""
        return self._spec
