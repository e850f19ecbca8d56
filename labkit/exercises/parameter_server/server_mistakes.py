"""What the four servers share: how a server is looked at, and the mistakes of servers of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from labkit.checks.case import Case, Got, Values
from labkit.checks.declared import Mistake, Seen, declared
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.called_servers import drive_server
from labkit.exercises.parameter_server.crowds import crowd_structure, found_in_crowd, is_crowd
from labkit.exercises.parameter_server.scripts import (
    ALIAS,
    NOT_NOTED,
    OTHER_RECORD,
    UNLOCKED,
    Rule,
    answers_in,
    follows,
    found_in_script,
    problem_said,
    results,
    same,
    script_structure,
)
from labkit.exercises.remote_calls.watched_server import TAKEN_TWICE


@dataclass(frozen=True)
class Kind:
    """A kind of server.

    Attributes:
        name: Of its class.
        rule: What it does with a script.
        gradients_a_version: How many gradients make a version in a case.
        some_are_dropped: Whether gradients may come too late.
        answers_run_free: Whether others may push while an answer is put together.
    """

    name: str
    rule: Rule
    gradients_a_version: Callable[[Case], int] = lambda case: 1
    some_are_dropped: bool = False
    answers_run_free: bool = False

    def exercise(self, **about: Any) -> Exercise:
        """Return the exercise that asks for such a server."""
        return declared(
            functions=(self.name,),
            given=("Server", "Update"),
            driver=drive_server,
            oracle=lambda case: [{} if is_crowd(case) else results(case, self.rule(case))],
            structure=lambda case: crowd_structure(case) if is_crowd(case) else script_structure(case),
            looks=(self._look,),
            distributed=False,
            **about,
        )

    def _look(self, case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        came = got[0]
        if "problem" in came:
            yield Finding("", str(came["words"]) if came["problem"] == "crowd" else problem_said(case, came))
        elif is_crowd(case):
            said = found_in_crowd(case, came, self.gradients_a_version(case), some_are_dropped=self.some_are_dropped)
            yield from (Finding(UNLOCKED, each) for each in said)
        else:
            yield from found_in_script(case, came, self.rule, answers_run_free=self.answers_run_free)


def as_if(*rules: Rule) -> Seen:
    """Return the mark that a server does with the script what one of these rules says."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        ran = isinstance(got, tuple) and "steps" in got[0]
        return ran and any(follows(case, got[0], rule) for rule in rules)  # type: ignore[index]

    return seen


def one_behind(rule: Rule) -> Seen:
    """Return the mark that all is as this rule says, but each answer tells the version before its own."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or "steps" not in got[0]:
            return False
        told = [{**answer, "version": answer["version"] + 1} for step in answers_in(got[0]) for answer in step]
        right = [answer for step in answers_in(results(case, rule(case))) for answer in step]
        return same(told, right)

    return seen


def problem(kind: str, words: str = "") -> Seen:
    """Return the mark that the driver met this problem, and said these words of it."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        came = got[0] if isinstance(got, tuple) else {}
        return came.get("problem") == kind and words in str(came.get("words"))

    return seen


MISTAKES = (
    Mistake("takes the lock twice",
            "This call holds self.lock and takes it again: it would wait for itself forever. pull() takes it too. "
            "Under the lock, write self.version, self.weight.clone() in place of self.pull().",
            says=(TAKEN_TWICE,), certain=True),
    Mistake(ALIAS, "An answer must not change afterwards: answer with self.weight.clone()."),
    Mistake(UNLOCKED,
            "It is right for one call at a time but not for several at once: take self.lock (with self.lock:) before "
            "the first thing that is read, and keep it until the last thing is written and copied.",
            seen=problem("crowd")),
    Mistake(NOT_NOTED,
            "Note each gradient that is used, and no other, when it arrives and before the version counts up: "
            "self.updates.append(Update(len(self.updates), worker, version, self.version))."),
    Mistake(OTHER_RECORD,
            "The records stand in the order in which the gradients arrived. Each holds, in this order: how many came "
            "before it, who pushed, the version that worker had read, and the server's version before the step."),
)  # fmt: skip
"""Those of every server; they come last."""
WITH_FUTURES = (
    Mistake("waits inside push",
            "push must come back at once, with a Future; whoever brings the last gradient completes it. A call that "
            "waits keeps a thread of the server busy.", seen=problem("blocked")),
    Mistake("not marked as answered later",
            "Write @rpc.functions.async_execution above push: it says that the answer is in the Future that it "
            "returns.", seen=problem("unmarked")),
    Mistake("returns no Future",
            "A method that is marked @rpc.functions.async_execution must return a torch.futures.Future; the answer "
            "goes into it, by set_result.", seen=problem("no future")),
    Mistake("the answer is not a pair",
            "An answer is the pair (version, weights): self.version, self.weight.clone().", seen=problem("form")),
    Mistake("one future for all steps",
            "A future is completed once. The next step, and the next push that waits, needs a new Future().",
            says=("marked completed",), certain=True),
    *MISTAKES,
)  # fmt: skip
"""Those of every server that answers later; they come last."""
