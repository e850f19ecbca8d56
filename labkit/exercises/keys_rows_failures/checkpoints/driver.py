"""What a rank runs of checkpoints.

Where another rank stands opposite, it is the disk: it gets what is flushed when it is flushed, and loads from that.
"""

from __future__ import annotations

import io
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, listed

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


class PowerCut:
    """What a power cut leaves of a folder, at the worst moment until now.

    Data is on the disk after os.fsync, os.fdatasync or os.sync; a new name is after the folder's. A rename before its
    data is cut at that moment, however much is flushed later.

    Attributes:
        lost: What the cut took: "renamed too early", "not flushed to the disk", "the folder not flushed", or "".
    """

    def __init__(self, folder: Path, save: Any, written_ns: dict[Path, int], disk: Disk | None = None) -> None:
        """Watch what `save` does in the folder, in which files were written at these times; tell the disk of it."""
        self.lost, self._folder, self._disk = "", folder, disk
        self._places = (vars(os), getattr(save, "__globals__", {}))
        self._before = {path.stat().st_ino: time_ns for path, time_ns in written_ns.items()}
        self._on_disk: dict[int, int] = {}
        self._early: set[int] = set()
        self._renamed: dict[Path, bytes | None] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is flushed and renamed in here; then cut the power."""
        instead = {
            os.fsync: self._flushing(os.fsync), os.fdatasync: self._flushing(os.fdatasync), os.sync: self._flush_all,
            os.replace: self._renaming(os.replace), os.rename: self._renaming(os.rename),
        }  # fmt: skip
        kept = [(p, name, value) for p in self._places for name, value in p.items() if _among(value, instead)]
        try:
            for place, name, value in kept:
                place[name] = instead[value]
            yield
        finally:
            for place, name, value in kept:
                place[name] = value
        self._cut()

    def _flushing(self, call: Any) -> Any:
        def flush(file: Any) -> None:
            call(file)
            found = os.fstat(file if isinstance(file, int) else file.fileno())
            if stat.S_ISDIR(found.st_mode):
                self._flush_folder()
            elif found.st_ino not in self._early:
                self._on_disk[found.st_ino] = found.st_size
                self._tell(path for path in self._folder.rglob("*") if path.stat().st_ino == found.st_ino)

        return flush

    def _flush_folder(self) -> None:
        self._renamed.clear()
        if self._disk:
            self._disk.tell(_NAMES)

    def _flush_all(self) -> None:
        sizes = {path.stat().st_ino: path.stat().st_size for path in self._folder.rglob("*")}
        self._on_disk.update({file: size for file, size in sizes.items() if file not in self._early})
        files = (path for path in self._folder.rglob("*") if path.is_file())
        self._tell(path for path in files if path.stat().st_ino not in self._early)
        self._flush_folder()

    def _tell(self, files: Iterable[Path]) -> None:
        for path in files if self._disk else ():
            assert self._disk is not None
            self._disk.tell(_DATA, path.relative_to(self._folder), path.read_bytes())

    def _renaming(self, call: Any) -> Any:
        def rename(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
            old = Path(target).read_bytes() if Path(target).is_file() else None
            found = Path(source).stat()
            if self._on_disk.get(found.st_ino, 0) < found.st_size:
                self.lost = "renamed too early"
                self._early.add(found.st_ino)
            call(source, target, *args, **kwargs)
            if self._disk:
                pair = [str(Path(each).relative_to(self._folder)) for each in (source, target)]
                self._disk.tell(_RENAMED, "\n".join(pair))
            self._renamed.setdefault(Path(target), old)

        return rename

    def _cut(self) -> None:
        for path in self._folder.rglob("*"):
            found = path.stat()
            if path.is_file() and self._before.get(found.st_ino) != found.st_mtime_ns:
                there = self._on_disk.get(found.st_ino, 0)
                if there < found.st_size:
                    self.lost = self.lost or "not flushed to the disk"
                    os.truncate(path, there)
        for target, old in self._renamed.items():
            self.lost = self.lost or "the folder not flushed"
            target.unlink(missing_ok=True) if old is None else target.write_bytes(old)


_DATA, _RENAMED, _NAMES, _WHOLE, _LOAD = range(5)


class Disk:
    """The rank opposite, told of what is flushed; it keeps that and nothing else."""

    def tell(self, what: int, name: str | Path = "", data: bytes = b"") -> None:
        """Send what happens: data of a file flushed, a rename, its folder flushed, the folder as it is, a load."""
        text = str(name).encode()
        dist.send(torch.tensor([what, len(text), len(data)]), 1)
        if text:
            dist.send(torch.frombuffer(bytearray(text + data), dtype=torch.uint8), 1)

    def tell_all(self, folder: Path) -> None:
        """Send the folder as it is: nothing fails in this step, and the disk has all of it."""
        self.tell(_WHOLE)
        for path in folder.rglob("*"):
            if path.is_file():
                self.tell(_DATA, path.relative_to(folder), path.read_bytes())


def _be_the_disk(functions: Functions, steps: int) -> Values:
    """Keep what is flushed, and after each step load from that."""
    kept: dict[str, bytes] = {}
    renamed: list[tuple[str, str]] = []
    loads: list[Value] = []
    while len(loads) < steps:
        about = torch.zeros(3, dtype=torch.int64)
        dist.recv(about, 0)
        what, length, size = about.tolist()
        came = torch.zeros(length + size, dtype=torch.uint8)
        if length:
            dist.recv(came, 0)
        whole = bytes(came.tolist())
        name, data = whole[:length].decode(), whole[length:]
        if what == _DATA:
            kept[name] = data
        elif what == _RENAMED:
            source, _, target = name.partition("\n")
            renamed.append((source, target))
        elif what == _NAMES:
            for source, target in renamed:  # a name whose data was never flushed stands over nothing
                kept[target] = kept.pop(source, b"")
            renamed = []
        elif what == _WHOLE:
            kept, renamed = {}, []
        else:
            renamed = []
            loads.append(_loaded_from(functions, kept))
    return {"loads": loads}


def _loaded_from(functions: Functions, kept: dict[str, bytes]) -> Value:
    with tempfile.TemporaryDirectory() as made:
        for name, data in kept.items():
            Path(made, name).parent.mkdir(parents=True, exist_ok=True)
            Path(made, name).write_bytes(data)
        version, weight = _loaded(functions, Path(made))
        return {"version": version, "weight": weight}


def _loaded(functions: Functions, folder: Path) -> tuple[Value, Value]:
    """Return version and weight of what is loaded, None for both where nothing is."""
    loaded = functions["load_checkpoint"](folder)
    if loaded is not None and not (isinstance(loaded, tuple | list) and len(loaded) == 2):
        return f"a {type(loaded).__name__}", None
    return (None, None) if loaded is None else (loaded[0], loaded[1])


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
    "bytes"} (what the newest file of the folder keeps). With "pull" it is saved, and then the power fails. With
    opposite another rank is the disk; its inputs are steps: how many.
    """
    if "steps" in inputs:
        return _be_the_disk(functions, integer(inputs, "steps"))
    disk = Disk() if inputs.get("opposite") else None
    found: list[Value] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        newest: set[Path] = set()
        for step in listed(inputs, "script"):
            broke_off, cut = False, PowerCut(folder, functions["save_checkpoint"], _aged(folder), disk)
            before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
            if step["op"] in ("save", "pull"):
                with cut.watched() if step["op"] == "pull" else nullcontext():
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
            if disk:
                if step["op"] != "pull":
                    disk.tell_all(folder)
                disk.tell(_LOAD)
            version, weight = _loaded(functions, folder)
            found.append({"version": version, "weight": weight, "broke_off": broke_off, "lost": cut.lost})
    return {"loads": found}
