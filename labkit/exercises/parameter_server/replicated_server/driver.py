"""replicated_server: a replica with a backup that answers when it is told to, a primary that dies on the way."""

from __future__ import annotations

import os
import time
from typing import Any, cast

from torch import Tensor
from torch.distributed import rpc
from torch.futures import Future

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.parameter_server.called_servers import Blocked, call, join_rpc, on_virtual_ranks
from labkit.torch_port.futures import AnyFuture

_held: dict[str, Any] = {}
"""Rank -> the learner's replica on it; virtual ranks share this module."""
_done: list[int] = []


class StandIn:
    """A replica elsewhere that notes what is pushed, and answers or fails when it is told to."""

    def __init__(self, behaviour: str = "wait") -> None:
        """Answer at once ("answer"), fail at once ("fail", or "raise" where the call itself raises), or "wait"."""
        self.behaviour = behaviour
        self.pushed: list[tuple[int, int, Tensor]] = []
        self.open: list[Future[int]] = []

    def push(self, worker: int, number: int, gradient: Tensor) -> Future[int]:
        """Note a gradient; return a future of the answer."""
        self.pushed.append((worker, number, gradient.detach().clone()))
        future: Any = Future()
        if self.behaviour == "raise":
            raise RuntimeError("rank0 could not be reached: it has shut RPC down")
        if self.behaviour == "fail":
            future.set_exception(RuntimeError("rank0 could not be reached: eof"))
        elif self.behaviour == "answer":
            future.set_result(len(self.pushed))
        else:
            self.open.append(future)
        answer: Future[int] = future
        return answer

    def noted(self) -> Value:
        """Return what was pushed."""
        return [{"worker": worker, "number": number, "gradient": gradient} for worker, number, gradient in self.pushed]


def drive(functions: Functions, inputs: Values) -> Values:
    """Drive a Replica as told, or push_safely against stand-ins, or let a primary die (replicated_server)."""
    if "dies_after_s" in inputs:
        return _let_die(functions, inputs)
    if "behaviours" in inputs:
        return _push_safely(functions, inputs)
    return _drive(functions, inputs)


def _drive(functions: Functions, inputs: Values) -> Values:
    backup = StandIn() if inputs["with_backup"] else None
    server = functions["Replica"](cast(Tensor, inputs["weight"]).clone(), 3, inputs["lr"], backup)
    pushes: list[Any] = []
    told: list[int] = []
    steps: list[Value] = []
    for number, step in enumerate(cast(list[dict[str, Any]], inputs["script"])):
        if step["op"] == "push":
            arguments = (step["worker"], step["number"], step["gradient"].clone())
            try:
                answer = call(lambda arguments=arguments: server.push(*arguments))  # type: ignore[misc]
            except Blocked:
                return {"problem": "blocked", "step": number}
            if not isinstance(answer, AnyFuture):
                return {"problem": "no future", "step": number, "form": type(answer).__name__}
            pushes.append(answer)
        elif backup is not None and step["of"] < len(backup.open):
            future = backup.open[step["of"]]
            if step["op"] == "answer":
                future.set_result(99)
            else:
                future.set_exception(RuntimeError("the backup is gone"))
        news: list[Value] = []
        for place, future in enumerate(pushes):
            if place not in told and future.done():
                told.append(place)
                news.append({"push": place, "answer": _outcome(future)})
        version, weight = server.pull()
        steps.append({"answered": news, "version": version, "weight": weight})
    return {"steps": steps, "backup": [] if backup is None else backup.noted()}


def _outcome(future: Future[Any]) -> Value:
    try:
        value = future.wait()
    except Exception as error:
        return f"{type(error).__name__} raised"
    if isinstance(value, Exception):
        return f"{type(value).__name__} as a value"
    return value if isinstance(value, int) else f"a {type(value).__name__}"


def _push_safely(functions: Functions, inputs: Values) -> Values:
    found: list[Value] = []
    for behaviours in cast(list[list[str]], inputs["behaviours"]):
        replicas = [StandIn(each) for each in behaviours]
        try:
            place = functions["push_safely"](replicas, inputs["worker"], inputs["number"], inputs["gradient"])
            answer: Value = place if isinstance(place, int) else f"a {type(place).__name__}"
        except NotImplementedError:
            raise
        except Exception as error:
            answer = f"{type(error).__name__} raised"
        found.append({"answer": answer, "pushed": [replica.noted() for replica in replicas]})
    return {"found": found}


# ---- a primary that dies


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def push_there(worker: int, number: int, gradient: Tensor) -> Any:
    """Push to the replica that this rank holds."""
    return _held[os.environ["RANK"]].push(worker, number, gradient)


def say_done(worker: int) -> None:
    """Note on the backup's rank that a worker has pushed all."""
    _done.append(worker)


class There:
    """The replica of a rank."""

    def __init__(self, name: str) -> None:
        """Call it by this name."""
        self.name = name

    def push(self, worker: int, number: int, gradient: Tensor) -> Future[int]:
        """Push there."""
        future: Future[int] = rpc.rpc_async(self.name, push_there, args=(worker, number, gradient))
        return future


def _let_die(functions: Functions, inputs: Values) -> Values:
    _held.clear()
    _done.clear()
    num_workers = len(cast(list[Any], inputs["gradients"]))
    try:
        results = on_virtual_ranks(_live_and_die, functions, inputs, num_ranks=num_workers + 2)
    except RuntimeError as error:
        if isinstance(error, NotImplementedError):
            raise
        return {"problem": "died", "words": str(error)}
    version, weight = results[1]
    return {"version": version, "weight": weight, "acknowledged": results[2:]}


def _live_and_die(functions: Functions, inputs: Values) -> Any:
    rank, gradients = os.environ["RANK"], cast(list[list[Tensor]], inputs["gradients"])
    start = (cast(Tensor, inputs["weight"]), len(gradients), inputs["lr"])
    if rank == "0":
        _held["0"] = functions["Replica"](*start, There("rank1"))
    elif rank == "1":
        _held["1"] = functions["Replica"](*start)
    number, _ = join_rpc()
    found: Any = None
    if number == 0:
        time.sleep(cast(float, inputs["dies_after_s"]))
    elif number == 1:
        while len(_done) < len(gradients):
            time.sleep(0.01)
        found = _held["1"].pull()
    else:
        replicas, found = [There("rank0"), There("rank1")], [0, 0]
        for place, gradient in enumerate(gradients[number - 2]):
            time.sleep(0.002)
            found[functions["push_safely"](replicas, number - 2, place, gradient)] += 1
        rpc.rpc_sync("rank1", say_done, args=(number - 2,))
    rpc.shutdown(graceful=False)
    return found
