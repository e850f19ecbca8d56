"""Drivers of lesson 06 that call a learner's server: step by step as an object, and by a crowd over RPC.

Hidden cases run where ranks have no network, so torch's own RPC cannot: a server's methods are called as RPC would call
them, or the whole program runs on virtual ranks inside the one rank of the case, over labkit's RPC in virtual time.
Neither can be cheated by timing: points rest on the weights and versions that come back, and only the trusted side
knows what they must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import rpc

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.other_kind import kind_for
from labkit.checks.values import integer, integers, listed, tensor, text
from labkit.exercises.remote_calls.calling import Blocked, call, on_virtual_ranks
from labkit.exercises.remote_calls.watched_server import Watch, WatchedLock
from labkit.servers.server import start_rpc
from labkit.torch_port.futures import AnyFuture
from labkit.torch_port.rpc import ASYNC_MARK


def make_server(functions: Functions, inputs: Values) -> Any:
    """Return the learner's server. Inputs: server (its name), weight, num_workers, lr, more (further arguments)."""
    weight, more = tensor(inputs, "weight"), integers(inputs, "more")
    return functions[text(inputs, "server")](weight.clone(), inputs["num_workers"], inputs["lr"], *more)


def answer_in_words(answer: Any) -> str:
    """Return "" for (version, weights), else what it is."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return f"a {type(answer).__name__}"
    if isinstance(answer[0], bool) or not isinstance(answer[0], int) or not isinstance(answer[1], Tensor):
        return f"({type(answer[0]).__name__}, {type(answer[1]).__name__})"
    return ""


def updates_of(server: Any) -> Value:
    """Return the server's record as lists of numbers; what is no Update of numbers as words."""
    names = ("sequence", "worker", "version_read", "version_applied")
    return [
        [getattr(each, name) for name in names]
        if all(isinstance(getattr(each, name, None), int) for name in names)
        else f"{each!r:.60}"
        for each in server.updates
    ]


def drive_server(functions: Functions, inputs: Values) -> Values:
    """Call a server's methods one after the other, and note after each which pushes have been answered and how.

    Inputs: as make_server, and either crowd, for each worker its gradients, and until, the version at which workers
    stop; or script, a list of {"op": "push", "worker", "version", "gradient"}, {"op": "leave", "worker"} or
    {"op": "pull"}.
    """
    server = make_server(functions, inputs)
    if inputs.get("crowd"):
        return _crowd(functions, inputs)
    script = listed(inputs, "script")
    open_pushes: dict[int, Any] = {}
    kept: list[tuple[Tensor, Tensor]] = []
    steps: list[Value] = []
    watch = Watch(server, kind_for(WatchedLock, inputs))
    for number, step in enumerate(script):
        try:
            with watch.calling(step["op"]):
                answer = call(lambda step=step: _do(server, step))  # type: ignore[misc]
        except Blocked:
            return {"problem": "blocked", "step": number}
        if step["op"] == "pull":
            open_pushes[number] = answer
        if step["op"] == "push":
            problem = _promised(server, answer)
            if problem:
                return {"problem": problem, "step": number}
            open_pushes[number] = answer
        answered: list[Value] = []
        for push, future in list(open_pushes.items()):
            if isinstance(future, AnyFuture) and not future.done():
                continue
            value = future.wait() if isinstance(future, AnyFuture) else future
            del open_pushes[push]
            wrong = answer_in_words(value)
            if wrong:
                return {"problem": "form", "step": push, "form": wrong}
            kept.append((value[1], value[1].detach().clone()))
            answered.append({"push": push, "version": value[0], "weight": kept[-1][1]})
        steps.append(answered)
    changed = any(not torch.equal(now, then) for now, then in kept)
    version, weight = call(server.pull)
    end = {"version": version, "weight": weight, "updates": updates_of(server)}
    return {"steps": steps, "changed": changed, "loose": list(watch.loose), **end}


def _do(server: Any, step: dict[str, Any]) -> Any:
    if step["op"] == "leave":
        return server.leave(step["worker"])
    if step["op"] == "pull":
        return server.pull()
    return server.push(step["worker"], step["version"], step["gradient"].clone())


def _promised(server: Any, answer: Any) -> str:
    marked = hasattr(type(server).push, ASYNC_MARK)
    if isinstance(answer, AnyFuture):
        return "" if marked else "unmarked"
    return "no future" if marked else ""


def _crowd(functions: Functions, inputs: Values) -> Values:
    try:
        found = on_virtual_ranks(_push_together, functions, inputs, num_ranks=integer(inputs, "num_workers") + 1)[0]
    except RuntimeError as error:
        if isinstance(error, NotImplementedError):
            raise
        return {"problem": "crowd", "words": str(error)}
    return cast(Values, found)


def _push_together(functions: Functions, inputs: Values) -> Values | None:
    """Let all workers push at the same time, some times; return, on rank 0, all answers and the server's state."""
    rank, world_size = start_rpc()
    found: Values | None = None
    if rank == 0:
        server = rpc.RRef(make_server(functions, inputs))
        crowd = listed(inputs, "crowd")
        calls = [
            rpc.rpc_async(f"rank{peer}", _push_all, args=(server, peer - 1, crowd[peer - 1], inputs["until"]))
            for peer in range(1, world_size)
        ]
        answers = [call.wait() for call in calls]
        own = server.local_value()
        version, weight = own.pull()
        found = {"answers": answers, "version": version, "weight": weight, "updates": updates_of(own)}
    rpc.shutdown()
    return found


def _push_all(server: Any, worker: int, gradients: Sequence[Tensor], until: int) -> list[Value]:
    answers: list[Value] = []
    version = 0
    for gradient in gradients:
        if version >= until:
            break
        answer = server.rpc_sync().push(worker, version, gradient)
        if answer_in_words(answer):
            raise TypeError(f"the answer to a push is {answer_in_words(answer)}, not (version, weights)")
        answers.append({"read": version, "version": answer[0], "weight": answer[1]})
        version = answer[0]
    server.rpc_sync().leave(worker)
    return answers
