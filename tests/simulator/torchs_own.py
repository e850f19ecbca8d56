"""Runs methods of torch's own distributed tests on ranks of labkit: what each rank says of one, by its name.

torch writes them for processes that it starts itself. Here a rank is given; what they ask of a profiler is left out:
ranks that are threads cannot have it.
"""

from __future__ import annotations

import os
import tempfile
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZE = 4
NOT_ASKED = ("profil", "execution_trace")
"""Parts of names of methods that ask torch's profiler."""


def prepare(backend: str) -> None:
    """Set what torch's module reads when it is imported."""
    folder = Path(tempfile.mkdtemp(prefix="labkit-torch-"))
    for each in ("barrier", "test_dir"):
        (folder / each).mkdir()
    os.environ.update(BACKEND=backend, TEMP_DIR=str(folder), WORLD_SIZE=str(SIZE), INIT_METHOD="env://")


def names() -> list[str]:
    """Return the names of torch's methods that are asked; call prepare() first."""
    from torch.testing._internal.distributed import distributed_test

    every = dir(distributed_test.DistributedTest._DistTestBase)
    return [name for name in every if name.startswith("test_") and not any(part in name for part in NOT_ASKED)]


def ask(name: str) -> str:
    """Return what came of one method on this rank: "right", or "skipped: ..." with torch's own reason."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed import distributed_test

    torchs: Any = distributed_test

    class Case(torchs.DistributedTest._DistTestBase, torchs.MultiProcessTestCase):  # type: ignore[misc]
        world_size = SIZE

        def _barrier(self, *_: Any, **__: Any) -> None:
            dist.barrier()

        def call_dist_op(
            self, title: str, is_async: bool, op: Callable[..., Any], *args: Any, expect_event: bool = True,
            secondary_op_call: Any = None, profile_cuda: bool = False, tensor_shapes: Any = None, **kwargs: Any,
        ) -> None:  # fmt: skip
            works = [op(*args, **kwargs)]
            works += [secondary_op_call()] if secondary_op_call is not None else []
            for work in works if is_async else ():
                work.wait()

    case = Case(name)
    case.rank, case.file_name = dist.get_rank(), str(Path(os.environ["TEMP_DIR"]) / "file")
    torch.manual_seed(0)  # its processes all begin with the same
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            getattr(Case, name)(case)
        except unittest.SkipTest as skipped:
            return f"skipped: {skipped}"
        except SystemExit as skipped:
            return f"skipped: {skipped.code}"
    return "right"
