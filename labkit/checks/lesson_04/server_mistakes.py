"""Mistakes that servers of every kind share (4.2 to 4.5)."""

from __future__ import annotations

from collections.abc import Callable

from labkit.checks.case import Case, Failure, Got
from labkit.checks.verdict import Mistake
from labkit.checks.wire import Wire


def problem(name: str) -> Callable[[Case, Got, Wire], bool]:
    """Return whether the driver met this problem."""
    return lambda case, got, wire: isinstance(got, tuple) and got[0].get("problem") == name


def said(judged: Callable[[Case, Got, Wire], str], words: str) -> Callable[[Case, Got, Wire], bool]:
    """Return whether the judge's message holds these words."""
    return lambda case, got, wire: isinstance(got, tuple) and words in judged(case, got, wire)


BLOCKED = Mistake(
    "waits inside push",
    "push must come back at once, with a Future; whoever brings the last gradient completes it. A call that "
    "waits keeps "
    "a thread of the server busy.",
    problem("blocked"),
)
UNMARKED = Mistake(
    "not marked as answered later",
    "Write @rpc.functions.async_execution above push: it says that the answer is in the Future that it returns.",
    problem("unmarked"),
)
NO_FUTURE = Mistake(
    "returns no Future",
    "A method that is marked @rpc.functions.async_execution must return a torch.futures.Future; the answer "
    "goes into it, "
    "by set_result.",
    problem("no future"),
)
FORM = Mistake(
    "the answer is no pair",
    "An answer is the pair (version, weights): set_result((self.version, self.weight.clone())).",
    problem("form"),
)
ALIAS = Mistake(
    "hands out the server's own tensor",
    "What is handed out must stay what it is: answer with self.weight.clone().",
    lambda case, got, wire: isinstance(got, tuple) and got[0].get("changed") is True,
)
TWICE = Mistake(
    "one future for all steps",
    "A future is completed once. When a step is over, the next one needs a new Future().",
    lambda case, got, wire: (
        (isinstance(got, Failure) and "complete" in got.message and "again" in got.message) or _after_first(case, got)
    ),
    certain=True,
)


def _after_first(case: Case, got: Got) -> bool:
    return isinstance(got, Failure) and "marked completed" in got.message


def no_record(message: Callable[[Case, Got, Wire], str]) -> Mistake:
    """Return the mistake of an exercise whose judge says this of updates."""
    return Mistake(
        "updates not noted",
        "Note every gradient that is used, before the version counts up: "
        "self.updates.append(Update(len(self.updates), worker, version, self.version)).",
        said(message, "server.updates"),
    )
