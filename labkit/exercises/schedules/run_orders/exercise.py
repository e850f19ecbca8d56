"""Running interleaved stages and zero bubble: cases, hints, and the mistakes that are made there."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.exercise import Sweep
from labkit.checks.judged import Mistake, judged
from labkit.checks.wire import Wire
from labkit.exercises.schedules.programs import (
    Order,
    expected,
    judge,
    linear_case,
    one_after_another,
    program_case,
    ran,
    structure,
    whole,
    wrong_gradients,
)
from labkit.exercises.schedules.run_orders.driver import drive
from labkit.exercises.stages import least_traffic
from labkit.exercises.stages import training_mistakes as mistakes
from labkit.exercises.stages.pipeline_cases import Weigh
from labkit.exercises.stages.training import Seen, apart


def _is_program(case: Case) -> bool:
    return "orders" in case.inputs[0]


def _said(words: str) -> Seen:
    return lambda case, got, wire: isinstance(got, tuple) and words in judge(case, got, wire).message


def _grads(values: Values) -> dict[str, Any]:
    return cast(dict[str, Any], values.get("grads") or {})


def _as_if(weigh: Weigh) -> Seen:
    """Return whether all gradients are those of a loss that is weighed like this."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or not _is_program(case) or wrong_gradients(case, got) is None:
            return False
        return all(
            apart(_grads(came).get(name), gradient) is None
            for came, right in zip(got, whole(case, weigh), strict=True)
            for name, gradient in _grads(right).items()
        )

    return seen


def _weights_never(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether some rank ran backwards and never called what was put off for one of them."""
    if not isinstance(got, tuple) or not _is_program(case):
        return False
    for order, values in zip(cast(list[Order], case.inputs[0]["orders"]), got, strict=True):
        came = ran(order, cast(list[str], values.get("events") or []))
        if {each[1:] for each in came if each[0] == "B"} - {each[1:] for each in came if each[0] == "W"}:
            return True
    return False


def _chunks_mixed(case: Case, got: Got, wire: Wire) -> bool:
    if not _is_program(case) or case.about["chunks"] == 1:
        return False
    return isinstance(got, Failure) or wrong_gradients(case, got) is not None


EXERCISE = judged(
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
    judge=judge,
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
        "What did run_schedule keep by microbatch? What of it would two chunks of one rank write over? And "
        "what of a linear layer's backward does no other rank wait for?",
        "linear_later: an autograd.Function whose backward returns gradient @ weight for x and None for the others, "
        "and appends a function to later that adds gradient.T @ x to weight.grad and the sum over the rows to "
        "bias.grad. run_orders: dictionaries by (chunk, microbatch); irecv's handle is waited for by the work that "
        "needs it; after backward take a copy of later and clear it: BackwardChunk calls these functions now, "
        "BackwardWeight does it then.",
        "in backward: later.append(rest); return gradient @ weight, None, None. In run_orders: "
        "torch.autograd.backward(left.pop(key), gradients.pop(key, None)); put_off[m] = later[:]; later.clear(); and "
        "for BackwardWeight: for rest in put_off.pop(m): rest().",
    ),
    mistakes=(
        mistakes.LIBRARY,
        Mistake(
            "weights' gradients at once",
            "The weight's gradient is there right after backward: let backward return None for weight and bias, and "
            "append a function to later that adds them to .grad when it is called.",
            _said("right after backward; put it off"),
        ),
        Mistake(
            "overwritten, not added",
            "The weight's gradient is that of the last backward alone: add to .grad what is there already.",
            lambda case, got, wire: (
                not _is_program(case) and _said("After two backwards")(case, got, wire) and _only_last(case, got)
            ),
        ),
        Mistake(
            "rows not joined",
            "With samples of several rows a gradient has three dimensions: reshape it and x to (rows, features) first.",
            lambda case, got, wire: (
                isinstance(got, Failure)
                and got.kind == "exception"
                and any(words in got.message for words in ("mat1 and mat2", "must match", "2D", "dim", "size"))
                and "linear_later" in got.detail + got.message
                and "rows" in case.name
            ),
            certain=True,
        ),
        Mistake(
            "the weights' half is never done",
            "Some weights never got their gradients: BackwardChunk calls what was put off at once, BackwardWeight "
            "what its BackwardInput had put off.",
            _weights_never,
        ),
        Mistake(
            mistakes.NO_LEAF.name,
            mistakes.NO_LEAF.hint,
            lambda case, got, wire: isinstance(got, Failure) and "NoneType" in got.message,
            certain=True,
        ),
        mistakes.DETACHED,
        Mistake(
            "loss not scaled",
            mistakes.NOT_SCALED.hint,
            _as_if(lambda number, sizes, everybody: 1.0),
        ),
        Mistake(
            "mean of means",
            mistakes.MEAN_OF_MEANS.hint,
            _as_if(lambda number, sizes, everybody: 1 / len(sizes)),
        ),
        Mistake(
            "weights when they were put off",
            "The weights' gradients are computed in another place than the order says: BackwardInput only keeps what "
            "is in later, and the BackwardWeight of the same microbatch calls it.",
            _said("did its work in another order"),
        ),
        Mistake(
            "read before it was there",
            "A message was used before wait() had returned: each forward and backward waits for what it needs.",
            lambda case, got, wire: bool(wire.problems_of("not_waited", "read_before_wait")),
        ),
        Mistake(
            "chunks share a place",
            "With one chunk it may be right, with several it is not: what enters, leaves and comes back belongs to a "
            "chunk and a microbatch. Keep it by both.",
            _chunks_mixed,
            certain=True,
        ),
        mistakes.NOT_CONTIGUOUS,
        mistakes.STILL_ATTACHED,
    ),
)


def _only_last(case: Case, got: Got) -> bool:
    if not isinstance(got, tuple):
        return False
    right = expected(case)[0]
    pairs = [(got[0].get(f"gradient of {name}"), right.get(f"gradient of {name}")) for name in ("weight", "bias")]
    return any(isinstance(mine, Tensor) and apart(2 * mine, cast(Tensor, wanted)) is None for mine, wanted in pairs)
