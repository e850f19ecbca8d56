"""A loader that works ahead: order, end, error, and a loop that is left."""

from __future__ import annotations

from typing import Any, cast

from labkit.checks.case import Case, Value, Values
from labkit.checks.judged import judged
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.findings import Finding, judging, mistakes, raising
from labkit.exercises.gradient_compression.prefetching_loader.driver import drive


def loader_case(name: str, batches: int, depth: int, error_after: int) -> Case:
    """Return a case: so many batches, so many of which may wait, and one that raises."""
    return Case(name, 1, ({"batches": batches, "depth": depth, "error_after": error_after},))


def _batches(count: int) -> list[Value]:
    return [10 * number for number in range(count)]


def expected(case: Case) -> list[Values]:
    """Return what the loops must see (the oracle)."""
    inputs = case.inputs[0]
    return [
        {
            "whole": {"came": _batches(cast(int, inputs["batches"])), "own_thread": True},
            "none": [],
            "failing": {"came": _batches(cast(int, inputs["error_after"])), "error": "this batch cannot be read"},
            "left": {"ahead": True, "alive": False},
        }
    ]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong: the whole loop, none, the error, then what happens when it is left."""
    right, came, depth = expected(case)[0], got[0], cast(int, case.inputs[0]["depth"])
    words = {
        "whole": "the loop to the end",
        "none": "a loop over no batches",
        "failing": "a loop into an error",
        "left": "a loop that is left",
    }
    for name, where in words.items():
        value = came.get(name)
        if value == "hangs":
            mistake = {"whole": "the end", "none": "the end", "failing": "the error", "left": "the thread stays"}[name]
            return Finding(
                f"hangs at {mistake}" if name != "left" else mistake, f"{where[0].upper()}{where[1:]} did not end."
            )
        if isinstance(value, str):
            odd = "the error" if name == "failing" else "raises"
            if name == "left" and "close" in value:
                return Finding("no generator", f"{where}: {value}.")
            return Finding("hangs at the error" if odd == "the error" else "raises", f"{where}: {value}.")
    whole, wanted = cast(dict[str, Any], came["whole"]), cast(dict[str, Any], right["whole"])
    if whole["came"] != wanted["came"]:
        name = "not all batches"
        if any(isinstance(each, str) for each in whole["came"]):
            name = "the end is a batch"
        elif sorted(whole["came"]) == wanted["came"]:
            name = "batches in another order"
        return Finding(name, "The loop saw other batches.", f"{wanted['came']}", f"{whole['came']}")
    if came["none"] != []:
        return Finding("not all batches", f"A loop over no batches saw {came['none']}.")
    failing = cast(dict[str, Any], came["failing"])
    if failing["error"] != "this batch cannot be read":
        return Finding("the error is swallowed", "The iterable raised an error, and the loop ended as if all was well.")
    if failing["came"] != cast(dict[str, Any], right["failing"])["came"]:
        return Finding("batches before the error are lost", f"Before the error the loop saw {failing['came']}.")
    left = cast(dict[str, Any], came["left"])
    if not whole["own_thread"] or not left["ahead"]:
        return Finding("nothing is fetched ahead", "While the loop held its first batch, no other was fetched.")
    if left["fetched"] > depth + 2:
        return Finding(
            "too far ahead",
            f"While the loop held its first batch, {left['fetched']} batches were fetched with a depth of {depth}.",
            f"at most {depth + 2}",
            str(left["fetched"]),
        )
    if left["alive"]:
        return Finding("the thread stays", "The generator was closed, and the thread still lives.")
    return None


EXERCISE = judged(
    id="prefetching_loader",
    functions=("prefetched",),
    driver=drive,
    oracle=expected,
    judge=judging(find),
    visible=(
        loader_case("12 batches, 2 may wait", 12, 2, 3),
        loader_case("30 batches, 1 may wait, the first raises", 30, 1, 0),
    ),
    distributed=False,
    hints=(
        "What can come through the queue besides a batch? And who might wait for ever when the loop is left?",
        "The thread puts (kind, value): a batch, the end, an error. The loop gets and yields, raises or returns. In a "
        "finally: set an Event that the thread looks at, empty the queue so that its put returns, join.",
        "try: while True: kind, value = ready.get(); ... finally: stop.set(); while not ready.empty(): ready.get(); "
        "thread.join()",
    ),
    mistakes=(
        raising("raises", "The loop itself raised an error; read its line.", "raised"),
        *mistakes(
            find,
            hangs_at_the_end="After the last batch the loop waits for one more: let the thread put a mark for the end.",
            hangs_at_the_error="The thread died of the error and the loop waits for ever: catch it there, put it "
            "into the "
            "queue, raise it in the loop.",
            the_error_is_swallowed="The error ended the loop in silence: training would go on with half the data. "
            "Raise it.",
            the_end_is_a_batch="The mark for the end was yielded as if it were a batch.",
            not_all_batches="Batches are missing, or there are too many: the end comes after the last one.",
            batches_in_another_order="Batches come in another order: one thread and one queue keep it.",
            batches_before_the_error_are_lost="The error overtook batches that were already there: put it into "
            "the same queue.",
            nothing_is_fetched_ahead="Nothing is fetched while the loop works: the iterable must be read in a "
            "thread of its own.",
            too_far_ahead="The thread runs further ahead than depth allows: queue.Queue(maxsize=depth) makes it wait.",
            the_thread_stays="A loop that is left must let the thread go: in finally say stop, empty the queue "
            "(it may wait in "
            "put), and join.",
            no_generator="What came back has no close(): write a generator, a function with yield.",
        ),
    ),
)
