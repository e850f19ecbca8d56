"""Rows from many servers: the right rows, each key once, every server once, all at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import rpc

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import difference
from labkit.checks.judged import Mistake, judged
from labkit.checks.par import Par, Score
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.called_servers import join_rpc
from labkit.exercises.parameter_server.sparse_rows.driver import NotingServer, drive

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


def _given(case: Case, name: str) -> Tensor:
    return cast(Tensor, case.inputs[0][name])


def _different(keys: Tensor) -> Tensor:
    found: Tensor = torch.unique(keys)
    return found


def _right_rows(case: Case) -> Tensor:
    return _given(case, "table")[_given(case, "keys")]


def _sums(case: Case) -> Tensor:
    """Return the sum of the gradients of each key, for the whole table."""
    return torch.zeros_like(_given(case, "table")).index_add_(0, _given(case, "keys"), _given(case, "gradients"))


def expected(case: Case) -> list[Values]:
    """Return the rows, and what each server should be asked and told (the oracle)."""
    home, keys = _given(case, "home"), _different(_given(case, "keys"))
    calls: list[Value] = []
    for number in range(len(cast(list[Tensor], case.inputs[0]["held"]))):
        own = keys[home[keys] == number]
        asked: list[Value] = [{"op": "pull", "keys": own}, {"op": "push", "keys": own, "gradients": _sums(case)[own]}]
        calls.append(asked if len(own) else [])
    return [{"rows": _right_rows(case), "calls": calls}]


def structure(case: Case) -> list[Any]:
    """Return the oracle's structure, and when each call came."""
    (right,) = expected(case)
    calls = [
        [{**call, "seconds": float, **({"done": float} if call["op"] == "push" else {})} for call in each]
        for each in cast(Any, right["calls"])
    ]
    return [{**right, "returned": float, "calls": calls}]


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether the rows and sums are right, and the calls as few as they can be."""
    assert isinstance(got, tuple)
    allowed = torch.full(_right_rows(case).shape, 1e-9, dtype=torch.float64)
    wrong = difference(got[0]["rows"], _right_rows(case), allowed)
    if wrong is not None:
        return Verdict(
            False,
            f"pull_rows for keys {_given(case, 'keys').tolist()}: {wrong.got}, expected {wrong.expected}.",
            expected=wrong.expected,
            got=wrong.got,
        )
    problem = next(filter(None, (_pushed(case, got), _asked(case, got), _apart(case, got), _unwaited(got))), "")
    return Verdict(not problem, problem)


def _calls(got: Got, op: str) -> list[list[dict[str, Any]]]:
    assert isinstance(got, tuple)
    return [[call for call in calls if call["op"] == op] for calls in cast(list[list[dict[str, Any]]], got[0]["calls"])]


def _pushed(case: Case, got: Got) -> str:
    total = torch.zeros_like(_given(case, "table"))
    for calls in _calls(got, "push"):
        for call in calls:
            if call["keys"].shape[0] != call["gradients"].shape[0]:
                return f"A server was pushed {len(call['keys'])} keys with {len(call['gradients'])} gradients."
            total.index_add_(0, call["keys"], call["gradients"])
    apart = (total - _sums(case)).abs().amax(1) > 1e-9
    if not apart.any():
        return ""
    key = int(apart.nonzero()[0])
    times = int((_given(case, "keys") == key).sum())
    return (
        f"Key {key} occurs {times} times; the gradients pushed for it add up to {total[key][0].item():.6g} in the "
        f"first place, expected {_sums(case)[key][0].item():.6g}."
    )


def _asked(case: Case, got: Got) -> str:
    home = _given(case, "home")
    for op in ("pull", "push"):
        for number, calls in enumerate(_calls(got, op)):
            own = [call for call in calls if len(call["keys"])]
            strangers = [int(key) for call in calls for key in call["keys"] if home[key] != number]
            if strangers:
                there = int(home[strangers[0]])
                return f"Server {number} got a {op} for key {strangers[0]}, which lives on server {there}."
            if len(calls) > len(own):
                return f"Server {number} got a {op} without any keys; it need not be called."
            if len(calls) > 1:
                return f"Server {number} got {len(calls)} calls of {op}; one for all of its keys is enough."
            if calls and len(calls[0]["keys"].unique()) < len(calls[0]["keys"]):
                return f"Server {number} got a {op} with some keys more than once: {calls[0]['keys'].tolist()}."
    return ""


def _apart(case: Case, got: Got) -> str:
    for op in ("pull", "push"):
        times = sorted(call["seconds"] for calls in _calls(got, op) for call in calls)
        if times and times[-1] - times[0] > _TOGETHER_S:
            return (
                f"The calls of {op} came one after the other: the last {1e3 * (times[-1] - times[0]):.1f} ms of "
                "virtual time after the first."
            )
    return ""


def _unwaited(got: Got) -> str:
    assert isinstance(got, tuple)
    late = [call["done"] - got[0]["returned"] for calls in _calls(got, "push") for call in calls]
    if not late or max(late) <= 0:
        return ""
    return f"push_rows returned {1e3 * max(late):.0f} ms before the last server had its gradients."


def _says(words: str) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return isinstance(got, tuple) and words in judge(case, got, wire).message

    return seen


def _rows_are(make: Callable[[Case], Tensor]) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        rows = got[0].get("rows") if isinstance(got, tuple) else None
        made, right = make(case), _right_rows(case)
        if isinstance(rows, Tensor) and rows.shape == right.shape and torch.equal(rows, right):
            return False
        return isinstance(rows, Tensor) and rows.shape == made.shape and bool(torch.allclose(rows, made))

    return seen


def _by_server(case: Case) -> Tensor:
    keys, home = _given(case, "keys"), _given(case, "home")
    return _given(case, "table")[torch.cat([keys[home[keys] == number] for number in range(int(home.max()) + 1)])]


def _unique_by_server(case: Case) -> Tensor:
    keys, home = _different(_given(case, "keys")), _given(case, "home")
    return torch.cat([_given(case, "table")[keys[home[keys] == number]] for number in range(int(home.max()) + 1)])


def _wrong_inverse(case: Case) -> Tensor:
    return _unique_by_server(case)[torch.unique(_given(case, "keys"), return_inverse=True)[1]]


def _not_summed(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether for repeated keys one of the gradients was pushed in place of their sum."""
    if not isinstance(got, tuple) or "add up to" not in judge(case, got, wire).message:
        return False
    keys, gradients = _given(case, "keys"), _given(case, "gradients")
    for calls in _calls(got, "push"):
        for call in calls:
            for key, gradient in zip(call["keys"], call["gradients"], strict=True):
                if not any(torch.allclose(gradient, each) for each in gradients[keys == key]):
                    return False
    return True


# ---- par


def pull_and_push(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Pull and push rows of 64 numbers for 4,096 drawn keys, from four servers; for par."""
    rank, _ = join_rpc()
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
    score=Score(time_ns=4_884_055, bytes_sent=5_741_560, peak_bytes=2_281_906),
    cluster={"link": "ethernet_25g"},
)

EXERCISE = judged(
    id="sparse_rows",
    functions=("pull_rows", "push_rows"),
    driver=drive,
    oracle=expected,
    structure=structure,
    judge=judge,
    visible=(
        rows_case("one server, 6 keys asked for", 81, 1, 10, 6),
        rows_case("3 servers, 20 keys asked for, some several times", 82, 3, 12, 20),
        rows_case("4 servers, of which 2 have nothing to do", 83, 4, 9, 7, homes=[1, 3]),
        rows_case("2 servers, one key", 84, 2, 5, 1),
    ),
    distributed=False,
    hints=(
        "Write down the keys 7, 3, 7, 5 and two servers, odd and even halves. What goes over each line, and in which "
        "order must the rows be returned?",
        "torch.unique with return_inverse gives the different keys and the way back. home = place(different). For "
        "each server with any: rpc_async().pull(different[home == number]). Only when all are under way, wait. Fill a "
        "tensor of one row for each different key, and index it by the way back.",
        "rows[home == number] = answer for each server; return rows[where]. For the push: sums = "
        "gradients.new_zeros(len(different), D).index_add_(0, where, gradients), then "
        "one rpc_async().push for each server, then wait for all.",
    ),
    mistakes=(
        Mistake(
            "rows of the different keys only",
            "There is one row for each different key; asked for is one for each place in keys: rows[where].",
            _rows_are(lambda case: _given(case, "table")[_different(_given(case, "keys"))]),
        ),
        Mistake(
            "rows in the order of the servers",
            "The rows stand in the order in which the servers answered. Put each one where its key was asked for.",
            lambda case, got, wire: any(
                _rows_are(make)(case, got, wire) for make in (_by_server, _unique_by_server, _wrong_inverse)
            ),
        ),
        Mistake(
            "one gradient in place of the sum",
            "Of a key that occurs several times only one gradient was pushed: assignment keeps the last, "
            "index_add_ adds.",
            _not_summed,
        ),
        Mistake(
            "keys sent more than once",
            "A key travels once: torch.unique before you send.",
            _says("more than once"),
        ),
        Mistake(
            "servers called for nothing",
            "Some servers were called without any keys: leave those out.",
            _says("without any keys"),
        ),
        Mistake(
            "a call for every key",
            "One call for each server, with all of its keys: every call costs a latency.",
            _says("one for all"),
        ),
        Mistake(
            "asks everybody for everything",
            "A server was asked for keys that live elsewhere: choose them by place(keys) == number.",
            _says("which lives on server"),
        ),
        Mistake(
            "one server after the other",
            "The next server is called only when the one before has answered. Start all calls, rpc_async, and wait for "
            "the first one after that.",
            _says("one after the other"),
        ),
        Mistake(
            "does not wait",
            "push_rows returns when all servers have what is theirs: wait for every call, after all are under way.",
            _says("before the last server"),
        ),
        Mistake(
            "sums in another type",
            "The sums must have the type of the gradients: gradients.new_zeros(...) in place of torch.zeros(...).",
            lambda case, got, wire: isinstance(got, Failure) and "same scalar type" in got.message,
            certain=True,
        ),
        Mistake(
            "gradients lost",
            "What arrives at the servers does not add up to the gradients that were given.",
            _says("add up to"),
        ),
    ),
    par=PAR,
)
