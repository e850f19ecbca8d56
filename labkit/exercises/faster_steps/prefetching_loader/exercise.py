"""A loader that works ahead: order, end, error, and a loop that is left."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from labkit.checks import draws
from labkit.checks.case import Case, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.values import flag, integer, listed, record, text
from labkit.checks.wire import Wire
from labkit.exercises.faster_steps.prefetching_loader.driver import ERROR, HANGS, NO_BATCH, drive


def loader_case(
    name: str, batches: int, depth: int, error_after: int, *, reader: bool = False, opposite: int | None = None
) -> Case:
    """Return a case: so many batches, so many of which may wait, and one that raises; from a reader or an iterable.

    With a seed for `opposite` another rank gives the first loop's batches.
    """
    about: dict[str, Value] = {"batches": batches, "depth": depth, "error_after": error_after}
    about |= {"reader": True} if reader else {}
    if opposite is None:
        return Case(name, 1, (about,))
    draw = draws.generator(opposite, "rank", 1)
    gives = torch.randint(1, 1 << 40, (batches,), generator=draw).tolist()
    held = torch.rand(batches, generator=draw, dtype=torch.float64).tolist()
    return Case(name, 2, (about | {"opposite": True}, {"gives": gives, "held": held}))


def _batches(case: Case, count: str) -> list[Value]:
    return [10 * number for number in range(integer(case.inputs[0], count))]


def _first_loop(case: Case) -> list[Value]:
    return listed(case.inputs[1], "gives") if case.world_size > 1 else _batches(case, "batches")


def expected(case: Case) -> list[Values]:
    """Return what the loops must see (the oracle)."""
    before = _batches(case, "error_after")
    whole: dict[str, Value] = {"came": _first_loop(case), "own_thread": True, "num_threads": 1}
    opposite: list[Values] = []
    if case.world_size > 1:
        whole["held"] = case.inputs[1]["held"]
        opposite = [{"gave": 2 * len(_first_loop(case))}]
    return [
        {
            "whole": whole,
            "none": [],
            "failing": {"came": before, "error": ERROR},
            "left": {"ahead": True, "alive": False, "fetched": integer(case.inputs[0], "depth") + 1},
            "odd": ["None", 0],
        },
        *opposite,
    ]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: loops that hang or raise, the whole loop, none, the error, then a loop that is left."""
    yield from _hung_or_raised(got[0])
    yield from _read_first(case, got[0])
    yield from _wrong_batches(case, got[0])
    yield from _not_ahead(case, record(got[0], "whole"), record(got[0], "left"))
    if got[0]["odd"] != ["None", 0]:
        yield Finding(_ODD, f"A loop over the batches None and 0 saw {got[0]['odd']}.", "['None', 0]")


_LOOPS = {
    "whole": ("A loop over all batches", "hangs at the end"),
    "none": ("A loop over no batches", "hangs at the end"),
    "failing": ("A loop over an iterable that raises", "hangs at the error"),
    "left": ("A loop that is left early", "the thread stays"),
    "odd": ("A loop over the batches None and 0", "hangs at the end"),
}
"""Of each loop its name in words, and the mistake if it hangs."""


def _hung_or_raised(came: Values) -> Iterator[Finding]:
    for name, (words, hangs) in _LOOPS.items():
        value = came[name]
        if isinstance(value, str) and value.startswith(HANGS):
            if ".join(" in value:
                hangs = _JOINS_LEFT if name == "left" else _JOINS
            elif ".get(" in value and name == "left":
                hangs = _TAKES_LEFT
            yield Finding(hangs, f"{words} {value.replace(', in', ': it stands in', 1)}.")
        elif value == NO_BATCH:
            yield Finding("not all batches", f"{words} {value}.")
        elif isinstance(value, str):
            yield Finding("an error of its own", f"{words} {value}.")


def _read_first(case: Case, came: Values) -> Iterator[Finding]:
    """Yield that all batches are read before the loop gets its first."""
    failing, left = record(came, "failing"), record(came, "left")
    everything = integer(left, "fetched") == integer(case.inputs[0], "batches")
    if everything and listed(failing, "came") == [] and _batches(case, "error_after"):
        message = f"While the loop held its first batch, all {left['fetched']} batches had been read."
        yield Finding(_ALL_FIRST, message, "one by one", "all of them first")


def _wrong_batches(case: Case, came: Values) -> Iterator[Finding]:
    whole, wanted = listed(record(came, "whole"), "came"), _first_loop(case)
    if whole != wanted:
        name = "the end is a batch" if any(isinstance(each, str) for each in whole) else "not all batches"
        yield Finding(name, "The loop saw other batches.", f"{wanted}", f"{whole}")
    if came["none"] != []:
        yield Finding("not all batches", f"A loop over no batches saw {came['none']}.")
    failing = record(came, "failing")
    if any(ERROR in str(each) for each in listed(failing, "came")):
        yield Finding(_YIELDED, f"An iterable raised an error, and the loop saw it as a batch: {failing['came']}.")
    if text(failing, "error") != ERROR:
        message = "The iterable raised an error, and the loop ended as if all was well."
        yield Finding("the error is swallowed", message)
    if listed(failing, "came") != _batches(case, "error_after"):
        yield Finding("batches before the error are lost", f"Before the error the loop saw {failing['came']}.")


def _not_ahead(case: Case, whole: Values, left: Values) -> Iterator[Finding]:
    depth, fetched = integer(case.inputs[0], "depth"), integer(left, "fetched")
    not_held = case.world_size > 1 and whole.get("held") != case.inputs[1]["held"]
    if not flag(whole, "own_thread") and integer(whole, "num_threads") > 1:
        yield Finding(_SEVERAL, "The loop's own thread has read batches, too.", "the thread alone", "both")
    if not_held or not flag(whole, "own_thread") or not flag(left, "ahead"):
        yield Finding("nothing is fetched ahead", "While the loop held its first batch, no other was fetched.")
    if integer(whole, "num_threads") > 1:
        yield Finding(
            _SEVERAL, f"{whole['num_threads']} threads have read the iterable.", "1", f"{whole['num_threads']}"
        )
    if fetched > depth + 2:
        message = f"While the loop held its first batch, {fetched} batches were fetched with a depth of {depth}."
        yield Finding("too far ahead", message, f"at most {depth + 2}", f"{fetched}")
    if flag(left, "alive"):
        yield Finding("the thread stays", "The generator was closed, and its thread is still running.")


_JOINS_LEFT, _TAKES_LEFT = "joins a thread that waits in put", "finally takes from an empty queue"
_JOINS, _YIELDED = "waits for the thread, which waits for the loop", "the error is a batch"
_ALL_FIRST, _SEVERAL, _ODD = "all batches are read first", "several threads read", "a batch taken for the end"

EXERCISE = declared(
    id="prefetching_loader",
    functions=("prefetched",),
    driver=drive,
    oracle=expected,
    looks=(find,),
    mistakes=(
        Mistake("hangs at the end",
                "The loop, or its finally, waits for something that never comes into the queue: start the thread, let "
                "it put in an end marker after the last batch, end the loop when that arrives (a thread may be alive "
                "without another batch), and empty the queue only while something is in it. An error in the thread's "
                "own code ends the thread silently.",
                general=True),
        Mistake(_JOINS,
                "The loop waits for the thread in join, and the thread waits until there is room in the queue. Take "
                "batches while it runs, and join it only when the queue has been emptied."),
        Mistake(_YIELDED,
                "The error was put into the queue and yielded like a batch: where the loop takes an error out, it "
                "raises it."),
        Mistake("hangs at the error",
                "The error killed the thread and the loop waits forever: catch it there, put it into the queue, "
                "raise it in the loop."),
        Mistake("the error is swallowed",
                "The error ended the loop silently: training would continue with half the data. Raise it."),
        Mistake("an error of its own", "The loop raised an error that is not the iterable's own, so "
                "nobody can catch what the loader raised: mend what the sentence above says."),
        Mistake("the end is a batch", "The end marker was yielded as if it were a batch."),
        Mistake("not all batches",
                "Batches are missing, or there are too many: the end marker comes after the last one."),
        Mistake(_ALL_FIRST,
                "list(batches) reads everything before the first batch comes out: it needs memory for all, and an "
                "error at the end loses them all. Put each batch into the queue as it is read."),
        Mistake(_SEVERAL,
                "One thread reads the iterable, and nobody else, not even for the first batch: most iterators cannot "
                "be asked by two threads at once."),
        Mistake("batches before the error are lost",
                "The error came before batches that were fetched without one: put it into the same queue, behind them, "
                "and let the thread alone read the iterable."),
        Mistake(_ODD,
                "A batch may be anything, also None or 0. Let the end be what no batch can be: end = object(), "
                "compared with `is`; or put pairs into the queue, (kind, value)."),
        Mistake("nothing is fetched ahead",
                "Nothing is fetched while the loop works: read the iterable in a thread of its own."),
        Mistake("too far ahead",
                "The thread runs further ahead than depth allows: queue.Queue(maxsize=depth) makes it wait."),
        Mistake(_JOINS_LEFT,
                "finally waits for the thread in join, and the thread waits in put for room that nobody makes. Set the "
                "stop flag, then empty the queue. The put that waited fills a place again, so the thread must look at "
                "the flag before every other put, also before that of its end or its error."),
        Mistake(_TAKES_LEFT,
                "finally waits in get for something that never comes. A thread that is alive need not put anything "
                "more: it may be about to end. Empty the queue only while something is in it, and then join."),
        Mistake("the thread stays",
                "When the loop is left, the thread must end: in finally, set a stop flag, empty the queue (the "
                "thread may wait in put), and join."),
    ),
    visible=(
        loader_case("12 batches, 2 may wait, the fourth raises", 12, 2, 3),
        loader_case("30 batches, 1 may wait, the first raises", 30, 1, 0),
    ),
    distributed=False,
    hints=(
        "What can come through the queue besides a batch? And who might wait forever when the loop is left?",
        "The thread puts (kind, value): a batch, the end, an error. The loop gets and yields, raises or returns. In a "
        "finally: set an Event that the thread checks, empty the queue so that its put returns, join.",
        "try: while True: kind, value = ready.get(); ... finally: stop.set(); while not ready.empty(): ready.get(); "
        "thread.join()",
    ),
)  # fmt: skip
