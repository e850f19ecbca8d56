"""Drivers of lesson 04: call the learner's functions on this rank's inputs, return what came of it as data."""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import rpc

from labkit.checks.case import Value, Values
from labkit.checks.drivers.called_servers import join_rpc, on_virtual_ranks
from labkit.checks.exercise import Functions


def train_by_post(functions: Functions, inputs: Values) -> Values:
    """Call posted_training on every rank (posted_training)."""
    weight, gradients = cast(Tensor, inputs["weight"]), cast(list[Tensor], inputs["gradients"])
    before = weight.clone()
    sent = [gradient.clone() for gradient in gradients]
    found = functions["posted_training"](weight, sent, inputs["num_gradients"], inputs["lr"])
    kept = torch.equal(weight, before)
    return {"weight": found if isinstance(found, Tensor) else f"{type(found).__name__}", "kept": kept}


def call_with_tensors(functions: Functions, inputs: Values) -> Values:
    """Call named functions, each with its arguments; return what they gave (place_keys, hot_keys)."""
    found: list[Value] = []
    for each in cast(list[dict[str, Any]], inputs["calls"]):
        args = [value.clone() if isinstance(value, Tensor) else value for value in each["args"]]
        value = functions[each["function"]](*args)
        found.append(value if isinstance(value, Tensor) else f"a {type(value).__name__}")
    return {"values": found}


# ---- sparse_rows


class NotingServer:
    """Rows by their keys, and a note of every call: when it came, and what it said."""

    def __init__(self, keys: Tensor, rows: Tensor, push_s: float = 0.0) -> None:
        """Hold these rows; a push takes so many seconds."""
        self.keys, self.rows, self.push_s = keys, rows, push_s
        self.calls: list[dict[str, Any]] = []

    def pull(self, keys: Tensor) -> Tensor:
        """Return the rows of these keys."""
        self.calls.append({"op": "pull", "keys": keys, "seconds": time.perf_counter()})
        return self.rows[torch.searchsorted(self.keys, keys)]

    def push(self, keys: Tensor, gradients: Tensor) -> int:
        """Note gradients."""
        noted = {"op": "push", "keys": keys, "gradients": gradients, "seconds": time.perf_counter()}
        time.sleep(self.push_s)
        self.calls.append(noted | {"done": time.perf_counter()})
        return len(keys)

    def noted(self) -> list[dict[str, Any]]:
        """Return the calls so far."""
        return self.calls


def use_rows(functions: Functions, inputs: Values) -> Values:
    """Call pull_rows and push_rows against servers on virtual ranks (sparse_rows)."""
    num_servers = len(cast(list[Tensor], inputs["held"]))
    found: Values = on_virtual_ranks(
        _pull_and_push, functions, inputs, num_ranks=num_servers + 1, operator_ns=0, message_ns=20_000_000
    )[0]
    return found


def _pull_and_push(functions: Functions, inputs: Values) -> Values | None:
    rank, _world_size = join_rpc()
    found: dict[str, Value] | None = None
    if rank == 0:
        home, table = cast(Tensor, inputs["home"]), cast(Tensor, inputs["table"])
        held = cast(list[Tensor], inputs["held"])
        servers = [
            rpc.remote(f"rank{number + 1}", NotingServer, args=(keys, table[keys], 0.5 * (number == len(held) // 2)))
            for number, keys in enumerate(held)
        ]
        for server in servers:
            server.rpc_sync().noted()
        keys, gradients = cast(Tensor, inputs["keys"]), cast(Tensor, inputs["gradients"])
        place: Callable[[Tensor], Tensor] = lambda asked: home[asked]  # noqa: E731
        rows = functions["pull_rows"](servers, place, keys.clone())
        functions["push_rows"](servers, place, keys.clone(), gradients.clone())
        found = {"rows": rows if isinstance(rows, Tensor) else f"a {type(rows).__name__}"}
        found["returned"] = time.perf_counter()
        time.sleep(1.0)  # whatever is under way arrives
        found["calls"] = [cast(Value, server.rpc_sync().noted()) for server in servers]
    rpc.shutdown()
    return found


# ---- server_hybrid


class Dense(nn.Module):
    """Two layers, a bias and a frozen scale over the mean of a sample's rows, float64."""

    first: Tensor
    bias: Tensor
    frozen: Tensor
    second: Tensor

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        """Take these parameters."""
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor.clone(), requires_grad=name != "frozen"))

    def forward(self, rows: Tensor) -> Tensor:
        """Return one number for each sample."""
        hidden = torch.tanh(rows.mean(1) @ self.first + self.bias) * self.frozen
        return hidden @ self.second


def step_hybrid(functions: Functions, inputs: Values) -> Values:
    """Call hybrid_step for some steps with a table that notes what is pulled and pushed (server_hybrid)."""
    ranks = inputs.get("group")
    group = None if ranks is None else dist.new_group(cast(list[int], ranks))
    if ranks is not None and dist.get_rank() not in cast(list[int], ranks):
        return {"member": False}
    model, table = Dense(cast(dict[str, Tensor], inputs["dense"])), cast(Tensor, inputs["table"])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=cast(float, inputs["lr"]))
    pulled: list[Value] = []
    losses: list[Value] = []
    pushes: list[Value] = []

    def pull(keys: Tensor) -> Tensor:
        pulled.append(keys.clone())
        return table[keys]

    def push(keys: Tensor, gradients: Tensor) -> None:
        pushes.append(torch.zeros_like(table).index_add_(0, keys.flatten(), gradients.detach()))

    for keys, targets in zip(cast(list[Tensor], inputs["keys"]), cast(list[Tensor], inputs["targets"]), strict=True):
        loss = functions["hybrid_step"](model, optimizer, pull, push, keys.clone(), targets.clone(), group)
        attached = isinstance(loss, Tensor) and loss.requires_grad
        losses.append(loss.detach().clone() if isinstance(loss, Tensor) else f"a {type(loss).__name__}")
        if attached:
            return {"problem": "attached"}
    after = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return {"dense": cast(Value, after), "losses": losses, "pushes": pushes, "num_pulls": len(pulled)}


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


def keep_checkpoints(functions: Functions, inputs: Values) -> Values:
    """Save, break off and damage checkpoints as told, and load after each (checkpoints).

    Inputs: script, a list of {"op": "save" | "pull" | "write" | "rename", "version", "weight"}, {"op": "damage",
    "bytes"} (what the newest file of the folder keeps). With "pull" it is saved, and then the plug is pulled.
    """
    found: list[Value] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        newest: set[Path] = set()
        for step in cast(list[dict[str, Any]], inputs["script"]):
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
