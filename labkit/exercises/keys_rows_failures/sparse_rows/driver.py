"""What a rank runs of sparse_rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed import rpc

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.other_kind import named_for
from labkit.checks.values import tensor, tensors
from labkit.exercises.remote_calls.calling import on_virtual_ranks
from labkit.servers.server import start_rpc

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


def drive(functions: Functions, inputs: Values) -> Values:
    """Call pull_rows and push_rows against servers on virtual ranks (sparse_rows)."""
    num_servers = len(tensors(inputs, "held"))
    found: Values = on_virtual_ranks(
        _pull_and_push, functions, inputs, num_ranks=num_servers + 1, operator_ns=0, message_ns=20_000_000
    )[0]
    return found


def _pull_and_push(functions: Functions, inputs: Values) -> Values | None:
    rank, _world_size = start_rpc()
    found: dict[str, Value] | None = None
    if rank == 0:
        home, table = tensor(inputs, "home"), tensor(inputs, "table")
        held = tensors(inputs, "held")
        servers = [
            rpc.remote(f"rank{number + 1}", NotingServer, args=(keys, table[keys], 0.5 * (number == len(held) // 2)))
            for number, keys in enumerate(held)
        ]
        for server in servers:
            server.rpc_sync().noted()
        keys, gradients = tensor(inputs, "keys"), tensor(inputs, "gradients")
        place: Callable[[Tensor], Tensor] = named_for(lambda asked: home[asked], inputs)
        rows = functions["pull_rows"](servers, place, keys.clone())
        functions["push_rows"](servers, place, keys.clone(), gradients.clone())
        found = {"rows": rows if isinstance(rows, Tensor) else f"a {type(rows).__name__}"}
        found["returned"] = time.perf_counter()
        time.sleep(1.0)  # whatever is under way arrives
        found["calls"] = [server.rpc_sync().noted() for server in servers]
    rpc.shutdown()
    return found
