"""replicated_server: a replica with a backup that answers when it is told to, a primary that dies on the way."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor
from torch.futures import Future

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.other_kind import kind_for
from labkit.checks.on_ranks.raised import raised
from labkit.checks.values import listed, tensor
from labkit.exercises.keys_rows_failures.on_ranks import ANSWER, BACKUPS_ANSWER
from labkit.exercises.remote_calls.calling import Blocked, call, on_virtual_ranks
from labkit.exercises.remote_calls.watched_server import Watch, WatchedLock
from labkit.servers.replicas import survive
from labkit.torch_port.futures import AnyFuture


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
            future.set_result(ANSWER - 1 + len(self.pushed))
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
    backup = kind_for(StandIn, inputs)() if inputs["with_backup"] else None
    server = functions["Replica"](tensor(inputs, "weight").clone(), 3, inputs["lr"], backup)
    watch = Watch(server, kind_for(WatchedLock, inputs), collections=True)
    pushes: list[Any] = []
    told: list[int] = []
    steps: list[Value] = []
    for number, step in enumerate(listed(inputs, "script")):
        if step["op"] == "push":
            arguments = (step["worker"], step["number"], step["gradient"].clone())
            try:
                with watch.calling("push"):
                    answer = call(lambda arguments=arguments: server.push(*arguments))  # type: ignore[misc]
            except Blocked:
                return {"problem": "blocked", "step": number}
            if not isinstance(answer, AnyFuture):
                return {"problem": "no future", "step": number, "form": type(answer).__name__}
            pushes.append(answer)
        elif backup is not None and step["of"] < len(backup.open):
            future = backup.open[step["of"]]
            if step["op"] == "answer":
                future.set_result(BACKUPS_ANSWER)
            else:
                future.set_exception(RuntimeError("the backup is gone"))
        news: list[Value] = []
        for place, future in enumerate(pushes):
            if place not in told and future.done():
                told.append(place)
                news.append({"push": place, "answer": _outcome(future)})
        version, weight = server.pull()
        steps.append({"answered": news, "version": version, "weight": weight})
    return {"steps": steps, "loose": list(watch.loose), "backup": [] if backup is None else backup.noted()}


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
    for behaviours in listed(inputs, "behaviours"):
        answer: Value
        replicas = [kind_for(StandIn, inputs)(each) for each in behaviours]
        try:
            place = functions["push_safely"](replicas, inputs["worker"], inputs["number"], inputs["gradient"])
            said, answer = "", place if isinstance(place, int) else f"a {type(place).__name__}"
        except NotImplementedError:
            raise
        except Exception as error:
            said, answer = raised(error), f"{type(error).__name__} raised"
        found.append({"answer": answer, "said": said, "pushed": [replica.noted() for replica in replicas]})
    return {"found": found}


def _let_die(functions: Functions, inputs: Values) -> Values:
    gradients = listed(inputs, "gradients")
    program = (functions["Replica"], functions["push_safely"], gradients, cast(float, inputs["dies_after_s"]))
    try:
        results = on_virtual_ranks(survive, *program, num_ranks=len(gradients) + 2)
    except RuntimeError as error:
        if isinstance(error, NotImplementedError):
            raise
        return {"problem": "died", "words": str(error)}
    version, weight = results[1]
    return {"version": version, "weight": weight, "acknowledged": results[2:]}
