"""Replicas in threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch

from labkit.checks import draws
from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import Each, OneOf, in_words
from labkit.checks.tensor_values import close
from labkit.checks.values import listed, tensors
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.parallel_apply.driver import drive
from labkit.words import are_wrong, ranks_in_words


def threads_case(
    name: str,
    seed: int,
    count: int,
    *,
    scale: float | None = None,
    gradients: bool = True,
    failing: Mapping[int, str] | None = None,
    opposite: bool = False,
    one_function: bool = False,
    in_order: bool = False,
) -> Case:
    """Return a case of parallel_apply; with `opposite` outputs need what another rank gives when all have begun.

    With `one_function` all replicas are one plain function; with `in_order` those that fail do so in their order.
    """
    generator = draws.generator(seed, *(("rank", 0) if opposite else ()))
    given: dict[str, Value] = {
        "weights": torch.randint(1, 9, (count,), generator=generator).double().tolist(),
        "x": [torch.randn(2, generator=generator, dtype=torch.float64) for _ in range(count)],
        "scale": scale,
        "gradients": gradients,
        "failing": {str(number): kind for number, kind in (failing or {}).items()},
        **({"one_function": True} if one_function else {}),
        **({"in_order": True} if in_order else {}),
    }
    if not opposite:
        return Case(name, 1, (given,))
    draw = draws.generator(seed, "rank", 1)
    begun, ended = (torch.rand(count, generator=draw, dtype=torch.float64).tolist() for _ in range(2))
    return Case(name, 2, ({**given, "opposite": True}, {"begun": begun, "ended": ended}))


def _failing(case: Case) -> dict[int, str]:
    return {int(number): kind for number, kind in cast(dict[str, str], case.inputs[0]["failing"]).items()}


def _products(case: Case, scale: float | None) -> list[Value]:
    inputs = case.inputs[0]
    pairs = zip(tensors(inputs, "x"), listed(inputs, "weights"), strict=True)
    factors = listed(case.inputs[1], "begun") if case.world_size > 1 else [1.0] * len(listed(inputs, "weights"))
    plain = [x * weight * (1.0 if scale is None else scale) for x, weight in pairs]
    return [each * factor for each, factor in zip(plain, factors, strict=True)]


def expected(case: Case) -> list[Values]:
    """Return what the driver must return (the oracle)."""
    inputs, failing = case.inputs[0], _failing(case)
    count = len(listed(inputs, "weights"))
    finished: list[Value] = [number for number in range(count) if number not in failing]
    seen: dict[str, Value] = {"finished": finished, "begun": len(listed(case.inputs[0], "weights")), "met": True}
    opposite: list[Values] = []
    if case.world_size > 1:
        seen["came"] = case.inputs[1]["ended"]
        opposite = [{"gave": 2 * count}]
    if failing:
        return [{"raised": {"type": failing[min(failing)]}, **seen}, *opposite]
    outputs = _products(case, cast(float | None, inputs["scale"]))
    return [{"outputs": outputs, "tracked": [inputs["gradients"]] * count, **seen}, *opposite]


def structure(case: Case) -> list[Any]:
    """Return what the driver brings of outputs, of what is no list, and of an exception; values are looked at here."""
    all_ended: dict[str, Any] = {"finished": Each(int), "begun": int, "met": bool, "together": int}
    opposite: list[Any] = []
    if case.world_size > 1:
        all_ended["came"] = Each(float)
        opposite = [{"gave": int}]
    outputs: dict[str, Any] = {"outputs": list, "tracked": Each(bool), **all_ended}
    raised: dict[str, Any] = {"raised": {"type": str, "text": str, "shows_line": bool}, **all_ended}
    other: dict[str, Any] = {"outputs": str, **all_ended}
    return [OneOf((raised, outputs, other) if _failing(case) else (outputs, other)), *opposite]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: replicas that did not run together, an exception that is lost, outputs."""
    came, right = got[0], expected(case)[0]
    if not came["met"]:
        count, together = len(listed(case.inputs[0], "weights")), cast(int, came["together"])
        text = "The replicas did not run at the same time: one waited for the others, and they had not begun."
        if together > 1:
            text = f"Only {together} of {count} replicas ran at the same time; they waited for the others."
        yield Finding(_TOO_FEW if together > 1 else _IN_TURN, text)
    elif "raised" in right:
        yield from _wrong_error(case, came)
    else:
        yield from _wrong_outputs(case, came, right)


def _wrong_error(case: Case, came: Values) -> Iterator[Finding]:
    failing = _failing(case)
    number = min(failing)
    wanted, raised = failing[number], came.get("raised")
    if not isinstance(raised, dict):
        text = f"Replica {number} raised {wanted}, and parallel_apply returned as if nothing were wrong."
        yield Finding(_SWALLOWED, text)
        return
    others = [each for each in failing if each != number and str(100 + each) in str(raised["text"])]
    if raised["type"] != wanted or others:
        text = f"Replica {number} raised {wanted}, and parallel_apply raised {raised['type']}: {raised['text']}"
        yield Finding(_ANOTHERS if others else _TYPE, text, wanted, str(raised["type"]))
    if not raised["shows_line"]:
        yield Finding(_LINE, "The traceback does not show where in the replica the exception was raised.")
    if _is_early(case, came):
        text = "The exception was raised before the other replicas had ended; their threads go on alone."
        yield Finding(_EARLY, text)


def _is_early(case: Case, came: Values) -> bool:
    """Return whether some replica had not ended: it is not among them, or what it was given at its end is missing."""
    right = expected(case)[0]
    return any(came.get(what) != right[what] for what in ("finished", "came") if what in right)


def _wrong_outputs(case: Case, came: Values, right: Values) -> Iterator[Finding]:
    outputs, wanted = came.get("outputs"), listed(right, "outputs")
    often = [number for number in listed(came, "finished") if listed(came, "finished").count(number) > 1]
    if often:
        times = listed(came, "finished").count(often[0])
        text = f"Replica {often[0]} was called {times} times, and {len(wanted) - len(set(came['finished']))} never."  # type: ignore[arg-type]
        yield Finding(_ONE_FOR_ALL, text)
    if _is_early(case, came):
        none = "" if came.get("begun") else " None of them had been called by then."
        yield Finding(_NOT_JOINED, f"parallel_apply returned before all of the replicas had ended.{none}")
    if not isinstance(outputs, list) or len(outputs) != len(wanted):
        what = f"{len(outputs)} outputs" if isinstance(outputs, list) else str(in_words(outputs))
        name = "" if isinstance(outputs, list) or outputs is None else _NO_LIST
        yield Finding(name, f"There are {len(wanted)} replicas, and {what} came.")
        return
    nothing = [number for number, mine in enumerate(outputs) if mine is None]
    if nothing:
        words = ranks_in_words(nothing).replace("rank", "output")
        is_none = "is None" if len(nothing) == 1 else "are None"
        yield Finding(_LOST, f"{words[0].upper()}{words[1:]} {is_none}.")
    wrong = [number for number, pair in enumerate(zip(outputs, wanted, strict=True)) if not close(*pair)]
    if wrong:
        ways = [(_ORDER, lambda: wanted[::-1]), (_KEYWORDS, lambda: _products(case, None))]
        mistake = as_if(outputs, ways, lambda mine, other: all(map(close, mine, other)))
        if case.inputs[0].get("one_function") and all(close(each, outputs[0]) for each in outputs):
            mistake = _BY_FUNCTION
        yield Finding(mistake, f"{are_wrong(wrong, len(outputs) + 1).replace('Rank', 'Output')}.")
    if came["tracked"] != right["tracked"]:
        here, there = ("on", "off") if case.inputs[0]["gradients"] else ("off", "on")
        text = f"Gradients are {here} where parallel_apply is called, and {there} in the threads."
        yield Finding(_GRADIENTS, text)


_TOO_FEW, _NO_LIST = "too few at the same time", "no list"
_ONE_FOR_ALL, _BY_FUNCTION, _FORWARD = (
    "one replica in all threads",
    "results kept by function",
    "forward called by name",
)
_IN_TURN, _NOT_JOINED, _LOST, _ORDER, _KEYWORDS, _GRADIENTS = (
    "one after another", "not joined", "results lost", "in the order of their end", "keywords dropped",
    "gradients not as outside",
)  # fmt: skip
_SWALLOWED, _ANOTHERS, _TYPE, _LINE, _EARLY = (
    "an exception swallowed", "another replica's exception", "another type", "the line is lost",
    "raised before the others ended",
)  # fmt: skip

EXERCISE = declared(
    id="parallel_apply",
    functions=("parallel_apply",),
    driver=drive,
    oracle=expected,
    structure=structure,
    looks=(find,),
    visible=(
        threads_case("3 replicas, the last one is done first", 141, 3),
        threads_case("2 replicas, with a second keyword", 142, 2, scale=0.5),
        threads_case("4 replicas, under no_grad", 143, 4, gradients=False),
        threads_case("one plain function three times", 147, 3, one_function=True),
        threads_case("33 replicas", 146, 33),
        threads_case("replica 1 of 3 raises a ValueError", 144, 3, failing={1: "ValueError"}),
        threads_case("replicas 0 and 1 of 3 raise", 148, 3, failing={0: "KeyError", 1: "ValueError"}, in_order=True),
        threads_case("replicas 2 and 1 of 4 raise", 145, 4, failing={2: "ValueError", 1: "BadSampleError"}),
    ),
    distributed=False,
    hints=(
        "What a Thread's function returns is lost. Which of Python's tools runs functions in threads and keeps what "
        "each returned or raised?",
        "A ThreadPoolExecutor with one worker for each replica: submit all calls, then ask the futures for their "
        "result() in order. Ask torch.is_grad_enabled() before, and set it inside the function that you submit.",
        "def call(replica, batch): with torch.set_grad_enabled(enabled): return replica(**batch). Then: with "
        "ThreadPoolExecutor(len(replicas)) as pool: futures = [pool.submit(call, *pair) for pair in zip(replicas, "
        "inputs)]. After the with block: return [future.result() for future in futures].",
    ),
    mistakes=(
        Mistake(_IN_TURN,
                "Each replica began only when the one before had finished. Start all threads first: a join (or "
                "result()) in the same loop waits at once, and so does a lock around the call."),
        Mistake(_TOO_FEW,
                "All replicas run at the same time, so each needs a thread of its own, begun before you wait for any: "
                "a pool has as many as you ask for, ThreadPoolExecutor(len(replicas)), and by default not more than "
                "32."),
        Mistake(_ONE_FOR_ALL,
                "Several threads called one and the same replica: a function that is defined in a loop looks its loop "
                "variable up when it runs, and then the loop is at its end. Hand the number over: "
                "Thread(target=work, args=(number,))."),
        Mistake(_BY_FUNCTION,
                "The same function stands in the list several times, with other inputs each time, and all outputs are "
                "one of theirs. Keep each result by its number i, not by the replica."),
        Mistake(_FORWARD,
                "A replica may be a plain function, which has no forward: call it, replica(**inputs[i]). That also "
                "runs a module's hooks.", says=("has no attribute 'forward'",), certain=True),
        Mistake(_NO_LIST,
                "Return a list: pool.map gives an iterator, and (... for ...) too; list(...) goes through it."),
        Mistake(_NOT_JOINED,
                "You returned before the replicas were done, or never called one: starting a thread does not wait for "
                "it. Start them all, then wait for all."),
        Mistake(_LOST,
                "The replicas finished, but their outputs are None: what a Thread's function returns is lost. Store "
                "each result by number, or use a pool, whose futures keep it."),
        Mistake(_ORDER,
                "The outputs are in the order in which the replicas finished. Put each at the index of its replica."),
        Mistake(_KEYWORDS, "Some keywords did not reach the replica: replica(**inputs[i])."),
        Mistake(_GRADIENTS,
                "Each thread has its own setting for recording gradients. Call torch.is_grad_enabled() outside and "
                "torch.set_grad_enabled(...) in the thread."),
        Mistake(_SWALLOWED,
                "A replica raised an exception and nobody noticed: an exception ends only its own thread. Ask every "
                "future for its result(), or catch the exception in the thread, keep it, and raise it at the end."),
        Mistake(_ANOTHERS,
                "Two replicas failed, and you raised the exception of the first or last to fail. Take the "
                "lowest-numbered replica, so that every run reports the same."),
        Mistake(_TYPE,
                "The exception has a different type than the one that was raised. Raise the very exception that you "
                "caught; many types cannot be built from a message alone."),
        Mistake(_LINE,
                "A new exception knows nothing of the line that failed. Raise the one that you caught: it carries its "
                "traceback."),
        Mistake(_EARLY,
                "You raised while other replicas were still computing. Wait for all of them first. (An exception of a "
                "replica that you call yourself, in no thread of its own, leaves your function at once.)"),
    ),
)  # fmt: skip
