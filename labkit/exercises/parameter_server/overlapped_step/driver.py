"""What a rank runs of overlapped_step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import rpc
from torch.futures import Future

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, listed, tensors
from labkit.exercises.remote_calls.calling import on_virtual_ranks
from labkit.servers.server import start_rpc

LR = 0.5


class Piece:
    """One piece of the weights: answers all workers when each has pushed its gradient, and notes when they did."""

    def __init__(self, weight: Tensor, num_workers: int) -> None:
        """Hold this piece."""
        self.weight, self.num_workers = weight.clone(), num_workers
        self.gradients: list[Tensor] = []
        self.came: list[tuple[int, float]] = []
        self.pulls = 0
        self.future: Any = Future()

    @rpc.functions.async_execution  # type: ignore[untyped-decorator]
    def push(self, worker: int, version: int, gradient: Tensor) -> Any:
        """Take in a gradient; the last one of all answers (version, weights)."""
        self.came.append((worker, time.perf_counter()))
        self.gradients.append(gradient)
        if len(self.gradients) == self.num_workers:
            self.weight -= LR * torch.stack(self.gradients).mean(0)
            self.future.set_result((version + 1, self.weight.clone()))
        return self.future

    def pull(self) -> tuple[int, Tensor]:
        """Return the version and the weights."""
        self.pulls += 1
        return 0, self.weight.clone()

    def noted(self) -> tuple[list[tuple[int, float]], int]:
        """Return when each worker pushed, and how often somebody pulled."""
        return self.came, self.pulls


def drive(functions: Functions, inputs: Values) -> Values:
    """Let one worker call overlapped_step beside others, on virtual ranks where a message is 20 ms under way."""
    num_ranks = integer(inputs, "num_servers") + len(listed(inputs, "gradients"))
    found: Values = on_virtual_ranks(
        _step, functions, inputs, num_ranks=num_ranks, operator_ns=0, message_ns=20_000_000
    )[0]
    return found


def _step(functions: Functions, inputs: Values) -> Values | None:
    """Return what came of the step on rank 0, which is the learner's worker; servers come next, then other workers."""
    rank, _world_size = start_rpc()
    found: Values | None = None
    if rank == 0:
        num_servers, mine = integer(inputs, "num_servers"), integer(inputs, "worker")
        gradients = listed(inputs, "gradients")
        pieces = [
            rpc.remote(f"rank{1 + number % num_servers}", Piece, args=(weight, len(gradients)))
            for number, weight in enumerate(tensors(inputs, "weights"))
        ]
        for piece in pieces:
            piece.rpc_sync().noted()
        others = [worker for worker in range(len(gradients)) if worker != mine]
        calls = [
            rpc.rpc_async(f"rank{num_servers + place}", _push_all, args=(pieces, worker, gradients[worker]))
            for place, worker in enumerate(others, 1)
        ]
        own = [each.clone() for each in gradients[mine]]
        weights: Any = functions["overlapped_step"](pieces, mine, 0, own)
        for call in calls:
            call.wait()
        noted = [piece.rpc_sync().noted() for piece in pieces]
        came: list[Value] = [[seconds for worker, seconds in each if worker == mine] for each, _ in noted]
        found = {"weights": _as_data(weights), "came": came, "pulls": sum(pulls for _, pulls in noted)}
    rpc.shutdown()
    return found


def _push_all(pieces: Sequence[Any], worker: int, gradients: Sequence[Tensor]) -> None:
    for push in [piece.rpc_async().push(worker, 0, each) for piece, each in zip(pieces, gradients, strict=True)]:
        push.wait()


def _as_data(weights: Any) -> Value:
    if not isinstance(weights, list | tuple):
        return f"a {type(weights).__name__}"
    return [each if isinstance(each, Tensor) else f"a {type(each).__name__}" for each in weights]
