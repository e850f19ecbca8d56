"""What the four servers share: an Exercise that calls a server, and the mistakes of servers of every kind."""

from __future__ import annotations

from collections.abc import Callable

from labkit.checks.case import Case, Failure, Got
from labkit.checks.exercise import Exercise
from labkit.checks.judged import Judge, Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.called_servers import drive_server
from labkit.exercises.parameter_server.crowds import crowd_structure, is_crowd, judge_crowd
from labkit.exercises.parameter_server.scripts import Rule, judge_script, oracle_of, script_structure
from labkit.exercises.parameter_server.watched_server import TAKEN_TWICE


def server_exercise(
    *,
    id: str,
    server: str,
    rule: Rule,
    gradients_a_version: Callable[[Case], int],
    visible: tuple[Case, ...],
    hints: tuple[str, str, str],
    mistakes: tuple[Mistake, ...],
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
        mistakes: Those of this kind of server; those of all kinds are added.
        some_are_dropped: Whether gradients may come too late.
        answers_run_free: Whether others may push while an answer is put together.
        future: Whether push returns a Future.
    """

    def judge(case: Case, got: Got, wire: Wire) -> Verdict:
        if is_crowd(case):
            return judge_crowd(case, got, gradients_a_version(case), some_are_dropped=some_are_dropped)
        return judge_script(case, got, rule, answers_run_free=answers_run_free)

    return judged(
        id=id,
        functions=(server,),
        given=("Server", "Update"),
        driver=drive_server,
        oracle=oracle_of(rule),
        structure=lambda case: crowd_structure(case) if is_crowd(case) else script_structure(case),
        judge=judge,
        visible=visible,
        distributed=False,
        hints=hints,
        mistakes=(
            TWICE_LOCKED,
            *((BLOCKED, UNMARKED, NO_FUTURE, FORM, TWICE) if future else (UNMARKED, FORM)),
            *mistakes,
            _without_a_lock(judge),
            ALIAS,
            _no_record(judge),
        ),
    )


def problem(name: str) -> Callable[[Case, Got, Wire], bool]:
    """Return whether the driver met this problem."""
    return lambda case, got, wire: isinstance(got, tuple) and got[0].get("problem") == name


def said(judge: Judge, words: str) -> Callable[[Case, Got, Wire], bool]:
    """Return whether the judge's message of a script holds these words."""
    return lambda case, got, wire: (
        isinstance(got, tuple) and not is_crowd(case) and words in judge(case, got, wire).message
    )


TWICE_LOCKED = Mistake(
    "takes the lock twice",
    "This call holds self.lock and takes it again: it would wait for itself for ever. pull() takes it too. Under the "
    "lock, write self.version, self.weight.clone() in place of self.pull().",
    lambda case, got, wire: isinstance(got, Failure) and TAKEN_TWICE in got.message,
    certain=True,
)
BLOCKED = Mistake(
    "waits inside push",
    "push must come back at once, with a Future; whoever brings the last gradient completes it. A call that waits "
    "keeps a thread of the server busy.",
    problem("blocked"),
)
UNMARKED = Mistake(
    "not marked as answered later",
    "Write @rpc.functions.async_execution above push: it says that the answer is in the Future that it returns.",
    problem("unmarked"),
)
NO_FUTURE = Mistake(
    "returns no Future",
    "A method that is marked @rpc.functions.async_execution must return a torch.futures.Future; the answer goes into "
    "it, by set_result.",
    problem("no future"),
)
FORM = Mistake(
    "the answer is no pair",
    "An answer is the pair (version, weights): self.version, self.weight.clone().",
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
        isinstance(got, Failure)
        and ("marked completed" in got.message or ("complete" in got.message and "again" in got.message))
    ),
    certain=True,
)


def _without_a_lock(judge: Judge) -> Mistake:
    unheld = said(judge, "self.lock is not held")
    return Mistake(
        "without a lock",
        "One call after the other it is right, several at once it is not: take self.lock (with self.lock:) before the "
        "first thing that is read, and keep it until the last thing is written and copied.",
        lambda case, got, wire: (is_crowd(case) and isinstance(got, tuple)) or unheld(case, got, wire),
    )


def _no_record(judge: Judge) -> Mistake:
    return Mistake(
        "updates not noted",
        "Note every gradient that is used, before the version counts up: "
        "self.updates.append(Update(len(self.updates), worker, version, self.version)).",
        said(judge, "server.updates"),
    )
