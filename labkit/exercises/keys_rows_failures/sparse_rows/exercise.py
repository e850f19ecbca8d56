"""Rows from many servers: the right rows, each key once, every server once, all at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import rpc

from labkit.checks import draws
from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import difference
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.par import Par, Score
from labkit.checks.structure import WRONG_DTYPE
from labkit.checks.values import listed, number, tensor, tensors
from labkit.checks.wire import Wire
from labkit.exercises.keys_rows_failures.sparse_rows.driver import NotingServer, drive
from labkit.servers.server import start_rpc

_TOGETHER_S = 0.020
"""Calls of one pull that come within this of each other were under way together; a round trip takes longer."""


def rows_case(
    name: str, seed: int, num_servers: int, num_keys: int, num_asked: int, homes: Sequence[int] | None = None
) -> Case:
    """Return a case of sparse_rows: keys live anywhere, or on the servers that are named, asked for as drawn."""
    draw = draws.generator(seed)
    where = torch.tensor(homes if homes is not None else range(num_servers))
    home = where[torch.randint(0, len(where), (num_keys,), generator=draw)]
    held: list[Value] = [torch.where(home == number)[0] for number in range(num_servers)]
    inputs: dict[str, Value] = {
        "held": held,
        "home": home,
        "table": torch.randn(num_keys, 3, generator=draw, dtype=torch.float64),
        "keys": torch.randint(0, num_keys, (num_asked,), generator=draw),
        "gradients": torch.randn(num_asked, 3, generator=draw, dtype=torch.float64),
    }
    return Case(name, 1, (inputs,))


def _right_rows(case: Case) -> Tensor:
    return tensor(case.inputs[0], "table")[tensor(case.inputs[0], "keys")]


def _sums(case: Case) -> Tensor:
    """Return the sum of the gradients of each key, for the whole table."""
    return torch.zeros_like(tensor(case.inputs[0], "table")).index_add_(
        0, tensor(case.inputs[0], "keys"), tensor(case.inputs[0], "gradients")
    )


def expected(case: Case) -> list[Values]:
    """Return the rows, and what each server should be asked and told (the oracle)."""
    home, keys = tensor(case.inputs[0], "home"), torch.unique(tensor(case.inputs[0], "keys"))
    calls: list[Value] = []
    for server in range(len(tensors(case.inputs[0], "held"))):
        own = keys[home[keys] == server]
        asked: list[Value] = [{"op": "pull", "keys": own}, {"op": "push", "keys": own, "gradients": _sums(case)[own]}]
        calls.append(asked if len(own) else [])
    return [{"rows": _right_rows(case), "calls": calls}]


def structure(case: Case) -> list[Any]:
    """Return the oracle's structure, and when each call came."""
    (right,) = expected(case)
    calls = [
        [{**call, "seconds": float, **({"done": float} if call["op"] == "push" else {})} for call in each]
        for each in listed(right, "calls")
    ]
    return [{**right, "returned": float, "calls": calls}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield wrong rows, wrong sums, and calls that are more, later or emptier than they need be."""
    came, right = got[0]["rows"], _right_rows(case)
    wrong = difference(came, right, torch.full(right.shape, 1e-9, dtype=torch.float64))
    if wrong is not None:
        name = as_if(came, _ways(case), _same)
        asked = tensor(case.inputs[0], "keys").tolist()
        said = f"pull_rows for keys {asked} gave {wrong.got}, expected {wrong.expected}."
        yield Finding(name, said, wrong.expected, wrong.got)
    yield from _pushed(case, got)
    for op in ("pull", "push"):
        yield from _asked(case, got, op)
    for op in ("pull", "push"):
        times = sorted(call["seconds"] for calls in _calls(got, op) for call in calls)
        if times and times[-1] - times[0] > _TOGETHER_S:
            yield Finding(
                "one server after the other",
                f"The calls of {op} came one after the other: the last {1e3 * (times[-1] - times[0]):.1f} ms of "
                "virtual time after the first.",
            )
    late = [call["done"] - number(got[0], "returned") for calls in _calls(got, "push") for call in calls]
    if late and max(late) > 0:
        said = f"push_rows returned {1e3 * max(late):.0f} ms before the last server had its gradients."
        yield Finding("does not wait", said)


def _calls(got: tuple[Values, ...], op: str) -> list[list[dict[str, Any]]]:
    return [[call for call in calls if call["op"] == op] for calls in listed(got[0], "calls")]


def _pushed(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    keys, gradients, sums = (tensor(case.inputs[0], "keys"), tensor(case.inputs[0], "gradients"), _sums(case))
    total, single = torch.zeros_like(sums), True
    for calls in _calls(got, "push"):
        for call in calls:
            if call["keys"].shape[0] != call["gradients"].shape[0]:
                said = f"A server was pushed {len(call['keys'])} keys with {len(call['gradients'])} gradients."
                yield Finding("gradients lost", said)
                return
            total.index_add_(0, call["keys"], call["gradients"])
            for key, gradient in zip(call["keys"], call["gradients"], strict=True):
                single = single and any(torch.allclose(gradient, each) for each in gradients[keys == key])
    apart = (total - sums).abs().amax(1) > 1e-9
    if apart.any():
        key = int(apart.nonzero()[0])
        yield Finding(
            "one gradient in place of the sum" if single else "gradients lost",
            f"Key {key} occurs {int((keys == key).sum())} times; the gradients pushed for it add up to "
            f"{total[key][0].item():.6g} in the first place, expected {sums[key][0].item():.6g}.",
        )


def _asked(case: Case, got: tuple[Values, ...], op: str) -> Iterator[Finding]:
    home = tensor(case.inputs[0], "home")
    for server, calls in enumerate(_calls(got, op)):
        strangers = [int(key) for call in calls for key in call["keys"] if home[key] != server]
        if strangers:
            said = f"Server {server} got a {op} for key {strangers[0]}, which lives on server "
            f"{int(home[strangers[0]])}."
            yield Finding("asks everybody for everything", said)
        if not all(len(call["keys"]) for call in calls):
            said = f"Server {server} got a {op} without any keys; it need not be called."
            yield Finding("servers called for nothing", said)
        if len(calls) > 1:
            said = f"Server {server} got {len(calls)} calls of {op}; one for all of its keys is enough."
            yield Finding("a call for every key", said)
        if calls and len(calls[0]["keys"].unique()) < len(calls[0]["keys"]):
            said = f"Server {server} got a {op} with some keys more than once: {calls[0]['keys'].tolist()}."
            yield Finding("keys sent more than once", said)


def _same(came: Value, made: Value) -> bool:
    return (
        isinstance(came, Tensor)
        and isinstance(made, Tensor)
        and came.shape == made.shape
        and torch.allclose(came, made)
    )


def _ways(case: Case) -> list[tuple[str, Callable[[], Value]]]:
    """Return what pull_rows gives with a mistake in it, by the mistake's name."""
    keys, home, table = (tensor(case.inputs[0], name) for name in ("keys", "home", "table"))
    different, where = torch.unique(keys, return_inverse=True)

    def by_server(some: Tensor) -> Tensor:
        return table[torch.cat([some[home[some] == server] for server in range(int(home.max()) + 1)])]

    name = "rows in the order of the servers"
    return [
        ("rows of the different keys only", lambda: table[different]),
        (name, lambda: by_server(keys)),
        (name, lambda: by_server(different)),
        (name, lambda: by_server(different)[where]),
    ]


# ---- par


def pull_and_push(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Pull and push rows of 64 numbers for 4,096 drawn keys, from four servers; for par."""
    rank, _ = start_rpc()
    if rank == 0:
        share = 1 / torch.arange(1, 20_001, dtype=torch.float64)
        keys = torch.multinomial(share, 4096, replacement=True, generator=torch.Generator().manual_seed(4))
        servers = [
            rpc.remote(f"rank{n + 1}", NotingServer, args=(torch.arange(n, 20_000, 4), torch.zeros(5_000, 64)))
            for n in range(4)
        ]
        for server in servers:
            server.rpc_sync().noted()
        rows = functions["pull_rows"](servers, lambda asked: asked % 4, keys)
        functions["push_rows"](servers, lambda asked: asked % 4, keys, rows)
    rpc.shutdown()


PAR = Par(
    what="pulling and pushing 4,096 popular keys, 64 numbers each, with 4 servers",
    where="5 x H100, 25 Gbit/s Ethernet",
    program=pull_and_push,
    world_size=5,
    score=Score(time_ns=4_884_059, bytes_sent=5_741_568, peak_bytes=2_281_906),
    cluster={"link": "ethernet_25g"},
)

EXERCISE = Exercise(
    id="sparse_rows",
    functions=("pull_rows", "push_rows"),
    driver=drive,
    oracle=expected,
    structure=structure,
    find=find,
    visible=(
        rows_case("one server, 6 keys asked for", 81, 1, 10, 6),
        rows_case("3 servers, 20 keys asked for, some several times", 82, 3, 12, 20),
        rows_case("4 servers, of which 2 have nothing to do", 83, 4, 9, 7, homes=[1, 3]),
        rows_case("2 servers, one key", 84, 2, 5, 1),
    ),
    distributed=False,
    hints=(
        "Write down the keys 7, 3, 7, 5 and two servers, odd and even halves. What goes over each link, and in which "
        "order must the rows be returned?",
        "torch.unique with return_inverse gives the different keys and the way back. home = place(different). For "
        "each server with any: rpc_async().pull(different[home == number]). Only when all are under way, wait. Fill a "
        "tensor of one row for each different key, and index it by the way back.",
        "rows[home == number] = answer for each server; return rows[where]. For the push: sums = "
        "gradients.new_zeros(len(different), D).index_add_(0, where, gradients), then "
        "one rpc_async().push for each server, then wait for all.",
    ),
    mistakes={
        "rows of the different keys only": (
            "There is one row for each distinct key, but the caller wants one for each position in keys: rows[where]."
        ),
        "rows in the order of the servers": (
            "The rows are in the order in which the servers answered. Put each one where its key was requested."
        ),
        "one gradient in place of the sum": (
            "Only one gradient was pushed for a key that occurs several times: assignment keeps the last, index_add_ "
            "adds."
        ),
        "keys sent more than once": "A key travels once: torch.unique before you send.",
        "servers called for nothing": "Some servers were called without any keys: leave those out.",
        "a call for every key": "One call for each server, with all of its keys: every call costs a latency.",
        "asks everybody for everything": "A server was asked for keys that live elsewhere: choose them by place(keys) "
        "== number.",
        "one server after the other": (
            "The next server is called only when the previous one has answered. Start all calls with rpc_async, then "
            "wait for the first."
        ),
        "does not wait": (
            "push_rows must return only when all servers have their gradients: start every call, then wait for all."
        ),
        "sums in another type": "The sums must have the type of the gradients: gradients.new_zeros(...) in place of "
        "torch.zeros(...).",
        "gradients lost": "What arrives at the servers does not add up to the gradients that were given.",
        WRONG_DTYPE: "Rows and sums keep the type they have: answer.new_empty(...), gradients.new_zeros(...).",
    },
    blame=lambda case, failure, wire: iter(("sums in another type",) if "same scalar type" in failure.message else ()),
    certain=frozenset({"sums in another type"}),
    par=PAR,
)
