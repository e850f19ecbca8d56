"""Primary and backup: the exercise, and how learners get it wrong. Its cases and its judge are in replicas.py."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias, cast

from labkit.checks.case import Case, Got
from labkit.checks.judged import Mistake, judged
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.replicas import (
    dying_case,
    expected,
    judge,
    replica_case,
    safely_case,
    script_of,
    structure,
)
from labkit.exercises.parameter_server.replicated_server.driver import drive

Seen: TypeAlias = Callable[[Case, Got, Wire], bool]


def _says(*words: str, when: Callable[[Case], bool] = lambda case: True) -> Seen:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return isinstance(got, tuple) and when(case) and all(word in judge(case, got, wire).message for word in words)

    return seen


def _driven(case: Case) -> bool:
    return "script" in case.inputs[0]


def _repeated(case: Case) -> bool:
    names = [(s["worker"], s["number"]) for s in script_of(case) if s["op"] == "push"] if _driven(case) else []
    return len(set(names)) < len(names)


def _passed_on(case: Case, got: Got) -> tuple[int, bool]:
    """Return how many gradients the backup was pushed, and whether they are too few."""
    if not isinstance(got, tuple) or not _driven(case) or not case.inputs[0]["with_backup"] or "backup" not in got[0]:
        return -1, False
    count = len(cast(list[Any], got[0]["backup"]))
    return count, count < sum(step["op"] == "push" for step in script_of(case))


def _applied_like(kept: Callable[[list[tuple[int, int]]], Collection[object]]) -> Seen:
    """Return whether after some step the version counts what this rule keeps of all pushes, and not what is right."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or not _driven(case) or "steps" not in got[0]:
            return False
        pushed: list[tuple[int, int]] = []
        wrong = False
        for step, mine in zip(script_of(case), cast(list[dict[str, Any]], got[0]["steps"]), strict=True):
            if step["op"] == "push":
                pushed.append((step["worker"], step["number"]))
            if mine["version"] != len(kept(pushed)):
                return False
            wrong = wrong or mine["version"] != len(set(pushed))
        return wrong

    return seen


def _rising(pushed: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pushes whose number is larger than all before of that worker."""
    last: dict[int, int] = {}
    found = []
    for worker, number in pushed:
        if number > last.get(worker, -1):
            last[worker] = number
            found.append((worker, number))
    return found


def _applied_late(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether nothing was applied in the first step, a push, and all was applied in the end."""
    if not isinstance(got, tuple) or not _driven(case) or not case.inputs[0]["with_backup"] or "steps" not in got[0]:
        return False
    versions: list[int] = [step["version"] for step in cast(list[dict[str, Any]], got[0]["steps"])]
    return versions[0] == 0 and versions[-1] > 0


def _early(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple) or not _driven(case) or not case.inputs[0]["with_backup"] or "steps" not in got[0]:
        return False
    steps = cast(list[dict[str, Any]], got[0]["steps"])
    return any(step["answered"] for step, told in zip(steps, script_of(case), strict=True) if told["op"] == "push")


EXERCISE = judged(
    id="replicated_server",
    functions=("Replica", "push_safely"),
    given=("Server", "Update", "Remote"),
    driver=drive,
    oracle=expected,
    structure=structure,
    judge=judge,
    visible=(
        replica_case("no backup", 111, "w0.0 w1.0 w0.1", with_backup=False),
        replica_case(
            "no backup, pushed again, and in another order", 112, "w0.0 w0.0 w1.5 w1.4 w1.5", with_backup=False
        ),
        replica_case("with a backup that answers later", 113, "w0.0 w1.0 a1 w0.1 a0 a2", with_backup=True),
        replica_case(
            "with a backup, pushed again before it has answered", 114, "w0.0 w0.0 a0 a1 w0.0 a2", with_backup=True
        ),
        replica_case("a backup that fails", 115, "w0.0 f0 w1.0 a1", with_backup=True),
        safely_case("push_safely", 116, [["answer", "answer"], ["fail", "answer"], ["raise", "fail", "answer"]]),
        safely_case("push_safely, and nobody answers", 117, [["fail", "raise"]]),
        dying_case("the primary dies, over RPC", 118, 3, 8, 0.011),
    ),
    distributed=False,
    hints=(
        "Go through one push and let the primary die after every line of it. After which line may the worker be told "
        "that all is well?",
        "A set of (worker, number) says what has been applied; only new ones are. The push to the backup goes out "
        "every time, and what push returns is that call's future, turned into the version by then(). push_safely: "
        "wait inside try, go on to the next replica on RuntimeError.",
        "return self.backup.push(worker, number, gradient).then(lambda answer: (answer.value(), version)[1]): value() "
        "raises if the backup failed, and then so does this future.",
    ),
    mistakes=(
        Mistake(
            "the backup is told nothing",
            "The backup was not pushed the gradients.",
            lambda case, got, wire: _passed_on(case, got) == (0, True),
        ),
        Mistake(
            "a repeated gradient is not passed on",
            "A gradient that was pushed again did not go to the backup. Perhaps the backup never got it: pass it on "
            "every time, the backup knows what it has.",
            lambda case, got, wire: _repeated(case) and _passed_on(case, got)[1],
        ),
        Mistake(
            "acknowledged before the backup has it",
            "push is complete before the backup has answered. If the primary dies now, the gradient is lost and the "
            "worker believes it is safe.",
            _early,
        ),
        Mistake(
            "waits inside push",
            "push waits for the backup inside the call; return a future that follows the backup's: .then(...).",
            _says("did not come back"),
        ),
        Mistake("returns no Future", "push returns a Future, whether there is a backup or not.", _says("no Future")),
        Mistake(
            "numbers without their workers",
            "Two workers have gradients of the same number: what has been applied is a pair, (worker, number).",
            _applied_like(lambda pushed: {number for _, number in pushed}),
        ),
        Mistake(
            "the largest number only",
            "A gradient whose number is smaller than one before it was passed over. Calls may overtake each "
            "other: keep a set of the pairs that were applied, not the last number.",
            _applied_like(_rising),
        ),
        Mistake(
            "applied when the backup has answered",
            "The gradient is applied when it comes, and acknowledged when the backup has it; here both wait.",
            _applied_late,
        ),
        Mistake(
            "a repeated gradient counts twice",
            "The same worker and number came again, and was applied again. Keep a set of what has been applied.",
            lambda case, got, wire: (
                _repeated(case)
                and isinstance(got, tuple)
                and any(words in judge(case, got, wire).message for words in ("version", "weights"))
            ),
        ),
        Mistake(
            "the backup's failure is hidden",
            "The backup failed, and push was acknowledged all the same: let answer.value() raise in the function that "
            "then() calls.",
            _says("it should fail"),
        ),
        Mistake(
            "does not wait for the answer",
            "A future that is there is no answer: .wait() says whether one came, and raises if not. Wait inside try.",
            _says("push_safely gave 0, expected", when=lambda case: "behaviours" in case.inputs[0]),
        ),
        Mistake(
            "returns the answer",
            "Asked for is the place in replicas of the one that answered, not what it answered.",
            _says("Replicas that answer, answer: push_safely gave 1"),
        ),
        Mistake(
            "stops at the first replica",
            "When a replica fails, the next one is asked: catch the RuntimeError around push and wait, both.",
            lambda case, got, wire: _says("push_safely gave RuntimeError raised, expected")(case, got, wire),
        ),
        Mistake(
            "asks everybody",
            "Replicas after the one that answered are pushed to as well. The first answer is enough.",
            _says("replica", "expected 0"),
        ),
        Mistake(
            "nobody answers, and nobody says so",
            "If no replica answers, raise a RuntimeError: the gradient was not acknowledged.",
            _says("should raise"),
        ),
        Mistake(
            "another number for the retry",
            "The retry must carry the same number, or the backup cannot know that it has this gradient already.",
            _says("expected number"),
        ),
        Mistake(
            "lost",
            "A gradient that was acknowledged is not in the backup's weights.",
            lambda case, got, wire: "dies_after_s" in case.inputs[0] and _says("lost")(case, got, wire),
        ),
        Mistake(
            "version not counted",
            "The answer is the version: one up for each gradient that was applied.",
            _says("version"),
        ),
    ),
)
