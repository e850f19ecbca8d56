"""What the judge works out of a log of file operations is what the simulated disk leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from labkit.crashes.left import what_crashes_leave
from labkit.exercises.when_machines_fail.crash_log import Event, packed, unpacked, would_leave
from labkit.failures.records import Kill
from labkit.virtual_world import virtual


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def saves_as_taught() -> None:
    base = Path("checkpoints").resolve()
    base.mkdir(exist_ok=True)
    for step in range(3):
        with (base / "new").open("wb") as file:
            torch.save({"weight": torch.arange(9.0)}, file)
            file.flush()
            os.fsync(file.fileno())
        (base / "new").replace(base / f"{step}.pt")
        sync(base)
        for old in sorted(base.glob("*.pt"))[:-1]:
            old.unlink()


def does_much_else() -> None:
    base = Path("checkpoints").resolve()
    (base / "a" / "b").mkdir(parents=True, exist_ok=True)
    (base / "a" / "b" / "x").write_bytes(b"in place" * 9)
    sync(base / "a")
    (base / "a" / "b" / "x").write_bytes(b"again")
    sync(base / "a" / "b" / "x")
    with (base / "a" / "b" / "x").open("r+b") as file:
        file.truncate(3)
    os.link(base / "a" / "b" / "x", base / "a" / "linked")
    (base / "a" / "b" / "x").unlink()
    (base / "a" / "b" / "y").write_bytes(b"where another was")
    (base / "a" / "b" / "latest").symlink_to("y")
    (base / "a").rename(base / "moved")
    sync(base)
    (base / "moved" / "b" / "latest").unlink()
    (base / "moved" / "b" / "y").unlink()
    (base / "moved" / "b").rmdir()


@pytest.mark.in_turn
@pytest.mark.parametrize("program", [saves_as_taught, does_much_else])
@pytest.mark.parametrize("killed", [None, 2, 4], ids=lambda number: f"killed at {number}")
def test_what_follows_from_the_log_is_what_the_disk_leaves(program: Any, killed: int | None, tmp_path: Path) -> None:
    kill = None if killed is None else Kill(0, file=killed)
    left = what_crashes_leave(program, on=virtual(1, cuda=False), folder=tmp_path, init=False, kill=kill)
    log = [Event(each.rank, each.op, each.path, each.files, each.numbers) for each in left if each.how == "kill"]
    (again,) = unpacked(packed([log])) or []
    assert len(again) > 10
    found = would_leave(again, -1 if killed is None else killed - 1)
    for place, each in enumerate(left):
        assert found[place // 4][each.how] == each.files, (each.op, each.path, each.how)


@pytest.mark.parametrize(
    "data", [b"", b"[", b"[[], []", b'[[[[0, "open", "x", [["x", 1, 5]]]]], []]', b'[[[["0", "open", "x", []]]], []]',
             b"[" * 100_000, b"7", b'[[[[0, 1, "x", []]]], []]'],
    ids=range(8),
)  # fmt: skip
def test_a_log_that_is_none_is_none(data: bytes) -> None:
    assert unpacked(torch.tensor(list(data), dtype=torch.uint8)) is None


@pytest.mark.parametrize("data", [None, "log", torch.zeros(3), torch.zeros(2, 2, dtype=torch.uint8)], ids=range(4))
def test_what_is_no_log_at_all_is_none(data: Any) -> None:
    assert unpacked(data) is None
