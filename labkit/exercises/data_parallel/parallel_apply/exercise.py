"""Replicas in threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.tensor_values import close
from labkit.checks.verdict import Verdict
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
) -> Case:
    """Return a case of parallel_apply."""
    generator = draws.generator(seed)
    given: dict[str, Value] = {
        "weights": torch.randint(1, 9, (count,), generator=generator).double().tolist(),
        "x": [torch.randn(2, generator=generator, dtype=torch.float64) for _ in range(count)],
        "scale": scale,
        "gradients": gradients,
        "failing": {str(number): kind for number, kind in (failing or {}).items()},
    }
    return Case(name, 1, (given,))


def _failing(case: Case) -> dict[int, str]:
    return {int(number): kind for number, kind in cast(dict[str, str], case.inputs[0]["failing"]).items()}


def _products(case: Case, scale: float | None) -> list[Value]:
    inputs = case.inputs[0]
    pairs = zip(cast(list[Tensor], inputs["x"]), cast(list[float], inputs["weights"]), strict=True)
    return [x * weight * (1.0 if scale is None else scale) for x, weight in pairs]


def expected(case: Case) -> list[Values]:
    """Return what the driver must return (the oracle)."""
    inputs, failing = case.inputs[0], _failing(case)
    count = len(cast(list[float], inputs["weights"]))
    finished: list[Value] = [number for number in range(count) if number not in failing]
    if failing:
        return [{"raised": {"type": failing[min(failing)]}, "finished": finished, "met": True}]
    outputs = _products(case, cast(float | None, inputs["scale"]))
    return [{"outputs": outputs, "tracked": [inputs["gradients"]] * count, "finished": finished, "met": True}]


def structure(case: Case) -> list[Any]:
    """Return the oracle's structure, and what comes of an exception besides its type."""
    (right,) = expected(case)
    raised = {"type": str, "text": str, "names_replica": bool, "shows_line": bool}
    return [{**right, "raised": raised} if "raised" in right else right]


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether replicas ran together, outputs are in order, and an exception says all it can."""
    assert isinstance(got, tuple)
    came, right = got[0], expected(case)[0]
    if not came.get("met"):
        return Verdict(
            False, "The replicas did not run at the same time: one waited for the others, and they had not begun."
        )
    if "raised" in right:
        return _judge_error(case, came, cast(dict[str, Any], right["raised"])["type"])
    outputs = came.get("outputs")
    if not isinstance(outputs, list) or len(outputs) != len(cast(list[Value], right["outputs"])):
        what = f"{len(outputs)} outputs" if isinstance(outputs, list) else str(outputs)
        return Verdict(False, f"There are {len(cast(list[Value], right['outputs']))} replicas, and {what} came.")
    nothing = [number for number, mine in enumerate(outputs) if mine is None]
    if nothing:
        words = ranks_in_words(nothing).replace("rank", "output")
        unfinished = "" if came["finished"] == right["finished"] else ", and not all of the replicas had ended"
        is_none = "is None" if len(nothing) == 1 else "are None"
        return Verdict(False, f"{words[0].upper()}{words[1:]} {is_none}{unfinished}.")
    pairs = zip(outputs, cast(list[Value], right["outputs"]), strict=True)
    wrong = [number for number, (mine, output) in enumerate(pairs) if not close(mine, output)]
    if wrong:
        words = are_wrong(wrong, len(outputs) + 1).replace("Rank", "Output")
        return Verdict(False, f"{words}.")
    if came["tracked"] != right["tracked"]:
        on = bool(case.inputs[0]["gradients"])
        return Verdict(
            False,
            f"Gradients are {'on' if on else 'off'} where parallel_apply is called, and "
            f"{'off' if on else 'on'} in the threads.",
        )
    return Verdict(True)


def _judge_error(case: Case, came: Values, wanted: str) -> Verdict:
    number = min(_failing(case))
    raised = came.get("raised")
    if not isinstance(raised, dict):
        return Verdict(
            False, f"Replica {number} raised {wanted}, and parallel_apply returned as if nothing were wrong."
        )
    if raised["type"] != wanted:
        return Verdict(
            False,
            f"Replica {number} raised {wanted}, and parallel_apply raised {raised['type']}: {raised['text']}",
            expected=wanted,
            got=str(raised["type"]),
        )
    if not raised["names_replica"]:
        return Verdict(False, f'Neither the text of the exception nor a note says "replica {number}": {raised["text"]}')
    if not raised["shows_line"]:
        return Verdict(False, "The traceback does not show where in the replica the exception was raised.")
    if came.get("finished") != expected(case)[0]["finished"]:
        return Verdict(
            False, "The exception was raised before the other replicas had ended; their threads go on alone."
        )
    return Verdict(True)


def _raised(got: Got) -> dict[str, Any]:
    raised = got[0].get("raised") if isinstance(got, tuple) else None
    return cast(dict[str, Any], raised) if isinstance(raised, dict) else {}


def _outputs(got: Got) -> list[Value]:
    outputs = got[0].get("outputs") if isinstance(got, tuple) else None
    return outputs if isinstance(outputs, list) else []


def _in_order_of_end(case: Case, got: Got, wire: Wire) -> bool:
    outputs = _outputs(got)
    products = _products(case, cast(float | None, case.inputs[0]["scale"]))
    return len(outputs) > 1 and all(close(a, b) for a, b in zip(outputs, products[::-1], strict=False))


def _without_keywords(case: Case, got: Got, wire: Wire) -> bool:
    plain = _products(case, None)
    outputs = _outputs(got)
    return case.inputs[0]["scale"] is not None and bool(outputs) and all(map(close, outputs, plain))


def _not_joined(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether parallel_apply returned a list while replicas were still at work."""
    if not isinstance(got, tuple) or not got[0].get("met") or not isinstance(got[0].get("outputs"), list):
        return False
    return got[0].get("finished") != expected(case)[0]["finished"]


def _results_lost(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether replicas came to their end, and None stands in the place of what they returned."""
    return not _failing(case) and not _not_joined(case, got, wire) and any(each is None for each in _outputs(got))


def _no_error(case: Case, got: Got, wire: Wire) -> bool:
    return bool(_failing(case)) and isinstance(got, tuple) and "raised" not in got[0]


def _other_replica(case: Case, got: Got, wire: Wire) -> bool:
    raised, failing = _raised(got), _failing(case)
    return bool(raised) and any(f"replica {number}" in raised["text"] for number in failing if number != min(failing))


EXERCISE = judged(
    id="parallel_apply",
    functions=("parallel_apply",),
    driver=drive,
    oracle=expected,
    structure=structure,
    judge=judge,
    visible=(
        threads_case("3 replicas, the last one is done first", 141, 3),
        threads_case("2 replicas, with a keyword", 142, 2, scale=0.5),
        threads_case("4 replicas, under no_grad", 143, 4, gradients=False),
        threads_case("replica 1 of 3 raises a ValueError", 144, 3, failing={1: "ValueError"}),
        threads_case("replicas 2 and 1 of 4 raise", 145, 4, failing={2: "ValueError", 1: "BadSampleError"}),
    ),
    distributed=False,
    hints=(
        "What a thread's function returns is lost. Where else could it put its result, so that you know whose it is?",
        "A list outputs = [None] * len(replicas), and each thread writes outputs[number]. A dict for errors, in the "
        "same way. Ask torch.is_grad_enabled() before the threads begin, and set it in each. Start all, then join all.",
        "In the thread: try: with torch.set_grad_enabled(enabled): outputs[i] = replicas[i](*args, **kwargs); except "
        "Exception as error: errors[i] = error. After the joins: i = min(errors); "
        "errors[i].add_note(f'in replica {i}'); raise errors[i].",
    ),
    mistakes=(
        Mistake(
            "one after another",
            "Each replica began when the one before had ended. Start all threads first; a join (or result()) in the "
            "same loop waits at once.",
            lambda case, got, wire: isinstance(got, tuple) and got[0].get("met") is False,
        ),
        Mistake(
            "not joined",
            "You returned before the threads were done: start() does not wait. Join all of them, once all have "
            "started.",
            _not_joined,
        ),
        Mistake(
            "results lost",
            "The replicas ran to their end, and None stands where their outputs should be: what a thread's function "
            "returns is lost. Store each result by number: outputs[number] = replicas[number](...).",
            _results_lost,
        ),
        Mistake(
            "in the order of their end",
            "The outputs are those of the replicas, in the order in which they were done (append). Put each in the "
            "place of its replica.",
            _in_order_of_end,
        ),
        Mistake(
            "keywords dropped",
            "The keywords did not reach the replica: replica(*arguments, **keywords).",
            _without_keywords,
        ),
        Mistake(
            "gradients not as outside",
            "Whether gradients are recorded is a matter of each thread. Ask torch.is_grad_enabled() before, and say "
            "torch.set_grad_enabled(...) in the thread.",
            lambda case, got, wire: (
                isinstance(got, tuple)
                and not _failing(case)
                and "tracked" in got[0]
                and got[0]["tracked"] != expected(case)[0]["tracked"]
            ),
        ),
        Mistake(
            "an exception swallowed",
            "A replica raised an exception and nobody was told: an exception ends its thread and no other. Catch it "
            "there, keep it, and raise it after the joins.",
            _no_error,
        ),
        Mistake(
            "another replica's exception",
            "Two replicas failed, and you raised the one that failed first, or last. Take the one of the lowest "
            "number, so that the same run says the same each time.",
            _other_replica,
        ),
        Mistake(
            "another type",
            "The exception has another type than the one that was raised. Keep the exception object itself and raise "
            "that; many types cannot be made from a text alone.",
            lambda case, got, wire: bool(_raised(got)) and _raised(got)["type"] != _failing(case)[min(_failing(case))],
        ),
        Mistake(
            "which replica",
            "The exception does not say which replica it comes from: error.add_note(f'in replica {number}').",
            lambda case, got, wire: bool(_raised(got)) and not _raised(got)["names_replica"],
        ),
        Mistake(
            "the line is lost",
            "A new exception knows nothing of the line that failed. Raise the exception that you caught: it carries "
            "its traceback.",
            lambda case, got, wire: bool(_raised(got)) and not _raised(got)["shows_line"],
        ),
        Mistake(
            "raised before the others ended",
            "Raise after all joins. Otherwise threads go on computing while your program thinks of something else.",
            lambda case, got, wire: (
                bool(_raised(got)) and cast(tuple[Values, ...], got)[0].get("finished") != expected(case)[0]["finished"]
            ),
        ),
        Mistake(
            "waits for ever",
            "It did not end in time: somebody waits for a thread that was never started.",
            lambda case, got, wire: isinstance(got, Failure) and got.kind in ("timeout", "deadlock"),
            general=True,
        ),
    ),
)
