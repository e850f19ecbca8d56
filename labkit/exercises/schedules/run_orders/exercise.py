"""Running interleaved stages and zero bubble: cases, hints, and the mistakes that are made there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from torch import Tensor

from labkit.checks.as_if import Way, as_if
from labkit.checks.blame import Sign, blaming
from labkit.checks.case import Case, Failure, Values
from labkit.checks.exercise import Exercise, Sweep
from labkit.checks.finding import Finding
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.values import integer, listed, record, texts
from labkit.checks.wire import Wire
from labkit.exercises.schedules.programs import (
    Order,
    expected,
    linear_case,
    one_after_another,
    one_layer,
    planned,
    program_case,
    ran,
    structure,
    whole,
)
from labkit.exercises.schedules.run_orders.driver import drive
from labkit.exercises.stages import least_traffic
from labkit.exercises.stages import training_mistakes as mistakes
from labkit.exercises.stages.training import apart, wrong_gradient, wrong_loss


def _is_program(case: Case) -> bool:
    return "orders" in case.inputs[0]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is not as in one process, or did not run in its place."""
    if not _is_program(case):
        yield from _of_layer(case, got[0])
        return
    yield from (replace(each, mistake=mistakes.LIBRARY) for each in library_calls(wire))
    for each in _of_gradients(case, got):
        yield replace(each, mistake=each.mistake or _mistake(case, got, wire))
    yield from _of_order(case, got)
    yield from lost_messages(wire)
    for problem in wire.problems_of("not_waited"):
        yield Finding(_READ, problem.text, problem=problem)


def _of_layer(case: Case, came: Values) -> Iterator[Finding]:
    """Yield where linear_later is wrong, or did not put off what it should."""
    if "problem" in came:
        yield Finding("", str(came["problem"]))
    if came["at_once"]:
        yield Finding(_AT_ONCE, f"The gradient of {came['at_once']} was computed in backward already; put it off.")
    for name, right in one_layer(case).items():
        mine, wanted = cast("Tensor | None", came[name]), cast("Tensor | None", right)
        if text := apart(mine, wanted):
            what = "The output" if name == "out" else f"After two backwards and all of later the {name}"
            # both backwards bring the same gradient
            once = mine is not None and name != "gradient of x" and apart(2 * mine, wanted) is None
            yield Finding(_LAST if once else "", f"{what} is wrong: {text[0]}.", text[1], text[2])
    if came["put_off"] != 2:
        yield Finding("", f"Two backwards put {came['put_off']} functions into later; each should put one.")


def _of_gradients(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    for rank, right in enumerate(whole(case)):
        yield from wrong_gradient(rank, f"rank {rank}", got[rank]["grads"], record(right, "grads"))
        yield from wrong_loss(rank, got[rank], cast("Tensor | None", right["loss"]), 1e-9)


def _mistake(case: Case, got: tuple[Values, ...], wire: Wire) -> str:
    """Return the mistake that wrong gradients point to, or ""."""
    if _weights_never(case, got):
        return _NEVER
    ways: list[Way[Sequence[Values]]] = [
        (mistakes.NOT_SCALED, lambda: whole(case, lambda number, sizes, everybody: 1.0)),
        (mistakes.MEAN_OF_MEANS, lambda: whole(case, lambda number, sizes, everybody: 1 / len(sizes))),
    ]
    came: Sequence[Values] = got
    if name := as_if(came, ways, _same):
        return name
    if wire.problems_of("not_waited", "read_before_wait"):
        return _READ
    return _SHARED if integer(case.about, "chunks") != 1 else ""


def _same(got: Sequence[Values], other: Sequence[Values]) -> bool:
    return all(
        apart(cast("Tensor | None", record(came, "grads").get(name)), cast("Tensor | None", gradient)) is None
        for came, wrong in zip(got, other, strict=True)
        for name, gradient in record(wrong, "grads").items()
    )


def _weights_never(case: Case, got: tuple[Values, ...]) -> bool:
    """Return whether some rank ran backwards and never called what was put off for one of them."""
    for order, values in zip(cast("list[Order]", listed(case.inputs[0], "orders")), got, strict=True):
        came = ran(order, texts(values, "events"))
        if {each[1:] for each in came if each[0] == "B"} - {each[1:] for each in came if each[0] == "W"}:
            return True
    return False


def _of_order(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield which rank did its work in another order, or left work over."""
    for rank, order in enumerate(cast("list[Order]", listed(case.inputs[0], "orders"))):
        wanted, came = planned(order), ran(order, texts(got[rank], "events"))
        if wanted != came:
            said = (
                f"The gradients are right, but rank {rank} did its work in another order (F forward, B backward to "
                "the input, W the weights' gradients; chunk.microbatch)."
            )
            name = _NEVER if _weights_never(case, got) else _WHEN
            yield Finding(name, said, " ".join(wanted), " ".join(came), rank)
        if got[rank]["left_over"]:
            yield Finding("", f"Rank {rank} left {got[rank]['left_over']} functions in later; empty it.", rank=rank)


def _rows(case: Case, failure: Failure, wire: Wire) -> bool:
    return (
        failure.kind == "exception"
        and any(words in failure.message for words in ("mat1 and mat2", "must match", "2D", "dim", "size"))
        and "linear_later" in failure.detail + failure.message
        and "rows" in case.name
    )


_AT_ONCE, _LAST, _ROWS = "weights' gradients at once", "overwritten, not added", "rows not joined"
_NEVER, _WHEN = "the weights' half is never done", "weights when they were put off"
_READ, _SHARED = "read before it arrived", "chunks share a place"
_SIGNS: Mapping[str, Sign] = {
    mistakes.LIBRARY: mistakes.IN_THE_CODE[mistakes.LIBRARY],
    _ROWS: _rows,
    mistakes.NO_LEAF: lambda case, failure, wire: "NoneType" in failure.message,
    mistakes.DETACHED: mistakes.IN_THE_CODE[mistakes.DETACHED],
    _READ: lambda case, failure, wire: bool(wire.problems_of("not_waited", "read_before_wait")),
    _SHARED: lambda case, failure, wire: _is_program(case) and integer(case.about, "chunks") != 1,
    mistakes.NOT_CONTIGUOUS: mistakes.IN_THE_CODE[mistakes.NOT_CONTIGUOUS],
}
MISTAKES = {
    **mistakes.hints(
        mistakes.LIBRARY,
        mistakes.NO_LEAF,
        mistakes.DETACHED,
        mistakes.NOT_SCALED,
        mistakes.MEAN_OF_MEANS,
        mistakes.NOT_CONTIGUOUS,
        mistakes.STILL_ATTACHED,
    ),
    _AT_ONCE: "The weight's gradient is computed in backward already: let backward return None for weight and bias, "
    "and append a function to later that adds them to .grad when it is called.",
    _LAST: "The weight's gradient is only that of the last backward: add to .grad instead of replacing it.",
    _ROWS: "With samples of several rows a gradient has three dimensions: reshape it and x to (rows, features) first.",
    _NEVER: (
        "Some weights never got their gradients: BackwardChunk calls the postponed functions at once, BackwardWeight "
        "those that its BackwardInput postponed."
    ),
    _WHEN: (
        "The weights' gradients are not computed where the order says: BackwardInput only keeps what is in later, and "
        "the BackwardWeight of the same microbatch calls it."
    ),
    _READ: "A message was used before wait() had returned: each forward and backward waits for what it needs.",
    _SHARED: (
        "It may be right with one chunk, but not with several: inputs, outputs and gradients belong to a chunk and a "
        "microbatch. Store them by both."
    ),
}

EXERCISE = Exercise(
    id="run_orders",
    functions=("linear_later", "run_orders"),
    given=(
        "Forward",
        "ForwardChunk",
        "BackwardChunk",
        "BackwardInput",
        "BackwardWeight",
        "Give",
        "Take",
        "with_messages",
    ),
    driver=drive,
    oracle=expected,
    structure=structure,
    least=least_traffic.of_chunks,
    find=find,
    blame=blaming(_SIGNS),
    visible=(
        linear_case("a layer by itself", 141, (5, 4)),
        linear_case(
            "a layer, samples of 2 rows, frozen weight; no bias", 142, (3, 2, 6), bias=False, frozen=["weight"]
        ),
        program_case(
            "2 ranks, zero bubble, 2 + 2 + 1 samples",
            143,
            [2, 2, 1],
            ["F0 F1 I0 W0 F2 I1 W1 I2 W2", "F0 I0 F1 I1 W0 F2 I2 W1 W2"],
            before=True,
        ),
        program_case(
            "2 ranks with 2 chunks, interleaved, 2 + 3 samples of 2 rows",
            144,
            [2, 3],
            ["F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1", "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1"],
            rows=2,
        ),
        program_case(
            "3 ranks, zero bubble, gradients put off longer",
            145,
            [1, 2, 1, 3],
            [
                "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3",
                "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
                "F0 I0 F1 I1 F2 I2 F3 I3 W2 W0 W3 W1",
            ],
        ),
    ),
    sweep=Sweep(
        tuple(
            program_case(f"{size} ranks", 150 + size, [2, 1, 2], [one_after_another(chunks, 3)] * size)
            for size, chunks in ((2, 3), (3, 2), (4, 2), (8, 1))
        ),
        "several chunks, gradients of the whole batch, nobody waits for ever",
    ),
    hints=(
        "What did run_schedule store by microbatch? Which of that would two chunks of one rank overwrite? And which "
        "part of a linear layer's backward does no other rank wait for?",
        "linear_later: an autograd.Function whose backward returns gradient @ weight for x and None for the others, "
        "and appends a function to later that adds gradient.T @ x to weight.grad and the sum over the rows to "
        "bias.grad. run_orders: dictionaries by (chunk, microbatch); irecv's handle is waited for by the work that "
        "needs it; after backward take a copy of later and clear it: BackwardChunk calls these functions now, "
        "BackwardWeight does it then.",
        "in backward: later.append(rest); return gradient @ weight, None, None. In run_orders: "
        "torch.autograd.backward(left.pop(key), gradients.pop(key, None)); put_off[m] = later[:]; later.clear(); and "
        "for BackwardWeight: for rest in put_off.pop(m): rest().",
    ),
    mistakes=MISTAKES,
    certain=frozenset({_ROWS, mistakes.NO_LEAF, mistakes.DETACHED, _SHARED, mistakes.NOT_CONTIGUOUS}),
)
