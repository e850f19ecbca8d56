"""Libraries that lock, and packages that look at the disk as they are imported, hold up no other rank for ever."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import torch.distributed as dist

import labkit
from labkit.failures import Disk


@pytest.mark.in_turn
def test_ranks_wait_in_virtual_time_for_a_lock_that_a_library_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    (installed / "keeps_locks").mkdir(parents=True)
    (installed / "keeps_locks" / "__init__.py").write_text("from keeps_locks import kept\n", encoding="utf-8")
    (installed / "keeps_locks" / "kept.py").write_text(
        "import threading\nonce, again = threading.Lock(), threading.RLock()\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(installed)

    def loads() -> float:
        from keeps_locks import kept  # type: ignore[import-not-found]

        dist.barrier()
        begin = time.monotonic()
        with kept.once, kept.again, kept.again:
            time.sleep(1.0)
            Path("saved").exists()  # who stands earlier in time goes first
        return time.monotonic() - begin

    try:
        for _ in range(2):  # it is imported once
            waits = labkit.run(loads, on=labkit.virtual(2, cuda=False, disk=Disk()), echo=False).results
            assert sorted(waits) == pytest.approx([1.0, 2.0], rel=0.01)
    finally:
        for name in ("keeps_locks", "keeps_locks.kept"):
            sys.modules.pop(name, None)


def test_a_package_that_looks_at_the_disk_as_it_is_imported_lets_others_import_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "looks_around"
    package.mkdir()
    (package / "__init__.py").write_text("import os\nos.stat('.')\nwhole = True\n", encoding="utf-8")
    (package / "inner.py").write_text("value = 3\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def imports() -> int:
        import looks_around.inner  # type: ignore[import-not-found]

        return int(looks_around.inner.value * looks_around.whole)

    world = labkit.virtual(2, cuda=False, disk=Disk())
    assert labkit.run(imports, on=world, echo=False, timeout=20.0).results == [3, 3]
