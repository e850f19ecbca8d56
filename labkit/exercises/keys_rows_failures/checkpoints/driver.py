"""What a rank runs of checkpoints."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed

# ---- checkpoints


@contextmanager
def _breaking_off(where: str) -> Iterator[None]:
    """Let writing break off halfway ("write"), or every renaming fail ("rename")."""
    save = torch.save
    kept: dict[tuple[Any, str], Any] = {(os, "replace"): os.replace, (os, "rename"): os.rename}
    kept |= {(Path, "replace"): Path.replace, (Path, "rename"): Path.rename}

    def half(value: object, target: Any, *args: Any, **kwargs: Any) -> None:
        buffer = io.BytesIO()
        save(value, buffer)
        data = buffer.getvalue()[: len(buffer.getvalue()) // 2]
        if hasattr(target, "write"):
            target.write(data)
            target.flush()
        else:
            Path(target).write_bytes(data)
        raise OSError("no space left on device")

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("the power failed")

    try:
        if where == "write":
            torch.save = half  # type: ignore[assignment]
        else:
            for owner, name in kept:
                setattr(owner, name, fail)
        yield
    finally:
        torch.save = save
        for (owner, name), value in kept.items():
            setattr(owner, name, value)


@contextmanager
def _until_the_plug_is_pulled(folder: Path, save: Any, written_ns: dict[Path, int]) -> Iterator[list[bool]]:
    """Cut every file of the folder to what had been brought to the disk; afterwards the list says whether one was cut.

    Renaming is on the disk at once here, data only after os.fsync, os.fdatasync or os.sync: the worst that may happen.

    Args:
        folder: Where files are written.
        save: The learner's function; what it imported from os by name is noted too.
        written_ns: When each file was written that is there already.
    """
    before = {path.stat().st_ino: time_ns for path, time_ns in written_ns.items()}
    on_disk: dict[int, int] = {}
    lost: list[bool] = []

    def noting(call: Any) -> Any:
        def noted(file: Any) -> None:
            call(file)
            found = os.fstat(file if isinstance(file, int) else file.fileno())
            on_disk[found.st_ino] = found.st_size

        return noted

    def all_of_it() -> None:
        on_disk.update({path.stat().st_ino: path.stat().st_size for path in folder.rglob("*")})

    instead = {os.fsync: noting(os.fsync), os.fdatasync: noting(os.fdatasync), os.sync: all_of_it}
    places = (vars(os), getattr(save, "__globals__", {}))
    kept = [(place, name, value) for place in places for name, value in place.items() if _among(value, instead)]
    try:
        for place, name, value in kept:
            place[name] = instead[value]
        yield lost
    finally:
        for place, name, value in kept:
            place[name] = value
    for path in folder.rglob("*"):
        found = path.stat()
        if path.is_file() and before.get(found.st_ino) != found.st_mtime_ns:
            there = on_disk.get(found.st_ino, 0)
            lost.append(there < found.st_size)
            os.truncate(path, min(there, found.st_size))


def _aged(folder: Path) -> dict[Path, int]:
    """Return when each file was written, in ns, a second longer ago than it was: the next writing shows, however soon.

    A file system's clock may stand still for 10 ms, in which a small file is written twice.
    """
    aged = {path: path.stat().st_mtime_ns - 10**9 for path in folder.rglob("*") if path.is_file()}
    for path, time_ns in aged.items():
        os.utime(path, ns=(time_ns, time_ns))
    return {path: path.stat().st_mtime_ns for path in aged}


def _among(value: object, calls: Any) -> bool:
    return any(value is call for call in calls)


def drive(functions: Functions, inputs: Values) -> Values:
    """Save, break off and damage checkpoints as told, and load after each (checkpoints).

    Inputs: script, a list of {"op": "save" | "pull" | "write" | "rename", "version", "weight"}, {"op": "damage",
    "bytes"} (what the newest file of the folder keeps). With "pull" it is saved, and then the plug is pulled.
    """
    found: list[Value] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        newest: set[Path] = set()
        for step in listed(inputs, "script"):
            broke_off, lost = False, [False]
            before = _aged(folder)
            if step["op"] in ("save", "pull"):
                pulled = _until_the_plug_is_pulled(folder, functions["save_checkpoint"], before)
                with pulled if step["op"] == "pull" else nullcontext([False]) as lost:
                    functions["save_checkpoint"](folder, step["version"], step["weight"].clone())
                newest = {
                    path for path in folder.rglob("*") if path.is_file() and before.get(path) != path.stat().st_mtime_ns
                }
            elif step["op"] == "damage":
                for path in newest:
                    path.write_bytes(path.read_bytes()[: step["bytes"]])
            else:
                try:
                    with _breaking_off(step["op"]):
                        functions["save_checkpoint"](folder, step["version"], step["weight"].clone())
                except OSError:
                    broke_off = True
            loaded = functions["load_checkpoint"](folder)
            if loaded is not None and not (isinstance(loaded, tuple | list) and len(loaded) == 2):
                loaded = (f"a {type(loaded).__name__}", None)
            version, weight = (None, None) if loaded is None else loaded
            found.append({"version": version, "weight": weight, "broke_off": broke_off, "lost": any(lost)})
    return {"loads": found}
