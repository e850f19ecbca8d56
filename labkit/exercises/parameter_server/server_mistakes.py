"""What the four servers share: an Exercise that calls a server, and the mistakes of servers of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from labkit.checks.case import Case, Failure, Values
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.called_servers import drive_server
from labkit.exercises.parameter_server.crowds import crowd_structure, found_in_crowd, is_crowd
from labkit.exercises.parameter_server.scripts import (
    ALIAS,
    NOT_NOTED,
    UNLOCKED,
    Rule,
    found_in_script,
    oracle_of,
    problem_said,
    script_structure,
)
from labkit.exercises.parameter_server.watched_server import TAKEN_TWICE

TWICE_LOCKED, TWICE = "takes the lock twice", "one future for all steps"
PROBLEMS = {
    "blocked": "waits inside push",
    "unmarked": "not marked as answered later",
    "no future": "returns no Future",
    "form": "the answer is not a pair",
}
"""What the driver meets, and the mistake behind it."""
_HINTS = {
    TWICE_LOCKED: "This call holds self.lock and takes it again: it would wait for itself forever. pull() takes it "
    "too. Under the lock, write self.version, self.weight.clone() in place of self.pull().",
    PROBLEMS["blocked"]: "push must come back at once, with a Future; whoever brings the last gradient completes it. A "
    "call that waits keeps a thread of the server busy.",
    PROBLEMS["unmarked"]: "Write @rpc.functions.async_execution above push: it says that the answer is in the Future "
    "that it returns.",
    PROBLEMS["no future"]: "A method that is marked @rpc.functions.async_execution must return a torch.futures.Future; "
    "the answer goes into it, by set_result.",
    PROBLEMS["form"]: "An answer is the pair (version, weights): self.version, self.weight.clone().",
    TWICE: "A future is completed once. When a step is over, the next one needs a new Future().",
    ALIAS: "An answer must not change afterwards: answer with self.weight.clone().",
    UNLOCKED: (
        "It is right for one call at a time but not for several at once: take self.lock (with self.lock:) before the "
        "first thing that is read, and keep it until the last thing is written and copied."
    ),
    NOT_NOTED: "Note every gradient that is used, before the version counts up: "
    "self.updates.append(Update(len(self.updates), worker, version, self.version)).",
}
_ONLY_WITH_FUTURES = {PROBLEMS["blocked"], PROBLEMS["no future"], TWICE}


def server_exercise(
    *,
    id: str,
    server: str,
    rule: Rule,
    gradients_a_version: Callable[[Case], int],
    visible: tuple[Case, ...],
    hints: tuple[str, str, str],
    named: Callable[[Case, Values], str],
    mistakes: dict[str, str],
    crowd_stuck: str = UNLOCKED,
    some_are_dropped: bool = False,
    answers_run_free: bool = False,
    future: bool = True,
) -> Exercise:
    """Return the exercise of one kind of server.

    Args:
        id: "sync_server".
        server: Name of the class.
        rule: What it does with a script.
        gradients_a_version: How many gradients make a version in a case.
        visible: Cases.
        hints: Three of them.
        named: Names the mistake behind answers of a script that are not the rule's, or "".
        mistakes: Hints to those of this kind of server; those of all kinds are added.
        crowd_stuck: The mistake behind workers that wait for ever when all push at once.
        some_are_dropped: Whether gradients may come too late.
        answers_run_free: Whether others may push while an answer is put together.
        future: Whether push returns a Future.
    """

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        came = got[0]
        if came.get("problem") == "crowd":
            words = str(came["words"])
            yield Finding(crowd_stuck if "Deadlock" in words else UNLOCKED, words)
        elif "problem" in came:
            yield Finding(PROBLEMS[str(came["problem"])], problem_said(case, came))
        elif is_crowd(case):
            said = found_in_crowd(case, came, gradients_a_version(case), some_are_dropped=some_are_dropped)
            yield from (Finding(UNLOCKED, each) for each in said)
        else:
            yield from found_in_script(case, came, rule, named, answers_run_free=answers_run_free)

    return Exercise(
        id=id,
        functions=(server,),
        given=("Server", "Update"),
        driver=drive_server,
        oracle=oracle_of(rule),
        structure=lambda case: crowd_structure(case) if is_crowd(case) else script_structure(case),
        find=find,
        blame=_blame,
        visible=visible,
        distributed=False,
        hints=hints,
        mistakes={name: hint for name, hint in _HINTS.items() if future or name not in _ONLY_WITH_FUTURES} | mistakes,
        certain=frozenset({TWICE_LOCKED, TWICE}),
    )


def _blame(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
    if TAKEN_TWICE in failure.message:
        yield TWICE_LOCKED
    again = "complete" in failure.message and "again" in failure.message
    if again or "marked completed" in failure.message:
        yield TWICE
