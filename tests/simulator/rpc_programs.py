"""Programs over torch.distributed.rpc, run by real processes and by virtual ranks; results do not hang on timing."""

from __future__ import annotations

import os
import threading
from queue import Queue
from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.rpc import RRef, rpc_async, rpc_sync
from torch.futures import Future, collect_all

server: Any = None


def _enter(num_threads: int = 16) -> tuple[int, int]:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=num_threads,
        init_method=f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
    )
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        options.init_method = "env://"
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    return rank, size


class SyncServer:
    """Averages the gradients of all trainers, then lets all of them go on."""

    def __init__(self, num_trainers: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.lock, self.future = threading.Lock(), torch.futures.Future()
        self.num_trainers, self.seen = num_trainers, 0

    def parameters(self) -> list[torch.Tensor]:
        return [parameter.detach() for parameter in self.model.parameters()]

    @staticmethod
    @rpc.functions.async_execution
    def push(rref: Any, gradients: list[torch.Tensor]) -> Any:
        self = rref.local_value()
        with self.lock:
            for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
            self.seen += 1
            future = self.future
            if self.seen == self.num_trainers:
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.seen, self.future = 0, torch.futures.Future()
                future.set_result(self.parameters())
        return future


def train(rref: Any, rank: int) -> float:
    model = nn.Linear(3, 2)
    values = rref.rpc_sync().parameters()
    for _ in range(3):
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.data.copy_(value)
        model.zero_grad()
        loss = model(torch.full((2, 3), float(rank))).sum()
        loss.backward()
        values = rpc.rpc_sync(rref.owner(), SyncServer.push, args=(rref, [p.grad for p in model.parameters()]))
    return float(sum(value.double().sum() for value in values))


def synchronous_server() -> list[float]:
    rank, size = _enter()
    totals: list[float] = []
    if rank == 0:
        rref = rpc.RRef(SyncServer(size - 1))
        futures = [rpc.rpc_async(f"worker{peer}", train, args=(rref, peer)) for peer in range(1, size)]
        totals = torch.futures.wait_all(futures)
    rpc.shutdown()
    return totals


class Counter:
    """Counts under a lock."""

    def __init__(self, first: int = 0) -> None:
        self.lock = threading.Lock()
        self.value, self.calls = torch.tensor([float(first)]), 0

    def add(self, what: torch.Tensor) -> int:
        with self.lock:
            self.value += what
            self.calls += 1
            return self.calls

    def total(self, *, times: int = 1) -> tuple[int, float]:
        return self.calls, float(self.value) * times


def serve() -> None:
    global server
    server = Counter()


def push(what: torch.Tensor) -> torch.Tensor:
    server.add(what)
    return server.value


def asynchronous_server() -> Any:
    """Return how many answers each worker got, and what the server holds after all have hammered it."""
    rank, _ = _enter(num_threads=3)
    if rank == 0:
        serve()
    while not rpc_sync("worker0", is_serving):  # a worker may come before the server is ready
        pass
    calls = range(20 if rank else 0)
    futures = [rpc_async("worker0", push, (torch.full((1,), float(rank + number)),)) for number in calls]
    seen = [float(future.wait()) for future in futures]
    rpc.shutdown()
    return len(seen), server.total() if rank == 0 else None


def is_serving() -> bool:
    return server is not None


def remote_objects() -> Any:
    rank, size = _enter()
    found: Any = None
    if rank == 0:
        counters = [rpc.remote(f"worker{peer}", Counter, args=(peer,)) for peer in range(size)]
        sums = [counter.rpc_sync().add(torch.ones(1)) for counter in counters]
        later = [counter.rpc_async().add(torch.ones(1)) for counter in counters]
        totals = [future.wait() for future in later]
        doubled = [counter.remote().total(times=2) for counter in counters]
        found = (
            sums, totals, [one.to_here()[0] for one in doubled], [one.rpc_sync().total(times=2) for one in counters],
            [(one.owner_name(), one.is_owner(), one.owner().id, one.confirmed_by_owner()) for one in counters],
            counters[0].local_value().total(), rpc.rpc_sync("worker1", total_of, (counters[0],)),
            rpc.remote("worker1", torch.add, (torch.ones(2), 1)).to_here(),
        )  # fmt: skip
    rpc.shutdown()
    return found


def total_of(counter: Any) -> Any:
    return counter.is_owner(), counter.owner_name(), counter.rpc_sync().total()


class TwoWords(Exception):
    """Cannot be made of one text."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


ERRORS = {
    error.__name__: error for error in (ValueError, TypeError, KeyError, RuntimeError, IndexError, AssertionError)
}


def fail(name: str) -> None:
    if name == "TwoWords":
        raise TwoWords("one", "two")
    raise ERRORS[name](f"on purpose: {name}")


class Fragile:
    """Cannot be made."""

    def __init__(self) -> None:
        raise LookupError("cannot be made")


@rpc.functions.async_execution
def no_future() -> int:
    return 3


@rpc.functions.async_execution
def fails_later() -> Any:
    return rpc_async("worker0", fail, ("ValueError",)).then(lambda future: future.value())


@rpc.functions.async_execution
def fails_in_future() -> Any:
    future: Any = Future()
    future.set_exception(ValueError("on purpose"))
    return future


def _told(do: Any) -> tuple[str, list[str]]:
    try:
        result = do()
    except Exception as error:
        words = ("on purpose", "cannot be made", "Failed to create", "must return", "could not find", "local object",
                 "On WorkerInfo(id=1, name=worker1)", "Traceback", "rpc_programs.py", "cannot pickle")  # fmt: skip
        return type(error).__name__, [word for word in words if word in str(error)]
    return type(result).__name__, []


def exceptions() -> Any:
    rank, _ = _enter()
    found: Any = None
    if rank == 0:
        lock = threading.Lock()
        found = {name: _told(lambda name=name: rpc_sync("worker1", fail, (name,))) for name in (*ERRORS, "TwoWords")}
        found["async"] = _told(lambda: rpc_async("worker1", fail, ("ValueError",)).wait())
        found["made"] = _told(lambda: rpc.remote("worker1", Fragile).to_here())
        found["method"] = _told(lambda: rpc.remote("worker1", Counter).rpc_sync().no_such_method())
        found["no future"] = _told(lambda: rpc_sync("worker1", no_future))
        found["later"] = _told(lambda: rpc_sync("worker1", fails_later))
        found["in future"] = _told(lambda: rpc_sync("worker1", fails_in_future))
        found["nobody"] = _told(lambda: rpc_sync("nobody", fail))
        found["lambda"] = _told(lambda: rpc_sync("worker1", lambda: 1))
        found["lock"] = _told(lambda: rpc_sync("worker1", push, (lock,)))
        found["not a call"] = _told(lambda: rpc_sync("worker1", 3))
        found["initialised twice"] = _told(lambda: rpc.init_rpc("worker0", rank=0, world_size=2))
    rpc.shutdown()
    after = _told(lambda: rpc_sync("worker1", fail, ("ValueError",)))
    return found, after


def walk(path: list[int], value: torch.Tensor) -> tuple[list[str], torch.Tensor]:
    me = rpc.get_worker_info().name
    if not path:
        return [me], value
    names, value = rpc_sync(path[0], walk, (path[1:], value * 2 + path[0]))
    return [me, *names], value + 1


def nested_calls() -> Any:
    rank, size = _enter()
    found = walk([(rank + step) % size for step in (1, 2, 0, 1, 2)], torch.ones(2) * rank)
    rpc.shutdown()
    return found


def echo(value: Any) -> Any:
    return value


def mutate(value: torch.Tensor) -> float:
    value.add_(1)
    return float(value.sum())


def values() -> Any:
    """Return how values come back: shared tensors, gradients, parameters, modules, own objects, builtins."""
    rank, _ = _enter()
    found: Any = None
    if rank == 0:
        one, leaf = torch.zeros(2), torch.ones(2, requires_grad=True)
        twice = rpc_sync("worker1", echo, ([one, one],))
        back = rpc_sync("worker1", echo, (leaf * 2,))
        parameter = rpc_sync("worker1", echo, (nn.Parameter(torch.ones(2)),))
        layer = rpc_sync("worker1", echo, (nn.Linear(2, 1),))
        found = (
            rpc_sync("worker1", mutate, (one,)), rpc_sync("worker0", mutate, (one,)), one, twice[0] is twice[1],
            back.requires_grad, back.is_leaf, type(parameter).__name__, parameter.requires_grad, type(layer).__name__,
            rpc_sync("worker1", torch.add, (torch.ones(2), 1)), rpc_sync("worker1", min, (3, 2)),
            rpc_sync("worker1", echo, kwargs={"value": (1, "two", {"three": torch.arange(3)[1:]})}),
            isinstance(rpc_sync("worker1", echo, (TwoWords("a", "b").args,)), tuple), RRef(one).to_here() is one,
            rpc_sync(rpc.get_worker_info("worker1"), echo, (torch.ones(3, 4).t(),)).shape,
        )  # fmt: skip
    rpc.shutdown()
    return found


def futures() -> Any:
    rank, size = _enter()
    calls = [rpc_async(peer, echo, (10 * rank + peer,)) for peer in range(size)]
    added = [call.then(lambda future: future.wait() + 1).then(lambda future: future.value() * 2) for call in calls]
    together = collect_all(calls).then(lambda future: sum(one.value() for one in future.value()))
    mine: Any = Future()
    heard: list[int] = []
    mine.add_done_callback(lambda future: heard.append(future.value()))
    thread = threading.Thread(target=lambda: mine.set_result(rank))
    thread.start()
    found = [future.wait() for future in added], together.wait(), mine.wait(), _told(_failing_chain)
    thread.join()
    rpc.shutdown()
    return found, heard, mine.done()


def _failing_chain() -> None:
    future: Any = Future()
    then = future.then(lambda one: 1 / one.value())
    future.set_result(0)
    then.wait()


def threads_and_queues() -> Any:
    """Return what threads of one rank made of a queue, without RPC."""
    todo: Queue[int | None] = Queue()
    done: Queue[tuple[int, float]] = Queue()

    def work() -> None:
        while (item := todo.get()) is not None:
            done.put((item, float(torch.full((item + 1,), 2.0).sum())))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for item in range(12):
        todo.put(item)
    for _ in workers:
        todo.put(None)
    for worker in workers:
        worker.join()
    grad = []
    with torch.no_grad():
        asks = threading.Thread(target=lambda: grad.append(torch.is_grad_enabled()))
        asks.start()
        asks.join()
    return sorted(done.get() for _ in range(12)), grad, [worker.is_alive() for worker in workers]


PROGRAMS = {
    program.__name__: program
    for program in (
        synchronous_server, asynchronous_server, remote_objects, exceptions, nested_calls, values, futures,
        threads_and_queues,
    )
}  # fmt: skip
