"""Rows from many servers: the right rows, each key once, every server once, all at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import rpc

from labkit.checks import draws
from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.declared import Mistake, Result, declared
from labkit.checks.finding import Finding
from labkit.checks.par import Par, Score
from labkit.checks.structure import ANYTHING, WRONG_TYPE
from labkit.checks.values import listed, number, tensor, tensors
from labkit.checks.wire import Wire
from labkit.exercises.keys_rows_failures.sparse_rows.driver import NotingServer, drive
from labkit.servers.server import start_rpc
from labkit.words import times

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


_OF_A_PUSH = {"done": float, "keys": ANYTHING, "gradients": ANYTHING}


def structure(case: Case) -> list[Any]:
    """Return the oracle's structure, and when each call came; what was pushed is looked at in words."""
    (right,) = expected(case)
    calls = [
        [{**call, "seconds": float, **(_OF_A_PUSH if call["op"] == "push" else {})} for call in each]
        for each in listed(right, "calls")
    ]
    return [{**right, "returned": float, "calls": calls}]


def _said(case: Case, rank: int) -> str:
    return f"pull_rows for keys {tensor(case.inputs[0], 'keys').tolist()} gave {{got}}, expected {{wanted}}."


def _forms(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that a server was pushed something else than keys, and then gradients."""
    for call in (call for calls in _calls(got, "push") for call in calls):
        keys, gradients = call["keys"], call["gradients"]
        if not _is_vector(keys):
            first, second = (_form(each) for each in (keys, gradients))
            swapped = isinstance(gradients, Tensor) and gradients.dim() == 1 and not gradients.is_floating_point()
            yield Finding(
                "keys and gradients swapped" if swapped else "",
                f"A server's push was given {first} as its keys, and {second} as their gradients; expected a vector "
                "of whole numbers, and a row for each.",
            )


def _is_vector(keys: object) -> bool:
    return isinstance(keys, Tensor) and keys.dim() == 1 and not keys.is_floating_point()


def _form(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"{value!r:.40}"
    return f"{str(value.dtype).removeprefix('torch.')} numbers of shape {tuple(value.shape)}"


def _strangers(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that a server was called for a key that lives elsewhere."""
    home = tensor(case.inputs[0], "home")
    for op in ("pull", "push"):
        for server, calls in enumerate(_calls(got, op)):
            asked = [call["keys"] for call in calls if _is_vector(call["keys"])]
            for key in [int(key) for keys in asked for key in keys if home[key] != server][:1]:
                text = f"Server {server} got a {op} for key {key}, which lives on server {int(home[key])}."
                yield Finding("asks everybody for everything", text)


def _together(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that calls came one after the other, or that push_rows did not wait for the last."""
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


def _pushed(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that what was pushed is not the sum of each key's gradients, or is of another type."""
    keys, gradients, sums = (tensor(case.inputs[0], "keys"), tensor(case.inputs[0], "gradients"), _sums(case))
    total, single = torch.zeros_like(sums), True
    for calls in _calls(got, "push"):
        for call in calls:
            pushed, shape = call["gradients"], (len(call["keys"]), gradients.shape[1])
            if not isinstance(pushed, Tensor) or pushed.shape != shape:
                what = f"gradients of shape {tuple(pushed.shape)}" if isinstance(pushed, Tensor) else f"{pushed!r:.40}"
                yield Finding("gradients lost", f"A server was pushed {len(call['keys'])} keys with {what}.")
                return
            if pushed.dtype != gradients.dtype:
                text = f"A server was pushed gradients of {pushed.dtype}; they were given in {gradients.dtype}."
                yield Finding("sums in another type", text)
                return
            total.index_add_(0, call["keys"], call["gradients"])
            for key, gradient in zip(call["keys"], call["gradients"], strict=True):
                single = single and any(torch.allclose(gradient, each) for each in gradients[keys == key])
    apart = (total - sums).abs().amax(1) > 1e-9
    if apart.any():
        key = int(apart.nonzero()[0])
        count, came = int((keys == key).sum()), bool(total[key].any())
        yield Finding(
            "the mean of a key's gradients"
            if count > 1 and torch.allclose(total[key] * count, sums[key])
            else "one gradient in place of the sum"
            if single and came and count > 1
            else "gradients lost",
            f"Key {key} occurs {times(count)}; the gradients pushed for it add up to "
            f"{total[key][0].item():.6g} in the first place, expected {sums[key][0].item():.6g}.",
        )


def _calls_enough(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield calls that are more, or emptier, than they need be."""
    both = [(op, *each) for op in ("pull", "push") for each in enumerate(_calls(got, op))]
    for op, server, calls in both:
        if not all(len(call["keys"]) for call in calls):
            text = f"Server {server} got a {op} without any keys; it need not be called."
            yield Finding("servers called for nothing", text)
        if len(calls) > 1:
            text = f"Server {server} got {len(calls)} calls of {op}; one for all of its keys is enough."
            yield Finding("a call for every key", text)
        if calls and len(calls[0]["keys"].unique()) < len(calls[0]["keys"]):
            text = f"Server {server} got a {op} with some keys more than once: {calls[0]['keys'].tolist()}."
            yield Finding("keys sent more than once", text)


def _same(came: Tensor, wanted: Tensor) -> bool:
    return came.shape == wanted.shape and came.dtype == wanted.dtype and torch.allclose(came, wanted)


def _of_different(case: Case, rank: int) -> Tensor:
    return tensor(case.inputs[0], "table")[torch.unique(tensor(case.inputs[0], "keys"))]


def _by_server(case: Case, rank: int, *, once: bool = False) -> Tensor:
    """Return the rows of the keys, or of the different ones, server by server."""
    keys, home, table = (tensor(case.inputs[0], name) for name in ("keys", "home", "table"))
    some = torch.unique(keys) if once else keys
    return table[torch.cat([some[home[some] == server] for server in range(int(home.max()) + 1)])]


def _of_some_servers(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether all rows of some servers are right, and none of the others'."""
    came, right = got[0].get("rows") if isinstance(got, tuple) else None, _right_rows(case)
    if not isinstance(came, Tensor) or came.shape != right.shape or came.dtype != right.dtype:
        return False
    good = ((came - right).abs() <= 1e-9).all(1)
    home = tensor(case.inputs[0], "home")[tensor(case.inputs[0], "keys")]
    shares = {float(good[home == server].double().mean()) for server in home.unique()}  # type: ignore[no-untyped-call]
    return shares == {0.0, 1.0}


def _of_no_server(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a result of the right form has no row that any server holds."""
    came, right = got[0].get("rows") if isinstance(got, tuple) else None, _right_rows(case)
    if not isinstance(came, Tensor) or came.shape != right.shape or came.dtype != right.dtype:
        return False
    return not any(torch.allclose(row, held) for row in came for held in tensor(case.inputs[0], "table"))


_by_server_once = partial(_by_server, once=True)


def _by_server_spread(case: Case, rank: int) -> Tensor:
    where = torch.unique(tensor(case.inputs[0], "keys"), return_inverse=True)[1]
    return _by_server(case, rank, once=True)[where]


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
    score=Score(time_ns=4_884_059, bytes_sent=5_741_592, peak_bytes=2_281_906),
    cluster={"link": "ethernet_25g"},
)

EXERCISE = declared(
    id="sparse_rows",
    functions=("pull_rows", "push_rows"),
    driver=drive,
    oracle=expected,
    structure=structure,
    returned={"rows": "pull_rows"},
    looks=(_strangers, Result("rows", _said, same=_same), _forms, _pushed, _calls_enough, _together),
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
    mistakes=(
        Mistake("rows of the different keys only",
                "There is one row for each distinct key, but the caller wants one for each "
                "position in keys: rows[where].", {"rows": _of_different}),
        Mistake(WRONG_TYPE, "pull_rows must return the rows, a tensor with one row for each position in keys."),
        Mistake("rows in the order of the servers",
                "The rows are in the order in which the servers answered. Put each one where its key was requested.",
                {"rows": (_by_server, _by_server_once, _by_server_spread)}),
        Mistake("rows of some servers alone",
                "The rows of some servers are not in their places: put each server's answer there, within the loop, "
                "and return after it.", seen=_of_some_servers),
        Mistake("no row of any server",
                "No row of the result is one that a server holds: put each server's answer, as it came, where its "
                "keys were requested, rows[home == number] = answer.", seen=_of_no_server),
        Mistake("one gradient in place of the sum",
                "Only one gradient was pushed for a key that occurs several times: assignment keeps the last, "
                "index_add_ adds."),
        Mistake("the mean of a key's gradients",
                "A key that occurs several times was pushed the mean of its gradients: push their sum."),
        Mistake("keys sent more than once", "A key travels once: torch.unique before you send."),
        Mistake("servers called for nothing", "Some servers were called without any keys: leave those out."),
        Mistake("keys and gradients swapped", "push takes the keys first, and then their gradients."),
        Mistake("a call for every key", "One call for each server, with all of its keys: every call costs a latency."),
        Mistake("asks everybody for everything",
                "A server was asked for keys that live elsewhere: choose them by place(keys) == number.",
                says=("IndexError: On WorkerInfo",), certain=True),
        Mistake("one server after the other",
                "The next server is called only when the previous one has answered. Start all calls with rpc_async, "
                "then wait for the first."),
        Mistake("does not wait",
                "push_rows must return only when all servers have their gradients: start every call, then wait for "
                "all."),
        Mistake("sums in another type",
                "The sums must have the type of the gradients: gradients.new_zeros(...) in place of torch.zeros(...).",
                says=("same scalar type",), certain=True),
        Mistake("as many sums as positions",
                "A mask over the distinct keys meets rows of another number. There is one row and one sum for each "
                "distinct key, not for each position in keys: make room for len(distinct) of them.",
                says=("The shape of the mask",), certain=True),
        Mistake("rows in another type",
                "The rows keep the type in which the servers hold them: make room with first.new_empty(...), or with "
                "dtype=first.dtype.", says=("destination dtypes match",), certain=True),
        Mistake("gradients lost",
                "What arrives at the servers does not add up to the gradients that were given: each server is pushed "
                "all of its keys, with their sums."),
    ),
    par=PAR,
)  # fmt: skip
